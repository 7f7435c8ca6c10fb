"""The Newton step of the LogDet problem (Li et al. 2009, (3)), by PCG or directly: Table 1's way, or whichever takes less."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal, Protocol

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from dkl.errors import MemoryBudgetError

Vector = NDArray[np.float64]
Solver = Literal["auto", "pcg", "direct", "paper"]
Region = Literal["local", "frobenius"]
FORCING = 0.01
"""PCG ends once tr(Y R)^1/2 is this much of what it was: 0.03 takes a seventh more steps, 0.003 an eighth more products."""
MOST_PRODUCTS = 500
"""Most Hessian products of a step."""


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
        # What a direct solve would take, in products: the currency in which both ways are compared.
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
        # PCG may spend as much as the direct solve would, so that at worst twice the cheaper way is paid.
        most = most if worth is None else min(most, 1 + int(worth))
    step, is_done = _pcg(problem, region, residual, along, curvatures, radius, most)
    if is_done or most == MOST_PRODUCTS:
        return "pcg", step
    # PCG did not end in that many products: the direct solve is now the cheaper way to the step.
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
        # In the local norm the residual is measured by what a step is measured by: tr(Y R) is known by recurrence.
        goal = FORCING**2 * float(residual @ along)
        # Six digits are enough within a Newton system.
        product: Operator = partial(problem.product, coarse=True)
        square_product: Operator | None = None

        def is_done(yr: float, left: Vector) -> bool:
            return yr <= goal
    else:
        norm = problem.pattern_norm(residual)
        # The paper's forcing sequence min(0.5, |G|^(1/2)), which gives superlinear convergence.
        share = min(0.5, float(np.sqrt(norm)))
        product, square_product = problem.product, problem.square_product

        def is_done(yr: float, left: Vector) -> bool:
            return yr <= 0 or problem.pattern_norm(left) < share * norm

    step = newton_step(
        residual, product, curvatures, radius, is_done, start=along, square_product=square_product, most=most
    )
    return step, step.products < most


# The Newton step by a direct solve of its active system.
#
# With D = diag(w psi''(a)) and H_st = tr(A_s K A_t K), the semismooth Newton step of l = w psi'(A(K(l))) is (I + D H)
# step = r. Off the active set (D_t > 0) it is r itself; on it
#     (D^-1 + H_aa) step_a = D^-1 r_a - (H r_off)_a,
# positive definite, one Cholesky factorization of the active number. H comes from entries of K alone.


class DirectProblem(Protocol):
    """Products and entries that the direct solve needs."""

    def product(self, multipliers: Vector) -> Vector:
        """Return A(K U(l) K) of the current K."""

    def hessian(self, active: NDArray[np.intp]) -> NDArray[np.float64]:
        """Return H (a, a) on these constraints, as a new array."""


def direct_step(problem: DirectProblem, residual: Vector, curvatures: Vector) -> NewtonStep:
    """Return the exact step (two products, a factorization); LinAlgError if its system is indefinite."""
    active = np.flatnonzero(curvatures > np.finfo(np.float64).tiny)  # of less the inverse overflows
    # Off the active set the loss is flat, and the step is the residual itself.
    step = residual.copy()
    step[active] = 0.0
    if len(active):
        system = problem.hessian(active)
        # D^-1 on the diagonal makes the system definite, however singular H is.
        system[np.diag_indices_from(system)] += 1.0 / curvatures[active]
        # The inactive part of the step moves the margins of the active ones, which is taken off the right side.
        right = residual[active] / curvatures[active] - problem.product(step)[active]
        factor = scipy.linalg.cho_factor(system, lower=True, overwrite_a=True, check_finite=False)
        step[active] = scipy.linalg.cho_solve(factor, right, check_finite=False)
    # Margins of the whole step to first order, from which the norm and the model's decrease follow.
    margins = -problem.product(step)
    return NewtonStep(step, margins, float(np.sqrt(max(0.0, -float(step @ margins)))), False, 2)


# Newton step by preconditioned CG: Table 1 of Li et al. 2009, without a dense matrix.
#
# With the gradient G = U(r), r = w psi'(a) - l, and the preconditioner K . K, each matrix of Table 1 is U(.) or K U(.) K:
#     R = U(residual), Q = K^-1 P K^-1 = U(inverse direction), Y = K R K, P = K Q K.
# Their inner products are sums over constraints: tr(Y R) = residual'A(Y), tr(P Q) and tr(P H_F(P)) by A(P), so that
# only margins A(Y) of Y are computed, one `product` an iteration. The step D = Z is taken in K^-1: U(l + step) = K^-1 -
# K^-1 Z K^-1 - K0^-1, which is the Newton step's first order, and keeps l.

Operator = Callable[[Vector], Vector]


@dataclass(frozen=True)
class NewtonStep:
    """Newton step of the LogDet problem.

    step      (c,) change of the multipliers
    margins   (c,) change of the margins to first order, A(D)
    norm      |D| in the region's norm
    at_edge   whether it ended at the boundary of the region
    products  Hessian products
    """

    step: Vector
    margins: Vector
    norm: float
    at_edge: bool
    products: int


def newton_step(
    residual: Vector,
    product: Operator,
    curvatures: Vector,
    radius: float,
    is_done: Callable[[float, Vector], bool],
    *,
    start: Vector,
    square_product: Operator | None = None,
    most: int,
) -> NewtonStep:
    """Run PCG from D = 0 until `is_done(tr(Y R), residual)`, the region's boundary, or `most` products.

    residual  (c,) r; product(l) is A(K U(l) K); curvatures (c,) w psi''; start = product(r)
    radius    of |K^-1/2 D K^-1/2|_F, which is known by recurrence; of |D|_F where `square_product` is given: A(K^2 U(l) K^2)
    """
    # PCG starts at 0, where the residual is the gradient and `start` its preconditioned image.
    left, y = residual.copy(), start
    # p is the direction in margins, `inverse` the same in multipliers: two images of one matrix that is never formed.
    inverse, p = -left, -y
    step, margins = np.zeros_like(left), np.zeros_like(left)
    yr, products, measured = float(left @ y), 0, square_product
    norms = _Norms(measured)
    while not is_done(yr, left) and products < most:
        curved = curvatures * p
        # tr(P H P) in the paper's Table 1, by the identity part and the loss's curvature.
        bend = float(p @ inverse) + float(p @ curved)
        if not bend > 0:
            # Rounding has left a direction of no curvature: what has been found so far is still a step of descent.
            break
        alpha = yr / bend
        # How far this direction may go before the norm exceeds the radius.
        to_edge = norms.to_edge(step, margins, inverse, p, radius)
        if alpha >= to_edge:
            # The sign turns a decrease of K^-1 into the change of the multipliers.
            return NewtonStep(-(step + to_edge * inverse), margins + to_edge * p, radius, True, products)
        step += alpha * inverse
        margins += alpha * p
        # The residual by recurrence: a fresh one would take another product.
        left += alpha * (curved + inverse)
        y = product(left)
        products += 1
        following = float(left @ y)
        # Fletcher-Reeves' factor, exact for a linear system.
        beta, yr = following / yr, following
        p = beta * p - y
        inverse = beta * inverse - left
    return NewtonStep(-step, margins, norms.of(step, margins), False, products)


class _Norms:
    """|D| of D = K U(q) K with margins a: sqrt(q'a) in the local norm, sqrt(q'A(K^2 U(q) K^2)) in Frobenius'."""

    def __init__(self, square_product: Operator | None) -> None:
        self._square_product = square_product

    def _dual(self, q: Vector, a: Vector) -> Vector:
        return a if self._square_product is None else self._square_product(q)

    def of(self, q: Vector, a: Vector) -> float:
        return float(np.sqrt(max(0.0, float(q @ self._dual(q, a)))))

    def to_edge(self, q: Vector, a: Vector, direction: Vector, p: Vector, radius: float) -> float:
        """Return the t > 0 at which |D + t P| is the radius."""
        if not np.isfinite(radius):
            return np.inf
        dual = self._dual(direction, p)
        square, cross = float(direction @ dual), float(q @ dual)
        # The root of |q + t direction| = radius, in the form that does not cancel for cross > 0.
        rest = radius**2 - self.of(q, a) ** 2
        root = np.sqrt(max(0.0, cross**2 + square * rest))
        return float(rest / (root + cross)) if cross > 0 else float((root - cross) / square)


