"""The smoothest eigenvectors of a graph's Laplacian, some dozens to hundreds, by whichever method is safe at the graph's size.

    n up to DENSE          LAPACK
    n up to FACTORED       shift-invert Lanczos: the factors of L + shift fill in at most to n^2 numbers, whatever the graph
    beyond                 Chebyshev-filtered subspaces (`lowest_subspace`), which need products alone

Low eigenvalues of neighbour graphs lie close together: plain Lanczos takes thousands of steps there, and shift-invert, at ten
thousands of rows in many dimensions, a dense factor.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.linalg import ArpackError, eigsh

from dkl.linalg.lowest_subspace import lowest_subspaces
from dkl.linalg.one_blas_thread import one_blas_thread

Array = NDArray[np.float64]
DENSE = 600
FACTORED = 10_000
"""Rows: factors of 1.2 GB at most. Of rows in many dimensions they have 0.9 n^2 entries, measured at 64 and at 200."""
SHIFT = 1e-4
"""Of the mean of L's diagonal: what makes L definite."""
PASSES = 60


@dataclass(frozen=True)
class SmoothBasis:
    """L Q = Q diag(values), to `residual`: values (m,) ascending, vectors (n, m) orthonormal, the largest |L q - theta q| over |L|."""

    values: Array
    vectors: Array = field(repr=False)
    residual: float
    method: str


def basis_bytes(n: int, count: int, entries: int) -> int:
    """What `smoothest` holds at most beside a Laplacian of so many entries, with what it hands out."""
    if n <= max(DENSE, 2 * count):
        return 8 * (3 * n * n + 4 * n * count)
    if n <= FACTORED:
        return 12 * n * n + 24 * entries + 8 * n * (2 * max(2 * count + 1, 20) + 3 * count)
    return 8 * n * 8 * (count + _guards(count)) + 24 * entries


@one_blas_thread()  # the same bits on any machine
def smoothest(laplacian: sparse.csr_array, count: int, *, tol: float = 1e-8) -> SmoothBasis:
    """The eigenvectors of the lowest `count` eigenvalues of L (n, n), count <= n. Each one's largest entry is positive.

    tol: of `residual`, where the filter's passes end; the other methods go to rounding. Nothing is random but a fixed start.
    """
    n = laplacian.shape[0]
    method, found = "dense", None
    if n > max(DENSE, 2 * count) and n <= FACTORED:
        method, found = "shift-invert", _factored(laplacian, count)
    if found is None and n > max(DENSE, 2 * count):
        method, found = "filter", _filtered(laplacian, count, tol)
    if found is None:
        method, found = "dense", scipy.linalg.eigh(laplacian.toarray(), subset_by_index=[0, count - 1])[1]
    # Rayleigh-Ritz: orthonormal, and ordered, to rounding.
    vectors = np.linalg.qr(found)[0]
    image = laplacian @ vectors
    values, turn = np.linalg.eigh(vectors.T @ image)
    vectors = vectors @ turn
    norm = float(abs(laplacian).sum(axis=1).max()) if laplacian.nnz else 1.0
    residual = float(np.linalg.norm(image @ turn - vectors * values, axis=0).max()) / norm
    largest = vectors[np.abs(vectors).argmax(axis=0), np.arange(count)]
    return SmoothBasis(values, np.ascontiguousarray(vectors * np.where(largest < 0, -1.0, 1.0)), residual, method)


def _factored(laplacian: sparse.csr_array, count: int) -> Array | None:
    """(n, count), or None where Lanczos does not end."""
    shift = SHIFT * float(laplacian.diagonal().mean())
    start = np.random.default_rng(0).standard_normal(laplacian.shape[0])
    try:
        values, vectors = eigsh(sparse.csc_array(laplacian), count, sigma=-shift, v0=start)
    except (ArpackError, RuntimeError):  # the second: a factor without a pivot
        return None
    return np.asarray(vectors[:, np.argsort(values)])


def _filtered(laplacian: sparse.csr_array, count: int, tol: float) -> Array:
    """(n, count), as near as PASSES come."""
    start = np.random.default_rng(0).standard_normal((laplacian.shape[0], count + _guards(count)))
    norm = float(abs(laplacian).sum(axis=1).max())
    vectors = start[:, :count]
    for block in lowest_subspaces(laplacian, start, count, PASSES):
        vectors = block.vectors
        if np.linalg.norm(block.remainder, axis=0).max() <= tol * norm:
            break
    return vectors


def _guards(count: int) -> int:
    """Columns that are iterated beside those that are asked for."""
    return max(10, count // 5)
