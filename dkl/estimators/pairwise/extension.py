"""The learned factor at new points: the harmonic extension over the neighbour graph."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.neighbors import NearestNeighbors

from dkl.blocks.row_sources import RowSource, row_source
from dkl.errors import InputError
from dkl.linalg.neighbors import largest_value

QUERY_ROWS = 4096


def extend_factor(rows: Any, learned: Any, factor: Any, graph: Any) -> Any:
    """(m, rank): for rows that were learned from, their factor; else the weighted mean of their neighbours' rows.

    Weights are exp(-d^2 / (2 sigma^2)) over the graph's number of neighbours. The mean is
    scaled to norm 1: K(x, x) = 1 is what T asks of every pattern. A new
    point that is far from all (the weights underflow) takes its nearest neighbour's row.
    """
    new, old = row_source(rows), row_source(learned)
    if _same(new, old):
        return factor
    n, m = (int(source.array.shape[0]) for source in (old, new))
    search = NearestNeighbors(n_neighbors=min(graph.n_neighbors, n)).fit(_finite(old.read(0, n), 0))
    parts = []
    for lo in range(0, m, QUERY_ROWS):
        queries = _finite(new.read(lo, min(lo + QUERY_ROWS, m)), lo)
        if old.is_sparse != new.is_sparse:
            queries = sparse.csr_array(queries) if old.is_sparse else queries.toarray()
        distances, neighbors = search.kneighbors(queries)
        parts.append(_mean_rows(distances, neighbors, factor, graph))
    return np.concatenate(parts)


def _finite(rows: Any, first: int) -> Any:
    """The rows, unless a value has no distance to others: NaN, infinity, or too large to square."""
    values, largest = rows.data if sparse.issparse(rows) else rows, largest_value(rows.shape[1])
    if not (np.abs(values) <= largest).all():
        got = values.ravel()[np.argmin(np.abs(values.ravel()) <= largest)]
        where = f"X, in the block of rows from {first}"
        raise InputError("a value is not finite or too large", where=where, got=got, wanted=f"|x| <= {largest:.3g}")
    return rows


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


def _same(new: RowSource, old: RowSource) -> bool:
    """Whether both hold the same rows, compared a block at a time."""
    if new.array is old.array:
        return True
    if new.array.shape != old.array.shape or new.is_sparse != old.is_sparse:
        return False
    n = int(old.array.shape[0])
    for lo in range(0, n, QUERY_ROWS):
        a, b = new.read(lo, min(lo + QUERY_ROWS, n)), old.read(lo, min(lo + QUERY_ROWS, n))
        if (a != b).nnz if sparse.issparse(a) else not np.array_equal(a, b):
            return False
    return True
