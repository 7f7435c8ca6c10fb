"""The arrays that a run of learning from pairs in the basis of smooth eigenvectors holds."""

from __future__ import annotations

from dkl.estimators.qsdp.basis.declared import NUMBER, SHARED, STATES
from dkl.stores.registry import INTEGERS, Arrays, StoredArray

ARRAYS = Arrays(
    *SHARED,
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
