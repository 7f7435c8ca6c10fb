"""The learned factor at new points: the harmonic extension over the neighbour graph."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.neighbors import NearestNeighbors

QUERY_ROWS = 4096


def extend_factor(rows: Any, learned: Any, factor: Any, graph: Any) -> Any:
    """(m, rank): for rows that were learned from, their factor; else the weighted mean of their neighbours' rows.

    Weights are exp(-d^2 / (2 sigma^2)) over the graph's number of neighbours. The mean is
    scaled to norm 1: K(x, x) = 1 is what T asks of every pattern. A new
    point that is far from all (the weights underflow) takes its nearest neighbour's row.
    """
    if _same(rows, learned):
        return factor
    k = min(graph.n_neighbors, int(learned.shape[0]))
    search = NearestNeighbors(n_neighbors=k).fit(_in_memory(learned))
    parts = []
    for lo in range(0, rows.shape[0], QUERY_ROWS):
        distances, neighbors = search.kneighbors(_in_memory(rows[lo : lo + QUERY_ROWS]))
        parts.append(_mean_rows(distances, neighbors, factor, graph))
    return np.concatenate(parts)


def _mean_rows(distances: NDArray, neighbors: NDArray, factor: Any, graph: Any) -> NDArray:
    sigma = graph.sigma if graph.sigma > 0 else 1.0
    nearest = distances[:, :1]
    # Relative to the nearest, so that a far point's weights do not all underflow.
    weights = np.exp(-(distances**2 - nearest**2) / (2 * sigma**2))
    ids, place = np.unique(neighbors, return_inverse=True)
    known = np.asarray(factor[ids])
    place = place.reshape(neighbors.shape)
    mean = (
        np.einsum("ij,ijr->ir", weights, known[place]) if known.size * 8 < 1 << 28 else _slowly(weights, known, place)
    )
    norms = np.linalg.norm(mean, axis=1, keepdims=True)
    mean /= np.where(norms > 0, norms, 1.0)
    exact = nearest[:, 0] == 0
    mean[exact] = known[place[exact, 0]]
    return mean.astype(known.dtype)


def _slowly(weights: NDArray, known: NDArray, place: NDArray) -> NDArray:
    mean = np.zeros((len(weights), known.shape[1]))
    for j in range(weights.shape[1]):
        mean += weights[:, j : j + 1] * known[place[:, j]]
    return mean


def _same(rows: Any, learned: Any) -> bool:
    if rows is learned:
        return True
    if rows.shape != learned.shape or type(rows) is not type(learned):
        return False
    if sparse.issparse(rows):
        return rows.nnz == learned.nnz and (rows != learned).nnz == 0
    return isinstance(rows, np.ndarray) and bool(np.array_equal(rows, learned))


def _in_memory(rows: Any) -> Any:
    return rows if sparse.issparse(rows) else np.asarray(rows)
