"""SLKL's kernel weights by steps along the gradient, which Machart et al. 2011 set their Newton steps against.

    minimize over mu >= 0   F(mu) = lambda y'(lambda I + C diag(mu) C')^-1 y + nu sum mu                        (14)

With K = lambda I + C diag(mu) C', a = C'K^-1 y and P = C'K^-1 C the gradient is nu - lambda a^2 and the Hessian 2 lambda diag(a) P
diag(a): all of it from B = C'C, b = C'y and y'y, whatever the number of rows.

"coordinate" is Y. Nesterov's random coordinate descent (Efficiency of coordinate descent methods on huge-scale optimization problems,
CORE 2010), from which the paper's method differs in the step alone. Coordinate m moves by -1 / L_m times its derivative, cut at 0, with
the constant L_m = 2 y'y B_mm^2 / lambda^2: by Cauchy's inequality a_m^2 <= (y'K^-1 y) P_mm, and K^-1 is at most 1 / lambda.
"projected" moves all coordinates, by -1 / L times the gradient, cut at 0; L doubles until F is below its quadratic bound, and halves
after each step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.linalg.blas import dger

from dkl.problems.regression.column_lasso import ColumnLasso
from dkl.solvers.regression.lasso_solution import Solution, history_row
from dkl.solvers.watch import Watch, verdict

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]
ROUNDING = 1e-14
"""Share of F by which rounding may keep it above its quadratic bound."""


@dataclass(frozen=True)
class WeightedProblem:
    """Problem (14) with B (M, M) in memory."""

    lasso: ColumnLasso
    B: Matrix

    @classmethod
    def of(cls, lasso: ColumnLasso) -> WeightedProblem:
        """Return the problem of a lasso on columns whose Gram matrix is in memory."""
        rows, places = lasso.gram.rows(np.arange(lasso.n_columns))
        return cls(lasso, rows[places])

    def correlations(self, mu: Vector) -> Vector:
        """Return a = C'K^-1 y (M,) at the weights mu."""
        root, S = self._scaled(mu)
        if not S.size:
            return self.lasso.cross / self.lasso.lam
        inner = root * cho_solve(self._factor(root, S), root * self.lasso.cross[S])
        return np.asarray((self.lasso.cross - inner @ self.B[S]) / self.lasso.lam)

    def products(self, mu: Vector) -> Matrix:
        """Return P = C'K^-1 C (M, M) at the weights mu, in columns' order."""
        root, S = self._scaled(mu)
        if not S.size:
            return np.array(self.B / self.lasso.lam, order="F")
        across = root[:, None] * self.B[S]
        return np.array((self.B - across.T @ cho_solve(self._factor(root, S), across)) / self.lasso.lam, order="F")

    def value(self, mu: Vector, a: Vector) -> float:
        """Return F(mu), given a: lambda y'K^-1 y = y'y - b'(mu * a)."""
        return self.lasso.square - float(self.lasso.cross @ (mu * a)) + self.lasso.nu * float(mu.sum())

    def _scaled(self, mu: Vector) -> tuple[Vector, NDArray[np.intp]]:
        S = np.flatnonzero(mu)
        return np.sqrt(mu[S]), S

    def _factor(self, root: Vector, S: NDArray[np.intp]) -> tuple[Matrix, bool]:
        """Factor lambda I + R B_SS R, R = diag(root): no eigenvalue is below lambda."""
        system = root[:, None] * self.B[np.ix_(S, S)] * root
        system.flat[:: len(S) + 1] += self.lasso.lam
        return cho_factor(system, lower=True)


@dataclass(frozen=True)
class WeightDescent:
    """Solver of (14) from mu = 0 to a relative gap of `tol`, in at most `max_iter` passes over the coordinates.

    rule: "coordinate" or "projected". A pass, which has a row in the history, is M derivatives: M steps along coordinates that are
    drawn by `seed`, or one step along all.
    """

    rule: str
    tol: float = 1e-6
    max_iter: int = 1000
    seed: int = 0

    def solve(self, lasso: ColumnLasso, *, watch: Watch | None = None) -> Solution:
        """Return the columns' weights w = mu * a of the last pass."""
        watch, problem = watch or Watch(), WeightedProblem.of(lasso)
        advance = _coordinate_passes(problem, self.seed) if self.rule == "coordinate" else _projected_steps(problem)
        mu, done = np.zeros(lasso.n_columns), 0
        while True:
            a = problem.correlations(mu)
            w = mu * a
            found = lasso.evaluate(w)
            row = history_row(done * lasso.n_columns, mu, found) | {"objective": problem.value(mu, a)}
            solved, at_limit = found.relative_gap <= self.tol, done >= self.max_iter
            outcome = verdict(watch.record(row), solved=solved, at_limit=at_limit)
            if outcome is not None:
                return Solution(w, found, done, outcome, history=watch.history)
            mu, done = advance(mu, a), done + 1


def _coordinate_passes(problem: WeightedProblem, seed: int) -> Callable[[Vector, Vector], Vector]:
    """Return a function that makes a pass of Nesterov's method, from (mu, a) to the next mu."""
    lasso, stream = problem.lasso, np.random.default_rng(seed)
    constants = 2 * lasso.square * lasso.gram.diagonal**2 / lasso.lam**2
    # A column of zeros has no curvature to divide by, and no use for a weight.
    movable = np.flatnonzero(constants > 0)

    def advance(mu: Vector, a: Vector) -> Vector:
        # P afresh for each pass: rank-one updates gather rounding errors.
        mu, a, P = mu.copy(), a.copy(), problem.products(mu)
        for m in stream.choice(movable, size=lasso.n_columns) if movable.size else ():
            change = max(mu[m] - (lasso.nu - lasso.lam * a[m] ** 2) / constants[m], 0.0) - mu[m]
            if change == 0.0:
                continue
            mu[m] += change
            share, column = change / (1 + change * P[m, m]), P[:, m].copy()
            a -= share * a[m] * column
            P = dger(-share, column, column, a=P, overwrite_a=1)  # in place, as P is in columns' order
        return mu

    return advance


def _projected_steps(problem: WeightedProblem) -> Callable[[Vector, Vector], Vector]:
    """Return a function that makes a step of projected gradients, from (mu, a) to the next mu."""
    lasso, curvature = problem.lasso, 0.0

    def advance(mu: Vector, a: Vector) -> Vector:
        nonlocal curvature
        slopes, value = lasso.nu - lasso.lam * a**2, problem.value(mu, a)
        # The largest entry of the Hessian's diagonal at 0 to begin with.
        curvature = curvature or float((2 * a**2 * lasso.gram.diagonal).max()) or 1.0
        while True:
            new = np.maximum(mu - slopes / curvature, 0.0)
            change = new - mu
            bound = value + float(slopes @ change) + 0.5 * curvature * float(change @ change)
            if not problem.value(new, problem.correlations(new)) > bound + ROUNDING * lasso.square:
                break
            curvature *= 2
        # Halved, so that the next step may be longer; doubling finds back what is needed.
        curvature /= 2
        return new

    return advance
