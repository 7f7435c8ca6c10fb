"""The Newton step of problem (3) by a direct solve of its active system.

With D = diag(w psi''(a)) and H_st = tr(A_s K A_t K), the semismooth Newton step of l = w psi'(A(K(l))) is (I + D H) step = r. Off the
active set (D_t > 0) it is r itself; on it
    (D^-1 + H_aa) step_a = D^-1 r_a - (H r_off)_a,
positive definite, one Cholesky factorization of the active number. H comes from entries of K alone.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from dkl.solvers.logdet.pcg import NewtonStep

Vector = NDArray[np.float64]


class DirectProblem(Protocol):
    """Products and entries that the direct solve needs."""

    def product(self, multipliers: Vector) -> Vector:
        """Return A(K U(l) K) of the current K."""

    def hessian(self, active: NDArray[np.intp]) -> NDArray[np.float64]:
        """Return H (a, a) on these constraints, as a new array."""


def direct_step(problem: DirectProblem, residual: Vector, curvatures: Vector) -> NewtonStep:
    """Return the exact step (two products, a factorization); LinAlgError if its system is indefinite."""
    active = np.flatnonzero(curvatures > np.finfo(np.float64).tiny)  # of less the inverse overflows
    step = residual.copy()
    step[active] = 0.0
    if len(active):
        system = problem.hessian(active)
        system[np.diag_indices_from(system)] += 1.0 / curvatures[active]
        right = residual[active] / curvatures[active] - problem.product(step)[active]
        factor = scipy.linalg.cho_factor(system, lower=True, overwrite_a=True, check_finite=False)
        step[active] = scipy.linalg.cho_solve(factor, right, check_finite=False)
    margins = -problem.product(step)
    return NewtonStep(step, margins, float(np.sqrt(max(0.0, -float(step @ margins)))), False, 2)
