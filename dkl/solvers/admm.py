"""ADMM on a program of phases (Hu & Kwok 2013, Algorithm 1): which placement holds the state, and how it is rebuilt."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from dkl.errors import StoreError
from dkl.solvers.watch import Row

Fill = Any
"""What sets the state's initial arrays: the placement's affair."""


class Commit(Protocol):
    """A state that was kept: the iteration it is of, and its row."""

    @property
    def iteration(self) -> int:
        """How many iterations it has had."""

    @property
    def carry(self) -> Row:
        """What the next iteration needs beside arrays."""


class Placement(Protocol):
    """Where the state is, and how an iteration is done there."""

    @property
    def lookahead(self) -> int:
        """How many iterations may usefully be asked for at a time."""

    def start(self, fill: Fill, carry: Row) -> None:
        """Set the initial state."""

    def restore(self, generation: Any) -> None:
        """Set the state of a commit."""

    def advance(self, steps: int) -> list[Row]:
        """Do up to `steps` iterations; the row of each."""

    def close(self) -> None:
        """Let the state go."""


class ADMMStepper:
    """A stepper for the loop. `place` makes an empty placement (again, after a loss); `newest` finds the last commit that
    is whole and restores it by the function that it is given; `carry` is the row before the first iteration, `is_carry` tells of one
    that was kept whether it is sound."""

    def __init__(
        self,
        place: Callable[[], Placement],
        fill: Fill,
        carry: Row,
        newest: Callable[[Callable[[Any], None]], Commit | None],
        is_carry: Callable[[Row], bool] = lambda carry: True,
    ) -> None:
        self._place, self._fill, self._carry, self._newest, self._is_carry = place, fill, carry, newest, is_carry
        self.placement: Any = None

    @property
    def lookahead(self) -> int:
        """How many iterations may usefully be asked for at a time."""
        return int(self.placement.lookahead)

    def open(self) -> tuple[int, Row]:
        """Place the state: from the newest commit that is whole, else from the start. (iteration, its row)."""
        self.close()
        self.placement = self._place()
        generation = self._newest(self._restore)
        if generation is not None:
            return generation.iteration, dict(generation.carry)
        self.placement.start(self._fill, self._carry)
        return int(self._carry["iteration"]), dict(self._carry)

    def _restore(self, commit: Any) -> None:
        """Set the state of a commit; StoreError for one whose carry nobody wrote."""
        if commit.carry.get("iteration") != commit.iteration or not self._is_carry(commit.carry):
            raise StoreError("a commit with numbers that nobody wrote", where=f"iteration {commit.iteration}")
        self.placement.restore(commit)

    def recover(self) -> tuple[int, Row]:
        """The state rebuilt after a loss."""
        return self.open()

    def advance(self, steps: int) -> list[Row]:
        """Do up to `steps` iterations; a row for each."""
        rows: list[Row] = self.placement.advance(steps)
        return rows

    def close(self) -> None:
        """Let the state go."""
        if self.placement is not None:
            self.placement.close()
            self.placement = None
