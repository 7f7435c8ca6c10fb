"""ADMM on a program of phases (Hu & Kwok 2013, Algorithm 1): which placement holds the state, and how it is rebuilt."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dkl.blocks.placement import Fill, Placement
from dkl.solvers.loop import Row


class ADMMStepper:
    """A stepper for the loop. `place` makes an empty placement (again, after a loss); `newest` finds the last commit."""

    def __init__(
        self,
        place: Callable[[], Placement],
        fill: Fill,
        carry: Row,
        newest: Callable[[Callable[[Any], None]], Any],
    ) -> None:
        self._place, self._fill, self._carry, self._newest = place, fill, carry, newest
        self.placement: Any = None

    @property
    def lookahead(self) -> int:
        return int(self.placement.lookahead)

    def open(self) -> tuple[int, Row]:
        """Place the state: from the newest commit that is whole, else from the start. (iteration, its row)."""
        self.close()
        self.placement = self._place()
        generation = self._newest(self.placement.restore)
        if generation is not None:
            return generation.iteration, dict(generation.carry)
        self.placement.start(self._fill, self._carry)
        return int(self._carry["iteration"]), dict(self._carry)

    def recover(self) -> tuple[int, Row]:
        return self.open()

    def advance(self, steps: int) -> list[Row]:
        rows: list[Row] = self.placement.advance(steps)
        return rows

    def close(self) -> None:
        if self.placement is not None:
            self.placement.close()
            self.placement = None
