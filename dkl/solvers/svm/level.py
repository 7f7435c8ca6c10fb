"""The level method for (7): Algorithm 1 of Liu et al. 2009, after A. Nemirovski's cutting planes.

Each point alpha_j of P bounds f from below by the cut f(alpha_j) + g_j'(alpha - alpha_j). With the cuts of all points so far,

    lower bound   the least over P of the largest cut, a linear program                    (8)
    level         l = lower + tau (upper - lower), where upper is the least f(alpha_j)       (9)
    next point    the one nearest to the last in {alpha in P, all cuts <= l}                 (10)

The program's multipliers (lambda >= 0, e'lambda = 1) make one bound of all, whose least value over P is known in closed
form: it holds whatever the program's tolerance. With the means u of alpha_j and v of |alpha_j|^2 alpha_j by lambda,

    f(alpha)  >=  (2 Y K Y u - 2 c + v / rho)'alpha - u'Y K Y u - 3/4 |v|^(4/3) / rho

by Fenchel's inequality for both terms that are not linear, whatever u and v. By Jensen's it is nowhere below the mean of the
cuts, and u and v alone prove it. (10) is solved by its dual, one multiplier mu_j a cut: alpha(mu) is the projection of
alpha - sum_j mu_j g_j onto P. All cuts are kept: it is the method for few patterns.

tau = 0 is Kelley's cutting-plane method (J. Kelley, The cutting-plane method for solving convex programs, J. SIAM 8, 1960), which
the paper sets the level method against: the next point is the program's own minimizer, wherever the last ones were.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve
from scipy.optimize import linprog

from dkl.linalg.kernels.kernel_operators import Vector
from dkl.linalg.svm_dual import project
from dkl.solvers.svm.interface import (
    CutBound,
    FeasiblePoint,
    LevelState,
    PointState,
    StateCallback,
    SVMProblem,
    SVMSolution,
    record_point,
)
from dkl.solvers.watch import Outcome, Stall, Watch, verdict

TAU = 0.5  # the paper's usual value
MAX_IDLE, SLOWEST = 50, 0.99
"""Iterations in a row that leave more than this share of the gap before the method is given up."""
NEWTON_STEPS, ACCURACY = 200, 1e-6
"""Maximum steps of (10), and its accuracy as a share of how far the level is overstepped at the start."""
LEAST_DAMPING, MOST_DAMPING = 1e-12, 1e4
"""Bounds on the damping of the dual's Hessian in (10), whose entries are 1 at most."""


@dataclass(frozen=True)
class LevelMethod:
    """Solve to a gap of `tol` in at most `max_iter` cuts.

    tau: share of the gap that the level of (9) leaves open. is_absolute: the gap is that of Algorithm 1, Delta_i, not relative to the
    objective.
    """

    tol: float = 1e-6
    max_iter: int = 1000
    tau: float = TAU
    is_absolute: bool = False

    def solve(
        self,
        problem: SVMProblem,
        start: Vector | None = None,
        *,
        watch: Watch | None = None,
        on_state: StateCallback | None = None,
        resume_from: LevelState | None = None,
    ) -> SVMSolution:
        """Return the point of the least objective, with the bound of all cuts; a row a cut.
        It starts from `start` (projected) or zero, or continues from `resume_from`."""
        # Kelley's method gains nothing for long stretches, and comes out of them.
        watch, idle = watch or Watch(), Stall(MAX_IDLE if self.tau else self.max_iter)
        asked, problem = problem, problem.in_reach()  # beyond it, cuts are too steep to be distinguished
        cuts = Cuts(problem)
        if resume_from is None:
            best = point = _start(problem, start)
            bound, products, iteration = cuts.bound_of(point), int(bool(point.alpha.any())), 0
        else:
            cuts.restore(resume_from)
            best, point = resume_from.best.point(problem), resume_from.point.point(problem)
            bound, idle.idle = resume_from.bound, resume_from.idle
            products, iteration = resume_from.products, resume_from.iteration
        while True:
            if on_state is not None:
                of_cuts = (cuts.gradients, cuts.points, cuts.offsets, cuts.multipliers)
                points = (PointState.of(best), PointState.of(point))
                on_state(LevelState(*of_cuts, bound, products, iteration, idle.idle, *points))
            gap = best.gap
            cuts.add(point)
            if point.objective <= best.objective:
                best = point
            of_all = cuts.lower_bound(cuts.weights(abs(best.objective) or float(problem.C.sum())))
            # The best of three: all bounds so far, all cuts by the program's multipliers, and this point alone.
            bound = max(bound, of_all, cuts.bound_of(point), key=lambda found: found.value)
            best = best.with_bound(max(best.objective - bound.value, 0.0), bound.intercept)
            stalled = idle.check(best.gap < SLOWEST * gap)
            stop_reason = record_point(watch, iteration, products, best)
            solved, at_limit = best.relative_gap <= self.tol, iteration >= self.max_iter
            is_at_end = best.gap <= self.tol if self.is_absolute else solved
            outcome = verdict(stop_reason, solved=is_at_end, at_limit=at_limit, stalled=stalled)
            if outcome is not None:
                if is_at_end and not solved:
                    outcome = Outcome.STATIONARY  # as Algorithm 1 ends, which asks for no relative gap
                # As of every solver the b of alpha's own gradient, which is nearer to its optimum than that of the cuts.
                best = best.with_bound(best.gap, asked.bound(best.gradient, best.alpha)[1])
                return SVMSolution(best, iteration, products, outcome, watch.history, bound)
            level = bound.value + self.tau * (best.objective - bound.value)
            point = problem.at(cuts.nearest(point.alpha, level) if self.tau else cuts.minimizer)
            products += 1
            iteration += 1


