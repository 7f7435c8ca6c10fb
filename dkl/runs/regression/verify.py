"""`dkl verify` of a regression: objective and gap once more, from the training data and what is stored.

Nothing here comes from the solvers, nor from the sums that they work on: columns are scikit-learn's kernels, recomputed
block by block in double precision, and the residual is taken row by row. With r = y - C w - c and kappa = sqrt(lam nu),

    P = |r|^2 + 2 kappa |w|_1,    D = max of 2 s y'r - s^2 |r|^2 over the s with |s C'r| <= kappa,    gap = P - D

and P is least over all w where the gap is 0. Where an intercept is fitted, r has mean 0, and y is taken about its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dkl.blocks.rows.row_sources import RowSource
from dkl.errors import StoreError
from dkl.estimators.base.plain_models import linear_predictions
from dkl.estimators.base.plot_rows import pool_rows, read_rows, some_rows
from dkl.estimators.regression.columns.candidates import kernel_of
from dkl.estimators.regression.columns.fit import random_folds
from dkl.estimators.regression.model import load_candidates
from dkl.estimators.regression.quality import STEP
from dkl.estimators.regression.settings import RegressionSettings
from dkl.quality import Quality, held_out, r2_of
from dkl.runs.recomputed import apart_from_rows, blocks, kernel_matrix, svc_width
from dkl.runs.report import ALTERNATIVE, QUALITY, Comparison, named
from dkl.stores.run import RunStore

if TYPE_CHECKING:
    from dkl.blocks.rows.row_sources import Rows
    from dkl.runs.regression.kind import RegressionInputs
    from dkl.stores.seals import Json


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
    held = _held_out_model(run, report, w.shape)
    if held is not None:
        models.append((held["weights"], held["intercepts"] - offsets))
    first, *others = pass_over(run, inputs.rows, y, [(w, intercepts), *models], settings, budget)
    sums = first
    if refit is not None:
        yield from _of_refit(run, inputs.rows, refit, first, w, found.get("lasso_weights"), settings)
        w, sums = found["lasso_weights"], others[0]
    if report.get("quality") is not None and "cv_errors" in found:
        yield from _of_folds(report, found, inputs.rows, y, settings)
    if held is not None:
        yield from _of_held_out(run, report, inputs.rows, y, models[-1], held["gaps"], others[-1], settings)
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


# -- sums --------------------------------------------------------------------------------------------------------------
# A pass over the rows: a model's residuals, and their sums with the columns.

AGREE = 1e-9
"""Tolerance relative to the objective."""
ROUNDINGS = 16
"""Tolerance in units of the columns' precision, relative to the summed squares.
They cancel in the solver's sums."""

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class Sums:
    """Sums of one pass over n rows: |r|^2, y'r, sum r and y'y (T,), C'r (M, T), and |c_m|^2 (M,)."""

    residual: Vector
    with_targets: Vector
    total: Vector
    squares: Vector
    correlations: NDArray[np.float64]
    norms: Vector
    n: int

    @classmethod
    def of(cls, C: Matrix, y: Matrix, w: Matrix, intercepts: Vector) -> Sums:
        """Return the sums over rows with columns C (n, M) and targets y (n, T) for a model.
        w: its weights (T, M); intercepts: (T,)."""
        r = y - C @ w.T - intercepts
        squares = (y * y).sum(axis=0)
        return cls(
            (r * r).sum(axis=0), (y * r).sum(axis=0), r.sum(axis=0), squares, C.T @ r, (C * C).sum(axis=0), len(y)
        )

    def plus(self, other: Sums, sign: int = 1) -> Sums:
        """Return the sums with those of other rows added, or subtracted at a sign of -1."""
        names = (one.name for one in fields(self))
        return Sums(*(getattr(self, name) + sign * getattr(other, name) for name in names))


def pass_over(
    run: RunStore, rows: RowSource, y: Matrix, models: list[tuple[Matrix, Vector]], settings: RegressionSettings, budget: int
) -> list[Sums]:  # fmt: skip
    """Return the sums over all rows for each model, its weights (T, M) and intercepts (T,).

    Raises StoreError where the stored candidates are not rows of the data, or their scale is wrong.
    """
    candidates = load_candidates(run)
    kernel = kernel_of(settings, candidates.gamma)
    if settings.gamma == "scale" and candidates.gamma is not None:
        width = svc_width(rows, budget)
        if not np.isclose(candidates.gamma, width, rtol=WIDTH_ROUNDED, atol=0):
            where = f"{run.path}/candidates/gamma"
            raise StoreError(
                "the stored gamma is not that of the rows", where=where, got=candidates.gamma, wanted=width
            )
    scale = scale_of(rows, candidates.points, kernel)
    if not same(candidates.scale, scale):
        raise StoreError("the stored scale of the columns is not the kernel's", where=f"{run.path}/candidates")
    found: list[Sums] = []
    for lo, block in blocks(rows, len(scale), budget):
        C = kernel_matrix(kernel, block, candidates.points) * scale
        here = [Sums.of(C, y[lo : lo + block.shape[0]], *model) for model in models]
        found = [one.plus(other) for one, other in zip(found, here, strict=True)] if found else here
        far = apart_from_rows(candidates.points, candidates.indices, block, lo)
        if far != 0:  # also where it is NaN
            raise StoreError("a stored candidate is not that row of the data", where=f"{run.path}/candidates", got=far)
    return found


