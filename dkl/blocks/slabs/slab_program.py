"""Work on the slabs of a factored state: the phases of an iteration, and what follows from their sums."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dkl.linalg.slabs.small_system_terms import Filled

Slab = dict[str, NDArray]
"""The arrays of the state on one slab by name, (n, w) each."""
Carry = dict[str, Any]
"""The scalars of an iteration by name, JSON types; "converged" ends a batch."""


class SlabProgram(Protocol):
    """Protocol of the work on a slab: immutable and picklable; every owner holds the same one."""

    @property
    def rank(self) -> int:
        """Return the number of columns of the factor."""

    @property
    def width(self) -> int:
        """Return w, the number of columns of a slab."""

    @property
    def dtype(self) -> np.dtype:
        """Return the dtype of the arrays."""

    @property
    def n(self) -> int:
        """Return the number of rows of the factor: that of patterns."""

    @property
    def arrays(self) -> tuple[str, ...]:
        """Return the names of all arrays of the state."""

    @property
    def committed(self) -> tuple[str, ...]:
        """Return the names of the arrays that a checkpoint needs."""

    @property
    def opening(self) -> str:
        """Return the phase that computes the rest of the state from the committed arrays."""

    @property
    def cycle(self) -> tuple[str, ...]:
        """Return the phases of an iteration, in order."""

    def io(self, phase: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return (names of the arrays that the phase reads, names of those it writes)."""

    def sums_size(self, phase: str) -> int:
        """Return the length of the vector of sums of a phase."""

    def gathers(self, phase: str) -> tuple[str, NDArray[np.int64]] | None:
        """Return (array, numbers of its rows that owners exchange after the phase, for hubs), or None."""

    def next_carry(self, phase: str, sums: NDArray[np.float64], carry: Carry) -> Carry:
        """Return the carry after a phase, from its sums over all slabs; the same on all owners."""

    def message(self, phase: str, sums: NDArray[np.float64], rows: NDArray | None, carry: Carry, filled: Filled) -> Any:
        """Return what `visit` gets, from the last phase's sums and gathered rows (k, r); equal on all owners.

        `filled(function, vector, ends)` has function(lo, hi) set vector[ends[lo] : ends[hi]] for ranges of items, over threads and owners.
        """

    def visit(self, phase: str, slab: Slab, columns: range, message: object, total: NDArray[np.float64]) -> None:
        """Do the phase on one slab, which holds `columns` of the factor; adds to `total`, its share of the sums."""
