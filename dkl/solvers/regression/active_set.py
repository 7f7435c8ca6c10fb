"""Interface of solvers of the lasso on columns, and the one that takes Newton steps on its active set.

    minimize over w (M,)    P(w) = |y - C w|^2 + 2 kappa |w|_1,    by B = C'C and C'y

Kernel columns are nearly dependent, and coordinate descent needs very many rounds on them. Here the active set S grows
from the start's (feature-sign search: H. Lee, A. Battle, R. Raina, A. Ng, Efficient sparse coding algorithms, NIPS 2006;
here with several columns entering at a time). Given S and the signs s the optimum is one linear system,

    B_SS w_S = b_S - kappa s,

towards which an exact line search goes; a weight that arrives at zero leaves S. When no sign changes on the way, the
columns that violate |c'(y - C w)| <= kappa most enter, a tenth of |S| at a time. The system's factor follows S, so that a
step costs O(m0^2), and a round of them O(m0 M) in addition; memory is that of the active set. Neither depends on n.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from dkl.linalg.lasso import Vector, line_minimum, submatrix
from dkl.linalg.symmetric.growing_cholesky import GrowingCholesky
from dkl.solvers.watch import Outcome, Row, Stall, Watch, verdict


class LassoEvaluation(Protocol):
    """Objective, gap and correlations at some weights."""

    @property
    def objective(self) -> float:
        """Return the objective P(w)."""

    @property
    def gap(self) -> float:
        """Return P(w) less a lower bound of all P."""

    @property
    def relative_gap(self) -> float:
        """Return the gap over P(w)."""

    @property
    def residual(self) -> float:
        """Return |y - C w|^2."""

    @property
    def correlations(self) -> Vector:
        """Return (M,) C'(y - C w)."""


class GramSource(Protocol):
    """B (M, M), of which rows are asked for."""

    @property
    def diagonal(self) -> Vector:
        """Return the diagonal (M,) of B."""

    def rows(self, indices: NDArray[np.intp]) -> tuple[NDArray[np.float64], NDArray[np.intp]]:
        """Return (buffer, places): row indices[k] of B is buffer[places[k]]."""


class Lasso(Protocol):
    """The problem."""

    @property
    def gram(self) -> GramSource:
        """Return the Gram matrix B."""

    @property
    def kappa(self) -> float:
        """Return kappa, half the penalty."""

    def start(self, w: Vector | None) -> tuple[Vector, LassoEvaluation]:
        """Return a copy of weights to start at, or zeros where these are no worse, and the evaluation there."""

    def evaluate(self, w: Vector) -> LassoEvaluation:
        """Return P, its gap and the correlations at w."""

    def may_be_active(self, found: Any) -> NDArray[np.bool_]:
        """Return (M,) with False for columns that an evaluation proves to be zero in every solution."""


@dataclass(frozen=True)
class Solution:
    """Weights w (M,) of the columns, how good they are, and how they were found.

    n_screened: columns that the gap proves to be zero in every solution; history: a row a check of the gap.
    """

    weights: Vector
    evaluation: LassoEvaluation
    n_iter: int
    outcome: Outcome
    n_screened: int = 0
    history: list[Row] = field(default_factory=list, repr=False)


class Solver(Protocol):
    """Solves a lasso from zero, or from the weights of a neighboring one."""

    def solve(self, problem: Any, start: Vector | None = None, *, watch: Watch | None = None) -> Solution:
        """Return the best weights that were met, from `start` or from zero."""


def history_row(iteration: int, w: Vector, found: LassoEvaluation) -> Row:
    """Return the row of a check."""
    return {
        "iteration": iteration,
        "objective": found.objective,
        "relative_gap": found.relative_gap,
        "n_active": int(np.count_nonzero(w)),
    }


ENTERING_SHARE = 0.1
"""Columns that enter in a round, as a share of the active set."""
TRIES = 3
"""Maximum attempts to leave out columns that move against their sign; then only the first enters."""
WORN = 1e-8
"""Relative residual of a system from which on its factor is recomputed."""
MAX_IDLE = 2
"""Rounds in a row without progress, which rounding alone can cause."""
MAX_CRAWL, WORTH = 49, 0.01
"""Rounds in a row in which neither the active set outgrew all before nor the objective fell by this share of the gap: a
crawl along directions that rounding has made flat or worse (sums of single-precision columns)."""


