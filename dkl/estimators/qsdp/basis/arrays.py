"""Arrays of the runs of learners in the basis of smooth eigenvectors: those of all, and each learner's own."""

from __future__ import annotations

from dataclasses import replace

from dkl.estimators.base.run_arrays import declared_points
from dkl.estimators.base.settings import COLUMN_ARRAYS
from dkl.stores.checkpoint_folder import vectors_of
from dkl.stores.registry import INTEGERS, Arrays, StoredArray

NUMBER = ("float64",)

STATES = Arrays(
    vectors_of("engine", "engine", "R of the point Y = R R', scaled, and of that of the least gap; of hard distances V, S, multipliers."),
    files={
        "engine/engine-*/MANIFEST.json": "The low-rank method under way: numbers that it resumes from, its rows of the history, and "
        "the shapes of its arrays."
    },
)  # fmt: skip

SHARED = (
    *STATES,
    *COLUMN_ARRAYS,
    *declared_points("rows", "sample", "The rows that were learned from"),
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
"""Arrays of every run of these learners."""

SMOOTH = (
    StoredArray("basis/Q", ("sample", "basis"), NUMBER, "The smoothest eigenvectors of the graph's Laplacian."),
    StoredArray("basis/values", ("basis",), NUMBER, "Their eigenvalues, ascending."),
    StoredArray("basis/found", ("one",), NUMBER, "The largest |L q - value q| over |L| when they were found."),
)
"""Arrays of the basis of smooth eigenvectors."""

PROPAGATION = Arrays(
    *SHARED,
    *SMOOTH,
    StoredArray("basis/must_link", ("must", "end"), INTEGERS, "Rows of pairs that belong together."),
    StoredArray("basis/cannot_link", ("cannot", "end"), INTEGERS, "Rows of pairs that belong apart."),
    StoredArray("basis/weights", ("pair",), NUMBER, "Weights of the must-links and then of the cannot-links."),
    StoredArray(
        "held_out/factor",
        ("basis", "column"),
        NUMBER,
        "Quality: R of the kernel Q R R' Q' without the held-out pairs.",
        optional=True,
    ),
    StoredArray("held_out/dual", ("term_left",), NUMBER, "Quality: z of that kernel's certificate.", optional=True),
    StoredArray("held_out/relative_gap", ("one",), NUMBER, "Quality: its relative gap.", optional=True),
    files=STATES.files,
)
"""Arrays of `LaplacianKernelLearner`."""

UNFOLDING = Arrays(
    *SHARED,
    *(replace(one, optional=True, doc=f"Of soft distances: {one.doc}") for one in SMOOTH),
    StoredArray("basis/edges", ("edge", "end"), INTEGERS, "Of the graph, each once, the smaller row first."),
    StoredArray("basis/squared", ("edge",), NUMBER, "Squared distances of their rows."),
    StoredArray("basis/side", ("sample", "class"), NUMBER, "Colored: a factor of the kernel of labels.", optional=True),
    StoredArray("model/Q", ("sample", "basis"), NUMBER, "Hard distances: eigenvectors of the kernel.", optional=True),
    StoredArray(
        "model/cliques",
        ("member",),
        INTEGERS,
        "Hard distances: rows of cliques of neighbors, one clique after the other; the bound is of kernels on the face that they leave.",
        optional=True,
    ),
    StoredArray("model/clique_sizes", ("clique",), INTEGERS, "Hard distances: rows in each clique.", optional=True),
    files=STATES.files,
)
"""Arrays of `MaximumVarianceUnfolding`."""
