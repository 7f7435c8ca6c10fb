"""Problem (3) of a metric by a primal-dual method: Newton's steps at the scaling point of Nesterov and Todd (Math. Oper. Res. 22, 1997).

With K = L W L' the unknowns are W (r, r) and the multipliers l, S(l) = I + L'U(l)L, both kept positive definite. The optimum has
    W S = I,    tr(W A_t) = x_t,    w psi'(x_t) = l_t.
A step from W = S^-1, linear in S, cannot enlarge K by much: 1 / (1 - s) ends at s = 1. One linear in W cannot shrink it. Where gamma
is large, contradictory pairs ask for both at once, by powers of ten, and either method creeps along the end of its cone. With
P S P = W, and C^-1 the geometric mean of dx/dl at x_t and at tr(W A_t), this step is the same for either side:
    dW + P dS P = S^-1 - W,    (C^-1 + H) dl = A(S^-1 - W) - (x - a),    H_st = tr(A_s P A_t P).

gamma grows on the way, from a kernel near K0; then the loss, smooth to begin with, becomes narrower (`logdet_soft_losses`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from dkl.solvers.logdet_newton import IDLE, NewtonEnd, Point
from dkl.solvers.result import Outcome
from dkl.solvers.watch import Stall, Watch, verdict

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]
WIDEST, NARROWEST = 0.5, 1e-14
REACH = 0.9
"""Of the way to the end of a cone, or of the slopes of the loss."""
LONG = 0.5
"""Share of a step from which on gamma grows, or the width shrinks."""
FACTOR = 2.0
"""Of gamma's growth, and of the width's fall: by 8 together more steps are lost to centring than are won."""


class ScaledProblem(Protocol):
    """Problem (3) of a metric, at a gamma."""

    @property
    def lowest(self) -> float:
        """A lower bound of F."""

    @property
    def gamma(self) -> float:
        """As given."""

    def with_gamma(self, gamma: float) -> Self:
        """At another gamma."""

    def softened(self, width: float) -> Self:
        """With a smooth loss."""

    def point(self, multipliers: Vector) -> Any:
        """K(l), or None."""

    def curvatures(self, margins: Vector) -> Vector:
        """w psi''."""

    def dual_margins(self, multipliers: Vector) -> Vector:
        """x with w psi'(x) = l, not finite where l is no multiplier."""

    def softened_certificate(self, multipliers: Vector) -> Any:
        """Of K(l) for the loss itself."""

    def certificate(self, objective: float, bound: float) -> Any:
        """Of an objective and a lower bound."""

    def inner(self, multipliers: Vector) -> Matrix:
        """L'U(l)L (r, r)."""

    def inner_margins(self, X: Matrix) -> Vector:
        """(c,) tr(L X L' A_t) of a symmetric X (r, r)."""

    def coordinates(self, G: Matrix) -> Matrix:
        """(c, r (r + 1) / 2) of G'L'A_t L G, in coordinates that keep inner products."""


@dataclass(frozen=True)
class _Place:
    """W, l and S(l), with Cholesky factors of both matrices; None of them where one is not positive definite."""

    W: Matrix
    multipliers: Vector
    S: Matrix
    root_W: Matrix
    root_S: Matrix


def scaled_newton(
    problem: ScaledProblem, multipliers: Vector, gamma: float, width: float, *, tol: float, max_iter: int, watch: Watch
) -> NewtonEnd:
    """From K(multipliers), slopes of a loss of this width at `gamma`, at most the problem's, to a proven relative gap of at most tol.

    Rows of the history, and what is handed out, are of the K(l) of the lowest objective so far.
    """
    place = _place_of(problem, multipliers, None)
    assert place is not None
    best: Point = problem.point(multipliers)
    lowest, bound, decrement, stall = np.inf, problem.lowest, np.inf, Stall(IDLE)
    for iteration in range(max_iter + 1):
        if gamma == problem.gamma:
            found = problem.softened_certificate(place.multipliers)
            bound = max(bound, found.bound)
            if found.objective < lowest:
                best, lowest = problem.point(place.multipliers), found.objective
        certificate = problem.certificate(min(lowest, best.objective), bound)
        told = watch.record({
            "iteration": iteration, "objective": certificate.objective, "gap": certificate.gap,
            "relative_gap": certificate.relative_gap, "decrement": decrement, "products": iteration,
        })  # fmt: skip
        is_solved = certificate.relative_gap <= tol
        at_end = stall.is_passed or width < NARROWEST
        ended = verdict(told, solved=is_solved, at_limit=iteration == max_iter, stalled=at_end)
        if ended is not None:
            break
        smooth = problem.with_gamma(gamma).softened(width)
        change, decrement = _step(smooth, place)
        place, share = _taken(smooth, place, *change)
        stall.check(share > 1e-6)
        if share <= LONG:
            continue
        if gamma < problem.gamma:
            gamma = min(problem.gamma, FACTOR * gamma)
        else:
            width /= FACTOR
    return NewtonEnd(best, certificate, ended or Outcome.ITERATION_LIMIT, iteration, iteration, "direct")


