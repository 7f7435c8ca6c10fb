"""The one loop of every iterative solver: limits, the non-finite test, history, callbacks, checkpoints, lost workers.

A solver supplies a stepper; the loop never sees arrays. Iterations may be asked for several at a time, so that a cluster
is kept busy while the driver waits; with callbacks that may stop the run at a given iteration it is one at a time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from dkl.blocks.exchange import StateLost
from dkl.errors import WorkersLostError
from dkl.solvers.result import Outcome

Read = TypeVar("Read")
Row = dict[str, Any]
Callback = Callable[[Row], Any]
"""Called with the row of every finished iteration; returning True ends the run.

One that only looks may say so by an attribute `passive = True`: then several iterations may be under way at a time.
"""


class Stepper(Protocol):
    """A solver's state and how to move it on."""

    @property
    def lookahead(self) -> int:
        """How many iterations may usefully be asked for at a time."""

    def advance(self, steps: int) -> list[Row]:
        """Do up to `steps` iterations; a row for each, fewer when `converged` turned true."""

    def recover(self) -> tuple[int, Row]:
        """Rebuild the state after StateLost; the iteration and the row it was rebuilt at."""


class Checkpointer(Protocol):
    """When and how to commit."""

    def room(self, iteration: int) -> int:
        """How many iterations may pass before the next commit is due."""

    def save(self, rows: list[Row], *, force: bool = False) -> None:
        """Take note of finished iterations, and commit the state after the last of them if that is due (or forced)."""


class NoCheckpoints:
    """For runs that keep nothing on disk."""

    def room(self, iteration: int) -> int:
        return 1 << 30

    def save(self, rows: list[Row], *, force: bool = False) -> None:
        pass


@dataclass
class Loop:
    """The loop's own state: history, restarts, and how it is to be limited."""

    max_iter: int
    checkpoints: Checkpointer = field(default_factory=NoCheckpoints)
    callbacks: Sequence[Callback] = ()
    max_restarts: int = 10
    history: list[Row] = field(default_factory=list)
    restarts: int = 0

    def run(self, stepper: Stepper, iteration: int = 0, row: Row | None = None) -> Outcome:
        """Iterate from `iteration` (whose row, if it was resumed, is given) to an outcome."""
        start = time.perf_counter() - (self.history[-1]["seconds"] if self.history else 0.0)
        if row is not None and row.get("converged"):
            return Outcome.SOLVED
        while iteration < self.max_iter:
            steps = min(
                self.max_iter - iteration,
                self.checkpoints.room(iteration),
                stepper.lookahead if all(getattr(call, "passive", False) for call in self.callbacks) else 1,
            )
            try:
                rows = stepper.advance(steps)
                for row in rows:
                    row["seconds"] = time.perf_counter() - start
                    self.history.append(row)
                iteration = self.history[-1]["iteration"]
                if not all(row.get("finite", True) for row in rows):
                    return Outcome.NUMERICAL_ERROR
                answers = [callback(dict(row)) for row in rows for callback in self.callbacks]  # all are called
                stop = any(answer is True for answer in answers)
                ended = rows[-1]["converged"] or stop or iteration >= self.max_iter
                self.checkpoints.save(rows, force=bool(ended))
            except StateLost as lost:
                iteration, row = self._recover(stepper, lost)
                if row.get("converged"):
                    return Outcome.SOLVED
                continue
            if rows[-1]["converged"]:
                return Outcome.SOLVED
            if stop:
                return Outcome.STOPPED
        return Outcome.ITERATION_LIMIT

    def begin(self, stepper: Stepper) -> tuple[int, Row]:
        """The stepper's state built for the first time; workers may be lost already then."""
        try:
            return stepper.recover()
        except StateLost as lost:
            return self._recover(stepper, lost)

    def finish(self, stepper: Stepper, read: Callable[[], Read]) -> Read:
        """read(): what is wanted of the end state. Workers lost meanwhile send the run back, and on to its end again."""
        while True:
            try:
                return read()
            except StateLost as lost:
                self.run(stepper, *self._recover(stepper, lost))

    def _recover(self, stepper: Stepper, lost: StateLost) -> tuple[int, Row]:
        """Back to the last commit. Losses may come while recovering, too; each counts."""
        while True:
            self.restarts += 1
            if self.restarts > self.max_restarts:
                raise WorkersLostError(
                    f"workers were lost {self.restarts} times ({lost})",
                    where="cluster",
                    mend="look at the workers' logs (memory?), then `dkl resume` the run",
                ) from lost
            try:
                iteration, row = stepper.recover()
            except StateLost as again:
                lost = again
                continue
            self.history[:] = [done for done in self.history if done["iteration"] <= iteration]
            return iteration, row
