"""Arrays common to the runs of learners in the basis of smooth eigenvectors."""

from __future__ import annotations

from dkl.estimators.common.declared_points import declared_points
from dkl.estimators.common.standardize_setting import COLUMN_ARRAYS
from dkl.stores.registry import Arrays, StoredArray

NUMBER = ("float64",)

STATES = Arrays(
    StoredArray(
        "engine/engine-*/factor", ("basis", "column"), NUMBER, "R of the point Y = R R', in scaled coordinates.",
        optional=True,
    ),
    StoredArray(
        "engine/engine-*/best", ("basis", "best_column"), NUMBER, "Of the point of the least gap; none: the same.",
        optional=True,
    ),
    files={
        "engine/engine-*/MANIFEST.json": "The low-rank method under way: its arrays, numbers that it resumes from, and its rows of "
        "the history."
    },
)  # fmt: skip

SHARED = (
    *STATES,
    *COLUMN_ARRAYS,
    *declared_points("rows", "sample", "The rows that were learned from"),
    StoredArray("basis/Q", ("sample", "basis"), NUMBER, "The smoothest eigenvectors of the graph's Laplacian."),
    StoredArray("basis/values", ("basis",), NUMBER, "Their eigenvalues, ascending."),
    StoredArray("basis/found", ("one",), NUMBER, "The largest |L q - value q| over |L| when they were found."),
    StoredArray(
        "basis/widths",
        ("width",),
        NUMBER,
        "Of the similarity by which unseen rows are means of others: one, or each row's.",
    ),
    StoredArray("model/Y", ("basis", "other"), NUMBER, "The kernel is Q Y Q'."),
    StoredArray("model/embedding", ("sample", "component"), NUMBER, "Coordinates of the rows."),
    StoredArray(
        "model/dual",
        ("term",),
        NUMBER,
        "z of the certificate. Earlier runs by the low-rank solver have none: it is twice the residual there.",
        optional=True,
    ),
)
"""Arrays of every run in the basis of smooth eigenvectors."""
