"""The LogDet problem (Li et al. 2009, (3)) of a metric along its central path: Newton's method in W, at a gamma that doubles.

With K = L W L' the objective is F(W) = w sum_t psi(a_t) + tr W - log det W - r, a_t = tr(L W L' A_t). In the coordinates W = R (I + E) R',
W = R R', and with S = I + L'U(w psi'(a))L, A_t' = R'L'A_t L R, Newton's step is
    E + sum_t w psi''(a_t) <A_t', E> A_t' = I - R'S R,
and on the way along it the objective is a function of r eigenvalues and c margins: its least point is found to rounding.

Where gamma is large, contradictory pairs ask for eigenvalues of W from 1e-6 to 1e3 at once. From W0 Newton's method reaches for the small
ones first and comes back by a factor of two a step; on the central path (Boyd & Vandenberghe 2004, 11.3: (3) is w times a loss and a
barrier) they shrink and grow with gamma, in a few steps each time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from dkl.solvers.logdet.newton import IDLE, ROUNDING, NewtonEnd, NewtonPoint
from dkl.solvers.watch import Outcome, Stall, Watch, verdict

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]
CENTERED = 1.0
"""Newton's decrement, squared, below which gamma grows."""
GROWTH = 2.0
"""Factor on gamma: 3 and 4 take 1.5 and 2.5 times the steps of 2 on 800 contradictory pairs."""
BISECTIONS = 50
"""Halvings of the line search's bracket."""
SHRINK = 0.5
"""Largest share of an eigenvalue of W that a step may take.
On 800 contradictory pairs at gamma = 1e4 it takes 127 steps in all, with shares of 0.7 and 0.3 150 and 158; without a limit 229, as
Newton's method gives back a factor of two a step."""


class MetricProblem(Protocol):
    """The LogDet problem of a metric at a gamma."""

    @property
    def lowest(self) -> float:
        """Return a lower bound of F."""

    @property
    def gamma(self) -> float:
        """Return the problem's gamma."""

    def with_gamma(self, gamma: float) -> Self:
        """Return the same problem at another gamma."""

    def point(self, multipliers: Vector) -> Any:
        """Return the point of K(l), or None."""

    def forces(self, margins: Vector) -> Vector:
        """Return the forces w psi' of the margins."""

    def curvatures(self, margins: Vector) -> Vector:
        """Return the curvatures w psi'' of the margins."""

    def bound(self, margins: Vector) -> float:
        """Return D(w psi'(a)), -inf where it proves nothing."""

    def certificate(self, objective: float, bound: float) -> Any:
        """Return the certificate of an objective and a lower bound."""

    def inner(self, multipliers: Vector) -> Matrix:
        """Return L'U(l)L (r, r)."""

    def inner_margins(self, X: Matrix) -> Vector:
        """Return (c,) tr(L X L' A_t) of a symmetric X (r, r)."""

    def coordinates(self, G: Matrix) -> Matrix:
        """Return (c, r (r + 1) / 2) of G'L'A_t L G, in the coordinates of `_packed`."""


@dataclass(frozen=True)
class _Step:
    """Newton's step: E, the change of the margins, and the squared decrement."""

    E: Matrix
    margins: Vector
    decrement: float


def central_path(
    problem: MetricProblem, multipliers: Vector, gamma: float, *, tol: float, max_iter: int, watch: Watch
) -> NewtonEnd:
    """Follow the central path from K(multipliers), near the optimum at `gamma`, to a proven gap <= tol.

    gamma: at most the problem's. tol: relative. The history and the result are of the K(l) with the lowest objective so far, where l are
    the forces at W after the step, to first order.
    """
    best: NewtonPoint = problem.point(multipliers)
    inner = problem.inner(multipliers)
    R = _root(np.asarray(np.linalg.inv(np.eye(len(inner)) + inner), dtype=np.float64))
    lowest, bound, decrement, stall = best.objective, problem.lowest, np.inf, Stall(IDLE)
    for iteration in range(max_iter + 1):
        at, step = problem.with_gamma(gamma), None
        margins = None if R is None else problem.inner_margins(R @ R.T)
        if R is not None and margins is not None:
            step = _step(at, R, margins)
        if step is not None and margins is not None:
            decrement = float(np.sqrt(step.decrement))
            # On the way F and D are those of another problem.
            if gamma == problem.gamma:
                best, lowest, bound = _proven(problem, margins, step, best, lowest, bound)
        certificate = problem.certificate(lowest, bound)
        stop_reason = watch.record({
            "iteration": iteration, "objective": lowest, "gap": certificate.gap, "relative_gap": certificate.relative_gap,
            "decrement": decrement, "products": iteration,
        })  # fmt: skip
        is_solved, at_end = certificate.relative_gap <= tol, step is None or stall.is_passed
        ended = verdict(stop_reason, solved=is_solved, at_limit=iteration == max_iter, stalled=at_end)
        if ended is not None or step is None or margins is None or R is None:
            break
        # While gamma grows the objective asked for need not fall. Of r eigenvalues near 1 rounding leaves r ROUNDING^2.
        slack = ROUNDING * abs(lowest) + len(R) * ROUNDING**2
        stall.check(gamma < problem.gamma or step.decrement > slack)
        R = _moved(at, R, margins, step)
        if step.decrement < CENTERED:
            gamma = min(problem.gamma, GROWTH * gamma)
    return NewtonEnd(best, certificate, ended or Outcome.STALLED, iteration, iteration, "direct")


