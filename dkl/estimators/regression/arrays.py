"""Arrays of a regression's run. T outputs, M candidate columns, K folds, N values of nu on the path."""

from __future__ import annotations

from dataclasses import replace

from dkl.estimators.base.declared_points import declared_points
from dkl.estimators.base.standardize_setting import COLUMN_ARRAYS
from dkl.stores.kernel_columns import COLUMNS, GRAM
from dkl.stores.registry import INTEGERS, Arrays, StoredArray

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
