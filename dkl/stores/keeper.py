"""Keepers of a fit's state in a run's folder: their common base, and the one rule on when they commit.

What differs is the state: slabs on workers (blocks/workspace.py), partial sums of a pass (estimators/regression/store.py),
coefficients of machines (estimators/svc/store.py). Atomic writing is in stores/commits.py.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Generic, Protocol, TypeVar

from dkl._spent import DISK, spending
from dkl.stores.run import RunStore

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


class Keeper(Protocol[State]):
    """Protocol that keeps a fit's state on disk, so that a killed fit resumes from its last commit."""

    def load(self) -> State | None:
        """Return the newest committed state that is whole, or None. Damaged ones count as not there."""

    def due(self, *, at_end: bool = False) -> bool:
        """Return whether a commit is due now. at_end: a stage of the fit has ended."""

    def commit(self, state: State) -> None:
        """Put the state on disk, whole or not at all, in place of older ones. Raises DiskError."""


class Ends(Protocol):
    """Protocol of a watch, which may interrupt a fit that is to be resumed later."""

    @property
    def is_interrupted(self) -> bool:
        """Return whether it has interrupted the fit."""

    def raise_if_interrupted(self, what: str) -> None:
        """Raise InterruptedRunError(what) if it has interrupted the fit."""


class CommitRule:
    """Rule on when a commit is due: every `every` steps, or ("auto") by time.

    step: the number of the step that was done last, `committed`: of the one that was committed last; what a step is
    (an iteration, a wave, a round) is the keeper's. cost: seconds that the last commit took.
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
        self.committed, self.last = self.step, time.monotonic()
        self.cost = self.last - start

    @contextmanager
    def prolonged(self) -> Iterator[None]:
        """Time the rest of a commit after `committing`, and add it to that commit's cost."""
        before = self.cost
        with self.committing():
            yield
        self.cost += before


class RunKeeper(ABC, Generic[State]):
    """A keeper in a run's folder: the rule, and a line in the run's log for every commit."""

    def __init__(self, run: RunStore, every: int | str = "auto") -> None:
        self.run, self.rule = run, CommitRule(every)

    @abstractmethod
    def load(self) -> State | None:
        """Return the newest committed state that is whole, or None (see `Keeper.load`)."""

    @abstractmethod
    def write(self, state: State) -> dict[str, Any]:
        """Put the state on disk whole; return the log's entries about it. Raises DiskError."""

    def due(self, *, at_end: bool = False) -> bool:
        """Return whether a commit is due now. at_end: a stage of the fit has ended."""
        return self.rule.due(at_end=at_end)

    def commit(self, state: State) -> None:
        """Commit the state and log it; publish it if the run is in an object store. Raises DiskError."""
        with self.rule.committing():
            told = self.write(state)
        self.run.log(event="commit", **told, cost=self.rule.cost)
        with self.rule.prolonged():
            self.run.publish_if_reachable()


class HoldingKeeper(RunKeeper[State]):
    """A keeper that holds the newest state at all times, so that no work is lost when the fit is ended.

    held: the state, changed in place by the methods that record a step, which then call `_kept`.
    """

    held: State

    def commit_due(self, *, at_end: bool = False) -> None:
        """Commit what is held, if a commit should come now. Raises DiskError."""
        if self.due(at_end=at_end):
            self.commit(self.held)

    def _kept(self, *, at_end: bool) -> None:
        """Count a step that has gone into `held`, and commit if due. at_end: it is the last of a stage."""
        self.rule.step += 1
        self.commit_due(at_end=at_end)

    def commit_rest(self) -> None:
        """Commit `held` if any step was done since the last commit. Raises DiskError."""
        if self.rule.is_new:
            self.commit(self.held)

    @contextmanager
    def kept_to_the_end(self, watch: Ends, what: str) -> Iterator[None]:
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
