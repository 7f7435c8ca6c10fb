"""TRIN as printed (Li et al. 2009, section 3 and Table 1): trust-region inexact Newton on the entries of K.

    G = U(w psi') + K0^-1 - K^-1                                                                       (4)
    H(D) = U(w psi'' tr(D A_t)) + K^-1 D K^-1                                                          (5)
    K+ = K - D,   D = argmin of m(D) = F - tr(G D) + tr(D H(D)) / 2 over |D|_F <= Delta                (7)

D comes from Table 1's preconditioned conjugate gradients, ended by |H(D) - G|_F < nu |G|_F with nu = min(1/2, |G|_F^1/2) (6), or at the
region's boundary. rho = (F(K) - F(K - D)) / (m(0) - m(D)) decides on the step and on Delta, as in Nocedal & Wright (2006), Algorithm
4.1, to which the paper refers. It ends where |G|_F is at most the tolerance: Table 1's first test.

Kept for comparison: all matrices are dense, and a step that leaves the cone has no value, so that it is taken back and the region
shrinks. `trust_region_newton` takes the same steps in K^-1, where they stay within the cone for longer. |D|_F is of the block of K that
constraints touch, which is the whole problem.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from dkl.solvers.logdet.newton import IDLE, ROUNDING, proven_gap
from dkl.solvers.watch import Outcome, Stall, Watch, verdict

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]
GOOD, POOR = 0.75, 0.25
"""rho from which on the region grows, and below which it shrinks."""
LARGER, SMALLER = 2.0, 0.25
"""Factors of a region that grows or shrinks; a step shorter than the region shrinks in its place."""
LEAST_RADIUS = 1e-15
"""Share of |K|_F below which the region is smaller than rounding."""


class MatrixProblem(Protocol):
    """The LogDet problem in the entries of K (r, r)."""

    @property
    def prior_inverse(self) -> Matrix:
        """Return K0^-1 (r, r)."""

    def margins(self, K: Matrix) -> Vector:
        """Return (c,) tr(K A_t)."""

    def weighted(self, multipliers: Vector) -> Matrix:
        """Return U(l) = sum of l_t A_t (r, r)."""

    def objective(self, margins: Vector, K: Matrix, log_det: float) -> float:
        """Return F of K with its margins and log det K."""

    def forces(self, margins: Vector) -> Vector:
        """Return the forces w psi' of the margins."""

    def curvatures(self, margins: Vector) -> Vector:
        """Return the curvatures w psi'' of the margins."""


@dataclass(frozen=True)
class _Iterate:
    """K with its inverse, margins and objective."""

    K: Matrix
    inverse: Matrix
    margins: Vector
    objective: float

    @classmethod
    def of(cls, problem: MatrixProblem, K: Matrix) -> _Iterate | None:
        """Return the iterate of K, or None where K is not positive definite."""
        # Steps differ from their transposes by rounding: where that adds up, tr(K0^-1 K) and log det K are not of one matrix.
        K = (K + K.T) / 2.0
        try:
            factor = scipy.linalg.cholesky(K, lower=True)
        except (np.linalg.LinAlgError, ValueError):  # not definite, or not finite
            return None
        inverse = scipy.linalg.cho_solve((factor, True), np.eye(len(K)))
        margins = problem.margins(K)
        log_det = 2.0 * float(np.log(np.diag(factor)).sum())
        return cls(K, (inverse + inverse.T) / 2.0, margins, problem.objective(margins, K, log_det))


@dataclass(frozen=True)
class PaperEnd:
    """Margins of the last K, the best lower bound of F, outcome, steps and products."""

    margins: Vector
    bound: float
    outcome: Outcome
    n_iter: int
    n_products: int


