"""Keeping the state of a fit in a run's folder: what keepers have in common, and the one rule on when they commit.

What differs is the state: slabs on workers (blocks/workspace.py), partial sums of a pass (estimators/regression/store.py),
coefficients of machines (estimators/svc/store.py). How it comes to be on disk whole is stores/commits.py.
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
"""Automatic commits: none is older than this, ..."""
COMMIT_SHARE = 20.0
"""... or than this many commits take, so that at most one twentieth of the time goes into them."""
AT_END_SECONDS = 5.0
"""At the end of a stage (the last wave of a pass, a machine that is solved) this much work is worth a commit: what follows
may be long before it comes to its own."""
UNLIMITED = 1 << 30
"""Of steps, where the next commit comes by time."""

State = TypeVar("State")


class Keeper(Protocol[State]):
    """Keeps a fit's state on disk in between, so that a fit that is killed loses what came after the last commit."""

    def load(self) -> State | None:
        """The newest committed state that is whole; None where there is none. Damaged ones count as not there."""

    def due(self, *, at_end: bool = False) -> bool:
        """Whether a commit should come now. at_end: a stage of the fit has ended."""

    def commit(self, state: State) -> None:
        """Put the state on disk, whole or not at all, in place of older ones. Raises DiskError."""


class Ends(Protocol):
    """What may end a fit for it to be resumed: a watch."""

    @property
    def is_interrupted(self) -> bool:
        """Whether it has."""

    def raise_if_interrupted(self, what: str) -> None:
        """InterruptedRunError if it has."""


class CommitRule:
    """When a commit is due: every so many steps, or ("auto") by time.

    step: the number of the step that was done last, `committed`: of the one that was committed last; what a step is
    (an iteration, a wave, a round) is the keeper's. cost: seconds that the last commit took.
    """

    def __init__(self, every: int | str = "auto") -> None:
        self.every = every
        self.step = self.committed = 0
        self.last, self.cost = time.monotonic(), 0.0

    @property
    def is_new(self) -> bool:
        """Whether anything was done since the last commit."""
        return self.step != self.committed

    def due(self, *, at_end: bool = False) -> bool:
        """Whether a commit should come now; never without a step since the last."""
        if not self.is_new:
            return False
        if isinstance(self.every, int):
            return self.step % self.every == 0  # by the step's own number: a resumed run keeps the cadence
        waited = time.monotonic() - self.last
        return waited > (AT_END_SECONDS if at_end else max(COMMIT_SECONDS, COMMIT_SHARE * self.cost))

    def steps_until_due(self) -> int:
        """How many steps may be taken at once without passing over a commit."""
        return self.every - self.step % self.every if isinstance(self.every, int) else UNLIMITED

    @contextmanager
    def committing(self) -> Iterator[None]:
        """A commit of the current step; one that fails does not count."""
        start = time.monotonic()
        with spending(DISK):
            yield
        self.committed, self.last = self.step, time.monotonic()
        self.cost = self.last - start

    @contextmanager
    def prolonged(self) -> Iterator[None]:
        """What a commit takes beyond `committing`."""
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
        """As `Keeper.load`."""

    @abstractmethod
    def write(self, state: State) -> dict[str, Any]:
        """Put the state on disk whole; what the log is to say of it. Raises DiskError."""

    def due(self, *, at_end: bool = False) -> bool:
        """As `Keeper.due`."""
        return self.rule.due(at_end=at_end)

    def commit(self, state: State) -> None:
        """As `Keeper.commit`."""
        with self.rule.committing():
            told = self.write(state)
        self.run.log(event="commit", **told, cost=self.rule.cost)
        with self.rule.prolonged():
            self.run.publish_if_reachable()


class HoldingKeeper(RunKeeper[State]):
    """A keeper that holds the newest state at all times, so that nothing is lost where something ends the fit.

    held: the state, changed in place by whoever takes note of a step, and says so by `_kept`.
    """

    held: State

    def commit_due(self, *, at_end: bool = False) -> None:
        """Commit what is held, if a commit should come now. Raises DiskError."""
        if self.due(at_end=at_end):
            self.commit(self.held)

    def _kept(self, *, at_end: bool) -> None:
        """A step more has gone into what is held, the last of a stage or not."""
        self.rule.step += 1
        self.commit_due(at_end=at_end)

    def commit_rest(self) -> None:
        """What has come since the last commit, if anything, is kept. Raises DiskError."""
        if self.rule.is_new:
            self.commit(self.held)

    @contextmanager
    def kept_to_the_end(self, watch: Ends, what: str) -> Iterator[None]:
        """A fit of which all is kept where Ctrl-C ends it, or a watch that means to resume it: InterruptedRunError(what)."""
        try:
            yield
        except KeyboardInterrupt:
            self.commit_rest()
            raise
        if watch.is_interrupted:
            self.commit_rest()
            watch.raise_if_interrupted(what)
