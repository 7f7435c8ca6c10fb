"""The similarity graph and its Laplacian: from neighbor lists, or from affinities that the user brings.

    W_ij = the similarity of rows i and j  where i is among the neighbors of j or j among those of i, else 0
    "unnormalized": L = D - W        "normalized": L = I - D^-1/2 W D^-1/2        D = diag(row sums of W)

after Hu and Kwok (2013), section 4. All results are csr_array, float64, sorted, without stored zeros, symmetric to the bit.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import lapack
from scipy.sparse import coo_array, csr_array, diags_array, issparse

from dkl.errors import InputError, NumericalError
from dkl.linalg.graph.graph_parts import strong_labels

# -- similarities ------------------------------------------------------------------------------------------------------
# Similarities of rows by their squared distances d^2: one width for all rows, or each row's own.
#     sigma a number    w_ij = exp(-d_ij^2 / (2 sigma^2))
#     "average"         the same, sigma half the mean distance to the 10 nearest            Hu and Kwok (2013), section 4
#     "kth"             the same, sigma the mean distance to the last neighbor counted        Wu, So, Li and Li (2009), section 4
#     "local"           w_ij = exp(-c d_ij^2 / max(s_i, s_j)^2), 0/0 = 1, s_i the distance of row i to the last neighbor counted
# An edge joins i to one of its neighbors or of j's, so d_ij <= max(s_i, s_j): every local weight lies in [exp(-c), 1], whatever
# the data and their scale. Products of the two scales, means of distances and any single width lack such a bound: a few rows far
# from the others are then joined to them by weights that underflow.

Array = NDArray[np.float64]

SIGMA_NEIGHBORS = 10
"""Neighbors that "average" counts, whatever the graph's own number is."""


def average_width(dist2: Array) -> float:
    """Return half the mean distance between each row and its 10 nearest, from squared distances (n, >= 10).

    Fewer columns (n <= 10) are all used. 0 where every row has that many duplicates.
    """
    return 0.5 * float(np.sqrt(dist2[:, :SIGMA_NEIGHBORS]).mean())


def kth_width(dist2: Array) -> float:
    """Return the mean distance between each row and its last neighbor, from ascending squared distances (n, k)."""
    return float(np.sqrt(dist2[:, -1]).mean())


def one_width_weights(dist2: Array, sigma: float) -> Array:
    """Return exp(-dist2 / (2 sigma^2)); at sigma = 0 the limit: 1 between duplicates, else 0."""
    return np.exp(dist2 / (-2.0 * sigma**2)) if sigma**2 > 0 else (dist2 == 0).astype(np.float64)


def local_weights(dist2: Array, squares: Array, others: Array, sharpness: float = 1.0) -> Array:
    """Return exp(-sharpness dist2 / max(squares, others)), 0/0 = 1: the weights of m rows with k rows each.

    dist2 (m, k); squares (m,): s_i^2 of the rows; others (m, k): s_j^2, which is overwritten by the result
    """
    np.maximum(others, squares[:, None], out=others)
    np.divide(dist2, others, out=others, where=others > 0)  # where both are 0, so is the distance
    np.minimum(others, 1.0, out=others)  # stored widths are roots: their squares are rounded
    others *= -sharpness
    return np.exp(others, out=others)


@dataclass(frozen=True, eq=False)
class Similarity:
    """Weights of a graph's rows for an unseen row, by the graph's own rule.

    widths       (1,) sigma, or (n,) the local width of each row
    n_neighbors  rows that an unseen one is compared with
    sharpness    c of local widths
    """

    widths: Array = field(repr=False)
    n_neighbors: int
    sharpness: float = 1.0

    @property
    def is_local(self) -> bool:
        """Return whether each row has its own width; a graph has two rows at least."""
        return len(self.widths) > 1

    @property
    def nbytes(self) -> int:
        """Return the bytes of the widths."""
        return int(self.widths.nbytes)

    def weights(self, dist2: Array, rows: NDArray[np.integer]) -> Array:
        """Return (m, k) weights of the graph's `rows` (m, k) at squared distances `dist2` (m, k), ascending, from m unseen rows.

        Local: s of an unseen row is its own k-th distance. Of one width, weights are relative to the nearest row's, so that
        those of a far row do not all underflow; of width 0 the nearest rows alone count.
        """
        if self.is_local:
            return local_weights(dist2, dist2[:, -1], self.widths[rows] ** 2, self.sharpness)
        return one_width_weights(dist2 - dist2[:, :1], float(self.widths[0]))


# -- graph and Laplacian -----------------------------------------------------------------------------------------------

LAPLACIANS = ("normalized", "unnormalized")
_SYMMETRY = 1e-10
"""Share of the largest entry by which W and W' may differ."""


def similarity_graph(
    dist2: NDArray[np.float64], index: NDArray[np.int64], sigma: float | None, sharpness: float = 1.0
) -> csr_array:
    """Return W = max(A, A') (n, n) of a graph A with neighbors `index[i]` at squared distances `dist2`.

    (n, k) arrays, distances ascending, no pattern its own neighbor. sigma: one width, or None for local ones of that sharpness.
    Similarities that underflow are no edges.
    """
    n, k = index.shape
    last = dist2[:, -1]
    weights = local_weights(dist2, last, last[index], sharpness) if sigma is None else one_width_weights(dist2, sigma)
    # 32-bit indices while they suffice: half the bytes of the graph are its indices.
    width = np.int32 if n * k < np.iinfo(np.int32).max else np.int64
    shape = (weights.ravel(), index.astype(width).ravel(), np.arange(0, n * k + 1, k, dtype=width))
    directed = csr_array(shape, shape=(n, n))
    directed.sort_indices()
    # Both directions of a mutual pair have the same weight to the bit, so the maximum is symmetric to the bit.
    return _sorted(directed.maximum(directed.T.tocsr()))


