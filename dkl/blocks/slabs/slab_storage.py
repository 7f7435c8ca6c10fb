"""Storage of the arrays of a factored state: in memory, or on disk a slab at a time."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from dkl.blocks.slabs.slab_program import Slab, SlabProgram
from dkl.linalg.slabs.layout import empty_aligned
from dkl.resources import machine_memory
from dkl.stores import direct_io
from dkl.stores.slab_arrays import SlabArray

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
    if size > CACHED * machine_memory() and direct_io.supported(Path(scratch)):
        arrays = {name: replace(array, uncached=True) for name, array in arrays.items()}
    return DiskSlabs(program, arrays, ahead)
