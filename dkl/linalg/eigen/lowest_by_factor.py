"""Least eigenvalue of a sparse symmetric matrix, as near as a proof needs it: by all, by a factor, or by Lanczos' method.

Up to DENSE rows LAPACK finds it. Beyond, S + s I is factored by diagonal pivots: as many of these are negative as S has eigenvalues
below -s (Sylvester), and Lanczos with the inverse finds those nearest to -s, however close together they lie. Lanczos with S alone, by
which it starts, resolves no more than some thousandths of S's spread. Without a factor that is all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, sparse
from scipy.sparse.linalg import ArpackError, LinearOperator, eigsh, splu

Array = NDArray[np.float64]
DENSE = 500
"""Rows up to which LAPACK computes eigenpairs of the dense matrix."""
SHIFTS, WIDER = 8, 10.0
"""Shifts that are tried, each WIDER times the one before."""
LANCZOS = 60
"""Vectors of Lanczos' method."""
RESTARTS = 10
"""Most restarts of Lanczos' method."""


@dataclass(frozen=True)
class SymmetricFactor:
    """Factor of a symmetric matrix (n, n): its inverse times right sides, its number of eigenvalues below 0, and of stored numbers."""

    solve: Callable[[Array], Array]
    below: int
    numbers: int


def factored(matrix: sparse.csr_array) -> SymmetricFactor | None:
    """Return a factor by diagonal pivots alone, in an order that keeps it sparse; None where a pivot is zero."""
    try:
        found = splu(
            sparse.csc_array(matrix), permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True}
        )
    except RuntimeError:
        return None
    # Rows permuted otherwise than columns mean a pivot off the diagonal: then signs of U count no eigenvalues.
    if not np.array_equal(found.perm_r, found.perm_c):
        return None
    # L has a unit diagonal, so U's is D of L D L'.
    return SymmetricFactor(found.solve, int(np.count_nonzero(found.U.diagonal() <= 0)), found.nnz)


def factored_whole(matrix: sparse.csr_array, lift: float = 0.0) -> SymmetricFactor | None:
    """Return a factor of the dense matrix, with `lift` added to each entry; None where it is not positive definite.

    Of a sparse matrix whose factor would have few zeros it takes a tenth of the time.
    """
    dense = matrix.toarray(order="F")
    if lift:
        dense += lift
    try:
        found = linalg.cho_factor(dense, lower=True, overwrite_a=True, check_finite=False)
    except linalg.LinAlgError:
        return None
    return SymmetricFactor(lambda right: linalg.cho_solve(found, right, check_finite=False), 0, dense.size)


def lowest_pairs(
    matrix: sparse.csr_array,
    count: int,
    aim: float,
    *,
    is_centered: bool = False,
    may_factor: bool = True,
    is_dense: bool = False,
) -> tuple[float, Array, Array]:
    """Return (a lower bound on the least eigenvalue, about the lowest `count` eigenvalues, unit vectors (n, k)).

    aim: the size of an eigenvalue, as a number > 0, that may be overlooked; is_centered: of vectors (n,) with mean 0 alone, where the
    constant one is an eigenvector; may_factor: whether a factor fits in memory; is_dense: it is of the dense matrix.
    """
    n = matrix.shape[0]
    # Sums of products of a row, and so rounding, grow no more than this.
    norm = float(abs(matrix).sum(axis=1).max()) if matrix.nnz else 0.0
    rounding = 4.0 * float(np.finfo(float).eps) * norm
    constant = _constant_value(matrix) if is_centered else None
    if n <= DENSE:
        dense = matrix.toarray()
        if is_centered:
            # The constant vector moves beyond all others.
            dense += (2.0 * norm + 1.0) / n
        values, vectors = linalg.eigh(dense, subset_by_index=[0, min(count, n - is_centered) - 1])
        return float(values[0]) - np.sqrt(n) * rounding, values, vectors
    values, vectors, residual = _by_products(matrix, count, norm, is_centered)
    low = float(values[0])
    # So far below 0 Lanczos with S alone resolves it; a factor is for the eigenvalues close to 0.
    if not may_factor or low < -1e-3 * norm:
        return max(low - residual, -norm) - rounding, values, vectors
    lift = (2.0 * norm + 1.0) / n if is_centered else 0.0
    if is_dense:
        rounding *= np.sqrt(n)
        # Without an eigenvalue below -aim none is looked for: Lanczos with a dense factor takes five times as long as the factor.
        if factored_whole(_shifted(matrix, aim), lift) is not None:
            return -aim - rounding, values, vectors
    # Ritz values lie above the eigenvalue: twice the one found leaves room for what it misses.
    shift = max(WIDER * aim if is_dense else aim, -2.0 * low)
    for _ in range(SHIFTS):
        found = factored_whole(_shifted(matrix, shift), lift) if is_dense else factored(_shifted(matrix, shift))
        if found is not None:
            # A sparse factor is of all vectors, the constant one included; of a dense one that moved beyond all others.
            below = found.below - int(constant is not None and constant < -shift)
            pairs = _by_inverse(matrix, found, count, is_centered)
            if below <= 0:
                # None is below -shift, and of the others Lanczos has found the nearest to it.
                bound = -shift if pairs is None else max(-shift, pairs[2])
                values, vectors = (values, vectors) if pairs is None else pairs[:2]
                return bound - rounding, values, vectors
        shift *= WIDER
    return -norm - rounding, values, vectors


