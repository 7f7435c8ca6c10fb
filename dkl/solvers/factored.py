"""The low-rank finisher of problem (1): K = V V' at a rank near the optimum's, to a proven relative gap.

A round minimizes f(V V') over V (n, r) by nonlinear conjugate gradients, preconditioned for the stiff part of the
Hessian, whose line search is exact because f is a quartic on a line; then it minimizes exactly over the r x r mixings
K = Q Y Q' of the columns at hand, a quadratic in Y, which drops superfluous columns; then it computes the certificate.
For that the lowest eigenvectors of S = L + gamma P_T(K - T) are found, some dozens; where the gap is not small enough yet, f is
minimized over them and V together, again as a quadratic in Y, and the next round goes further from there. At the optimum S
vanishes on the range of K. Where dozens of its eigenvalues are next to 0 (duplicates, outliers, pairs of patterns that only know
each other), that replaces thousands of iterations.

Superfluous rank is what makes first-order methods sublinear here (the Hessian is singular along x e_k' for a column k
that should vanish), so the rank is kept at the optimum's: Burer & Monteiro (2003), Laue (2012), LoRADS (2024).
Memory: 10 arrays of the size of the padded V (V, L V, gradient, previous and preconditioned gradient, direction D, L D,
and the preconditioner's 5 in single precision), 2 more while L V is recomputed, the factor that was handed in and, from the second
round on, the vectors of the last certificate, at most 48 columns more; for the certificate 5 of these and 6 blocks of 48 columns
more (`dkl/estimators/pairwise/plan.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dkl.linalg import slab_kernels as kernels
from dkl.linalg.lanes import lanes_of
from dkl.linalg.principal_columns import truncate_rank
from dkl.solvers.factored_rank import RankedProblem, drop_weak_columns, minimize_over_mixing, mix_in
from dkl.solvers.result import Outcome
from dkl.solvers.watch import Row, Stall, Watch, verdict

Array = NDArray[np.float64]
START_RANK = 16
COARSE = 1e-4
"""The first round aims at this gap: it finds the rank."""
FIRST = 0.01
"""Of that gap, what ends the first round if WINDOW iterations lower f by less."""
FINER = 0.2
"""How much less progress ends the next round."""
DROP = 0.03
"""Columns go whose loss raises f by less than this times the progress. At a large gamma a proof may hang on columns that f hardly knows."""
LOOSE, FEW_ROUNDS = 1e-3, 3
"""For goals from here on, so many rounds do with few eigenvectors of S; they rarely need more rounds."""
MAX_IDLE = 7
"""Rounds in a row without a better gap."""
REFRESH = 20
"""Iterations after which L V and the residual are recomputed, and the preconditioner's top."""
POWER_STEPS = 20
WINDOW = 10
"""Iterations over which progress is judged."""


class FactoredProblem(RankedProblem, Protocol):
    """f, its gradient and its quartics, by parts of the rows."""

    @property
    def n_products(self) -> int:
        """Products with L so far."""

    def move(self, point: Any, direction: Array, line: Any, t: float) -> None:
        """point <- V + t D, in place."""

    def preconditioner(self, width: int) -> Any:
        """Of factors of this padded width, with `refresh(v, steps)` and `apply(v, gradient, its norm, out)`."""


class CertifiedProblem(FactoredProblem, Protocol):
    """One whose points can be compared with the optimum."""

    def start(self, width: int, seed: int) -> Array:
        """(n, width): where to begin, knowing nothing."""

    def certify(
        self, point: Any, relative: float, seed: int, *, few: bool = False, last: bool = False, near: Any = None
    ) -> tuple[Any, Any]:
        """(certificate, the lower end of S with `values` (k,) ascending and `directions` (n, k)), for a relative gap; `few`: of
        few vectors; `last`: the best bound there is; `near`: that lower end at a point nearby."""


@dataclass
class Minimum:
    """Where `minimize` ended, v (n_own, w); SOLVED: stationary, or as good as no longer falling. `point` is that of v."""

    v: Array
    objective: float
    gradient_norm: float
    n_iter: int
    n_products: int
    history: list[Row] = field(repr=False)
    outcome: Outcome
    point: Any = field(repr=False)


