"""Where the slabs are: all in this process, or shared out over the workers of a cluster. One face for both.

`advance` runs iterations of a program's cycle of phases and returns the carry after each. In this process that is a
loop. On a cluster it is one task a worker and phase, pinned, with the sums of the other workers as its only dependencies:
the workers fetch them from each other, sum them in the fixed tree and solve the small systems each for itself, so the
client sees one small dictionary an iteration, and the next phases are queued before it has arrived.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dkl.blocks import slab_worker
from dkl.blocks.session import Session
from dkl.blocks.slab_owner import Carry, DiskSlabs, MemorySlabs, PhaseSums, SlabOwner, SlabProgram
from dkl.blocks.slab_worker import StateLost
from dkl.errors import WorkersLostError
from dkl.linalg.slabs import n_slabs
from dkl.linalg.tree_sum import group_bounds, share, total
from dkl.stores.generations import Generation, Generations
from dkl.stores.slab_arrays import SlabArray

LOOKAHEAD = 8
"""Iterations queued on a cluster before their carries are awaited."""

Fill = Callable[[str, int, range, NDArray], None]
"""fill(name, slab, columns, out) sets out (n, w) to the initial slab; picklable."""


class Placement(Protocol):
    """A state that a program is run on."""

    lookahead: int

    def start(self, fill: Fill, carry: Carry) -> None: ...
    def restore(self, generation: Generation) -> None: ...
    def advance(self, steps: int) -> list[Carry]: ...
    def sums(self) -> NDArray[np.float64]: ...
    def commit(self, generations: Generations, iteration: int, carry: Carry) -> Generation: ...
    def collect(self, name: str) -> NDArray: ...
    def close(self) -> None: ...


def make_storage(program: SlabProgram, slabs: range, scratch: str | None) -> Any:
    """Memory, or (given a folder) zarr arrays in it for these slabs."""
    if scratch is None:
        return MemorySlabs(program, slabs)
    return DiskSlabs(program, {name: SlabArray.open(Path(scratch) / name) for name in program.arrays})


def create_scratch(program: SlabProgram, folder: Path) -> str:
    """The working arrays of an out-of-core run, all slabs; owners open the same arrays and keep to their own slabs."""
    folder.mkdir(mode=0o700, parents=True)
    for name in program.arrays:
        SlabArray.create(folder / name, n_slabs(program.rank, program.width), program.n, program.width, program.dtype)
    return str(folder)


class LocalPlacement:
    """All slabs in this process, visited by threads."""

    lookahead = 1

    def __init__(self, program: SlabProgram, *, threads: int = 1, scratch: str | None = None) -> None:
        self.program = program
        self.slabs = n_slabs(program.rank, program.width)
        groups = range(len(group_bounds(self.slabs)))
        self.owner = SlabOwner(program, self.slabs, groups, make_storage(program, range(self.slabs), scratch), threads)
        self.last: PhaseSums | None = None

    def start(self, fill: Fill, carry: Carry) -> None:
        self.owner.fill(fill)
        self.owner.begin(carry)
        self._open()

    def restore(self, generation: Generation) -> None:
        self.owner.read_generation(generation.folder, generation.files, generation.carry)
        self._open()

    def _open(self) -> None:
        self.last = self.owner.run(self.program.opening, [])

    def advance(self, steps: int) -> list[Carry]:
        carries: list[Carry] = []
        for _ in range(steps):
            for phase in self.program.cycle:
                before = self._sums()
                self.last = self.owner.run(phase, [before])
                if self.last is not before:
                    self.owner.recycle(before)
            carries.append(dict(self.owner.conclude([self._sums()])))
            if carries[-1]["converged"]:
                break
        return carries

    def _sums(self) -> PhaseSums:
        assert self.last is not None, "start or restore comes first"
        return self.last

    def sums(self) -> NDArray[np.float64]:
        return total([self._sums().partials])

    def commit(self, generations: Generations, iteration: int, carry: Carry) -> Generation:
        folder = generations.begin(
            self.program.committed, self.slabs, self.program.n, self.program.width, self.program.dtype
        )
        written = self.owner.write_generation(folder)
        return generations.commit(folder, written, len(self.program.committed) * self.slabs, iteration, carry)

    def collect(self, name: str) -> NDArray:
        return columns_to_factor(self.program, [self.owner.read(name, slab) for slab in range(self.slabs)])

    def close(self) -> None:
        self.owner.close()


class ClusterPlacement:
    """Slabs shared out over the workers of a cluster, in their memory or in a scratch folder that they see."""

    lookahead = LOOKAHEAD

    def __init__(self, program: SlabProgram, session: Session, key: str, *, scratch: str | None = None) -> None:
        self.program, self.session, self.client, self.key = program, session, session.client, key
        self.slabs = n_slabs(program.rank, program.width)
        addresses = session.workers()
        if not addresses:
            raise WorkersLostError("the cluster has no workers", where="client", mend="add workers, then try again")
        self.shares = share(len(group_bounds(self.slabs)), len(addresses))
        self.addresses = addresses[: len(self.shares)]
        self.last: list[Any] = []
        # Sent once to each worker, straight from here; unlike scattered data it is not lost for good with a worker,
        # because every attempt sends it anew.
        try:
            constants = self.client.scatter(program, broadcast=True, hash=False)
        except Exception as error:
            raise self._lost(error) from error
        self._wait(
            [
                self._submit(k, slab_worker.make_owner, key, constants, self.slabs, groups, scratch)
                for k, groups in enumerate(self.shares)
            ]
        )

    def _submit(self, k: int, function: Any, *arguments: Any) -> Any:
        return self.client.submit(
            function, *arguments, pure=False, workers=[self.addresses[k]], allow_other_workers=False, retries=0
        )

    def _all(self, function: Any, *arguments: Any) -> list[Any]:
        return [self._submit(k, function, self.key, *arguments) for k in range(len(self.addresses))]

    def _wait(self, futures: list[Any]) -> list[Any]:
        """Results in order; StateLost as soon as one of our workers is gone or has forgotten its slabs."""
        import distributed

        patience = 2.0
        while True:
            self.session.require_scheduler()
            try:
                with self.client.as_current():  # `wait` takes no client
                    distributed.wait(futures, timeout=0.5)
                # A worker may die with results that are done: Dask plans them anew, there, and would wait for ever.
                patience *= 2
                gathered = self.client.sync(
                    lambda: self.client.gather(futures, asynchronous=True), callback_timeout=patience
                )
                return list(gathered)
            except TimeoutError:
                pass  # of this wait; look after the workers, then wait on
            except Exception as error:
                raise self._lost(error) from error
            gone = set(self.addresses) - set(self.session.workers())
            if gone:
                raise StateLost(f"worker {sorted(gone)[0]} is gone")

    def _lost(self, error: Exception) -> Exception:
        """StateLost where the cluster failed, WorkersLostError where the scheduler is gone, else the error itself."""
        if isinstance(error, StateLost) or not slab_worker.is_cluster_failure(error):
            return error
        try:
            self.session.require_scheduler()
        except WorkersLostError as gone:
            return gone
        return StateLost(f"lost with a worker: {type(error).__name__}: {' '.join(str(error).split())}")

    def start(self, fill: Fill, carry: Carry) -> None:
        self._wait(self._all(slab_worker.fill, fill, carry))
        self._open()

    def restore(self, generation: Generation) -> None:
        self._wait(self._all(slab_worker.restore, str(generation.folder), generation.files, generation.carry))
        self._open()

    def _open(self) -> None:
        self.last = self._all(slab_worker.run_phase, self.program.opening, [])
        self._wait(self._all(slab_worker.ready, self.last))

    def advance(self, steps: int) -> list[Carry]:
        carries = []
        for _ in range(steps):
            for phase in self.program.cycle:
                self.last = self._all(slab_worker.run_phase, phase, self.last)
            carries.append(self._submit(0, slab_worker.conclude, self.key, self.last))
        rows: list[Carry] = self._wait(carries)
        return rows[: next((k + 1 for k, row in enumerate(rows) if row["converged"]), len(rows))]

    def sums(self) -> NDArray[np.float64]:
        return total(part.partials for part in self._wait(self.last))

    def commit(self, generations: Generations, iteration: int, carry: Carry) -> Generation:
        # Owners conclude only when the next phase comes; a committed carry must be the concluded one, so it is given.
        program = self.program
        folder = generations.begin(program.committed, self.slabs, program.n, program.width, program.dtype)
        parts = self._wait(self._all(slab_worker.write_generation, str(folder)))
        written = [entry for part in parts for entry in part]
        return generations.commit(folder, written, len(program.committed) * self.slabs, iteration, carry)

    def collect(self, name: str) -> NDArray:
        parts = self._wait(self._all(slab_worker.read, name))
        return columns_to_factor(self.program, [slab for part in parts for slab in part])

    def close(self) -> None:
        self.last = []
        if self.client.status != "running":
            return
        try:
            self.client.run(slab_worker.forget, self.key, on_error="ignore")
        except Exception as error:
            if not slab_worker.is_cluster_failure(error):  # else nobody is left to tell, or who is will forget (LEASE)
                raise


def columns_to_factor(program: SlabProgram, slabs: list[NDArray]) -> NDArray:
    """(n, rank) from slabs of columns, without the zero columns at the end."""
    factor = np.empty((program.n, program.rank), program.dtype)
    for k, slab in enumerate(slabs):
        lo = k * program.width
        hi = min(lo + program.width, program.rank)
        factor[:, lo:hi] = slab[:, : hi - lo]
    return factor


def wait_for_workers(session: Session, count: int, timeout: float) -> None:
    """Wait until the cluster has `count` workers again, or at least one when the time is up."""
    deadline = time.monotonic() + timeout
    while len(session.workers()) < count and time.monotonic() < deadline:
        time.sleep(0.1)
    if not session.workers():
        raise WorkersLostError(
            "all workers are gone and none came back",
            where="client",
            got=0,
            wanted=f"{count} workers",
            mend="start workers, then `dkl resume` the run",
        )
