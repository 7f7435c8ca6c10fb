"""The projected subgradient method for the machine of Liu et al. 2009, (7).

    alpha <- the projection of alpha - s_k g / |g| onto P,    s_k = R / sqrt(k),    R = max over P of |alpha|

N. Shor, Minimization methods for non-differentiable functions, Springer 1985; A. Nemirovski, Efficient methods in convex programming,
1994. It takes nothing of the objective f but gradients g, as of one that is not smooth: of N > 1 points the best f is at most
R L (1 + ln N / 2) / sqrt(N) above the least, |g| <= L, as no point of P is farther than R from the start, 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dkl.linalg.svm_dual import project
from dkl.problems.svm.problem import NeighborhoodSVM, largest_square
from dkl.solvers.svm.interface import SVMSolution, record_point
from dkl.solvers.watch import Watch, verdict


@dataclass(frozen=True)
class ProjectedSubgradient:
    """Solve to a relative gap of `tol` in at most `max_iter` steps from zero; a row a step, of the best point so far."""

    tol: float = 1e-6
    max_iter: int = 10_000

    def solve(self, problem: NeighborhoodSVM, *, watch: Watch | None = None) -> SVMSolution:
        """Return the point of the least objective, with the best lower bound of any point that was met."""
        watch, shift = watch or Watch(), 0.0
        asked, problem = problem, problem.in_reach()  # beyond it P is wider than any alpha better than 0
        radius = float(np.sqrt(largest_square(problem.C, problem.y)))
        best = point = problem.zero()
        lower = point.objective - point.gap
        for step in range(self.max_iter + 1):
            lower = max(lower, point.objective - point.gap)
            if point.objective <= best.objective:
                best = point
            best = best.with_bound(max(best.objective - lower, 0.0), best.intercept)
            stop_reason = record_point(watch, step, step, best)
            solved, at_limit = best.relative_gap <= self.tol, step >= self.max_iter
            outcome = verdict(stop_reason, solved=solved, at_limit=at_limit)
            if outcome is not None:
                best = best.with_bound(best.gap, asked.bound(best.gradient, best.alpha)[1])
                return SVMSolution(best, step, step, outcome, watch.history)
            length = radius / np.sqrt(step + 1) / float(np.linalg.norm(point.gradient))
            alpha, shift = project(point.alpha - length * point.gradient, problem.y, problem.C, shift)
            point = problem.at(alpha)
        raise AssertionError(step)
