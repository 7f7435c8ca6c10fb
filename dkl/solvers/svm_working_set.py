"""(7) by working sets: solved on some of the rows, to which those are added that the gradient of the others asks for.

Most rows of a large problem end with alpha_i = 0. K of the working set is small and held in memory; of all others only the
columns at the support are ever made, once a round, for the gap over all rows and the next working set (E. Osuna, R.
Freund, F. Girosi, An improved training algorithm for support vector machines, 1997; with the growing sets of M. Massias,
A. Gramfort, J. Salmon, Celer, ICML 2018). Where most rows are wanted all are taken at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from dkl.linalg.projections import project
from dkl.problems.neighborhood_svm import NeighborhoodSVM, PartedKernel, Point, Vector
from dkl.solvers.result import Outcome
from dkl.solvers.svm_gradient import Accelerated, SVMSolution

Rows = NDArray[np.intp]

SMALLEST = 2000
"""Rows that are solved at once: so small a kernel matrix takes no time."""
FIRST_SHARE, FEWEST_FIRST, MOST_FIRST = 8, 500, 4000
LEAST_OF_A_CLASS = 100
GROWTH = 2
"""New rows a round at most, over the support."""
NEAR = -0.2
"""Excess of rows without alpha that stay: a tenth of the way from the margin to the decision."""
MOST = 0.4
"""Of all rows, from which on all are taken, where K of all fits."""
FEW = 0.01
"""Of the working set: when fewer rows than that ask to come in, it is solved to the end."""
LOOSE, TIGHTER, TIGHTEST = 0.1, 0.1, 0.3
"""Relative gaps of a round: in the first ones; of the gap over all rows, later; of the accuracy wanted, in the end."""
SURE = 10
"""Times the accuracy wanted: a round that is solved no better than that looks at all rows in the precision of parts."""
PATIENCE = 4
"""Rounds on the same rows, without a gap that falls."""


@dataclass(frozen=True)
class WorkingSets:
    """Solve to a relative gap of `inner.tol` over all rows, as the problem's kernel has it.

    A round is a row of the history, with its number of `rows`, and its alpha is kept; where all rows are in, each of the
    inner solver's is.
    """

    inner: Accelerated
    smallest: int = SMALLEST
    seed: int = 0

    def solve(self, problem: NeighborhoodSVM, start: Vector | None = None) -> SVMSolution:
        if start is not None and not start.any():
            start = None
        run = _Run(self, problem)
        if problem.n <= self.smallest:
            run.take_all()
        elif start is None:
            run.rows = first_rows(problem.y, self.seed)
        else:
            run.begin(problem.at(project(start, problem.y, problem.C, 0.0)[0]))
        while run.outcome is None:
            run.round(start if run.point is None else run.point.alpha)
        assert run.best is not None
        return SVMSolution(run.best, run.n_iter, run.products, run.outcome, run.history)


class _Run:
    """Where a solution stands between rounds."""

    rows: Rows

    def __init__(self, method: WorkingSets, problem: NeighborhoodSVM) -> None:
        self.method, self.problem, self.wanted = method, problem, method.inner.tol
        self.kernel = cast(PartedKernel, problem.kernel)
        self.tol = max(LOOSE, self.wanted)
        self.n_iter, self.products, self.idle = 0, 0, 0
        self.point: Point | None = None
        self.best: Point | None = None
        self.is_rough = self.best_is_rough = False
        self.grown = True
        self.outcome: Outcome | None = None
        self.history: list[dict[str, Any]] = []

    def begin(self, point: Point) -> None:
        """At a point that is near to the solution."""
        self.point, self.products = point, 1
        self.rows = np.flatnonzero(point.alpha)
        self.choose(point, falling=False)

    def take_all(self) -> None:
        self.rows, self.tol = np.arange(self.problem.n), self.wanted

    def round(self, alpha: Vector | None) -> None:
        """Solve on the working set, look at all rows, then end or choose the next set."""
        solution, point = self.solved(alpha)
        self.point = point
        if self.best_is_rough and not self.is_rough:  # a gap told roughly may be too small for any true one
            self.best = None
        before = np.inf if self.best is None else self.best.relative_gap
        if self.best is None or point.relative_gap < before:
            self.best, self.best_is_rough = point, self.is_rough
        gap = self.best.relative_gap
        self.idle = 0 if self.grown or gap < 0.9 * before else self.idle + 1
        self.tell()
        if self.method.inner.kept is not None:
            self.method.inner.kept(point.alpha)
        if gap <= self.wanted and not self.best_is_rough:
            self.outcome = Outcome.SOLVED
        elif self.n_iter >= self.method.inner.max_iter:
            self.outcome = Outcome.ITERATION_LIMIT
        elif self.idle > PATIENCE or (self.whole and not solution.outcome.converged):
            self.outcome = Outcome.STALLED
        else:
            falling = point.relative_gap < 0.5 * before
            # By the b of the gap no more rows of one class ask than of the other: hardly any where one is small.
            self.choose(point if falling else replace(point, intercept=solution.point.intercept), falling)
        if self.outcome is not None and self.best_is_rough:
            self.best = self.problem.at(self.best.alpha)

    @property
    def whole(self) -> bool:
        return len(self.rows) == self.problem.n

    def solved(self, alpha: Vector | None) -> tuple[SVMSolution, Point]:
        """(the working set's solution, its point among all rows)."""
        problem, rows, inner = self.problem, self.rows, self.method.inner
        part = self.kernel.part(rows)
        is_exact = part.dtype == self.kernel.dtype
        among = problem.among(rows, part)
        if not is_exact and self.point is not None and not self.is_rough:
            among = among.corrected(self.point.alpha[rows], self.point.product[rows])
        steps = inner.max_iter - self.n_iter
        solver = replace(
            inner, tol=self.tol, max_iter=steps, watch=self.counted(), kept=inner.kept if self.whole else None
        )
        solution = solver.solve(among, None if alpha is None else alpha[rows])
        self.n_iter += solution.n_iter
        self.products += solution.products
        if self.whole and is_exact:
            return solution, solution.point
        found = np.zeros(problem.n)
        found[rows] = solution.point.alpha
        self.products += 1
        was_rough, self.is_rough = self.is_rough, not is_exact and self.tol > SURE * self.wanted
        if self.is_rough:
            return solution, problem.at(found, problem.y * self.kernel.roughly(problem.y * found))
        return solution, problem.at(found, self.product(found, was_rough))

    def product(self, alpha: Vector, anew: bool) -> Vector:
        """Y K Y alpha; from the last one where fewer columns tell the two apart: alphas at C stay."""
        if self.point is not None and not anew:
            change = alpha - self.point.alpha
            if np.count_nonzero(change) < np.count_nonzero(alpha):
                return np.asarray(self.point.product + self.problem.product(change))
        return self.problem.product(alpha)

    def choose(self, point: Point, falling: bool) -> None:
        """The rows with an alpha, those near to it while the gap falls, and the most eager of those that ask for one."""
        if self.whole:  # once more, in higher precision
            self.tol, self.grown = TIGHTEST * self.wanted, False
            return
        excess, support = self.problem.excess(point), point.alpha > 0
        inside = np.zeros(self.problem.n, bool)
        inside[self.rows] = True
        asking = np.flatnonzero((excess > 0) & ~inside)
        count, self.grown = int(np.count_nonzero(support)), asking.size > 0
        if count + len(asking) > MOST * self.problem.n and self.kernel.fits:
            self.take_all()
            return
        loosest = max(TIGHTER * point.relative_gap, TIGHTEST * self.wanted)
        self.tol = TIGHTEST * self.wanted if len(asking) <= FEW * len(self.rows) else min(self.tol, loosest)
        room = max(GROWTH * count, FEWEST_FIRST)
        if len(asking) > room:
            asking = asking[np.argpartition(-excess[asking], room)[:room]]
        stay = inside & (support | (excess > NEAR)) if falling else inside
        self.rows = np.union1d(np.flatnonzero(stay), asking)

    def counted(self) -> Callable[[dict[str, Any]], None] | None:
        """What takes the inner solver's rows, where they are of all rows: into the history, with the rounds before."""
        if not self.whole:
            return None
        n_iter, products = self.n_iter, self.products

        def take(row: dict[str, Any]) -> None:
            moved = {"iteration": row["iteration"] + n_iter, "products": row["products"] + products}
            self.take({**row, **moved, "rows": len(self.rows)})

        return take

    def tell(self) -> None:
        """The round, if the inner solver has not told it."""
        assert self.best is not None
        if not self.whole:
            row = {"iteration": self.n_iter, "products": self.products, "rows": len(self.rows)}
            self.take(row | {"objective": self.best.objective, "relative_gap": self.best.relative_gap})

    def take(self, row: dict[str, Any]) -> None:
        self.history.append(row)
        if self.method.inner.watch is not None:
            self.method.inner.watch(dict(row))


def first_rows(y: Vector, seed: int) -> Rows:
    """Drawn at random, as many of each class as it has of all, but a hundred at least."""
    rng = np.random.default_rng(seed)
    share = min(max(len(y) // FIRST_SHARE, FEWEST_FIRST), MOST_FIRST) / len(y)
    drawn = []
    for sign in (-1.0, 1.0):
        rows = np.flatnonzero(y == sign)
        count = min(len(rows), max(int(share * len(rows)), LEAST_OF_A_CLASS))
        drawn.append(rng.choice(rows, count, replace=False))
    return np.sort(np.concatenate(drawn))
