"""Short versions of the methods that `answers.py` compares with and that no maintained package has.

Clusters from must-link and cannot-link pairs: `cop_kmeans`, `pck_means`, `e2cp`, `affinity_spectral`, and `rca`, a linear map.
A metric from labels: `lmnn`. Rows are arrays in memory; pairs are a `dkl.Pairs` of row numbers. Constants that the papers leave open
were chosen on ten of the benchmark's sets by other draws than it has.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.spatial.distance import cdist
from sklearn.cluster import SpectralClustering, kmeans_plusplus
from sklearn.neighbors import NearestNeighbors

Matrix = NDArray[np.float64]
Labels = NDArray[np.intp]


def must_link_components(pairs: Any, n: int) -> Labels:
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


def cop_kmeans(X: Matrix, pairs: Any, k: int, seed: int, tries: int = 20) -> tuple[Labels, Matrix]:
    """Return labels that violate no pair, and centers (k, d): k-means of whole must-link components.

    K. Wagstaff, C. Cardie, S. Rogers, S. Schroedl, Constrained k-means clustering with background knowledge, ICML 2001. The best
    of 5 starts by the sum of squared distances. Raises ValueError where pairs contradict each other, or no start of `tries` succeeds.
    """
    component = must_link_components(pairs, len(X))
    cannot = component[pairs.cannot_link]
    if np.any(cannot[:, 0] == cannot[:, 1]):
        raise ValueError("a cannot-link inside a must-link component")
    n = component.max() + 1
    foes = partners(cannot, n)
    rng = np.random.default_rng(seed)
    best: tuple[float, Labels, Matrix] | None = None
    done = 0
    for _ in range(tries):
        found = one_cop_kmeans(X, component, foes, k, rng)
        if found is not None:
            best = found if best is None or found[0] < best[0] else best
            done += 1
        if done == 5:
            break
    if best is None:
        raise ValueError(f"no assignment without a violated pair in {tries} tries")
    return best[1], best[2]


def one_cop_kmeans(X: Matrix, component: Labels, foes: list[Labels], k: int, rng: Any) -> Any:
    """Return (sum of squared distances, labels, centers) of one start, or None if a component has no cluster left."""
    centers, _ = kmeans_plusplus(X, k, random_state=int(rng.integers(2**31)))
    n = len(foes)
    assigned = np.full(n, -1)
    for _ in range(30):
        costs = np.zeros((n, k))
        np.add.at(costs, component, squared_distances(X, centers))
        before, assigned = assigned, np.full(n, -1)
        order, taken = rng.permutation(n), np.zeros((n, k), bool)
        for _ in range(
            n
        ):  # the component with the fewest clusters left comes first: any other order fails on most draws
            c = order[np.argmax(np.where(assigned[order] < 0, taken[order].sum(axis=1), -1))]
            if taken[c].all():
                return None
            assigned[c] = np.argmin(np.where(taken[c], np.inf, costs[c]))
            taken[foes[c], assigned[c]] = True
        labels = assigned[component]
        centers = means(X, labels, centers)
        if np.array_equal(before, assigned):
            break
    return float(squared_distances(X, centers)[np.arange(len(X)), labels].sum()), labels, centers


def pck_means(X: Matrix, pairs: Any, k: int, seed: int, weight: float | None = None) -> tuple[Labels, Matrix]:
    """Return labels and centers (k, d) of k-means with a penalty for each violated pair.

    S. Basu, A. Banerjee, R. Mooney, Active semi-supervision for pairwise constrained clustering, SDM 2004: centers start at means of
    must-link components, the farthest first by their sizes; rows are assigned one by one. weight: of a pair; by default .3 of the
    mean squared distance of a row to the mean, so that it does not depend on the columns' units.
    """
    rng = np.random.default_rng(seed)
    n = len(X)
    weight = 0.3 * float(((X - X.mean(axis=0)) ** 2).sum(axis=1).mean()) if weight is None else weight
    must, cannot = partners(pairs.must_link, n), partners(pairs.cannot_link, n)
    centers = neighborhood_centers(X, must_link_components(pairs, n), k, rng)
    labels = np.full(n, -1, np.intp)
    for _ in range(100):
        before = labels.copy()
        distances = 0.5 * squared_distances(X, centers)
        for i in rng.permutation(n):
            costs = distances[i].copy()
            for others, sign in ((labels[must[i]], -1.0), (labels[cannot[i]], 1.0)):
                np.add.at(costs, others[others >= 0], sign * weight)
            labels[i] = int(np.argmin(costs))
        centers = means(X, labels, centers)
        if np.array_equal(before, labels):
            break
    return labels, centers


def partners(ends: Any, n: int) -> list[Labels]:
    """Return for each row the rows that it has a pair with."""
    rows: list[list[int]] = [[] for _ in range(n)]
    for i, j in ends:
        rows[i].append(j)
        rows[j].append(i)
    return [np.array(one, np.intp) for one in rows]


def neighborhood_centers(X: Matrix, component: Labels, k: int, rng: Any) -> Matrix:
    """Return k starting centers: means of must-link components, the farthest first; of random rows where there are fewer."""
    counts = np.bincount(component)
    large = np.flatnonzero(counts > 1)
    groups = np.array([X[component == c].mean(axis=0) for c in large]).reshape(-1, X.shape[1])
    if len(groups) <= k:
        extra = X[rng.choice(len(X), k - len(groups), replace=False)]
        return np.concatenate([groups, extra])
    chosen = [int(np.argmax(counts[large]))]
    for _ in range(k - 1):
        nearest = squared_distances(groups, groups[chosen]).min(axis=1)
        chosen.append(int(np.argmax(nearest * counts[large])))
    return groups[chosen]


def neighbor_weights(X: Matrix, k: int) -> Matrix:
    """Return the symmetric affinity (n, n) of the k nearest neighbors, exp(-d^2 / (s_i s_j)), s the distance to the last of them."""
    distances, found = NearestNeighbors(n_neighbors=min(k + 1, len(X))).fit(X).kneighbors(X)
    scale = np.maximum(distances[:, -1], 1e-12)
    W = np.zeros((len(X), len(X)))
    rows = np.repeat(np.arange(len(X)), found.shape[1])
    W[rows, found.ravel()] = np.exp(-(distances.ravel() ** 2) / (scale[rows] * scale[found.ravel()]))
    np.fill_diagonal(W, 0.0)
    return np.maximum(W, W.T)


def e2cp(X: Matrix, pairs: Any, k: int, seed: int, alpha: float = 0.8, n_neighbors: int = 10) -> Labels:
    """Return labels by spectral clustering of an affinity through which the pairs have been propagated.

    Z. Lu, H. Ip, Constrained spectral clustering via exhaustive and efficient constraint propagation, ECCV 2010:
    F = (1 - alpha)^2 (I - alpha S)^-1 Z (I - alpha S)^-1, Z of +1 and -1; W becomes 1 - (1 - F)(1 - W) or (1 + F) W.
    """
    n = len(X)
    W = neighbor_weights(X, n_neighbors)
    root = 1.0 / np.sqrt(np.maximum(W.sum(axis=1), 1e-12))
    inverse = np.linalg.inv(np.eye(n) - alpha * root[:, None] * W * root)
    Z = np.zeros((n, n))
    for ends, sign in ((pairs.must_link, 1.0), (pairs.cannot_link, -1.0)):
        Z[ends[:, 0], ends[:, 1]] = Z[ends[:, 1], ends[:, 0]] = sign
    F = inverse @ Z @ inverse
    F /= max(float(np.abs(F).max()), 1e-300)
    W = np.where(F >= 0, 1.0 - (1.0 - F) * (1.0 - W), (1.0 + F) * W)
    return spectral_labels(W, k, seed)


def affinity_spectral(X: Matrix, pairs: Any, k: int, seed: int) -> Labels:
    """Return labels by spectral clustering of an affinity in which a must-link is 1 and a cannot-link 0.

    S. Kamvar, D. Klein, C. Manning, Spectral learning, IJCAI 2003.
    """
    W = neighbor_weights(X, 10)
    for ends, value in ((pairs.must_link, 1.0), (pairs.cannot_link, 0.0)):
        W[ends[:, 0], ends[:, 1]] = W[ends[:, 1], ends[:, 0]] = value
    return spectral_labels(W, k, seed)


def spectral_labels(W: Matrix, k: int, seed: int) -> Labels:
    """Return scikit-learn's spectral clusters of an affinity (n, n)."""
    np.fill_diagonal(W, 0.0)
    model = SpectralClustering(k, affinity="precomputed", random_state=seed)
    return np.asarray(model.fit_predict(0.5 * (W + W.T)), np.intp)


