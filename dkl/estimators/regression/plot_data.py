"""Plot of a kernel regression: held-out error and number of columns by nu, predictions, weights, gaps."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dkl.blocks.rows.predictions import predict_block
from dkl.blocks.rows.row_blocks import RowBlocks
from dkl.blocks.rows.row_sources import row_source
from dkl.blocks.session import Session
from dkl.blocks.workers.dense_work import blas_threads_for
from dkl.errors import InputError, NumericalError
from dkl.estimators.base.plot_rows import MOST_ROWS, read_rows, some_rows
from dkl.estimators.base.validation import given_rows
from dkl.linalg.kernels.kernel_columns import Kernel
from dkl.plotting.convergence import draw_gaps
from dkl.plotting.figures import Panel, PlotData, counted, gap_text, note, panel, titled
from dkl.plotting.panels import draw_fit, draw_path, draw_sorted

if TYPE_CHECKING:
    from sklearn.base import BaseEstimator

    from dkl.estimators.base.validation import CheckedRows, UserLabels, UserRows
    from dkl.linalg.rows import Rows

MOST_TARGETS = 10

Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class DrawnPredictions:
    """Predictions to draw: observed, predicted (m, t) of at most 2,000 of `n` rows and 10 targets.

    whose: "rows learned from", say.
    """

    observed: Numbers
    predicted: Numbers
    n: int
    whose: str = "rows learned from"


def plot_data(model: BaseEstimator, X: UserRows = None, y: UserLabels = None, whose: str = "rows given") -> PlotData:
    """Return the plot of a fitted regressor, with predictions of X or of stored training rows.

    X (m, d) comes with targets y (m,) or (m, T); whose: what X is called in titles.
    """
    if (X is None) != (y is None):
        raise InputError("rows and targets go together", where="plot", remedy="pass both X and y, or neither")
    fit = getattr(model, "_fit_kept", None) if X is None else _given_fit(model, X, y, whose)
    cv, result = getattr(model, "cv_", None), getattr(model, "result_", None)
    panels = [fit_panel(fit)]
    if cv is None:
        panels.append(weights_panel(np.atleast_2d(model.weights_), model.n_columns_))
    else:
        errors, active = path_panels(
            cv.nus, cv.errors, cv.n_active, float(model.nu_), float(model.nu_max_), model.n_columns_
        )
        panels = [errors, *panels, active]
    if result is not None and result.history:
        tol = float(model.tol) if model.stopping == "gap" else None
        panels.append(panel(draw_gaps, result.history, "output", tol))
    title = titled(None if result is None else result.quality, _title(model))
    return PlotData(title, panels, panels[0] if fit is None else fit_panel(fit))


def _title(model: BaseEstimator) -> str:
    """Return a summary in one line, with the largest gap that is proven, of the refit where there is one."""
    refit, count = getattr(model, "refit_", None), counted(model.n_columns_, "column")
    columns = f"{model.n_active_:,} of {count} active at nu {model.nu_:.4g}"
    if refit is not None:
        which = "all" if refit.columns == "all" else f"{model.n_active_:,} active ones of"
        columns = f"ridge on {which} {count} beside the lasso at nu {model.nu_:.4g}"
    gaps = model.relative_gap_ if refit is None else refit.relative_gaps
    return f"{columns}; {gap_text(float(np.max(gaps)))}"


def path_panels(
    nus: Numbers, errors: Numbers, active: NDArray[np.int64], nu: float, nu_max: float, n_columns: int
) -> tuple[Panel, Panel]:
    """Return panels by nu (k,) of held-out errors and active columns (k, K, T) of K folds, as means and bands.

    Errors of several targets are relative to those without columns.
    """
    errors, active, single = errors[:, :, :MOST_TARGETS], active[:, :, :MOST_TARGETS], errors.shape[2] == 1
    if not single:
        # Row 0 is the largest nu, at which no column is active: errors of targets in different units share an axis then.
        errors = errors / np.maximum(errors[:1].mean(axis=1, keepdims=True), np.finfo(float).tiny)
    mean, spread = errors.mean(axis=1), errors.std(axis=1, ddof=1 if errors.shape[1] > 1 else 0)
    labels = ["mean over the folds"] if single else [f"target {t}" for t in range(errors.shape[2])]
    marks = [(nu, "--", f"chosen nu {nu:.3g}"), (nu_max, ":", f"largest useful nu {nu_max:.3g}")]
    ends = float(nus.min()) / 1.3, nu_max * 1.6
    names = "nu", "mean squared error" if single else "relative to no columns"
    left = panel(
        draw_path, nus, mean, "error on rows held out", names, labels=labels, band=(mean - spread, mean + spread),
        band_label="one standard deviation" if single else None, marks=marks, scale="wide", ends=ends,
    )  # fmt: skip
    title = f"active columns, of {n_columns:,}: mean, and least to most over the folds"
    right = panel(
        draw_path, nus, active.mean(axis=1), title, ("nu", "columns"), band=(active.min(axis=1), active.max(axis=1)),
        marks=[(place, dashes, None) for place, dashes, _ in marks], scale="from 0", ends=ends,
    )  # fmt: skip
    return left, right


def weights_panel(weights: Numbers, n_columns: int) -> Panel:
    """Return the panel of the positive weights (T, M) of each output's columns, largest first."""
    lines, several = [], len(weights) > 1
    for t, row in enumerate(weights[:MOST_TARGETS]):
        active = np.sort(row[row > 0])[::-1]
        lines.append((active, f"target {t}: {len(active):,}" if several else None, f"C{t}"))
    title, names = f"weights of the active columns, of {n_columns:,}", ("column, largest weight first", "weight mu")
    return panel(draw_sorted, lines, title, *names, none="no column is active: the model is a constant")


