"""Projected gradient methods for (7): the paper's constrained gradient descent, and an accelerated one.

"accelerated": Nesterov's method with backtracking and restarts (B. O'Donoghue, E. Candes, Adaptive restart for
accelerated gradient schemes, Found. Comput. Math. 2015), then, once the face of the feasible set hardly changes, Newton
steps on it. "gradient": Algorithm 2 of Liu et al. 2009, its step sizes by the Armijo-Goldstein rule (13).
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

CHECK_EVERY = 10
STABLE_SHARE = 0.01
"""Of the patterns that may have changed between free, zero and C since the last check, for Newton steps to pay."""
SHRINK = 0.95
ROUNDING = 1e-13


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
    """Solve to a relative gap of `tol` in at most `max_iter` gradient steps."""

    tol: float = 1e-6
    max_iter: int = 10_000
    momentum: bool = True
    newton: bool = True
    watch: Callable[[dict[str, Any]], Any] | None = None

    def solve(self, problem: NeighborhoodSVM, start: Vector | None = None) -> SVMSolution:
        walk = _Walk(problem, start, self.momentum)
        newton = FaceNewton(problem)
        history: list[dict[str, Any]] = []
        face, stable, idle = walk.face(), False, 0
        best = walk.point()
        for iteration in range(self.max_iter + 1):
            if iteration % CHECK_EVERY == 0 or iteration == self.max_iter:
                point = walk.point()
                idle = 0 if point.objective < best.objective else idle + 1
                if point.relative_gap < best.relative_gap:
                    best = point
                changed, face = np.count_nonzero(walk.face() != face), walk.face()
                stable = bool(changed <= STABLE_SHARE * problem.n)
                history.append(self._row(iteration, walk.products + newton.products, best))
                if best.relative_gap <= self.tol:
                    return SVMSolution(best, iteration, walk.products + newton.products, Outcome.SOLVED, history)
                if idle > 50:
                    return SVMSolution(best, iteration, walk.products + newton.products, Outcome.STALLED, history)
                if self.newton and iteration and stable:
                    better = newton.step(point)
                    if better is not None:
                        walk.restart(better)
                        face = walk.face()
                        if better.relative_gap < best.relative_gap:
                            best = better
                        if best.relative_gap <= self.tol:
                            spent = walk.products + newton.products
                            history.append(self._row(iteration, spent, best))
                            return SVMSolution(best, iteration, spent, Outcome.SOLVED, history)
            walk.step()
        return SVMSolution(best, self.max_iter, walk.products + newton.products, Outcome.ITERATION_LIMIT, history)

    def _row(self, iteration: int, products: int, point: Point) -> dict[str, Any]:
        row = {
            "iteration": iteration,
            "products": products,
            "objective": point.objective,
            "relative_gap": point.relative_gap,
        }
        if self.watch is not None:
            self.watch(dict(row))
        return row


class _Walk:
    """Gradient steps with or without momentum; products with K go along by linearity."""

    def __init__(self, problem: NeighborhoodSVM, start: Vector | None, momentum: bool) -> None:
        self.problem, self.momentum = problem, momentum
        self.products = 0
        self.shift = 0.0
        self.lipschitz = 1.0
        point = problem.zero()
        if start is not None and start.any():
            alpha, _ = project(start, problem.y, problem.C, 0.0)
            point = problem.at(alpha)
            self.products += 1
        self.restart(point)

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
