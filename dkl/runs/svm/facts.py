"""Facts of a classifier's run for `dkl info`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dkl.estimators.base.classes import read_classes
from dkl.estimators.base.declared_arrays import read_history
from dkl.estimators.svm.checkpoint import Machines, open_checkpoints
from dkl.estimators.svm.model import reported_rho
from dkl.runs import report
from dkl.runs.kind import Facts
from dkl.stores.run import RunStore

if TYPE_CHECKING:
    from dkl.stores.sealed_json import Json


def facts(run: RunStore) -> Facts:
    """Return state, classes, support vectors, and the machines with their gaps."""
    classes = read_classes(run).tolist()
    details = {"classes": classes, "history": read_history(run) if run.is_complete else []}
    with report.damages(run):
        result, table = (_result(run.report()), _table(run.report())) if run.is_complete else ({}, [])
    return Facts(report.state(run, _under_way), {"classes": report.in_a_line(classes)}, result, table, details)


def _under_way(run: RunStore) -> str:
    _, machines = open_checkpoints(run).load(Machines)
    if machines is None:
        return "not started"
    return f"resumable; machines solved: {sum(machine.result is not None for machine in machines.values())}"


def _result(found: Json) -> dict[str, str]:
    outputs = found["outputs"]
    lines = {"support vectors": f"{found['n_support']:,}", "steps": str(found["n_iter"]), "rho": _rho(found)}
    if len(outputs) != 1:
        return lines | {"machines": f"{len(outputs)}   their largest proven relative gap {report.largest_gap(outputs)}"}
    lines |= report.certificate(outputs[0])
    shares = outputs[0]["kernel_weights"]
    if len(shares) > 1:
        lines["weights of the kernels"] = ", ".join(f"{value:.4g}" for value in shares)
    return lines


def _rho(found: Json) -> str:
    """Return the rho of all machines, and where it comes from, as text."""
    setting = found["settings"]["rho"]
    rhos = [reported_rho(output, setting) for output in found["outputs"]]
    return report.spread(rhos) + ('   by the rule "scale"' if setting == "scale" else "   given")


def _table(found: Json) -> list[str]:
    """Return a line for each machine, the worst first if they are many."""
    head = f"{'machine':<32}{'rows':>10}{'support':>10}{'objective':>18}{'gap':>12}"
    return [head, *report.worst_first(found["outputs"], _line)]


def _line(output: Json) -> str:
    first, other = output["between"]
    name = f"{first} against {'the rest' if other is None else other}"
    sizes, objective = f"{output['rows']:>10,}{output['n_support']:>10,}", f"{output['objective']:>18.10g}"
    return f"{name:<32}{sizes}{objective}{output['relative_gap']:>12.3g}"
