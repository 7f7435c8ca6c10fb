"""The held-out R2 of a kernel regression, next to that of a linear regression or of the mean.

Where nu was chosen by cross-validation, its folds are the held-out data and nothing is fitted again: R2 is that of all rows, each
predicted without its fold. Else some rows are held out, whose sums are subtracted from those of all: with means m, sums of weights W
and sums S about the means, of all rows (none), of the held-out (h) and of the others (r),

    S_r = S - S_h - W W_h / W_r (m_h - m)(m_h - m)'

and the lasso of the others starts at the final weights. The final fit does not change by it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dkl.blocks.rows.row_sources import RowSource, row_source
from dkl.blocks.session import Session
from dkl.estimators.base.plain_models import linear_predictions
from dkl.estimators.base.plot_rows import pool_rows, read_rows, some_rows
from dkl.estimators.base.progress import warn_if_worse
from dkl.estimators.regression.columns.candidates import kernel_of
from dkl.estimators.regression.columns.fit import random_folds
from dkl.estimators.regression.fit import CV_TOL, FittedColumns, make_solver, threads_for, with_rounding
from dkl.estimators.regression.settings import RegressionSettings
from dkl.problems.regression.column_gram import ROUNDED, CenteredGram, DenseGram
from dkl.problems.regression.column_lasso import output_problems
from dkl.problems.regression.column_pass import ColumnJob
from dkl.quality import MIN_HELD_OUT, Quality, held_out, paired_error, r2_of, too_few
from dkl.resources import one_blas_thread
from dkl.solvers.regression.lasso_path import solve_outputs
from dkl.solvers.watch import Watch

if TYPE_CHECKING:
    from dkl.estimators.base.validation import CheckedRows
    from dkl.linalg.rows import Rows

Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]

STEP = 3
"""Key of the random stream that draws the held-out rows."""
ADVICE = "try standardized features, another kernel or gamma, or more columns"


def assess(
    fitted: FittedColumns,
    rows: CheckedRows,
    y: Matrix,
    sample_weight: Vector | None,
    fold_of: NDArray[np.integer] | None,
    settings: RegressionSettings,
    session: Session,
    watch: Watch,
) -> None:
    """Add the quality to the result of a fit of targets y (n, T); warn where the alternative is better.

    fold_of (n,): the folds, where they were given. Nothing is added where nothing is to be held out, the fit was stopped, or the
    Gram matrix is on disk and there are no folds.
    """
    if not settings.holdout or fitted.shared is None or watch.outcome is not None:
        return
    start = time.perf_counter()
    with one_blas_thread():
        data = _Data.read(row_source(rows), y, sample_weight, settings)
        if fitted.cv is None:
            quality, fitted.held_out = _by_rows(data, fitted, settings, session)
        else:
            # The same folds as the fit's, drawn again by their seed: no row number has to be kept.
            if fold_of is None:
                fold_of = random_folds(len(y), sample_weight, settings.n_folds, settings.seed)
            quality = _by_folds(data, fitted, y, sample_weight, fold_of)
    reason = too_few(len(data.numbers), "rows")
    if fitted.cv is None and not isinstance(fitted.shared.gram, DenseGram):
        reason = "the Gram matrix is on disk and there are no folds; give nu='cv', or more memory"
    fitted.result = fitted.result.with_quality(quality, time.perf_counter() - start, reason, watch.seconds)
    warn_if_worse(quality, stacklevel=5)


@dataclass(frozen=True)
class _Data:
    """Rows X (m, d) to measure on, m by `pool_rows`: numbers among n, targets y (m, T), weights (m,)."""

    numbers: NDArray[np.intp]
    X: Rows
    y: Matrix
    w: Vector
    n: int

    @classmethod
    def read(cls, source: RowSource, y: Matrix, sample_weight: Vector | None, settings: RegressionSettings) -> _Data:
        numbers = some_rows(source, pool_rows(source, settings.memory_limit))
        if sample_weight is not None:
            numbers = numbers[sample_weight[numbers] > 0]
        w = np.ones(len(numbers)) if sample_weight is None else sample_weight[numbers]
        return cls(numbers, read_rows(source, numbers), y[numbers], w, source.n)

    def residuals(self, rest: NDArray[np.intp], others: NDArray[np.intp], *, linear: bool) -> Matrix:
        """Return errors (m', T) on rows `others` of a model of rows `rest`: linear regression, or the mean."""
        if not linear:
            return np.asarray(self.y[others] - np.average(self.y[rest], axis=0, weights=self.w[rest]))
        predicted = linear_predictions(self.X[rest], self.y[rest], self.w[rest], self.X[others])
        return np.asarray(self.y[others] - predicted.reshape(len(others), -1))


def _by_folds(
    data: _Data, fitted: FittedColumns, y: Matrix, sample_weight: Vector | None, fold_of: NDArray[np.integer]
) -> Quality | None:
    """Return the quality from the folds' stored errors; the alternative's are of the rows in `data`."""
    assert fitted.cv is not None
    of_all, w = fold_of >= 0, np.ones(len(y)) if sample_weight is None else sample_weight
    n, folds = int(np.count_nonzero(of_all & (w > 0))), fold_of[data.numbers]
    errors = fold_errors(fitted)
    if n < MIN_HELD_OUT:
        return None
    weights = np.bincount(fold_of[of_all], weights=w[of_all], minlength=len(errors))
    totals = w[of_all] @ np.square(y[of_all] - np.average(y[of_all], axis=0, weights=w[of_all]))
    own = weights @ errors
    found: list[tuple[float, float, str]] = []
    for linear in _alternatives(fitted):
        squares = np.zeros_like(errors)
        held = np.zeros(len(errors))
        for k in range(len(errors)):
            others, rest = np.flatnonzero(folds == k), np.flatnonzero((folds != k) & (folds >= 0))
            if len(others) and len(rest):
                left = data.residuals(rest, others, linear=linear)
                held[k] = data.w[others].sum()
                squares[k] = np.average(np.square(left), axis=0, weights=data.w[others])
        # Of many rows some are read: a fold may have none of these.
        used = held > 0
        # Above 0, as targets may be constant.
        variances = np.maximum(totals / weights.sum(), np.finfo(float).tiny)
        value = (
            # Of a sample of rows their own totals would be another variance: the alternative is held to that of all rows.
            r2_of(held @ squares, held.sum() * variances) if len(data.numbers) < n else r2_of(weights @ squares, totals)
        )
        differences = ((squares - errors) / variances).mean(axis=1)
        found.append((value, paired_error(differences[used], weights[used]), _NAMES[linear]))
    best = max(found)
    how = f"{len(errors)} folds of {n:,} rows"
    return Quality("held-out R2", r2_of(own, totals), n, how, best[2], best[0], best[1], {}, ADVICE)


def fold_errors(fitted: FittedColumns) -> Matrix:
    """Return the mean squared errors (K, T) on each fold of the chosen model: the lasso or its refit."""
    assert fitted.cv is not None
    refit = fitted.refit
    if refit is None:
        return fitted.cv.errors[fitted.cv.best]
    return np.asarray(refit.errors[int(np.argmin(np.abs(refit.lams - refit.lam)))])


_NAMES = {True: "linear regression", False: "the mean"}


def _alternatives(fitted: FittedColumns) -> list[bool]:
    """Return whether each alternative is linear; a precomputed kernel has no features for a linear one."""
    return [False] if fitted.candidates.points.ndim == 1 else [True, False]


def _by_rows(
    data: _Data, fitted: FittedColumns, settings: RegressionSettings, session: Session
) -> tuple[Quality | None, dict[str, NDArray[np.float64]]]:
    """Return the quality on some held-out rows, and the arrays of the model fitted on the others' sums."""
    shared = fitted.shared
    assert shared is not None
    others = held_out(len(data.numbers), settings.holdout, settings.seed, STEP)
    if not len(others) or not isinstance(shared.gram, DenseGram):
        return None, {}
    candidates, y, w = fitted.candidates, data.y[others], data.w[others]
    job = ColumnJob(kernel_of(settings, candidates.gamma), candidates.points, candidates.scale, y)
    C = np.asarray(job.columns(data.X[others]), np.float64)
    rest = without(shared, C, y, w, settings.fit_intercept)
    # A quality of three digits needs no smaller gap.
    tol = max(settings.tol, CV_TOL)
    solver = make_solver(settings, tol)
    # From the fit of all rows, which a tenth fewer move little.
    starts = list(fitted.lasso_weights)
    problems = output_problems(rest, settings.lam, fitted.nu)
    solutions = solve_outputs(problems, solver, starts, threads=threads_for(rest, session))
    solutions = with_rounding(problems, solutions, rest, settings.changed(tol=tol))
    weights = np.array([solution.weights for solution in solutions])
    intercepts = rest.intercepts(weights)
    own = np.square(y - C @ weights.T - intercepts)
    totals = w @ np.square(y - np.average(y, axis=0, weights=w))
    variances = np.maximum(totals / w.sum(), np.finfo(float).tiny)
    learned = np.setdiff1d(np.arange(len(data.numbers)), others)
    found = []
    for linear in _alternatives(fitted):
        squares = np.square(data.residuals(learned, others, linear=linear))
        error = paired_error(((squares - own) / variances).mean(axis=1), w)
        found.append((r2_of(w @ squares, totals), error, _NAMES[linear]))
    best = max(found)
    how = f"{len(others):,} of {data.n:,} rows"
    gaps = np.array([solution.evaluation.gap for solution in solutions])
    quality = Quality("held-out R2", r2_of(w @ own, totals), len(others), how, best[2], best[0], best[1], {}, ADVICE)
    return quality, {"weights": weights, "intercepts": intercepts, "gaps": gaps}


def without(shared: CenteredGram, C: Matrix, y: Matrix, w: Vector, intercept: bool) -> CenteredGram:
    """Return the sums of all rows but those with columns C (h, M), targets y (h, T) and weights w (h,)."""
    assert isinstance(shared.gram, DenseGram)
    if shared.shift is not None:
        C = C - shared.shift
    held = float(w.sum())
    left = shared.weight - held
    m, t = (w @ C / held, w @ y / held) if intercept else (np.zeros(C.shape[1]), np.zeros(y.shape[1]))
    C, y = C - m, y - t
    apart, apart_targets = m - shared.column_means, t - shared.target_means
    # Sums about means: the held-out rows' sums are subtracted, and the distance of their means from those of all (Steiner).
    share = shared.weight * held / left
    gram = shared.gram.matrix - (C * w[:, None]).T @ C
    cross = shared.cross - C.T @ (y * w[:, None])
    squares = shared.squares - w @ y**2
    if intercept:
        gram -= share * np.outer(apart, apart)
        cross -= share * np.outer(apart, apart_targets)
        squares -= share * apart_targets**2
    means = shared.column_means - held / left * apart, shared.target_means - held / left * apart_targets
    zero = 1.0 if intercept else 0.0
    # What is subtracted leaves the rounding of the whole.
    whole = shared.lengths if shared.whole is None else shared.whole
    least = ROUNDED * shared.eps * shared.lengths**2 + (ROUNDED * shared.eps * whole) ** 2 if intercept else 0.0
    return CenteredGram(
        DenseGram(gram, least), cross, np.maximum(squares, 0.0), zero * means[0], zero * means[1], left,
        shared.lengths, shared.target_lengths, shared.eps, shared.shift, shared.whole,
    )  # fmt: skip