def rca(X: Matrix, pairs: Any, shrinkage: float = 0.3) -> Matrix:
    """Return a map A (d, d) such that rows of a must-link component have covariance near the identity in X A.

    A. Bar-Hillel, T. Hertz, N. Shental, D. Weinshall, Learning a Mahalanobis metric from equivalence constraints, JMLR 2005. The
    covariance within components is shrunk towards a multiple of the identity, as few pairs leave it singular.
    """
    component = must_link_components(pairs, len(X))
    counts = np.bincount(component)
    inside = np.flatnonzero(counts[component] > 1)
    if not len(inside):
        return np.eye(X.shape[1])
    centers = means(X, component, np.zeros((len(counts), X.shape[1])))
    spread = X[inside] - centers[component[inside]]
    C = spread.T @ spread / len(inside)
    level = max(float(np.trace(C)) / len(C), 1e-12)
    values, vectors = np.linalg.eigh((1.0 - shrinkage) * C + shrinkage * level * np.eye(len(C)))
    return (vectors / np.sqrt(values)) @ vectors.T


def lmnn(X: Matrix, y: Any, k: int = 3, pull: float = 0.5, rounds: int = 3) -> Matrix:
    """Return a map L (d, d) that brings k rows of the same class nearer than rows of others by a margin.

    K. Weinberger, L. Saul, Distance metric learning for large margin nearest neighbor classification, JMLR 2009. The 10 nearest rows
    of other classes are looked up again in each round; between rounds the smooth part is minimized by L-BFGS, the hinge squared.
    """
    y = np.asarray(y)
    n, d = X.shape
    L = np.eye(d) / max(float(np.sqrt(((X - X.mean(axis=0)) ** 2).sum(axis=1).mean())), 1e-12)
    targets = same_class_neighbors(X @ L, y, k)
    for _ in range(rounds):
        others = other_class_neighbors(X @ L, y, 10)
        i, j = targets.T
        pairs = np.repeat(np.arange(len(i)), others.shape[1])
        a, b, c = i[pairs], j[pairs], others[i].ravel()
        near, far, target = X[a] - X[b], X[a] - X[c], X[i] - X[j]

        def value(flat: Matrix) -> tuple[float, Matrix]:
            M = flat.reshape(d, d)
            near_M, far_M, target_M = near @ M, far @ M, target @ M  # noqa: B023
            slack = np.maximum(1.0 + (near_M**2).sum(axis=1) - (far_M**2).sum(axis=1), 0.0)
            gradient = 2.0 * pull * target.T @ target_M  # noqa: B023
            push = 4.0 * (1.0 - pull) * slack[:, None]
            gradient += near.T @ (push * near_M) - far.T @ (push * far_M)  # noqa: B023
            total = pull * float((target_M**2).sum()) + (1.0 - pull) * float((slack**2).sum())
            return total / n, gradient.ravel() / n

        L = minimize(value, L.ravel(), jac=True, method="L-BFGS-B", options={"maxiter": 50}).x.reshape(d, d)
    return L


def same_class_neighbors(X: Matrix, y: Any, k: int) -> Labels:
    """Return (m, 2) pairs of a row and one of its k nearest rows of the same class."""
    pairs = []
    for label in np.unique(y):
        rows = np.flatnonzero(y == label)
        if len(rows) > 1:
            found = NearestNeighbors(n_neighbors=min(k, len(rows) - 1)).fit(X[rows]).kneighbors(return_distance=False)
            pairs.append(np.stack([np.repeat(rows, found.shape[1]), rows[found.ravel()]], axis=1))
    return np.concatenate(pairs)


def other_class_neighbors(X: Matrix, y: Any, k: int) -> Labels:
    """Return for each row its k nearest rows of other classes (n, k)."""
    distances = squared_distances(X, X)
    distances[y[:, None] == y] = np.inf
    k = min(k, int((y[:, None] != y).sum(axis=1).min()))
    return np.argsort(distances, axis=1)[:, :k]
