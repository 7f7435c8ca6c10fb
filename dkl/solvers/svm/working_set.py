"""Solver of (7) by working sets: on some of the rows, to which those that violate optimality are added.

Most rows of a large problem end with alpha_i = 0. K of the working set is small and held in memory; of all others only the
columns at the support are ever made, once a round, for the gap over all rows and the next working set (E. Osuna, R.
Freund, F. Girosi, An improved training algorithm for support vector machines, 1997; with the growing sets of M. Massias,
A. Gramfort, J. Salmon, Celer, ICML 2018). Where most rows are wanted all are taken at once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from dkl.linalg.kernels.kernel_operators import KernelOperator, PartedKernel, Vector
from dkl.linalg.svm_dual import pair_steps, project
from dkl.solvers.svm.gradient import Accelerated
from dkl.solvers.svm.interface import (
    SMALLEST_IN_PARTS,
    FeasiblePoint,
    GradientState,
    StateCallback,
    SVMProblem,
    SVMSolution,
    WorkingSetState,
    point_state,
    record_point,
)
from dkl.solvers.watch import Outcome, Stall, Watch, verdict

Rows = NDArray[np.intp]

FIRST_SHARE, FEWEST_FIRST, MOST_FIRST = 8, 500, 4000
"""Rows over those of the first working set, and bounds on these."""
LEAST_OF_A_CLASS = 100
"""Least rows of a class in it."""
GROWTH = 2
"""Most new rows of a round, as a multiple of the support's size."""
NEAR = -0.2
"""Excess of rows without alpha that stay: a tenth of the way from the margin to the decision."""
MOST = 0.4
"""Share of all rows from which on all are taken, where K of all fits."""
FEW = 0.01
"""Share of the working set: when fewer rows than that ask to come in, it is solved to the end."""
LOOSE, TIGHTER, TIGHTEST = 0.1, 0.1, 0.3
"""Relative gaps of a round: in the first ones; of the gap over all rows, later; of the accuracy wanted, in the end."""
START = 1e-3
"""Share of the wanted accuracy to which a start of few rows is solved: it takes a round more than the accuracy itself."""
SURE = 10
"""Times the accuracy wanted: a round that is solved no better than that looks at all rows in the precision of parts."""
MAX_IDLE = 4
"""Rounds in a row on the same rows, without a gap that falls."""
BROKEN_OFF = (Outcome.STOPPED, Outcome.TIME_LIMIT)
BROKEN_OFF_WHOLE = (*BROKEN_OFF, Outcome.ITERATION_LIMIT)
"""Outcomes of a round's solver that has not come to its end."""


class PartedSVM(SVMProblem, Protocol):
    """A problem that can be restricted to some rows."""

    def among(self, rows: Rows, kernel: KernelOperator) -> Any:
        """Return the problem on `rows`, alpha = 0 on the others; `kernel`: K of these. It can be `corrected`."""

    def excess(self, point: Any) -> Vector:
        """Return by how much (n,) the gap would have each alpha_i grow; below zero, shrink."""


@dataclass(frozen=True)
class WorkingSets:
    """Solve to a relative gap of `inner.tol` over all rows, as the problem's kernel has it.

    A round is a row of the history, with its number of `rows`, and the state at its end is kept; where all rows are in,
    each of the inner solver's is. Within a round the time limit is looked at, but no row is recorded.
    """

    inner: Accelerated
    smallest: int = SMALLEST_IN_PARTS
    seed: int = 0

    def solve(
        self,
        problem: PartedSVM,
        start: Vector | None = None,
        *,
        watch: Watch | None = None,
        on_state: StateCallback | None = None,
        resume_from: WorkingSetState | None = None,
    ) -> SVMSolution:
        """Return the point of the least gap over all rows met, from `start` (projected), zero, or `resume_from`."""
        if start is not None and not start.any():
            start = None
        run, inner = _WorkingSetState(self, problem, watch or Watch(), on_state), None
        if resume_from is not None:
            run.restore(resume_from)
            inner = resume_from.inner
            if inner is None:
                run.check()
        elif problem.n <= self.smallest:
            # Few rows: the working set is all of them at once.
            run.take_all()
            start = run.by_pairs(start)
        elif start is None:
            run.begin_at_zero()
        else:
            run.begin(problem.at(project(start, problem.y, problem.C, 0.0)[0]))
        while run.outcome is None:
            run.round(start if run.point is None else run.point.alpha, inner)
            inner = None
        assert run.best is not None
        return SVMSolution(run.best, run.n_iter, run.products, run.outcome, run.watch.history)


