"""`dkl verify` of a regression's held-out R2, by stored errors of folds or a stored model.

At a given nu the rows are drawn once more. Their part of the sums over all rows is subtracted, and the rest gives the gap of the lasso
without them: a model that had learned from them would have a larger one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dkl.blocks.rows.row_sources import RowSource
from dkl.errors import StoreError
from dkl.estimators.base.plain_models import linear_predictions
from dkl.estimators.base.plot_rows import pool_rows, read_rows, some_rows
from dkl.estimators.regression.columns.fit import random_folds
from dkl.estimators.regression.columns.plan import kernel_of
from dkl.estimators.regression.model import load_candidates
from dkl.estimators.regression.quality import STEP
from dkl.estimators.regression.settings import RegressionSettings
from dkl.quality import Quality, held_out, r2_of
from dkl.runs.regression.verify_sums import AGREE, Matrix, Sums, Vector, bounds, rounding
from dkl.runs.verify.comparison import ALTERNATIVE, QUALITY, Comparison
from dkl.runs.verify.recomputed import kernel_matrix
from dkl.stores.run import RunStore

if TYPE_CHECKING:
    from dkl.blocks.rows.row_sources import Rows
    from dkl.stores.sealed_json import Json

ROUNDED = 1e-6
"""Rounding allowed in an alternative's R2: scikit-learn's ridges, of rows in another order in memory."""


def model(run: RunStore, report: Json, shape: tuple[int, ...]) -> Json | None:
    """Return the stored model of the rows not held out, weights (T, M) of `shape`; None if not stored."""
    if report.get("quality") is None or not (run.path / "held_out").is_dir():
        return None
    found = run.read_arrays("held_out")
    if found["weights"].shape != shape or found["intercepts"].shape != shape[:1] or found["gaps"].shape != shape[:1]:
        raise StoreError("not a model of the other rows", where=f"{run.path}/held_out")
    return found


def claims(
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
    C = kernel_matrix(kernel_of(settings), X[is_test], candidates.points) * candidates.scale
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


def of_folds(
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
