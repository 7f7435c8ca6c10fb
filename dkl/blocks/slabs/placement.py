"""Placements of the slabs, with one interface: in this process, or shared out over workers.

`advance` runs iterations of a program's cycle of phases and returns the carry after each: a loop over the slabs of an
owner, in this process or in one pinned task on each worker. Owners on workers exchange their sums after every phase
(blocks/workers/exchange.py), so a task runs several iterations and returns a list of small dictionaries.

Slabs live outside Dask's own bookkeeping. So a lost worker is not repaired in place: every method of `ClusterPlacement`
raises StateLost, and the caller makes a new placement and restores the last commit.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dkl.blocks.memory_plan import Plan
from dkl.blocks.session import Session
from dkl.blocks.slabs import slab_worker
from dkl.blocks.slabs.slab_owner import SlabOwner
from dkl.blocks.slabs.slab_program import Carry, SlabProgram, make_storage
from dkl.blocks.workers import waiting
from dkl.blocks.workers.spmd import Owners
from dkl.errors import DiskError, WorkersLostError
from dkl.linalg.rows.tree_sum import group_bounds, share
from dkl.linalg.slabs.slab_ops import n_slabs
from dkl.stores.checkpoints import Checkpointer
from dkl.stores.generations import Generation, Generations
from dkl.stores.run import RunStore
from dkl.stores.slab_arrays import SlabArray

if TYPE_CHECKING:
    from dkl.stores.seals import Json

BATCH_SECONDS = 1.0
"""Seconds, about, that a task on a worker iterates: a round through the scheduler costs milliseconds."""
ASK_AGAIN_SECONDS = 1.0
"""Seconds between requests to a cluster of our own for its missing workers."""
LARGEST_BATCH = 64
"""Maximum number of iterations of a batch: the driver logs, checks limits and commits only in between."""

Fill = Callable[[str, int, range, NDArray], None]
"""fill(name, slab, columns, out) sets out (n, w) to the initial slab; picklable."""


class Placement(Protocol):
    """A state that a program is run on: `start` or `restore` first, then `advance`, `sums`, `commit` and `collect`, then `close`.

    The cluster's raise StateLost where slabs were lost with a worker, and WorkersLostError where the scheduler is gone.
    """

    @property
    def lookahead(self) -> int:
        """Return the iterations that one `advance` should be asked for: about BATCH_SECONDS of work."""

    def start(self, fill: Fill, carry: Carry) -> None:
        """Set the committed arrays by `fill`, the scalars by `carry`, and run the opening phase."""

    def restore(self, generation: Generation) -> None:
        """Read the arrays and the carry of a commit, and run the opening phase. Raises StoreError for a damaged one."""

    def advance(self, steps: int) -> list[Carry]:
        """Run up to `steps` iterations; the carry after each, fewer once one has converged."""

    def sums(self) -> NDArray[np.float64]:
        """Return the sums over all slabs of the last phase, in float64; read-only."""

    def commit(self, generations: Generations, iteration: int, carry: Carry) -> Generation:
        """Write the committed arrays and `carry` as a generation, which is visible once it is whole. DiskError."""

    def collect(self, name: str) -> NDArray:
        """Collect the array `name` (n, rank) from its slabs."""

    def close(self) -> None:
        """Release the slabs and what works on them; harmless if repeated."""


def create_scratch(program: SlabProgram, folder: Path) -> str:
    """Create the working arrays of an out-of-core run in the new `folder`, for all slabs; returns its path.

    Owners open the same arrays and each writes only its own slabs, which are chunks of their own. Mode 700: the factors say
    as much about the data as the result does.
    """
    folder.mkdir(mode=0o700)
    for name in program.arrays:
        SlabArray.create(folder / name, n_slabs(program.rank, program.width), program.n, program.width, program.dtype)
    return str(folder)


class LocalPlacement:
    """All slabs in this process, visited by `threads` threads; in memory, or in the folder `scratch`.

    ahead: slabs of the folder that are in memory in addition, read or written while others are computed.
    """

    lookahead = 1  # nothing to gain: no round through a scheduler

    def __init__(self, program: SlabProgram, *, threads: int = 1, scratch: str | None = None, ahead: int = 0) -> None:
        self.program = program
        self.slabs = n_slabs(program.rank, program.width)
        groups = range(len(group_bounds(self.slabs)))
        storage = make_storage(program, range(self.slabs), scratch, ahead)
        self.owner = SlabOwner(program, self.slabs, groups, storage, threads)

    def start(self, fill: Fill, carry: Carry) -> None:
        """Fill the committed arrays, set the carry, run the opening phase."""
        self.owner.fill(fill)
        self.owner.begin(carry)
        self.owner.open()

    def restore(self, generation: Generation) -> None:
        """Read a commit and run the opening phase. Raises StoreError for a damaged one."""
        self.owner.read_generation(generation.folder, generation.files, generation.carry)
        self.owner.open()

    def advance(self, steps: int) -> list[Carry]:
        """Run up to `steps` iterations; the carry after each, fewer once one has converged."""
        return self.owner.iterate(steps)

    def sums(self) -> NDArray[np.float64]:
        """Return the sums over all slabs of the last phase; read-only."""
        return self.owner.sums()

    def commit(self, generations: Generations, iteration: int, carry: Carry) -> Generation:
        """Write the committed arrays and `carry` as the generation of `iteration`. Raises DiskError."""
        folder = generations.begin(
            self.program.committed, self.slabs, self.program.n, self.program.width, self.program.dtype
        )
        written = self.owner.write_generation(folder)
        return generations.commit(folder, written, len(self.program.committed) * self.slabs, iteration, carry)

    def collect(self, name: str) -> NDArray:
        """Collect the array `name` (n, rank) from its slabs."""
        return columns_to_factor(self.program, [self.owner.read(name, slab) for slab in range(self.slabs)])

    def close(self) -> None:
        """End the owner's threads."""
        self.owner.close()


