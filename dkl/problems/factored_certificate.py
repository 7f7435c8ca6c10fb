"""The certificate of problem (1) at K = V V' of low rank, where S has as many eigenvalues near 0 as V has columns.

The bound of problems/certificate.py, with lambda_min(S) from a split: with Q the range of V, where S is almost zero,
x = Q a + b gives x'Sx >= alpha |a|^2 - 2 beta |a||b| + mu |b|^2, alpha = lambda_min(Q'SQ), beta = |(I - QQ') S Q|, mu a lower
bound of S on the complement. Lanczos then need not resolve the r eigenvalues that cluster at 0, only to see that mu is
positive, and beta enters squared.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import scipy.linalg
import scipy.sparse.linalg
from numpy.typing import NDArray
from scipy import sparse
from threadpoolctl import threadpool_limits

from dkl.linalg.extreme_eigenvalues import DENSE, Shifted
from dkl.linalg.principal_columns import truncate_rank
from dkl.problems.certificate import Certificate, TraceBound, certificate_from_eigenvalue

Array = NDArray[np.float64]
NEW_COLUMNS = 2
"""Vectors of negative eigenvalues that are looked for."""


class Factored(Protocol):
    """Problem (1) in V, and S at a point of it."""

    n: int
    gamma: float

    def gradient_matrix(self, point: Any) -> sparse.csr_array:
        """S."""


def certified(
    problem: Factored, point: Any, relative: float, seed: int, *, last: bool = False
) -> tuple[Certificate, Array]:
    """The certificate at a point, and the vectors (n, k) of negative eigenvalues of S that it met (k may be 0).

    relative: the relative gap that is aimed at; `last` asks for the best bound there is.
    """
    n, matrix = problem.n, problem.gradient_matrix(point)
    bound = TraceBound.of(n, point.objective, problem.gamma)
    with threadpool_limits(1, user_api="blas"):
        factor = truncate_rank(point.v, point.v.shape[1])
        q = scipy.linalg.qr(factor, mode="economic")[0]
        image = matrix @ q
        small = q.T @ image
        alpha = float(np.linalg.eigvalsh(small)[0]) if q.shape[1] else np.inf
        beta = float(np.linalg.norm(image - q @ small, 2)) if q.shape[1] else 0.0
        wanted = 0.1 * relative * bound.scale / bound.trace_bound
        values, vectors, residual = _lowest_outside(matrix, q, wanted, seed)
    norm = float(abs(matrix).sum(axis=1).max())
    low = _lowest_of_both(alpha, beta, float(values[0]) - residual)
    low -= float(np.finfo(float).eps * norm * 4 * (np.sqrt(n) if n <= DENSE else 1.0))
    inner = 0.5 * float(np.vdot(point.v, point.gradient))
    first = np.ascontiguousarray(vectors[:, 0])
    certificate = certificate_from_eigenvalue(
        Shifted.of(matrix), bound, point.objective, inner, low, residual, first, None if last else relative
    )
    return certificate, np.ascontiguousarray(vectors[:, values < -wanted])


def _lowest_of_both(alpha: float, beta: float, mu: float) -> float:
    """The least eigenvalue of [[alpha, -beta], [-beta, mu]]; of a part without dimensions (inf) that of the other alone."""
    if not np.isfinite(alpha) or not np.isfinite(mu):
        return min(alpha, mu)  # LAPACK would make NaN of an infinity
    return float(np.linalg.eigvalsh([[alpha, -beta], [-beta, mu]])[0])


def _lowest_outside(matrix: sparse.csr_array, q: Array, wanted: float, seed: int) -> tuple[Array, Array, float]:
    """(lowest eigenvalues, vectors, residual norm of the first) of the matrix on the complement of Q's range.

    Iterated until the residual is below `wanted`, or small beside an eigenvalue whose sign then is certain.
    """
    n, r = q.shape
    if n <= DENSE:
        basis = scipy.linalg.null_space(q.T) if r else np.eye(n)
        if basis.shape[1] == 0:
            return np.array([np.inf]), np.zeros((n, 1)), 0.0
        values, vectors = np.linalg.eigh(basis.T @ (matrix @ basis))
        return values[:NEW_COLUMNS], basis @ vectors[:, :NEW_COLUMNS], 0.0
    shift = float(abs(matrix).sum(axis=1).max())  # S - shift I <= 0 outside Q, 0 on it; ARPACK's tol is relative

    def outside(x: Array) -> Array:
        return x - q @ (q.T @ x)

    def product(x: Array) -> Array:
        y = outside(np.ravel(x))
        return outside(matrix @ y - shift * y)

    operator = scipy.sparse.linalg.LinearOperator((n, n), matvec=product, dtype=float)
    start = outside(np.random.default_rng(seed).standard_normal((n,)))
    values, vectors, residual = np.array([-np.inf]), start[:, None], np.inf
    for tol, size in ((1e-4, 40), (1e-5, 40), (1e-6, 80), (1e-8, 160), (1e-11, 320)):
        values, vectors = _lanczos(operator, start, tol, min(size, n - 1))
        vectors = np.linalg.qr(outside(vectors))[0]
        values, turn = np.linalg.eigh(vectors.T @ (matrix @ vectors))
        vectors = vectors @ turn
        residual = float(np.linalg.norm(outside(matrix @ vectors[:, 0]) - values[0] * vectors[:, 0]))
        if residual <= wanted or residual <= 0.5 * abs(values[0]):
            break
        start = np.asarray(vectors.sum(axis=1))
    return values, vectors, residual


def _lanczos(operator: object, start: Array, tol: float, size: int) -> tuple[Array, Array]:
    try:
        return scipy.sparse.linalg.eigsh(operator, k=NEW_COLUMNS, which="SA", ncv=size, tol=tol, maxiter=40, v0=start)
    except scipy.sparse.linalg.ArpackNoConvergence as unfinished:
        if unfinished.eigenvectors.size:
            return unfinished.eigenvalues, unfinished.eigenvectors
        return np.zeros(1), start[:, None] / np.linalg.norm(start)
