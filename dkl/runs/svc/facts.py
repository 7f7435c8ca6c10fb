"""What a classifier's run holds."""

from __future__ import annotations

from typing import Any

from dkl.estimators.common.classes import read_classes
from dkl.estimators.common.stored_history import read_history
from dkl.estimators.svc.store import states_of
from dkl.runs import report
from dkl.runs.kind import Facts
from dkl.stores.run import RunStore

MOST_MACHINES = 8
"""Lines of a table."""
MOST_CLASSES = 12
"""Names in a line."""


def facts(run: RunStore) -> Facts:
    """State, classes, support vectors, and the machines with their gaps."""
    classes = read_classes(run).tolist()
    details = {"classes": classes, "history": read_history(run) if run.is_complete else []}
    with report.damages(run):
        result, table = (_result(run.report()), _table(run.report())) if run.is_complete else ({}, [])
    return Facts(state(run), {"classes": _names(classes)}, result, table, details)


def state(run: RunStore) -> str:
    """Where the run stands."""
    if run.is_complete:
        return f"complete, {run.report().get('outcome')}"
    _, found, _ = states_of(run).read()
    if not found:
        return "not begun"
    return f"resumable; machines solved: {int(found['machines'][:, 2].sum())}"


def _result(found: dict[str, Any]) -> dict[str, str]:
    outputs = found["outputs"]
    lines = {"support vectors": f"{found['n_support']:,}", "steps": str(found["n_iter"])}
    if len(outputs) == 1:
        lines["objective"] = f"{outputs[0]['objective']:.10g}"
        lines["proven relative gap"] = f"{outputs[0]['relative_gap']:.3g}"
    else:
        worst = max(output["relative_gap"] for output in outputs)
        lines["machines"] = f"{len(outputs)}   their largest proven relative gap {worst:.3g}"
    if len(outputs[0]["kernel_weights"]) > 1 and len(outputs) == 1:
        lines["weights of the kernels"] = ", ".join(f"{value:.4g}" for value in outputs[0]["kernel_weights"])
    return lines


def _table(found: dict[str, Any]) -> list[str]:
    """The machines, the worst first where there are many."""
    outputs = sorted(found["outputs"], key=lambda output: -output["relative_gap"])
    lines = [f"{'machine':<32}{'rows':>10}{'support':>10}{'objective':>18}{'gap':>12}"]
    for output in outputs[:MOST_MACHINES]:
        first, other = output["between"]
        name = f"{first} against {'the rest' if other is None else other}"
        cells = f"{output['rows']:>10,}{output['n_support']:>10,}{output['objective']:>18.10g}"
        lines.append(f"{name:<32}{cells}{output['relative_gap']:>12.3g}")
    if len(outputs) > MOST_MACHINES:
        lines.append(f"and {len(outputs) - MOST_MACHINES} more, of smaller gaps")
    return lines


def _names(classes: list[Any]) -> str:
    more = f" and {len(classes) - MOST_CLASSES} more" if len(classes) > MOST_CLASSES else ""
    return ", ".join(map(str, classes[:MOST_CLASSES])) + more
