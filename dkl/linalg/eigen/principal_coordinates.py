"""Leading eigenvectors: of a kernel matrix as weights of its values, of a factor by its columns, of an operator by products; of a metric.

Principal coordinates are kernel principal components (Schoelkopf, Smola, Mueller 1998).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.linalg import eigh
from scipy.sparse.linalg import ArpackError, eigsh

from dkl.linalg.rows.column_moments import middle_row
from dkl.linalg.rows.shared_rows import SharedRows

if TYPE_CHECKING:
    from dkl.linalg.rows import Rows


Matrix = NDArray[np.float64]
LANCZOS_ROWS = 600
"""Rows from which on some leading eigenvectors cost less by Lanczos' method than by a decomposition."""


UNCERTAIN = 8.0
"""Multiples of n eps |K| up to which an eigenvalue may be rounding: of 0, SciPy's eigh gave up to 2.1 of them in 3,000 kernels."""


def above_rounding(values: Matrix, n: int, largest: float) -> NDArray[np.bool_]:
    """Return which eigenvalues of an (n, n) matrix are more than the rounding of 0, given the largest in size."""
    return np.asarray(values > UNCERTAIN * n * np.finfo(float).eps * largest)


def principal_coordinates(K: Matrix, n_components: int, *, center: bool = True) -> tuple[Matrix, Matrix]:
    """Return (A (n, k), offset (k,)): a point with kernel values k(x) (n,) has the principal coordinates k(x) A - offset.

    K (n, n) symmetric psd; center: about the mean of the n patterns. The columns of A are v / sqrt(lambda) of the largest
    eigenvalues lambda of K, centered or not; its columns sum to zero where it is centered, so that the values k(x) need no
    centering of their own. k is `n_components`, or the number of eigenvalues above rounding where there are fewer. Of each column the
    entry that is largest in size is positive.
    """
    n, means = len(K), K.mean(axis=0)
    # Centered on both sides: H K H without forming H.
    centered = K - means - means[:, None] + means.mean() if center else K
    values, vectors = _leading(centered, min(n_components, n))
    # What rounding leaves of zero eigenvalues would be divided by.
    kept = above_rounding(values, n, max(float(np.abs(K).max()), float(values[0]), 0.0))
    values, vectors = values[kept], vectors[:, kept]
    weights = with_signs(vectors) / np.sqrt(values)
    if not center:
        return weights, np.zeros(len(values))
    # Eigenvectors of H K H sum to zero but for rounding; made exact, constants in k(x) cancel.
    weights -= weights.mean(axis=0)
    return weights, means @ weights


def with_signs(vectors: Matrix) -> Matrix:
    """Return the columns of `vectors` (n, k) with signs that make each one's largest entry positive."""
    largest = vectors[np.abs(vectors).argmax(axis=0), np.arange(vectors.shape[1])]
    return np.asarray(vectors * np.where(largest < 0, -1.0, 1.0))


def _leading(K: Matrix, k: int) -> tuple[Matrix, Matrix]:
    """Return the k largest eigenvalues, descending, and their vectors (n, k)."""
    n = len(K)
    if n >= LANCZOS_ROWS and 10 * k < n:
        try:
            start = np.random.default_rng(0).standard_normal(n)
            values, vectors = eigsh(K, k, which="LA", v0=start)
            return values[::-1], vectors[:, ::-1]
        except ArpackError:
            pass  # eigenvalues too near each other for it
    values, vectors = eigh(K, subset_by_index=(n - k, n - 1))
    return values[::-1], vectors[:, ::-1]


# The best low-rank part of K = V V', by the Gram matrix of the columns of V.

NEGLIGIBLE = 1e-13
"""Share of the largest singular value squared: columns below are rounding."""


def truncate_rank(factor: NDArray[np.float64], rank: int, rows: SharedRows | None = None) -> NDArray[np.float64]:
    """Return the best rank-`rank` part of V V' as principal columns (n_own, <= rank), the longest first.

    V = `factor` (n_own, any rank). rows: how its rows are shared; None for all of them.
    """
    rows = rows or SharedRows.alone(len(factor))
    values, vectors = np.linalg.eigh(rows.gram(factor, factor))
    # Eigenvalues of V'V are squared singular values, ascending: reversed, the longest columns come first.
    keep = np.flatnonzero(values > NEGLIGIBLE * max(values[-1], 0.0))[::-1][:rank]
    return rows.times(factor, vectors[:, keep])


# Largest eigenvalues of a psd operator and their vectors, by warm-started subspace iteration.

SPARE = 4
"""Vectors in addition to those asked for: convergence goes by the first value that is left out."""
ROUNDS = 2
"""Rounds, enough for a preconditioner: outlying values get some digits, and the others need no more."""


def subspace_iteration(times: Callable[[Matrix], Matrix], start: Matrix, k: int) -> tuple[Matrix, Matrix]:
    """Return (S (n, k), basis (n, p)): S S' is K on its k leading Ritz vectors; times(X) = K X, start (n, p), p >= k, of full rank.

    The basis is what to start from for a K nearby (Halko, Martinsson & Tropp, SIAM Review 53, 2011, algorithm 4.4).
    """
    basis = np.linalg.qr(start)[0]
    for _ in range(ROUNDS):
        # A basis after each product, or all columns would turn to the largest eigenvector.
        basis = np.linalg.qr(times(basis))[0]
    inner = basis.T @ times(basis)
    values, vectors = np.linalg.eigh((inner + inner.T) / 2.0)
    basis = basis @ vectors[:, ::-1]
    # In descending order, with the root of the eigenvalues, so that S S' is K on them.
    return basis[:, :k] * np.sqrt(np.maximum(values[::-1][:k], 0.0)), basis


