"""How far a kernel is from the optimum of problem (1), proven from one extreme eigenvalue of a sparse matrix.

f(K) = tr(KL) + gamma/2 |P_T(K - T)|^2 is convex, with gradient S = L + gamma P_T(K - T), sparse. For every psd K'
    f(K') >= f(K) + <S, K' - K> >= f(K) - <S, K> + min(0, lambda_min(S)) tr(K'),
and at an optimum K* the loss on the diagonal alone bounds the trace: sum (K*_ii - 1)^2 <= 2 f(K*)/gamma <= 2 f(K)/gamma, so
    tr(K*) <= n + sqrt(2 n f(K)/gamma).
Hence f(K) - f(K*) <= gap = <S, K> + max(0, -lambda_min(S)) (n + sqrt(2 n f(K)/gamma)).

lambda_min enters as a lower bound: the Ritz value less its residual norm, and less the rounding of the products. That an
eigenvalue lies within the residual of a Ritz value is a theorem; that it is the smallest one rests on Lanczos from a
random start not having missed a smaller one, which happens with probability zero in exact arithmetic. Up to `DENSE`
patterns all eigenvalues are computed instead.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import scipy.linalg
import scipy.sparse.linalg
from numpy.typing import NDArray
from scipy import sparse
from threadpoolctl import threadpool_limits

DENSE = 400
Product = Callable[[NDArray[np.float64]], NDArray[np.float64]]


@dataclass(frozen=True)
class Certificate:
    """A bound on the distance to the optimum of (1) over all psd kernels.

    objective       f(K)
    gap             f(K) - f(K*) is at most this
    relative_gap    gap / f(K)
    min_eigenvalue  a lower bound on lambda_min(S)
    residual        norm of S x - theta x for the Ritz pair behind it
    inner_product   <S, K>: 0 at a stationary point
    trace_bound     tr(K*) is at most this
    direction       (n,) unit Ritz vector: where min_eigenvalue is negative, K + t x x' is better for a small t
    """

    objective: float
    gap: float
    relative_gap: float
    min_eigenvalue: float
    residual: float
    inner_product: float
    trace_bound: float
    direction: NDArray[np.float64] = field(repr=False)

    def as_dict(self) -> dict[str, float]:
        """The numbers, for a report."""
        names = ("objective", "gap", "relative_gap", "min_eigenvalue", "residual", "inner_product", "trace_bound")
        return {name: float(getattr(self, name)) for name in names}


def gradient_matrix(
    laplacian: sparse.csr_array, targets: sparse.csr_array, gamma: float, entries: NDArray[np.float64]
) -> sparse.csr_array:
    """S = L + gamma P_T(K - T), `entries` holding K_ij for every entry of T in its order."""
    residual = sparse.csr_array(
        (gamma * (entries - targets.data), targets.indices, targets.indptr), shape=targets.shape
    )
    return sparse.csr_array(laplacian + residual)


def certify(
    gradient: sparse.csr_array,
    targets: sparse.csr_array,
    gamma: float,
    entries: NDArray[np.float64],
    smooth: float,
    *,
    product: Product | None = None,
    seed: int = 0,
) -> Certificate:
    """The certificate at K, given K on T (`entries`) and smooth = tr(KL).

    `product` computes S x elsewhere (on a cluster, say); by default it is scipy's.
    """
    n = gradient.shape[0]
    difference = entries - targets.data
    objective = smooth + 0.5 * gamma * float(difference @ difference)
    inner = smooth + gamma * float(difference @ entries)
    low, residual, direction = min_eigenvalue(gradient, product=product, seed=seed)
    trace_bound = n + float(np.sqrt(2 * n * max(objective, 0.0) / gamma))
    gap = max(inner, 0.0) + max(0.0, -low) * trace_bound
    relative = gap / objective if objective > 0 else float(gap > 0) * np.inf
    return Certificate(objective, gap, float(relative), low, residual, inner, trace_bound, direction)


def min_eigenvalue(
    matrix: sparse.csr_array, *, product: Product | None = None, seed: int = 0, tol: float = 1e-7
) -> tuple[float, float, NDArray[np.float64]]:
    """(lower bound on the smallest eigenvalue, residual norm, unit vector) of a sparse symmetric matrix."""
    n = matrix.shape[0]
    norm = float(abs(matrix).sum(axis=1).max()) if matrix.nnz else 0.0
    rounding = float(np.finfo(float).eps * norm * 4)
    if n <= DENSE:
        values, vectors = scipy.linalg.eigh(matrix.toarray(), subset_by_index=[0, 0])
        return float(values[0]) - n * rounding, 0.0, vectors[:, 0]
    apply: Product = product or (lambda x: matrix @ x)
    operator = scipy.sparse.linalg.LinearOperator((n, n), matvec=lambda x: apply(np.ravel(x)), dtype=float)
    vector = _lanczos(operator, np.random.default_rng(seed).standard_normal(n), tol)
    vector /= np.linalg.norm(vector)
    image = apply(vector)
    theta = float(vector @ image)
    residual = float(np.linalg.norm(image - theta * vector))
    return theta - residual - rounding, residual, vector


def _lanczos(operator: object, start: NDArray[np.float64], tol: float) -> NDArray[np.float64]:
    """The best Ritz vector of the smallest eigenvalue, from ever larger subspaces until it has converged."""
    best = start
    with threadpool_limits(1, user_api="blas"):  # the same bits on any machine
        for size in (40, 80, 160, 320):
            try:
                _, vectors = scipy.sparse.linalg.eigsh(
                    operator, k=1, which="SA", ncv=min(size, start.size - 1), tol=tol, maxiter=30, v0=best
                )
                return np.ravel(vectors[:, 0])
            except scipy.sparse.linalg.ArpackNoConvergence as unfinished:
                if unfinished.eigenvectors.size:
                    best = np.ravel(unfinished.eigenvectors[:, 0])
    return best


def optimal_scale(entries: NDArray[np.float64], targets: NDArray[np.float64], gamma: float, smooth: float) -> float:
    """The t >= 0 that minimises f(t K); then <S, K> = 0. A quadratic in t: gamma/2 |t K - T|^2 + t tr(KL)."""
    curvature = gamma * float(entries @ entries)
    return max((gamma * float(entries @ targets) - smooth) / curvature, 0.0) if curvature > 0 else 0.0


def escape_length(certificate: Certificate, targets: sparse.csr_array, gamma: float) -> float:
    """The t that minimises f(K + t^2 x x') along the certificate's direction; 0 where no escape is to be had.

    f(K + s x x') = f(K) + s x'Sx + gamma/2 s^2 sum over T of (x_i x_j)^2, so s = -x'Sx / (gamma sum (x_i x_j)^2).
    """
    slope = certificate.min_eigenvalue + certificate.residual
    if slope >= 0:
        return 0.0
    x = certificate.direction
    rows = np.repeat(np.arange(x.size), np.diff(targets.indptr))
    curvature = gamma * float(np.sum((x[rows] * x[targets.indices]) ** 2))
    return float(np.sqrt(-slope / curvature)) if curvature > 0 else 0.0
