"""Checkpointers of a fit in a run's folder, and the one rule on when they commit.

A state of dataclasses that fits in memory is a `StateCheckpointer`'s: a learner declares its type, and stores/codec.py
does the rest. Slabs on workers (blocks/slabs/placement.py), partial sums of a pass (estimators/regression/store.py) and the state
of a distributed search (estimators/pairwise/search_state.py) have checkpointers of their own. Atomic writing is in stores/folders.py.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from dkl.resources import DISK, spending
from dkl.stores.checkpoint_folder import CheckpointFolder
from dkl.stores.run import RunStore

if TYPE_CHECKING:
    from dkl.stores.seals import Json

COMMIT_SECONDS = 30.0
"""Seconds after which an automatic commit is due, unless COMMIT_SHARE defers it."""
COMMIT_SHARE = 20.0
"""Time between automatic commits, in durations of the last: they take a twentieth of the time at most."""
AT_END_SECONDS = 5.0
"""Seconds of work worth a commit when a stage ends: the next may run long before its first commit.

A stage ends with the last wave of a pass, or with a machine that is solved."""
UNLIMITED = 1 << 30
"""Number of steps reported as left until a commit when commits are due by time."""

State = TypeVar("State")


class InterruptingWatch(Protocol):
    """Protocol of a watch, which may interrupt a fit that is to be resumed later."""

    @property
    def is_interrupted(self) -> bool:
        """Return whether it has interrupted the fit."""

    def raise_if_interrupted(self, what: str) -> None:
        """Raise InterruptedRunError(what) if it has interrupted the fit."""


class CommitRule:
    """Rule on when a commit is due: every `every` steps, or ("auto") by time.

    step: the number of the step that was done last, `committed`: of the one that was committed last; what a step is
    (an iteration, a wave, a round) the checkpointer decides. cost: seconds that the last commit took.
    """

    def __init__(self, every: int | str = "auto") -> None:
        self.every = every
        self.step = self.committed = 0
        self.last, self.cost = time.monotonic(), 0.0

    @property
    def is_new(self) -> bool:
        """Return whether any step was done since the last commit."""
        return self.step != self.committed

    def due(self, *, at_end: bool = False) -> bool:
        """Return whether a commit is due now; never without a step since the last."""
        if not self.is_new:
            return False
        if isinstance(self.every, int):
            return self.step % self.every == 0  # by the step's own number: a resumed run keeps the cadence
        waited = time.monotonic() - self.last
        return waited > (AT_END_SECONDS if at_end else max(COMMIT_SECONDS, COMMIT_SHARE * self.cost))

    def steps_until_due(self) -> int:
        """Return the number of steps that may be taken at once without passing over a commit."""
        return self.every - self.step % self.every if isinstance(self.every, int) else UNLIMITED

    @contextmanager
    def committing(self) -> Iterator[None]:
        """Time a commit of the current step and record it; one that fails does not count."""
        start = time.monotonic()
        with spending(DISK):
            yield
        # Not in a `finally`: a commit that failed is due again at the next step.
        self.committed, self.last = self.step, time.monotonic()
        self.cost = self.last - start

    @contextmanager
    def prolonged(self) -> Iterator[None]:
        """Time the rest of a commit after `committing`, and add it to that commit's cost."""
        before = self.cost
        with self.committing():
            yield
        self.cost += before


class Checkpointer(ABC, Generic[State]):
    """Writer of a fit's checkpoints to its run's folder: the rule, and a line in the run's log for every commit."""

    def __init__(self, run: RunStore, every: int | str = "auto") -> None:
        self.run, self.rule = run, CommitRule(every)

    @abstractmethod
    def write(self, state: State) -> Json:
        """Put the state on disk, whole or not at all; return the log's entries about it. Raises DiskError."""

    def due(self, *, at_end: bool = False) -> bool:
        """Return whether a commit is due now. at_end: a stage of the fit has ended."""
        return self.rule.due(at_end=at_end)

    def commit(self, state: State) -> None:
        """Commit the state and log it; publish it if the run is in an object store. Raises DiskError."""
        with self.rule.committing():
            entries = self.write(state)
        self.run.log(event="commit", **entries, cost=self.rule.cost)
        # The state is on this disk by now; a store that is away gets it with a later commit.
        with self.rule.prolonged():
            self.run.publish_if_reachable()


class StateCheckpointer(Checkpointer[State]):
    """Checkpointer that holds the newest state at all times, so that no work is lost when the fit is ended.

    state: set, or changed in place, by the methods that record a step, which then call `step_done`.
    """

    def __init__(
        self, run: RunStore, every: int | str, folder: CheckpointFolder, kind: type[State], new: State
    ) -> None:
        """Load the newest checkpoint of type `kind` from `folder`; without one the state is `new`."""
        super().__init__(run, every)
        self.folder = folder
        folder.remove_leftovers()
        self.number, loaded = folder.load(kind)
        self.state = new if loaded is None else loaded

    def to_snapshot(self, state: State) -> State:
        """Return what is stored of a state."""
        return state

    @abstractmethod
    def log_entries(self, state: State) -> Json:
        """Return what the run's log says of a commit of `state`."""

    def write(self, state: State) -> Json:
        """Put the state on disk; see `Checkpointer.write`."""
        self.number += 1
        self.folder.save(self.number, self.to_snapshot(state))
        return self.log_entries(state)

    def commit_due(self, *, at_end: bool = False) -> None:
        """Commit the state if a commit is due. Raises DiskError."""
        if self.due(at_end=at_end):
            self.commit(self.state)

    def step_done(self, *, at_end: bool) -> None:
        """Count a step that has gone into the state, and commit if due. at_end: it is the last of a stage."""
        self.rule.step += 1
        self.commit_due(at_end=at_end)

    def commit_rest(self) -> None:
        """Commit the state if any step was done since the last commit. Raises DiskError."""
        if self.rule.is_new:
            self.commit(self.state)

    @contextmanager
    def committed_at_interrupt(self, watch: InterruptingWatch, what: str) -> Iterator[None]:
        """Commit the rest of a fit that is ended by Ctrl-C or interrupted by `watch`.

        Then raises KeyboardInterrupt or InterruptedRunError(what).
        """
        try:
            yield
        except KeyboardInterrupt:
            self.commit_rest()
            raise
        if watch.is_interrupted:
            self.commit_rest()
            watch.raise_if_interrupted(what)
