"""k-means on one block of rows: nearest centers, sums of clusters, distances, moments.

With rows x_i in R^r and, for each of R restarts that advance together, k centers c_j, Lloyd's step is

    l_i = argmin_j 1/2 |c_j|^2 - <x_i, c_j>,      c_j <- mean of the x_i with l_i = j

(S. Lloyd, Least squares quantization in PCM, IEEE Trans. Inf. Theory 28, 1982). The products with the centers of all
restarts are one matrix product, so a block is read once for all of them.

Everywhere: `rows` is an (m, r) float32 or float64 array or CSR array; `centers` is (R, k, r); labels are (R, m) int32.
`offset` (r,) is subtracted from dense rows on the way, and centers are given relative to it: near the mean, |x|^2
- 2 <x, c> + |c|^2 cancels less. Sparse rows would lose their zeros and take no offset.
Rows pass in chunks that stay in the processor's cache; the cut depends on r alone, and sums go in row order, so equal
input gives equal bits. Sums are float64, products are in the rows' dtype.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import DTypeLike, NDArray

from dkl.linalg.late_functions import njit

Rows = Any
"""NDArray of floats, or scipy.sparse.csr_array; (m, r)."""

Floats = NDArray[np.floating]
CHUNK_NUMBERS = 2**16
"""Numbers in a chunk of rows: 512 kB in double, so that a chunk stays in cache over the loops on it."""


def chunk_rows(n_features: int) -> int:
    """Return the rows of a chunk: some 512 kB of them, but enough for a matrix product to run at speed."""
    return min(512, max(64, CHUNK_NUMBERS // max(1, n_features)))


class _Scratch(threading.local):
    """Arrays that a thread uses again for each chunk.

    Freshly allocated, they would be mapped and paged in each time, which in Dask's workers (MALLOC_TRIM_THRESHOLD_ is low
    there) takes longer than the arithmetic.
    """

    def __init__(self) -> None:
        self.buffers: dict[str, NDArray[np.uint8]] = {}

    def array(self, name: str, shape: tuple[int, ...], dtype: DTypeLike) -> NDArray:
        """Return an uninitialized array; valid until this thread asks for the same name again."""
        nbytes = math.prod(shape) * np.dtype(dtype).itemsize
        if name not in self.buffers or self.buffers[name].size < nbytes:
            self.buffers[name] = np.empty(nbytes, np.uint8)
        return self.buffers[name][:nbytes].view(dtype).reshape(shape)


_scratch = _Scratch()


def _chunks(rows: Rows, offset: Floats | None) -> Iterator[tuple[slice, Rows]]:
    """Yield (where, rows[where] - offset), chunk by chunk; a dense chunk is overwritten by the next one."""
    m, r = rows.shape
    if sp.issparse(rows):
        yield slice(0, m), rows
        return
    rows = np.require(rows, requirements=["C", "A"])
    # Cut by r alone: another cut would round sums and products in another way.
    step = chunk_rows(r)
    # In the rows' dtype: a difference in double would convert every row.
    shift = np.zeros(r, rows.dtype) if offset is None else np.asarray(offset, rows.dtype)
    for start in range(0, m, step):
        where = slice(start, min(m, start + step))
        buffer = _scratch.array("chunk", (where.stop - where.start, r), rows.dtype)
        yield where, np.subtract(rows[where], shift, out=buffer)


def _products(points: Floats, chunk: Rows) -> Floats:
    """Return points @ chunk.T, (q, m) and C-contiguous: later loops run along the rows, and vectorize."""
    if sp.issparse(chunk):
        return np.ascontiguousarray((chunk @ points.T).T)
    # One product for the centers of all restarts, so that a chunk is read once.
    out = _scratch.array("products", (points.shape[0], chunk.shape[0]), chunk.dtype)
    return np.matmul(points, chunk.T, out=out)


def _squared_norms(chunk: Rows) -> NDArray[np.float64]:
    """Return (m,) |x|^2 of each row, in float64."""
    if sp.issparse(chunk):
        return np.asarray(chunk.multiply(chunk).sum(axis=1), np.float64).ravel()
    return np.einsum("ij,ij->i", chunk, chunk, dtype=np.float64)


@njit(nogil=True, cache=True)
def _nearest(products: Floats, half_norms: Floats, labels: NDArray[np.int32], best: Floats) -> None:
    """Set labels[s, i] = argmin_j half_norms[s, j] - products[s k + j, i], first of equals; scratch: best."""
    restarts, k = half_norms.shape
    for s in range(restarts):
        first = half_norms[s, 0]
        for i in range(products.shape[1]):
            best[i] = first - products[s * k, i]
            labels[s, i] = 0
        for j in range(1, k):
            half = half_norms[s, j]
            for i in range(products.shape[1]):
                value = half - products[s * k + j, i]
                closer = value < best[i]
                # Written as selections, not as branches, for the loop to become vector instructions.
                best[i] = value if closer else best[i]
                labels[s, i] = j if closer else labels[s, i]


@njit(nogil=True, cache=True)
def _add_rows(chunk: Floats, labels: NDArray[np.int32], sums: Floats) -> None:
    """Add sums[s, labels[s, i], :] += chunk[i, :], rows in order."""
    for s in range(labels.shape[0]):
        for i in range(labels.shape[1]):
            cluster = labels[s, i]
            for f in range(chunk.shape[1]):
                sums[s, cluster, f] += chunk[i, f]


@njit(nogil=True, cache=True, fastmath={"reassoc", "contract"})
def _own_distances(chunk: Floats, centers: Floats, labels: NDArray[np.int32], out: Floats) -> None:
    """Compute out[s, i] = |chunk[i] - centers[s, labels[s, i]]|^2, from the differences: no cancellation."""
    for s in range(labels.shape[0]):
        for i in range(labels.shape[1]):
            center = centers[s, labels[s, i]]
            total = 0.0
            for f in range(chunk.shape[1]):
                difference = np.float64(chunk[i, f]) - center[f]
                total += difference * difference
            out[s, i] = total


def _labeled_chunks(
    rows: Rows, centers: Floats, offset: Floats | None
) -> Iterator[tuple[slice, Rows, NDArray[np.int32]]]:
    """Yield (where, chunk, its labels (R, chunk))."""
    restarts, k, r = centers.shape
    # |x|^2 is the same for all centers and left out: half of |c|^2 - 2 <x, c> decides.
    half_norms = (0.5 * np.einsum("sjf,sjf->sj", centers, centers)).astype(rows.dtype)
    points = np.require(centers.reshape(restarts * k, r), rows.dtype, ["C", "A"])
    for where, chunk in _chunks(rows, offset):
        labels = _scratch.array("labels", (restarts, chunk.shape[0]), np.int32)
        best = _scratch.array("best", (chunk.shape[0],), rows.dtype)
        _nearest(_products(points, chunk), half_norms, labels, best)
        yield where, chunk, labels


def assign(rows: Rows, centers: Floats, offset: Floats | None = None) -> NDArray[np.int32]:
    """Return the nearest center (R, m) int32 of each row for each restart, the first of equally near ones.

    Distances are compared in the rows' dtype.
    """
    labels = np.empty((centers.shape[0], rows.shape[0]), np.int32)
    for where, _, part in _labeled_chunks(rows, centers, offset):
        labels[:, where] = part
    return labels


def cluster_sums(
    rows: Rows, centers: Floats, offset: Floats | None = None
) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int32]]:
    """Return (sums (R, k, r) relative to `offset`, counts (R, k), labels (R, m)), in a pass over the rows.

    The mean of cluster j of restart s is sums[s, j] / counts[s, j] + offset; counts may be 0.
    """
    restarts, k, _ = centers.shape
    sums = np.zeros(centers.shape)
    labels = np.empty((restarts, rows.shape[0]), np.int32)
    for where, chunk, part in _labeled_chunks(rows, centers, offset):
        labels[:, where] = part
        if sp.issparse(chunk):
            # A sparse product adds the rows of a cluster in order, as _add_rows does for dense ones.
            for s in range(restarts):
                sums[s] += (_membership(part[s], k) @ chunk).toarray()
        else:
            _add_rows(chunk, part, sums)
    counts = np.stack([np.bincount(own, minlength=k) for own in labels])
    return sums, counts, labels


def _membership(labels: NDArray[np.int32], k: int) -> sp.csr_array:
    """Return (k, m) with 1.0 where row i has label j, else 0."""
    m = labels.size
    return sp.csc_array((np.ones(m), labels, np.arange(m + 1)), shape=(k, m)).tocsr()


def own_distances(
    rows: Rows, centers: Floats, labels: NDArray[np.int32], offset: Floats | None = None
) -> NDArray[np.float64]:
    """Return squared distances (R, m) of rows to the centers that `labels` (R, m) give; sum: the inertia.

    Dense rows by differences, without cancellation; sparse ones by |x|^2 - 2 <x, c> + |c|^2, cut at 0.
    """
    out = np.empty(labels.shape)
    # Double even for float32 rows: the inertia is compared between steps, whose differences are small.
    exact = np.require(centers, np.float64, ["C", "A"])
    for where, chunk in _chunks(rows, offset):
        part = np.ascontiguousarray(labels[:, where])
        if sp.issparse(chunk):
            norms = _squared_norms(chunk)
            for s in range(centers.shape[0]):
                # Sparse rows by products, as differences would make them dense.
                cross = (chunk @ exact[s].T)[np.arange(chunk.shape[0]), part[s]]
                own = np.einsum("jf,jf->j", exact[s], exact[s])[part[s]]
                out[s, where] = np.maximum(norms - 2 * cross + own, 0)
        else:
            distances = _scratch.array("distances", part.shape, np.float64)
            _own_distances(chunk, exact, part, distances)
            out[:, where] = distances
    return out


@njit(nogil=True, cache=True)
def _lower(products: Floats, point_norms: Floats, row_norms: Floats, closest: Floats) -> None:
    """Compute closest[s, i] = min(closest[s, i], max(0, |x|^2 - 2 <x, p> + |p|^2)), p point s and x row i."""
    for s in range(closest.shape[0]):
        for i in range(closest.shape[1]):
            value = max(0.0, row_norms[i] - 2.0 * np.float64(products[s, i]) + point_norms[s])
            closest[s, i] = min(closest[s, i], value)


@njit(nogil=True, cache=True, fastmath={"reassoc", "contract"})
def _add_lowered(products: Floats, point_norms: Floats, row_norms: Floats, closest: Floats, totals: Floats) -> None:
    """Add to totals[s, t] the sum over rows of `closest`, were point (s, t) a center too."""
    restarts, trials = totals.shape
    for s in range(restarts):
        for t in range(trials):
            q, total = s * trials + t, 0.0
            for i in range(closest.shape[1]):
                value = max(0.0, row_norms[i] - 2.0 * np.float64(products[q, i]) + point_norms[q])
                total += min(closest[s, i], value)
            totals[s, t] += total


def lower(rows: Rows, points: Floats, closest: NDArray[np.float64], offset: Floats | None = None) -> None:
    """Lower closest (R, m), in place, to squared distances to points (R, r) relative to `offset`, if less.

    A step of k-means++: `closest` holds each row's squared distance to the nearest center chosen so far.
    """
    # In the rows' dtype, or the product would convert all rows.
    points = np.require(points, rows.dtype, ["C", "A"])
    norms = np.einsum("qf,qf->q", points, points, dtype=np.float64)
    for where, chunk in _chunks(rows, offset):
        _lower(_products(points, chunk), norms, _squared_norms(chunk), closest[:, where])


def lowered_sums(
    rows: Rows, candidates: Floats, closest: NDArray[np.float64], offset: Floats | None = None
) -> NDArray[np.float64]:
    """Return (R, trials): the sum over the rows of `closest` (R, m), were it lowered by that candidate (R, trials, r).

    Greedy k-means++ takes the candidate with the least sum (D. Arthur, S. Vassilvitskii, k-means++, SODA 2007).
    """
    restarts, trials, r = candidates.shape
    points = np.require(candidates.reshape(restarts * trials, r), rows.dtype, ["C", "A"])
    norms = np.einsum("qf,qf->q", points, points, dtype=np.float64)
    totals = np.zeros((restarts, trials))
    for where, chunk in _chunks(rows, offset):
        _add_lowered(_products(points, chunk), norms, _squared_norms(chunk), closest[:, where], totals)
    return totals


def moments(rows: Rows) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return (mean (r,) of rows, sum (r,) of squared deviations), float64; not finite where a row is not."""
    m = rows.shape[0]
    if sp.issparse(rows):
        exact = rows.astype(np.float64)
        mean = np.asarray(exact.sum(axis=0)).ravel() / m
        # A one-pass spread of sparse rows, whose zeros a second pass would fill in.
        return mean, np.maximum(np.asarray(exact.multiply(exact).sum(axis=0)).ravel() - m * mean**2, 0)
    mean = rows.mean(axis=0, dtype=np.float64)
    spread = np.zeros(rows.shape[1])
    # A second pass about the mean, so that nothing cancels far from the origin.
    for where, _ in _chunks(rows, None):
        spread += np.square(rows[where] - mean).sum(axis=0)
    return mean, spread


def merge_moments(parts: Sequence[tuple[int, Floats, Floats]]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Merge the blocks' moments, in their order, to mean and mean squared deviation (r,) of all rows.

    T. Chan, G. Golub, R. LeVeque, Updating formulae and a pairwise algorithm for computing sample variances, 1979.
    """
    count, mean, spread = parts[0][0], np.asarray(parts[0][1], np.float64), np.asarray(parts[0][2], np.float64)
    for m, other, more in parts[1:]:
        # Deviations from each block's own mean: sums of squares about 0 would cancel.
        gap = other - mean
        mean = mean + gap * (m / (count + m))
        spread = spread + more + gap**2 * (count * m / (count + m))
        count += m
    return mean, spread / count