class ClusterPlacement(Owners):
    """Slabs shared out over the workers of a cluster, in their memory or in a scratch folder that they all see; `ahead` as above.

    `key` names the run on the workers. At most as many workers as groups of slabs get a share. Raises WorkersLostError where
    there is no worker, StateLost where one is lost meanwhile.
    """

    def __init__(
        self, program: SlabProgram, session: Session, key: str, *, scratch: str | None = None, ahead: int = 0
    ) -> None:
        self.program, self.slabs = program, n_slabs(program.rank, program.width)
        addresses = waiting.workers(session)
        # By groups, not slabs: a subtree of the sums must belong to one owner to be sent as one vector.
        self.shares = share(len(group_bounds(self.slabs)), len(addresses))
        super().__init__(session, key, addresses[: len(self.shares)])
        # Of an iteration; at first as long as a batch, so that the first batch is one iteration.
        self.seconds = BATCH_SECONDS
        # Sent straight from here. Scattered data is lost with its worker, but then this placement is of no use either, and the next
        # one sends it again.
        try:
            constants = session.send(program, pinned=True)
        except Exception as error:
            raise self._lost(error) from error
        self._wait(
            [
                self._submit(
                    k,
                    slab_worker.make_owner,
                    key,
                    constants,
                    self.slabs,
                    self.shares,
                    k,
                    self.addresses,
                    scratch,
                    ahead,
                )
                for k in range(len(self.shares))
            ]
        )

    def start(self, fill: Fill, carry: Carry) -> None:
        """Fill the committed arrays on every owner, set the carry, run the opening phase."""
        self._wait(self._all(slab_worker.fill, fill, carry))
        self._open()

    def restore(self, generation: Generation) -> None:
        """Have every owner read its slabs of a commit, and run the opening phase; StoreError if damaged."""
        self._wait(self._all(slab_worker.restore, str(generation.folder), generation.files, generation.carry))
        self._open()

    def _open(self) -> None:
        """Run the opening phase: a separate task, because owners wait for each other in it and not before."""
        self._wait(self._all(slab_worker.open_state))

    @property
    def lookahead(self) -> int:
        """Return the iterations of about BATCH_SECONDS, by the time of the last ones; 1 to LARGEST_BATCH."""
        return int(np.clip(BATCH_SECONDS / self.seconds, 1, LARGEST_BATCH))

    def advance(self, steps: int) -> list[Carry]:
        """Run up to `steps` iterations on all owners; the carry after each, which is the same on all of them."""
        began = time.perf_counter()
        # All owners return the same carries: the first one's are as good as any.
        carries: list[Carry] = self._wait(self._all(slab_worker.iterate, steps))[0]
        self.seconds = (time.perf_counter() - began) / len(carries)
        return carries

    def sums(self) -> NDArray[np.float64]:
        """Return the sums over all slabs of the last phase, from the first owner: all have the same."""
        return np.asarray(self._wait([self._submit(0, slab_worker.sums, self.key)])[0])

    def commit(self, generations: Generations, iteration: int, carry: Carry) -> Generation:
        """Have every owner write its slabs, and then write the manifest here. Raises DiskError."""
        program = self.program
        # Owners write into a folder that readers do not see; the rename in generations.commit makes it the newest.
        folder = generations.begin(program.committed, self.slabs, program.n, program.width, program.dtype)
        parts = self._wait(self._all(slab_worker.write_generation, str(folder)))
        written = [entry for part in parts for entry in part]
        return generations.commit(folder, written, len(program.committed) * self.slabs, iteration, carry)

    def collect(self, name: str) -> NDArray:
        """Gather the array `name` (n, rank) slab by slab into this process."""
        parts = self._wait(self._all(slab_worker.read, name))
        return columns_to_factor(self.program, [slab for part in parts for slab in part])


