"""ADMM on a program of phases (Hu & Kwok 2013, Algorithm 1): placement and recovery of the state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from dkl.errors import StoreError
from dkl.solvers.watch import Row

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
