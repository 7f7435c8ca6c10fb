"""Solver of (7) by a primal-dual interior point method, for few patterns whose kernel matrix is all but singular.

There gradients take ever smaller steps and the face of the feasible set never settles. Here a step costs a Cholesky factor
of the whole matrix, but some thirty of them do, whatever C, rho and the eigenvalues (S. Mehrotra, On the implementation of a
primal-dual interior point method, SIAM J. Optim. 1992). With z, u > 0 for alpha >= 0, alpha <= C and v for y'alpha = 0:

    g + v y - z + u = 0,    z_i alpha_i = mu,    u_i (C_i - alpha_i) = mu,    mu -> 0
    Hessian of f: 2 Q + (s / rho) I + (2 / rho) alpha alpha',    s = |alpha|^2
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve, solve_triangular

from dkl.linalg.kernels.kernel_operators import Vector
from dkl.linalg.svm_dual import project
from dkl.linalg.symmetric.growing_cholesky import with_ridge
from dkl.solvers.svm.interface import FeasiblePoint, SVMProblem, SVMSolution, record_point
from dkl.solvers.watch import Outcome, Stall, Watch, verdict

STEPS = 100
"""Most interior-point steps; some thirty are usual."""
SHARE = 0.99
"""Largest share of the way to the nearest bound that a step goes."""
MAX_IDLE = 15
"""Steps in a row without a smaller gap."""


def interior_point(problem: SVMProblem, tol: float, *, watch: Watch | None = None) -> SVMSolution:
    """Return the point of the least gap met, to a relative `tol` unless rounding forbids; a row a step."""
    watch, n = watch or Watch(), problem.n
    Q = problem.y[:, None] * problem.kernel.block(np.arange(n)) * problem.y
    within = problem.in_reach()
    # A point inside, as the barrier is infinite at a bound.
    alpha = middle(problem.y, within.C)
    gradient = problem.gradient(alpha, Q @ alpha)
    # z, u > 0 with g - z + u = 0: the start satisfies the first equation with v = 0.
    z = np.maximum(gradient, 0.0) + np.abs(gradient).mean() + np.finfo(float).tiny
    u = z - gradient
    v, steps, idle, stalled = 0.0, 0, Stall(MAX_IDLE), False
    best = _point(problem, alpha, Q)
    stop_reason = record_point(watch, 0, 0, best)
    while True:
        solved = best.relative_gap <= tol
        outcome = verdict(stop_reason, solved=solved, at_limit=steps >= STEPS, stalled=stalled)
        if outcome is not None:
            break
        try:
            with np.errstate(all="ignore"):  # at the end bounds are met to the last bit
                alpha, v, z, u = _step(within, Q, alpha, v, z, u)
            is_finite = all(np.isfinite(part).all() for part in (alpha, z, u))
        except np.linalg.LinAlgError:
            is_finite = False
        if not is_finite:
            outcome = Outcome.STALLED
            break
        steps += 1
        point = _point(problem, alpha, Q)
        stalled = idle.check(point.gap < best.gap)
        # By the gap itself while the relative one is infinite, before f has fallen below 0.
        if (point.relative_gap, point.gap) < (best.relative_gap, best.gap):
            best = point
        stop_reason = record_point(watch, steps, 0, best)
    # The kernel's own product, from which callers continue: one with Q may round otherwise.
    exact = best.with_product(problem.product(best.alpha))
    return SVMSolution(exact, steps, 1, outcome, watch.history)


def middle(y: Vector, C: Vector) -> Vector:
    """Return the point of P at half of C on the class with less of it, and as much in all on the other."""
    of_class = np.where(y > 0, C[y > 0].sum(), C[y < 0].sum())
    return np.asarray(0.5 * C * (of_class.min() / of_class))


def _point(problem: SVMProblem, alpha: Vector, Q: NDArray[np.float64]) -> FeasiblePoint:
    exact, _ = project(alpha, problem.y, problem.C, 0.0)
    return problem.at(exact, Q @ exact)


def _step(
    problem: SVMProblem, Q: NDArray[np.float64], alpha: Vector, v: float, z: Vector, u: Vector
) -> tuple[Vector, float, Vector, Vector]:
    """Take one predictor and corrector step."""
    y, room = problem.y, problem.C - alpha
    gradient = problem.gradient(alpha, Q @ alpha)
    # The Hessian of f, to which the barrier adds the multipliers over the distances from the bounds.
    matrix = 2 * Q
    matrix[np.diag_indices(len(y))] += float(alpha @ alpha) / problem.rho + z / alpha + u / room
    # One factor for both the predictor and the corrector, which is what makes the step cheap.
    factor = with_ridge(matrix, 0.0), True
    # The rank-one part of the Hessian by Woodbury, as the factor has only its other parts.
    inverse = with_rank_one(lambda w: cho_solve(factor, w, check_finite=False), alpha, 2 / problem.rho)
    # y'd = balance is one more equation, eliminated by one more solve.
    solve = _with_plane(inverse, y)
    residual = gradient + v * y - z + u

    def direction(low: Vector, high: Vector) -> tuple[Vector, float, Vector, Vector]:
        """Return (d, dv, dz, du) with z d + alpha dz = low and room du - u d = high."""
        d, dv = solve(-(residual - low / alpha + high / room), -float(y @ alpha))
        return d, dv, (low - z * d) / alpha, (high + u * d) / room

    # The predictor: as far as an affine step would go, from which the mean slack follows.
    d, _, dz, du = direction(-z * alpha, -u * room)
    t = _longest(alpha, room, z, u, d, dz, du)
    mu = float(z @ alpha + u @ room)
    aimed = float((z + t * dz) @ (alpha + t * d) + (u + t * du) @ (room - t * d))
    # Mehrotra's target: the mean slack times the cube of the share that the predictor leaves.
    target = mu / (2 * len(y)) * min(1.0, aimed / mu) ** 3
    # The corrector takes the predictor's products d dz and d du into account.
    d, dv, dz, du = direction(target - z * alpha - d * dz, target - u * room + d * du)
    t = min(1.0, SHARE * _longest(alpha, room, z, u, d, dz, du))
    return alpha + t * d, v + t * dv, z + t * dz, u + t * du


def _with_plane(inverse: Callable[[Vector], Vector], y: Vector) -> Callable[[Vector, float], tuple[Vector, float]]:
    """Return (d, dv) of M d + y dv = right, y'd = balance."""
    My = inverse(y)
    scale = float(y @ My)

    def solve(right: Vector, balance: float) -> tuple[Vector, float]:
        x = inverse(right)
        dv = (float(y @ x) - balance) / scale
        return x - dv * My, dv

    return solve


