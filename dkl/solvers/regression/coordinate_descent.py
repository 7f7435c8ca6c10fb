"""Coordinate descent on the kernel's weights mu (Machart et al. 2011, Algorithm 1), on sums without n.

A coordinate goes to its exact minimizer (closed form) or takes the paper's Newton step (19); it is drawn uniformly, as
in the paper, or is the one that lowers F most. Stops at a relative duality gap, or by the paper's rule: when M steps
have lowered F by less than a share `tol` of it. Columns that the gap proves to be zero are not drawn any more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dkl.linalg.lasso import (
    DONE,
    DRIFTED,
    EXACT,
    NEEDS_CAPACITY,
    NEEDS_ROW,
    NEWTON,
    Vector,
    best_coordinate,
    descend,
    subtract_rows,
)
from dkl.solvers.regression.active_set import Lasso, Solution, history_row
from dkl.solvers.watch import Stall, Watch, verdict

RULES = {"exact": EXACT, "newton": NEWTON}
REFRESH = 1000
"""Moves between two computations of the state from scratch: rank-one updates gather rounding errors."""
DRIFT = 1e-9
"""Share of kappa by which lambda a and C'(y - C w), which are equal, may differ after a pass before the state is recomputed."""
NO_PROGRESS, MAX_IDLE = 1e-15, 100
"""Relative fall of F that rounding hides, and maximum such passes in a row: the gap may still fall."""


class WeightedLasso(Lasso, Protocol):
    """The problem with the kernel's weights mu as its unknowns."""

    @property
    def n_columns(self) -> int:
        """Return the number of columns M."""

    @property
    def cross(self) -> Vector:
        """Return (M,) C'y."""

    @property
    def square(self) -> float:
        """Return y'y."""

    @property
    def lam(self) -> float:
        """Return lambda, the weight of the ridge."""

    @property
    def nu(self) -> float:
        """Return nu, the weight of sum mu."""

    def kernel_weights(self, w: Vector) -> Vector:
        """Return the kernel's weights mu of the columns' weights w."""


@dataclass
class CoordinateDescent:
    """Coordinate descent in at most `max_iter` passes of M steps.

    rule: "exact" or "newton"; sampling: "uniform" or "greedy"; stopping: "gap" or "paper".
    """

    rule: str = "exact"
    sampling: str = "uniform"
    stopping: str = "gap"
    tol: float = 1e-6
    max_iter: int = 10_000
    seed: int = 0

    def solve(self, problem: WeightedLasso, start: Vector | None = None, *, watch: Watch | None = None) -> Solution:
        """Return the weights after the last pass; a row a pass."""
        watch, by_gap = watch or Watch(), self.stopping == "gap"
        state, stream, idle = _State(problem, start), np.random.default_rng(self.seed), Stall(MAX_IDLE)
        found = problem.evaluate(state.weights)
        # Columns with a weight stay, whatever the gap proves: only a step can take them to zero.
        alive = problem.may_be_active(found) | (state.mu > 0)
        steps = passes = 0
        solved, stalled = by_gap and found.relative_gap <= self.tol, False
        stop_reason = watch.record(history_row(0, state.mu, found))
        while True:
            outcome = verdict(stop_reason, solved=solved, at_limit=passes >= self.max_iter, stalled=stalled)
            if outcome is not None:
                screened = int(np.count_nonzero(~alive))
                return Solution(state.weights, found, steps, outcome, screened, watch.history)
            before = state.objective
            steps += self._pass(state, alive, stream)
            passes += 1
            gain = before - state.objective
            found = problem.evaluate(state.weights)
            # Drift would make the solver's own objective differ from the true one, by which it is judged.
            if state.has_drifted(found.correlations):
                state.refresh()
                gain, found = before - state.objective, problem.evaluate(state.weights)
            alive &= problem.may_be_active(found) | (state.mu > 0)
            stop_reason = watch.record(history_row(steps, state.mu, found))
            solved = found.relative_gap <= self.tol if by_gap else gain <= self.tol * before
            stalled = idle.check(gain > NO_PROGRESS * before) and by_gap

    def _pass(self, state: _State, alive: NDArray[np.bool_], stream: np.random.Generator) -> int:
        """Make M steps, or fewer where greedy choice finds nothing to gain; return their number."""
        count, rule, problem = state.problem.n_columns, RULES[self.rule], state.problem
        if not alive.any():  # all weights are zero, and proven to be
            return 0
        # A uniform draw among the columns that are alive, as the paper's among all.
        if self.sampling == "uniform":
            state.take(stream.choice(np.flatnonzero(alive), size=count), rule)
            return count
        for step in range(count):
            # A Newton step down can go so far that F rises; where all would, an exact one continues.
            for kind in dict.fromkeys((rule, EXACT)):
                m, _ = best_coordinate(state.a, state.q, state.mu, alive, problem.lam, problem.nu, kind)
                if m >= 0:
                    state.take(np.array([m]), kind)
                    break
            else:
                return step
        return count


