"""The similarity graph and its Laplacian: from neighbor lists, or from affinities that the user brings.

    W_ij = exp(-|x_i - x_j|^2 / (2 sigma^2))  where i is among the neighbors of j or j among those of i, else 0
    "unnormalized": L = D - W        "normalized": L = I - D^-1/2 W D^-1/2        D = diag(row sums of W)

after Hu and Kwok (2013), section 4. All results are csr_array, float64, sorted, without
stored zeros, symmetric to the bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array, diags_array, issparse
from scipy.sparse.csgraph import connected_components

from dkl.errors import InputError

LAPLACIANS = ("normalized", "unnormalized")
SIGMA_NEIGHBORS = 10
"""Neighbors that the automatic width averages over, whatever the graph's own number is."""
_SYMMETRY = 1e-10


def average_width(dist2: NDArray[np.float64]) -> float:
    """sigma: half the average distance between each pattern and its 10 nearest, from squared distances (n, >= 10).

    Fewer columns (n <= 10) are all used. 0 where every pattern has that many duplicates.
    """
    return 0.5 * float(np.sqrt(dist2[:, :SIGMA_NEIGHBORS]).mean())


def similarity_graph(dist2: NDArray[np.float64], index: NDArray[np.int64], sigma: float) -> csr_array:
    """W = max(A, A') (n, n) of the directed graph A with row i's neighbors `index[i]` at squared distances `dist2[i]`.

    (n, k) arrays, no pattern its own neighbor. Similarities that underflow are no edges. At sigma = 0 the weights are the
    limit: 1 between duplicates, else 0. Source: Hu and Kwok (2013), section 4.
    """
    n, k = index.shape
    weights = np.exp(dist2 / (-2.0 * sigma**2)) if sigma**2 > 0 else (dist2 == 0).astype(np.float64)
    # 32-bit indices while they suffice: half the bytes of the graph are its indices.
    width = np.int32 if n * k < np.iinfo(np.int32).max else np.int64
    shape = (weights.ravel(), index.astype(width).ravel(), np.arange(0, n * k + 1, k, dtype=width))
    directed = csr_array(shape, shape=(n, n))
    directed.sort_indices()
    # Both directions of a mutual pair have the same weight to the bit, so the maximum is symmetric to the bit.
    return _sorted(directed.maximum(directed.T.tocsr()))


def laplacian_matrix(affinity: csr_array, laplacian: str = "normalized") -> tuple[csr_array, NDArray[np.int64]]:
    """(L, isolated) of an exactly symmetric, nonnegative `affinity` (n, n) with an empty diagonal.

    `isolated` lists the patterns of degree 0. Their rows of L are 0, the diagonal included, in both kinds: so L is psd, and
    its null space has one dimension for each component. Raises InputError for an unknown kind, and for degrees that overflow.
    """
    check_laplacian(laplacian)
    with np.errstate(over="ignore"):
        degree = np.asarray(affinity.sum(axis=1)).ravel()
    if not np.isfinite(degree).all():
        raise InputError(
            "affinities are so large that their sums overflow",
            where=f"affinity[{int(np.argmin(np.isfinite(degree)))}]",
            got=float(affinity.max()),
            remedy="divide them by their largest",
        )
    connected = degree > 0
    off_diagonal = affinity.copy()
    if laplacian == "normalized":
        scale = np.zeros_like(degree)
        np.divide(1.0, np.sqrt(degree), out=scale, where=connected)
        row = np.repeat(scale, np.diff(affinity.indptr))
        column = scale[affinity.indices]
        # The larger factor first, whichever end it is: symmetric to the bit, and tiny degrees do not overflow.
        off_diagonal.data *= np.maximum(row, column)
        off_diagonal.data *= np.minimum(row, column)
        degree = connected.astype(np.float64)
    off_diagonal.data *= -1.0
    return _sorted(off_diagonal + diags_array(degree, format="csr")), np.flatnonzero(~connected)


def components(graph: csr_array) -> NDArray[np.int64]:
    """Sizes of the connected components of a symmetric graph, largest first; an isolated pattern is one of size 1."""
    _, labels = connected_components(graph, directed=False)
    return np.sort(np.bincount(labels))[::-1]


def laplacian_of(affinity: ArrayLike | Any, laplacian: str = "normalized") -> csr_array:
    """The Laplacian (n, n) of the user's own `affinity`: sparse or dense, square, symmetric, nonnegative, finite.

    W and W' may differ by 1e-10 of the largest entry; their larger entry is taken. A diagonal is ignored, as SciPy
    does: it cancels in D - W. Raises InputError.
    """
    check_laplacian(laplacian)
    where = "affinity"
    try:
        given: Any = affinity if issparse(affinity) else np.asarray(affinity)
        if given.dtype.kind not in "biuf":
            raise TypeError
    except (TypeError, ValueError) as error:
        raise InputError("not a matrix of real numbers", where=where, got=type(affinity).__name__) from error
    if given.ndim != 2 or given.shape[0] != given.shape[1] or given.shape[0] == 0:
        raise InputError("not a square matrix", where=where, got=f"shape {given.shape}", wanted="(n, n)")
    graph = csr_array(given.astype(np.float64))  # a copy in any case
    graph.sum_duplicates()
    _check_entries(graph, where)
    graph = graph - diags_array(graph.diagonal(), format="csr")
    mirrored = graph.T.tocsr()
    difference = abs(graph - mirrored)
    if difference.nnz and difference.max() > _SYMMETRY * graph.max():
        # The largest difference, as row and column: a user finds the fault there.
        k = int(np.argmax(difference.data))
        i, j = int(np.searchsorted(difference.indptr, k, side="right")) - 1, int(difference.indices[k])
        raise InputError(
            "not symmetric",
            where=f"{where}[{i}, {j}]",
            got=f"{graph[i, j]:.17g} and, mirrored, {graph[j, i]:.17g}",
            remedy="pass affinity.maximum(affinity.T)",
        )
    return laplacian_matrix(_sorted(graph.maximum(mirrored)), laplacian)[0]


def check_laplacian(laplacian: str) -> None:
    """InputError unless `laplacian` is one of LAPLACIANS."""
    if laplacian not in LAPLACIANS:
        raise InputError("unknown kind of Laplacian", where="laplacian", got=repr(laplacian), wanted=LAPLACIANS)


def _check_entries(graph: csr_array, where: str) -> None:
    """InputError for the first entry that is not finite or negative, by its row and column."""
    for fault, bad in (("not finite", ~np.isfinite(graph.data)), ("negative", graph.data < 0)):
        if bad.any():
            k = int(np.argmax(bad))
            i = int(np.searchsorted(graph.indptr, k, side="right")) - 1
            raise InputError(
                f"an affinity is {fault}", where=f"{where}[{i}, {graph.indices[k]}]", got=graph.data[k], wanted=">= 0"
            )


def _sorted(graph: csr_array) -> csr_array:
    """The same matrix in canonical form: no stored zeros, indices ascending in each row."""
    graph = csr_array(graph)
    graph.eliminate_zeros()
    graph.sort_indices()
    return graph
