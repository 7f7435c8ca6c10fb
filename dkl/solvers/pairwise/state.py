"""Checkpoint state of the low-rank solver; a resumed run is bit-identical to an uninterrupted one.

The solver offers its state before each row of the history, as it is after that row. The arrays are the solver's, of the rows that are
here, and the next iteration overwrites them: the caller has to request the state, and write or copy it, while the row is recorded.
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
    """State within a round, after an iteration of conjugate gradients.

    v, lv     (n_own, w) the padded factor and L V, which is moved along with V and not recomputed
    residual  (nnz,) P_T(V V' - T), likewise
    direction, previous   (n_own, w) the last direction, and the gradient at its start
    power, top            (n_own, w) and a number: the preconditioner's estimate of the Hessian's largest eigenvalue
    size      of the preconditioned gradient at that start
    lately    recent objectives, by which progress is judged
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
    """State between two rounds.

    progress   relative, by which WINDOW iterations must lower f for the next round to continue
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
    """State of the search: the last round, the descent of the next (None: not started), products with L."""

    before: RoundState
    products: int
    descent: DescentState | None = None
    rank: int = 0

    @property
    def count(self) -> int:
        """Return the number of rows of the history."""
        return self.before.count + (0 if self.descent is None else self.descent.iteration)


Keep = Callable[[Callable[[], FactoredState]], object]
"""Callback before each row, with a function that returns the state.

It is valid until that row is recorded, and must not be held any longer, as it holds all arrays.
"""
