"""Facts of a run of kernel regression for `dkl info`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dkl.errors import StoreError
from dkl.runs import report
from dkl.runs.kind import Facts
from dkl.runs.stored import events_of
from dkl.stores.run import RunStore

if TYPE_CHECKING:
    from dkl.stores.sealed_json import Json

MOST_NUS = 9
"""Lines of the table of nu."""


def facts(run: RunStore) -> Facts:
    """Return state, nu, columns, certificates, and errors of cross-validation."""
    cv = cv_table(run) if run.is_complete else []
    with report.damages(run):
        result = _result(run.report()) if run.is_complete else {}
    table = _describe_cv(cv) if cv else []
    return Facts(report.state(run, _under_way), {}, result, table, {"cv": cv, "history": history(run)})


def _under_way(run: RunStore) -> str:
    commits = events_of(run, "commit")
    if commits and any((run.path / "sums").glob("sums-*")):
        last = commits[-1]
        panels = "" if last.get("panels", 1) == 1 else f" of pass {last.get('panel', 0) + 1} of {last['panels']}"
        return f"resumable at {last.get('done')} of {last.get('of')} groups of rows{panels}"
    return "not started" if not (run.path / "candidates").is_dir() else "not started; the columns are chosen"


def history(run: RunStore) -> list[Json]:
    """Return a row for each check of the solver; [] for runs that stored none."""
    rows = run.report().get("history", []) if run.is_complete else []
    return rows if isinstance(rows, list) else []


def _result(found: Json) -> dict[str, str]:
    outputs = found["outputs"]
    how = "by cross-validation" if found["settings"]["nu"] == "cv" else "given"
    lines = {
        "nu": f"{found['nu']:.6g}   {how}; from {found['nu_max']:.6g} on all weights are zero",
        "columns": f"{found['n_columns']:,}, of which active {found['n_active']:,}",
        "steps": str(found["n_iter"]),
    }
    for number, output in enumerate(outputs[: report.MOST_OUTPUTS]):
        lines |= report.certificate(output, "" if len(outputs) == 1 else f" of target {number}")
    if len(outputs) > report.MOST_OUTPUTS:
        lines["largest relative gap"] = report.largest_gap(outputs)
    refit = found.get("refit")
    if refit is not None:
        whose = "all" if refit["columns"] == "all" else "the lasso's"
        gap = report.largest_gap(refit["outputs"])
        lines["refit"] = f"ridge on {whose} columns, lambda {refit['lam']:.4g}; proven relative gap {gap}"
    return lines


def cv_table(run: RunStore) -> list[Json]:
    """Return for each nu mean squared held-out error, its spread over folds, active columns; [] without."""
    found = run.read_arrays("model")
    if "cv_errors" not in found:
        return []
    try:
        nus, errors, active = found["cv_nus"], found["cv_errors"], found["cv_active"]
        return [_row(float(nu), errors[k], active[k], run.report()["nu"]) for k, nu in enumerate(nus)]
    except (KeyError, IndexError, ValueError, OverflowError) as error:
        raise StoreError("damaged errors of cross-validation", where=f"{run.path}/model", got=error) from error


def _row(nu: float, errors: NDArray[np.float64], active: NDArray[np.int64], chosen: float) -> Json:
    """Return a row of the table of nu, from its errors and active columns (K, T)."""
    return {
        "nu": nu,
        "error": errors.mean(axis=0).tolist(),
        "spread": errors.std(axis=0, ddof=1).tolist(),
        "n_active": float(active.mean()),
        "chosen": nu == chosen,
    }


def _describe_cv(table: list[Json]) -> list[str]:
    """Return the table of nu in brief: both ends, the chosen nu and its neighbors."""
    place = next((k for k, row in enumerate(table) if row["chosen"]), 0)
    near = {k for k in range(place - 2, place + 3) if 0 <= k < len(table)}
    spread = np.linspace(0, len(table) - 1, max(2, MOST_NUS - len(near))).astype(int).tolist()
    targets = len(table[0]["error"])
    head = "mean squared error on rows held out" + (", mean of targets" if targets > 1 else "")
    lines = [f"{head}: {len(table)} values of nu", f"{'nu':>14}{'error':>14}{'+-':>12}{'active':>10}"]
    for k in sorted(near | set(spread)):
        row = table[k]
        mark = "   chosen" if row["chosen"] else ""
        error, plus = np.mean(row["error"]), np.mean(row["spread"])
        lines.append(f"{row['nu']:>14.5g}{error:>14.6g}{plus:>12.3g}{row['n_active']:>10.1f}{mark}")
    return lines
