"""Squared distances from the differences of features, which do not cancel for rows far from 0, nor for near rows among far ones.

Compiled when it is first called, so that imports and plans do not wait for it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dkl.linalg.late_functions import njit

_TILE = 512  # distances of a row that stay in the first cache while features are added


@njit(nogil=True, cache=True)
def squared_distances(rows: NDArray[np.floating], columns: NDArray[np.floating], out: NDArray[np.floating]) -> None:
    """Compute out[i, m] = |rows_i - point_m|^2 for rows (t, d) and points (M, d) given as columns (d, M).

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


@njit(nogil=True, cache=True)
def sparse_squared_distances(indptr, indices, data, z_indptr, z_indices, z_data, out):  # type: ignore[no-untyped-def]
    """Compute out[i, m] = |x_i - z_m|^2 for rows x (t, d) and points z (M, d), both CSR, columns in order.

    Features are added in their order, so that the bits depend on the two rows alone. O(t M) times the entries of two rows.
    """
    for i in range(indptr.size - 1):
        for m in range(z_indptr.size - 1):
            k, last, j, z_last, total = indptr[i], indptr[i + 1], z_indptr[m], z_indptr[m + 1], 0.0
            while k < last or j < z_last:
                difference = 0.0
                at_x = k < last and (j == z_last or indices[k] <= z_indices[j])
                at_z = j < z_last and (k == last or z_indices[j] <= indices[k])
                if at_x:
                    difference += np.float64(data[k])
                    k += 1
                if at_z:
                    difference -= np.float64(z_data[j])
                    j += 1
                total += difference * difference
            out[i, m] = total