def minimize(
    problem: FactoredProblem,
    v0: Array,
    *,
    tol: float,
    progress: float = 0.0,
    max_iter: int,
    watch: Watch | None = None,
) -> Minimum:
    """A stationary point of f(V V') from v0 (padded), by Polak-Ribiere+ conjugate gradients.

    Ends at |gradient| <= tol, or once WINDOW iterations lower f by less than `progress` relative to its scale. A row an iteration:
    iteration, objective, gradient_norm, products.
    """
    watch, first_product = watch or Watch(), problem.n_products
    point = problem.at(v0)
    precondition = problem.preconditioner(point.v.shape[1])
    precondition.refresh(point.v, POWER_STEPS)
    z, previous = np.empty_like(point.gradient), np.zeros_like(point.gradient)
    direction = np.zeros_like(point.v)
    size, line, iteration, told, is_slow = np.inf, None, 0, watch.outcome, False
    lately = [point.objective]
    while True:
        # Where the preconditioned gradient underflows there is no direction left to go.
        solved = point.gradient_norm <= tol or is_slow or size == 0
        outcome = verdict(told, solved=solved, at_limit=iteration >= max_iter)
        if outcome is not None:
            break
        iteration += 1
        precondition.apply(point.v, point.gradient, point.gradient_norm, z)
        new_size, beside, slope = _slopes(problem, z, point.gradient, previous, direction)
        # Polak-Ribiere+: the gradient's change in the preconditioner's inner product, forgetting where it would be negative.
        momentum = max(0.0, (new_size - beside) / size)
        size = new_size
        # The next direction, momentum D - z, must lead down.
        _update_direction(problem, momentum if momentum * slope < size else 0.0, z, direction)
        line = problem.line(point, direction, line)
        previous, point.gradient = point.gradient, previous  # `move` overwrites what the point holds
        problem.move(point, direction, line, line.minimizer()[0])
        if iteration % REFRESH == 0:
            point = problem.at(point.v)
            precondition.refresh(point.v, 2)
        told = watch.record(
            {
                "iteration": iteration,
                "objective": point.objective,
                "gradient_norm": point.gradient_norm,
                "products": problem.n_products,
            }
        )
        lately.append(point.objective)
        is_slow = len(lately) > WINDOW and _drop(lately) <= progress * problem.scale(point.objective)
    products = problem.n_products - first_product
    return Minimum(
        point.v[: problem.rows.n_own],
        point.objective,
        point.gradient_norm,
        iteration,
        products,
        watch.history,
        outcome,
        point,
    )


def _drop(lately: list[float]) -> float:
    """By how much the last WINDOW iterations have lowered the objective."""
    return lately[-WINDOW - 1] - lately[-1]


def _slopes(
    problem: FactoredProblem, z: Array, gradient: Array, previous: Array, direction: Array
) -> tuple[float, float, float]:
    """(z . gradient, z . the previous gradient, direction . gradient), by one sum."""
    arrays = (z, gradient, previous, direction, lanes_of(z.shape[1]))
    one, other, slope = problem.rows.sum(lambda lo, hi: kernels.slope_rows(lo, hi, *arrays))
    return float(one), float(other), float(slope)


def _update_direction(problem: FactoredProblem, momentum: float, z: Array, direction: Array) -> None:
    """direction <- momentum direction - z."""
    arrays = (z, direction, lanes_of(z.shape[1]))
    problem.rows.each(lambda lo, hi: kernels.update_direction_rows(lo, hi, momentum, *arrays), len(z))


@dataclass(frozen=True)
class FactoredSolution:
    """factor (n, r), its certificate, iterations (certificates count as such), and a row each."""

    factor: Array
    certificate: Any
    n_iter: int
    outcome: Outcome
    history: list[Row] = field(repr=False)


def solve_to_gap(
    problem: CertifiedProblem,
    start: Array | None = None,
    *,
    target_gap: float,
    rank: int | None = None,
    max_rank: int = 64,
    max_rounds: int = 40,
    max_iter: int = 100_000,
    seed: int = 0,
    watch: Watch | None = None,
) -> FactoredSolution:
    """The factor of a proven relative gap <= target_gap; where that is not reached, the best so far.

    start   (n, any rank), truncated to at most `rank`; None starts from the problem's own start
    rank    to start at, by default 16; afterwards it follows the optimum, up to max_rank

    A row: iteration, objective, gradient_norm, rank, relative_gap (None where no certificate was computed), products.
    """
    search = _Search(problem, target_gap, max_rank, max_iter, seed, watch or Watch())
    factor, certificate, outcome = search.run(start, rank, max_rounds)
    return FactoredSolution(factor, certificate, search.count, outcome, search.watch.history)


