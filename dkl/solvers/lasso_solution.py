"""What every solver of the lasso on columns returns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from dkl.linalg.lasso import Vector
from dkl.problems.column_lasso import ColumnLasso, Evaluation
from dkl.solvers.result import Outcome


@dataclass(frozen=True)
class Solution:
    """Weights w (M,) of the columns, how good they are, and how they were come by.

    n_screened: columns that the gap proves to be zero in every solution; history: a row a check of the gap.
    """

    weights: Vector
    evaluation: Evaluation
    n_iter: int
    outcome: Outcome
    n_screened: int = 0
    history: list[dict[str, Any]] = field(default_factory=list, repr=False)


class Solver(Protocol):
    """Solves a ColumnLasso from zero, or from the weights of a neighbouring one."""

    def solve(self, problem: ColumnLasso, start: Vector | None = None) -> Solution: ...


def history_row(iteration: int, w: Vector, found: Evaluation) -> dict[str, Any]:
    return {
        "iteration": iteration,
        "objective": found.objective,
        "relative_gap": found.relative_gap,
        "n_active": int(np.count_nonzero(w)),
    }
