"""The rank of a factor: how it is cut, how superfluous columns go, how the certificate adds new ones."""

from __future__ import annotations

import numpy as np
import scipy.linalg
import scipy.sparse.linalg
from numpy.typing import NDArray
from scipy import sparse
from threadpoolctl import threadpool_limits

from dkl.linalg.extreme_eigenvalues import DENSE, Shifted
from dkl.problems.certificate import Certificate, Reach, conclude
from dkl.problems.pairwise_factored import FactoredPairwise, Point

Array = NDArray[np.float64]
NEGLIGIBLE = 1e-13  # of the largest singular value squared: columns below are rounding
MIXING_RANK = 32  # above it the quadratic in Y has too many unknowns to be worth forming
CHUNK = 8192
NEW_COLUMNS = 2


def compressed(factor: Array, rank: int) -> Array:
    """The best rank-`rank` part of V V' as principal columns (n, <= rank), from the Gram matrix V'V."""
    with threadpool_limits(1, user_api="blas"):  # the same bits on any machine
        values, vectors = np.linalg.eigh(factor.T @ factor)
        keep = np.flatnonzero(values > NEGLIGIBLE * max(values[-1], 0.0))[::-1][:rank]
        return np.ascontiguousarray(factor @ vectors[:, keep])


def best_mixing(problem: FactoredPairwise, factor: Array) -> Array:
    """Lower f over K = Q Y Q', Y psd, Q an orthonormal basis of the columns of `factor`; principal columns.

    f is a quadratic in Y, minimised exactly. Where its minimum is not psd, Y goes as far as the boundary, loses the
    column that vanishes there, and goes on: f never rises.
    """
    with threadpool_limits(1, user_api="blas"):
        factor = compressed(factor, factor.shape[1])
        while factor.shape[1] > 0:
            scale = np.linalg.norm(factor, axis=0)
            q, r = factor / scale, factor.shape[1]
            if r > MIXING_RANK:
                return factor
            y0 = np.diag(scale**2)
            change = _quadratic_minimum(problem, q) - y0
            # Y0 + t change is singular first where t = 1 / (largest eigenvalue of -Y0^-1/2 change Y0^-1/2).
            steepest = np.linalg.eigvalsh(-change / np.outer(scale, scale))[-1]
            inside = steepest < 1.0
            values, vectors = np.linalg.eigh(y0 + (1.0 if inside else 1.0 / steepest) * change)
            keep = values > NEGLIGIBLE * values[-1]
            if not inside:
                keep[np.argmin(values)] = False
            factor = q @ (vectors[:, keep] * np.sqrt(values[keep]))[:, ::-1]
            if inside:
                break
        return np.ascontiguousarray(factor)


def without_weak(problem: FactoredPairwise, factor: Array, point: Point, share: float) -> tuple[Array, Point]:
    """Principal columns without the weakest ones, as many as raise f by less than `share` of it, and the point there.

    A column that should vanish does so slowly; one that was needed comes back by the certificate.
    """
    limit = point.objective * (1.0 + share)
    while factor.shape[1] > 1:
        fewer = problem.at(problem.padded(factor[:, :-1]))
        if fewer.objective > limit:
            break
        factor, point = factor[:, :-1], fewer
    return factor, point


def _quadratic_minimum(problem: FactoredPairwise, q: Array) -> Array:
    """The symmetric Y that minimises tr(Y Q'LQ) + gamma/2 |P_T(Q Y Q') - T|^2: normal equations in svec(Y)."""
    r = q.shape[1]
    a, b = np.triu_indices(r)
    weight = np.where(a == b, 1.0, np.sqrt(2.0))
    targets = problem.targets
    left = np.repeat(np.arange(problem.n), np.diff(targets.indptr))
    normal, right = np.zeros((a.size, a.size)), np.zeros(a.size)
    for lo in range(0, left.size, CHUNK):
        x, y = q[left[lo : lo + CHUNK]], q[targets.indices[lo : lo + CHUNK]]
        rows = 0.5 * weight * (x[:, a] * y[:, b] + x[:, b] * y[:, a])
        normal += rows.T @ rows
        right += rows.T @ targets.data[lo : lo + CHUNK]
    smooth = weight * (q.T @ (problem.laplacian @ q))[a, b]
    solution, *_ = np.linalg.lstsq(normal, right - smooth / problem.gamma, rcond=1e-14)
    y = np.zeros((r, r))
    y[a, b] = solution / weight
    return y + np.triu(y, 1).T


def certified(
    problem: FactoredPairwise, point: Point, relative: float, seed: int, *, last: bool = False
) -> tuple[Certificate, Array]:
    """The certificate at a point, and the vectors (n, k) of negative eigenvalues of S that it met (k may be 0).

    The bound of problems/certificate.py, with lambda_min(S) from a split: with Q the range of V, where S is almost
    zero, x = Q a + b gives x'Sx >= alpha |a|^2 - 2 beta |a||b| + mu |b|^2, alpha = lambda_min(Q'SQ),
    beta = |(I - QQ') S Q|, mu a lower bound of S on the complement. Lanczos then need not resolve the r eigenvalues
    that cluster at 0, only to see that mu is positive, and beta enters squared. `last` asks for the best bound there is.
    """
    n, matrix = problem.n, problem.gradient_matrix(point)
    reach = Reach.of(n, point.objective, problem.gamma)
    with threadpool_limits(1, user_api="blas"):
        factor = compressed(point.v, point.v.shape[1])
        q = scipy.linalg.qr(factor, mode="economic")[0]
        image = matrix @ q
        small = q.T @ image
        alpha = float(np.linalg.eigvalsh(small)[0]) if q.shape[1] else np.inf
        beta = float(np.linalg.norm(image - q @ small, 2)) if q.shape[1] else 0.0
        wanted = 0.1 * relative * point.objective / reach.trace_bound
        values, vectors, residual = _lowest_outside(matrix, q, wanted, seed)
    norm = float(abs(matrix).sum(axis=1).max())
    mu = float(values[0]) - residual
    low = float(np.linalg.eigvalsh([[alpha, -beta], [-beta, mu]])[0]) if q.shape[1] else mu
    low -= float(np.finfo(float).eps * norm * 4 * (np.sqrt(n) if n <= DENSE else 1.0))
    inner = 0.5 * float(np.vdot(point.v, point.gradient))
    first = np.ascontiguousarray(vectors[:, 0])
    certificate = conclude(
        Shifted.of(matrix), reach, point.objective, inner, low, residual, first, None if last else relative
    )
    return certificate, np.ascontiguousarray(vectors[:, values < -wanted])


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


def escaped(problem: FactoredPairwise, factor: Array, vectors: Array, max_rank: int) -> Array:
    """`factor` with the vectors of negative curvature as new columns, as far as the exact line search takes them."""
    room = max_rank - factor.shape[1]
    new = vectors[:, : max(room, 0)]
    if new.shape[1] == 0:
        return factor
    wide = problem.padded(np.hstack([factor, np.zeros_like(new)]))
    direction = problem.padded(np.hstack([np.zeros_like(factor), new]))
    point = problem.at(wide)
    t, _ = problem.line(point, direction).minimiser()
    return np.hstack([factor, abs(t) * new])
