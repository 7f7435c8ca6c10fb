"""Terms of the small systems of KL-ADMM: one for each pattern, over the patterns it is paired with.

With P_i = [u_j : j in T_i] (r x t) each asks for dot products u_j . u_k alone, which are sums over rank slabs. `SmallSystems` lists
once which are needed; `smw` assembles and solves all systems from them. A hub (t above `hub_size`) would need t^2/2 dot products:
its system is built from the gathered rows u_j instead.

Plans ask for these lists too, so nothing here takes Numba to import.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

HUB_SIZE = 64
"""Pairs of a pattern above which its system is built from the gathered rows u_j: t^2 / 2 dot products would be too many."""

Filled = Callable[[Callable[[int, int], None], NDArray, NDArray[np.int64]], None]
"""filled(function, vector, ends): function(lo, hi) sets vector[ends[lo] : ends[hi]], for ranges that together are all items, perhaps on
threads and by others."""


@dataclass(frozen=True, eq=False)
class SmallSystems:
    """Which dot products the systems of the pattern T (CSR, n x n, with its whole diagonal) need.

    left, right : (p,) int32, the distinct pairs of rows whose dot products are needed, left >= right
    slots       : for pattern i at slot_ptr[i], its Gram matrix's lower triangle by rows, as positions in the pair list
    edge_pair   : (nnz of T,) position in the pair list of the entry (i, j)
    roots       : (nnz of T,) square roots of the entries' weights, the d above
    hubs        : patterns with t > hub_size; gathered: the rows they need, sorted
    """

    indptr: NDArray[np.int64]
    indices: NDArray[np.int32]
    left: NDArray[np.int32]
    right: NDArray[np.int32]
    slot_ptr: NDArray[np.int64]
    slots: NDArray[np.int32]
    edge_pair: NDArray[np.int32]
    roots: NDArray[np.float64]
    hubs: NDArray[np.int64]
    gathered: NDArray[np.int64]

    @cached_property
    def diagonal(self) -> NDArray[np.bool_]:
        """Return which entries of T are on the diagonal."""
        return self.indices == np.repeat(np.arange(self.indptr.size - 1), np.diff(self.indptr))

    @property
    def n_pairs(self) -> int:
        """Return the number of distinct pairs of rows whose dot products are needed."""
        return int(self.left.size)

    @classmethod
    def of(
        cls, pattern: sparse.csr_array, weights: NDArray[np.float64] | None = None, *, hub_size: int = HUB_SIZE
    ) -> SmallSystems:
        """Build the systems of `pattern`, CSR (n, n) with its whole diagonal, symmetric, entries sorted.

        weights: (nnz of `pattern`,) above 0, None for ones. hub_size: largest t that is solved from dot products.
        O(sum of t_i^2) time and memory over the patterns up to that.
        """
        indptr = pattern.indptr.astype(np.int64)
        indices = pattern.indices.astype(np.int32)
        n = indptr.size - 1
        counts = np.diff(indptr)
        hubs = np.flatnonzero(counts > hub_size)
        sizes = np.where(counts > hub_size, 0, counts)
        slot_ptr = np.concatenate(([0], np.cumsum(sizes * (sizes + 1) // 2))).astype(np.int64)
        # Patterns that share two neighbors share a dot product: each is listed once, and computed once an iteration.
        rows = np.repeat(np.arange(n), counts)
        wanted = np.concatenate((_triangles(indptr, indices, sizes, slot_ptr), _codes(n, rows, indices)))
        distinct, position = np.unique(wanted, return_inverse=True)
        gathered = np.unique(indices[np.isin(rows, hubs)]).astype(np.int64)
        return cls(
            indptr,
            indices,
            (distinct // n).astype(np.int32),
            (distinct % n).astype(np.int32),
            slot_ptr,
            position[: slot_ptr[-1]].astype(np.int32),
            position[slot_ptr[-1] :].astype(np.int32),
            np.ones(indices.size) if weights is None else np.sqrt(weights),
            hubs,
            gathered,
        )


def _codes(n: int, p: NDArray, q: NDArray) -> NDArray[np.int64]:
    """Return n * max(p, q) + min(p, q): one number for a pair of rows, whichever comes first."""
    return n * np.maximum(p, q).astype(np.int64) + np.minimum(p, q)


def _triangles(
    indptr: NDArray[np.int64], indices: NDArray[np.int32], sizes: NDArray[np.int64], slot_ptr: NDArray[np.int64]
) -> NDArray[np.int64]:
    """(slots,) codes of the products in the lower triangle of each pattern's Gram matrix, by rows; patterns of one size at a time."""
    found = np.empty(slot_ptr[-1], np.int64)
    for t in np.unique(sizes[sizes > 0]):
        of_size = np.flatnonzero(sizes == t)
        neighbors = indices[indptr[of_size, None] + np.arange(t)]
        later, earlier = np.tril_indices(t)
        slots = slot_ptr[of_size, None] + np.arange(later.size)
        found[slots] = _codes(indptr.size - 1, neighbors[:, later], neighbors[:, earlier])
    return found
