"""ONK with several kernels, the extension that Liu et al. 2009 name as future work: K = sum_k theta_k K_k is learned too,

    min over theta >= 0, sum theta = 1, and G psd, max over alpha in P   2 e'alpha - alpha'Y G Y alpha + rho |G - K|_F^2.

With G as in (5) this is min over theta of J(theta) = -min_alpha f_theta(alpha): convex, with gradient -q at the maximiser
alpha, q_k = alpha'Y K_k Y alpha (as in A. Rakotomamonjy, F. Bach, S. Canu, Y. Grandvalet, SimpleMKL, JMLR 9, 2008). For
any theta and alpha

    J(theta) - min J  <=  gap of f_theta at alpha  +  max_k q_k - theta'q,

which is what is told and stopped on. The base kernels are taken with trace n, or the sum would say nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from dkl.problems.neighborhood_svm import KernelOperator, NeighborhoodSVM, Vector
from dkl.solvers.result import Outcome
from dkl.solvers.svm_gradient import Accelerated, SVMSolution

INNER = 0.1
"""Of the accuracy wanted: how accurately each theta's machine is solved."""
SMALLEST = 1e-12
MULTIPLICATIVE = 200


@dataclass
class ScaledKernel:
    """scale * K."""

    of: KernelOperator
    scale: float

    @property
    def n(self) -> int:
        return self.of.n

    def times(self, v: Vector) -> Vector:
        return self.scale * self.of.times(v)

    def columns(self, chosen: NDArray[np.intp]) -> NDArray[np.float64]:
        return self.scale * self.of.columns(chosen)

    def block(self, chosen: NDArray[np.intp]) -> NDArray[np.float64]:
        return self.scale * self.of.block(chosen)


@dataclass
class CombinedKernel:
    """sum_k theta_k K_k by the products of its parts; those with theta_k = 0 cost nothing."""

    parts: Sequence[KernelOperator]
    theta: Vector

    @property
    def n(self) -> int:
        return self.parts[0].n

    def times(self, v: Vector) -> Vector:
        return self._sum(lambda part: part.times(v))

    def columns(self, chosen: NDArray[np.intp]) -> NDArray[np.float64]:
        return self._sum(lambda part: part.columns(chosen))

    def block(self, chosen: NDArray[np.intp]) -> NDArray[np.float64]:
        return self._sum(lambda part: part.block(chosen))

    def _sum(self, of: Any) -> Any:
        return sum(share * of(part) for share, part in zip(self.theta, self.parts, strict=True) if share > 0)


@dataclass(frozen=True)
class CombinedSolution:
    """theta (k,), the machine at it, the gap of the whole, and a row for each theta tried."""

    theta: Vector
    solution: SVMSolution
    gap: float
    outcome: Outcome
    history: list[dict[str, Any]] = field(repr=False)

    @property
    def relative_gap(self) -> float:
        return self.gap / abs(self.solution.point.objective)


def combine(problem: NeighborhoodSVM, parts: Sequence[KernelOperator], solver: Accelerated) -> CombinedSolution:
    """theta and alpha together, to the solver's relative gap. `problem.kernel` is not used."""
    search = _Search(problem, parts, replace(solver, tol=max(INNER * solver.tol, SMALLEST)), solver.tol)
    start = np.full(len(parts), 1.0 / len(parts))
    try:
        minimize(
            search.value, start, jac=True, method="SLSQP", bounds=[(0.0, 1.0)] * len(parts),
            constraints={"type": "eq", "fun": lambda theta: theta.sum() - 1.0, "jac": np.ones_like},
            options={"ftol": 1e-15, "maxiter": 100},
        )  # fmt: skip
        # Quasi-Newton steps end where J is flat to rounding; these go on, slower, and never leave the simplex.
        for _ in range(MULTIPLICATIVE):
            theta = search.best.theta * np.sqrt(np.maximum(search.best_q, 0.0))
            search.value(theta / theta.sum())
    except _Done:
        pass
    best = search.best
    outcome = Outcome.SOLVED if best.relative_gap <= solver.tol else Outcome.STALLED
    return replace(best, outcome=outcome, history=search.history)


class _Done(Exception):
    """The gap is small enough."""


class _Search:
    """J and its gradient, with warm starts from one theta to the next; remembers the least gap."""

    best: CombinedSolution
    best_q: Vector

    def __init__(
        self, problem: NeighborhoodSVM, parts: Sequence[KernelOperator], solver: Accelerated, tol: float
    ) -> None:
        self.problem, self.parts, self.solver, self.tol = problem, parts, solver, tol
        self.alpha: Vector | None = None
        self.history: list[dict[str, Any]] = []

    def value(self, theta: Vector) -> tuple[float, Vector]:
        theta = np.clip(theta, 0.0, None)
        theta = theta / theta.sum()
        problem = replace(self.problem, kernel=CombinedKernel(self.parts, theta))
        solution = self.solver.solve(problem, self.alpha)
        self.alpha = solution.point.alpha
        signed = problem.y * self.alpha
        q = np.array([float(signed @ part.times(signed)) for part in self.parts])
        gap = solution.point.gap + max(float(q.max() - theta @ q), 0.0)
        self.history.append(
            {"iteration": len(self.history) + 1, "objective": solution.point.objective, "gap": gap,
             "theta": theta.tolist(), "products": solution.products}
        )  # fmt: skip
        if not hasattr(self, "best") or gap < self.best.gap:
            self.best = CombinedSolution(theta, solution, gap, Outcome.ITERATION_LIMIT, [])
            self.best_q = q
        if self.best.relative_gap <= self.tol:
            raise _Done
        return -solution.point.objective, -q
