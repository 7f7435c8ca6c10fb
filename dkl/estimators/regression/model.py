"""SLKL's model in a run's folder: written by a fit, read to predict."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dkl.errors import StoreError
from dkl.estimators.base.run_arrays import (
    check_lengths,
    check_rows,
    declared_points,
    point_arrays,
    read_points,
    trained_on,
)
from dkl.estimators.base.settings import COLUMN_ARRAYS
from dkl.estimators.regression.columns.candidates import Candidates, kernel_of
from dkl.estimators.regression.settings import RegressionSettings
from dkl.linalg.kernels.kernel_columns import Kernel
from dkl.stores.kernels import COLUMNS, GRAM
from dkl.stores.registry import INTEGERS, Arrays, StoredArray
from dkl.stores.run import RunStore

if TYPE_CHECKING:
    from dkl.estimators.regression.fit import FittedColumns
    from dkl.linalg.rows import Rows


def store_candidates(run: RunStore, candidates: Candidates) -> None:
    """Keep the candidate columns. Raises DiskError."""
    arrays = {"indices": candidates.indices, "scale": candidates.scale} | point_arrays(candidates.points)
    if candidates.gamma is not None:
        arrays["gamma"] = np.array([candidates.gamma])
    run.write_arrays("candidates", arrays)


def load_candidates(run: RunStore) -> Candidates:
    """Load the stored candidate columns. Raises StoreError."""
    found, where = run.read_arrays("candidates"), f"{run.path}/candidates"
    points = read_points(found, where)
    check_lengths(run, "candidates", found, "candidates that do not fit together", where, column=points.shape[0])
    # A run that was started in Python names no files, and so no number of rows.
    n = trained_on(run)[0] if "inputs" in run.config else np.iinfo(np.int64).max
    check_rows(n, found["indices"], f"{where}/indices", least=-1)
    if points.ndim == 1:
        check_rows(n, points, f"{where}/points")
    gamma = found.get("gamma")
    if gamma is not None and not (gamma.shape == (1,) and 0 < gamma[0] < np.inf):
        raise StoreError("invalid gamma of the kernel", where=f"{where}/gamma", got=gamma, wanted="one number > 0")
    return Candidates(found["indices"], points, found["scale"], None if gamma is None else float(gamma[0]))


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
    # A prediction costs a kernel value a column: those without a weight in any output are left out.
    active = np.flatnonzero((weights != 0).any(axis=0))
    kernel, points = kernel_of(settings, candidates.gamma), candidates.points
    return RegressionModel(
        kernel,
        points[active],
        weights[:, active] * candidates.scale[active],
        intercepts,
        -1 if kernel.is_precomputed else int(points.shape[1]),
    )


# Arrays of a regression's run. T outputs, M candidate columns, K folds, N values of nu on the path.

NUMBER = ("float64",)
_CV = StoredArray("model/cv_nus", ("nu",), NUMBER, "Cross-validation: the values of nu, N.", optional=True)
_CV_TABLE = replace(_CV, dims=("nu", "fold", "output"))
_LASSO = StoredArray(
    "model/lasso_weights",
    ("output", "column"),
    NUMBER,
    "w of the lasso, where a refit has taken its place.",
    optional=True,
)

SUMS = Arrays(
    StoredArray(
        "sums/sums-*/nodes.*.parts.0",
        ("fold", "row", "column"),
        NUMBER,
        "A partial sum of C'C, by fold (K, M or the panel's rows, M): the manifest says of which node of the tree over the rows.",
        optional=True,
    ),
    StoredArray(
        "sums/sums-*/nodes.*.parts.1", ("fold", "column", "target"), NUMBER, "The same of C'[y, 1].", optional=True
    ),
    StoredArray(
        "sums/sums-*/nodes.*.parts.2",
        ("fold", "target", "target_2"),
        NUMBER,
        "The same of [y, 1]'[y, 1].",
        optional=True,
    ),
)

ARRAYS = Arrays(
    *COLUMN_ARRAYS,
    StoredArray(
        "candidates/indices",
        ("column",),
        INTEGERS,
        "Row of the data that each column's point is; -1 for one that is none.",
    ),
    StoredArray("candidates/scale", ("column",), NUMBER, "1 / sqrt(k(x_m, x_m)); 0 where that is 0."),
    StoredArray("candidates/gamma", ("kernel",), NUMBER, "The kernel's gamma, where it has one.", optional=True),
    *declared_points("candidates", "column", "The columns' points x_m"),
    *SUMS,
    GRAM,
    COLUMNS,
    StoredArray(
        "model/weights", ("output", "column"), NUMBER, "w, of the columns with their scale; of the refit, if any."
    ),
    StoredArray("model/intercepts", ("output",), NUMBER, "What is added to C w."),
    StoredArray(
        "model/kernel_weights",
        ("output", "column"),
        NUMBER,
        "mu = sqrt(lam / nu) |w| of the lasso, of the rank-one kernels.",
    ),
    _CV,
    _CV_TABLE.at("model/cv_errors", "Cross-validation: mean squared error on the rows held out."),
    replace(_CV_TABLE.at("model/cv_active", "Cross-validation: columns with a weight."), dtypes=INTEGERS),
    _LASSO,
    replace(_LASSO.at("model/lasso_intercepts", "What is added to C w of the lasso."), dims=("output",)),
    replace(_LASSO.at("model/refit_lams", "Refit: values of the ridge's lambda, L."), dims=("lam",)),
    replace(
        _LASSO.at("model/refit_errors", "Refit: mean squared error on the rows held out."),
        dims=("lam", "fold", "output"),
    ),
    _LASSO.at("held_out/weights", "Quality: w of the fit without the held-out rows."),
    replace(_LASSO.at("held_out/intercepts", "Quality: what is added to C w of that fit."), dims=("output",)),
    replace(_LASSO.at("held_out/gaps", "Quality: the gap of that fit's lasso."), dims=("output",)),
    files={
        "sums/sums-*/MANIFEST.json": "A state of a pass over the rows: its nodes, and which pass it is.",
        "sums/done.json": "Passes that have ended, of a Gram matrix that is made some rows at a time.",
        "report.png": "The picture of cross-validation and fit.",
    },
)