def columns_to_factor(program: SlabProgram, slabs: list[NDArray]) -> NDArray:
    """Return (n, rank) from slabs (n, w) in their order, without the zero columns of the last."""
    factor = np.empty((program.n, program.rank), program.dtype)
    for k, slab in enumerate(slabs):
        lo = k * program.width
        hi = min(lo + program.width, program.rank)
        factor[:, lo:hi] = slab[:, : hi - lo]
    return factor


def wait_for_workers(session: Session, count: int, timeout: float) -> None:
    """Wait until the cluster has `count` workers again, or at least one after `timeout` seconds.

    Raises WorkersLostError if it has no worker then.
    """
    cluster, began, asked = getattr(session.client, "cluster", None), time.monotonic(), -ASK_AGAIN_SECONDS
    if len(session.workers()) < count:
        with waiting.called_for(session.client, count, timeout):
            while len(session.workers()) < count and (since := time.monotonic() - began) < timeout:
                if since - asked >= ASK_AGAIN_SECONDS:
                    waiting.bring_back(cluster, count)
                    asked = since
                time.sleep(0.02)
    if not session.workers():
        raise WorkersLostError(
            "all workers are gone and none came back",
            where="client",
            got=0,
            wanted=f"{count} workers",
            remedy=session.more_workers(),
        )


# A run's state at work: the placement that its plan calls for, its commits, and how it is rebuilt after a loss.

NOTHING = -1
"""Number in place of the last committed iteration before any commit."""


