"""Newton steps for (7) on the face of the feasible set that a point lies in.

On the free set F the model of f is quadratic with Hessian 2 Q_FF + (s / rho) I + (2 / rho) a a', s = |alpha|^2, and one
linear constraint y_F'd = 0. A small system is factored; a large one is solved by conjugate gradients, preconditioned by
2 F F' + (s / rho) I with a Nystrom approximation F F' of Q.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve, solve_triangular

from dkl.linalg.projections import project
from dkl.linalg.symmetric.ridged_cholesky import with_ridge
from dkl.linalg.kernels.kernel_operators import Vector
from dkl.solvers.svm.interface import FeasiblePoint, SVMProblem

DENSE = 1500
SKETCH = 200
CG_ITERATIONS, CG_ACCURACY = 40, 0.03
HALVINGS = 6
ROUNDING = 1e-13


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
        F = np.sqrt(2) * self._sketch[free]
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
    return float(np.min(np.divide(room, np.abs(direction), out=np.full(len(room), np.inf), where=direction != 0)))


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
