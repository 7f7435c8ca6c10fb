"""Rows of a sparse symmetric matrix, neighbors near each other, cut into groups by n alone for owners."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import reverse_cuthill_mckee

from dkl.linalg.rows.tree_sum import group_bounds

Array = NDArray[np.float64]
GROUPS, MOST_GROUPS = 64, 1024
"""Maximum groups of rows, and so owners: of fewer rows than MANY_ROWS a group, and of as many."""
LEAST_ROWS, MANY_ROWS = 256, 1 << 14
"""Rows of a group: sums over fewer than LEAST_ROWS cost mostly calls, over MANY_ROWS hardly any."""


@dataclass(frozen=True)
class OrderedRows:
    """Rows [bounds[index], bounds[index + 1]) of a matrix (n, n): CSR, all columns; bounds: of all owners."""

    indptr: NDArray[np.int64]
    indices: NDArray[np.int32]
    data: Array
    bounds: tuple[int, ...]
    index: int

    @property
    def n_own(self) -> int:
        """Return the number of own rows."""
        return self.bounds[self.index + 1] - self.bounds[self.index]

    @property
    def n_halo(self) -> int:
        """Return how many rows of others the own entries meet."""
        met = np.zeros(self.bounds[-1], bool)
        met[self.indices] = True
        met[self.bounds[self.index] : self.bounds[self.index + 1]] = False
        return int(met.sum())


def row_groups(n: int, least: int | None = None) -> list[tuple[int, int]]:
    """Return [(first row, last row + 1)] of groups of `least` rows or more: a power of two, from n alone.

    least: by default LEAST_ROWS. Of 10^6 rows 64, of 10^7 512, from 1.7 x 10^7 on 1,024.
    """
    most = max(GROUPS, min(MOST_GROUPS, n // MANY_ROWS))
    count = len(group_bounds(max(1, n // (least or LEAST_ROWS)), most))
    return [(k * n // count, (k + 1) * n // count) for k in range(count)]


def band_order(matrix: sparse.csr_array) -> NDArray[np.int32]:
    """Return row numbers (n,) by reverse Cuthill-McKee: neighbors come near each other, halos are small."""
    return np.asarray(reverse_cuthill_mckee(matrix, symmetric_mode=True))


def rows_in_order(
    matrix: sparse.csr_array, order: NDArray[np.int32], bounds: tuple[int, ...], index: int
) -> OrderedRows:
    """Return owner `index`'s rows of the matrix (n, n) with rows and columns in this order."""
    place = np.empty(len(order), np.int32)
    place[order] = np.arange(len(order), dtype=np.int32)
    part = matrix[order[bounds[index] : bounds[index + 1]]]
    return OrderedRows(part.indptr.astype(np.int64), place[part.indices], part.data.astype(np.float64), bounds, index)


def put_together(parts: Iterable[Array], order: NDArray[np.int32], count: int) -> Array:
    """Return the rows (n, count) in the matrix' order, from the parts of the owners one after the other."""
    out, lo = np.empty((len(order), count)), 0
    for part in parts:
        out[order[lo : lo + len(part)]] = part
        lo += len(part)
    return out