def _shifted(matrix: sparse.csr_array, shift: float) -> sparse.csr_array:
    return sparse.csr_array(matrix + shift * sparse.eye_array(matrix.shape[0]))


def _constant_value(matrix: sparse.csr_array) -> float:
    """Return the eigenvalue of the constant vector."""
    return float(matrix.sum()) / float(matrix.shape[0])


def _operator(n: int, product: object, is_centered: bool) -> LinearOperator:
    """Return the operator x -> P product(P x), P the projection on vectors of mean 0 where `is_centered`."""

    def image(x: Array) -> Array:
        x = np.ravel(x)
        if not is_centered:
            return np.asarray(product(x))  # type: ignore[operator]
        found = product(x - x.mean())  # type: ignore[operator]
        return np.asarray(found - found.mean())

    return LinearOperator((n, n), matvec=image, dtype=np.float64)


def _start(n: int, is_centered: bool) -> Array:
    start = np.random.default_rng(0).standard_normal(n)
    return start - start.mean() if is_centered else start


def _by_products(matrix: sparse.csr_array, count: int, norm: float, is_centered: bool) -> tuple[Array, Array, float]:
    """Return (values, vectors, residual of the first) of rough Ritz pairs by Lanczos with the matrix itself.

    The residual is infinite where Lanczos has not converged: a smaller eigenvalue may be left then.
    """
    n = matrix.shape[0]
    # With S - |S| I all eigenvalues are <= 0, and the constant vector, which P maps to 0, comes last.
    moved = _operator(n, lambda x: matrix @ x - norm * x, is_centered)
    try:
        values, vectors = eigsh(
            moved, count, which="SA", ncv=LANCZOS, maxiter=RESTARTS, tol=1e-3, v0=_start(n, is_centered)
        )
    except ArpackError as unfinished:
        values, vectors = getattr(unfinished, "eigenvalues", np.zeros(0)), getattr(unfinished, "eigenvectors", None)
        if not len(values) or vectors is None:
            vectors = _start(n, is_centered)[:, None]
        values, vectors, _ = _rayleigh(matrix, vectors, is_centered)
        return values, vectors, np.inf
    return _rayleigh(matrix, vectors, is_centered)


def _by_inverse(
    matrix: sparse.csr_array, factor: SymmetricFactor, count: int, is_centered: bool
) -> tuple[Array, Array, float] | None:
    """Return (values, vectors, lower bound of the first) of the pairs nearest to -shift; None where Lanczos does not end."""
    n = matrix.shape[0]
    inverse = _operator(n, factor.solve, is_centered)
    try:
        vectors = eigsh(inverse, count, which="LM", ncv=LANCZOS, maxiter=RESTARTS, tol=1e-6, v0=_start(n, is_centered))[
            1
        ]
    except ArpackError:
        return None
    values, vectors, residual = _rayleigh(matrix, vectors, is_centered)
    return values, vectors, float(values[0]) - residual


def _rayleigh(matrix: sparse.csr_array, vectors: Array, is_centered: bool) -> tuple[Array, Array, float]:
    """Return (Ritz values, rising, vectors, residual of the first) of the matrix on the vectors' range."""
    basis = np.linalg.qr(vectors - vectors.mean(axis=0) if is_centered else vectors)[0]
    image = matrix @ basis
    values, turn = np.linalg.eigh(basis.T @ image)
    vectors, image = basis @ turn, image @ turn
    residual = float(np.linalg.norm(image[:, 0] - values[0] * vectors[:, 0]))
    return values, vectors, residual
