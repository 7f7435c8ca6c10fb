"""Lowest eigenvalue of a sparse symmetric V relative to K^-1: how far K^-1 + s V stays definite."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh_tridiagonal
from scipy.sparse import csr_array

Vector = NDArray[np.float64]
STEPS = 10
"""Lanczos vectors; the lowest value, far below the others where it matters, is found to a per cent."""
BREAKDOWN = 1e-5
"""Share of the operator's size: a smaller remainder is rounding of products, perhaps in float32."""


def lowest_relative(V: csr_array, times: Callable[[Vector], Vector]) -> float:
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
    for _ in range(STEPS):
        z = V @ x
        diagonal.append(float(z @ x))
        rest = off_diagonal[-1] if off_diagonal else 0.0
        next_y = z - diagonal[-1] * y - rest * before[1]
        next_x = times(z) - diagonal[-1] * x - rest * before[0]
        square = float(next_x @ next_y)
        largest = max(max(np.abs(diagonal)), max(off_diagonal, default=0.0))
        if square <= (BREAKDOWN * largest) ** 2:
            off_diagonal.append(0.0)
            break
        off_diagonal.append(float(np.sqrt(square)))
        before, x, y = (x, y), next_x / off_diagonal[-1], next_y / off_diagonal[-1]
    values, vectors = eigh_tridiagonal(np.array(diagonal), np.array(off_diagonal[:-1]))
    return float(values[0] - abs(off_diagonal[-1] * vectors[-1, 0]))
