"""Sums whose bits do not depend on who adds: a fixed binary tree over a fixed cut.

Slabs are cut into groups, a power of two of them that depends on the number of slabs alone. A group's slabs are added in
order; groups are added pairwise up the binary tree. Any holder of both children of a node may add them, so a worker
sends only the largest whole subtrees of its range: one, when its range is aligned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import reverse_cuthill_mckee

MAX_GROUPS = 64
"""Leaves of the tree, and so owners of slabs, at most: a factor of the paper's rank has slabs for as many at n = 10^6. Twice as many
take a vector of sums more in memory."""

Node = tuple[int, int]
"""(level, index): level 0 are the groups, the root is (log2(groups), 0)."""

Partials = dict[Node, NDArray[np.float64]]


def group_bounds(n_slabs: int, max_groups: int = MAX_GROUPS) -> list[tuple[int, int]]:
    """Return [(first slab, last slab + 1)] of the largest power of two of near-equal, non-empty groups.

    >>> group_bounds(6)
    [(0, 1), (1, 3), (3, 4), (4, 6)]
    """
    # From the number of slabs alone: a cut that followed the owners would round as they do.
    groups = 1
    while 2 * groups <= min(n_slabs, max_groups):
        groups *= 2
    return [(k * n_slabs // groups, (k + 1) * n_slabs // groups) for k in range(groups)]


def share(n_groups: int, n_owners: int) -> list[range]:
    """Return contiguous ranges of groups, one an owner, as equal as can be, at most one a group."""
    owners = min(n_groups, n_owners)
    return [range(k * n_groups // owners, (k + 1) * n_groups // owners) for k in range(owners)]


def subtrees(groups: range) -> int:
    """Return how many vectors a contiguous range of groups adds up to: its largest whole subtrees.

    >>> subtrees(range(4, 8)), subtrees(range(5, 10))
    (1, 3)
    """
    count, start = 0, groups.start
    while start < groups.stop:
        size = start & -start or 1 << groups.stop.bit_length()  # the largest that may begin there
        while start + size > groups.stop:
            size //= 2
        start, count = start + size, count + 1
    return count


def absorb(partials: Partials, node: Node, vector: NDArray[np.float64]) -> list[NDArray[np.float64]]:
    """Put `vector` at `node` of `partials`, then add siblings upwards as long as both are there.

    Takes possession of `vector`, which may be added to in place. Returns the buffers that are free to be used again.
    """
    free = []
    level, index = node
    while (level, index ^ 1) in partials:
        sibling = partials.pop((level, index ^ 1))
        # IEEE addition commutes, so it does not matter which of the two came first.
        vector += sibling
        free.append(sibling)
        level, index = level + 1, index >> 1
    partials[level, index] = vector
    return free


def total(parts: Iterable[Partials], empty: Callable[[int], NDArray[np.float64]] = np.empty) -> NDArray[np.float64]:
    """Return the root's sum, from the subtrees of all owners; read-only: it may be the one input itself.

    empty: makes a vector of a length, uninitialized, for sums, as the parts themselves, arrays of any shape, may be read-only.
    Raises ValueError where the subtrees together do not cover the tree.
    """
    merged: dict[Node, tuple[NDArray[np.float64], bool]] = {}  # whether it is a buffer, which may be added to
    free: list[NDArray[np.float64]] = []
    for part in parts:
        for (level, index), vector in part.items():
            ours = False
            while (level, index ^ 1) in merged:
                sibling, buffered = merged.pop((level, index ^ 1))
                if ours and buffered:
                    free.append(sibling)
                if ours:
                    vector += sibling
                else:
                    # Inputs may be read-only: sums go to buffers of ours, which later sums use again.
                    out = sibling if buffered else free.pop() if free else empty(vector.size).reshape(vector.shape)
                    vector, ours = np.add(vector, sibling, out=out), True
                level, index = level + 1, index >> 1
            merged[level, index] = vector, ours
    if len(merged) != 1:
        raise ValueError(f"subtrees do not cover the tree: left with nodes {sorted(merged)}")
    return next(iter(merged.values()))[0]


# Rows of a sparse symmetric matrix, neighbors near each other, cut into groups by n alone for owners.

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
