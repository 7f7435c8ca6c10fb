"""Low-rank solver of the pairwise problem (Hu & Kwok 2013, (1)): K = V V' at a rank near the optimum's, to a proven relative gap.

A round minimizes f(V V') over V (n, r) by nonlinear conjugate gradients (`descent.py`); then it minimizes exactly over the
r x r mixings K = Q Y Q' of the columns at hand, a quadratic in Y, which drops superfluous columns; then it computes the certificate.
For that the lowest eigenvectors of S = L + gamma P_T(K - T) are found, some dozens; where the gap is not small enough yet, f is
minimized over them and V together, again as a quadratic in Y, and the next round starts from there. At the optimum S
vanishes on the range of K. Where dozens of its eigenvalues are next to 0 (duplicates, outliers, pairs of patterns that only know
each other), that replaces thousands of iterations.

Superfluous rank is what makes first-order methods sublinear here (the Hessian is singular along x e_k' for a column k
that should vanish), so the rank is kept at the optimum's: Burer & Monteiro (2003), Laue (2012), LoRADS (2024).
Memory: that of the conjugate gradients, the factor that was handed in and, from the second round on, the vectors of the last certificate,
at most 48 columns more; for the certificate 5 arrays of the size of V and 6 blocks of 48 columns more
(`dkl/estimators/pairwise/plan.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dkl.linalg.eigen.principal_coordinates import truncate_rank
from dkl.solvers.pairwise.descent import (
    START_RANK,
    DescentState,
    FactoredProblem,
    FactoredState,
    Keep,
    Minimum,
    RoundState,
    minimize,
)
from dkl.solvers.pairwise.rank import drop_weak_columns, minimize_over_mixing, mix_in
from dkl.solvers.watch import Outcome, Row, Watch, verdict

Array = NDArray[np.float64]
COARSE = 1e-4
"""The first round aims at this gap: it finds the rank."""
FIRST = 0.01
"""Share of that gap: the first round ends once `WINDOW` iterations lower f by less."""
FINER = 0.2
"""Factor on the least progress from one round to the next."""
DROP = 0.03
"""Columns go whose loss raises f by less than this times the progress. At a large gamma a proof may hang on columns that f hardly knows."""
LOOSE, FEW_ROUNDS = 1e-3, 3
"""Target gap from which on few eigenvectors of S do, and number of first rounds in which they do."""
MAX_IDLE = 7
"""Rounds in a row without a better gap."""


class CertifiedProblem(FactoredProblem, Protocol):
    """Factored problem whose points can be compared with the optimum."""

    def recount(self, products: int) -> None:
        """Set the count of products with L (when resuming)."""

    def start(self, width: int, seed: int) -> Array:
        """Return a start (n, width) that needs no earlier solution."""

    def certify(
        self, point: Any, relative: float, seed: int, *, few: bool = False, last: bool = False, near: Any = None
    ) -> tuple[Any, Any]:
        """Return (certificate, lower end of S: `values` (k,) ascending, `directions` (n, k)).

        relative: the gap aimed at; few: of few vectors; last: the best bound there is; near: that lower end at a nearby point.
        """


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
    resume_from: Callable[[], FactoredState] | None = None,
    keep: Keep | None = None,
) -> FactoredSolution:
    """Return a factor of a proven relative gap <= target_gap, or the best found if that is not reached.

    start   (n, any rank), truncated to at most `rank`; None starts from the problem's own start
    rank    to start at, by default 16; afterwards it follows the optimum, up to max_rank
    resume_from   reads a state to continue from, in place of the start, whose rows were recorded; it is not held any longer than it takes
    keep    see `Keep`

    A row: iteration, objective, gradient_norm, rank, relative_gap (None where no certificate was computed), products.
    """
    search = _LowRankRounds(problem, target_gap, max_rank, max_iter, seed, watch or Watch(), keep)
    factor, certificate, outcome = search.run(start, rank, max_rounds, resume_from)
    return FactoredSolution(factor, certificate, search.count, outcome, search.watch.history)


class _LowRankRounds:
    """Rounds of `solve_to_gap`.

    at: state after the last round; count: history rows so far; stop_reason: outcome that stopped `minimize`, if any.
    """

    def __init__(
        self,
        problem: CertifiedProblem,
        target: float,
        max_rank: int,
        max_iter: int,
        seed: int,
        watch: Watch,
        keep: Keep | None,
    ) -> None:
        self.problem, self.target, self.max_rank = problem, target, max_rank
        self.max_iter, self.seed, self.watch, self.keep = max_iter, seed, watch, keep
        # The first round finds the rank: a tight goal there would polish columns that are dropped later.
        self.at, self.count, self.at_limit = RoundState(FIRST * max(target, COARSE)), 0, False
        self.stop_reason: Outcome | None = watch.outcome

    def run(
        self, start: Array | None, rank: int | None, max_rounds: int, resume_from: Callable[[], FactoredState] | None
    ) -> tuple[Array, Any, Outcome]:
        """Run until an outcome or `max_rounds` rounds; return (factor, certificate, outcome)."""
        # A list of one state, so that it can be popped and freed once its arrays are copied.
        inside = [] if resume_from is None else self._restored(resume_from())
        ended = None if inside else self._verdict()
        while ended is None and self.at.done < max_rounds:
            factor = self._continued(inside) if inside else self._minimize(self._first(start, rank))
            self._judge(factor)
            ended = self._verdict()
        return self._end(ended or Outcome.ITERATION_LIMIT)

    def _restored(self, state: FactoredState) -> list[tuple[DescentState, int]]:
        """Take over a state; return its descent, if it is within one, and its rank."""
        self.at, self.count = state.before, state.before.count
        # Products count from before the interruption, or the rows of a resumed run would differ.
        self.problem.recount(state.products)
        # A certificate's row is no iteration: the limit was met before it, or was not.
        self.at_limit = self.at.done > 0 and self.count > self.max_iter
        return [] if state.descent is None else [(state.descent, state.rank)]

    def _first(self, start: Array | None, rank: int | None) -> Array:
        """Return the factor at which a round starts: the start, or the last one mixed with S's lowest vectors."""
        problem, at = self.problem, self.at
        # A later round starts from the last minimum, mixed with the directions in which S is not psd.
        if at.factor is not None:
            few = self._takes_few(at.done - 1)
            return mix_in(
                problem, at.factor, at.low.values, at.low.directions, self.max_rank, relative=self.target, few=few
            )
        rank = min(rank or START_RANK, self.max_rank, problem.n)
        factor = None if start is None else truncate_rank(np.asarray(start, float), rank, problem.rows)
        if factor is None or factor.shape[1] == 0:  # V = 0 is a saddle point, which no descent leaves
            factor = problem.start(rank, self.seed)
        return factor

    def _takes_few(self, done: int) -> bool:
        """Return whether few eigenvectors of S suffice in the round after `done` others."""
        return self.target >= LOOSE and done < FEW_ROUNDS

    def _judge(self, factor: Array) -> None:
        """Mix a minimum's columns, drop the weak ones, certify the rest, and set the state after the round."""
        problem, at = self.problem, self.at
        # Exact in Y, so that the rank settles without waiting for superfluous columns to decay.
        factor = minimize_over_mixing(problem, factor)
        point = problem.at(problem.padded(factor))
        # Columns are dropped before the certificate: the modes of a column that should vanish spoil its bound.
        factor, point = drop_weak_columns(problem, factor, point, DROP * at.progress)
        few = self._takes_few(at.done)
        certificate, low = problem.certify(point, self.target, self.seed, few=few, near=at.low)
        gap, best = certificate.relative_gap, at.best
        # A gap must fall by a tenth to count as progress. `<=`: while nothing is proven (inf) no round counts as idle.
        progressed = best is None or gap <= 0.9 * best[1].relative_gap
        # Gaps need not fall from round to round, so the best is kept apart from the last.
        if best is None or math.isnan(best[1].relative_gap) or gap < best[1].relative_gap:
            best = factor, certificate
        idle = 0 if progressed else at.idle + 1
        # A certificate counts as an iteration in the history, as it costs dozens of products.
        self.at = RoundState(
            FINER * at.progress,
            at.done + 1,
            idle,
            self.count + 1,
            problem.n_products,
            factor,
            best,
            low,
        )
        if self.keep is not None:
            state = FactoredState(self.at, problem.n_products)
            self.keep(lambda: state)
        self.stop_reason = self._record(point, factor.shape[1], gap) or self.stop_reason
        if math.isnan(gap):  # then the vectors that the next round would start from are no numbers either
            self.stop_reason = Outcome.NUMERICAL_ERROR

    def _verdict(self) -> Outcome | None:
        """Return the outcome that ends the search after a round, or None."""
        best = self.at.best
        if best is None:
            return None
        # MAX_IDLE rounds without a better gap mean that rounding ends all progress.
        solved, stalled = best[1].relative_gap <= self.target, self.at.idle > MAX_IDLE
        return verdict(self.stop_reason, solved=solved, at_limit=self.at_limit, stalled=stalled)

    def _end(self, outcome: Outcome) -> tuple[Array, Any, Outcome]:
        """Return the best factor; where the solver itself gave up, with the most that can be proven of it."""
        assert self.at.best is not None
        factor, certificate = self.at.best
        # Rounds aim at bounds that are good enough; where the solver gives up, a last one takes all passes.
        if outcome in (Outcome.ITERATION_LIMIT, Outcome.STALLED):
            point = self.problem.at(self.problem.padded(factor))
            certificate, _ = self.problem.certify(point, self.target, self.seed, last=True)
            self._record(point, factor.shape[1], certificate.relative_gap)
        # The last certificate may prove what the rounds did not.
        return factor, certificate, Outcome.SOLVED if certificate.relative_gap <= self.target else outcome

    def _minimize(self, factor: Array) -> Array:
        """Return the factor, lowered as far as the limits allow."""
        if self.at_limit or self.stop_reason is not None:
            return factor
        found = self._descended(self.problem.padded(factor), factor.shape[1], None)
        # A descent that met NaN leaves the factor that it started from.
        return factor if found.outcome is Outcome.NUMERICAL_ERROR else found.v[:, : factor.shape[1]]

    def _continued(self, inside: list[tuple[DescentState, int]]) -> Array:
        """Return the factor of a round resumed from `inside`, whose state is popped as its arrays are copied."""
        rank = inside[0][1]
        return self._descended(None, rank, lambda: inside.pop()[0]).v[:, :rank]

    def _descended(self, v0: Array | None, rank: int, resume_from: Callable[[], DescentState] | None) -> Minimum:
        """Run the conjugate gradients of this round."""
        problem, before, keep = self.problem, self.at, self.keep

        def kept(descent: Any) -> None:
            """Offer the descent's state with that of the search."""
            assert keep is not None
            keep(lambda: FactoredState(before, problem.n_products, descent(), rank))

        found = minimize(
            problem,
            v0,
            # Rounds end by their progress alone: what a small gradient is depends on the problem.
            tol=0.0,
            progress=before.progress,
            max_iter=self.max_iter - self.count,
            watch=self.watch.stage(start={"iteration": self.count}, rank=rank, relative_gap=None),
            resume_from=resume_from,
            keep=None if keep is None else kept,
        )
        self.count += found.n_iter
        self.at_limit = self.count >= self.max_iter
        if found.outcome not in (Outcome.SOLVED, Outcome.ITERATION_LIMIT):
            self.stop_reason = found.outcome
        return found

    def _record(self, point: Any, rank: int, gap: float) -> Outcome | None:
        """Record the row of a certificate."""
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