# Newton step of the dual by preconditioned conjugate residuals, which see the gap.
#
# With the dual margins x at l, C = diag(w psi''(x)), h its diagonal's roots and a the kernel's margins, the step
# s = h z solves
#     (I + diag(h) H diag(h)) z = h (a - x),   H_st = tr(A_s K A_t K).
# After it the gap w sum of the Bregman distances of psi is |r|^2 / 2 to first order, r what is left of the equation.
# The least r of a Krylov space is what conjugate residuals find, one product an iteration, as conjugate gradients the
# least error: their residuals in other norms accepted steps that had not started where the loss is flat.

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
    # The direct step is asked for as the primal's, with the dual's right side C (a - x).
    if solver == "direct":
        residual = curvatures * differences
        return choose_step(problem, solver, "local", residual, residual, curvatures, np.inf)
    worth = problem.direct_cost(np.flatnonzero(curvatures > 0)) if solver == "auto" else None
    most = MOST_PRODUCTS if worth is None else min(MOST_PRODUCTS, 1 + int(worth))
    # The first few products without a preconditioner show whether one is worth making.
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
        # The symmetric form of I + C H, so that conjugate residuals apply.
        return y + roots * problem.product(roots * y, coarse=True)

    right = roots * differences
    z, left = np.zeros_like(right), right.copy()
    # To first order |r|^2 / 2 is the gap that the step leaves, so the goal follows from the wanted gap.
    goal = max(LEFT**2 * float(right @ right), 2.0 * gap)
    products = _reduce(times, None, z, left, goal, min(plain, most))
    if products < most and float(left @ left) > goal:
        products += _reduce(times, problem.preconditioner(roots), z, left, goal, most - products)
    # From the equation z + h H h z = right - left: no product is taken for the norm.
    curved = right - left - z  # h H h z
    norm = float(np.sqrt(max(0.0, float(z @ curved))))
    return NewtonStep(roots * z, -differences, norm, False, products), float(left @ left) <= goal


def _reduce(times: Operator, inverse: Operator | None, z: Vector, left: Vector, goal: float, most: int) -> int:
    """Move z and its residual `left`, in place, until left'left <= goal or after `most` products; return their number."""
    products = 0
    y = left.copy() if inverse is None else inverse(left)
    p, image, before = np.zeros_like(y), np.zeros_like(y), np.inf
    while products < most and float(left @ left) > goal:
        turned = times(y)
        products += 1
        along = float(y @ turned)
        # Not positive: rounding has taken over, or the operator is not definite there.
        if not along > 0:
            break
        p = y + (along / before) * p
        image = turned + (along / before) * image
        before = along
        # One application of the preconditioner a step, shared by the residual and the next direction.
        corrected = image if inverse is None else inverse(image)
        size = float(image @ corrected)
        # Not positive: numbers so small have lost their squares.
        if not size > 0:
            break
        share = along / size
        z += share * p
        left -= share * image
        y = left.copy() if inverse is None else y - share * corrected
    return products