def _place_of(problem: ScaledProblem, multipliers: Vector, W: Matrix | None) -> _Place | None:
    """The place, W being S^-1 where it is None; None where it is none."""
    S = problem.inner(multipliers)
    S[np.diag_indices_from(S)] += 1.0
    try:
        root_S: Matrix = np.linalg.cholesky(S).astype(np.float64, copy=False)
        if W is None:
            inverse = scipy.linalg.solve_triangular(root_S, np.eye(len(S)), lower=True)
            W = inverse.T @ inverse
        return _Place(W, multipliers, S, np.linalg.cholesky(W), root_S)
    except np.linalg.LinAlgError:
        return None


def _step(problem: ScaledProblem, place: _Place) -> tuple[tuple[Matrix, Vector, Matrix], float]:
    """((dW, dl, dS), the length of what is left of the equations, in the metric of the step)."""
    a = problem.inner_margins(place.W)
    x = problem.dual_margins(place.multipliers)
    slopes = np.sqrt(problem.curvatures(a) * problem.curvatures(x))
    _, values, right = np.linalg.svd(place.root_S.T @ place.root_W)
    G = place.root_W @ (right.T / np.sqrt(values))  # P = G G'
    inverse = scipy.linalg.solve_triangular(place.root_S, np.eye(len(G)), lower=True)
    left = inverse.T @ inverse - place.W
    rows = problem.coordinates(G)
    wanted = problem.inner_margins(left) - (x - a)
    change = _solved(rows, slopes, wanted)
    dS = problem.inner(change)
    P = G @ G.T
    dW = left - P @ dS @ P
    return (dW, change, dS), float(np.sqrt(np.sum((values - 1.0 / values) ** 2) + np.sum(slopes * (x - a) ** 2)))


def _solved(rows: Matrix, slopes: Vector, wanted: Vector) -> Vector:
    """z with (diag(1 / slopes) + rows rows') z = wanted, by the smaller of its two systems."""
    root = np.sqrt(slopes)
    scaled = rows * root[:, None]  # z = root (I + scaled scaled')^-1 root wanted
    small = scaled @ scaled.T if len(scaled) <= scaled.shape[1] else scaled.T @ scaled
    small[np.diag_indices_from(small)] += 1.0
    factor = scipy.linalg.cho_factor(small, lower=True, overwrite_a=True, check_finite=False)
    right = root * wanted
    if len(scaled) <= scaled.shape[1]:
        return root * scipy.linalg.cho_solve(factor, right, check_finite=False)
    return root * (right - scaled @ scipy.linalg.cho_solve(factor, scaled.T @ right, check_finite=False))


def _taken(problem: ScaledProblem, place: _Place, dW: Matrix, change: Vector, dS: Matrix) -> tuple[_Place, float]:
    """(the place after the step, the smaller of its two shares); the same place and 0 where rounding leaves no way."""
    primal, dual = _share(dW, place.root_W), _share(dS, place.root_S)
    while dual > 0 and not np.isfinite(problem.dual_margins(place.multipliers + dual / REACH * change)).all():
        dual = 0.8 * dual if dual > 1e-12 else 0.0
    for _ in range(20):
        W = place.W + primal * dW
        following = _place_of(problem, place.multipliers + dual * change, (W + W.T) / 2.0)
        if following is not None:
            return following, min(primal, dual)
        primal, dual = primal / 2.0, dual / 2.0
    return place, 0.0


def _share(change: Matrix, root: Matrix) -> float:
    """Of a step from M = root root', at most 1 and REACH of the way to where M + change is singular."""
    half = scipy.linalg.solve_triangular(root, change, lower=True)
    lowest = float(np.linalg.eigvalsh(scipy.linalg.solve_triangular(root, half.T, lower=True))[0])
    return min(1.0, REACH / max(-lowest, np.finfo(np.float64).tiny))