class _Search:
    """The rounds of `solve_to_gap`. count: rows so far; told: what the watch ended `minimize` by, if it did."""

    def __init__(
        self, problem: CertifiedProblem, target: float, max_rank: int, max_iter: int, seed: int, watch: Watch
    ) -> None:
        self.problem, self.target, self.max_rank = problem, target, max_rank
        self.max_iter, self.seed, self.watch = max_iter, seed, watch
        self.count, self.at_limit = 0, False
        self.told: Outcome | None = None

    def run(self, start: Array | None, rank: int | None, max_rounds: int) -> tuple[Array, Any, Outcome]:
        """(factor, certificate, outcome) after at most so many rounds."""
        problem, rank = self.problem, min(rank or START_RANK, self.max_rank, self.problem.n)
        factor = None if start is None else truncate_rank(np.asarray(start, float), rank, problem.rows)
        if factor is None or factor.shape[1] == 0:  # V = 0 is a saddle point, which no descent leaves
            factor = problem.start(rank, self.seed)
        best: tuple[Array, Any] | None = None
        low: Any = None
        progress, idle = FIRST * max(self.target, COARSE), Stall(MAX_IDLE)
        for done in range(max_rounds):
            few = self.target >= LOOSE and done < FEW_ROUNDS
            factor = self._minimize(problem, factor, progress)
            factor = minimize_over_mixing(problem, factor)
            point = problem.at(problem.padded(factor))
            factor, point = drop_weak_columns(problem, factor, point, DROP * progress)
            progress *= FINER
            certificate, low = problem.certify(point, self.target, self.seed, few=few, near=low)
            gap = certificate.relative_gap
            told = self._record(point, factor.shape[1], gap)
            stalled = idle.check(best is None or not gap > 0.9 * best[1].relative_gap)
            if best is None or gap < best[1].relative_gap:
                best = factor, certificate
            solved = gap <= self.target
            outcome = verdict(told or self.told, solved=solved, at_limit=self.at_limit, stalled=stalled)
            if outcome is not None:
                return self._end(best, outcome)
            factor = mix_in(problem, factor, low.values, low.directions, self.max_rank, relative=self.target, few=few)
        assert best is not None
        return self._end(best, Outcome.ITERATION_LIMIT)

    def _end(self, best: tuple[Array, Any], outcome: Outcome) -> tuple[Array, Any, Outcome]:
        """The best factor; where the solver itself gave up, with the most that can be proven of it."""
        factor, certificate = best
        if outcome in (Outcome.ITERATION_LIMIT, Outcome.STALLED):
            point = self.problem.at(self.problem.padded(factor))
            certificate, _ = self.problem.certify(point, self.target, self.seed, last=True)
            self._record(point, factor.shape[1], certificate.relative_gap)
        return factor, certificate, Outcome.SOLVED if certificate.relative_gap <= self.target else outcome

    def _minimize(self, problem: CertifiedProblem, factor: Array, progress: float) -> Array:
        """The factor lowered, as far as the limits allow; the factor as it is once they do not."""
        rank = factor.shape[1]
        if self.at_limit or self.told is not None:
            return factor
        found = minimize(
            problem,
            problem.padded(factor),
            tol=0.0,
            progress=progress,
            max_iter=self.max_iter - self.count,
            watch=self.watch.stage(start={"iteration": self.count}, rank=rank, relative_gap=None),
        )
        self.count += found.n_iter
        self.at_limit = self.count >= self.max_iter
        if found.outcome not in (Outcome.SOLVED, Outcome.ITERATION_LIMIT):
            self.told = found.outcome
        return factor if found.outcome is Outcome.NUMERICAL_ERROR else found.v[:, :rank]

    def _record(self, point: Any, rank: int, gap: float) -> Outcome | None:
        """The row of a certificate."""
        self.count += 1
        return self.watch.record(
            {
                "iteration": self.count,
                "objective": point.objective,
                "gradient_norm": point.gradient_norm,
                "rank": rank,
                "relative_gap": gap,
                "products": self.problem.n_products,
            }
        )