def first_basis(n: int, k: int) -> Matrix:
    """Return random numbers (n, min(n, k + SPARE)), always the same."""
    return np.random.default_rng(0).standard_normal((n, min(n, k + SPARE)))


# -- plane of rows -----------------------------------------------------------------------------------------------------
# The plane of the first two principal components of rows.

EXACT_UP_TO = 512
"""Maximum columns for a plane to come from the full decomposition."""
EXTRA, PLANE_ROUNDS = 8, 12
"""Vectors that are iterated in addition to the plane's two, and rounds."""


@dataclass(frozen=True)
class Plane:
    """Plane of the first two principal components of rows (m, d).

    origin (d,): a row, or 0 of sparse ones; mean (d,) less that; axes (d, 2).
    """

    origin: NDArray[np.float64]
    mean: NDArray[np.float64]
    axes: NDArray[np.float64]

    @classmethod
    def of(cls, rows: Rows) -> Plane:
        """Fit the plane to dense or sparse rows; the signs are fixed, for the same picture every time."""
        is_sparse = sp.issparse(rows)
        origin = np.zeros(rows.shape[1]) if is_sparse else middle_row(np.asarray(rows, float))
        near = (
            rows if is_sparse else np.asarray(rows, float) - origin
        )  # exact: products of rows far from 0 would cancel
        mean = np.asarray(near.mean(axis=0, dtype=float)).ravel()
        axes = _plane_axes(near, mean)
        axes = axes * np.where(axes[np.abs(axes).argmax(axis=0), np.arange(2)] < 0, -1.0, 1.0)
        return cls(origin, mean, axes)

    def project(self, rows: Rows) -> NDArray[np.float64]:
        """Return the rows' coordinates (m, 2) in the plane."""
        if sp.issparse(rows):
            return np.asarray(rows @ self.axes) - self.mean @ self.axes
        return np.asarray((np.asarray(rows, float) - self.origin - self.mean) @ self.axes)


def _plane_axes(rows: Any, mean: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return orthonormal leading directions (d, 2) of the rows about their mean; zero for a single column."""
    d = rows.shape[1]
    if d <= EXACT_UP_TO:
        dense = rows.toarray() if sp.issparse(rows) else np.asarray(rows)
        centered = dense.astype(float) - mean
        axes = np.linalg.eigh(centered.T @ centered)[1][:, ::-1][:, :2]
        return np.hstack([axes, np.zeros((d, 2 - axes.shape[1]))])
    if not sp.issparse(rows):
        rows, mean = np.asarray(rows, float) - mean, np.zeros(d)
    # Centered without filling zeros of sparse rows: (X - 1 m') b = X b - 1 (m'b).
    basis = np.random.default_rng(0).standard_normal((d, 2 + EXTRA))
    for _ in range(PLANE_ROUNDS):
        basis = np.linalg.qr(basis)[0]
        image = np.asarray(rows @ basis) - mean @ basis
        basis = np.asarray(rows.T @ image) - np.outer(mean, image.sum(axis=0))
    basis = np.linalg.qr(basis)[0]
    image = np.asarray(rows @ basis) - mean @ basis
    return np.asarray(basis @ np.linalg.eigh(image.T @ image)[1][:, ::-1][:, :2])


# -- units -------------------------------------------------------------------------------------------------------------


def power_of_two(size: float) -> float:
    """Return the largest power of two that is at most `size`; 1 where `size` is 0 or not finite.

    >>> power_of_two(5.0), power_of_two(0.3), power_of_two(0.0)
    (4.0, 0.25, 1.0)
    """
    return math.ldexp(1.0, math.frexp(size)[1] - 1) if 0.0 < size < math.inf else 1.0


def metric_components(W: Matrix) -> Matrix:
    """Return C (d, d) of W = C'C (d, d), in descending order of W's eigenvalues, negative ones cut at 0; largest entries are positive."""
    values, vectors = eigh(0.5 * (W + W.T))
    largest = vectors[np.abs(vectors).argmax(axis=0), np.arange(len(W))]
    signed = vectors * np.where(largest < 0, -1.0, 1.0)
    return np.ascontiguousarray((signed * np.sqrt(np.maximum(values, 0.0))).T[::-1])


def leading_components(C: Matrix, spread: Matrix, count: int) -> Matrix:
    """Return U'C (count, d) of C (d, d), U the leading principal axes of rows T C', T'T = `spread`' `spread`; largest entries positive.

    Of all metrics of rank `count` that are nowhere larger than C'C it keeps most of the squared distances between the rows T (n, d),
    which are about their mean. spread (r, d): T itself, or a factor as short. Neither's scale matters.
    """
    scaled = (spread / (float(np.abs(spread).max()) or 1.0)) @ (C / (float(np.abs(C).max()) or 1.0)).T
    found: Matrix = np.linalg.svd(scaled)[2][:count] @ C
    largest = found[np.arange(count), np.abs(found).argmax(axis=1)]
    return np.ascontiguousarray(found * np.where(largest < 0, -1.0, 1.0)[:, None])
