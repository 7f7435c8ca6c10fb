"""Sums of weighted pairs of sparse rows, whose places are the same whatever the weights."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dkl.linalg.symmetric.symmetric_maps import Array


@dataclass(frozen=True)
class PairSpread:
    """z -> sum_t z_t sym(l_t r_t'), whose places are the same for all z: CSR of `indptr` and `indices`, values = weights @ z."""

    indptr: NDArray[np.integer]
    indices: NDArray[np.integer]
    weights: sparse.csr_array

    @classmethod
    def of(cls, left: sparse.csr_array, right: sparse.csr_array) -> PairSpread:
        """Build the sum of left and right (p, n)."""
        p, n = left.shape
        # Row t of `both` is vec(l_t r_t'): each number of l_t meets all of r_t.
        meets = np.diff(right.indptr)[np.repeat(np.arange(p), np.diff(left.indptr))]
        first = np.repeat(right.indptr[:-1], np.diff(left.indptr))
        other = np.arange(meets.sum()) - np.repeat(np.cumsum(meets) - meets, meets) + np.repeat(first, meets)
        i, j = np.repeat(left.indices, meets).astype(np.int64), right.indices[other].astype(np.int64)
        t = np.repeat(np.repeat(np.arange(p), np.diff(left.indptr)), meets)
        half = 0.5 * np.repeat(left.data, meets) * right.data[other]
        codes, place = np.unique(np.concatenate([i * n + j, j * n + i]), return_inverse=True)
        weights = sparse.coo_array((np.tile(half, 2), (place, np.tile(t, 2))), shape=(len(codes), p)).tocsr()
        indptr = np.searchsorted(codes // n, np.arange(n + 1)) if len(codes) else np.zeros(n + 1, np.int64)
        return cls(indptr, codes % n, weights)

    def single(self, times: float = 1.0) -> PairSpread:
        """Return the sum with its matrices multiplied by `times`, in single precision."""
        return replace(self, weights=(self.weights * times).astype(np.float32))

    def matrix(self, z: Array) -> sparse.csr_array:
        """Return the sum (n, n) for z."""
        n = len(self.indptr) - 1
        return sparse.csr_array((self.weights @ z, self.indices, self.indptr), shape=(n, n))
