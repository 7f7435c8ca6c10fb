"""Interface of solvers of the lasso on columns: their problems and solutions.

minimize over w (M,)    P(w) = |y - C w|^2 + 2 kappa |w|_1,    by B = C'C and C'y
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dkl.linalg.lasso import Vector
from dkl.solvers.watch import Outcome, Row, Watch


class LassoEvaluation(Protocol):
    """Objective, gap and correlations at some weights."""

    @property
    def objective(self) -> float:
        """Return the objective P(w)."""

    @property
    def gap(self) -> float:
        """Return P(w) less a lower bound of all P."""

    @property
    def relative_gap(self) -> float:
        """Return the gap over P(w)."""

    @property
    def residual(self) -> float:
        """Return |y - C w|^2."""

    @property
    def correlations(self) -> Vector:
        """Return (M,) C'(y - C w)."""


class GramSource(Protocol):
    """B (M, M), of which rows are asked for."""

    @property
    def diagonal(self) -> Vector:
        """Return the diagonal (M,) of B."""

    def rows(self, indices: NDArray[np.intp]) -> tuple[NDArray[np.float64], NDArray[np.intp]]:
        """Return (buffer, places): row indices[k] of B is buffer[places[k]]."""


class Lasso(Protocol):
    """The problem."""

    @property
    def gram(self) -> GramSource:
        """Return the Gram matrix B."""

    @property
    def kappa(self) -> float:
        """Return kappa, half the penalty."""

    def start(self, w: Vector | None) -> tuple[Vector, LassoEvaluation]:
        """Return a copy of weights to start at, or zeros where these are no worse, and the evaluation there."""

    def evaluate(self, w: Vector) -> LassoEvaluation:
        """Return P, its gap and the correlations at w."""

    def may_be_active(self, found: Any) -> NDArray[np.bool_]:
        """Return (M,) with False for columns that an evaluation proves to be zero in every solution."""


@dataclass(frozen=True)
class Solution:
    """Weights w (M,) of the columns, how good they are, and how they were found.

    n_screened: columns that the gap proves to be zero in every solution; history: a row a check of the gap.
    """

    weights: Vector
    evaluation: LassoEvaluation
    n_iter: int
    outcome: Outcome
    n_screened: int = 0
    history: list[Row] = field(default_factory=list, repr=False)


class Solver(Protocol):
    """Solves a lasso from zero, or from the weights of a neighboring one."""

    def solve(self, problem: Any, start: Vector | None = None, *, watch: Watch | None = None) -> Solution:
        """Return the best weights that were met, from `start` or from zero."""


def history_row(iteration: int, w: Vector, found: LassoEvaluation) -> Row:
    """Return the row of a check."""
    return {
        "iteration": iteration,
        "objective": found.objective,
        "relative_gap": found.relative_gap,
        "n_active": int(np.count_nonzero(w)),
    }
