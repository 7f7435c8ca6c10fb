"""Largest eigenvalues of a psd operator and their vectors, by warm-started subspace iteration."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]
SPARE = 4
"""Vectors in addition to those asked for: convergence goes by the first value that is left out."""
ROUNDS = 2
"""Rounds, enough for a preconditioner: outlying values get some digits, and the others need no more."""


def subspace_iteration(times: Callable[[Matrix], Matrix], start: Matrix, k: int) -> tuple[Matrix, Matrix]:
    """(S (n, k), basis (n, p)): S S' is K on its k leading Ritz vectors; times(X) = K X, start (n, p), p >= k, of full rank.

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
