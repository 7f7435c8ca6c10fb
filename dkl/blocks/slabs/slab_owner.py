"""A process' share of a factored state, and the phases that are run on it.

A `SlabProgram` says what is done on one slab and what follows from the sums; an owner holds a range of slab groups, in
memory or on disk, and runs a phase over them with threads. All placements are made of owners: one in this process, or
one on each worker of a cluster.

An iteration is a cycle of phases. Each phase visits every slab and adds up a vector of sums; the sums of all owners make
the message of the next phase. After a phase owners exchange only sums (and the rows that hubs need), so the same bytes
come out however slabs are shared (see linalg/rows/tree_sum.py). What follows from the sums for each pattern by itself, the
small systems, is computed by all for all, or of many by each for its share (blocks/slabs/sums_exchange.py).
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dkl.blocks.slabs.slab_program import Carry, SlabProgram
from dkl.blocks.slabs.sums_exchange import AmongOwners, Combined, LocalSums, PhaseSums, fill_together
from dkl.errors import StoreError
from dkl.linalg.rows.tree_sum import absorb, group_bounds
from dkl.stores.slab_arrays import SlabArray

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

LEAST_CHUNK = 1024
"""Rows that are worth handing to a thread: some 0.1 ms of arithmetic."""


class SlabOwner:
    """The slabs of the given `groups`, and a pool of threads that visits them.

    among: what connects it with the other owners; None where it is alone.
    """

    def __init__(
        self,
        program: SlabProgram,
        n_slabs: int,
        groups: range,
        storage: Any,
        threads: int = 1,
        among: LocalSums | AmongOwners | None = None,
    ) -> None:
        self.program, self.storage, self.threads = program, storage, max(1, threads)
        # The cut follows from the number of slabs alone, so that all placements add along the same tree.
        bounds = group_bounds(n_slabs)
        self.groups = [(index, range(*bounds[index])) for index in groups]
        self.slabs = range(self.groups[0][1].start, self.groups[-1][1].stop)
        self.among = among or LocalSums()
        self.mine = PhaseSums("", -1, {})  # of the last phase
        self.last = Combined(np.zeros(0), {})  # the same of all owners
        self.carry: Carry = {}
        self.carry_step = -1  # the step that the carry has taken in
        # More threads than compute at a time: while those compute, others wait for the disk.
        at_once = self.threads + storage.ahead
        self.pool = ThreadPoolExecutor(at_once) if at_once > 1 else None
        self.computing = threading.BoundedSemaphore(self.threads)
        self.lock = threading.Lock()
        self.spare: list[NDArray[np.float64]] = []

    def close(self) -> None:
        """End the pool, without waiting: on a worker this runs on the event loop."""
        if self.pool is not None:
            self.pool.shutdown(wait=False)

    def columns(self, slab: int) -> range:
        """Return the columns of the factor that `slab` holds; fewer than w in the last one."""
        width = self.program.width
        return range(slab * width, min((slab + 1) * width, self.program.rank))

    # -- phases ---------------------------------------------------------------------------------------------------

    def begin(self, carry: Carry) -> None:
        """Set the carry from which the opening phase starts."""
        self.carry, self.carry_step = dict(carry), -1

    def open(self) -> None:
        """Run the opening phase, which computes the rest of the state, and exchange its sums."""
        # The opening phase computes what is not committed, such as C of ADMM.
        self.mine = self._run(self.program.opening, 0, None)
        self.last = self.among.combine(self.mine, self._empty)

    def iterate(self, steps: int) -> list[Carry]:
        """Run up to `steps` iterations; the carry after each, fewer once converged. All owners stop at the same one.

        They do because each decides by the same sums. Raises StateLost where another owner is lost.
        """
        carries: list[Carry] = []
        for _ in range(steps):
            for phase in self.program.cycle:
                sums, rows, carry = self.sums(), self._rows(), self._up_to_date_carry()
                # The small systems follow from the sums: each owner solves them all, or its share of them.
                message = self.program.message(phase, sums, rows, carry, self._filled)
                before, self.mine = self.mine, self._run(phase, self.mine.step + 1, message)
                # The vectors behind the last sums are used again only now: `sums` may be one of them, and the message views
                # of it.
                self._recycle(before, self.last.sums)
                self.last = self.among.combine(self.mine, self._empty)
            carries.append(dict(self._up_to_date_carry()))
            # All owners see the same sums, so all of them stop at the same iteration.
            if carries[-1]["converged"]:
                break
        return carries

    def _up_to_date_carry(self) -> Carry:
        """Return the carry with the scalars of the last phase in it, computed once a phase."""
        if self.mine.step != self.carry_step:
            self.carry = self.program.next_carry(self.mine.phase, self.sums(), self.carry)
            self.carry_step = self.mine.step
        return self.carry

    def _run(self, phase: str, step: int, message: object) -> PhaseSums:
        """Run one phase over all slabs of this owner."""
        result = PhaseSums(phase, step, {}, {})
        self._each(lambda group: self._visit_group(phase, group, message, result), self.groups)
        return result

    def sums(self) -> NDArray[np.float64]:
        """Return the sums of the last phase over all owners. Read-only, and gone with the next phase."""
        return self.last.sums

    def _visit_group(self, phase: str, group: tuple[int, range], message: Any, result: PhaseSums) -> None:
        """Run one phase on the slabs of a group, in order, and add its sums to the tree."""
        index, slabs = group
        vector = self._take(self.program.sums_size(phase))
        reads, writes = self.program.io(phase)
        gathers = self.program.gathers(phase)
        for slab in slabs:
            arrays = self.storage.open(slab, reads, writes)
            with self.computing:
                self.program.visit(phase, arrays, self.columns(slab), message, vector)
            if gathers is not None:
                # Copied out by the fancy index, before the buffers of this slab are used for the next.
                result.rows[slab] = arrays[gathers[0]][gathers[1]]
            self.storage.close(slab, arrays, writes)
        # Subtrees are added under the lock: whichever thread brings the second sibling adds both.
        with self.lock:
            self.spare += absorb(result.partials, (0, index), vector)

    def _empty(self, size: int) -> NDArray[np.float64]:
        """Return an uninitialized vector for sums: one that is free, or a new one."""
        with self.lock:
            for position, vector in enumerate(self.spare):
                if vector.size == size:
                    return self.spare.pop(position)
        return np.empty(size)

    def _take(self, size: int) -> NDArray[np.float64]:
        """Return a vector of zeros for sums: one that is free, or a new one."""
        vector = self._empty(size)
        vector[:] = 0
        return vector

    def _recycle(self, part: PhaseSums, sums: NDArray[np.float64]) -> None:
        """Take back the vectors of sums that will not be read again."""
        free = list(part.partials.values())
        # The sums may be one of the vectors themselves, which must not be handed out twice.
        if not any(sums is vector for vector in free):
            free.append(sums)
        with self.lock:
            self.spare += free
        part.partials = {}

    def _rows(self) -> NDArray | None:
        """Return the gathered rows (k, r) of all owners, slab by slab, in double; None without any."""
        rows = self.last.rows
        if not rows:
            return None
        # Slab by slab in order, so that columns are where the factor has them.
        return np.concatenate([rows[slab] for slab in sorted(rows)], axis=1).astype(np.float64)

    def _each(self, function: Callable[..., object], items: Sequence[object]) -> None:
        """Call function(item) for all items, on the pool."""
        if self.pool is None or len(items) == 1:
            for item in items:
                function(item)
        else:
            list(self.pool.map(function, items))

    def _filled(self, function: Callable[..., object], vector: NDArray, ends: NDArray[np.int64]) -> None:
        """Fill `vector`, the same on all owners: function(lo, hi) sets vector[ends[lo] : ends[hi]], each item by itself."""
        fill_together(self.among, self.mine.step, lambda items: self._chunked(function, items), vector, ends)

    def _chunked(self, function: Callable[..., object], items: range) -> None:
        """Call function(lo, hi) over `items` in four pieces a thread, as equal pieces take unequal time.

        In fewer where they would take no longer than handing them over.
        """
        n = len(items)
        pieces = 1 if self.pool is None else int(np.clip(n // LEAST_CHUNK, 1, 4 * self.threads))
        cuts = [(items.start + k * n // pieces, items.start + (k + 1) * n // pieces) for k in range(pieces)]

        def one(cut: tuple[int, int]) -> None:
            with self.computing:
                function(*cut)

        self._each(one, cuts)

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
        """Return a copy (n, w) of one slab of the array `name`."""
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
            # The checksum of what was read is computed while reading: a chunk is not read twice.
            if files[str(source.chunk(slab).relative_to(folder))][1] != checksum:
                raise StoreError("a slab is not the one that was committed", where=str(source.chunk(slab)))

        self.fill(load)
        self.begin(carry)