@dataclass(frozen=True)
class ActiveSet:
    """Solve to a relative duality gap of `tol`, in at most `max_iter` Newton steps."""

    tol: float = 1e-6
    max_iter: int = 10_000

    def solve(self, problem: Lasso, start: Vector | None = None, *, watch: Watch | None = None) -> Solution:
        """Return the weights of the least gap or objective that were met; a row a round of Newton steps."""
        watch = watch or Watch()
        w, found = problem.start(start)
        # The weights of the least gap are kept apart, as neither objective nor gap need fall in every round.
        best, alive, steps = (w.copy(), found), problem.may_be_active(found), 0
        # Without any weight the support's system is empty, and columns may enter at once.
        face, is_settled = _Face(problem, w), not w.any()
        idle, crawl = Stall(MAX_IDLE), _Crawl(found)
        stop_reason, stalled = watch.record(history_row(0, w, found)), False
        while True:
            solved = best[1].relative_gap <= self.tol
            outcome = verdict(stop_reason, solved=solved, at_limit=steps >= self.max_iter, stalled=stalled)
            if outcome is not None:
                return Solution(*best, steps, outcome, int(np.count_nonzero(~alive)), watch.history)
            # Columns enter only once the support is solved: their correlations are those of an optimum then.
            entering = _entering(problem, w, found, alive) if is_settled else np.empty(0, np.intp)
            steps += face.solve_on_support(found.correlations, entering, self.max_iter - steps)
            is_settled = True
            found = problem.evaluate(w)
            # What a gap has proven to be zero stays zero, whatever later gaps prove.
            alive &= problem.may_be_active(found)
            stop_reason = watch.record(history_row(steps, w, found))
            is_lower = found.objective < best[1].objective
            if is_lower or found.gap <= best[1].gap:
                best = w.copy(), found
            # `|` and not `or`: both counters must see every round.
            stalled = idle.check(is_lower) | crawl.check(face.size, found)


class _Crawl:
    """Detector of many rounds in a row that have hardly gained anything."""

    def __init__(self, found: LassoEvaluation) -> None:
        self.mark, self.largest, self.stall = found, 0, Stall(MAX_CRAWL)

    def check(self, size: int, found: LassoEvaluation) -> bool:
        """Count a round, after which the active set has `size` columns."""
        # A larger active set is progress as well: while it grows, the objective may rest for long.
        gained = size > self.largest or found.objective < self.mark.objective - WORTH * self.mark.gap
        if gained:
            self.mark, self.largest = found, max(self.largest, size)
        return self.stall.check(gained)


def _entering(problem: Lasso, w: Vector, found: LassoEvaluation, alive: NDArray[np.bool_]) -> NDArray[np.intp]:
    """Return columns outside the active set that violate optimality, worst first relative to their length."""
    excess = np.abs(found.correlations) - problem.kappa
    candidates = ((excess > 0) & (w == 0) & alive & (problem.gram.diagonal > 0)).nonzero()[0]
    # Relative to the columns' lengths, or long columns would always be the first.
    worst = np.argsort(-excess[candidates] / np.sqrt(problem.gram.diagonal[candidates]), kind="stable")
    # Several at a time, as each round computes all M correlations.
    return candidates[worst[: max(1, int(ENTERING_SHARE * np.count_nonzero(w)))]]


