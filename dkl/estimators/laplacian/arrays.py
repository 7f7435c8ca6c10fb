"""The arrays that a run of learning from pairs in the basis of smooth eigenvectors holds."""

from __future__ import annotations

from dkl.estimators.basis.declared import NUMBER, SHARED, STATES
from dkl.stores.registry import INTEGERS, Arrays, StoredArray

ARRAYS = Arrays(
    *SHARED,
    StoredArray("basis/must_link", ("must", "end"), INTEGERS, "Rows of pairs that belong together."),
    StoredArray("basis/cannot_link", ("cannot", "end"), INTEGERS, "Rows of pairs that belong apart."),
    StoredArray("basis/weights", ("pair",), NUMBER, "Weights of the must-links and then of the cannot-links."),
    files=STATES.files,
)
