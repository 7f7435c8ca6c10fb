"""A run's state at work: the placement that its plan calls for, its commits, and how it is rebuilt after a loss."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dkl.blocks.memory.plan import Plan
from dkl.blocks.session import Session
from dkl.blocks.slabs.placement import ClusterPlacement, LocalPlacement, Placement, create_scratch, wait_for_workers
from dkl.blocks.slabs.slab_program import SlabProgram
from dkl.blocks.workers import waiting
from dkl.errors import DiskError
from dkl.stores.checkpointer import Checkpointer
from dkl.stores.generations import Generation
from dkl.stores.run import RunStore

if TYPE_CHECKING:
    from dkl.stores.sealed_json import Json

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
