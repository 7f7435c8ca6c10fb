"""One process's share of a factored state, and the phases that are run on it.

A `SlabProgram` says what is done on one slab and what follows from the sums; an owner holds a range of slab groups, in
memory or on disk, and runs a phase over them with threads. All placements are made of owners: one in this process, or
one on each worker of a cluster.

An iteration is a cycle of phases. Each phase visits every slab and adds up a vector of sums; the sums of all owners make
the message of the next phase. After a phase owners exchange only sums (and the rows that hubs need), so the same bytes
come out whoever owns what (see linalg/tree_sum.py); each adds them up and solves the small systems for itself, which
costs less than sending the solutions.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dkl.errors import StoreError
from dkl.linalg.slabs import empty_aligned
from dkl.linalg.tree_sum import Partials, absorb, group_bounds, total
from dkl.stores.slab_arrays import SlabArray

Slab = dict[str, NDArray]
"""The arrays of the state on one slab by name, (n, w) each."""
Carry = dict[str, Any]
"""The scalars of an iteration by name, JSON types; "converged" ends a batch."""
LEAST_CHUNK = 1024
"""Rows that are worth handing to a thread: some 0.1 ms of arithmetic."""


class SlabProgram(Protocol):
    """What to do on a slab. Immutable and picklable; every owner holds the same one."""

    @property
    def rank(self) -> int:
        """Columns of the factor."""

    @property
    def width(self) -> int:
        """Columns w of a slab."""

    @property
    def dtype(self) -> np.dtype:
        """Of the arrays."""

    @property
    def n(self) -> int:
        """Rows of the factor: the number of patterns."""

    @property
    def arrays(self) -> tuple[str, ...]:
        """Names of all arrays of the state."""

    @property
    def committed(self) -> tuple[str, ...]:
        """Names of the arrays that a checkpoint needs."""

    @property
    def opening(self) -> str:
        """The phase that computes the rest of the state from the committed arrays."""

    @property
    def cycle(self) -> tuple[str, ...]:
        """The phases of an iteration, in order."""

    def io(self, phase: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """(names of the arrays that the phase reads, names of those it writes)."""

    def sums_size(self, phase: str) -> int:
        """Length of the vector of sums of a phase."""

    def gathers(self, phase: str) -> tuple[str, NDArray[np.int64]] | None:
        """(array, row numbers) whose rows owners exchange after the phase, for hubs; None where there are none."""

    def next_carry(self, phase: str, sums: NDArray[np.float64], carry: Carry) -> Carry:
        """The carry after a phase, from its sums over all slabs; the same on all owners."""

    def message(self, phase: str, sums: NDArray[np.float64], rows: NDArray | None, carry: Carry, chunked: Any) -> Any:
        """What `visit` gets, from the sums and gathered rows (k, r) of the phase before; `chunked` runs over threads."""

    def visit(self, phase: str, slab: Slab, columns: range, message: Any, total: NDArray[np.float64]) -> None:
        """Do the phase on one slab, which holds `columns` of the factor; adds to `total`, its share of the sums."""


@dataclass
class PhaseSums:
    """What an owner sends after a phase: subtree sums, and gathered rows by slab. `step` numbers the phases from 0, the opening."""

    phase: str
    step: int
    partials: Partials
    rows: dict[int, NDArray] = field(default_factory=dict)


class MemorySlabs:
    """Arrays of the state in memory: name -> (slabs here, n, w)."""

    def __init__(self, program: SlabProgram, slabs: range) -> None:
        self.first = slabs.start
        shape = (len(slabs), program.n, program.width)
        self.arrays = {name: empty_aligned(shape, program.dtype) for name in program.arrays}

    def open(self, slab: int, reads: tuple[str, ...], writes: tuple[str, ...]) -> Slab:
        """The arrays of `slab`, as views: nothing is read or copied."""
        return {name: array[slab - self.first] for name, array in self.arrays.items()}

    def close(self, slab: int, arrays: Slab, writes: tuple[str, ...]) -> None:
        """Nothing: the views were written to."""


class DiskSlabs:
    """Arrays of the state on disk, one slab at a time in the buffers of the thread that works on it.

    Buffers are kept for the next slab: memory is that of the threads, however many slabs there are.
    """

    def __init__(self, program: SlabProgram, arrays: Mapping[str, SlabArray]) -> None:
        self.program, self.arrays = program, dict(arrays)
        self.free: list[Slab] = []
        self.lock = threading.Lock()

    def _buffers(self) -> Slab:
        """A set of buffers that is free, or a new one."""
        with self.lock:
            if self.free:
                return self.free.pop()
        shape = (self.program.n, self.program.width)
        return {name: empty_aligned(shape, self.program.dtype) for name in self.program.arrays}

    def open(self, slab: int, reads: tuple[str, ...], writes: tuple[str, ...]) -> Slab:
        """Buffers for `slab`, with the arrays named by `reads` in them; the others hold what was there before."""
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


class SlabOwner:
    """The slabs of the given `groups`, and a pool of threads that visits them.

    `exchange(step, part)` returns the parts of all owners in order; by default the owner is alone.
    """

    def __init__(
        self,
        program: SlabProgram,
        n_slabs: int,
        groups: range,
        storage: Any,
        threads: int = 1,
        exchange: Callable[[int, PhaseSums], list[PhaseSums]] = lambda step, part: [part],
    ) -> None:
        self.program, self.storage, self.threads = program, storage, max(1, threads)
        bounds = group_bounds(n_slabs)
        self.groups = [(index, range(*bounds[index])) for index in groups]
        self.slabs = range(self.groups[0][1].start, self.groups[-1][1].stop)
        self.exchange = exchange
        self.mine = PhaseSums("", -1, {})  # of the last phase
        self.parts: list[PhaseSums] = []  # of all owners
        self.carry: Carry = {}
        self.carry_step = -1  # the step that the carry has taken in
        self.summed: tuple[int, NDArray[np.float64]] | None = None
        self.pool = ThreadPoolExecutor(self.threads) if self.threads > 1 else None
        self.lock = threading.Lock()
        self.spare: list[NDArray[np.float64]] = []

    def close(self) -> None:
        """End the pool, without waiting: on a worker this runs on the event loop."""
        if self.pool is not None:
            self.pool.shutdown(wait=False)

    def columns(self, slab: int) -> range:
        """The columns of the factor that `slab` holds; fewer than w in the last one."""
        width = self.program.width
        return range(slab * width, min((slab + 1) * width, self.program.rank))

    # -- phases ---------------------------------------------------------------------------------------------------

    def begin(self, carry: Carry) -> None:
        """Set the carry from which the opening phase starts, and forget the sums of what was before."""
        self.carry, self.carry_step, self.summed = dict(carry), -1, None

    def open(self) -> None:
        """Run the opening phase, which computes the rest of the state, and exchange its sums."""
        self.mine = self._run(self.program.opening, 0, None)
        self.parts = self.exchange(0, self.mine)

    def iterate(self, steps: int) -> list[Carry]:
        """Run up to `steps` iterations; the carry after each, fewer once converged. All owners stop at the same one.

        They do because each decides by the same sums. Raises StateLost where another owner is lost.
        """
        carries: list[Carry] = []
        for _ in range(steps):
            for phase in self.program.cycle:
                sums, rows, carry = self.sums(), self._rows(self.parts), self._up_to_date_carry()
                message = self.program.message(phase, sums, rows, carry, self._chunked)
                before, self.mine = self.mine, self._run(phase, self.mine.step + 1, message)
                self.parts = self.exchange(self.mine.step, self.mine)
                # The vectors behind the last sums are used again only now: `sums` may be one of them, and the message views
                # of it.
                self._recycle(before)
            carries.append(dict(self._up_to_date_carry()))
            if carries[-1]["converged"]:
                break
        return carries

    def _up_to_date_carry(self) -> Carry:
        """The carry with the scalars of the last phase in it, computed once a phase."""
        if self.mine.step != self.carry_step:
            self.carry = self.program.next_carry(self.mine.phase, self.sums(), self.carry)
            self.carry_step = self.mine.step
        return self.carry

    def _run(self, phase: str, step: int, message: Any) -> PhaseSums:
        """One phase over all slabs here."""
        result = PhaseSums(phase, step, {}, {})
        self._each(lambda group: self._visit_group(phase, group, message, result), self.groups)
        return result

    def sums(self) -> NDArray[np.float64]:
        """The sums of the last phase over all owners, added up once. Read-only, and gone with the next phase."""
        if self.summed is None or self.summed[0] != self.mine.step:
            self.summed = self.mine.step, total(part.partials for part in self.parts)
        return self.summed[1]

    def _visit_group(self, phase: str, group: tuple[int, range], message: Any, result: PhaseSums) -> None:
        """One phase on the slabs of a group, in order, and its sums added to the tree."""
        index, slabs = group
        vector = self._take(self.program.sums_size(phase))
        reads, writes = self.program.io(phase)
        gathers = self.program.gathers(phase)
        for slab in slabs:
            arrays = self.storage.open(slab, reads, writes)
            self.program.visit(phase, arrays, self.columns(slab), message, vector)
            if gathers is not None:
                # Copied out by the fancy index, before the buffers of this slab are used for the next.
                result.rows[slab] = arrays[gathers[0]][gathers[1]]
            self.storage.close(slab, arrays, writes)
        with self.lock:
            self.spare += absorb(result.partials, (0, index), vector)

    def _take(self, size: int) -> NDArray[np.float64]:
        """A vector of zeros for sums: one that is free, or a new one."""
        with self.lock:
            for position, vector in enumerate(self.spare):
                if vector.size == size:
                    del self.spare[position]
                    break
            else:
                return np.zeros(size)
        vector[:] = 0  # outside the lock: it is this thread's alone by now
        return vector

    def _recycle(self, part: PhaseSums) -> None:
        """Take back the vectors of sums that nobody will read again."""
        with self.lock:
            self.spare += part.partials.values()
        part.partials = {}

    def _rows(self, parts: list[PhaseSums]) -> NDArray | None:
        """(k, r): the gathered rows of all owners, put together slab by slab, in double; None where none were gathered."""
        rows = {slab: block for part in parts for slab, block in part.rows.items()}
        if not rows:
            return None
        return np.concatenate([rows[slab] for slab in sorted(rows)], axis=1).astype(np.float64)

    def _each(self, function: Any, items: list[Any]) -> None:
        """function(item) for all items, on the pool."""
        if self.pool is None or len(items) == 1:
            for item in items:
                function(item)
        else:
            list(self.pool.map(function, items))

    def _chunked(self, function: Any, n: int) -> None:
        """function(lo, hi) over range(n) in four pieces a thread, as pieces of equal length take unequal time; in fewer where
        they would take no longer than handing them over."""
        pieces = 1 if self.pool is None else int(np.clip(n // LEAST_CHUNK, 1, 4 * self.threads))
        cuts = [(k * n // pieces, (k + 1) * n // pieces) for k in range(pieces)]
        self._each(lambda cut: function(*cut), cuts)

    # -- state in and out -----------------------------------------------------------------------------------------

    def fill(self, make: Any) -> None:
        """Set the committed arrays: make(name, slab, columns, out) fills out (n, w)."""

        def one(slab: int) -> None:
            arrays = self.storage.open(slab, (), self.program.committed)
            for name in self.program.committed:
                make(name, slab, self.columns(slab), arrays[name])
            self.storage.close(slab, arrays, self.program.committed)

        self._each(one, list(self.slabs))

    def read(self, name: str, slab: int) -> NDArray:
        """A copy (n, w) of one slab of the array `name`."""
        arrays = self.storage.open(slab, (name,), ())
        copy = arrays[name].copy()
        self.storage.close(slab, arrays, ())
        return copy

    def write_generation(self, folder: Path) -> list[tuple[str, int, int]]:
        """Write the committed arrays of these slabs into `folder`; (file, bytes, crc32c) of each chunk. Raises DiskError.

        Sorted: the manifest must not depend on which thread was first.
        """
        targets = {name: SlabArray.open(folder / name) for name in self.program.committed}
        written: list[tuple[str, int, int]] = []

        def one(slab: int) -> None:
            arrays = self.storage.open(slab, self.program.committed, ())
            for name, target in targets.items():
                size, checksum = target.write(slab, arrays[name])
                written.append((str(target.chunk(slab).relative_to(folder)), size, checksum))
            self.storage.close(slab, arrays, ())

        self._each(one, list(self.slabs))
        return sorted(written)

    def read_generation(self, folder: Path, files: Mapping[str, tuple[int, int]], carry: Carry) -> None:
        """Read a committed state and its carry; StoreError for a chunk whose checksum is not the manifest's."""
        sources = {name: SlabArray.open(folder / name) for name in self.program.committed}

        def load(name: str, slab: int, columns: range, out: NDArray) -> None:
            source = sources[name]
            checksum = source.read(slab, out)
            if files[str(source.chunk(slab).relative_to(folder))][1] != checksum:
                raise StoreError("a slab is not the one that was committed", where=str(source.chunk(slab)))

        self.fill(load)
        self.begin(carry)


def make_storage(program: SlabProgram, slabs: range, scratch: str | None) -> Any:
    """Storage of these slabs: memory, or (given a folder made by `create_scratch`) its zarr arrays."""
    if scratch is None:
        return MemorySlabs(program, slabs)
    return DiskSlabs(program, {name: SlabArray.open(Path(scratch) / name) for name in program.arrays})