def rounding(sums: Sums, t: int, w: Vector, settings: RegressionSettings) -> float:
    """Return how far the columns' rounding may move the residuals (n,) of output t: it adds as squares."""
    eps = ROUNDINGS * float(np.finfo(settings.dtype).eps)
    return eps * float(np.sqrt(sums.squares[t]) + np.sqrt(w**2 @ sums.norms))


def total_rounding(sums: Sums, t: int, w: Vector, settings: RegressionSettings) -> float:
    """Return how far the sum of the residuals of output t may be from 0, where an intercept makes it 0."""
    length = np.sqrt(sums.n)
    return float(rounding(sums, t, w, settings) * length + AGREE * length * np.sqrt(sums.residual[t]))


def bounds(
    sums: Sums, t: int, w: Vector, kappa: float, settings: RegressionSettings
) -> tuple[float, float, float, float, float]:
    """Return (P, D, gap, how far rounding may move P, and the gap beyond what is reported) of output t with weights w (M,).

    A reported gap counts the rounding of the sums that it is from. Beyond it counts what the sums here may be off by, in double: each by
    the lengths of both its columns, and by what the residuals' mean, 0 with an intercept, is off by.
    """
    residual, with_targets = float(sums.residual[t]), float(sums.with_targets[t])
    size, largest = float(np.abs(w).sum()), float(np.abs(sums.correlations[:, t]).max(initial=0.0))
    objective = residual + 2 * kappa * size
    dual = _dual(with_targets, residual, largest, kappa)
    mean = (
        min(abs(float(sums.total[t])), total_rounding(sums, t, w, settings)) / np.sqrt(sums.n)
        if settings.fit_intercept
        else 0.0
    )
    off = 2 * float(np.finfo(float).eps) * float(np.sqrt(residual)) + mean
    by_columns, by_targets = off * float(np.sqrt(sums.norms.max(initial=0.0))), off * float(np.sqrt(sums.squares[t]))
    most = float(np.copysign(abs(with_targets) + by_targets, with_targets))
    on_gap = AGREE * objective + max(_dual(most, residual, max(largest - by_columns, 0.0), kappa) - dual, 0.0)
    eps, moved = ROUNDINGS * float(np.finfo(settings.dtype).eps), rounding(sums, t, w, settings)
    return objective, dual, max(objective - dual, 0.0), AGREE * objective + moved**2 / eps, on_gap


def _dual(with_targets: float, residual: float, largest: float, kappa: float) -> float:
    """Return the dual value of the best multiple of the residuals, from y'r, |r|^2 and the largest of |C'r|."""
    best = with_targets / residual if residual > 0 else 0.0
    bound = kappa / largest if largest > 0 else np.inf
    scale = float(np.clip(best, -bound, bound))
    return 2 * scale * with_targets - scale**2 * residual


WIDTH_ROUNDED = 1e-6
"""Rounding allowed in gamma="scale", of rows whose columns are far from each other."""


def scale_of(rows: RowSource, points: Rows, kernel: Any) -> Vector:
    """Return 1 / sqrt(k(x_m, x_m)), and 0 for k = 0."""
    if kernel.name == "precomputed":
        diagonal = np.array([rows.read(int(m), int(m) + 1)[0, m] for m in points], np.float64)
    else:
        one = [kernel_matrix(kernel, points[m : m + 1], points[m : m + 1])[0, 0] for m in range(points.shape[0])]
        diagonal = np.array(one)
    return np.divide(1.0, np.sqrt(diagonal), out=np.zeros(len(diagonal)), where=diagonal > 0)


def same(found: NDArray[np.float64], wanted: NDArray[np.float64]) -> bool:
    """Return whether two arrays are equal up to rounding."""
    return found.shape == wanted.shape and bool(np.allclose(found, wanted, rtol=1e-9, atol=0))


