"""Starts for the lassos of several outputs from one shared inverse: they differ in b = C'y alone.

Given the active set S and signs s, the optimum solves B_SS w_S = b_S - kappa s. With H = B^-1 at hand that costs what the
columns Z outside S do: v = b - kappa s (0 on Z),

    H_ZZ nu = (H v)_Z,    w = H (v - nu on Z),    c_Z'(y - C w) = nu

Weights of the wrong sign leave S, columns with |nu| > kappa enter, all at once (the primal-dual active set of M. Hintermueller,
K. Ito, K. Kunisch, SIAM J. Optim. 13, 2003). That ends after some ten rounds or not at all, and pays where Z is small: an
output without a start begins at zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve, lapack

from dkl.linalg.lasso import Vector
from dkl.linalg.one_blas_thread import one_blas_thread
from dkl.linalg.rows.column_moments import mirrored
from dkl.solvers.regression.lasso_solution import Lasso

MOST_ROUNDS = 20
MOST_OUTSIDE = 0.75
"""Share of the columns outside S from which on a start costs as much as what it saves."""


class OutputLasso(Lasso, Protocol):
    """The lasso of one output."""

    @property
    def cross(self) -> Vector:
        """Return (M,) b = C'y."""


def starts_of(problems: Sequence[OutputLasso], B: NDArray[np.float64], *, threads: int = 1) -> list[Vector | None]:
    """Return weights (M,) to start each problem at, or None, for problems that share B (M, M). O(M^3)."""
    H = inverse(B)
    if H is None:
        return [None] * len(problems)
    with one_blas_thread(), ThreadPoolExecutor(threads) as pool:
        return list(pool.map(lambda problem: start_of(problem, H), problems))


def inverse(B: NDArray[np.float64]) -> NDArray[np.float64] | None:
    """Return H (M, M), or None where B is singular to rounding."""
    factor, failed = lapack.dpotrf(B, lower=0)
    if failed:
        return None
    found, failed = lapack.dpotri(factor, lower=0, overwrite_c=1)
    return None if failed or not np.isfinite(found).all() else mirrored(np.ascontiguousarray(found))


def start_of(problem: OutputLasso, H: NDArray[np.float64]) -> Vector | None:
    """Return the optimum, but for rounding; None if the rounds do not end, or lead to few columns."""
    kappa, free = problem.kappa, H @ problem.cross
    signs, inside = np.sign(free), np.ones(len(free), bool)
    for _ in range(MOST_ROUNDS):
        if np.count_nonzero(~inside) > MOST_OUTSIDE * len(free):
            return None
        w, at = _restricted(H, free - kappa * (H @ np.where(inside, signs, 0.0)), inside)
        leaving = inside & (w * signs <= 0)
        entering = np.abs(at) > kappa
        if not (leaving | entering).any():
            left = np.where(inside, problem.evaluate(w).correlations - kappa * signs, 0.0)
            return w + _restricted(H, H @ left, inside)[0]  # corrected by its own residual
        inside = (inside & ~leaving) | entering
        signs = np.where(entering, np.sign(at), signs)
    return None


def _restricted(
    H: NDArray[np.float64], unrestricted: Vector, inside: NDArray[np.bool_]
) -> tuple[Vector, NDArray[np.float64]]:
    """Return (w, nu): `unrestricted` H v with w made 0 outside; nu: correlations left there, 0 inside."""
    outside, at = np.flatnonzero(~inside), np.zeros(len(inside))
    if not outside.size:
        return unrestricted, at
    factor = (np.linalg.cholesky(H[np.ix_(outside, outside)]), True)
    at[outside] = cho_solve(factor, unrestricted[outside], check_finite=False)
    w = unrestricted - H @ at
    w[outside] = 0.0
    return w, at