class Workspace:
    """Maker of the placements of a program's state as the plan says, one after every loss.

    run: the folder with the commits, if there is one; scratch_run: that of the working arrays, else the same.
    """

    def __init__(self, session: Session, plan: Plan, run: RunStore | None, scratch_run: RunStore | None = None) -> None:
        self.session, self.plan, self.run = session, plan, run
        self._scratch_run = scratch_run or run
        self._placements = 0

    def new_placement(self, program: SlabProgram) -> Placement:
        """Create an empty placement; after a loss on a cluster, once its workers are back, or with fewer.

        Raises DiskError where the working arrays of an out-of-core run cannot be made, WorkersLostError without workers.
        """
        self._placements += 1
        scratch = None
        if self.plan.placement == "disk":
            assert self._scratch_run is not None
            # A new folder for every placement: tasks of a lost one may still be writing into theirs.
            folder = self._scratch_run.scratch / f"{self._placements:03d}"
            self._scratch_run.drop_scratch()
            try:
                folder.parent.mkdir(mode=0o700)
                scratch = create_scratch(program, folder)
            except OSError as error:
                raise DiskError(
                    f"could not make the working arrays ({error.strerror})",
                    where=str(folder),
                    remedy="free space on that disk, then `dkl resume` the run",
                ) from error
        where: Json = {"scratch": scratch, "ahead": self.plan.shape.get("ahead", 0)}
        if not self.session.is_distributed:
            return LocalPlacement(program, threads=self.session.threads, **where)
        if self._placements > 1:
            self.bring_back_workers()
        return ClusterPlacement(program, self.session, uuid.uuid4().hex, **where)

    def bring_back_workers(self) -> None:
        """Ask a cluster of our own for its workers again (nannies do not always bring them back), and wait.

        Raises WorkersLostError where none has come in waiting.GIVE_UP_SECONDS.
        """
        wait_for_workers(self.session, self.plan.processes, waiting.GIVE_UP_SECONDS)

    def newest(self, restore: Callable[[Generation], None]) -> Generation | None:
        """Apply `restore` to this run's newest commit that is whole; return that commit, or None."""
        return None if self.run is None else restore_newest(self.run, restore)

    def close(self) -> None:
        """Remove the working arrays."""
        if self._scratch_run is not None:
            self._scratch_run.drop_scratch()


class RunCheckpoints(Checkpointer[dict[str, Any]]):
    """Commits of a run: every `every` iterations, or by time ("auto"). The state is the placement's, the row its carry."""

    def __init__(self, run: RunStore, placement: Callable[[], Placement], every: int | str = "auto") -> None:
        super().__init__(run, every)
        self.placement, self.generations = placement, run.generations()
        run.fsync()  # a commit is worth what its graph and pairs are
        self.rule.committed = NOTHING

    def load(self) -> dict[str, Any] | None:
        """Restore the newest commit that is whole into the placement; its row."""
        generation = restore_newest(self.run, self.placement().restore)
        return None if generation is None else generation.carry

    def steps_until_due(self, iteration: int) -> int:
        """Return the number of iterations that may pass before the next commit is due."""
        if iteration < self.rule.committed:  # sent back past a damaged commit, which is to be repeated
            self.rule.committed = NOTHING
        self.rule.step = iteration
        return self.rule.steps_until_due()

    def save(self, rows: list[Json], *, force: bool = False) -> None:
        """Log the iterations, and commit the last if one is due (or forced, and it is not committed yet)."""
        for row in rows:
            self.run.log(event="iteration", **row)
        self.rule.step = rows[-1]["iteration"]
        if self.due() or (force and self.rule.is_new):
            self.commit(rows[-1])

    def write(self, state: Json) -> Json:
        """Commit the placement's state with this row."""
        try:
            self.placement().commit(self.generations, state["iteration"], state)
        except DiskError:
            self.generations.abandon()  # a full disk needs the bytes it took
            raise
        return {"iteration": state["iteration"]}


def restore_newest(run: RunStore, restore: Callable[[Generation], None]) -> Generation | None:
    """Restore the newest commit that is whole; a damaged one is logged and passed over for the one before it."""
    return run.generations().restore_newest(
        restore, lambda damage: run.log(event="damaged checkpoint passed over", what=str(damage))
    )


__all__ = ["RunCheckpoints", "Workspace"]
