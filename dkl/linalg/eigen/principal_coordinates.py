"""Kernel principal components, as weights of kernel values (Schoelkopf, Smola, Mueller 1998)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh
from scipy.sparse.linalg import ArpackError, eigsh

Matrix = NDArray[np.float64]
LANCZOS_ROWS = 600
"""Rows from which on some leading eigenvectors cost less by Lanczos' method than by a decomposition."""


def principal_coordinates(K: Matrix, n_components: int, *, center: bool = True) -> tuple[Matrix, Matrix]:
    """Return (A (n, k), offset (k,)): a point with kernel values k(x) (n,) has the principal coordinates k(x) A - offset.

    K (n, n) symmetric psd; center: about the mean of the n patterns. The columns of A are v / sqrt(lambda) of the largest
    eigenvalues lambda of K, centered or not; its columns sum to zero where it is centered, so that the values k(x) need no
    centering of their own. k is `n_components`, or the number of eigenvalues above rounding where there are fewer. Of each column the
    entry that is largest in size is positive.
    """
    n, means = len(K), K.mean(axis=0)
    # Centered on both sides: H K H without forming H.
    centred = K - means - means[:, None] + means.mean() if center else K
    values, vectors = _leading(centred, min(n_components, n))
    # What rounding leaves of zero eigenvalues would be divided by.
    kept = values > n * np.finfo(float).eps * max(float(np.abs(K).max()), float(values[0]), 0.0)
    values, vectors = values[kept], vectors[:, kept]
    weights = with_signs(vectors) / np.sqrt(values)
    if not center:
        return weights, np.zeros(len(values))
    weights -= weights.mean(axis=0)
    return weights, means @ weights


def with_signs(vectors: Matrix) -> Matrix:
    """Return the columns of `vectors` (n, k), of each the entry that is largest in size positive."""
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
