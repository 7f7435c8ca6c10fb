"""The arrays that a run of maximum variance unfolding holds."""

from __future__ import annotations

from dkl.estimators.qsdp.basis.declared import NUMBER, SHARED, STATES
from dkl.stores.registry import INTEGERS, Arrays, StoredArray

ARRAYS = Arrays(
    *SHARED,
    StoredArray("basis/edges", ("edge", "end"), INTEGERS, "Of the graph, each once, the smaller row first."),
    StoredArray("basis/squared", ("edge",), NUMBER, "Squared distances of their rows."),
    StoredArray("basis/side", ("sample", "class"), NUMBER, "Colored: a factor of the kernel of labels.", optional=True),
    files=STATES.files,
)
