"""Sums whose bits do not depend on who adds: a fixed binary tree over a fixed cut.

Slabs are cut into groups, a power of two of them that depends on the number of slabs alone. A group's slabs are added in
order; groups are added pairwise up the binary tree. Any holder of both children of a node may add them, so a worker
sends only the largest whole subtrees of its range: one, when its range is aligned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

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
                    out = sibling if buffered else free.pop() if free else empty(vector.size).reshape(vector.shape)
                    vector, ours = np.add(vector, sibling, out=out), True
                level, index = level + 1, index >> 1
            merged[level, index] = vector, ours
    if len(merged) != 1:
        raise ValueError(f"subtrees do not cover the tree: left with nodes {sorted(merged)}")
    return next(iter(merged.values()))[0]
