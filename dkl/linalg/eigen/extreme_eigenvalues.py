"""Lower end of a symmetric matrix' spectrum: bound on the least eigenvalue, rough eigenpairs, the diagonal that lifts it.

That an eigenvalue lies within the residual of a Ritz value is a theorem; that it is the smallest one rests on Lanczos from a
random start not having missed a smaller one, which happens with probability zero in exact arithmetic. Up to `DENSE`
rows all eigenvalues are computed instead.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy.linalg
import scipy.sparse.linalg
from numpy.typing import NDArray
from scipy import sparse

from dkl.linalg.rows.shared_rows import SharedRows
from dkl.resources import one_blas_thread

DENSE = 400
"""Rows up to which LAPACK computes the eigenvalues of the dense matrix: it cannot miss one."""
STEPS = 120
"""Lanczos steps of `lowest_eigenvalue` at most; it keeps STEPS vectors of n numbers."""
ROUGH, ACCURATE = 1e-4, 1e-7
"""Relative accuracies of an eigenvalue, for its sign and for a bound."""
FLOOR = 1e-6
"""Eigenvalues are resolved relative to |theta| + FLOOR |S|, else those near 0 never converge and others are taken for them."""
ATTEMPTS = ((40, 1.0, FLOOR), (80, 1.0, FLOOR), (160, 1.0, FLOOR), (320, 1.0, FLOOR), (320, 1.0, 1.0), (320, 1e3, 1.0))
"""(size of the subspace, factor of the tolerance, floor): ever larger subspaces, then ever rougher answers."""
Array = NDArray[np.float64]
Product = Callable[[Array], Array]


@dataclass(frozen=True)
class Shifted:
    """S + diag(shift), S sparse and symmetric; `product` computes S x elsewhere (on a cluster, say)."""

    matrix: sparse.csr_array
    shift: Array
    product: Product | None = None

    @classmethod
    def of(cls, matrix: sparse.csr_array, product: Product | None = None) -> Shifted:
        """Return the sparse symmetric `matrix` (n, n) itself, with shift 0."""
        return cls(matrix, np.zeros(matrix.shape[0]), product)

    def plus(self, shift: Array) -> Shifted:
        """Return the operator with `shift` (n,) added to its diagonal; matrix and product are shared."""
        return Shifted(self.matrix, self.shift + shift, self.product)

    def __call__(self, x: Array) -> Array:
        """Return (S + diag(shift)) x for x (n,), or (n, 1) as ARPACK may pass it."""
        x = np.ravel(x)
        image = self.matrix @ x if self.product is None else self.product(x)
        return image + self.shift * x

    def toarray(self) -> Array:
        """Return the dense (n, n) matrix, 8 n^2 bytes: for n <= DENSE."""
        return self.matrix.toarray() + np.diag(self.shift)

    @property
    def norm(self) -> float:
        """Return a bound on every |eigenvalue|: the largest row sum of |S| plus the largest |shift|.

        By Gershgorin. 0 for the zero matrix alone.
        """
        norm = float(abs(self.matrix).sum(axis=1).max()) if self.matrix.nnz else 0.0
        return norm + float(np.abs(self.shift).max())

    @property
    def rounding(self) -> float:
        """Return a bound on the rounding of x'(S + D)x for a unit x."""
        return float(np.finfo(float).eps) * 4 * self.norm

    @property
    def operator(self) -> scipy.sparse.linalg.LinearOperator:
        """Return the operator as a scipy LinearOperator, as ARPACK takes it."""
        return scipy.sparse.linalg.LinearOperator(self.matrix.shape, matvec=self, dtype=float)


def lowest_eigenvalue(product: Product, n: int) -> float:
    """Return the smallest eigenvalue of a symmetric (n, n) matrix by its products, for its sign.

    Beyond `DENSE` rows the least Ritz value of at most `STEPS` Lanczos steps, which is never below the eigenvalue. One that
    is isolated is found to a relative accuracy of ROUGH; the lower end of a cluster to about |matrix| / STEPS^2, as more
    would take thousands of steps. The start vector is always the same, so that equal matrices give equal bits.
    """
    if n <= DENSE:
        return float(scipy.linalg.eigvalsh(np.column_stack([product(column) for column in np.eye(n)]))[0])
    vector = np.random.default_rng(0).standard_normal(n)
    basis = np.empty((STEPS, n))
    diagonal, off_diagonal = np.empty(STEPS), np.empty(STEPS)
    lowest = 0.0
    for k in range(STEPS):
        basis[k] = vector / np.linalg.norm(vector)
        # A copy, as the product may be a view of what the caller keeps.
        vector = np.array(product(basis[k]))
        diagonal[k] = basis[k] @ vector
        for _ in range(2):  # one Gram-Schmidt pass loses orthogonality to rounding; two keep it ("twice is enough")
            vector -= basis[: k + 1].T @ (basis[: k + 1] @ vector)
        off_diagonal[k] = np.linalg.norm(vector)
        # A Ritz pair's residual: its tridiagonal eigenvector's last component times the next off-diagonal entry.
        values, vectors = scipy.linalg.eigh_tridiagonal(diagonal[: k + 1], off_diagonal[:k])
        # The largest Ritz value serves as |matrix|, which products alone do not give.
        lowest, norm = float(values[0]), float(np.abs(values).max())
        # An invariant space ends the search: the residual is 0 there.
        if off_diagonal[k] <= 1e-14 * norm or off_diagonal[k] * abs(vectors[-1, 0]) <= ROUGH * abs(lowest):
            break
    return lowest


