"""Problem (3), solved: one gamma, or a path of them by warm starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dkl.solvers.result import Outcome
from dkl.solvers.watch import Watch

Vector = NDArray[np.float64]
Solver = Literal["auto", "primal", "dual"]


@dataclass(frozen=True)
class LogDetSolution:
    """What is handed out at one gamma.

    outcome      SOLVED: the relative duality gap is at most tol, or what `stop` names
    gamma        as in the problem
    multipliers  (c,) l of which K is made: K^-1 = K0^-1 + U(l); `problem.learned(multipliers)` is the kernel
    margins      (c,) tr(K A_t)
    certificate  with objective, bound, gap, relative_gap, of this K
    n_iter       Newton steps
    n_products   Hessian products
    solver       which one ran: "primal" or "dual"
    """

    outcome: Outcome
    gamma: float
    multipliers: Vector = field(repr=False)
    margins: Vector = field(repr=False)
    certificate: Any
    n_iter: int
    n_products: int
    solver: str


def solve_logdet(
    problem: Any,
    *,
    solver: Solver = "auto",
    tol: float = 1e-6,
    stop: Literal["gap", "decrement", "gradient"] = "gap",
    region: Literal["local", "frobenius"] = "local",
    max_iter: int = 200,
    start: LogDetSolution | None = None,
    watch: Watch | None = None,
) -> LogDetSolution:
    """The kernel of `problem` (a LogDetKernelProblem or a LogDetMetricProblem) at its gamma; `start`: a solution at another.

    Rows of the history: iteration, objective, gap, relative_gap, decrement, products.
    """
    raise NotImplementedError


def solve_logdet_path(problem: Any, gammas: Sequence[float], **options: Any) -> list[LogDetSolution]:
    """One solution for each gamma, in the order given; each starts from the one before. Options as for `solve_logdet`."""
    raise NotImplementedError
