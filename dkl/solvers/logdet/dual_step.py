"""Newton step of the dual of problem (3) by preconditioned conjugate residuals, which see the gap.

With the dual margins x at l, C = diag(w psi''(x)), h its diagonal's roots and a the kernel's margins, the step s = h z solves
    (I + diag(h) H diag(h)) z = h (a - x),   H_st = tr(A_s K A_t K).
After it the gap w sum of the Bregman distances of psi is |r|^2 / 2 to first order, r what is left of the equation. The least r of a Krylov
space is what conjugate residuals find, one product an iteration, as conjugate gradients the least error: their residuals in other norms
accepted steps that had not started where the loss is flat.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dkl.solvers.logdet.direct import direct_step
from dkl.solvers.logdet.pcg import NewtonStep
from dkl.solvers.logdet.step import MOST_PRODUCTS, Solver, StepProblem, choose_step

Vector = NDArray[np.float64]
Operator = Callable[[Vector], Vector]
LEFT = 0.03
"""Share of |r| that a step may leave: 0.1 takes a sixth more steps."""
FEW = 6
"""Products after which a preconditioner is worth making."""


class DualStepProblem(StepProblem, Protocol):
    """Products with the current K."""

    def preconditioner(self, roots: Vector) -> Operator | None:
        """Return nearly (I + diag(roots) H diag(roots))^-1, or None if it takes more than it is worth."""


def dual_step(
    problem: DualStepProblem, solver: Solver, differences: Vector, curvatures: Vector, gap: float, is_stiff: bool
) -> tuple[str, NewtonStep]:
    """Return (method, step) for a - x and w psi''(x), to LEFT of |r| or a gap of `gap`; no valid margins.

    "auto" gives it as many products as a direct solve would take the time of. is_stiff: whether the step before took more than FEW
    products, so that this one is preconditioned from its beginning.
    """
    if solver == "direct":
        residual = curvatures * differences
        return choose_step(problem, solver, "local", residual, residual, curvatures, np.inf)
    worth = problem.direct_cost(np.flatnonzero(curvatures > 0)) if solver == "auto" else None
    most = MOST_PRODUCTS if worth is None else min(MOST_PRODUCTS, 1 + int(worth))
    step, is_done = conjugate_residuals(problem, np.sqrt(curvatures), differences, gap, most, 0 if is_stiff else FEW)
    if is_done or most == MOST_PRODUCTS:
        return "pcg", step
    try:
        return "direct", direct_step(problem, curvatures * differences, curvatures)
    except np.linalg.LinAlgError:  # of kernels that only rounding is left of
        return "pcg", step


def conjugate_residuals(
    problem: DualStepProblem, roots: Vector, differences: Vector, gap: float, most: int, plain: int
) -> tuple[NewtonStep, bool]:
    """Return (step, whether it is near enough); the first `plain` products are without a preconditioner.

    roots (c,) h; differences (c,) a - x.
    """

    def times(y: Vector) -> Vector:
        return y + roots * problem.product(roots * y, coarse=True)

    right = roots * differences
    z, left = np.zeros_like(right), right.copy()
    goal = max(LEFT**2 * float(right @ right), 2.0 * gap)
    products = _reduce(times, None, z, left, goal, min(plain, most))
    if products < most and float(left @ left) > goal:
        products += _reduce(times, problem.preconditioner(roots), z, left, goal, most - products)
    curved = right - left - z  # h H h z
    norm = float(np.sqrt(max(0.0, float(z @ curved))))
    return NewtonStep(roots * z, -differences, norm, False, products), float(left @ left) <= goal


def _reduce(times: Operator, inverse: Operator | None, z: Vector, left: Vector, goal: float, most: int) -> int:
    """Move z and what it leaves of the equation, in place, until left'left <= goal or after `most` products: how many they were."""
    products = 0
    y = left.copy() if inverse is None else inverse(left)
    p, image, before = np.zeros_like(y), np.zeros_like(y), np.inf
    while products < most and float(left @ left) > goal:
        turned = times(y)
        products += 1
        along = float(y @ turned)
        if not along > 0:
            break
        p = y + (along / before) * p
        image = turned + (along / before) * image
        before = along
        corrected = image if inverse is None else inverse(image)
        share = along / float(image @ corrected)
        z += share * p
        left -= share * image
        y = left.copy() if inverse is None else y - share * corrected
    return products