class _Face:
    """The active set in some order, its part of B, and a factor of that."""

    def __init__(self, problem: Lasso, w: Vector) -> None:
        self.problem, self.w = problem, w
        self.factor = GrowingCholesky()
        self.chosen = np.empty(0, np.intp)
        self._enter(np.flatnonzero(w))

    @property
    def size(self) -> int:
        """Return the number of columns in the active set."""
        return len(self.chosen)

    def solve_on_support(self, g: Vector, entering: NDArray[np.intp], most: int) -> int:
        """Change w, in place, to the optimum on its support and the columns that enter. Returns the number of steps.

        g: all correlations C'(y - C w). Weights that would have to change their sign leave the support, for columns of a
        later round.
        """
        self._enter(entering)
        if not self.chosen.size:
            return 0
        kappa, on, g = self.problem.kappa, self.w[self.chosen], g[self.chosen]
        # A column that enters takes the sign of its correlation, in which direction alone it can gain.
        signs = np.where(on != 0, np.sign(on), np.sign(g))
        d, image = self._direction(g - kappa * signs)
        for attempt in range(TRIES):
            # Columns that enter with the wrong sign, not that of the optimum, would leave in the next step.
            wrong = (on == 0) & (d * signs <= 0)
            if not wrong.any():
                break
            kept = ~wrong
            if attempt == TRIES - 1 or not (kept & (on == 0)).any():
                # In the last attempt the first column alone, which is the most violated.
                kept = on != 0
                kept[np.flatnonzero(on == 0)[:1]] = True
            self._leave(kept)
            g, on, signs = g[kept], on[kept], signs[kept]
            d, image = self._direction(g - kappa * signs)
        for step in range(1, most + 1):
            move = _move(self.factor.matrix, g, on, d, image, signs, kappa)
            # A step that flips signs and lowers nothing is rounding: what entered is taken back.
            if not move.complete and move.change >= 0:
                self._leave(on != 0)
                return step
            self.w[self.chosen] = move.weights
            kept = move.weights != 0
            if move.complete or not kept.any():
                self._leave(kept)
                return step
            # The correlations follow from B times the step, which the move has computed.
            g, on = (g - move.image)[kept], move.weights[kept]
            self._leave(kept)
            signs = np.sign(on)
            d, image = self._direction(g - kappa * signs)
        return most

    def _direction(self, right: Vector) -> tuple[Vector, Vector]:
        """Return (d, B d) for d = B_SS^-1 right; the factor is recomputed if it has worn out."""
        d = self.factor.solve(right)
        image = self.factor.matrix @ d
        # B d shows what the factor has lost by columns entering and leaving.
        if self.factor.is_worn and np.abs(image - right).max() > WORN * np.abs(right).max():
            self.factor.renew()
            d = self.factor.solve(right)
            image = self.factor.matrix @ d
        return d, image

    def _enter(self, columns: NDArray[np.intp]) -> None:
        if columns.size:
            # Columns are appended, so that the factor of those before is kept as it is.
            together = np.concatenate([self.chosen, columns])
            rows, slots = self.problem.gram.rows(columns)
            self.factor.enter(submatrix(rows, slots, together))
            self.chosen = together

    def _leave(self, kept: NDArray[np.bool_]) -> None:
        self.factor.leave(kept)
        self.chosen = self.chosen[kept]


class _Move(NamedTuple):
    """A step on the active set.

    weights: the new ones; image: B times the step; change: of P / 2; complete: no sign changed, so that they are optimal on their support.
    """

    weights: Vector
    image: Vector
    change: float
    complete: bool


@np.errstate(
    over="ignore", invalid="ignore"
)  # of columns that are all but equal steps may be beyond double, and are not taken then
def _move(
    B: NDArray[np.float64], g: Vector, on: Vector, d: Vector, image: Vector, signs: Vector, kappa: float
) -> _Move:
    """Step from the weights `on` along d, of which `image` = B d; return the move."""
    flips = (on + d) * signs <= 0
    # The exact minimum on the line, over all pieces between changes of sign.
    t, zero = line_minimum(float(d @ image), -float(g @ d), on, d, signs, kappa)
    new = on + t * d
    if not flips.any():
        return _Move(new, t * image, 0.0, True)
    if zero >= 0:
        # Exactly zero, so that the column leaves: rounding would keep it at 1e-17 for ever.
        new[zero] = 0.0
    change = _change(g, on, new, t * image, kappa)
    # All that would change sign to zero at once: fewer steps, where it is no worse than the best point on the line.
    clipped = np.where(flips, 0.0, on + d)
    at_clipped = B @ (clipped - on)
    instead = _change(g, on, clipped, at_clipped, kappa)
    if instead <= change:
        return _Move(clipped, at_clipped, instead, False)
    return _Move(new, t * image, change, False)


def _change(g: Vector, old: Vector, new: Vector, image: Vector, kappa: float) -> float:
    """Return (P(new) - P(old)) / 2, image = B (new - old)."""
    step = new - old
    return float(step @ (0.5 * image - g)) + kappa * float(np.abs(new).sum() - np.abs(old).sum())
