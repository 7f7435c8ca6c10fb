"""Projected gradient methods for (7): the paper's constrained gradient descent, and an accelerated one.

"accelerated": Nesterov's method with backtracking and restarts (B. O'Donoghue, E. Candes, Adaptive restart for
accelerated gradient schemes, Found. Comput. Math. 2015), then, once the face of the feasible set hardly changes, Newton
steps on it; where that takes long and the patterns are few, an interior point method. "gradient": Algorithm 2 of Liu et
al. 2009, its step sizes by the Armijo-Goldstein rule (13).
Both stop at a relative duality gap; the latter, if asked, as Algorithm 2 does, by the relative change of alpha.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from dkl.linalg.kernels.kernel_operators import Vector
from dkl.linalg.svm_dual import project
from dkl.solvers.svm.interface import (
    FeasiblePoint,
    GradientState,
    PointState,
    StateCallback,
    SVMProblem,
    SVMSolution,
    WalkState,
    record_point,
    relative_gap,
)
from dkl.solvers.svm.interior import FaceNewton, interior_point
from dkl.solvers.watch import Outcome, Stall, Watch, verdict

CHECK_EVERY = 10
"""Gradient steps from one check to the next."""
STABLE_SHARE = 0.01
"""Share of patterns that may change between free, zero and C from check to check for Newton to pay."""
HARD, FEW = 100, 2000
"""Steps after which at most FEW patterns are solved by an interior point method."""
SHRINK = 0.95
"""Factor on the Lipschitz constant after each step."""
ROUNDING = 1e-13
"""Share of |f| by which rounding may keep it above the quadratic bound."""
MAX_IDLE = 50
"""Checks in a row without a lower objective."""


@dataclass(frozen=True)
class Accelerated:
    """Solve to a relative gap of `tol` in at most `max_iter` gradient steps; momentum and newton: "accelerated" has both.

    by_change: end, and hand out the last alpha, where a step changes it by at most tol max(|alpha|, 1), whatever the gap.
    """

    tol: float = 1e-6
    max_iter: int = 10_000
    momentum: bool = True
    newton: bool = True
    by_change: bool = False

    def solve(
        self,
        problem: SVMProblem,
        start: Vector | None = None,
        *,
        watch: Watch | None = None,
        on_state: StateCallback | None = None,
        resume_from: GradientState | None = None,
    ) -> SVMSolution:
        """Return the point of the least gap that was met; a row every few steps.

        It starts from `start` (projected) or zero, or continues from `resume_from`.
        """
        watch, idle = watch or Watch(), Stall(MAX_IDLE)
        walk, newton = (
            _GradientSteps(problem, start if resume_from is None else None, self.momentum),
            FaceNewton(problem),
        )
        if resume_from is None:
            face, best, iteration = walk.face(), walk.point(), 0
        else:
            # A resumed walk has the same point, momentum and step size, so that its next step has the same bits.
            walk.restore(resume_from.walk)
            newton.products, idle.idle = resume_from.newton_products, resume_from.idle
            face, best, iteration = resume_from.face, resume_from.best.point(problem), resume_from.iteration

        def solution(outcome: Outcome) -> SVMSolution:
            return SVMSolution(best, iteration, walk.products + newton.products, outcome, watch.history)

        rests = False
        while True:
            # No state at rest: it does not hold `rests`, and a run resumed from it would take further steps.
            if on_state is not None and not rests:
                counts = (iteration, idle.idle, newton.products)
                on_state(GradientState(walk.state(), face, *counts, PointState.of(best)))
            point = walk.point()
            if not np.isfinite(point.objective):
                return solution(Outcome.NUMERICAL_ERROR)
            stalled = idle.check(point.objective < best.objective)
            # The point of the least gap is handed out: neither gap nor objective falls monotonically.
            best = point if self.by_change else min(best, point, key=relative_gap)
            # How many patterns changed between free, zero and C since the last check.
            changed, face = np.count_nonzero(walk.face() != face), walk.face()
            stop_reason = record_point(watch, iteration, walk.products + newton.products, best)
            solved, at_limit = best.relative_gap <= self.tol, iteration >= self.max_iter
            is_at_end = rests if self.by_change else solved
            outcome = verdict(stop_reason, solved=is_at_end, at_limit=at_limit, stalled=stalled)
            if outcome is not None:
                return solution(Outcome.STATIONARY if is_at_end and not solved else outcome)
            if self.newton and iteration:
                is_stable = bool(changed <= STABLE_SHARE * problem.n)
                better = self._second_order(walk, newton, point, iteration, is_stable, watch)
                # Newton's point starts a new walk: its momentum would point elsewhere.
                if better is not point:
                    walk.restart(better)
                    face, best = walk.face(), min(best, better, key=relative_gap)
                    if best.relative_gap <= self.tol:
                        record_point(watch, iteration, walk.products + newton.products, best)
                        return solution(Outcome.SOLVED)
            for _ in range(min(CHECK_EVERY, self.max_iter - iteration)):
                before = walk.alpha
                walk.step()
                iteration += 1
                rests = self.by_change and _changed_by(before, walk.alpha) <= self.tol
                if rests:
                    break

    def _second_order(
        self,
        walk: _GradientSteps,
        newton: FaceNewton,
        point: FeasiblePoint,
        iteration: int,
        is_stable: bool,
        watch: Watch,
    ) -> FeasiblePoint:
        """Return a better point by second derivatives, if it is time for them; `point` if they gain nothing."""
        # Once, at HARD steps: the face never settles where the kernel matrix is all but singular.
        # Met exactly, as HARD is a multiple of CHECK_EVERY.
        if iteration == HARD and walk.problem.n <= FEW:
            found = interior_point(walk.problem, self.tol, watch=watch.quiet())
            walk.products += found.products
            return min(point, found.point, key=relative_gap)
        # Newton pays only where the face hardly changes, as it solves on one face.
        return (newton.step(point) if is_stable else None) or point


def _changed_by(before: Vector, alpha: Vector) -> float:
    """Return the relative change that Algorithm 2 ends by."""
    return float(np.linalg.norm(alpha - before)) / max(float(np.linalg.norm(before)), 1.0)


class _GradientSteps:
    """Gradient steps with or without momentum; products with K go along by linearity."""

    def __init__(self, problem: SVMProblem, start: Vector | None, momentum: bool) -> None:
        self.problem, self.momentum = problem, momentum
        self.products = 0
        self.shift = 0.0
        self._point: FeasiblePoint | None = None
        # A start need not be feasible: it is projected onto P.
        if start is not None and start.any():
            alpha, _ = project(start, problem.y, problem.C, 0.0)
            point = problem.at(alpha)
            self.products += 1
        else:
            point = problem.zero()
        self.lipschitz = 0.0
        self.restart(point)
        self._point = point

    def _curvature(self, alpha: Vector, g: Vector) -> float:
        """Return f's curvature along its gradient g within y'd = 0: one product instead of many backtrackings."""
        problem = self.problem
        # Within y'd = 0, as every feasible change is.
        d = g - problem.y * (float(problem.y @ g) / problem.n)
        largest = float(np.abs(d).max(initial=0.0))
        if not 0 < largest < np.inf:
            return 1.0
        # Its length is no matter: by a power of 2 its square comes within double precision.
        d = d / 2.0 ** min(int(np.frexp(largest)[1]), 1023)
        square = float(d @ d)
        self.products += 1
        found = 2 * float(d @ problem.product(d)) / square + float(alpha @ alpha) / problem.rho
        return found if 0 < found < np.inf else 1.0

    def restart(self, point: FeasiblePoint) -> None:
        # The step size stays: backtracking corrects it.
        self.alpha, self.product = point.alpha, point.product
        self._point = None  # one of second order may have its gap of another product
        self.ahead, self.ahead_product, self.theta = self.alpha, self.product, 1.0

    def state(self) -> WalkState:
        """Return the state; its arrays are not written to."""
        values = {field.name: getattr(self, field.name) for field in fields(WalkState)}
        return WalkState(**values | {name: float(values[name]) for name in ("theta", "lipschitz", "shift")})

    def restore(self, state: WalkState) -> None:
        """Continue from the state of another walk."""
        for field in fields(state):
            setattr(self, field.name, getattr(state, field.name))
        self._point = None
        self.theta = np.float64(self.theta)  # whose square is NumPy's, as in later steps

    def point(self) -> FeasiblePoint:
        if self._point is None:
            self._point = self.problem.at(self.alpha, self.product)
        return self._point

    def face(self) -> np.ndarray:
        """Return 0 for coefficients at zero, 1 for free ones, 2 for those at C."""
        return (self.alpha > 0).astype(np.int8) + (self.alpha >= self.problem.C)

    @np.errstate(over="ignore", invalid="ignore")  # of kernels near the ends of double: the outcome reports it
    def step(self) -> None:
        problem, x = self.problem, self.ahead
        gradient = problem.gradient(x, self.ahead_product)
        value = problem.objective(x, self.ahead_product)
        self.lipschitz = self.lipschitz or self._curvature(x, gradient)
        while True:
            new, self.shift = project(x - gradient / self.lipschitz, problem.y, problem.C, self.shift)
            product = problem.product(new)
            self.products += 1
            d = new - x
            if not d.any():  # nothing is left to take back, and rounding alone would never end
                break
            # Backtracking: f must be below the quadratic with this Lipschitz constant.
            bound = value + float(gradient @ d) + 0.5 * self.lipschitz * float(d @ d)
            if not problem.objective(new, product) > bound + ROUNDING * abs(value):  # nor where either is not a number
                break
            self.lipschitz *= 2
        weight = 0.0
        # The restart of O'Donoghue and Candes: momentum that points against the step is dropped.
        if self.momentum and float((x - new) @ (new - self.alpha)) <= 0:
            theta = (1 + np.sqrt(1 + 4 * self.theta**2)) / 2
            weight, self.theta = (self.theta - 1) / theta, theta
        else:
            self.theta = 1.0
        self.ahead = new + weight * (new - self.alpha)
        # The product of the extrapolated point by linearity, without K.
        self.ahead_product = product + weight * (product - self.product)
        self.alpha, self.product, self._point = new, product, None
        # The constant may fall again: a smaller one allows longer steps.
        self.lipschitz *= SHRINK
