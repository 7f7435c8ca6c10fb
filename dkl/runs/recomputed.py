"""Recomputation for `dkl verify` of several learners: kernels in double precision, neighbor graphs.

Kernels are scikit-learn's, block by block. Nothing here comes from solvers, problems or their arithmetic, as nothing
does in the learners' verify.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse

from dkl.blocks.rows.row_sources import RowSource
from dkl.blocks.session import Session
from dkl.errors import MemoryBudgetError
from dkl.io.plain_arrays import with_short_indices
from dkl.resources import format_bytes

if TYPE_CHECKING:
    from dkl.blocks.graph.neighbor_graph import Graph
    from dkl.blocks.rows.row_sources import Rows

Vector = NDArray[np.float64]
BLOCK_BYTES = 16_000_000
MOST_BY_PRODUCTS = 64.0
"""Largest gamma |z|^2, about the first point, for exponents by products: beyond, exponents are summed from differences, three times as
slow at 50 features."""
DIAGONAL_ROWS = 256
FLAT = 1e-13
"""Share of all bounds: a slope that is 0 but for rounding."""
DENSE_BYTES = 16_000_000
"""Size of the columns of sparse rows and points that are made dense at a time."""


def kernel_matrix(kernel: Any, rows: Rows, points: Rows) -> NDArray[np.float64]:
    """Return k(x, z) (t, m) in double precision, for rows x (t, d) and points z (m, d).

    kernel: its `name` as scikit-learn has it, `gamma` (None: the function's default), `degree`, `coef0`, and `params` of a
    function. Of a "precomputed" one, points (m,) are the numbers of the rows' columns.

    scikit-learn's |x|^2 - 2 <x, z> + |z|^2 has no digits left for rows far from 0. So a Gaussian kernel's dense rows are taken about the
    first point, and where this is not enough, distances are sums of differences, by scipy; those of sparse rows some columns at a time.
    """
    from sklearn import metrics

    if kernel.name == "precomputed":
        return np.asarray(rows[:, points], np.float64)
    given = {"degree": kernel.degree, "coef0": kernel.coef0, **kernel.params}
    if kernel.gamma is not None:
        given["gamma"] = kernel.gamma
    rows, points = (with_short_indices(some.astype(np.float64)) for some in (rows, points))
    if kernel.name == "rbf" and points.shape[0]:
        gamma, is_sparse = given.get("gamma", 1.0 / rows.shape[1]), issparse(rows) or issparse(points)
        with np.errstate(over="ignore"):
            # Far from 0 the expansion |x|^2 - 2 x z + |z|^2 cancels; sparse points would fill.
            shifted = points if is_sparse else points - points[0]
            squares = np.asarray((shifted.multiply(shifted) if issparse(points) else np.square(shifted)).sum(axis=1))
            if gamma * squares.max() > MOST_BY_PRODUCTS:
                return np.asarray(np.exp(-gamma * _squared_distances(rows, points)))
        rows, points = (rows, points) if is_sparse else (rows - points[0], shifted)
    if kernel.name == "cosine":
        rows, points = _by_largest(rows), _by_largest(points)
    found = metrics.pairwise_kernels(rows, points, metric=kernel.name, filter_params=True, **given)
    return np.asarray(found, np.float64)


def _by_largest(rows: Rows) -> Rows:
    """Return rows (t, d), dense or CSR, each divided by its largest absolute value; rows of 0 unchanged.

    scikit-learn takes rows shorter than 2e-15 for 0, and squares of smaller ones underflow.
    """
    largest = abs(rows).max(axis=1)
    largest = largest.toarray().ravel() if issparse(rows) else largest
    largest[largest == 0] = 1.0
    if not issparse(rows):
        return rows / largest[:, None]
    values = rows.data / np.repeat(largest, np.diff(rows.indptr))
    return type(rows)((values, rows.indices, rows.indptr), shape=rows.shape)


def _squared_distances(rows: Rows, points: Rows) -> NDArray[np.float64]:
    """Return squared distances (t, m) from differences of rows (t, d) and points (m, d), dense or sparse."""
    from scipy.spatial.distance import cdist

    if not (issparse(rows) or issparse(points)):
        return np.asarray(cdist(rows, points, "sqeuclidean"))
    found = np.zeros((rows.shape[0], points.shape[0]))
    step = max(1, DENSE_BYTES // (8 * (rows.shape[0] + points.shape[0])))
    for lo in range(0, rows.shape[1], step):
        x, z = (some[:, lo : lo + step] for some in (rows, points))
        x, z = (some.toarray() if issparse(some) else some for some in (x, z))
        found += cdist(x, z, "sqeuclidean")
    return found


def widths_apart(stored: Vector, found: Vector) -> float:
    """Return how far stored widths of a similarity are from the rows', relative to the largest."""
    if stored.shape != found.shape:
        return float("inf")
    return float(np.abs(stored - found).max()) / max(float(found.max()), float(np.finfo(float).tiny))


def neighbor_graph(X: Rows, n_neighbors: int, sigma: float | str, laplacian: str, **more: Any) -> Graph:
    """Return the graph of rows (n, d), recomputed on one thread."""
    from dkl.blocks.graph.neighbor_graph import build_graph

    most = min(n_neighbors, int(X.shape[0]) - 1)
    # One thread: sums of neighbors found by several would be in another order each time.
    return build_graph(X, n_neighbors=most, sigma=sigma, laplacian=laplacian, session=Session(None, threads=1), **more)


def svc_width(rows: RowSource, budget: int) -> float:
    """Return 1 / (n_features * variance of all entries), and 1 if they are equal: SVC's gamma="scale", by two passes."""
    # About the first entry: squares of entries far from 0 would cancel.
    first, count = float(rows.read(0, 1)[0, 0]), rows.n * rows.n_features
    mean = sum(float(_apart(block, first).sum()) for _, block in blocks(rows, 1, budget)) / count
    squares = sum(float(np.square(_apart(block, first) - mean).sum()) for _, block in blocks(rows, 1, budget))
    return rows.n / squares if squares > 0 else 1.0


def _apart(rows: Rows, origin: float) -> NDArray[np.float64]:
    """Return the differences of all entries to `origin`, dense: squares about it keep their digits far from 0."""
    dense = rows.toarray() if issparse(rows) else rows
    return np.subtract(dense, origin, dtype=np.float64)


def blocks(rows: RowSource, width: int, budget: int) -> Iterator[tuple[int, Rows]]:
    """Yield (first row's number, rows) of blocks that take BLOCK_BYTES with `width` columns of a kernel.

    The rounding of what is computed of a block depends on its size, which does not depend on `budget`: MemoryBudgetError where it has
    fewer bytes than a block.
    """
    row_bytes = 8 * 2 * max(width, rows.n_features)
    # Not by the budget: verify is to say the same numbers at any limit.
    step = max(1, BLOCK_BYTES // row_bytes)
    if (needed := min(step, rows.n) * row_bytes) > budget:
        what = "a block of the rows does not fit"
        raise MemoryBudgetError(what, where="memory_limit", got=format_bytes(budget), wanted=format_bytes(needed))
    for lo in range(0, rows.n, step):
        yield lo, rows.read(lo, min(lo + step, rows.n))


def apart_from_rows(points: Rows, numbers: NDArray[np.intp], block: Rows, lo: int) -> float | np.floating:
    """Return how far stored points (m, d) are from the rows that they are said to be: 0 if equal.
    numbers (m,): of these rows, compared if in the block that begins at row `lo`. Column numbers of a precomputed
    kernel are not rows."""
    here = np.flatnonzero((numbers >= lo) & (numbers < lo + block.shape[0]))
    if points.ndim == 1 or not here.size:
        return 0.0
    found: np.floating = abs(points[here] - block[numbers[here] - lo]).max()
    return found


def diagonals(kernels: Sequence[Any], rows: RowSource) -> Vector:
    """Return k(x, x) (kernels, n) of all rows."""
    out = np.empty((len(kernels), rows.n))
    for lo in range(0, rows.n, DIAGONAL_ROWS):
        hi = min(lo + DIAGONAL_ROWS, rows.n)
        block = rows.read(lo, hi)
        for k, kernel in enumerate(kernels):
            points = np.arange(lo, hi) if kernel.is_precomputed else block
            out[k, lo:hi] = np.diagonal(kernel_matrix(kernel, block, points))
    return out


def expansions(kernels: Sequence[Any], coefficients: Vector, points: Rows, rows: RowSource, budget: int) -> Vector:
    """Return sums (kernels, M, n) of coefficients (M, m) times k(x, z), over points z (m, d), of all x."""
    out = np.empty((len(kernels), len(coefficients), rows.n))
    for lo, block in blocks(rows, coefficients.shape[1], budget):
        for k, kernel in enumerate(kernels):
            out[k, :, lo : lo + block.shape[0]] = coefficients @ kernel_matrix(kernel, block, points).T
    return out


def auc(scores: Vector, is_must: NDArray[np.bool_], near: float) -> tuple[float, float]:
    """Return (the AUC of scores (m,), the share of it that differences of at most `near` leave open)."""
    from sklearn.metrics import roc_auc_score

    is_open = np.abs(scores[is_must][:, None] - scores[~is_must]) <= near
    return float(roc_auc_score(is_must, scores)), float(is_open.mean())


def least_charge(gradient: Vector, y: Vector, C: Vector) -> float:
    """Return the least over b of sum_i C_i max(0, -g_i - 2 b y_i), at one of the kinks b_i = -g_i y_i / 2.
    A machine's gap is charged it for its box."""
    # The function is convex and linear between kinks: its least value is at one of them.
    kinks = -gradient * y / 2
    order = np.argsort(kinks)
    b, weight, positive = kinks[order], C[order], y[order] > 0
    up, down = np.where(positive, weight, 0.0), np.where(positive, 0.0, weight)
    # sum over positive rows beyond b of 2 C (kink - b), and over negative rows below b of 2 C (b - kink)
    above = np.cumsum((up * b)[::-1])[::-1] - b * np.cumsum(up[::-1])[::-1]
    below = b * np.cumsum(down) - np.cumsum(down * b)
    return float(2 * (above + below).min())


def middle_intercept(gradient: Vector, y: Vector, C: Vector) -> float:
    """Return the middle of the b of `least_charge`: its slope, which each kink raises by 2 C, is 0 there."""
    kinks = -gradient * y / 2
    order = np.argsort(kinks)
    # Half of the slope beyond each kink.
    slopes, nothing = np.cumsum(C[order]) - C[y > 0].sum(), FLAT * float(C.sum())
    low, high = (kinks[order[int(np.argmax(is_past))]] for is_past in (slopes >= -nothing, slopes > nothing))
    return float(0.5 * (low + high))