class _State:
    """State of the descent: mu, and what follows from it (see dkl/linalg/lasso.py)."""

    def __init__(self, problem: WeightedLasso, start: Vector | None) -> None:
        size = problem.n_columns
        self.problem = problem
        self.mu = problem.kernel_weights(problem.start(start)[0])
        self.slot = np.full(size, -1, np.intp)
        self.refresh()

    @property
    def weights(self) -> Vector:
        """Return w = mu * C'K^-1 y."""
        return self.mu * self.a

    @property
    def objective(self) -> float:
        """Return F(mu): lambda y'K^-1 y = y'(y - C w)."""
        return self.problem.square - float(self.problem.cross @ self.weights) + self.problem.nu * float(self.mu.sum())

    def has_drifted(self, correlations: Vector) -> bool:
        """Return whether rounding since the last refresh makes lambda a differ from C'(y - C w)."""
        problem = self.problem
        return bool(self.moves and np.abs(correlations - problem.lam * self.a).max() > DRIFT * problem.kappa)

    def refresh(self) -> None:
        """Recompute a, q and G from mu alone."""
        problem, lam = self.problem, self.problem.lam
        active = np.flatnonzero(self.mu)
        self.size, self.moves = len(active), 0
        self.support = np.full(problem.n_columns, -1, np.intp)
        self.support[: self.size] = active
        self.position = np.full(problem.n_columns, -1, np.intp)
        self.position[active] = np.arange(self.size)
        self.rows, self.slot[active] = problem.gram.rows(active)
        B = self.rows[self.slot[active]]
        # Room for twice the columns, so that the factor is copied rarely while it grows.
        self.G = np.zeros((max(32, 2 * self.size), max(32, 2 * self.size)))
        # G = (lambda diag(mu)^-1 + B)^-1 lambda on the support: (23) without n.
        G = _inverse(B[:, active] / lam, self.mu[active])
        self.G[: self.size, : self.size] = G
        self.a = problem.cross.copy()
        subtract_rows(self.a, self.rows, self.slot[active], G @ problem.cross[active] / lam)
        self.a /= lam
        # q_m = c_m'K^-1 c_m is positive; rounding may leave a little less than 0.
        self.q = np.maximum(problem.gram.diagonal - np.einsum("sm,sm->m", B, G @ B) / lam, 0.0) / lam

    def take(self, order: NDArray[np.intp], rule: int) -> None:
        """Take steps along the coordinates of `order`."""
        problem, done = self.problem, 0
        most = 2 * problem.square / problem.nu  # nu mu <= F(mu) <= F(0) = y'y, and room for rounding
        while True:
            count, self.size, moves, state = descend(
                order[done:],
                self.rows,
                self.slot,
                self.mu,
                self.a,
                self.q,
                self.support,
                self.position,
                self.G,
                self.size,
                problem.lam,
                problem.nu,
                most,
                rule,
            )
            done, self.moves = done + count, self.moves + moves
            if state == DONE:
                break
            if state == DRIFTED:
                # Without a move since the last refresh it would drift again, for ever: the coordinate is left as it is.
                done += self.moves == 0
                self.refresh()
            if state == NEEDS_ROW:
                wanted = order[done : done + 1]
                # Only rows that a step needs are read: B may be on disk.
                self.rows, self.slot[wanted] = problem.gram.rows(wanted)
            elif state == NEEDS_CAPACITY:
                # Doubled, so that growing costs a constant share of the steps.
                grown = np.zeros((2 * len(self.G), 2 * len(self.G)))
                grown[: self.size, : self.size] = self.G[: self.size, : self.size]
                self.G = grown
        if self.moves >= REFRESH:
            self.refresh()


def _inverse(B: NDArray[np.float64], mu: Vector) -> NDArray[np.float64]:
    """Return (diag(mu)^-1 + B)^-1 = R (I + R B R)^-1 R, R = diag(sqrt(mu)): no eigenvalue is below 1."""
    # The roots of mu make the matrix symmetric with eigenvalues from 1 on: it is inverted safely.
    root = np.sqrt(mu)
    inverse = np.linalg.inv(np.eye(len(mu)) + root[:, None] * B * root)
    return np.asarray(root[:, None] * (inverse + inverse.T) / 2 * root)
