"""Arrays common to the runs of learners in the basis of smooth eigenvectors."""

from __future__ import annotations

from dkl.estimators.base.declared_points import declared_points
from dkl.estimators.base.standardize_setting import COLUMN_ARRAYS
from dkl.stores.checkpoint_folder import vectors_of
from dkl.stores.registry import Arrays, StoredArray

NUMBER = ("float64",)

STATES = Arrays(
    vectors_of("engine", "engine", "R of the point Y = R R', in scaled coordinates, and of the point of the least gap."),
    files={
        "engine/engine-*/MANIFEST.json": "The low-rank method under way: numbers that it resumes from, its rows of the history, and "
        "the shapes of its arrays."
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