def fit_panel(fit: DrawnPredictions | None) -> Panel:
    """Return the panel of predicted against observed targets, or of what to pass to see it."""
    if fit is None:
        text = "to see predicted against observed,\npass X and y of some rows to plot"
        return panel(note, text, "predicted against observed")
    return panel(draw_fit, fit.observed, fit.predicted, _fit_title(fit))


def _fit_title(fit: DrawnPredictions) -> str:
    count = len(fit.observed)
    rows = f"{count:,} of {fit.n:,} {fit.whose}" if count < fit.n else f"the {fit.n:,} {fit.whose}"
    total = np.square(fit.observed - fit.observed.mean(axis=0)).sum(axis=0)
    # A constant target but for rounding: R2 would be that of rounding.
    if count < 2 or not (total > 1e-24 * np.square(fit.observed).sum(axis=0)).all():
        return rows
    shares = 1 - np.square(fit.observed - fit.predicted).sum(axis=0) / total
    return f"{rows}: R² {shares[0]:.3f}" if len(shares) == 1 else f"{rows}: mean R² {shares.mean():.3f}"


def drawn_predictions(
    rows: CheckedRows,
    targets: Numbers,
    weights: Numbers | None,
    kernel: Kernel,
    points: Rows,
    coefficients: Numbers,
    intercepts: Numbers,
    whose: str = "rows learned from",
) -> DrawnPredictions | None:
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
    return DrawnPredictions(observed, np.concatenate(parts), source.n, whose)


def training_fit(
    model: BaseEstimator, rows: CheckedRows, targets: Numbers, offsets: Numbers, weights: Numbers | None
) -> DrawnPredictions | None:
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


def _predictions(
    model: BaseEstimator, rows: CheckedRows, targets: Numbers, weights: Numbers | None, whose: str
) -> DrawnPredictions | None:
    intercepts = np.atleast_1d(model.intercept_)
    return drawn_predictions(
        rows, targets, weights, model._kernel(), model.support_vectors_, model._coef, intercepts, whose
    )


def _given_fit(model: BaseEstimator, X: UserRows, y: UserLabels, whose: str) -> DrawnPredictions | None:
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
