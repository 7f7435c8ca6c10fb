"""Parts of a neighbor graph: components, rows that negligible weights alone join to the others, and the edges that join parts."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse
from scipy.sparse.csgraph import connected_components, minimum_spanning_tree

from dkl.linalg.neighbors import absorb, empty_lists

NEGLIGIBLE = 1e-10
"""Largest weight of an edge, relative to the root of the product of its rows' degrees, that joins rows by name only."""

Labels = NDArray[np.int32]


def component_labels(graph: csr_array) -> tuple[int, Labels]:
    """Return (count, labels (n,)) of the connected components of a symmetric graph; an isolated row is one."""
    count, labels = connected_components(graph, directed=False)
    return int(count), labels


def component_sizes(labels: Labels) -> NDArray[np.int64]:
    """Return the sizes of the components, largest first."""
    return np.sort(np.bincount(labels))[::-1]


def strong_labels(weights: csr_array, degrees: NDArray[np.float64]) -> tuple[int, Labels]:
    """Return (count, labels (n,)) of the components that edges of more than NEGLIGIBLE weight make.

    weights (n, n): W, or -L of either kind, the degrees (n,) then L's diagonal; entries that are not positive are no edges
    """
    root = np.sqrt(degrees)
    is_strong = weights.data > np.repeat(NEGLIGIBLE * root, np.diff(weights.indptr)) * root[weights.indices]
    # A copy, as dropping zeros moves indices in place.
    strong = csr_array((is_strong.astype(np.int8), weights.indices, weights.indptr), shape=weights.shape, copy=True)
    strong.eliminate_zeros()
    return component_labels(strong)


def cut_rows(weights: csr_array, degrees: NDArray[np.float64], pattern: csr_array) -> NDArray[np.int64]:
    """Return the rows that negligible weights alone join to the largest part of their component, ascending.

    weights, degrees: as of `strong_labels`; pattern (n, n): the edges without regard to weights, in one direction at least
    """
    count, parts = strong_labels(weights, degrees)
    if count == 1:
        return np.empty(0, np.int64)
    component = np.empty(count, np.int64)
    component[parts] = component_labels(pattern)[1]
    # By component, and in it by size and then by number: the last of each is its largest part.
    order = np.lexsort((-np.arange(count), np.bincount(parts), component))
    is_kept = np.zeros(count, bool)
    is_kept[order[np.append(np.diff(component[order]) > 0, True)]] = True
    return np.flatnonzero(~is_kept[parts])


def directed_graph(index: NDArray[np.int64], values: NDArray[Any]) -> csr_array:
    """Return the graph (n, n) of neighbors `index` (n, k), its entries `values` (n, k)."""
    n, k = index.shape
    return csr_array((values.ravel(), index.ravel(), np.arange(0, n * k + 1, k)), shape=(n, n))


def joining_width(dist2: NDArray[np.float64], index: NDArray[np.int64]) -> float:
    """Return the least sigma at which exp(-d^2 / (2 sigma^2)) cuts no row, by squared distances and neighbors (n, k).

    The longest edge of the spanning forest is to weigh NEGLIGIBLE times the largest degree.
    """
    n, k = index.shape
    longest = float(minimum_spanning_tree(directed_graph(index, np.sqrt(dist2))).data.max(initial=0.0))
    most = 2 * k + int(np.bincount(index.ravel(), minlength=n).max())
    return longest / float(np.sqrt(-2.0 * np.log(NEGLIGIBLE * most)))


def spanning_edges(rows: Any, labels: NDArray[np.integer]) -> NDArray[np.int64]:
    """Return (e, 2) the shortest edges i < j, by number, that join the components `labels` (n,) of `rows` (n, d).

    Of a minimum spanning tree, by Boruvka's rounds: every component but the largest takes its shortest edge to another, by a search
    among the rows of all others, and what these join are the components of the next round. Each round at least halves their number.
    """
    found: list[tuple[int, int]] = []
    while (count := int(labels.max()) + 1) > 1:
        shortest = _shortest(rows, labels, count)
        parent = np.arange(count)
        for i, j in shortest:
            a, b = _top(parent, int(labels[i])), _top(parent, int(labels[j]))
            if a != b:  # of equally long edges some would close a circle
                parent[a] = b
                found.append((min(i, j), max(i, j)))
        labels = np.unique([_top(parent, c) for c in range(count)], return_inverse=True)[1][labels]
    return np.array(sorted(found), np.int64).reshape(-1, 2)


def _shortest(rows: Any, labels: NDArray[np.integer], count: int) -> list[tuple[int, int]]:
    """Return the shortest edge (inside, outside) of every component but the largest, shortest first."""
    order = np.argsort(labels, kind="stable")
    bounds = np.searchsorted(labels[order], np.arange(count + 1))
    largest = int(np.diff(bounds).argmax())
    # By component, so that the rows to leave out are consecutive, the largest one first.
    order = np.concatenate([order[bounds[largest] : bounds[largest + 1]], order[labels[order] != largest]])
    n_largest, inside = int(bounds[largest + 1] - bounds[largest]), labels[order]
    arranged = rows[order] if issparse(rows) else np.ascontiguousarray(rows[order])
    changes = np.flatnonzero(np.diff(inside)) + 1
    starts, ends = np.append(0, changes), np.append(changes, len(order))
    part = np.repeat(np.arange(len(starts)), ends - starts)[n_largest:]
    lists = empty_lists(len(part), 1)
    absorb(lists, arranged[n_largest:], starts[part], arranged, 0, ends[part])
    dist2, others = lists.dist2[:, 0], lists.rows[:, 0]
    own = np.arange(n_largest, len(order))
    # By length, then by the numbers of both rows.
    by_length = np.lexsort((order[others], order[own], dist2))
    first = by_length[np.sort(np.unique(part[by_length], return_index=True)[1])]
    return [(int(order[own[at]]), int(order[others[at]])) for at in first]


def _top(parent: NDArray[np.int64], c: int) -> int:
    while parent[c] != c:
        parent[c] = parent[parent[c]]
        c = int(parent[c])
    return c
