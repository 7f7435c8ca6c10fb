"""Data of the picture of a kernel regression, in small arrays, from an estimator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from dkl.blocks.dense_place import blas_threads_for
from dkl.blocks.row_blocks import RowBlocks
from dkl.blocks.row_sources import row_source
from dkl.blocks.session import Session
from dkl.errors import InputError, NumericalError
from dkl.estimators.common.drawing import counted, gap_text, titled
from dkl.estimators.common.samples import read_rows, some_rows
from dkl.estimators.common.validation import given_rows
from dkl.estimators.common.views import MOST_ROWS
from dkl.linalg.kernel_columns import Kernel
from dkl.problems.column_predict import predict_block
from dkl.quality import Quality

MOST_TARGETS = 10

Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class FitShown:
    """Predictions to draw: observed, predicted (m, t) of at most 2,000 of `n` rows and 10 targets.

    whose: "rows learned from", say.
    """

    observed: Numbers
    predicted: Numbers
    n: int
    whose: str = "rows learned from"


@dataclass(frozen=True)
class RegressionShown:
    """Data of the picture of a kernel regression with T outputs and M columns.

    nu, nu_max: the one used, and the least at which all weights are zero; n_active, n_columns; relative_gap: the largest
    that is proven of an output, of the refit where there is one; weights (T, M): the paper's mu, or None; cv_nus (k,),
    cv_errors and cv_active (k, K, T), or None without cross-validation; fit: predictions, or None; history: rows of the
    solver, with `output`; tol asked for; refit: the columns of a ridge in the lasso's place, "active" or "all"; quality: R2 on
    held-out rows.
    """

    nu: float
    nu_max: float
    n_active: int
    n_columns: int
    relative_gap: float
    weights: Numbers | None = None
    cv_nus: Numbers | None = None
    cv_errors: Numbers | None = None
    cv_active: NDArray[np.int64] | None = None
    fit: FitShown | None = None
    history: Sequence[dict[str, Any]] = field(default=(), repr=False)
    tol: float | None = None
    refit: str | None = None
    quality: Quality | None = None

    @property
    def title(self) -> str:
        """Return a summary in one line."""
        columns = f"{self.n_active:,} of {counted(self.n_columns, 'column')} active at nu {self.nu:.4g}"
        if self.refit is not None:
            whose = "all" if self.refit == "all" else f"{self.n_active:,} active ones of"
            columns = f"ridge on {whose} {counted(self.n_columns, 'column')} beside the lasso at nu {self.nu:.4g}"
        return titled(self.quality, f"{columns}; {gap_text(self.relative_gap)}")


def fit_shown(
    rows: Any,
    targets: Numbers,
    weights: Numbers | None,
    kernel: Kernel,
    points: Any,
    coefficients: Numbers,
    intercepts: Numbers,
    whose: str = "rows learned from",
) -> FitShown | None:
    """Predict at some of the rows (n, d), by coefficients (T, s) of k(., points (s, d)), intercepts (T,).

    targets (n,) or (n, T); rows with a weight (n,) of zero are left out, None where no others are drawn.
    """
    source = row_source(rows)
    chosen = some_rows(source, MOST_ROWS)
    if weights is not None:
        chosen = chosen[weights[chosen] > 0]
    if not len(chosen):
        return None
    some = RowBlocks(read_rows(source, chosen), Session(None, threads=1))
    first = slice(0, MOST_TARGETS)
    parts = some.map(predict_block, kernel, points, coefficients[first], intercepts[first])
    observed = np.asarray(targets).reshape(source.n, -1)[chosen, first]
    return FitShown(observed, np.concatenate(parts), source.n, whose)


def training_fit(model: Any, rows: Any, targets: Numbers, offsets: Numbers, weights: Numbers | None) -> FitShown | None:
    """Return a fitted regressor's training data for `plot`; None if it would cost more than a moment.

    targets (n, T) less offsets (T,). A kernel function of one's own is not asked again, nor are rows read again that only
    another library can read.
    """
    source = row_source(rows)
    if callable(model.kernel) or source.is_dask or source.is_foreign:
        return None
    try:
        with blas_threads_for(len(model._coef[0])):
            found = _predictions(model, source, targets, weights, "rows learned from")
    except NumericalError:  # `predict` will raise it
        return None
    return found and replace(found, observed=found.observed + offsets[:MOST_TARGETS])


def _predictions(model: Any, rows: Any, targets: Numbers, weights: Numbers | None, whose: str) -> FitShown | None:
    intercepts = np.atleast_1d(model.intercept_)
    return fit_shown(rows, targets, weights, model._kernel(), model.support_vectors_, model._coef, intercepts, whose)


def shown_of(model: Any, X: Any = None, y: Any = None, whose: str = "rows given") -> RegressionShown:
    """Return the picture's data of a fitted regressor, with predictions of X or of stored training rows.

    X (m, d) comes with targets y (m,) or (m, T).

    whose: what X is called in titles: a run passes the "rows learned from".
    """
    check_is_fitted(model)
    if (X is None) != (y is None):
        raise InputError("rows and targets go together", where="plot", remedy="pass both X and y, or neither")
    fit = getattr(model, "_fit_kept", None)
    if X is not None:
        fit = _given_fit(model, X, y, whose)
    cv, result = getattr(model, "cv_", None), getattr(model, "result_", None)
    refit = getattr(model, "refit_", None)
    gaps = model.relative_gap_ if refit is None else refit.relative_gaps
    return RegressionShown(
        float(model.nu_), float(model.nu_max_), model.n_active_, model.n_columns_,
        float(np.max(gaps)), np.atleast_2d(model.weights_),
        None if cv is None else cv.nus, None if cv is None else cv.errors, None if cv is None else cv.n_active,
        fit, [] if result is None else result.history, float(model.tol) if model.stopping == "gap" else None,
        None if refit is None else refit.columns, None if result is None else result.quality,
    )  # fmt: skip


def _given_fit(model: Any, X: Any, y: Any, whose: str) -> FitShown | None:
    source = row_source(given_rows(model, X, reset=False, small_integers=True))
    try:
        targets = np.asarray(y, dtype=float)
    except (TypeError, ValueError) as error:
        raise InputError("targets must be real numbers", where="y", got=type(y).__name__) from error
    outputs = len(np.atleast_1d(model.intercept_))
    if targets.shape not in ((source.n,), (source.n, outputs)) or targets.size != source.n * outputs:
        raise InputError(
            "not a target a row", where="y", got=f"shape {targets.shape}", wanted=f"({source.n}, {outputs})"
        )
    return _predictions(model, source, targets, None, whose)