def _start(problem: SVMProblem, start: Vector | None) -> FeasiblePoint:
    if start is None or not start.any():
        return problem.zero()
    return problem.at(project(start, problem.y, problem.C, 0.0)[0])


def _length(v: Vector) -> float:
    """Return |v|, whose square may overflow."""
    largest = float(np.abs(v).max(initial=0.0))
    return largest * float(np.linalg.norm(v / largest)) if largest > 0 else 0.0


class Cuts:
    """f >= offsets[j] + gradients[j]'alpha on P."""

    def __init__(self, problem: SVMProblem) -> None:
        self.problem = problem
        self.gradients, self.points = np.empty((0, problem.n)), np.empty((0, problem.n))
        self.offsets = np.empty(0)
        self.multipliers = np.empty(0)
        self.minimizer = np.zeros(problem.n)
        """Minimizer of (8) at the last call of `weights`, in P."""

    def restore(self, state: LevelState) -> None:
        """Restore the cuts of a state."""
        self.gradients, self.points = state.gradients, state.points
        self.offsets, self.multipliers = state.offsets, state.multipliers

    def add(self, point: FeasiblePoint) -> None:
        """Add the cut of a point."""
        self.gradients = np.vstack([self.gradients, point.gradient])
        self.points = np.vstack([self.points, point.alpha])
        self.offsets = np.append(self.offsets, point.objective - float(point.gradient @ point.alpha))
        self.multipliers = np.append(self.multipliers, 0.0)

    def weights(self, scale: float) -> Vector:
        """Return the multipliers of (8), one a cut; scale: about the size of f."""
        problem, count = self.problem, len(self.offsets)
        # In units of C, so that all variables of the program are from 0 to 1.
        in_units = self.gradients * problem.C
        # Unknowns: alpha in units of C, and the largest cut, which is minimized.
        found = linprog(
            np.append(np.zeros(problem.n), 1.0),
            A_ub=np.column_stack([in_units / scale, -np.ones(count)]),
            b_ub=-self.offsets / scale,
            A_eq=np.append(problem.y * problem.C / problem.C.max(), 0.0)[None],
            b_eq=[0.0],
            bounds=[*[(0.0, 1.0)] * problem.n, (None, None)],
            method="highs",
            options={"primal_feasibility_tolerance": 1e-9, "dual_feasibility_tolerance": 1e-9},
        )
        weights = np.zeros(count)
        if found.status == 0:
            weights = np.maximum(-found.ineqlin.marginals, 0.0)
            self.minimizer = project(found.x[:-1] * problem.C, problem.y, problem.C, 0.0)[0]
        # Any weights prove a bound: where the program fails, the last point alone does.
        if not weights.sum() > 0:
            weights[-1] = 1.0
        return np.asarray(weights / weights.sum())

    def lower_bound(self, weights: Vector) -> CutBound:
        """Return the bound by the means of the points, by weights (cuts,) that sum to 1."""
        cubic = (weights * np.square(self.points).sum(axis=1)) @ self.points
        return self._bound(weights @ self.gradients, weights @ self.points, cubic)

    def bound_of(self, point: FeasiblePoint) -> CutBound:
        """Return the bound by one point alone, the gap of which it proves."""
        return self._bound(point.gradient, point.alpha, float(point.alpha @ point.alpha) * point.alpha)

    def _bound(self, gradient: Vector, alpha: Vector, cubic: Vector) -> CutBound:
        problem = self.problem
        linear = 1.0 if problem.linear is None else problem.linear
        # Y K Y alpha out of the gradient 2 Y K Y alpha - 2 c + s alpha / rho, without a product.
        product = 0.5 * (gradient - cubic / problem.rho) + linear
        fall, intercept = problem.bound(gradient, np.zeros(problem.n))
        value = -float(alpha @ product) - 0.75 * _length(cubic) ** (4 / 3) / problem.rho - fall
        # A NaN, of numbers beyond double precision, proves nothing.
        return CutBound(value if value == value else -np.inf, float(intercept), alpha, cubic)

    def nearest(self, alpha: Vector, level: float) -> Vector:
        """Return (10): the point of P nearest to alpha where no cut is above the level."""
        largest = np.abs(self.gradients).max(axis=1)
        largest[largest == 0] = 1.0
        # Scaled by the largest entry, as squares of large ones overflow.
        norms: Vector = largest * np.linalg.norm(self.gradients / largest[:, None], axis=1)
        norms[norms == 0] = 1.0
        normals, offsets = self.gradients / norms[:, None], (self.offsets - level) / norms
        x, scaled = nearest_below(alpha, normals, offsets, self.problem.y, self.problem.C, self.multipliers * norms)
        self.multipliers = scaled / norms
        return x


