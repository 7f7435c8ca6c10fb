"""The Newton step of problem (3), by PCG or directly: Table 1's way, or whichever takes less."""

from __future__ import annotations

from functools import partial
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from dkl.errors import MemoryBudgetError
from dkl.solvers.logdet.direct import direct_step
from dkl.solvers.logdet.pcg import NewtonStep, Operator, newton_step

Vector = NDArray[np.float64]
Solver = Literal["auto", "pcg", "direct"]
Region = Literal["local", "frobenius"]
FORCING = 0.01
"""PCG ends once tr(Y R)^1/2 is this much of what it was: 0.03 takes a seventh more steps, 0.003 an eighth more products."""
MOST_PRODUCTS = 500


class StepProblem(Protocol):
    """Products with the current K."""

    def product(self, multipliers: Vector, *, coarse: bool = False) -> Vector:
        """Return A(K U(l) K) of the current K; `coarse`: to six digits."""

    def square_product(self, multipliers: Vector) -> Vector:
        """Return A(K^2 U(l) K^2)."""

    def hessian(self, active: NDArray[np.intp]) -> NDArray[np.float64]:
        """Return (a, a) tr(A_s K A_t K)."""

    def direct_cost(self, active: NDArray[np.intp]) -> float | None:
        """Return the cost of a direct solve, in products; None if it is too large."""

    def pattern_norm(self, multipliers: Vector) -> float:
        """Return |U(l)|_F."""


def choose_step(
    problem: StepProblem,
    solver: Solver,
    region: Region,
    residual: Vector,
    along: Vector,
    curvatures: Vector,
    radius: float,
) -> tuple[str, NewtonStep]:
    """Return (method, step). "auto" gives PCG as many products as a direct solve would take the time of."""
    most = MOST_PRODUCTS
    if solver != "pcg":
        worth = problem.direct_cost(np.flatnonzero(curvatures > 0))
        if solver == "direct":
            if worth is None:
                raise MemoryBudgetError(
                    "too many active constraints for a direct solve",
                    where="solver",
                    got=int((curvatures > 0).sum()),
                    remedy='take solver="auto"',
                )
            exact = _exact(problem, residual, curvatures)
            if exact is not None:
                return "direct", exact
            worth = None
        most = most if worth is None else min(most, 1 + int(worth))
    step, is_done = _pcg(problem, region, residual, along, curvatures, radius, most)
    if is_done or most == MOST_PRODUCTS:
        return "pcg", step
    exact = _exact(problem, residual, curvatures)
    if exact is not None and exact.norm <= radius:
        return "direct", exact
    # Beyond the region PCG's way to its edge lowers the model, and the exact step, cut short, hardly the objective.
    step, _ = _pcg(problem, region, residual, along, curvatures, radius, MOST_PRODUCTS)
    return "pcg", step


def _exact(problem: StepProblem, residual: Vector, curvatures: Vector) -> NewtonStep | None:
    """Return the direct step; None if rounding leaves its system indefinite, or entries are not finite."""
    try:
        return direct_step(problem, residual, curvatures)
    except np.linalg.LinAlgError:
        return None


def _pcg(
    problem: StepProblem, region: Region, residual: Vector, along: Vector, curvatures: Vector, radius: float, most: int
) -> tuple[NewtonStep, bool]:
    """Run PCG with the region's norm and its forcing sequence."""
    if region == "local":
        goal = FORCING**2 * float(residual @ along)
        product: Operator = partial(problem.product, coarse=True)
        square_product: Operator | None = None

        def is_done(yr: float, left: Vector) -> bool:
            return yr <= goal
    else:
        norm = problem.pattern_norm(residual)
        share = min(0.5, float(np.sqrt(norm)))
        product, square_product = problem.product, problem.square_product

        def is_done(yr: float, left: Vector) -> bool:
            return yr <= 0 or problem.pattern_norm(left) < share * norm

    step = newton_step(
        residual, product, curvatures, radius, is_done, start=along, square_product=square_product, most=most
    )
    return step, step.products < most