def _proven(
    problem: MetricProblem, margins: Vector, step: _Step, best: NewtonPoint, lowest: float, bound: float
) -> tuple[NewtonPoint, float, float]:
    """Return (the better point, its objective, the higher bound) of the forces here and after the step."""
    # Both the forces here and those after the step are dual points; the better bound of the two counts.
    bound = max(bound, problem.bound(margins))
    point = problem.point(problem.forces(margins) + problem.curvatures(margins) * step.margins)
    if point is None:
        return best, lowest, bound
    bound = max(bound, problem.bound(point.margins))
    return (point, point.objective, bound) if point.objective < lowest else (best, lowest, bound)


def _step(problem: MetricProblem, R: Matrix, margins: Vector) -> _Step | None:
    """Return Newton's step at W = R R', by the smaller system of its margins or entries, or None."""
    # R'S R, which is the identity at the optimum: what it lacks is the right side.
    inner = R.T @ problem.inner(problem.forces(margins)) @ R + R.T @ R
    # Symmetric matrices by their upper triangles, as all unknowns are symmetric.
    wanted = _packed(np.eye(len(R)) - inner)
    rows = problem.coordinates(R)
    # The roots of the curvatures split the system symmetrically.
    scaled = np.sqrt(problem.curvatures(margins))[:, None] * rows
    # Woodbury: the system is of the margins or of the entries, whichever are fewer.
    is_wide = len(scaled) <= scaled.shape[1]
    # Half of scaled scaled' or scaled'scaled: the transpose is in Fortran's order, so that BLAS copies nothing.
    small = scipy.linalg.blas.dsyrk(1.0, scaled.T, trans=int(is_wide), lower=1)
    small[np.diag_indices_from(small)] += 1.0
    try:
        factor = scipy.linalg.cho_factor(small, lower=True, overwrite_a=True)
    except (np.linalg.LinAlgError, ValueError):  # not definite, or not finite
        return None
    right = scaled @ wanted if is_wide else wanted
    solved = scipy.linalg.cho_solve(factor, right)
    found = wanted - scaled.T @ solved if is_wide else solved
    return _Step(_unpacked(found, len(R)), rows @ found, max(0.0, float(wanted @ found)))


def _moved(problem: MetricProblem, R: Matrix, margins: Vector, step: _Step) -> Matrix | None:
    """Return the root of W at the least objective along the step; None where rounding leaves W indefinite."""
    values = np.linalg.eigvalsh(step.E)
    size = float(np.sum((R @ step.E) * R))  # tr(R E R')

    # The derivative along the step, of which only r eigenvalues and c margins are needed.
    def slope(share: float) -> float:
        rest = float(problem.forces(margins + share * step.margins) @ step.margins)
        return rest + size - float(np.sum(values / (1.0 + share * values)))

    low, high = 0.0, 1.0
    # Only SHRINK of an eigenvalue of W may go in one step, whatever the line search allows.
    end = SHRINK / max(-float(values[0]), np.finfo(np.float64).tiny)
    # The minimum lies beyond `high` while the objective still falls there.
    while high < end and slope(high) < 0.0:
        low, high = high, 2.0 * high
    high = min(high, end)
    # Bisection, as the derivative is monotone: 50 halvings are below rounding.
    for _ in range(BISECTIONS):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if slope(middle) > 0.0 else (middle, high)
    return _root(R @ (np.eye(len(R)) + low * step.E) @ R.T) if low > 0.0 else R


def _root(W: Matrix) -> Matrix | None:
    """Return R lower triangular, W = R R'; None where W is not positive definite."""
    try:
        # Symmetrized first, since rounding of a product leaves W a little unsymmetric.
        return np.asarray(np.linalg.cholesky((W + W.T) / 2.0))
    except np.linalg.LinAlgError:
        return None


def _packed(X: Matrix) -> Vector:
    """Return a symmetric X's upper triangle by rows, off-diagonals by the root of 2: products are traces."""
    i, j = np.triu_indices(len(X))
    return np.asarray(X[i, j] * np.where(i == j, 1.0, np.sqrt(2.0)))


def _unpacked(x: Vector, r: int) -> Matrix:
    """Return the symmetric matrix (r, r) of these coordinates."""
    i, j = np.triu_indices(r)
    X = np.empty((r, r))
    X[i, j] = X[j, i] = x * np.where(i == j, 1.0, np.sqrt(0.5))
    return X
