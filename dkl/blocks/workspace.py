"""Where a run works: which placement its plan calls for, when it commits, and how it is put together again after a loss."""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Callable
from typing import Any

from dkl.blocks.placement import (
    ClusterPlacement,
    LocalPlacement,
    Placement,
    create_scratch,
    wait_for_workers,
)
from dkl.blocks.plan import Plan
from dkl.blocks.session import Session
from dkl.blocks.slab_owner import SlabProgram
from dkl.errors import DiskError, StoreError
from dkl.stores.generations import Generation
from dkl.stores.run import RunStore

COMMIT_SHARE = 20.0
"""Automatic commits: at most one twentieth of the time goes into them, ..."""
COMMIT_SECONDS = 30.0
"""... and none is older than this, or than twenty commits take."""
WORKER_TIMEOUT = 60.0


class Workspace:
    """Places a program's state as the plan says, with the run's folder (if there is one) for commits and scratch."""

    def __init__(self, session: Session, plan: Plan, run: RunStore | None, scratch_run: RunStore | None = None) -> None:
        self.session, self.plan, self.run = session, plan, run
        self._scratch_run = scratch_run or run
        self._placements = 0

    def place(self, program: SlabProgram) -> Placement:
        """An empty placement. On a cluster that lost workers it waits for them to come back, or goes on with fewer."""
        self._placements += 1
        scratch = None
        if self.plan.placement == "disk":
            assert self._scratch_run is not None
            # A folder of its own for every placement: tasks of a lost one may still be writing into theirs.
            folder = self._scratch_run.scratch / f"{self._placements:03d}"
            self._scratch_run.drop_scratch()
            try:
                folder.parent.mkdir(mode=0o700)
                scratch = create_scratch(program, folder)
            except OSError as error:
                raise DiskError(
                    f"could not make the working arrays ({error.strerror})",
                    where=str(folder),
                    mend="free space on that disk, then `dkl resume` the run",
                ) from error
        if not self.session.is_distributed:
            return LocalPlacement(program, threads=self.session.threads, scratch=scratch)
        if self._placements > 1:
            self.heal()
        return ClusterPlacement(program, self.session, uuid.uuid4().hex, scratch=scratch)

    def heal(self) -> None:
        """Ask a cluster of our own for its workers again (nannies do not always bring them back), and wait."""
        cluster = getattr(self.session.client, "cluster", None)
        wanted = self.plan.processes
        if cluster is not None and hasattr(cluster, "scale"):
            with contextlib.suppress(Exception):
                cluster.scale(max(wanted, len(getattr(cluster, "worker_spec", {}))))
        wait_for_workers(self.session, wanted, WORKER_TIMEOUT)

    def newest(self, restore: Callable[[Generation], None]) -> Generation | None:
        """Restore the newest commit that is whole; a damaged one is passed over for the one before it."""
        if self.run is None:
            return None

        def note(damage: StoreError) -> None:
            self.run.log(event="damaged checkpoint passed over", what=str(damage))  # type: ignore[union-attr]

        for generation in self.run.generations().newest_first(note):
            try:
                restore(generation)
            except StoreError as damage:
                note(damage)
                continue
            return generation
        return None

    def close(self) -> None:
        if self._scratch_run is not None:
            self._scratch_run.drop_scratch()


class RunCheckpoints:
    """Commits of a run: every `every` iterations, or by time ("auto")."""

    def __init__(self, run: RunStore, placement: Callable[[], Placement], every: int | str = "auto") -> None:
        self.run, self.placement, self.every = run, placement, every
        self.generations = run.generations()
        run.settle()  # a commit is worth what its graph and pairs are
        self.committed = -1
        self.last = time.monotonic()
        self.cost = 0.0

    def room(self, iteration: int) -> int:
        if iteration < self.committed:  # sent back past a damaged commit, which is to be made again
            self.committed = -1
        return self.every - iteration % self.every if isinstance(self.every, int) else 1 << 30

    def save(self, rows: list[dict[str, Any]], *, force: bool = False) -> None:
        """Log the iterations, and commit the last if one is due (or forced)."""
        for row in rows:
            self.run.log(event="iteration", **row)
        iteration = rows[-1]["iteration"]
        if iteration == self.committed:
            return
        waited = time.monotonic() - self.last
        due = iteration % self.every == 0 if isinstance(self.every, int) else waited > commit_wait(self.cost)
        if not (due or force):
            return
        start = time.monotonic()
        try:
            self.placement().commit(self.generations, iteration, rows[-1])
        except DiskError:
            self.generations.abandon()  # the room it took is needed
            raise
        self.last = time.monotonic()
        self.cost = self.last - start
        self.committed = iteration
        self.run.log(event="commit", iteration=iteration, cost=self.cost)


def commit_wait(cost: float) -> float:
    """Seconds from one automatic commit to the next, where the last took `cost`."""
    return max(COMMIT_SECONDS, COMMIT_SHARE * cost)


def worker_memory(session: Session) -> int | None:
    """The least memory limit of the cluster's workers, in bytes; None when there is none, or no cluster."""
    if not session.is_distributed:
        return None
    info = session.members()
    limits = [data["memory_limit"] for data in info.values() if data.get("memory_limit")]
    return min(limits) if limits else None


__all__ = ["RunCheckpoints", "Workspace", "commit_wait", "worker_memory"]
