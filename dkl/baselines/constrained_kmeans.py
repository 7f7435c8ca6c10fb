"""k-means under must-links and cannot-links: COP-KMeans, which violates none, and PCKMeans, which pays for each.

K. Wagstaff, C. Cardie, S. Rogers, S. Schroedl, Constrained k-means clustering with background knowledge, ICML 2001.
S. Basu, A. Banerjee, R. Mooney, Active semi-supervision for pairwise constrained clustering, SDM 2004.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.spatial.distance import cdist
from sklearn.cluster import kmeans_plusplus

from dkl.errors import InputError

if TYPE_CHECKING:
    from dkl.side_information.pairs import Pairs

Matrix = NDArray[np.float64]
Labels = NDArray[np.intp]
Found = tuple[Labels, Matrix, int, bool]
"""Labels (n,), centers (k, d), iterations, and whether the last changed no label."""
TRIES = 4
"""Starts of COP-KMeans for each that has to succeed."""
WEIGHT = 0.3
"""Share of the mean squared distance to the mean that a violated pair costs by default."""


def must_link_components(pairs: Pairs, n: int) -> Labels:
    """Return the number of each row's must-link component (n,)."""
    ends = pairs.must_link
    graph = coo_array((np.ones(len(ends)), (ends[:, 0], ends[:, 1])), shape=(n, n))
    return np.asarray(connected_components(graph, directed=False)[1], np.intp)


def squared_distances(X: Matrix, centers: Matrix) -> Matrix:
    """Return |x_i - c_h|^2 (n, k)."""
    return np.asarray(cdist(X, centers, "sqeuclidean"))


def means(X: Matrix, labels: Labels, centers: Matrix) -> Matrix:
    """Return the mean of each cluster (k, d); an empty cluster keeps its center."""
    counts = np.bincount(labels, minlength=len(centers))
    sums = np.zeros_like(centers)
    np.add.at(sums, labels, X)
    return np.where(counts[:, None] > 0, sums / np.maximum(counts, 1)[:, None], centers)


def partners(ends: NDArray[np.integer], n: int) -> list[Labels]:
    """Return for each row the rows that it has a pair with."""
    rows: list[list[int]] = [[] for _ in range(n)]
    for i, j in ends:
        rows[i].append(j)
        rows[j].append(i)
    return [np.array(one, np.intp) for one in rows]


def cop_kmeans(X: Matrix, pairs: Pairs, k: int, rng: np.random.Generator, n_init: int, max_iter: int) -> Found:
    """Return clusters that violate no pair: k-means of whole must-link components.

    The best of `n_init` starts by the sum of squared distances. Raises InputError if no start succeeds.
    """
    component = must_link_components(pairs, len(X))
    # Cannot-links of components, as a component is assigned whole.
    foes = partners(component[pairs.cannot_link], int(component.max()) + 1)
    found: list[tuple[float, Found]] = []
    for _ in range(TRIES * n_init):
        one = _one_start(X, component, foes, k, rng, max_iter)
        if one is not None:
            found.append(one)
        if len(found) == n_init:
            break
    if not found:
        raise InputError(
            "no assignment without a violated pair", where="must_link, cannot_link", got=f"{TRIES * n_init} starts that fail",
            remedy="raise n_clusters, or take dkl.baselines.PCKMeans, which may violate pairs",
        )  # fmt: skip
    return min(found, key=lambda one: one[0])[1]


def _one_start(
    X: Matrix, component: Labels, foes: list[Labels], k: int, rng: np.random.Generator, max_iter: int
) -> tuple[float, Found] | None:
    """Return (sum of squared distances, clusters) of one start, or None if a component has no cluster left."""
    centers, _ = kmeans_plusplus(X, k, random_state=int(rng.integers(2**31)))
    n = len(foes)
    assigned = np.full(n, -1)
    for iteration in range(1, max_iter + 1):  # noqa: B007
        costs = np.zeros((n, k))
        np.add.at(costs, component, squared_distances(X, centers))
        before, assigned = assigned, np.full(n, -1)
        order, taken = rng.permutation(n), np.zeros((n, k), bool)
        # The component with the fewest clusters left comes first: any other order fails on most draws of pairs.
        for _ in range(n):
            c = order[np.argmax(np.where(assigned[order] < 0, taken[order].sum(axis=1), -1))]
            if taken[c].all():
                return None
            assigned[c] = np.argmin(np.where(taken[c], np.inf, costs[c]))
            # What its cannot-links forbid is known before the others choose.
            taken[foes[c], assigned[c]] = True
        labels = assigned[component]
        centers = means(X, labels, centers)
        if settled := np.array_equal(before, assigned):
            break
    inertia = float(squared_distances(X, centers)[np.arange(len(X)), labels].sum())
    return inertia, (labels, centers, iteration, settled)


def pck_means(
    X: Matrix, pairs: Pairs, k: int, rng: np.random.Generator, max_iter: int, weight: float | None = None
) -> Found:
    """Return the clusters of k-means with a cost of `weight` for each violated pair.

    Centers start at means of must-link components, the farthest first by their sizes; rows are assigned one by one. weight: by default
    WEIGHT of the mean squared distance of a row to the mean, so that it does not depend on the columns' units.
    """
    n = len(X)
    weight = WEIGHT * float(((X - X.mean(axis=0)) ** 2).sum(axis=1).mean()) if weight is None else weight
    must, cannot = partners(pairs.must_link, n), partners(pairs.cannot_link, n)
    centers = neighborhood_centers(X, must_link_components(pairs, n), k, rng)
    labels = np.full(n, -1, np.intp)
    for iteration in range(1, max_iter + 1):  # noqa: B007
        before = labels.copy()
        distances = 0.5 * squared_distances(X, centers)
        for i in rng.permutation(n):
            costs = distances[i].copy()
            for others, sign in ((labels[must[i]], -1.0), (labels[cannot[i]], 1.0)):
                # A must-link's cost in all clusters but its partner's is a gain there. Rows without a cluster do not count yet.
                np.add.at(costs, others[others >= 0], sign * weight)
            labels[i] = int(np.argmin(costs))
        centers = means(X, labels, centers)
        if settled := np.array_equal(before, labels):
            break
    return labels, centers, iteration, settled


def neighborhood_centers(X: Matrix, component: Labels, k: int, rng: np.random.Generator) -> Matrix:
    """Return k starting centers: means of must-link components, the farthest first; of random rows where there are fewer."""
    counts = np.bincount(component)
    large = np.flatnonzero(counts > 1)
    groups = np.array([X[component == c].mean(axis=0) for c in large]).reshape(-1, X.shape[1])
    if len(groups) <= k:
        extra = X[rng.choice(len(X), k - len(groups), replace=False)]
        return np.concatenate([groups, extra])
    chosen = [int(np.argmax(counts[large]))]
    for _ in range(k - 1):
        # Farthest first, weighted by size, as in the paper: a small group far away may be an outlier.
        nearest = squared_distances(groups, groups[chosen]).min(axis=1)
        chosen.append(int(np.argmax(nearest * counts[large])))
    return groups[chosen]
