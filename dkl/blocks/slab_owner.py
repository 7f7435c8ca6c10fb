"""One process's share of a factored state, and the phases that are run on it.

A `SlabProgram` says what is done on one slab and what is made of the sums; an owner holds a range of slab groups, in
memory or on disk, and runs a phase over them with threads. All placements are made of owners: one in this process, or
one on each worker of a cluster. After a phase owners exchange only sums (and the rows that hubs need), so the same
bytes come out whoever owns what (see linalg/tree_sum.py); each adds them up and solves the small systems for itself.
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
Carry = dict[str, Any]


class SlabProgram(Protocol):
    """What to do on a slab. Immutable and picklable; every owner holds the same one."""

    @property
    def rank(self) -> int: ...
    @property
    def width(self) -> int: ...
    @property
    def dtype(self) -> np.dtype: ...
    @property
    def n(self) -> int: ...
    @property
    def arrays(self) -> tuple[str, ...]: ...  # every array of the state
    @property
    def committed(self) -> tuple[str, ...]: ...  # those a checkpoint needs
    @property
    def opening(self) -> str: ...  # the phase that makes the rest of the state from the committed arrays
    @property
    def cycle(self) -> tuple[str, ...]: ...  # the phases of an iteration

    def io(self, phase: str) -> tuple[tuple[str, ...], tuple[str, ...]]: ...  # arrays read, arrays written
    def sums_size(self, phase: str) -> int: ...
    def gathers(self, phase: str) -> tuple[str, NDArray[np.int64]] | None: ...  # rows to hand round after a phase
    def conclude(self, phase: str, sums: NDArray[np.float64], carry: Carry) -> Carry: ...
    def message(
        self, phase: str, sums: NDArray[np.float64], rows: NDArray | None, carry: Carry, chunked: Any
    ) -> Any: ...
    def visit(self, phase: str, slab: Slab, columns: range, message: Any, total: NDArray[np.float64]) -> None: ...


@dataclass
class PhaseSums:
    """What an owner hands round after a phase: subtree sums, and gathered rows by slab. `step` numbers the phases."""

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
        return {name: array[slab - self.first] for name, array in self.arrays.items()}

    def close(self, slab: int, arrays: Slab, writes: tuple[str, ...]) -> None:
        pass


class DiskSlabs:
    """Arrays of the state on disk, one slab at a time in the buffers of the thread that works on it."""

    def __init__(self, program: SlabProgram, arrays: Mapping[str, SlabArray]) -> None:
        self.program, self.arrays = program, dict(arrays)
        self.free: list[Slab] = []
        self.lock = threading.Lock()

    def _buffers(self) -> Slab:
        with self.lock:
            if self.free:
                return self.free.pop()
        shape = (self.program.n, self.program.width)
        return {name: empty_aligned(shape, self.program.dtype) for name in self.program.arrays}

    def open(self, slab: int, reads: tuple[str, ...], writes: tuple[str, ...]) -> Slab:
        buffers = self._buffers()
        for name in reads:
            self.arrays[name].read(slab, buffers[name])
        return buffers

    def close(self, slab: int, arrays: Slab, writes: tuple[str, ...]) -> None:
        for name in writes:
            self.arrays[name].write(slab, arrays[name])
        with self.lock:
            self.free.append(arrays)


class SlabOwner:
    """The slabs of a range of groups, and a pool of threads that visits them.

    `exchange(step, part)` gives the parts of all owners; one that is alone has its own.
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
        self.concluded = -1  # the step that the carry has taken in
        self.summed: tuple[int, NDArray[np.float64]] | None = None
        self.pool = ThreadPoolExecutor(self.threads) if self.threads > 1 else None
        self.lock = threading.Lock()
        self.spare: list[NDArray[np.float64]] = []

    def close(self) -> None:
        if self.pool is not None:
            self.pool.shutdown(wait=False)  # on a worker this runs on the event loop

    def columns(self, slab: int) -> range:
        width = self.program.width
        return range(slab * width, min((slab + 1) * width, self.program.rank))

    # -- phases ---------------------------------------------------------------------------------------------------

    def begin(self, carry: Carry) -> None:
        """Set the carry from which the opening phase starts."""
        self.carry, self.concluded, self.summed = dict(carry), -1, None

    def open(self) -> None:
        """Run the opening phase, which makes the rest of the state."""
        self.mine = self._run(self.program.opening, 0, None)
        self.parts = self.exchange(0, self.mine)

    def iterate(self, steps: int) -> list[Carry]:
        """Up to `steps` iterations; the carry after each, fewer once converged. All owners come to the same ones."""
        carries: list[Carry] = []
        for _ in range(steps):
            for phase in self.program.cycle:
                sums, rows, carry = self.sums(), self._rows(self.parts), self._conclude()
                message = self.program.message(phase, sums, rows, carry, self._chunked)
                before, self.mine = self.mine, self._run(phase, self.mine.step + 1, message)
                self.parts = self.exchange(self.mine.step, self.mine)
                self._recycle(before)
            carries.append(dict(self._conclude()))
            if carries[-1]["converged"]:
                break
        return carries

    def _conclude(self) -> Carry:
        """The carry with the scalars of the last phase taken in."""
        if self.mine.step != self.concluded:
            self.carry = self.program.conclude(self.mine.phase, self.sums(), self.carry)
            self.concluded = self.mine.step
        return self.carry

    def _run(self, phase: str, step: int, message: Any) -> PhaseSums:
        """Visit every slab here."""
        result = PhaseSums(phase, step, {}, {})
        self._each(lambda group: self._visit_group(phase, group, message, result), self.groups)
        return result

    def sums(self) -> NDArray[np.float64]:
        """The sums of the last phase, added up once. Not to be written to, and gone with the next phase."""
        if self.summed is None or self.summed[0] != self.mine.step:
            self.summed = self.mine.step, total(part.partials for part in self.parts)
        return self.summed[1]

    def _visit_group(self, phase: str, group: tuple[int, range], message: Any, result: PhaseSums) -> None:
        index, slabs = group
        vector = self._take(self.program.sums_size(phase))
        reads, writes = self.program.io(phase)
        gathers = self.program.gathers(phase)
        for slab in slabs:
            arrays = self.storage.open(slab, reads, writes)
            self.program.visit(phase, arrays, self.columns(slab), message, vector)
            if gathers is not None:
                result.rows[slab] = arrays[gathers[0]][gathers[1]]
            self.storage.close(slab, arrays, writes)
        with self.lock:
            self.spare += absorb(result.partials, (0, index), vector)

    def _take(self, size: int) -> NDArray[np.float64]:
        with self.lock:
            for position, vector in enumerate(self.spare):
                if vector.size == size:
                    del self.spare[position]
                    break
            else:
                return np.zeros(size)
        vector[:] = 0
        return vector

    def _recycle(self, part: PhaseSums) -> None:
        """Take back the vectors of sums that nobody will read again."""
        with self.lock:
            self.spare += part.partials.values()
        part.partials = {}

    def _rows(self, parts: list[PhaseSums]) -> NDArray | None:
        rows = {slab: block for part in parts for slab, block in part.rows.items()}
        if not rows:
            return None
        return np.concatenate([rows[slab] for slab in sorted(rows)], axis=1).astype(np.float64)

    def _each(self, function: Any, items: list[Any]) -> None:
        if self.pool is None:
            for item in items:
                function(item)
        else:
            list(self.pool.map(function, items))

    def _chunked(self, function: Any, n: int) -> None:
        pieces = 1 if self.pool is None else 4 * self.threads
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
        """A copy of one slab."""
        arrays = self.storage.open(slab, (name,), ())
        copy = arrays[name].copy()
        self.storage.close(slab, arrays, ())
        return copy

    def write_generation(self, folder: Path) -> list[tuple[str, int, int]]:
        """Write the committed arrays of these slabs into `folder`; returns (file, bytes, crc32c) of each chunk."""
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
        """Take a committed state; a chunk whose checksum is not the manifest's is a StoreError."""
        sources = {name: SlabArray.open(folder / name) for name in self.program.committed}

        def load(name: str, slab: int, columns: range, out: NDArray) -> None:
            source = sources[name]
            checksum = source.read(slab, out)
            if files[str(source.chunk(slab).relative_to(folder))][1] != checksum:
                raise StoreError("a slab is not the one that was committed", where=str(source.chunk(slab)))

        self.fill(load)
        self.begin(carry)
