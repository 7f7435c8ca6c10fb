"""Cholesky's factor of a matrix that may be singular to rounding."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cholesky

LARGEST = 1.0
"""Largest ridge, as a share of the mean diagonal entry: a matrix that needs more is not positive semidefinite, or not finite."""


def with_ridge(matrix: NDArray[np.float64], share: float) -> NDArray[np.float64]:
    """Return the lower factor (n, n) of `matrix` with the least ridge that makes one: `share` of the mean diagonal entry, or 10^k of it.

    Raises LinAlgError where a ridge of LARGEST makes none.
    """
    size = float(np.trace(matrix)) / len(matrix) or 1.0
    while True:
        try:
            lower = np.asarray(cholesky(matrix + share * size * np.eye(len(matrix)), lower=True, check_finite=False))
            if not np.isfinite(lower[-1]).all():  # not every LAPACK sees NaN
                raise np.linalg.LinAlgError("not a finite matrix")
            return lower
        except np.linalg.LinAlgError:
            if not share < LARGEST:
                raise
            share = max(10 * share, 1e-16)
