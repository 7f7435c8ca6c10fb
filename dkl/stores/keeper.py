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
        yield
        self.committed, self.last = self.step, time.monotonic()
        self.cost = self.last - start


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