NUMBERS = ("tol", "n_iter", "products", "is_rough", "best_is_rough", "grown", "before", "intercept")
"""Names of the numbers of a run that its state has too."""


class _WorkingSetState:
    """State of a solution between rounds.

    Of the last one: before, the least relative gap before it; intercept and ended, what the working set's solution had.
    """

    rows: Rows

    def __init__(self, method: WorkingSets, problem: PartedSVM, watch: Watch, on_state: StateCallback | None) -> None:
        self.method, self.problem, self.wanted = method, problem, method.inner.tol
        self.watch, self.on_state = watch, on_state
        self.kernel = cast(PartedKernel, problem.kernel)
        # The first rounds are loose: the working set still changes, and their gap is of the set alone.
        self.tol = max(LOOSE, self.wanted)
        self.n_iter, self.products, self.idle = 0, 0, Stall(MAX_IDLE)
        self.point: FeasiblePoint | None = None
        self.best: FeasiblePoint | None = None
        self.is_rough = self.best_is_rough = False
        self.grown = True
        self.before, self.intercept, self.ended = np.inf, 0.0, Outcome.SOLVED
        self.outcome: Outcome | None = None

    def state(self, inner: GradientState | None = None) -> WorkingSetState:
        """Return all that the next check, or the round that is under way with state `inner`, goes by."""
        numbers: dict[str, Any] = {name: getattr(self, name) for name in NUMBERS}
        numbers |= {name: float(numbers[name]) for name in ("tol", "before", "intercept")}
        points = point_state(self.point), point_state(self.best)
        return WorkingSetState(
            self.rows, **numbers, idle=self.idle.idle, ended=self.ended, point=points[0], best=points[1], inner=inner
        )

    def restore(self, state: WorkingSetState) -> None:
        """Continue from the state of another run."""
        for name in NUMBERS:
            setattr(self, name, getattr(state, name))
        self.rows, self.ended, self.idle.idle = state.rows, state.ended, state.idle
        points = [None if point is None else point.point(self.problem) for point in (state.point, state.best)]
        self.point, self.best = points

    def begin_at_zero(self) -> None:
        """Start at zero on rows drawn at random, where no start is given."""
        self.rows = first_rows(self.problem.y, self.method.seed)
        self.outcome = self.watch.outcome
        if self.outcome is not None:
            self.best = self.problem.zero()

    def begin(self, point: FeasiblePoint) -> None:
        """Start at a point that is near to the solution."""
        self.point, self.products = point, 1
        self.outcome = self.watch.outcome
        if self.outcome is not None:
            self.best = point
            return
        # Every row with a coefficient is in, or it could not become smaller.
        self.rows = np.flatnonzero(point.alpha)
        self.choose(point, falling=False)

    def take_all(self) -> None:
        """Take all rows at once, to the accuracy wanted."""
        self.rows, self.tol = np.arange(self.problem.n), self.wanted

    def by_pairs(self, start: Vector | None) -> Vector | None:
        """Return alpha near to the solution, or at it, where rows are few; its rounds count as steps."""
        if not takes_pairs(self.problem.n, self.method.inner.max_iter):
            return start
        point = (
            self.problem.zero()
            if start is None
            else self.problem.at(project(start, self.problem.y, self.problem.C, 0.0)[0])
        )
        if record_point(self.inner_watch(), 0, 0, point) is not None:
            return start
        alpha, rounds = pair_start(self.problem, start, START * self.wanted, self.method.inner.max_iter)
        self.n_iter, self.products = rounds, rounds
        return alpha

    def round(self, alpha: Vector | None, inner: GradientState | None = None) -> None:
        """Solve on the working set, look at all rows, then end or choose the next set.

        inner: the state that the working set's solver resumes from.
        """
        solution, point = self.solved(alpha, inner)
        self.point, self.intercept, self.ended = point, solution.point.intercept, solution.outcome
        if self.best_is_rough and not self.is_rough:  # a gap computed roughly may be too small for any true one
            self.best = None
        self.before = np.inf if self.best is None else self.best.relative_gap
        if self.best is None or point.relative_gap < self.before:
            self.best, self.best_is_rough = point, self.is_rough
        self.idle.check(self.grown or self.best.relative_gap < 0.9 * self.before)
        # An interrupted round cannot be resumed; where all rows are in, the inner solver has kept its own state.
        if self.on_state is not None and self.ended not in (BROKEN_OFF_WHOLE if self.whole else BROKEN_OFF):
            self.on_state(self.state())
        self.check()

    def check(self) -> None:
        """End after a round, or choose the next set."""
        assert self.point is not None and self.best is not None
        point, gap = self.point, self.best.relative_gap
        self.outcome = verdict(
            self.ended if self.ended is Outcome.NUMERICAL_ERROR else self.record(),
            solved=gap <= self.wanted and not self.best_is_rough,
            at_limit=self.n_iter >= self.method.inner.max_iter,
            stalled=self.idle.is_passed or (self.whole and not self.ended.converged),
        )
        if self.outcome is None:
            falling = point.relative_gap < 0.5 * self.before
            # By the b of the gap no more rows of one class ask than of the other: hardly any where one is small.
            self.choose(point if falling else point.with_bound(point.gap, self.intercept), falling)
        elif self.best_is_rough:
            self.best = self.problem.at(self.best.alpha)

    @property
    def whole(self) -> bool:
        """Return whether all rows are in the working set."""
        return len(self.rows) == self.problem.n

    def solved(self, alpha: Vector | None, state: GradientState | None) -> tuple[SVMSolution, FeasiblePoint]:
        """Return (the working set's solution, its point among all rows)."""
        problem, rows, inner = self.problem, self.rows, self.method.inner
        part = self.kernel.part(rows)
        is_exact = part.dtype == self.kernel.dtype
        among = problem.among(rows, part)
        # The exact product of the last point corrects the rounded kernel of this round.
        if not is_exact and self.point is not None and not self.is_rough:
            among = among.corrected(self.point.alpha[rows], self.point.product[rows])
        solver = replace(inner, tol=self.tol, max_iter=inner.max_iter - self.n_iter)
        first = None if alpha is None else alpha[rows]
        on_state = self.on_inner_state if self.whole and self.on_state is not None else None
        solution = solver.solve(among, first, watch=self.inner_watch(), on_state=on_state, resume_from=state)
        self.n_iter += solution.n_iter
        self.products += solution.products
        if self.whole and is_exact:
            return solution, solution.point
        # Coefficients outside of the set are zero, so the point is one among all rows.
        found = np.zeros(problem.n)
        found[rows] = solution.point.alpha
        self.products += 1
        was_rough, self.is_rough = self.is_rough, not is_exact and self.tol > SURE * self.wanted
        if self.is_rough:
            return solution, problem.at(found, problem.y * self.kernel.roughly(problem.y * found))
        return solution, problem.at(found, self.product(found, was_rough))

    def on_inner_state(self, inner: GradientState) -> None:
        """Report the state within a round on all rows."""
        assert self.on_state is not None
        self.on_state(self.state(inner))

    def product(self, alpha: Vector, was_rough: bool) -> Vector:
        """Return Y K Y alpha, from the last one if that was not rough and the two differ in fewer columns."""
        if self.point is not None and not was_rough:
            change = alpha - self.point.alpha
            # The difference of two products is a product of the columns that changed, which may be far fewer.
            if np.count_nonzero(change) < np.count_nonzero(alpha):
                return np.asarray(self.point.product + self.problem.product(change))
        return self.problem.product(alpha)

    def choose(self, point: FeasiblePoint, falling: bool) -> None:
        """Choose rows with an alpha, those near one while the gap falls, and those that violate optimality most."""
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
        # Loose while many rows still come in: the inner solver would polish what the next set changes.
        self.tol = TIGHTEST * self.wanted if len(asking) <= FEW * len(self.rows) else min(self.tol, loosest)
        room = max(GROWTH * count, FEWEST_FIRST)
        if len(asking) > room:
            # The rows that ask the most, as each costs a column of the kernel.
            asking = asking[np.argpartition(-excess[asking], room)[:room]]
        stay = inside & (support | (excess > NEAR)) if falling else inside
        self.rows = np.union1d(np.flatnonzero(stay), asking)

    def inner_watch(self) -> Watch:
        """Return the inner solver's watch; if all rows are in, its rows follow the rounds' in the history."""
        if not self.whole:
            return self.watch.quiet()
        return self.watch.stage(start={"iteration": self.n_iter, "products": self.products}, rows=len(self.rows))

    def record(self) -> Outcome | None:
        """Record the round, unless the inner solver has recorded its own steps; return what ends the run."""
        assert self.best is not None
        if self.whole:
            return self.watch.outcome
        row = {"iteration": self.n_iter, "products": self.products, "rows": len(self.rows)}
        return self.watch.record(row | {"objective": self.best.objective, "relative_gap": self.best.relative_gap})


