"""Parts of a neighbor graph: components, rows that negligible weights alone join to the others, and the edges that join parts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse
from scipy.sparse.csgraph import connected_components, minimum_spanning_tree

from dkl.io.plain_arrays import largest_value, refuse_too_large
from dkl.linalg.graph.neighbors import QUERY_TILE, absorb, empty_lists

if TYPE_CHECKING:
    from dkl.linalg.rows import Rows

NEGLIGIBLE = 1e-10
"""Largest weight of an edge, relative to the root of the product of its rows' degrees, that joins rows by name only."""

_COMPARED, _SEARCHED = 2**20, 2**22
"""Numbers in rows that are compared, and searched for, together; of sparse rows, with their zeros."""

Each = Callable[[Callable[[NDArray[np.int64]], None], list[NDArray[np.int64]]], Iterable[None]]
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
    # Relative to the degrees of both rows, as L_sym weighs an edge.
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


def cut_text(cut: NDArray[np.int64], n: int) -> str:
    """Describe for a message how many of n rows are cut off, `cut`, and by which weights."""
    weights = f"weights below {NEGLIGIBLE:.0e} of their degrees; first: row {cut[0]}"
    return f"{cut.size:,} of {n:,} rows from the others ({weights}): the graph is connected by name only"


def directed_graph(index: NDArray[np.int64], values: NDArray) -> csr_array:
    """Return the graph (n, n) of neighbors `index` (n, k), its entries `values` (n, k)."""
    n, k = index.shape
    return csr_array((values.ravel(), index.ravel(), np.arange(0, n * k + 1, k)), shape=(n, n))


def joining_width(dist2: NDArray[np.float64], index: NDArray[np.int64]) -> float:
    """Return the least sigma at which exp(-d^2 / (2 sigma^2)) cuts no row, by squared distances and neighbors (n, k).

    The longest edge of the spanning forest is to weigh NEGLIGIBLE times the largest degree.
    """
    n, k = index.shape
    longest = float(minimum_spanning_tree(directed_graph(index, np.sqrt(dist2))).data.max(initial=0.0))
    # An upper bound of the largest degree, as weights are at most 1.
    most = 2 * k + int(np.bincount(index.ravel(), minlength=n).max())
    return longest / float(np.sqrt(-2.0 * np.log(NEGLIGIBLE * most)))


def spanning_edges(rows: Rows, labels: NDArray[np.integer], each: Each = map) -> NDArray[np.int64]:
    """Return (e, 2) the shortest edges i < j, by number, that join the components `labels` (n,) of `rows` (n, d).

    each: a `map` that may use threads. Of a minimum spanning tree, by Boruvka's rounds: every component but the largest takes its
    shortest edge to another, by a search among the rows of all others, and what these join are the components of the next round.
    Each round at least halves their number; a row is searched for again only where it may have the shortest edge.
    Raises InputError for a value so large that distances overflow.
    """
    refuse_too_large(rows, largest_value(rows.shape[1]))
    distinct = _distinct(rows, labels)
    # Copies of a row join nothing that the row itself does not.
    rows, labels = (rows, labels) if len(distinct) == len(labels) else (rows[distinct], labels[distinct])
    dist2, others = np.zeros(len(labels)), np.full(len(labels), -1)
    found: list[tuple[int, int]] = []
    while (count := int(labels.max()) + 1) > 1:
        # Every component but the largest looks for its shortest edge: that one is joined by the others.
        inside = np.flatnonzero(labels != np.bincount(labels).argmax())
        _search_again(rows, labels, inside, dist2, others, each)
        by_length = inside[np.lexsort((others[inside], inside, dist2[inside]))]
        by_length = by_length[labels[others[by_length]] != labels[by_length]]
        # `unique` gives the first, that is shortest, of each component; sorted, they are by length again.
        shortest = by_length[np.sort(np.unique(labels[by_length], return_index=True)[1])]
        parent = np.arange(count)
        # By length and then by rows, so that ties are broken alike on any machine.
        for i, j in zip(shortest.tolist(), others[shortest].tolist(), strict=True):
            a, b = _top(parent, int(labels[i])), _top(parent, int(labels[j]))
            if a != b:  # of equally long edges some would close a circle
                parent[a] = b
                found.append((min(i, j), max(i, j)))
        labels = np.unique([_top(parent, c) for c in range(count)], return_inverse=True)[1][labels]
    return distinct[np.array(sorted(found), np.int64).reshape(-1, 2)]


def _distinct(rows: Rows, labels: NDArray[np.integer]) -> NDArray[np.int64]:
    """Return the numbers of all rows but copies of an earlier one of their component, ascending."""
    # Equal rows have equal products, but for rounding: then a copy stays, which only costs time.
    # Sines are weights without a pattern: rows that differ hardly ever have equal products.
    order = np.lexsort((rows @ np.sin(np.arange(1.0, rows.shape[1] + 1)), labels))
    is_copy = np.zeros(len(labels), bool)
    step = max(1, _COMPARED // rows.shape[1])
    for lo in range(0, len(order) - 1, step):
        some = order[lo : lo + step + 1]
        differs = (rows[some[1:]] != rows[some[:-1]]).sum(axis=1)
        is_copy[some[1:]] = (np.asarray(differs).ravel() == 0) & (labels[some[1:]] == labels[some[:-1]])
    return np.flatnonzero(~is_copy)


def _search_again(
    rows: Rows,
    labels: NDArray[np.integer],
    inside: NDArray[np.int64],
    dist2: NDArray[np.float64],
    others: NDArray[np.int64],
    each: Each,
) -> None:
    """Update `dist2` and `others` (n,), the nearest row of another component, for rows `inside` that may have the shortest edge.

    What was found before is still the nearest while it is of another component, and else a lower bound.
    """
    holds = (others[inside] >= 0) & (labels[others[inside]] != labels[inside])
    # A component's shortest edge found so far rules out rows whose lower bound is no less.
    least = np.full(int(labels.max()) + 1, np.inf)
    np.minimum.at(least, labels[inside[holds]], dist2[inside[holds]])
    wanted = inside[~holds & (dist2[inside] < least[labels[inside]])]
    # By component, so that the rows to leave out are consecutive.
    order = np.argsort(labels, kind="stable")
    arranged = rows[order] if issparse(rows) else np.ascontiguousarray(rows[order])
    bounds = np.searchsorted(labels[order], np.arange(len(least) + 1))

    def search(some: NDArray[np.int64]) -> None:
        lists = empty_lists(len(some), 1)
        absorb(lists, rows[some], bounds[labels[some]], arranged, 0, bounds[labels[some] + 1])
        dist2[some], others[some] = lists.dist2[:, 0], order[lists.rows[:, 0]]

    step = max(QUERY_TILE, _SEARCHED // rows.shape[1])
    list(each(search, [wanted[lo : lo + step] for lo in range(0, len(wanted), step)]))


def _top(parent: NDArray[np.int64], c: int) -> int:
    while parent[c] != c:
        # Path halving: later look-ups are short.
        parent[c] = parent[parent[c]]
        c = int(parent[c])
    return c
