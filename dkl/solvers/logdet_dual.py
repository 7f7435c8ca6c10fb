"""Newton's method on the dual of problem (3), for losses whose slope has an inverse: maximize D(l), K(l) = (K0^-1 + U(l))^-1.

With x_t the dual margins, w psi'(x_t) = l_t, the gradient of D is a(l) - x, and with C = diag(w psi''(x)) Newton's step is
    (I + C H) step = C (a - x),   H_st = tr(A_s K A_t K),
the system of the primal (`logdet_step`) at x instead of a. A loss that falls off like exp(-2 a) is far stiffer at a kernel's own margins
than at those of its multipliers when gamma grows: there a primal step asks for kernels that grow many times too much.

The gap is free: F - D = w sum of the Bregman distances of psi from x_t to a_t.

Three things keep steps long. gamma itself grows along the way after each whole step, as far as one step can follow: the path of
solutions is the central path of a barrier method (Li et al. 2009, 4.3). A step goes at most REACH of the way to where K^-1 is
singular. And l_t moves no further than a linear change of x_t would take it, so that it never leaves the slopes of the loss; or as far
as the step says, where so much is well inside them: of contradictory constraints K is large where many l_t balance, and bending each by
itself, a per cent of some, leaves the cone at a hundredth of a step that is good as a whole.

A multiplier that is next to nothing, of a margin that was large and no longer is, has no curvature at x to come back by: a step would
only multiply it by some number. Where the slope at a is more than FAR times the multiplier, C is that of the secant from x to a,
    C = (w psi'(a) - l) / (a - x),
which gives a step towards w psi'(a), as the primal has it, and still one of ascent: C is positive. Near the optimum x is a.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from dkl.solvers.logdet_dual_step import FEW, DualStepProblem, dual_step
from dkl.solvers.logdet_newton import HALVINGS, IDLE, ROUNDING, SUFFICIENT, NewtonEnd, Point, Problem
from dkl.solvers.logdet_pcg import NewtonStep
from dkl.solvers.logdet_step import Solver
from dkl.solvers.result import Outcome
from dkl.solvers.watch import Stall, Watch, verdict

Vector = NDArray[np.float64]
Mask = NDArray[np.bool_]
REACH = 0.6
"""Of the way to the end of the cone."""
INSIDE = 0.9
"""Of the way to the end of the loss's slopes, which a multiplier may go straight."""
FAR = 1e6
"""Times the multiplier that the slope at a margin is where the secant leads back to it. Of 300 digits' raw rows, at gammas from 2^-12 to
2^16, 22 to 46 steps; without the secant 99 to 143, the last of them the primal's. 1e4 takes wine up to a half more."""
SHARE = 0.3
"""Of the gap that is asked for: what the last step aims at."""
ON_THE_WAY = 1e-6
"""Of a smaller gamma's objective, at most: by 1e-3 a cold start to that gap takes more steps than one to 1e-6 (31 and 22 of sonar's)."""
GROWTH = 2.0
"""Of gamma after a whole step of length 1; more after a shorter one, up to its cube."""
NORM = 2.0
"""Of the first step after gamma has grown, which the growth aims at. USPS' images, all labelled, take 46 steps of 368 products along
figure 2's path without it, and 39 of 259 with it or with 1.2 or 3: steps of 5 and more reach for a kernel that others take back."""
SLOWEST = 0.5
"""Octaves that gamma grows by at least."""


class DualPoint(Point, Protocol):
    """K(l)."""

    @property
    def log_det(self) -> float:
        """log det(I + K0 U(l))."""


class DualProblem(Problem, DualStepProblem, Protocol):
    """Problem (3) at a gamma, with a loss whose slope has an inverse."""

    def with_gamma(self, gamma: float) -> Self:
        """The same at another gamma; what is current stays so."""

    def objective(self, point: Any) -> float:
        """F of a point made at another gamma."""

    def dual_margins(self, multipliers: Vector) -> Vector:
        """x with w psi'(x) = l."""

    def dual_objective(self, point: Any, dual_margins: Vector) -> float:
        """D(l)."""

    def lowest_growth(self, multipliers: Vector) -> float:
        """At most the lowest eigenvalue of K^1/2 U(l) K^1/2."""