def nearest_below(
    alpha: Vector, normals: NDArray[np.float64], offsets: Vector, y: Vector, C: Vector, mu: Vector
) -> tuple[Vector, Vector]:
    """Return (x, mu): the x in P nearest to alpha with offsets + normals x <= 0, and its multipliers.

    Projected Newton ascent (D. Bertsekas, SIAM J. Control Optim. 1982) on the dual D(mu) = min over x in P of
    |x - alpha|^2 / 2 + mu'(offsets + normals x), concave and piecewise quadratic, with gradient offsets + normals x(mu).
    """

    def at(mu: Vector) -> tuple[Vector, Vector, float]:
        x = project(alpha - mu @ normals, y, C, 0.0)[0]
        over = offsets + normals @ x
        return x, over, 0.5 * float((x - alpha) @ (x - alpha)) + float(mu @ over)

    # Not of the cuts' sizes: those of steep, old cuts far below the level outgrow what is overstepped, and alpha would do.
    accuracy = ACCURACY * max(float((offsets + normals @ alpha).max()), 0.0)
    x, over, value = at(mu)
    damping = LEAST_DAMPING
    for _ in range(NEWTON_STEPS):
        if np.abs(np.where(mu > 0, over, np.maximum(over, 0.0))).max() <= accuracy or damping > MOST_DAMPING:
            break
        # Only violated cuts and those with a multiplier move.
        moving, free = (mu > 0) | (over > 0), (x > 0) & (x < C)
        N = normals[np.ix_(moving, free)]
        # y'x = 0 is taken out of the normals, as x moves within it.
        N -= np.outer(N @ y[free], y[free]) / max(1, int(free.sum()))
        new = mu.copy()
        # Damped, as N N' is singular where cuts are many.
        new[moving] += solve(N @ N.T + damping * np.eye(len(N)), over[moving], assume_a="pos")
        np.maximum(new, 0.0, out=new)
        tried = at(new)
        if tried[2] > value:
            mu, (x, over, value), damping = new, tried, max(damping / 100, LEAST_DAMPING)
        else:
            # The dual did not rise: more damping makes the step shorter.
            damping *= 10
    return x, mu
