"""Lines of `dkl info` on a run of LogDet learning: its state, its result, and one for each gamma."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dkl.estimators.base.run_arrays import read_history
from dkl.runs import report
from dkl.runs.kind import Facts
from dkl.stores.run import RunStore

if TYPE_CHECKING:
    from dkl.stores.sealed_json import Json


def facts_of(run: RunStore, count: int) -> Facts:
    """Return state, sizes, the certificate at the last gamma, and a line for each of the `count` gammas."""
    details = {"history": read_history(run) if run.is_complete else []}
    with report.damages(run):
        result, table = (_result(run.report()), _table(run.report())) if run.is_complete else ({}, [])
    return Facts(report.state(run, lambda under_way: _under_way(under_way, count)), {}, result, table, details)


def _under_way(run: RunStore, count: int) -> str:
    from dkl.estimators.logdet.store import Path, open_checkpoints  # compiles: only where a path is under way

    _, path = open_checkpoints(run).load(Path)
    if path is None:
        return "not started"
    return f"resumable; {len(path)} of {count} gammas solved"


def _result(found: Json) -> dict[str, str]:
    last = found["outputs"][-1]
    lines = {
        "constraints": f"{found['n_constraints']:,} on {found['n_points']:,} rows",
        "steps": f"{found['n_iter']}   {_way(last)} at the last gamma",
        "gamma": f"{last['gamma']:.6g}",
        **report.certificate(last),
    }
    if "n_components" in found:  # of a kernel, or of a metric that is cut
        of_metric = "" if "prior_error" in found else "   that keep most of the learned distances; the gap is of all"
        lines["components"] = f"{found['n_components']}{of_metric}"
    lines |= report.placement(found)
    if last["error"] is not None:
        of = "of the nearest neighbor among the labeled rows, which were learned from"
        lines["error"] = f"{last['error']:.4g}   {of}; {found['prior_error']:.4g} before"
    return lines


def _table(found: Json) -> list[str]:
    """Return a line for each gamma, in the order of the path."""
    has_errors = "prior_error" in found  # of a kernel
    error = f"{'error':>10}" if has_errors else ""
    head = f"{'gamma':>14}{'steps':>8}{'products':>10}{'objective':>20}{'gap':>12}{error}   {'outcome':<18}  steps by"
    return [head, *(_line(one, has_errors) for one in found["outputs"])]


def _line(one: Json, has_errors: bool) -> str:
    error = "" if one["error"] is None else f"{one['error']:.4g}"
    counts = f"{one['gamma']:>14.6g}{one['n_iter']:>8}{one['n_products']:>10}"
    error = f"{error:>10}" if has_errors else ""
    return f"{counts}{one['objective']:>20.10g}{one['relative_gap']:>12.3g}{error}   {one['outcome']:<18}  {_way(one)}"


def _way(one: Json) -> str:
    """Return whether primal or dual was solved (missing in old runs), and how Newton's systems were."""
    systems = {"auto": "both ways", "pcg": "conjugate gradients", "direct": "factorization", "paper": "as printed"}
    how = systems.get(one["solver"], one["solver"]) if one["n_iter"] else "no step"
    return ", ".join(word for word in (one.get("method", "").replace(", ", " then "), how) if word)
