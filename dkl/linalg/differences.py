"""Squared distances from the differences of features, which do not cancel for rows far from 0, nor for near rows among far ones.

Compiled when it is first called, so that imports and plans do not wait for it.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

_TILE = 512  # distances of a row that stay in the first cache while features are added


@njit(nogil=True, cache=True)
def squared_distances(rows: NDArray[np.floating], columns: NDArray[np.floating], out: NDArray[np.floating]) -> None:
    """out[i, m] = sum over f of (rows[i, f] - columns[f, m])^2, for rows (t, d) and points (M, d) given as columns (d, M).

    Features are added in their order, so that the bits depend on the two rows alone. O(t M d), some two to three times a matrix
    product.
    """
    for lo in range(0, columns.shape[1], _TILE):
        for i in range(rows.shape[0]):
            some = out[i, lo : lo + _TILE]
            some[:] = 0
            for f in range(rows.shape[1]):
                value, others = np.float64(rows[i, f]), columns[f, lo : lo + _TILE]
                for k in range(some.shape[0]):
                    difference = value - others[k]
                    some[k] += difference * difference
