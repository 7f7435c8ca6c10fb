"""Where the slabs are: all in this process, or shared out over the workers of a cluster. One face for both.

`advance` runs iterations of a program's cycle of phases and returns the carry after each: a loop over the slabs of an
owner, in this process or in one pinned task on each worker. Owners on workers hand their sums to each other after every
phase (blocks/exchange.py), so a task runs several iterations and comes back with a list of small dictionaries.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dkl.blocks import slab_worker
from dkl.blocks.exchange import StateLost
from dkl.blocks.session import Session
from dkl.blocks.slab_owner import Carry, DiskSlabs, MemorySlabs, SlabOwner, SlabProgram
from dkl.errors import WorkersLostError
from dkl.linalg.slabs import n_slabs
from dkl.linalg.tree_sum import group_bounds, share
from dkl.stores.generations import Generation, Generations
from dkl.stores.slab_arrays import SlabArray

BATCH_SECONDS = 1.0
"""A task on a worker iterates for about as long before it comes back: a round through the scheduler costs milliseconds."""
LARGEST_BATCH = 64

Fill = Callable[[str, int, range, NDArray], None]
"""fill(name, slab, columns, out) sets out (n, w) to the initial slab; picklable."""


class Placement(Protocol):
    """A state that a program is run on."""

    @property
    def lookahead(self) -> int: ...
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

    def start(self, fill: Fill, carry: Carry) -> None:
        self.owner.fill(fill)
        self.owner.begin(carry)
        self.owner.open()

    def restore(self, generation: Generation) -> None:
        self.owner.read_generation(generation.folder, generation.files, generation.carry)
        self.owner.open()

    def advance(self, steps: int) -> list[Carry]:
        return self.owner.iterate(steps)

    def sums(self) -> NDArray[np.float64]:
        return self.owner.sums()

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

    def __init__(self, program: SlabProgram, session: Session, key: str, *, scratch: str | None = None) -> None:
        self.program, self.session, self.client, self.key = program, session, session.client, key
        self.slabs = n_slabs(program.rank, program.width)
        addresses = session.workers()
        if not addresses:
            raise WorkersLostError("the cluster has no workers", where="client", mend="add workers, then try again")
        self.shares = share(len(group_bounds(self.slabs)), len(addresses))
        self.addresses = addresses[: len(self.shares)]
        self.seconds = BATCH_SECONDS  # of an iteration
        # Sent once to each worker, straight from here; unlike scattered data it is not lost for good with a worker,
        # because every attempt sends it anew.
        try:
            constants = self.client.scatter(program, broadcast=True, hash=False)
        except Exception as error:
            raise self._lost(error) from error
        self._wait(
            [
                self._submit(
                    k, slab_worker.make_owner, key, constants, self.slabs, self.shares, k, self.addresses, scratch
                )
                for k in range(len(self.shares))
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
                with suppress(TimeoutError), self.client.as_current():  # `wait` takes no client
                    distributed.wait(futures, timeout=0.5)
                # Where one has failed the others may wait for it; they end when the owners are told to forget.
                failed = [future for future in futures if future.status in ("error", "cancelled", "lost")]
                if failed or all(future.done() for future in futures):
                    # A worker may die with results that are done: Dask plans them anew, there, and would wait for ever.
                    patience *= 2
                    return list(self._gathered(failed or futures, patience))
            except TimeoutError:
                pass  # of this gathering; look after the workers, then try again
            except Exception as error:
                raise self._lost(error) from error
            gone = set(self.addresses) - set(self.session.workers())
            if gone:
                raise StateLost(f"worker {sorted(gone)[0]} is gone")

    def _gathered(self, futures: list[Any], patience: float) -> Any:
        return self.client.sync(lambda: self.client.gather(futures, asynchronous=True), callback_timeout=patience)

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
        self._wait(self._all(slab_worker.open_state))

    @property
    def lookahead(self) -> int:
        return int(np.clip(BATCH_SECONDS / self.seconds, 1, LARGEST_BATCH))

    def advance(self, steps: int) -> list[Carry]:
        began = time.perf_counter()
        carries: list[Carry] = self._wait(self._all(slab_worker.iterate, steps))[0]
        self.seconds = (time.perf_counter() - began) / len(carries)
        return carries

    def sums(self) -> NDArray[np.float64]:
        return np.asarray(self._wait([self._submit(0, slab_worker.sums, self.key)])[0])

    def commit(self, generations: Generations, iteration: int, carry: Carry) -> Generation:
        program = self.program
        folder = generations.begin(program.committed, self.slabs, program.n, program.width, program.dtype)
        parts = self._wait(self._all(slab_worker.write_generation, str(folder)))
        written = [entry for part in parts for entry in part]
        return generations.commit(folder, written, len(program.committed) * self.slabs, iteration, carry)

    def collect(self, name: str) -> NDArray:
        parts = self._wait(self._all(slab_worker.read, name))
        return columns_to_factor(self.program, [slab for part in parts for slab in part])

    def close(self) -> None:
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
