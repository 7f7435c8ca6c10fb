"""The lower end of the spectrum of a sparse symmetric matrix: a bound on the smallest eigenvalue, and rough eigenpairs.

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
from threadpoolctl import threadpool_limits

DENSE = 400
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
        return cls(matrix, np.zeros(matrix.shape[0]), product)

    def plus(self, shift: Array) -> Shifted:
        return Shifted(self.matrix, self.shift + shift, self.product)

    def __call__(self, x: Array) -> Array:
        x = np.ravel(x)
        image = self.matrix @ x if self.product is None else self.product(x)
        return image + self.shift * x

    def toarray(self) -> Array:
        return self.matrix.toarray() + np.diag(self.shift)

    @property
    def rounding(self) -> float:
        """A bound on the rounding of x'(S + D)x for a unit x."""
        norm = float(abs(self.matrix).sum(axis=1).max()) if self.matrix.nnz else 0.0
        return float(np.finfo(float).eps) * 4 * (norm + float(np.abs(self.shift).max()))

    @property
    def operator(self) -> scipy.sparse.linalg.LinearOperator:
        return scipy.sparse.linalg.LinearOperator(self.matrix.shape, matvec=self, dtype=float)


def min_eigenvalue(matrix: Shifted, *, seed: int = 0, tol: float = 1e-7) -> tuple[float, float, Array]:
    """(lower bound on the smallest eigenvalue, residual norm |S x - theta x|, unit vector x)."""
    n = matrix.shift.size
    if n <= DENSE:
        values, vectors = scipy.linalg.eigh(matrix.toarray(), subset_by_index=[0, 0])
        return float(values[0]) - n * matrix.rounding, 0.0, vectors[:, 0]
    vector = _lanczos(matrix, np.random.default_rng(seed).standard_normal(n), tol)
    vector /= np.linalg.norm(vector)
    image = matrix(vector)
    theta = float(vector @ image)
    residual = float(np.linalg.norm(image - theta * vector))
    return theta - residual - matrix.rounding, residual, vector


def lowest_eigenpairs(matrix: Shifted, count: int, *, seed: int = 0) -> tuple[Array, Array]:
    """About the lowest `count` eigenvalues, and unit vectors (n, count): to two digits, or fewer where they cluster."""
    n = matrix.shift.size
    if n <= DENSE:
        values, vectors = scipy.linalg.eigh(matrix.toarray(), subset_by_index=[0, min(count, n) - 1])
        return values, vectors
    start = np.random.default_rng(seed).standard_normal(n)
    with threadpool_limits(1, user_api="blas"):
        try:
            return scipy.sparse.linalg.eigsh(
                matrix.operator, k=count, which="SA", ncv=5 * count, tol=1e-2, maxiter=20, v0=start
            )
        except scipy.sparse.linalg.ArpackNoConvergence as unfinished:
            return unfinished.eigenvalues, unfinished.eigenvectors


def _lanczos(matrix: Shifted, start: Array, tol: float) -> Array:
    """The best Ritz vector of the smallest eigenvalue, from ever larger subspaces until it has converged."""
    best = start
    with threadpool_limits(1, user_api="blas"):  # the same bits on any machine
        for size in (40, 80, 160, 320):
            try:
                _, vectors = scipy.sparse.linalg.eigsh(
                    matrix.operator, k=1, which="SA", ncv=min(size, start.size - 1), tol=tol, maxiter=30, v0=best
                )
                return np.ravel(vectors[:, 0])
            except scipy.sparse.linalg.ArpackNoConvergence as unfinished:
                if unfinished.eigenvectors.size:
                    best = np.ravel(unfinished.eigenvectors[:, 0])
    return best
