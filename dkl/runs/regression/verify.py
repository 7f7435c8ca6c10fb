"""`dkl verify` of a regression: objective and gap once more, from the training data and what is stored.

Nothing here comes from the solvers, nor from the sums that they work on: columns are scikit-learn's kernels, made anew
block by block in double precision, and the residual is taken row by row. With r = y - C w - c and kappa = sqrt(lam nu),

    P = |r|^2 + 2 kappa |w|_1,    D = max of 2 s y'r - s^2 |r|^2 over the s with |s C'r| <= kappa,    gap = P - D

and P is least over all w where the gap is 0. Where an intercept is fitted, r has mean 0, and y is taken about its own.
The numbers of a refit are in verify_refit.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from dkl.errors import StoreError
from dkl.estimators.regression.model import load_candidates
from dkl.estimators.regression.settings import RegressionSettings
from dkl.quality import Quality, r2_of
from dkl.runs.comparison import QUALITY, Comparison, named
from dkl.runs.regression import verify_refit
from dkl.runs.regression.inputs import RegressionInputs
from dkl.runs.regression.verify_sums import AGREE, ROUNDINGS, Matrix, Sums, Vector, pass_over, same
from dkl.stores.run import RunStore


def claims(run: RunStore, inputs: RegressionInputs, settings: RegressionSettings, budget: int) -> Iterator[Comparison]:
    """Each target's numbers, from one pass over the rows by blocks of at most `budget` bytes; with a refit, one more."""
    report = run.report()
    nu, reported = float(report["nu"]), [_claimed(output) for output in report["outputs"]]
    found = run.read_arrays("model")
    w = found["weights"]
    if w.shape != (len(reported), len(load_candidates(run).scale)) or found["intercepts"].shape != (len(w),):
        raise StoreError("model, candidates and report do not fit together", where=str(run.path))
    y, offsets = inputs.centered(settings, run.config.get("target_means"))
    intercepts, refit = found["intercepts"] - offsets, report.get("refit")
    sums = pass_over(run, inputs.rows, y, w, intercepts, settings, budget)
    if refit is not None:
        yield from verify_refit.claims(run, inputs.rows, refit, sums, w, found.get("lasso_weights"), settings)
        # The numbers that follow are the lasso's, which has weights of its own.
        w, intercepts = found["lasso_weights"], found["lasso_intercepts"] - offsets
        sums = pass_over(run, inputs.rows, y, w, intercepts, settings, budget)
    yield from _quality(report, found, y)
    kappa, mu = float(np.sqrt(settings.lam * nu)), np.sqrt(settings.lam / nu) * np.abs(w)
    apart = 0.0 if same(found["kernel_weights"], mu) else 1.0
    yield Comparison("kernel_weights", 0.0, apart, 0.0, quiet=True)
    for number, claimed in enumerate(reported):
        which = "" if len(reported) == 1 else f" of target {number}"
        yield from named(_of_target(claimed, sums, number, w[number], kappa, settings), which)


def _quality(report: dict[str, Any], found: dict[str, Any], y: Matrix) -> Iterator[Comparison]:
    """R2 of all rows, each predicted without its fold, from the stored errors (K, T) of the folds, which are of equal size."""
    quality = Quality.from_dict(report.get("quality"), "report.json")
    if quality is None or "cv_errors" not in found:
        return
    refit = report.get("refit")
    names, chosen = ("cv_nus", "cv_errors"), float(report["nu"])
    if refit is not None:
        names, chosen = ("refit_lams", "refit_errors"), float(refit["lam"])
    errors = found[names[1]][np.argmin(np.abs(found[names[0]] - chosen))]
    sizes = np.bincount(np.arange(len(y)) % len(errors))
    squares, totals = sizes @ errors, np.square(y - y.mean(axis=0)).sum(axis=0)
    recomputed = r2_of(squares, totals)
    yield Comparison(QUALITY, quality.value, recomputed, AGREE * (1 + abs(recomputed)))


def _claimed(output: dict[str, Any]) -> dict[str, float]:
    objective, gap = float(output["objective"]), float(output["gap"])
    claimed = {"objective": objective, "dual": objective - gap, "gap": gap, "active": float(output["n_active"])}
    return claimed | {"relative_gap": float(output["relative_gap"])}


def _of_target(
    claimed: dict[str, float], sums: Sums, t: int, w: Vector, kappa: float, settings: RegressionSettings
) -> Iterator[Comparison]:
    """P, D and the gap of one target, from the sums."""
    residual, with_targets = float(sums.residual[t]), float(sums.with_targets[t])
    size, largest = float(np.abs(w).sum()), float(np.abs(sums.correlations[:, t]).max(initial=0.0))
    objective = residual + 2 * kappa * size
    best = with_targets / residual if residual > 0 else 0.0
    bound = kappa / largest if largest > 0 else np.inf
    scale = float(np.clip(best, -bound, bound))
    dual = 2 * scale * with_targets - scale**2 * residual
    gap = max(objective - dual, 0.0)
    # The columns' entries are rounded one by one: what the weights make of that adds up as squares do.
    eps = ROUNDINGS * float(np.finfo(settings.dtype).eps)
    length = float(np.sqrt(sums.squares[t]) + np.sqrt(w**2 @ sums.norms))
    allowed = AGREE * objective + eps * length**2
    on_gap = 2 * allowed + 2 * size * eps * length * float(np.sqrt(sums.norms.max(initial=0.0)))
    relative = gap / objective if objective > 0 else 0.0
    mean = abs(float(sums.total[t])) if settings.fit_intercept else 0.0
    # A gap may be larger than it need be: the claim holds all the same. An intercept makes the residuals' mean zero.
    on_relative, on_sum = on_gap / max(objective, np.finfo(float).tiny), np.sqrt(sums.n)
    on_mean = float(eps * length * on_sum + AGREE * on_sum * np.sqrt(residual))
    yield Comparison("objective", claimed["objective"], objective, allowed)
    yield Comparison("dual", claimed["dual"], dual, on_gap)
    yield Comparison("gap", claimed["gap"], gap, on_gap, "above")
    yield Comparison("relative gap", claimed["relative_gap"], relative, on_relative, "above")
    yield Comparison("active", claimed["active"], float(np.count_nonzero(w)), 0.0)
    yield Comparison("sum of residuals", 0.0, mean, on_mean)