def _longest(alpha: Vector, room: Vector, z: Vector, u: Vector, d: Vector, dz: Vector, du: Vector) -> float:
    """Return the largest step, up to 1 / SHARE, that leaves everything at 0 or above."""
    longest = 1.0 / SHARE
    for value, change in ((alpha, d), (room, -d), (z, dz), (u, du)):
        falling = change < 0
        if falling.any():
            longest = min(longest, float((value[falling] / -change[falling]).min()))
    return longest


# Newton steps for (7) on the face of the feasible set that a point lies in.
#
# On the free set F the model of f is quadratic with Hessian 2 Q_FF + (s / rho) I + (2 / rho) a a', s = |alpha|^2, and
# one linear constraint y_F'd = 0. A small system is factored; a large one is solved by conjugate gradients,
# preconditioned by 2 F F' + (s / rho) I with a Nystrom approximation F F' of Q.

DENSE = 1500
"""Free patterns up to which their Hessian is factored."""
SKETCH = 200
"""Rows of the Nystrom approximation."""
CG_ITERATIONS, CG_ACCURACY = 40, 0.03
"""Most steps of conjugate gradients, and share of the residual, in the preconditioner's norm, that they leave."""
HALVINGS = 6
"""Lengths of a projected step that are tried, each half of the one before."""
ROUNDING = 1e-13
"""Share of |f| below which a change is rounding."""


