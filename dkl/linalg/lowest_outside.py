"""A lower bound on a sparse symmetric matrix on the complement of a few vectors, by Lanczos' method."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import eigh_tridiagonal

Array = NDArray[np.float64]
LEAST_STEPS, MOST_STEPS, LOOK = 80, 2000, 20
"""Steps before the first look at the Ritz value, at most, and between looks."""
CONVERGED = 0.5
"""Of the Ritz value's size: the residual at which it is as good as an eigenvalue."""


def lowest_outside(matrix: sparse.csr_array, q: Array, seed: int) -> float:
    """theta - |residual| for the least Ritz value of P S P outside the range of q (n, k), q'q = I and P = I - q q', to a factor of 2.

    The three-term recurrence from a random start, without reorthogonalization: what rounding costs is copies of values that
    were found, none lower (Paige, Linear Algebra and its Applications 34, 1980). The projection is the last part of every step:
    what rounding leaves of q in a vector would grow from step to step, and bring q's own values back.
    """
    n = int(matrix.shape[0])
    arrays = matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32), matrix.data
    transposed = np.ascontiguousarray(q.T)
    vector = _outside(transposed, np.random.default_rng(seed).standard_normal(n))
    vector /= np.linalg.norm(vector)
    before, beside, image = np.zeros(n), 0.0, np.empty(n)
    diagonal: list[float] = []
    off: list[float] = []
    low, residual = -np.inf, np.inf
    for step in range(1, min(MOST_STEPS, n - q.shape[1]) + 1):
        times(*arrays, vector, before, beside, image)
        diagonal.append(float(vector @ image))
        image -= diagonal[-1] * vector
        image = _outside(transposed, image)
        beside = float(np.linalg.norm(image))
        off.append(beside)
        is_last = beside <= 1e-14 * float(np.abs(diagonal).max()) or step == min(MOST_STEPS, n - q.shape[1])
        if is_last or (step >= LEAST_STEPS and step % LOOK == 0):
            values, vectors = eigh_tridiagonal(diagonal, off[:-1], select="i", select_range=(0, 0))
            low, residual = float(values[0]), abs(beside * float(vectors[-1, 0]))
            if is_last or residual <= CONVERGED * abs(low):
                break
        image /= beside
        before, vector, image = vector, image, before
    return low - residual


def _outside(transposed: Array, x: Array) -> Array:
    """x - q q'x."""
    return x - (transposed @ x) @ transposed


@njit(nogil=True, cache=True, fastmath={"contract", "reassoc"}, error_model="numpy")
def times(indptr, indices, data, x, before, beside, out):  # type: ignore[no-untyped-def]
    """out = M x - beside before, for M in CSR (n, n)."""
    for i in range(indptr.size - 1):
        total = 0.0
        for k in range(indptr[i], indptr[i + 1]):
            total += data[k] * x[indices[k]]
        out[i] = total - beside * before[i]