def dual_newton(
    problem: DualProblem, start: DualPoint, gamma: float, *, solver: Solver, tol: float, max_iter: int, watch: Watch
) -> NewtonEnd:
    """From `start`, the current point, whose multipliers are slopes of the loss at `gamma`, to a proven relative gap of at most tol.

    gamma is at most the problem's. Rows of the history, and what is handed out, are of the lowest objective so far, and where it is
    solved of the point that proves it; something is proven once gamma is the problem's.
    """
    point, best, lowest, bound, decrement = start, start, np.inf, problem.lowest, np.inf
    products, is_stiff, stall, ways = 0, False, Stall(IDLE), set[str]()
    grown, rate = 0.0, 0.0  # octaves that gamma has just grown by, and a step's norm to an octave
    target = problem.with_gamma(min(problem.gamma, GROWTH * gamma))
    x = target.dual_margins(point.multipliers)
    dual = target.dual_objective(point, x)
    for iteration in range(max_iter + 1):
        is_there = target.gamma == problem.gamma
        objective = problem.objective(point)
        bound = max(bound, dual) if is_there else bound
        best, lowest = (point, objective) if objective < lowest else (best, lowest)
        if is_there and problem.certificate(objective, dual).relative_gap <= tol:
            # Of one point, between whose F and D log det cancels, rounding and all; and of its multipliers a narrower loss begins.
            best, lowest, bound = point, objective, dual
        certificate = problem.certificate(lowest, bound)
        told = watch.record({
            "iteration": iteration, "objective": lowest, "gap": certificate.gap, "relative_gap": certificate.relative_gap,
            "decrement": decrement, "products": products,
        })  # fmt: skip
        is_solved = certificate.relative_gap <= tol
        ended = verdict(told, solved=is_solved, at_limit=iteration == max_iter, stalled=stall.is_passed)
        if ended is not None:
            break
        curvatures, is_far = _curvatures(target, point, x)
        gap = SHARE * (tol if is_there else min(tol, ON_THE_WAY)) * abs(objective)
        way, step = dual_step(problem, solver, point.margins - x, curvatures, gap, is_stiff)
        is_stiff = is_stiff or step.products > FEW
        ways.add(way)
        products += step.products
        grown, rate = (0.0, step.norm / grown) if grown > 0 else (grown, rate)
        rise = float((point.margins - x) @ step.step)
        decrement = float(np.sqrt(max(0.0, rise)))
        slack = ROUNDING * (abs(dual) + float(np.abs(point.multipliers * x).sum()))
        following, share = _ascend(target, point, x, dual, step, curvatures, is_far, rise, slack)
        if following is None:
            stall.idle = IDLE + 1
            continue
        stall.check(not is_there or (rise > slack and certificate.gap >= 0))
        point, x, dual = following
        if share == 1.0 and not is_there:
            before, target = (
                target,
                problem.with_gamma(min(problem.gamma, 2.0 ** _octaves(step.norm, rate) * target.gamma)),
            )
            grown = float(np.log2(target.gamma / before.gamma))
            x = target.dual_margins(point.multipliers)
            dual = target.dual_objective(point, x)
    way = ways.pop() if len(ways) == 1 else solver
    return NewtonEnd(best, certificate, ended or Outcome.ITERATION_LIMIT, iteration, products, way)


def _octaves(norm: float, rate: float) -> float:
    """How far gamma may grow after a whole step of this norm, the last growth having made steps of norm `rate` to an octave."""
    most = np.log2(GROWTH) / min(1.0, max(norm, 1.0 / 3.0))
    return float(max(SLOWEST, min(most, NORM / max(rate, np.finfo(np.float64).tiny))))


def _ascend(
    target: DualProblem,
    point: DualPoint,
    x: Vector,
    dual: float,
    step: NewtonStep,
    curvatures: Vector,
    is_far: Mask,
    rise: float,
    slack: float,
) -> tuple[tuple[DualPoint, Vector, float] | None, float]:
    """((the accepted point, its x, its D), the share of the step): within REACH of the cone's end, halved until D rises as it should."""
    share = 1.0
    if step.norm > REACH:  # no eigenvalue is larger than the norm
        share = min(1.0, REACH / max(-target.lowest_growth(step.step), np.finfo(np.float64).tiny))
    for _ in range(HALVINGS):
        for multipliers in _moved(target, point.multipliers, x, share * step.step, curvatures, is_far):
            trial = target.point(multipliers)
            if trial is not None:
                there = target.dual_margins(multipliers)
                reached = target.dual_objective(trial, there)
                if reached >= dual + SUFFICIENT * share * rise - slack:
                    target.accept()
                    return (trial, there, reached), share
        share /= 2.0
    return None, 0.0


def _curvatures(target: DualProblem, point: DualPoint, x: Vector) -> tuple[Vector, Mask]:
    """(c,) w psi''(x), of the secant to the point's margins where those ask for FAR times the multiplier; and where."""
    curvatures, slopes = target.curvatures(x), target.forces(point.margins)
    is_far = np.abs(slopes) > FAR * np.abs(point.multipliers)
    if is_far.any():
        secants = (slopes[is_far] - point.multipliers[is_far]) / (point.margins[is_far] - x[is_far])
        curvatures[is_far] = np.maximum(curvatures[is_far], secants)
    return curvatures, is_far


def _moved(
    target: DualProblem, multipliers: Vector, x: Vector, change: Vector, curvatures: Vector, is_far: Mask
) -> Iterator[Vector]:
    """Slopes of the loss near l + change: first between l and w psi'(x + change / (w psi''(x))), then where INSIDE allows l + change.

    Those that come back from next to nothing go straight at once, which is what their secant is the curvature of.
    """
    curved = target.forces(x + change / np.maximum(curvatures, np.finfo(np.float64).tiny))
    bent = np.clip(multipliers + change, np.minimum(multipliers, curved), np.maximum(multipliers, curved))
    is_inside = np.isfinite(target.dual_margins(multipliers + change / INSIDE))
    straight = np.where(is_inside, multipliers + change, bent)
    bent = np.where(is_far & (np.abs(straight) > np.abs(multipliers)), straight, bent)
    yield bent
    if not np.array_equal(straight, bent):
        yield straight
