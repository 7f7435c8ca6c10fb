"""Similarities of rows by their squared distances d^2: one width for all rows, or each row's own.

    sigma a number    w_ij = exp(-d_ij^2 / (2 sigma^2))
    "average"         the same, sigma half the mean distance to the 10 nearest            Hu and Kwok (2013), section 4
    "kth"             the same, sigma the mean distance to the last neighbor counted        Wu, So, Li and Li (2009), section 4
    "local"           w_ij = exp(-c d_ij^2 / max(s_i, s_j)^2), 0/0 = 1, s_i the distance of row i to the last neighbor counted

An edge joins i to one of its neighbors or of j's, so d_ij <= max(s_i, s_j): every local weight lies in [exp(-c), 1], whatever
the data and their scale. Products of the two scales, means of distances and any single width lack such a bound: a few rows far
from the others are then joined to them by weights that underflow.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

SIGMA_NEIGHBORS = 10
"""Neighbors that "average" counts, whatever the graph's own number is."""


def average_width(dist2: Array) -> float:
    """Return half the mean distance between each row and its 10 nearest, from squared distances (n, >= 10).

    Fewer columns (n <= 10) are all used. 0 where every row has that many duplicates.
    """
    return 0.5 * float(np.sqrt(dist2[:, :SIGMA_NEIGHBORS]).mean())


def kth_width(dist2: Array) -> float:
    """Return the mean distance between each row and its last neighbor, from ascending squared distances (n, k)."""
    return float(np.sqrt(dist2[:, -1]).mean())


def one_width_weights(dist2: Array, sigma: float) -> Array:
    """Return exp(-dist2 / (2 sigma^2)); at sigma = 0 the limit: 1 between duplicates, else 0."""
    return np.exp(dist2 / (-2.0 * sigma**2)) if sigma**2 > 0 else (dist2 == 0).astype(np.float64)


def local_weights(dist2: Array, squares: Array, others: Array, sharpness: float = 1.0) -> Array:
    """Return exp(-sharpness dist2 / max(squares, others)), 0/0 = 1: the weights of m rows with k rows each.

    dist2 (m, k); squares (m,): s_i^2 of the rows; others (m, k): s_j^2, which is overwritten by the result
    """
    np.maximum(others, squares[:, None], out=others)
    np.divide(dist2, others, out=others, where=others > 0)  # where both are 0, so is the distance
    np.minimum(others, 1.0, out=others)  # stored widths are roots: their squares are rounded
    others *= -sharpness
    return np.exp(others, out=others)


@dataclass(frozen=True, eq=False)
class Similarity:
    """Weights of a graph's rows for an unseen row, by the graph's own rule.

    widths       (1,) sigma, or (n,) the local width of each row
    n_neighbors  rows that an unseen one is compared with
    sharpness    c of local widths
    """

    widths: Array = field(repr=False)
    n_neighbors: int
    sharpness: float = 1.0

    @property
    def is_local(self) -> bool:
        """Return whether each row has its own width; a graph has two rows at least."""
        return len(self.widths) > 1

    @property
    def nbytes(self) -> int:
        """Return the bytes of the widths."""
        return int(self.widths.nbytes)

    def weights(self, dist2: Array, rows: NDArray[np.integer]) -> Array:
        """(m, k) weights of the graph's `rows` (m, k) at squared distances `dist2` (m, k), ascending, from m unseen rows.

        Local: s of an unseen row is its own k-th distance. Of one width, weights are relative to the nearest row's, so that
        those of a far row do not all underflow.
        """
        if self.is_local:
            return local_weights(dist2, dist2[:, -1], self.widths[rows] ** 2, self.sharpness)
        return one_width_weights(dist2 - dist2[:, :1], float(self.widths[0]) or 1.0)