def laplacian_matrix(affinity: csr_array, laplacian: str = "normalized") -> tuple[csr_array, NDArray[np.int64]]:
    """Return (L, isolated) of an exactly symmetric, nonnegative `affinity` (n, n) with an empty diagonal.

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


def joined(affinity: csr_array, edges: NDArray[np.int64], weight: float) -> csr_array:
    """Add `edges` (e, 2), each given once, with one weight to the symmetric graph."""
    ends = np.concatenate([edges, edges[:, ::-1]]).T
    more = coo_array((np.full(len(edges) * 2, weight), tuple(ends)), shape=affinity.shape)
    return _sorted(affinity + more.tocsr())


def laplacian_of(affinity: ArrayLike | Any, laplacian: str = "normalized") -> csr_array:
    """Return the Laplacian (n, n) of `affinity`: sparse or dense, symmetric, nonnegative, finite.

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
    """Raise InputError unless `laplacian` is one of LAPLACIANS."""
    if laplacian not in LAPLACIANS:
        raise InputError("unknown kind of Laplacian", where="laplacian", got=repr(laplacian), wanted=LAPLACIANS)


def _check_entries(graph: csr_array, where: str) -> None:
    """Raise InputError for the first entry that is not finite or negative, by its row and column."""
    for fault, bad in (("not finite", ~np.isfinite(graph.data)), ("negative", graph.data < 0)):
        if bad.any():
            k = int(np.argmax(bad))
            i = int(np.searchsorted(graph.indptr, k, side="right")) - 1
            raise InputError(
                f"an affinity is {fault}", where=f"{where}[{i}, {graph.indices[k]}]", got=graph.data[k], wanted=">= 0"
            )


def _sorted(graph: csr_array) -> csr_array:
    """Return the matrix in canonical form: no stored zeros, indices ascending in each row."""
    graph = csr_array(graph)
    graph.eliminate_zeros()
    graph.sort_indices()
    return graph


# Pseudo-inverse of a graph's Laplacian, dense: a kernel whose distances are the graph's resistances.

Matrix = NDArray[np.float64]


LEAST_RCOND = 1e-10
"""Reciprocal condition of L + s U U' below which its inverse has few right digits."""


def laplacian_pseudo_inverse(unnormalized: csr_array, laplacian: str = "normalized") -> Matrix:
    """Return L^+ (n, n), symmetric to the bit, of L = D - W (n, n) or L = D^-1/2 (D - W) D^-1/2.

    The null space of L is known, one vector u_c a connected component c: its indicator, times D^1/2 for the second kind. So

        L^+ = (L + s U U')^-1 - U U' / s,        U orthonormal, s the mean of L's diagonal,

    by one Cholesky factorization: n^3 flops where eigenvectors take ten times as many; 8 n^2 bytes in addition to L.
    Edges that join components by name only (`graph_parts.NEGLIGIBLE`) are left out: with them the null space is one vector short
    where rounding sees none. Raises NumericalError where L is singular outside U up to rounding, by the condition of L + s U U'.
    """
    check_laplacian(laplacian)
    count, labels = strong_labels(-unnormalized, unnormalized.diagonal())
    unnormalized = within_components(unnormalized, labels)
    degree = unnormalized.diagonal()
    root = np.sqrt(degree) if laplacian == "normalized" else np.ones_like(degree)
    root = np.where(degree > 0, root, 1.0)  # isolated patterns: L is zero there, whatever the scale
    null = root / np.sqrt(np.bincount(labels, weights=root**2, minlength=count))[labels]
    matrix = unnormalized.toarray()
    if laplacian == "normalized":
        matrix /= root[:, None]
        matrix /= root
    shift = float(matrix.diagonal().mean()) or 1.0
    members = [np.flatnonzero(labels == c) for c in range(count)]
    for of in members:
        matrix[np.ix_(of, of)] += shift * np.outer(null[of], null[of])
    norm = float(lapack.dlange("1", matrix.T))
    factor, failed = lapack.dpotrf(matrix.T, lower=1, overwrite_a=1)  # symmetric: its transpose is in LAPACK's order
    rcond = 0.0 if failed else float(lapack.dpocon(factor, norm, uplo="L")[0])
    if not rcond >= LEAST_RCOND:
        raise NumericalError(
            "the graph's Laplacian is singular up to rounding", where="kernel", got=f"reciprocal condition {rcond:.2g}",
            wanted=f"at least {LEAST_RCOND:.0e}", remedy="take local widths (sigma), a larger one, or more neighbors",
        )  # fmt: skip
    inverse = lapack.dpotri(factor, lower=1, overwrite_c=1)[0]
    inverse = np.tril(inverse)
    inverse += np.tril(inverse, -1).T
    for of in members:
        inverse[np.ix_(of, of)] -= np.outer(null[of], null[of]) / shift
    return np.ascontiguousarray(inverse)


def within_components(unnormalized: csr_array, labels: NDArray[np.integer]) -> csr_array:
    """Return D - W without the edges between components `labels` (n,); itself if no edge joins two."""
    edges = coo_array(unnormalized)
    i, j = edges.coords
    is_kept = (labels[i] == labels[j]) & (i != j)
    if np.count_nonzero(is_kept) == np.count_nonzero(i != j):
        return unnormalized
    kept = csr_array((edges.data[is_kept], (i[is_kept], j[is_kept])), shape=unnormalized.shape)
    # Summed again: what is left of a degree of negligible weights alone would be rounding.
    return csr_array(kept - diags_array(np.asarray(kept.sum(axis=1)).ravel()))