def min_eigenvalue(matrix: Shifted, *, seed: int = 0) -> tuple[float, float, Array]:
    """Return (lower bound on the smallest eigenvalue, residual norm |S x - theta x|, unit vector x (n,)).

    The bound is the Ritz value theta less its residual and less the rounding of x'Sx; -|S| where Lanczos has not converged
    within ATTEMPTS, which is still a valid bound. Up to `DENSE` rows theta is LAPACK's and the residual is 0.
    """
    n = matrix.shift.size
    if n <= DENSE:
        # LAPACK's error grows with n, so the bound takes n roundings off.
        values, vectors = scipy.linalg.eigh(matrix.toarray(), subset_by_index=[0, 0])
        return float(values[0]) - n * matrix.rounding, 0.0, vectors[:, 0]
    start = np.random.default_rng(seed).standard_normal(n)
    found = _lanczos(matrix, start, ACCURATE)
    # Without convergence any vector is a valid direction, and the bound is -|S|.
    vector = start if found is None else found
    vector /= np.linalg.norm(vector)
    image = matrix(vector)
    theta = float(vector @ image)
    residual = float(np.linalg.norm(image - theta * vector))
    # The residual of a vector that has not converged bounds no smallest eigenvalue.
    low = theta - residual if found is not None else -matrix.norm
    return low - matrix.rounding, residual, vector


def lowest_eigenpairs(matrix: Shifted, count: int) -> tuple[Array, Array]:
    """Return (eigenvalues, unit vectors (n, k)) of about the lowest `count`: 2 digits, fewer in clusters.

    Rough on purpose: `problems.pairwise.certificate.find_lift` only needs to know where negative directions live. k < count where
    ARPACK has not converged for all of them.
    """
    n = matrix.shift.size
    if n <= DENSE:
        values, vectors = scipy.linalg.eigh(matrix.toarray(), subset_by_index=[0, min(count, n) - 1])
        return values, vectors
    start = np.random.default_rng(0).standard_normal(n)
    if matrix.norm == 0:  # ARPACK refuses it
        return np.zeros(1), (start / np.linalg.norm(start))[:, None]
    with one_blas_thread():
        try:
            return scipy.sparse.linalg.eigsh(
                matrix.operator, k=count, which="SA", ncv=5 * count, tol=1e-2, maxiter=4, v0=start
            )
        except scipy.sparse.linalg.ArpackNoConvergence as unfinished:
            return unfinished.eigenvalues, unfinished.eigenvectors


def _lanczos(matrix: Shifted, start: Array, tol: float) -> Array | None:
    """Return the Ritz vector of the smallest eigenvalue; None where no attempt has converged."""
    norm = matrix.norm
    if norm == 0:  # ARPACK refuses it, and any vector will do
        return start
    with one_blas_thread():  # the same bits on any machine
        for size, factor, floor in ATTEMPTS:
            # ARPACK's tolerance is relative to the eigenvalue: move those near 0 away from it.
            moved = matrix.plus(np.full(start.size, -floor * norm)).operator
            try:
                _, vectors = scipy.sparse.linalg.eigsh(
                    moved, k=1, which="SA", ncv=min(size, start.size - 1), tol=factor * tol, maxiter=30, v0=start
                )
                return np.ravel(vectors[:, 0])
            except scipy.sparse.linalg.ArpackNoConvergence:
                pass
    return None


# -- relative to another matrix ----------------------------------------------------------------------------------------
# Lowest eigenvalue of a sparse symmetric V relative to K^-1: how far K^-1 + s V stays definite.

RELATIVE_STEPS = 10
"""Lanczos vectors; the lowest value, far below the others where it matters, is found to a per cent."""
BREAKDOWN = 1e-5
"""Share of the operator's size: a smaller remainder is rounding of products, perhaps in float32."""


