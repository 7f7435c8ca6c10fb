"""What a classifier's run holds, as text for a person or JSON for a program."""

from __future__ import annotations

from typing import Any

from dkl.errors import StoreError
from dkl.estimators.svc.model import read_classes
from dkl.estimators.svc.store import states_of
from dkl.runs import report as summary
from dkl.runs.svc.inputs import open_run
from dkl.stores.run import RunStore

MOST_MACHINES = 8
"""Lines of a table."""
MOST_CLASSES = 12
"""Names in a line."""


def show_run(path: str, *, as_json: bool) -> None:
    run = open_run(path)
    facts = {"classes": read_classes(run).tolist(), "history": history_of(run) if run.is_complete else []}
    config = [*summary.describe_config(run, ("data", "targets")), summary.line("classes", _names(facts["classes"]))]
    table = _table(run.report()) if run.is_complete else []
    summary.show(run, state_of(run), facts, config, _result, table, as_json=as_json)


def state_of(run: RunStore) -> str:
    """Where the run stands."""
    if run.is_complete:
        return f"complete, {run.report().get('outcome')}"
    _, found, _ = states_of(run).read()
    if not found:
        return "not begun"
    return f"resumable; machines solved: {int(found['machines'][:, 2].sum())}"


def history_of(run: RunStore) -> list[dict[str, Any]]:
    """A row a check of the solver."""
    found = run.read_arrays("history")
    names = sorted(found)
    return [dict(zip(names, row, strict=True)) for row in zip(*(found[name].tolist() for name in names), strict=True)]


def describe_report(report: dict[str, Any]) -> str:
    """Result, certificate and costs of a run that has ended."""
    return summary.describe_report(report, _result)


def _result(report: dict[str, Any]) -> dict[str, str]:
    outputs = report["outputs"]
    lines = {"support vectors": f"{report['n_support']:,}", "steps": str(report["n_iter"])}
    if len(outputs) == 1:
        lines["objective"] = f"{outputs[0]['objective']:.10g}"
        lines["proven relative gap"] = f"{outputs[0]['relative_gap']:.3g}"
    else:
        worst = max(output["relative_gap"] for output in outputs)
        lines["machines"] = f"{len(outputs)}   their largest proven relative gap {worst:.3g}"
    if len(outputs[0]["kernel_weights"]) > 1 and len(outputs) == 1:
        lines["weights of the kernels"] = ", ".join(f"{value:.4g}" for value in outputs[0]["kernel_weights"])
    return lines


def _table(report: dict[str, Any]) -> list[str]:
    """The machines, the worst first where there are many."""
    try:
        outputs = sorted(report["outputs"], key=lambda output: -output["relative_gap"])
        lines = [f"{'machine':<32}{'rows':>10}{'support':>10}{'objective':>18}{'gap':>12}"]
        for output in outputs[:MOST_MACHINES]:
            first, other = output["between"]
            name = f"{first} against {'the rest' if other is None else other}"
            cells = f"{output['rows']:>10,}{output['n_support']:>10,}{output['objective']:>18.10g}"
            lines.append(f"{name:<32}{cells}{output['relative_gap']:>12.3g}")
    except (KeyError, TypeError, ValueError) as error:
        raise StoreError("a damaged report", where="report.json", got=f"{type(error).__name__}: {error}") from error
    if len(outputs) > MOST_MACHINES:
        lines.append(f"and {len(outputs) - MOST_MACHINES} more, of smaller gaps")
    return lines


def _names(classes: list[Any]) -> str:
    more = f" and {len(classes) - MOST_CLASSES} more" if len(classes) > MOST_CLASSES else ""
    return ", ".join(map(str, classes[:MOST_CLASSES])) + more
