"""Projected gradient methods for (7): the paper's constrained gradient descent, and an accelerated one.

"accelerated": Nesterov's method with backtracking and restarts (B. O'Donoghue, E. Candes, Adaptive restart for
accelerated gradient schemes, Found. Comput. Math. 2015), then, once the face of the feasible set hardly changes, Newton
steps on it; where that takes long and the patterns are few, an interior point method. "gradient": Algorithm 2 of Liu et
al. 2009, its step sizes by the Armijo-Goldstein rule (13).
Both stop at a relative duality gap.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dkl.linalg.projections import project
from dkl.problems.neighborhood_svm import NeighborhoodSVM, Point, Vector
from dkl.solvers.result import Outcome
from dkl.solvers.svm_face import FaceNewton
from dkl.solvers.svm_interior import interior_point

CHECK_EVERY = 10
STABLE_SHARE = 0.01
"""Of the patterns that may have changed between free, zero and C since the last check, for Newton steps to pay."""
HARD, FEW = 100, 2000
"""Steps after which up to so many patterns are solved by an interior point method."""
SHRINK = 0.95
ROUNDING = 1e-13
PATIENCE = 50
"""Checks in a row without a lower objective."""


@dataclass(frozen=True)
class SVMSolution:
    """The point reached, products with K spent, and a row a check: iteration, products, objective, relative_gap."""

    point: Point
    n_iter: int
    products: int
    outcome: Outcome
    history: list[dict[str, Any]]


@dataclass(frozen=True)
class Accelerated:
    """Solve to a relative gap of `tol` in at most `max_iter` gradient steps. At each check `watch` is given the history's
    row, and `kept` the alpha of the least gap."""

    tol: float = 1e-6
    max_iter: int = 10_000
    momentum: bool = True
    newton: bool = True
    watch: Callable[[dict[str, Any]], Any] | None = None
    kept: Callable[[Vector], Any] | None = None

    def solve(self, problem: NeighborhoodSVM, start: Vector | None = None) -> SVMSolution:
        walk = _Walk(problem, start, self.momentum)
        newton = FaceNewton(problem)
        history: list[dict[str, Any]] = []
        face, idle, iteration = walk.face(), 0, 0
        best = walk.point()
        while True:
            point = walk.point()
            idle = 0 if point.objective < best.objective else idle + 1
            best = min(best, point, key=_relative_gap)
            changed, face = np.count_nonzero(walk.face() != face), walk.face()
            history.append(self._row(iteration, walk.products + newton.products, best))
            outcome = self._outcome(best, iteration, idle)
            if outcome is None and self.newton and iteration:
                better = None
                if iteration == HARD and problem.n <= FEW:
                    walk.products += 1
                    better = min(point, interior_point(problem, self.tol), key=_relative_gap)
                elif changed <= STABLE_SHARE * problem.n:
                    better = newton.step(point)
                if better is not None and better is not point:
                    walk.restart(better)
                    face, best = walk.face(), min(best, better, key=_relative_gap)
                    outcome = self._outcome(best, 0, 0)
                    if outcome is not None:
                        history.append(self._row(iteration, walk.products + newton.products, best))
            if outcome is not None:
                return SVMSolution(best, iteration, walk.products + newton.products, outcome, history)
            for _ in range(min(CHECK_EVERY, self.max_iter - iteration)):
                walk.step()
                iteration += 1

    def _outcome(self, best: Point, iteration: int, idle: int) -> Outcome | None:
        if best.relative_gap <= self.tol:
            return Outcome.SOLVED
        if iteration >= self.max_iter:
            return Outcome.ITERATION_LIMIT
        return Outcome.STALLED if idle > PATIENCE else None

    def _row(self, iteration: int, products: int, point: Point) -> dict[str, Any]:
        row = {
            "iteration": iteration,
            "products": products,
            "objective": point.objective,
            "relative_gap": point.relative_gap,
        }
        if self.kept is not None:
            self.kept(point.alpha)
        if self.watch is not None:
            self.watch(dict(row))
        return row


def _relative_gap(point: Point) -> float:
    return point.relative_gap


class _Walk:
    """Gradient steps with or without momentum; products with K go along by linearity."""

    def __init__(self, problem: NeighborhoodSVM, start: Vector | None, momentum: bool) -> None:
        self.problem, self.momentum = problem, momentum
        self.products = 0
        self.shift = 0.0
        point = problem.zero()
        if start is not None and start.any():
            alpha, _ = project(start, problem.y, problem.C, 0.0)
            point = problem.at(alpha)
            self.products += 1
        self.lipschitz = 0.0
        self.restart(point)

    def _curvature(self, alpha: Vector, g: Vector) -> float:
        """Of f along its gradient g within y'd = 0: one product tells what many backtrackings would."""
        problem = self.problem
        d = g - problem.y * (float(problem.y @ g) / problem.n)
        square = float(d @ d)
        if not 0 < square < np.inf:
            return 1.0
        self.products += 1
        found = 2 * float(d @ problem.product(d)) / square + float(alpha @ alpha) / problem.rho
        return found if 0 < found < np.inf else 1.0

    def restart(self, point: Point) -> None:
        self.alpha, self.product = point.alpha, point.product
        self.ahead, self.ahead_product, self.theta = self.alpha, self.product, 1.0

    def point(self) -> Point:
        return self.problem.at(self.alpha, self.product)

    def face(self) -> np.ndarray:
        """0 at zero, 1 free, 2 at C."""
        return (self.alpha > 0).astype(np.int8) + (self.alpha >= self.problem.C)

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
            if not d.any():  # nothing is left to take back, and rounding alone would go on for ever
                break
            bound = value + float(gradient @ d) + 0.5 * self.lipschitz * float(d @ d)
            if problem.objective(new, product) <= bound + ROUNDING * abs(value):
                break
            self.lipschitz *= 2
        weight = 0.0
        if self.momentum and float((x - new) @ (new - self.alpha)) <= 0:
            theta = (1 + np.sqrt(1 + 4 * self.theta**2)) / 2
            weight, self.theta = (self.theta - 1) / theta, theta
        else:
            self.theta = 1.0
        self.ahead = new + weight * (new - self.alpha)
        self.ahead_product = product + weight * (product - self.product)
        self.alpha, self.product = new, product
        self.lipschitz *= SHRINK