def lowest_relative(V: sparse.csr_array, times: Callable[[Array], Array]) -> float:
    """Return at most the lowest eigenvalue of K^1/2 V K^1/2, to some per cent; times(z) = K z.

    K V is self-adjoint in the inner product x' K^-1 z, in which the vectors x = K y are kept with their y: no factor of K is needed.
    From the Ritz value what its residual leaves open is subtracted.
    """
    y = np.random.default_rng(0).standard_normal(V.shape[0])
    x = times(y)
    size = np.sqrt(max(float(x @ y), np.finfo(float).tiny))
    x, y = x / size, y / size
    before = (np.zeros_like(x), np.zeros_like(y))
    diagonal: list[float] = []
    off_diagonal: list[float] = []
    for _ in range(RELATIVE_STEPS):
        z = V @ x
        diagonal.append(float(z @ x))
        rest = off_diagonal[-1] if off_diagonal else 0.0
        # Both recurrences have the same coefficients, so that next_x = K next_y without another product.
        next_y = z - diagonal[-1] * y - rest * before[1]
        next_x = times(z) - diagonal[-1] * x - rest * before[0]
        # |next|^2 in the inner product by K^-1: x' K^-1 x = x'y for x = K y.
        square = float(next_x @ next_y)
        largest = max(max(np.abs(diagonal)), max(off_diagonal, default=0.0))
        if square <= (BREAKDOWN * largest) ** 2:
            off_diagonal.append(0.0)
            break
        off_diagonal.append(float(np.sqrt(square)))
        before, x, y = (x, y), next_x / off_diagonal[-1], next_y / off_diagonal[-1]
    values, vectors = scipy.linalg.eigh_tridiagonal(np.array(diagonal), np.array(off_diagonal[:-1]))
    return float(values[0] - abs(off_diagonal[-1] * vectors[-1, 0]))


# -- the lift ----------------------------------------------------------------------------------------------------------
# The cheapest diagonal above a low-rank matrix: D >= U U' with a small sum of entries.
# D - U U' is psd iff G = U' D^-1 U <= I. For any M psd (q, q) the diagonal D_i = sqrt(u_i' M u_i), times the largest eigenvalue
# of its G, is above; at the least sum M is the geometric mean that solves M = M G M, which M <- M^1/2 G^1/2 M^1/2 approaches.
# One column alone has the least sum |u|_1^2, where M = |u|_1^2 and D_i = |u_i| |u|_1 (Gershgorin).

LIFT_STEPS, WORTH = 15, 5e-3
"""Maximum steps, and least share of the sum that a step must win: the first ones win nearly all."""
MARGIN = 1e-12
"""D is made larger by this share, beyond what rounding may take from it."""


def diagonal_above(u: Array, rows: SharedRows | None = None) -> Array:
    """Return D >= 0 of about the least sum with diag(D) - u u' psd, u (n, q). rows: owners', None for all."""
    rows = rows or SharedRows.alone(len(u))
    best, least = np.zeros(u.shape[0]), np.inf
    spans = rows.sum(lambda lo, hi: np.abs(u[lo:hi]).sum(axis=0)) if u.shape[1] > 0 else np.zeros(0)
    # The start is exact for one column: M = |u|_1^2, Gershgorin's diagonal.
    weight = np.diag(spans**2)
    for _ in range(LIFT_STEPS if spans.any() else 0):
        diagonal = np.sqrt(np.maximum(np.einsum("ij,ij->i", rows.times(u, weight), u), 0.0))
        # Above 0, as it is divided by: rows of zeros, or that underflow, need next to nothing.
        diagonal += np.finfo(float).eps ** 2 * float(rows.largest(diagonal.max(initial=0.0)))
        root_of_gram, largest = _root(rows.gram(u / diagonal[:, None], u))
        # Scaled by the largest eigenvalue of G, any diagonal is above: so each step has a valid D.
        above = (1 + MARGIN) * largest * diagonal
        before, now = least, float(rows.sum(lambda lo, hi, above=above: above[lo:hi].sum()))  # type: ignore[misc]
        if now < least:
            best, least = above, now
        if now > (1 - WORTH) * before:
            break
        root, _ = _root(weight)
        # The fixed point M = M G M of the geometric mean.
        weight = root @ root_of_gram @ root
    return best


def _root(matrix: Array) -> tuple[Array, float]:
    """Return (the square root of a psd matrix, the largest eigenvalue of the matrix)."""
    values, vectors = np.linalg.eigh(0.5 * (matrix + matrix.T))
    return (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T, float(values[-1])
