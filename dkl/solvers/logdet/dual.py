"""Newton's method on the dual of the LogDet problem (Li et al. 2009, (3)), maximizing D(l), for losses whose slope has an inverse.

With x_t the dual margins, w psi'(x_t) = l_t, the gradient of D is a(l) - x, and with C = diag(w psi''(x)) Newton's step is
    (I + C H) step = C (a - x),   H_st = tr(A_s K A_t K),
the system of the primal (`step.py`) at x instead of a. A loss that falls off like exp(-2 a) is far stiffer at a kernel's own margins
than at those of its multipliers when gamma grows: there a primal step asks for kernels that grow many times too much.

The gap is free: F - D = w sum of the Bregman distances of psi from x_t to a_t.

gamma itself grows along the way after each whole step, as far as one step can follow: the path of solutions is the central path of a
barrier method (Li et al. 2009, 4.3). How a step is taken keeps it long (`ascend`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from dkl.solvers.logdet.newton import HALVINGS, IDLE, ROUNDING, SUFFICIENT, NewtonEnd, NewtonPoint, NewtonProblem
from dkl.solvers.logdet.step import FEW, DualStepProblem, NewtonStep, Solver, dual_step
from dkl.solvers.watch import Outcome, Stall, Watch, verdict

SHARE = 0.3
"""Share of the wanted gap that the last step aims at."""
ON_THE_WAY = 1e-6
"""Largest relative gap aimed at before gamma is the problem's.
By 1e-3 a cold start to that gap takes more steps than one to 1e-6 (31 and 22 of sonar's)."""
GROWTH = 2.0
"""Growth factor of gamma after a whole step of length 1; more after a shorter one, up to its cube."""
NORM = 2.0
"""Norm that the growth aims at for the first step after gamma has grown.
USPS' images, all labeled, take 46 steps of 368 products along figure 2's path without it, and 39 of 259 with it or with 1.2 or 3: steps of
5 and more reach for a kernel that others take back."""
SLOWEST = 0.5
"""Octaves that gamma grows by at least."""


def dual_newton(
    problem: DualProblem, at: DualState, target: DualProblem, *, solver: Solver, tol: float, max_iter: int, watch: Watch
) -> NewtonEnd:
    """Maximize D from `at`, the current point's state, to a proven relative gap of at most tol.

    target: the problem at its own gamma or a smaller one, of whose loss `at`'s multipliers are slopes. Rows of the history, and what is
    handed out, are of the lowest objective so far, and where it is solved of the point that proves it; something is proven once gamma is
    the problem's.
    """
    # The current point, the lowest objective so far and the best bound are kept apart: they need not be of one point.
    best, lowest, bound, decrement = at.point, np.inf, problem.lowest, np.inf
    products, is_stiff, stall, ways = 0, False, Stall(IDLE), set[str]()
    grown, rate = 0.0, 0.0  # octaves that gamma has just grown by, and a step's norm to an octave
    for iteration in range(max_iter + 1):
        # At a smaller gamma neither objective nor bound are of the problem that is asked for.
        is_there = target.gamma == problem.gamma
        # F at the problem's own gamma, whatever gamma the point was made at.
        objective = problem.objective(at.point)
        bound = max(bound, at.dual) if is_there else bound
        best, lowest = (at.point, objective) if objective < lowest else (best, lowest)
        is_solved = is_there and problem.certificate(objective, at.dual).relative_gap <= tol
        if is_solved:
            # Of one point, between whose F and D log det cancels, rounding and all; and of its multipliers a narrower loss begins.
            # What is handed out proves itself: a bound of other multipliers could not be verified.
            best, lowest, bound = at.point, objective, at.dual
        certificate = problem.certificate(lowest, bound)
        stop_reason = watch.record({
            "iteration": iteration, "objective": lowest, "gap": certificate.gap, "relative_gap": certificate.relative_gap,
            "decrement": decrement, "products": products,
        })  # fmt: skip
        ended = verdict(stop_reason, solved=is_solved, at_limit=iteration == max_iter, stalled=stall.is_passed)
        if ended is not None:
            break
        # Curvature of the loss at the dual margins x, which is what makes this step short where psi is steep.
        curvatures, is_far = curvatures_at(target, at)
        differences = at.point.margins - at.x
        # On the way to a larger gamma a rough solution is enough: the next step moves the point anyway.
        gap = SHARE * (tol if is_there else min(tol, ON_THE_WAY)) * abs(objective)
        way, step = dual_step(problem, solver, differences, curvatures, gap, is_stiff)
        # Once a system was stiff, the next ones are: they are preconditioned from the first product on.
        is_stiff = is_stiff or step.products > FEW
        ways.add(way)
        products += step.products
        # The norm that an octave of gamma has cost: the next growth is chosen by it.
        grown, rate = (0.0, step.norm / grown) if grown > 0 else (grown, rate)
        # The derivative of D along the step, which is Newton's decrement squared for an exact step.
        rise = float(differences @ step.step)
        decrement = float(np.sqrt(max(0.0, rise)))
        # Differences of D below this are rounding of its two large terms, and must not reject a step.
        slack = ROUNDING * (abs(at.dual) + float(np.abs(at.point.multipliers * at.x).sum()))
        following, share = ascend(target, at, step, curvatures, is_far, rise, slack)
        # No multipliers along the step were acceptable: one more pass reports the end as stalled.
        if following is None:
            stall.idle = IDLE + 1
            continue
        # By what D has risen, not by what the step promised: a multiplier at its bound to rounding promises the same again and again.
        stall.check(not is_there or (min(rise, following.dual - at.dual) > slack and certificate.gap >= 0))
        at = following
        # Only a whole step shows that the quadratic model holds, so that gamma may grow.
        if share == 1.0 and not is_there:
            octaves = _octaves(step.norm, rate)
            gamma, target = target.gamma, problem.with_gamma(min(problem.gamma, 2.0**octaves * target.gamma))
            grown = float(np.log2(target.gamma / gamma))
            at = DualState.of(target, at.point)
    way = ways.pop() if len(ways) == 1 else solver
    return NewtonEnd(best, certificate, ended or Outcome.ITERATION_LIMIT, iteration, products, way)


def _octaves(norm: float, rate: float) -> float:
    """Return by how many octaves gamma may grow after a whole step; rate: norm per octave of the last one."""
    # A step of length 1 allows GROWTH, a shorter one up to its cube: easy stretches of the path are passed quickly.
    most = np.log2(GROWTH) / min(1.0, max(norm, 1.0 / 3.0))
    return float(max(SLOWEST, min(most, NORM / max(rate, np.finfo(np.float64).tiny))))


# Length of a step of the dual, and multipliers along it that stay slopes of the loss.
#
# A step goes at most REACH of the way to where K^-1 is singular. And l_t moves no further than a linear change of x_t
# would take it, so that it never leaves the slopes of the loss; or as far as the step says, where so much is well
# inside them: of contradictory constraints K is large where many l_t balance, and bending each by itself, a per cent of
# some, leaves the cone at a hundredth of a step that is good as a whole.
#
# A multiplier that is next to nothing, of a margin that was large and no longer is, has no curvature at x to come back
# by: a step would only multiply it by some number. Where the slope at a is more than FAR times the multiplier, C is
# that of the secant from x to a,
#     C = (w psi'(a) - l) / (a - x),
# which gives a step towards w psi'(a), as the primal has it, and still one of ascent: C is positive. Near the optimum x
# is a.

Vector = NDArray[np.float64]
Mask = NDArray[np.bool_]
REACH = 0.6
"""Largest share of the way to the end of the cone that a step goes."""
INSIDE = 0.9
"""Share of the way to the end of the loss's slopes that a multiplier may go straight."""
FAR = 1e6
"""Times the multiplier that the slope at a margin is where the secant leads back to it. Of 300 digits' raw rows, at gammas from 2^-12 to
2^16, 22 to 46 steps; without the secant 99 to 143, the last of them the primal's. 1e4 takes wine up to a half more."""


class DualPoint(NewtonPoint, Protocol):
    """K(l)."""

    @property
    def log_det(self) -> float:
        """Return log det(I + K0 U(l))."""


class DualProblem(NewtonProblem, DualStepProblem, Protocol):
    """The LogDet problem at a gamma, with a loss whose slope has an inverse."""

    def with_gamma(self, gamma: float) -> Self:
        """Return the same problem at another gamma, with the same current point."""

    def objective(self, point: Any) -> float:
        """Return F of a point made at another gamma."""

    def dual_margins(self, multipliers: Vector) -> Vector:
        """Return the dual margins x with w psi'(x) = l."""

    def dual_objective(self, point: Any, dual_margins: Vector) -> float:
        """Return the dual objective D(l)."""

    def lowest_growth(self, multipliers: Vector) -> float:
        """Return at most the lowest eigenvalue of K^1/2 U(l) K^1/2."""


class DualState(NamedTuple):
    """K(l) at a gamma: the point; x (c,) its dual margins; dual, D(l)."""

    point: Any
    x: Vector
    dual: float

    @classmethod
    def of(cls, problem: DualProblem, point: DualPoint) -> Self:
        """Return the state of a point at the problem's gamma."""
        # x is found from the loss alone, so that D needs no product.
        x = problem.dual_margins(point.multipliers)
        return cls(point, x, problem.dual_objective(point, x))


def ascend(
    target: DualProblem, at: DualState, step: NewtonStep, curvatures: Vector, is_far: Mask, rise: float, slack: float
) -> tuple[DualState | None, float]:
    """Return (accepted state, share of step): within REACH of the cone's end, halved until D rises enough.

    curvatures, is_far: of `curvatures_at`. rise: of D by a whole step, to first order; slack: what rounding may take of it.
    """
    share = 1.0
    if step.norm > REACH:  # no eigenvalue is larger than the norm
        # K^-1 + share U is definite up to 1 / -(lowest eigenvalue), where D falls to -inf: REACH keeps away from it.
        share = min(1.0, REACH / max(-target.lowest_growth(step.step), np.finfo(np.float64).tiny))
    # Armijo's rule on D, with the first-order rise as the promise.
    for _ in range(HALVINGS):
        for multipliers in _moved(target, at, share * step.step, curvatures, is_far):
            trial = target.point(multipliers)
            if trial is not None:
                reached = DualState.of(target, trial)
                # The slack keeps steps whose whole rise is below rounding, which end the search by its stall instead.
                if reached.dual >= at.dual + SUFFICIENT * share * rise - slack:
                    target.accept()
                    return reached, share
        share /= 2.0
    return None, 0.0


def curvatures_at(target: DualProblem, at: DualState) -> tuple[Vector, Mask]:
    """Return (w psi''(x) (c,), or of the secant to margins that ask for FAR times the multiplier; where)."""
    curvatures, slopes = target.curvatures(at.x), target.forces(at.point.margins)
    # Such a multiplier has no curvature at x any more, as an exponential that has vanished has none.
    is_far = np.abs(slopes) > FAR * np.abs(at.point.multipliers)
    if is_far.any():
        secants = (slopes[is_far] - at.point.multipliers[is_far]) / (at.point.margins[is_far] - at.x[is_far])
        # The larger of both curvatures: a smaller C would make the step longer than either model promises.
        curvatures[is_far] = np.maximum(curvatures[is_far], secants)
    return curvatures, is_far


def _moved(target: DualProblem, at: DualState, change: Vector, curvatures: Vector, is_far: Mask) -> Iterator[Vector]:
    """Yield slopes of the loss near l + change.

    First between l and w psi'(x + change / (w psi''(x))), then where INSIDE allows l + change. Those that come back from next to nothing
    go straight at once, which is what their secant is the curvature of.
    """
    multipliers = at.point.multipliers
    # Where a linear change of x leads, the multiplier stays a slope of the loss by construction.
    curved = target.forces(at.x + change / np.maximum(curvatures, np.finfo(np.float64).tiny))
    # Clipped between l and that slope, as a linear change of l could leave the loss's slopes.
    bent = np.clip(multipliers + change, np.minimum(multipliers, curved), np.maximum(multipliers, curved))
    straight = None
    if is_far.any():
        straight = _straight(target, multipliers, change, bent)
        bent = np.where(is_far & (np.abs(straight) > np.abs(multipliers)), straight, bent)
    yield bent
    straight = _straight(target, multipliers, change, bent) if straight is None else straight
    if not np.array_equal(straight, bent):
        yield straight


def _straight(target: DualProblem, multipliers: Vector, change: Vector, bent: Vector) -> Vector:
    """Return l + change where INSIDE allows it, else `bent`."""
    # Dividing by INSIDE asks that even a somewhat longer change were still a slope of the loss.
    is_inside = np.isfinite(target.dual_margins(multipliers + change / INSIDE))
    return np.where(is_inside, multipliers + change, bent)