@dataclass
class FaceNewton:
    """Newton steps for one problem; what does not depend on the point is made once."""

    problem: SVMProblem
    seed: int = 0
    products: int = 0
    _sketch: NDArray[np.float64] | None = field(default=None, repr=False)

    def step(self, point: FeasiblePoint) -> FeasiblePoint | None:
        """Return a better point by a step along the Newton direction, or None.
        The step is projected, or where that gains nothing up to the first bound; None where that gains nothing either."""
        problem, alpha = self.problem, point.alpha
        free = np.flatnonzero((alpha > 0) & (alpha < problem.C))
        if len(free) < 2:
            return None
        try:
            direction = self._direction(point, free)
        except np.linalg.LinAlgError:  # numbers that are not finite
            return None
        steps = [0.5**k for k in range(HALVINGS)]
        first = _first_bound(alpha[free], direction, problem.C[free])
        # Beyond the first bound steps are projected; at it nothing is clipped, and the model holds.
        for t in [*(t for t in steps if t > first), min(first, 1.0)]:
            target = alpha.copy()
            target[free] += t * direction
            new, _ = project(target, problem.y, problem.C, 0.0)
            better = problem.at(new)
            self.products += 1
            if better.objective < point.objective - ROUNDING * abs(point.objective):
                return better
            # The gap falls with the distance from the solution, the objective with its square: it is done first.
            if better.objective <= point.objective + ROUNDING * abs(point.objective) and better.gap < point.gap:
                return better
        return None

    def _direction(self, point: FeasiblePoint, free: NDArray[np.intp]) -> Vector:
        problem, alpha = self.problem, point.alpha
        y, on, right = problem.y[free], alpha[free], -point.gradient[free]
        ridge = float(alpha @ alpha) / problem.rho
        if len(free) <= DENSE:
            matrix = 2 * y[:, None] * problem.kernel.block(free) * y
            matrix[np.diag_indices(len(free))] += ridge
            # The ridge is rounding's: Q_FF may be singular.
            factor = with_ridge(matrix, 1e-12), True
            inverse = with_rank_one(lambda v: cho_solve(factor, v, check_finite=False), on, 2 / problem.rho)
            return _on_plane(inverse, y)(right)

        def hessian(d: Vector) -> Vector:
            full = np.zeros(problem.n)
            full[free] = d
            self.products += 1
            return 2 * problem.product(full)[free] + ridge * d + (2 / problem.rho) * on * float(on @ d)

        return _conjugate_gradients(hessian, _on_plane(self._preconditioner(free, ridge), y), right)

    def _preconditioner(self, free: NDArray[np.intp], ridge: float) -> Callable[[Vector], Vector]:
        """Return (2 F F' + ridge I)^-1 on the free set."""
        if self._sketch is None:
            self._sketch = self._nystrom()
        # The Hessian has 2 Q.
        F = np.sqrt(2) * self._sketch[free]
        # At least rounding of the sketch's mean eigenvalue, as it is divided by.
        ridge = max(ridge, 1e-8 * float(np.einsum("nk,nk->", F, F)) / len(F))
        small = cho_factor(ridge * np.eye(F.shape[1]) + F.T @ F, lower=True)
        return lambda v: (v - F @ cho_solve(small, F.T @ v)) / ridge

    def _nystrom(self) -> NDArray[np.float64]:
        """Return F (n, k) with F F' = Q_S' Q_SS^-1 Q_S for rows S drawn at random."""
        n = self.problem.n
        drawn = np.sort(np.random.default_rng(self.seed).choice(n, min(SKETCH, n), replace=False))
        columns = self.problem.kernel.columns(drawn)
        corner = columns[drawn]
        lower = with_ridge(corner, 1e-10)
        return self.problem.y[:, None] * solve_triangular(lower, columns.T, lower=True).T


def _first_bound(alpha: Vector, direction: Vector, C: Vector) -> float:
    """Return the largest t with 0 <= alpha + t direction <= C."""
    room = np.where(direction < 0, alpha, C - alpha)
    with np.errstate(over="ignore"):  # beyond double: no bound
        steps = np.divide(room, np.abs(direction), out=np.full(len(room), np.inf), where=direction != 0)
    return float(np.min(steps))


def with_rank_one(solve: Callable[[Vector], Vector], a: Vector, factor: float) -> Callable[[Vector], Vector]:
    """Return (M + factor a a')^-1 from M^-1."""
    Ma = solve(a)
    share = factor / (1 + factor * float(a @ Ma))

    def with_it(v: Vector) -> Vector:
        x = solve(v)
        return np.asarray(x - Ma * (share * float(a @ x)))

    return with_it


def _on_plane(inverse: Callable[[Vector], Vector], y: Vector) -> Callable[[Vector], Vector]:
    """Return the minimizer of d'H d / 2 - d'v with y'd = 0, from H^-1."""
    My = inverse(y)
    scale = float(y @ My)

    def restricted(v: Vector) -> Vector:
        x = inverse(v)
        return np.asarray(x - My * (float(y @ x) / scale))

    return restricted


def _conjugate_gradients(
    hessian: Callable[[Vector], Vector], precondition: Callable[[Vector], Vector], right: Vector
) -> Vector:
    d, residual = np.zeros_like(right), right.copy()
    z = precondition(residual)
    p, rz = z.copy(), float(residual @ z)
    # A rough direction is enough: the step along it is searched.
    target = CG_ACCURACY**2 * rz
    for _ in range(CG_ITERATIONS):
        if rz <= target or rz <= 0:
            break
        Hp = hessian(p)
        step = rz / float(p @ Hp)
        d += step * p
        residual -= step * Hp
        z = precondition(residual)
        before, rz = rz, float(residual @ z)
        p = z + (rz / before) * p
    return d
