"""The arrays that a run of LogDet kernel learning holds. P are the rows that constraints touch."""

from __future__ import annotations

from dkl.estimators.base.declared_points import declared_points
from dkl.estimators.base.standardize_setting import COLUMN_ARRAYS
from dkl.estimators.base.stored_history import CERTIFICATE, ITERATION, declared_history
from dkl.stores.checkpoint_folder import vectors_of
from dkl.stores.registry import INTEGERS, Arrays, StoredArray

NUMBER = ("float64",)

STATES = Arrays(vectors_of("path", "path", "l and tr(K A_t) of the constraints, at each gamma that is solved."))

ARRAYS = Arrays(
    *STATES,
    *COLUMN_ARRAYS,
    StoredArray("model/touched", ("touched",), INTEGERS, "P, as rows of the data."),
    StoredArray("model/M", ("touched", "other"), NUMBER, "K = K0 + K0[:, P] M K0[P, :], at the last gamma."),
    StoredArray("model/gammas", ("gamma",), NUMBER, "The path."),
    StoredArray("model/multipliers", ("gamma", "constraint"), NUMBER, "l at each gamma: K^-1 = K0^-1 + U(l)."),
    StoredArray("model/basis", ("basis",), INTEGERS, "Rows of the data whose principal components are kept."),
    StoredArray("model/weights", ("basis", "component"), NUMBER, "Coordinates: k0(x, basis) weights + ..."),
    StoredArray(
        "model/weights_at_points", ("touched", "component"), NUMBER, "... k0(x, P) weights_at_points - offset."
    ),
    StoredArray("model/offset", ("component",), NUMBER, "See weights."),
    StoredArray(
        "model/coordinates", ("sample", "component"), NUMBER, "Of a graph's rows: their coordinates.", optional=True
    ),
    StoredArray("model/kernel_gamma", ("one",), NUMBER, "Of a kernel of rows that has one.", optional=True),
    StoredArray("model/widths", ("width",), NUMBER, "Of the graph's similarity: one, or each row's.", optional=True),
    StoredArray("model/laplacian", ("graph_entry",), NUMBER, "Of the graph, D - W: its entries.", optional=True),
    StoredArray("model/laplacian_indices", ("graph_entry",), INTEGERS, "As CSR: the column of each.", optional=True),
    StoredArray("model/laplacian_indptr", ("sample_bound",), INTEGERS, "As CSR: where rows begin.", optional=True),
    StoredArray("model/prior", ("sample", "other_sample"), NUMBER, "K0 that was precomputed.", optional=True),
    StoredArray(
        "held_out/multipliers",
        ("constraint_left",),
        NUMBER,
        "Quality: l without the held-out part, at the last gamma.",
        optional=True,
    ),
    StoredArray("held_out/relative_gap", ("one",), NUMBER, "Quality: the relative gap of that.", optional=True),
    *declared_points("model", "kept", "Rows of the data: those of the basis, or all that the graph is of"),
    *declared_history(
        {**ITERATION, "products": "Of the checks: Hessian products so far at this gamma."},
        {"gamma": "Of the checks: the weight.", **CERTIFICATE, "decrement": "Of the checks: |K^1/2 G K^1/2|_F."},
    ),
    files={
        "path/path-*/MANIFEST.json": "The gammas of a path that are solved: of each its certificate, what it took, its rows of "
        "the history, and the shapes of its arrays."
    },
)
