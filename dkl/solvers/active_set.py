"""The lasso on a Gram matrix by Newton steps on its active set.

Kernel columns are nearly dependent, and coordinate descent needs very many rounds on them. Here the active set S grows
from the start's (feature-sign search: H. Lee, A. Battle, R. Raina, A. Ng, Efficient sparse coding algorithms, NIPS 2006;
here with several columns entering at a time). Given S and the signs s the optimum is one linear system,

    B_SS w_S = b_S - kappa s,

towards which an exact line search goes; a weight that arrives at zero leaves S. When no sign changes on the way, the
columns that violate |c'(y - C w)| <= kappa most enter, a tenth of |S| at a time. A step costs O(m0^3), a round of them
O(m0 M) in addition; memory is that of the active set. Neither depends on n.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dkl.linalg.lasso import Vector, line_minimum, solve_definite, submatrix
from dkl.problems.column_lasso import ColumnLasso, Evaluation
from dkl.solvers.lasso_solution import Solution, history_row
from dkl.solvers.result import Outcome

ENTERING_SHARE = 0.1
TRIES = 3
"""How often columns that would move against their sign are left out before only the first of them enters."""
RIDGES = (0.0, 1e-14, 1e-12, 1e-10, 1e-8, 1e-6, 1e-4)
PATIENCE = 3
"""Rounds without progress, which rounding alone can cause."""


@dataclass(frozen=True)
class ActiveSet:
    """Solve to a relative duality gap of `tol`, in at most `max_iter` Newton steps."""

    tol: float = 1e-6
    max_iter: int = 10_000

    def solve(self, problem: ColumnLasso, start: Vector | None = None) -> Solution:
        w = problem.start(start)
        found = problem.evaluate(w)
        steps, idle, history = 0, 0, [history_row(0, w, found)]
        best, alive = (w.copy(), found), problem.may_be_active(found)
        settled = not w.any()
        while best[1].relative_gap > self.tol and steps < self.max_iter and idle < PATIENCE:
            entering = _entering(problem, w, found, alive) if settled else np.empty(0, np.intp)
            steps += _settle(problem, w, found.correlations, entering, self.max_iter - steps)
            settled = True
            found = problem.evaluate(w)
            alive &= problem.may_be_active(found)
            history.append(history_row(steps, w, found))
            idle = 0 if found.objective < best[1].objective else idle + 1
            if found.gap <= best[1].gap or found.objective < best[1].objective:
                best = w.copy(), found
        if best[1].relative_gap <= self.tol:
            outcome = Outcome.SOLVED
        else:
            outcome = Outcome.ITERATION_LIMIT if steps >= self.max_iter else Outcome.STALLED
        return Solution(*best, steps, outcome, int(np.count_nonzero(~alive)), history)


def _entering(problem: ColumnLasso, w: Vector, found: Evaluation, alive: NDArray[np.bool_]) -> NDArray[np.intp]:
    """Columns outside the active set that violate optimality, the worst first, relative to their lengths."""
    excess = np.abs(found.correlations) - problem.kappa
    candidates = np.flatnonzero((excess > 0) & (w == 0) & alive & (problem.gram.diagonal > 0))
    worst = np.argsort(-excess[candidates] / np.sqrt(problem.gram.diagonal[candidates]), kind="stable")
    return candidates[worst[: max(1, int(ENTERING_SHARE * np.count_nonzero(w)))]]


def _settle(problem: ColumnLasso, w: Vector, g: Vector, entering: NDArray[np.intp], most: int) -> int:
    """Change w, in place, to the optimum on its support and the columns that enter. Returns the number of steps.

    Weights that would have to change their sign leave the support, for columns of a later round.
    """
    chosen = np.concatenate([np.flatnonzero(w), entering])
    if not chosen.size:
        return 0
    rows, places = problem.gram.rows(chosen)
    B = submatrix(rows, places, chosen)
    g, on, kappa = g[chosen], w[chosen], problem.kappa
    signs = np.where(on != 0, np.sign(on), np.sign(g))
    d = _solved(B, g - kappa * signs)
    for attempt in range(TRIES):
        wrong = (on == 0) & (d * signs <= 0)
        if not wrong.any():
            break
        first = np.flatnonzero(on == 0)[:1]
        kept = ~wrong
        if attempt == TRIES - 1 or not (kept & (on == 0)).any():
            kept = on != 0
            kept[first] = True
        chosen, B, g, on, signs = chosen[kept], _kept(B, kept), g[kept], on[kept], signs[kept]
        d = _solved(B, g - kappa * signs)
    for step in range(1, most + 1):
        new, complete = _moved(B, g, on, d, signs, kappa)
        if not complete and _change(B, g, on, new, kappa) >= 0:  # rounding
            return step
        w[chosen] = new
        if complete:
            return step
        g = g - B @ (new - on)
        kept = new != 0
        if not kept.any():
            return step
        chosen, B, g, on = chosen[kept], _kept(B, kept), g[kept], new[kept]
        signs = np.sign(on)
        d = _solved(B, g - kappa * signs)
    return most


def _kept(B: NDArray[np.float64], kept: NDArray[np.bool_]) -> NDArray[np.float64]:
    places = np.flatnonzero(kept)
    return np.asarray(submatrix(B, places, places))


def _moved(
    B: NDArray[np.float64], g: Vector, on: Vector, d: Vector, signs: Vector, kappa: float
) -> tuple[Vector, bool]:
    """(weights after a step from `on` along d, whether no sign changed on the way: then they are optimal)."""
    flips = (on + d) * signs <= 0
    product = B @ d
    t, zero = line_minimum(float(d @ product), -float(g @ d), on, d, signs, kappa)
    new = on + t * d
    if not flips.any():
        return new, True
    if zero >= 0:
        new[zero] = 0.0
    # All that would change sign to zero at once: fewer steps, where it is no worse than the best point on the line.
    clipped = np.where(flips, 0.0, on + d)
    if _change(B, g, on, clipped, kappa) <= _change(B, g, on, new, kappa):
        new = clipped
    return new, False


def _change(B: NDArray[np.float64], g: Vector, old: Vector, new: Vector, kappa: float) -> float:
    """(P(new) - P(old)) / 2."""
    step = new - old
    return 0.5 * float(step @ (B @ step)) - float(g @ step) + kappa * float(np.abs(new).sum() - np.abs(old).sum())


def _solved(matrix: NDArray[np.float64], right: Vector) -> Vector:
    """matrix^-1 right. A matrix that is singular to rounding (equal columns) gets the least ridge that mends it: the line
    search does not need an exact direction."""
    scale = float(np.diag(matrix).max())
    for ridge in RIDGES:
        try:
            solution = solve_definite(matrix, right, ridge * scale)
        except np.linalg.LinAlgError:
            continue
        if np.isfinite(solution).all():
            return np.asarray(solution)
    return right / scale
