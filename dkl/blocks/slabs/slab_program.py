"""Work on the slabs of a factored state: the phases of an iteration, and what follows from their sums."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dkl.linalg.slabs.slab_ops import empty_aligned
from dkl.linalg.slabs.small_systems import Filled
from dkl.resources import machine_memory
from dkl.stores import direct_io
from dkl.stores.slab_arrays import SlabArray

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


# Storage of the arrays of a factored state: in memory, or on disk a slab at a time.

CACHED = 0.5
"""Share of a machine's memory that files of a run may count on as the system's cache."""


class MemorySlabs:
    """Arrays of the state in memory: name -> (slabs here, n, w)."""

    ahead = 0

    def __init__(self, program: SlabProgram, slabs: range) -> None:
        self.first = slabs.start
        shape = (len(slabs), program.n, program.width)
        self.arrays = {name: empty_aligned(shape, program.dtype) for name in program.arrays}

    def open(self, slab: int, reads: tuple[str, ...], writes: tuple[str, ...]) -> Slab:
        """Return the arrays of `slab`, as views: nothing is read or copied."""
        return {name: array[slab - self.first] for name, array in self.arrays.items()}

    def close(self, slab: int, arrays: Slab, writes: tuple[str, ...]) -> None:
        """Do nothing: the views were written to."""


class DiskSlabs:
    """Arrays of the state on disk, one slab at a time in the buffers of the thread that works on it.

    Buffers are kept for the next slab: memory is that of the threads, however many slabs there are. ahead: slabs that are read or
    written while as many as the owner has threads are computed.
    """

    def __init__(self, program: SlabProgram, arrays: Mapping[str, SlabArray], ahead: int = 0) -> None:
        self.program, self.arrays, self.ahead = program, dict(arrays), ahead
        self.free: list[Slab] = []
        self.lock = threading.Lock()

    def _buffers(self) -> Slab:
        """Return a set of buffers that is free, or a new one."""
        with self.lock:
            if self.free:
                return self.free.pop()
        shape = (self.program.n, self.program.width)
        # Aligned to blocks of the disk, as reads and writes past the system's cache need.
        return {name: empty_aligned(shape, self.program.dtype, direct_io.BLOCK) for name in self.program.arrays}

    def open(self, slab: int, reads: tuple[str, ...], writes: tuple[str, ...]) -> Slab:
        """Return buffers for `slab`, with the arrays `reads` in them; the others keep their old content."""
        buffers = self._buffers()
        for name in reads:
            self.arrays[name].read(slab, buffers[name])
        return buffers

    def close(self, slab: int, arrays: Slab, writes: tuple[str, ...]) -> None:
        """Write the arrays named by `writes`, and take the buffers back."""
        for name in writes:
            self.arrays[name].write(slab, arrays[name])
        with self.lock:
            self.free.append(arrays)


def make_storage(program: SlabProgram, slabs: range, scratch: str | None, ahead: int = 0) -> MemorySlabs | DiskSlabs:
    """Return storage for `slabs`: memory, or (given a folder made by `create_scratch`) its zarr arrays.

    ahead: slabs on disk to read or write while others are computed. Arrays that the system's cache could not hold
    (CACHED of this machine's memory) are read and written past it, where that can be done.
    """
    if scratch is None:
        return MemorySlabs(program, slabs)
    arrays = {name: SlabArray.open(Path(scratch) / name) for name in program.arrays}
    size = sum(array.n_slabs * array.slab_bytes for array in arrays.values())
    # A larger state would push itself, and all else, out of the system's cache in each pass.
    if size > CACHED * machine_memory() and direct_io.supported(Path(scratch)):
        arrays = {name: replace(array, uncached=True) for name, array in arrays.items()}
    return DiskSlabs(program, arrays, ahead)