# -- refit -------------------------------------------------------------------------------------------------------------
# The ridge's objective and gap, from the residuals of one pass and scikit-learn's kernel.
# On the columns S with r = y - C w - c and P = K_SS + delta I, delta = 1e-13 M, K the kernel between their points, scaled,
#     R = |r|^2 + lambda w'P w,    gap = q'P^-1 q / lambda,    q = C_S'r - lambda P w
# The gap is q stretched by P^-1, and with it the rounding of columns in single precision, in which a weight that is off by 1e-3 may be
# lost. So q itself is compared too, entry by entry, with the terms that it is the sum of: it is 0 at the ridge's weights alone.

DELTA = 1e-13
"""Weight of the identity that is added to P, per column."""


def _of_refit(
    run: RunStore,
    rows: RowSource,
    refit: Json,
    sums: Sums,
    w: Matrix,
    lasso: Matrix | None,
    settings: RegressionSettings,
) -> Iterator[Comparison]:
    """Yield comparisons of each target's numbers.
    refit: the report's "refit"; sums: of the ridge's weights w (T, M); lasso: the lasso's weights (T, M)."""
    if lasso is None or lasso.shape != w.shape or len(refit["outputs"]) != len(w):
        raise StoreError("model and refit do not fit together", where=str(run.path))
    S = np.flatnonzero((lasso != 0).any(axis=0)) if refit["columns"] == "active" else np.arange(w.shape[1])
    beyond = float(np.count_nonzero(np.delete(w, S, axis=1)))
    yield Comparison("weights beyond the refit's columns", 0.0, beyond, 0.0, quiet=True)
    P, lam = _penalty(run, rows, settings)[np.ix_(S, S)], float(refit["lam"])
    for t, output in enumerate(refit["outputs"]):
        which = "" if len(w) == 1 else f" of target {t}"
        yield from named(_of_refit_target(output, sums, t, S, w[t, S], P, lam, settings), which)


def _of_refit_target(
    output: Json, sums: Sums, t: int, S: NDArray[np.intp], w: Matrix, P: Matrix, lam: float,
    settings: RegressionSettings,
) -> Iterator[Comparison]:  # fmt: skip
    pull = P @ w
    q = sums.correlations[S, t] - lam * pull
    norms, residual = np.sqrt(sums.norms[S]), float(np.sqrt(sums.residual[t]))
    objective = float(sums.residual[t] + lam * (w @ pull))
    gap = float(q @ np.linalg.solve(P, q)) / lam
    eps = ROUNDINGS * float(np.finfo(settings.dtype).eps)
    length = float(np.sqrt(sums.squares[t]) + np.sqrt(w**2 @ sums.norms[S]))
    on_objective = AGREE * objective + eps * length**2
    # The reported gap counts the rounding of the fit's sums, stretched by P^-1 as here.
    on_gap = AGREE * objective
    relative = gap / objective if objective > 0 else 0.0
    # Columns that are alike are rounded alike: the terms of q may all be off to one side.
    sizes = norms * (float(np.sqrt(sums.squares[t]) + np.abs(w) @ norms) + residual) + lam * (np.abs(P) @ np.abs(w))
    apart = np.divide(np.abs(q), sizes, out=np.zeros_like(q), where=sizes > 0)
    mean = abs(float(sums.total[t])) if settings.fit_intercept else 0.0
    on_mean = float(np.sqrt(sums.n)) * (eps * length + AGREE * residual)
    yield Comparison("refit: gradient", 0.0, float(apart.max(initial=0.0)), eps + AGREE)
    yield Comparison("refit: objective", float(output["objective"]), objective, on_objective)
    yield Comparison("refit: gap", float(output["gap"]), gap, on_gap, "above")
    on_relative = (on_gap + relative * on_objective) / max(objective, np.finfo(float).tiny)
    yield Comparison("refit: relative gap", float(output["relative_gap"]), relative, on_relative, "above")
    yield Comparison("refit: sum of residuals", 0.0, mean, on_mean)


def _penalty(run: RunStore, rows: RowSource, settings: RegressionSettings) -> Matrix:
    """Return P (M, M) over all columns."""
    candidates = load_candidates(run)
    kernel = kernel_of(settings, candidates.gamma)
    points = candidates.points
    among = np.concatenate([rows.read(int(m), int(m) + 1) for m in points]) if kernel.is_precomputed else points
    K = kernel_matrix(kernel, among, points) * candidates.scale * candidates.scale[:, None]
    return np.asarray((K + K.T) / 2 + DELTA * len(K) * np.eye(len(K)))


# -- held-out R2 -------------------------------------------------------------------------------------------------------
# R2 on held-out rows, by stored errors of folds or a stored model.
# At a given nu the rows are drawn once more. Their part of the sums over all rows is subtracted, and the rest gives the gap of the lasso
# without them: a model that had learned from them would have a larger one.

ROUNDED = 1e-6
"""Rounding allowed in an alternative's R2: scikit-learn's ridges, of rows in another order in memory."""