def first_rows(y: Vector, seed: int) -> Rows:
    """Draw rows at random, as many of each class as it has of all, but a hundred at least."""
    rng = np.random.default_rng(seed)
    share = min(max(len(y) // FIRST_SHARE, FEWEST_FIRST), MOST_FIRST) / len(y)
    drawn = []
    for sign in (-1.0, 1.0):
        rows = np.flatnonzero(y == sign)
        count = min(len(rows), max(int(share * len(rows)), LEAST_OF_A_CLASS))
        drawn.append(rng.choice(rows, count, replace=False))
    return np.sort(np.concatenate(drawn))


# Start for machines of few rows: compiled steps of two coefficients, that mostly end at the solution.
#
# A gradient step of a hundred rows takes a microsecond of arithmetic and fifty of calls. What these steps leave is for
# the solver behind them: it certifies their point, and continues from it where their gap is not yet small enough.

MAX_ROWS = 1000
"""Most rows of a machine whose kernel matrix is copied for it: 8 MB."""
MAX_ROUNDS = 10
"""Most rounds, of as many steps as there are rows; where fewer are allowed none is taken, so that a run with a higher limit begins
alike. Hard machines take thousands, where second derivatives of many rows at once are faster."""


def takes_pairs(n: int, max_iter: int) -> bool:
    """Return whether a machine of n rows starts by pairs."""
    return n <= MAX_ROWS and max_iter >= MAX_ROUNDS


def pair_start(problem: SVMProblem, start: Vector | None, tol: float, max_iter: int) -> tuple[Vector | None, int]:
    """Return (alpha (n,), rounds) at a relative gap of `tol`, or after MAX_ROUNDS rounds.

    (start, 0) where `takes_pairs` is False or alpha is not finite. A round is n steps, and costs a product with K.
    """
    n = problem.n
    if not takes_pairs(n, max_iter):
        return start, 0
    first = np.zeros(n) if start is None or not start.any() else project(start, problem.y, problem.C, 0.0)[0]
    alpha, rounds = pair_steps(
        problem.kernel.block(np.arange(n)), problem.y, problem.C,
        np.ones(n) if problem.linear is None else problem.linear,
        float(problem.rho), first, tol, MAX_ROUNDS,
    )  # fmt: skip
    return (alpha, rounds) if np.isfinite(alpha).all() else (start, 0)
