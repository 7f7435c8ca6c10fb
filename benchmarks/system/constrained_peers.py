"""Short versions of the methods that `answers.py` compares with and that neither `dkl.baselines` nor a maintained package has.

From must-link and cannot-link pairs: `affinity_spectral`, clusters, and `rca`, a linear map. From labels a metric: `lmnn`, which
metric-learn 0.7 has for scikit-learn below 1.3 alone. No paper's table has them, and so they are no estimators. Rows are arrays in
memory; pairs are a `dkl.Pairs` of row numbers. Constants that the papers leave open, those of `dkl.baselines`' COP-KMeans, PCKMeans and
E2CP among them, were chosen on ten of the benchmark's sets by other draws than it has.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from sklearn.neighbors import NearestNeighbors

from dkl.baselines.constrained_clusters import neighbor_weights, spectral_labels
from dkl.baselines.constrained_kmeans import means, must_link_components, squared_distances

Matrix = NDArray[np.float64]
Labels = NDArray[np.intp]


def affinity_spectral(X: Matrix, pairs: Any, k: int, seed: int) -> Labels:
    """Return labels by spectral clustering of an affinity in which a must-link is 1 and a cannot-link 0.

    S. Kamvar, D. Klein, C. Manning, Spectral learning, IJCAI 2003.
    """
    W = neighbor_weights(X, 10)
    for ends, value in ((pairs.must_link, 1.0), (pairs.cannot_link, 0.0)):
        W[ends[:, 0], ends[:, 1]] = W[ends[:, 1], ends[:, 0]] = value
    return spectral_labels(W, k, np.random.RandomState(seed))


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