def _held_out_model(run: RunStore, report: Json, shape: tuple[int, ...]) -> Json | None:
    """Return the stored model of the rows not held out, weights (T, M) of `shape`; None if not stored."""
    if report.get("quality") is None or not (run.path / "held_out").is_dir():
        return None
    found = run.read_arrays("held_out")
    if found["weights"].shape != shape or found["intercepts"].shape != shape[:1] or found["gaps"].shape != shape[:1]:
        raise StoreError("not a model of the other rows", where=f"{run.path}/held_out")
    return found


def _of_held_out(
    run: RunStore, report: Json, rows: RowSource, y: Matrix, of_others: tuple[Matrix, Vector], gaps: Vector,
    sums: Sums, settings: RegressionSettings,
) -> Iterator[Comparison]:  # fmt: skip
    """Compare R2, the alternative's R2, and the largest gap.
    of_others: weights (T, M) and intercepts (T,); sums: of all rows."""
    quality, (w, intercepts) = Quality.from_dict(report["quality"], "report.json"), of_others
    assert quality is not None
    pool = some_rows(rows, pool_rows(rows, report["settings"]["memory_limit"]))
    is_test = np.isin(np.arange(len(pool)), held_out(len(pool), settings.holdout, settings.seed, STEP))
    X, of_pool, candidates = read_rows(rows, pool), y[pool], load_candidates(run)
    C = kernel_matrix(kernel_of(settings, candidates.gamma), X[is_test], candidates.points) * candidates.scale
    test = Sums.of(C, of_pool[is_test], w, intercepts)
    totals = np.square(of_pool[is_test] - of_pool[is_test].mean(axis=0)).sum(axis=0)
    moved = np.array([rounding(test, t, w[t], settings) for t in range(len(w))])
    allowed = float(np.max((2 * np.sqrt(test.residual) * moved + moved**2) / totals))
    yield Comparison(QUALITY, quality.value, r2_of(test.residual, totals), AGREE + allowed)
    others, kappa = sums.plus(test, -1), float(np.sqrt(settings.lam * float(report["nu"])))
    for t in range(len(w)):
        _, _, gap, _, on_gap = bounds(others, t, w[t], kappa, settings)
        which = "" if len(w) == 1 else f" of target {t}"
        yield Comparison(f"gap without held-out rows{which}", float(gaps[t]), gap, on_gap, "above", quiet=len(w) > 1)
    squares = _alternative(quality.alternative, X, of_pool, is_test).sum(axis=0)
    yield Comparison(ALTERNATIVE, quality.alternative_value, r2_of(squares, totals), ROUNDED)


def _of_folds(
    report: Json, found: Json, rows: RowSource, y: Matrix, settings: RegressionSettings
) -> Iterator[Comparison]:
    """Compare R2 of all rows, each predicted without its fold, by the folds' stored errors (K, T).
    R2 of the alternative too."""
    quality, refit = Quality.from_dict(report["quality"], "report.json"), report.get("refit")
    assert quality is not None
    names, chosen = ("cv_nus", "cv_errors"), float(report["nu"])
    if refit is not None:
        names, chosen = ("refit_lams", "refit_errors"), float(refit["lam"])
    errors = found[names[1]][np.argmin(np.abs(found[names[0]] - chosen))]
    fold_of = random_folds(len(y), None, settings.n_folds, settings.seed)
    sizes = np.bincount(fold_of)
    totals = np.square(y - y.mean(axis=0)).sum(axis=0)
    recomputed = r2_of(sizes @ errors, totals)
    yield Comparison(QUALITY, quality.value, recomputed, AGREE * (1 + abs(recomputed)))
    pool = some_rows(rows, pool_rows(rows, report["settings"]["memory_limit"]))
    X, folds, squares = read_rows(rows, pool), fold_of[pool], np.zeros_like(errors)
    held = np.bincount(folds, minlength=len(errors)).astype(float)
    for k in range(len(errors)):
        if 0 < held[k] < len(pool):
            squares[k] = _alternative(quality.alternative, X, y[pool], folds == k).mean(axis=0)
    weights = held if len(pool) < len(y) else sizes
    value = r2_of(weights @ squares, weights.sum() * totals / len(y))
    yield Comparison(ALTERNATIVE, quality.alternative_value, value, ROUNDED)


def _alternative(name: str, X: Rows, y: Matrix, is_test: NDArray[np.bool_]) -> Matrix:
    """Return squared errors (m', T) on test rows of X by a linear regression of the others, or the mean."""
    plain = y[~is_test].mean(axis=0)
    if name != "the mean":
        plain = linear_predictions(X[~is_test], y[~is_test], np.ones(np.count_nonzero(~is_test)), X[is_test])
    return np.asarray(np.square(y[is_test] - plain.reshape(-1, y.shape[1])))
