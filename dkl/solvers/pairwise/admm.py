"""ADMM on a program of phases (Hu & Kwok 2013, Algorithm 1): its loop, placement and recovery of the state."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from dkl.errors import StateLost, StoreError, WorkersLostError
from dkl.solvers.watch import Outcome, Row, Watch, verdict

# -- loop --------------------------------------------------------------------------------------------------------------
# Loop of solvers with distributed state: limits, history, callbacks, checkpoints, lost workers.
# A solver supplies a stepper; the loop never sees arrays. Iterations may be asked for several at a time, so that a cluster
# is kept busy while the driver waits; with callbacks that may stop the run at a given iteration it is one at a time.

Read = TypeVar("Read")


class Stepper(Protocol):
    """A solver's state and how to advance it."""

    @property
    def lookahead(self) -> int:
        """Return how many iterations may usefully be requested at a time."""

    def advance(self, steps: int) -> list[Row]:
        """Do up to `steps` iterations; a row for each, fewer when `converged` turned true."""

    def recover(self) -> tuple[int, Row]:
        """Rebuild the state after StateLost; the iteration and the row it was rebuilt at."""


class LoopCheckpointer(Protocol):
    """Policy of when and how to commit."""

    def steps_until_due(self, iteration: int) -> int:
        """Return how many iterations may pass before the next commit is due."""

    def save(self, rows: list[Row], *, force: bool = False) -> None:
        """Take note of finished iterations, and commit the state after the last of them if that is due (or forced)."""


class NoCheckpoints:
    """Checkpointer of runs that keep nothing on disk."""

    def steps_until_due(self, iteration: int) -> int:
        """Return a large number: no commit is ever due."""
        return 1 << 30

    def save(self, rows: list[Row], *, force: bool = False) -> None:
        """Keep nothing."""


@dataclass
class Loop:
    """Loop of at most `max_iter` iterations; `restarts`: how often lost workers sent it back to a commit.

    After `max_restarts` in a row that came back to the same commit it ends: a run that gets on may lose any number of workers.
    """

    max_iter: int
    checkpoints: LoopCheckpointer = field(default_factory=NoCheckpoints)
    watch: Watch = field(default_factory=Watch)
    max_restarts: int = 10
    restarts: int = 0
    _in_a_row: int = 0
    _kept: int = 0
    """The iteration that the run was last sent back to."""
    _ended_at: int = 0
    """The iteration at which the watch ended the run: a state that is lost after it is brought there again."""

    def run(self, stepper: Stepper, iteration: int = 0, row: Row | None = None) -> Outcome:
        """Iterate from `iteration` (whose row, if it was resumed, is given) to an outcome."""
        solved = row is not None and bool(row.get("converged"))
        while True:
            # A run that lost workers after its end is brought to that iteration again first.
            stop_reason = self.watch.outcome if iteration >= self._ended_at else None
            outcome = verdict(stop_reason, solved=solved, at_limit=iteration >= self.max_iter)
            if outcome is not None:
                self._ended_at = iteration
                return outcome
            try:
                rows = stepper.advance(self._steps(stepper, iteration))
                stop_reason = self._record(rows)
                if stop_reason is Outcome.NUMERICAL_ERROR:
                    return stop_reason
                iteration, solved = rows[-1]["iteration"], bool(rows[-1]["converged"])
                self.checkpoints.save(rows, force=solved or self._is_end(iteration, stop_reason))
            except StateLost as lost:
                iteration, row = self._recover(stepper, lost)
                solved = bool(row.get("converged"))

    def begin(self, stepper: Stepper) -> tuple[int, Row]:
        """Build the stepper's state for the first time; workers may be lost already then."""
        try:
            return stepper.recover()
        except StateLost as lost:
            return self._recover(stepper, lost)

    def finish(self, stepper: Stepper, read: Callable[[], Read]) -> Read:
        """Return read() at the end state; if workers are lost meanwhile, run to the end again."""
        while True:
            try:
                return read()
            except StateLost as lost:
                self.run(stepper, *self._recover(stepper, lost))

    def _steps(self, stepper: Stepper, iteration: int) -> int:
        """Return how many iterations to request at a time."""
        lookahead = stepper.lookahead if self.watch.is_passive else 1
        # A lost run that had ended already goes back to where it ended, and no further.
        end = self._ended_at if iteration < self._ended_at else self.max_iter
        return min(end - iteration, self.checkpoints.steps_until_due(iteration), lookahead)

    def _is_end(self, iteration: int, stop_reason: Outcome | None) -> bool:
        """Return whether no iteration follows, converged or not."""
        return iteration >= self.max_iter or (stop_reason is not None and iteration >= self._ended_at)

    def _record(self, rows: list[Row]) -> Outcome | None:
        """Record a batch of rows with the same `seconds`, which their commits have too."""
        seconds = self.watch.seconds
        for row in rows:
            row["seconds"] = seconds
        return self.watch.record_all(rows)

    def _recover(self, stepper: Stepper, lost: StateLost) -> tuple[int, Row]:
        """Go back to the last commit. Losses may come while recovering, too; each counts."""
        while True:
            self.restarts += 1
            self._in_a_row += 1
            if self._in_a_row > self.max_restarts:
                raise WorkersLostError(
                    f"workers were lost {self._in_a_row} times without a commit between ({lost})",
                    where="cluster",
                    remedy="workers die where memory is short: give each more, then try again, or `dkl resume` the run if there is one",
                ) from lost
            try:
                iteration, row = stepper.recover()
            except StateLost as again:
                lost = again
                continue
            # A later commit than that of the last loss is progress: the count of losses starts again.
            if iteration > self._kept:
                self._kept, self._in_a_row = iteration, 0
            self.watch.roll_back(iteration)
            return iteration, row


