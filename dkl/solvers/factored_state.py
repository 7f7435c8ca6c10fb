"""Where the factored solver stands: what continues from it has the bits of what was never interrupted.

The solver offers its state before each row of the history, as it is after that row. The arrays are its own, of the rows that are
here, and the next iteration overwrites them: whoever wants a state asks for it, and has it written or copied, while the row is recorded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
START_RANK = 16
"""Columns of the factor that a solve begins with, where none is handed in."""


@dataclass(frozen=True)
class DescentState:
    """Within a round, after an iteration of conjugate gradients.

    v, lv     (n_own, w) the padded factor and L V, which is moved along with V and not multiplied anew
    residual  (nnz,) P_T(V V' - T), likewise
    direction, previous   (n_own, w) the last direction, and the gradient at its start
    power, top            (n_own, w) and a number: the preconditioner's estimate of the Hessian's largest eigenvalue
    size      of the preconditioned gradient at that start
    lately    objectives, of which the last tell how much progress there is
    """

    v: Array = field(repr=False)
    lv: Array = field(repr=False)
    residual: Array = field(repr=False)
    direction: Array = field(repr=False)
    previous: Array = field(repr=False)
    power: NDArray[Any] = field(repr=False)
    top: float
    size: float
    iteration: int
    lately: list[float] = field(repr=False)


@dataclass(frozen=True)
class RoundState:
    """Between two rounds.

    progress   relative, by which WINDOW iterations must lower f for the next round to go on
    done, idle rounds so far, and how many of them without a better gap
    count, products   rows of the history, and products with L so far
    factor     (n_own, r) at the last certificate; None before the first
    best       the factor of the least gap, and its certificate
    low        the lower end of S at `factor`
    """

    progress: float
    done: int = 0
    idle: int = 0
    count: int = 0
    products: int = 0
    factor: Array | None = field(default=None, repr=False)
    best: tuple[Array, Any] | None = field(default=None, repr=False)
    low: Any = field(default=None, repr=False)


@dataclass(frozen=True)
class FactoredState:
    """The round before, where the one under way stands (None: not begun) at that rank, and the products with L so far."""

    before: RoundState
    products: int
    descent: DescentState | None = None
    rank: int = 0

    @property
    def count(self) -> int:
        """Rows of the history."""
        return self.before.count + (0 if self.descent is None else self.descent.iteration)


Keep = Callable[[Callable[[], FactoredState]], object]
"""Given, before each row, what tells the state until that row is recorded; not to be held any longer, as it holds all arrays."""
