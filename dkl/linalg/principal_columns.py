"""The best low-rank part of K = V V', by the Gram matrix of the columns of V."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dkl.linalg.one_blas_thread import one_blas_thread

NEGLIGIBLE = 1e-13
"""Of the largest singular value squared: columns below are rounding."""


def truncate_rank(factor: NDArray[np.float64], rank: int) -> NDArray[np.float64]:
    """The best rank-`rank` part of V V' as principal columns (n, <= rank), the longest first; V = `factor` (n, any rank)."""
    with one_blas_thread():  # the same bits on any machine
        values, vectors = np.linalg.eigh(factor.T @ factor)
        keep = np.flatnonzero(values > NEGLIGIBLE * max(values[-1], 0.0))[::-1][:rank]
        return np.ascontiguousarray(factor @ vectors[:, keep])
