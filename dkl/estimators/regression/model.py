"""SLKL's model in a run's folder: written by a fit, read to predict."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dkl.estimators.base.run_arrays import check_lengths, point_arrays, read_points
from dkl.estimators.regression.columns.candidates import Candidates
from dkl.estimators.regression.columns.plan import kernel_of
from dkl.estimators.regression.settings import RegressionSettings
from dkl.linalg.kernels.kernel_columns import Kernel
from dkl.stores.run import RunStore

if TYPE_CHECKING:
    from dkl.linalg.rows.row_types import Rows

if TYPE_CHECKING:  # a stored model predicts without what a fit imports
    from dkl.estimators.regression.fit import FittedColumns


def store_candidates(run: RunStore, candidates: Candidates) -> None:
    """Keep the candidate columns. Raises DiskError."""
    run.write_arrays(
        "candidates", {"indices": candidates.indices, "scale": candidates.scale} | point_arrays(candidates.points)
    )


def load_candidates(run: RunStore) -> Candidates:
    """Load the stored candidate columns. Raises StoreError."""
    found, where = run.read_arrays("candidates"), f"{run.path}/candidates"
    points = read_points(found, where)
    check_lengths(run, "candidates", found, "candidates that do not fit together", where, column=points.shape[0])
    return Candidates(found["indices"], points, found["scale"])


def store_model(run: RunStore, fitted: FittedColumns, settings: RegressionSettings) -> None:
    """Store a fitted regression's model in its run.

    Weights (T, M) of the normalized columns, intercepts (T,), mu (T, M); errors of cross-validation if there are any;
    with a refit the lasso's weights and intercepts, and the refit's errors.
    """
    arrays: dict[str, NDArray] = {
        "weights": fitted.weights,
        "intercepts": fitted.intercepts,
        "kernel_weights": fitted.kernel_weights(settings.lam),
    }
    if fitted.cv is not None:
        arrays |= {"cv_nus": fitted.cv.nus, "cv_errors": fitted.cv.errors, "cv_active": fitted.cv.n_active}
    if fitted.refit is not None:
        assert fitted.lasso_intercepts is not None
        arrays |= {"lasso_weights": fitted.lasso_weights, "lasso_intercepts": fitted.lasso_intercepts}
        arrays |= {"refit_lams": fitted.refit.lams, "refit_errors": fitted.refit.errors}
    run.write_arrays("model", arrays)


@dataclass(frozen=True)
class RegressionModel:
    """A stored model to predict with: points (m, d) or column numbers, weights (T, m) including scales.

    n_features: of the points; -1 with a precomputed kernel, where points do not determine it.
    """

    kernel: Kernel
    points: Rows
    weights: NDArray[np.float64]
    intercepts: NDArray[np.float64]
    n_features: int


def load_model(run: RunStore) -> RegressionModel:
    """Load the stored model, without columns that have no weight. Raises StoreError."""
    candidates, found = load_candidates(run), run.read_arrays("model")
    what, columns = "model and candidates do not fit together", len(candidates.scale)
    check_lengths(run, "model", found, what, str(run.path), column=columns)
    settings = RegressionSettings(**run.config["settings"])
    weights, intercepts = found["weights"], found["intercepts"]
    active = np.flatnonzero((weights != 0).any(axis=0))
    kernel, points = kernel_of(settings), candidates.points
    return RegressionModel(
        kernel,
        points[active],
        weights[:, active] * candidates.scale[active],
        intercepts,
        -1 if kernel.is_precomputed else int(points.shape[1]),
    )
