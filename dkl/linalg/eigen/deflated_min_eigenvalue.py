"""A lower bound on a sparse symmetric matrix on the complement of a few vectors, by Lanczos' method."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dkl.linalg.eigen.lanczos import Lanczos
from dkl.linalg.rows.shared_matrix import SharedMatrix

Array = NDArray[np.float64]
LEAST_STEPS, MOST_STEPS, LOOK = 80, 2000, 20
"""Steps before the first look at the Ritz value, at most, and between looks."""
CONVERGED = 0.5
"""Share of the Ritz value's size: with a smaller residual it is as good as an eigenvalue."""


def lowest_outside(matrix: SharedMatrix, q: Array, seed: int) -> float:
    """theta - |residual| for the least Ritz value of P S P, P = I - q q', outside the range of q (n_own, k), q'q = I; to a factor of 2."""
    lanczos, most = Lanczos(matrix, matrix.rows.random(seed), q), min(MOST_STEPS, matrix.n - q.shape[1])
    low, residual = -np.inf, np.inf
    for step in range(1, most + 1):
        is_last = not lanczos.step() or step == most
        if is_last or (step >= LEAST_STEPS and step % LOOK == 0):
            low, residual = lanczos.end(0)
            if is_last or residual <= CONVERGED * abs(low):
                break
    return low - residual