# -- ADMM --------------------------------------------------------------------------------------------------------------

Fill = Any
"""Initial values of the state arrays; the type depends on the placement."""


class StoredIteration(Protocol):
    """A state that was kept: the iteration it is of, and its row."""

    @property
    def iteration(self) -> int:
        """Return the number of iterations that led to the state."""

    @property
    def carry(self) -> Row:
        """Return the numbers that the next iteration needs in addition to the arrays."""


class StateHolder(Protocol):
    """Holder of the state arrays, which runs the iterations on them."""

    @property
    def lookahead(self) -> int:
        """Return how many iterations may usefully be requested at a time."""

    def start(self, fill: Fill, carry: Row) -> None:
        """Set the initial state."""

    def restore(self, generation: Any) -> None:
        """Set the state of a commit."""

    def advance(self, steps: int) -> list[Row]:
        """Do up to `steps` iterations; return the row of each."""

    def close(self) -> None:
        """Release the state."""


class ADMMStepper:
    """Stepper of ADMM for the solver loop.

    `place` makes an empty placement (again, after a loss); `newest` finds the last intact commit and restores it by the
    function passed to it; `carry` is the row before the first iteration; `is_carry` checks a stored one.
    """

    def __init__(
        self,
        place: Callable[[], StateHolder],
        fill: Fill,
        carry: Row,
        newest: Callable[[Callable[[Any], None]], StoredIteration | None],
        is_carry: Callable[[Row], bool] = lambda carry: True,
    ) -> None:
        self._place, self._fill, self._carry, self._newest, self._is_carry = place, fill, carry, newest, is_carry
        self.placement: Any = None

    @property
    def lookahead(self) -> int:
        """Return how many iterations may usefully be requested at a time."""
        return int(self.placement.lookahead)

    def open(self) -> tuple[int, Row]:
        """Place the state from the newest intact commit, else from the start; return (iteration, its row)."""
        # A placement of before a loss is released first: its workers may be gone, but its memory here is not.
        self.close()
        self.placement = self._place()
        generation = self._newest(self._restore)
        if generation is not None:
            return generation.iteration, dict(generation.carry)
        self.placement.start(self._fill, self._carry)
        return int(self._carry["iteration"]), dict(self._carry)

    def _restore(self, commit: Any) -> None:
        """Set the state of a commit; raises StoreError if its carry is invalid or of another iteration."""
        if commit.carry.get("iteration") != commit.iteration or not self._is_carry(commit.carry):
            raise StoreError(
                "inconsistent checkpoint: its iteration does not match its file", where=f"iteration {commit.iteration}"
            )
        self.placement.restore(commit)

    def recover(self) -> tuple[int, Row]:
        """Rebuild the state after a loss; return (iteration, its row)."""
        return self.open()

    def advance(self, steps: int) -> list[Row]:
        """Do up to `steps` iterations; a row for each."""
        rows: list[Row] = self.placement.advance(steps)
        return rows

    def close(self) -> None:
        """Release the state."""
        if self.placement is not None:
            self.placement.close()
            self.placement = None
