"""`dkl verify` of a regression: objective and gap once more, from the training data and what is stored.

Nothing here comes from the solvers, nor from the sums that they work on: columns are scikit-learn's kernels, recomputed
block by block in double precision, and the residual is taken row by row. With r = y - C w - c and kappa = sqrt(lam nu),

    P = |r|^2 + 2 kappa |w|_1,    D = max of 2 s y'r - s^2 |r|^2 over the s with |s C'r| <= kappa,    gap = P - D

and P is least over all w where the gap is 0. Where an intercept is fitted, r has mean 0, and y is taken about its own.
The numbers of a refit are in verify_refit.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from dkl.errors import StoreError
from dkl.estimators.regression.model import load_candidates
from dkl.estimators.regression.settings import RegressionSettings
from dkl.runs.regression import verify_held_out, verify_refit
from dkl.runs.regression.verify_sums import Sums, Vector, bounds, pass_over, same, total_rounding
from dkl.runs.verify.comparison import Comparison, named
from dkl.stores.run import RunStore

if TYPE_CHECKING:
    from dkl.runs.regression.kind import RegressionInputs
    from dkl.stores.sealed_json import Json


def claims(run: RunStore, inputs: RegressionInputs, settings: RegressionSettings, budget: int) -> Iterator[Comparison]:
    """Yield comparisons of each target's numbers, from one pass by blocks that fit in `budget` bytes."""
    report = run.report()
    nu, reported = float(report["nu"]), [_claimed(output) for output in report["outputs"]]
    found = run.read_arrays("model")
    w = found["weights"]
    if w.shape != (len(reported), len(load_candidates(run).scale)) or found["intercepts"].shape != (len(w),):
        raise StoreError("model, candidates and report do not fit together", where=str(run.path))
    y, offsets = inputs.centered(settings, run.config.get("target_means"))
    intercepts, refit, models = found["intercepts"] - offsets, report.get("refit"), []
    if refit is not None:
        # The numbers of the targets are the lasso's, which has its own weights.
        models.append((found["lasso_weights"], found["lasso_intercepts"] - offsets))
    held_out = verify_held_out.model(run, report, w.shape)
    if held_out is not None:
        models.append((held_out["weights"], held_out["intercepts"] - offsets))
    first, *others = pass_over(run, inputs.rows, y, [(w, intercepts), *models], settings, budget)
    sums = first
    if refit is not None:
        yield from verify_refit.claims(run, inputs.rows, refit, first, w, found.get("lasso_weights"), settings)
        w, sums = found["lasso_weights"], others[0]
    if report.get("quality") is not None and "cv_errors" in found:
        yield from verify_held_out.of_folds(report, found, inputs.rows, y, settings)
    if held_out is not None:
        yield from verify_held_out.claims(
            run, report, inputs.rows, y, models[-1], held_out["gaps"], others[-1], settings
        )
    kappa, mu = float(np.sqrt(settings.lam * nu)), np.sqrt(settings.lam / nu) * np.abs(w)
    apart = 0.0 if same(found["kernel_weights"], mu) else 1.0
    yield Comparison("kernel_weights", 0.0, apart, 0.0, quiet=True)
    for number, claimed in enumerate(reported):
        which = "" if len(reported) == 1 else f" of target {number}"
        yield from named(_of_target(claimed, sums, number, w[number], kappa, settings), which)


def _claimed(output: Json) -> dict[str, float]:
    objective, gap = float(output["objective"]), float(output["gap"])
    claimed = {"objective": objective, "dual": objective - gap, "gap": gap, "active": float(output["n_active"])}
    return claimed | {"relative_gap": float(output["relative_gap"])}


def _of_target(
    claimed: dict[str, float], sums: Sums, t: int, w: Vector, kappa: float, settings: RegressionSettings
) -> Iterator[Comparison]:
    """Compare P, D and the gap of one target, from the sums."""
    objective, dual, gap, allowed, on_gap = bounds(sums, t, w, kappa, settings)
    relative = gap / objective if objective > 0 else 0.0
    mean = abs(float(sums.total[t])) if settings.fit_intercept else 0.0
    # A gap may be larger than it need be: the claim holds all the same. An intercept makes the residuals' mean zero.
    on_relative = (on_gap + relative * allowed) / max(objective, np.finfo(float).tiny)
    on_mean = total_rounding(sums, t, w, settings)
    yield Comparison("objective", claimed["objective"], objective, allowed)
    yield Comparison("dual", claimed["dual"], dual, on_gap + allowed, "below")
    yield Comparison("gap", claimed["gap"], gap, on_gap, "above")
    yield Comparison("relative gap", claimed["relative_gap"], relative, on_relative, "above")
    yield Comparison("active", claimed["active"], float(np.count_nonzero(w)), 0.0)
    yield Comparison("sum of residuals", 0.0, mean, on_mean)