def paper_newton(
    problem: MatrixProblem,
    start: Matrix,
    *,
    lowest: float,
    certify: Callable[[float, float], Any],
    tol: float,
    max_iter: int,
    watch: Watch,
    forcing_power: float = 0.5,
) -> PaperEnd:
    """Minimize F from the kernel `start` (r, r) until |G|_F <= tol, which is STATIONARY, or a limit.

    lowest: a lower bound of F; certify: makes the certificate of an objective and a bound; forcing_power: p of nu = min(1/2, |G|_F^p),
    the paper's 1/2 a rate of 3/2 near the optimum, 1 a quadratic one (Theorem 1). Rows of the history: iteration, objective,
    gap, relative_gap, decrement (|K^1/2 G K^1/2|_F), products. A step that is taken back counts as an iteration.
    """
    at = _Iterate.of(problem, start)
    assert at is not None
    radius, bound, products = float(np.linalg.norm(start)), lowest, 0
    stall, least_size, lowest_yet = Stall(IDLE), np.inf, np.inf
    for iteration in range(max_iter + 1):
        G = problem.weighted(problem.forces(at.margins)) + problem.prior_inverse - at.inverse
        Y = at.K @ G @ at.K
        decrement = float(np.sqrt(max(float(np.sum(G * Y)), 0.0)))  # in this order: of a NaN, max is the NaN then
        # The multipliers w psi' prove it of every K, not only of those that K^-1 = K0^-1 + U(l) gives.
        bound = max(bound, at.objective - proven_gap(decrement))
        proven = certify(at.objective, bound)
        stop_reason = watch.record({
            "iteration": iteration, "objective": at.objective, "gap": proven.gap,
            "relative_gap": proven.relative_gap, "decrement": decrement, "products": products,
        })  # fmt: skip
        size = float(np.linalg.norm(G))
        is_lost = radius < LEAST_RADIUS * float(np.linalg.norm(at.K))
        is_stuck = is_lost or stall.is_passed
        ended = verdict(stop_reason, solved=size <= tol, at_limit=iteration == max_iter, stalled=is_stuck)
        if not np.isfinite(size):
            ended = Outcome.NUMERICAL_ERROR
        if ended is not None:
            break
        D, HD, count, at_edge = _table1(problem, at, G, Y, min(0.5, size**forcing_power) * size, radius)
        products += count
        predicted = float(np.sum(G * D)) - float(np.sum(D * HD)) / 2.0
        trial = _Iterate.of(problem, at.K - D)
        # What is below rounding of F must not count against a step (Conn, Gould & Toint 2000, 17.4.2).
        slack = ROUNDING * abs(at.objective)
        # A K that is not definite has an infinite objective: rho is below every bound.
        rho = -np.inf if trial is None else (at.objective - trial.objective + slack) / (predicted + slack)
        # Negated, so that a rho that is not a number shrinks the region.
        if not rho >= POOR:
            radius = SMALLER * min(radius, float(np.linalg.norm(D)))
        elif rho > GOOD and at_edge:
            radius *= LARGER
        if trial is not None and rho > 0:
            # Rounding of K0^-1 - K^-1 leaves a G that no step takes away: it ends where neither F nor |G|_F falls.
            stall.check(trial.objective < lowest_yet - slack or size < least_size / 2)
            least_size, lowest_yet = min(least_size, size), min(lowest_yet, trial.objective)
            at = trial
    outcome = Outcome.STATIONARY if ended is Outcome.SOLVED else ended or Outcome.ITERATION_LIMIT
    return PaperEnd(at.margins, bound, outcome, iteration, products)


def _table1(
    problem: MatrixProblem, at: _Iterate, G: Matrix, Y: Matrix, goal: float, radius: float
) -> tuple[Matrix, Matrix, int, bool]:
    """Return (D, H(D), products, whether D is at the boundary) by Table 1, ended at |H(D) - G|_F < goal; Y = K G K."""
    curvatures = problem.curvatures(at.margins)
    Z, HZ = np.zeros_like(G), np.zeros_like(G)
    # Table 1 at Z = 0: R = H(Z) - G = -G, Y = K R K, P = -Y and Q = K^-1 P K^-1.
    R, Y, P, Q = -G, -Y, Y.copy(), G.copy()
    yr = float(np.sum(Y * R))
    # In exact arithmetic conjugate gradients end after as many products as there are unknowns.
    for count in range(1, len(G) * (len(G) + 1) // 2 + 1):
        first = problem.weighted(curvatures * problem.margins(P))  # H_F(P)
        bend = float(np.sum(P * Q)) + float(np.sum(P * first))
        if not bend > 0:  # rounding: what has been found so far is still a step of descent
            return Z, HZ, count, False
        alpha = yr / bend
        following = Z + alpha * P
        if float(np.linalg.norm(following)) >= radius:
            share = _to_edge(Z, P, radius)
            return Z + share * P, HZ + share * (first + Q), count, True
        Z, HZ = following, HZ + alpha * (first + Q)
        R = R + alpha * (first + Q)
        if float(np.linalg.norm(R)) < goal:
            break
        Y = Y + alpha * (at.K @ first @ at.K + P)
        after = float(np.sum(Y * R))
        beta, yr = after / yr, after
        P, Q = beta * P - Y, beta * Q - R
    return Z, HZ, count, False


def _to_edge(Z: Matrix, P: Matrix, radius: float) -> float:
    """Return the share >= 0 with |Z + share P|_F = radius; the paper searches for it by bisection."""
    square, cross, rest = float(np.sum(P * P)), float(np.sum(Z * P)), radius**2 - float(np.sum(Z * Z))
    # Of the two forms of the root the one in which nothing cancels.
    root = np.sqrt(max(0.0, cross**2 + square * rest))
    return float(rest / (root + cross)) if cross > 0 else float((root - cross) / square)
