"""Constraints tr(K A_t), t = 1..c, on a symmetric K (n, n), as one sparse matrix from constraints to distinct entries of K.

Li et al. 2009, Table 2. 40,100 triplets touch a few thousand entries: a product costs what the incidence holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

Vector = NDArray[np.float64]
Indices = NDArray[np.intp]


@dataclass(frozen=True)
class ConstraintSet:
    """tr(K A_t) = sum over e of incidence[t, e] K[rows[e], columns[e]], entries with rows <= columns, each once.

    n          rows of K
    rows, columns  (q,) the distinct entries, sorted
    incidence  (c, q) CSR; an off-diagonal entry of A_t counts twice in it
    """

    n: int
    rows: Indices
    columns: Indices
    incidence: sparse.csr_array

    @classmethod
    def triplets(cls, n: int, triplets: ArrayLike) -> Self:
        """(c, 3) rows of (anchor, similar, dissimilar): d2(anchor, dissimilar) - d2(anchor, similar)."""
        raise NotImplementedError

    @classmethod
    def distances(cls, n: int, pairs: ArrayLike) -> Self:
        """(c, 2) pairs (i, j): d2(i, j) = K_ii - 2 K_ij + K_jj."""
        raise NotImplementedError

    @classmethod
    def similarities(cls, n: int, pairs: ArrayLike, signs: ArrayLike | None = None) -> Self:
        """(c, 2) pairs (i, j): 2 K_ij (Hoi's pattern), times `signs` (c,) of 1 (similar) and -1 (dissimilar) if given."""
        raise NotImplementedError

    @classmethod
    def from_matrices(cls, matrices: Sequence[sparse.sparray | NDArray[np.float64]]) -> Self:
        """Any symmetric A_t (n, n)."""
        raise NotImplementedError

    def __len__(self) -> int:
        return int(self.incidence.shape[0])

    @property
    def points(self) -> Indices:
        """The distinct indices P that constraints touch, ascending."""
        raise NotImplementedError

    def on_points(self) -> Self:
        """The same constraints on K_PP: rows and columns count within `points`, n is their number."""
        raise NotImplementedError

    def values(self, K: NDArray[np.float64]) -> Vector:
        """(c,) tr(K A_t) of a dense symmetric K (n, n)."""
        raise NotImplementedError

    def weighted(self, weights: Vector) -> sparse.csr_array:
        """sum over t of weights_t A_t (n, n), both halves."""
        raise NotImplementedError
