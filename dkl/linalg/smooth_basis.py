"""The smoothest eigenvectors of a graph's Laplacian, some dozens to hundreds, by whichever method is safe at the graph's size.

    n up to DENSE                      LAPACK
    a factor of L + shift within FILL  shift-invert Lanczos
    beyond                             Chebyshev-filtered subspaces (`filtered_rows`), which need products alone, here or on workers

Low eigenvalues of neighbour graphs lie close together: plain Lanczos takes thousands of steps there, and filters many passes. A factor
of a graph that is locally a plane has some dozen numbers a row, however many rows; in many dimensions it is dense. Which it is, is
seen from factors of the neighbourhoods of a row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import breadth_first_order
from scipy.sparse.linalg import ArpackError, LinearOperator, SuperLU, eigsh, splu

from dkl.linalg import smooth_bytes
from dkl.linalg.filtered_rows import Passes, PassesHere
from dkl.linalg.one_blas_thread import one_blas_thread

Array = NDArray[np.float64]
SHIFT = 1e-4
"""Of the mean of L's diagonal: what makes L definite."""
PASSES = 60
MakePasses = Callable[[sparse.csr_array, int], Passes]


@dataclass(frozen=True)
class SmoothBasis:
    """L Q = Q diag(values), to `residual`: values (m,) ascending, vectors (n, m) orthonormal, the largest |L q - theta q| over |L|."""

    values: Array
    vectors: Array = field(repr=False)
    residual: float
    method: str


@one_blas_thread()  # the same bits on any machine
def smoothest(
    laplacian: sparse.csr_array,
    count: int,
    *,
    tol: float = 1e-8,
    passes: MakePasses = PassesHere,
    room: int | None = None,
) -> SmoothBasis:
    """The eigenvectors of the lowest `count` eigenvalues of L (n, n), count <= n. Each one's largest entry is positive.

    tol: of `residual`, where the filter's passes end; the other methods go to rounding. passes: where the filter's are made, of the
    Laplacian and a number of columns. room: bytes that a factor may take with all beside it, at most; None: FILL. Nothing is random
    but a fixed start.
    """
    n = laplacian.shape[0]
    is_small = n <= max(smooth_bytes.DENSE, 2 * count)
    method, found = "shift-invert", None
    factor = smooth_bytes.factor_room(n, count, laplacian.nnz, room)
    if not is_small and factor and (smooth_bytes.whole_factor_bytes(n) <= factor or factor_bytes(laplacian) <= factor):
        found = _factored(laplacian, count)
    if found is None and not is_small:
        return _filtered(laplacian, count, tol, passes)
    if found is None:
        method, found = "dense", scipy.linalg.eigh(laplacian.toarray(), subset_by_index=[0, count - 1])[1]
    # Rayleigh-Ritz: orthonormal, and ordered, to rounding.
    vectors = np.linalg.qr(found)[0]
    image = laplacian @ vectors
    values, turn = np.linalg.eigh(vectors.T @ image)
    vectors = vectors @ turn
    residual = float(np.linalg.norm(image @ turn - vectors * values, axis=0).max()) / _norm(laplacian)
    return SmoothBasis(values, _signed(np.ascontiguousarray(vectors)), residual, method)


def _norm(laplacian: sparse.csr_array) -> float:
    """|L| by its rows' sums, or 1 of no entries."""
    return float(abs(laplacian).sum(axis=1).max()) if laplacian.nnz else 1.0


def _signed(vectors: Array) -> Array:
    """Each column's largest entry made positive, in place."""
    for column in vectors.T:
        if column[np.abs(column).argmax()] < 0:
            column *= -1.0
    return vectors


def factor_bytes(laplacian: sparse.csr_array) -> float:
    """Foreseen of L + shift's factors: numbers a row grow with the number of rows by the power that two neighbourhoods show."""
    n = laplacian.shape[0]
    if n <= smooth_bytes.GAUGES[1]:
        return smooth_bytes.whole_factor_bytes(n)
    order = breadth_first_order(
        laplacian, int(laplacian.diagonal().argmax()), directed=False, return_predecessors=False
    )
    fills = []
    for size in smooth_bytes.GAUGES:
        # A component that is smaller tells nothing of larger ones.
        rows = order[:size] if len(order) >= size else np.arange(size)
        fills.append(_factor(laplacian[rows][:, rows]).L.nnz / size)
    power = max(0.0, float(np.log(fills[1] / fills[0]) / np.log(smooth_bytes.GAUGES[1] / smooth_bytes.GAUGES[0])))
    return smooth_bytes.NUMBER * n * fills[1] * (n / smooth_bytes.GAUGES[1]) ** power


def _factor(laplacian: sparse.csr_array) -> SuperLU:
    """Of L + shift, positive definite: no pivots but the diagonal's."""
    shift = SHIFT * float(laplacian.diagonal().mean())
    shifted = sparse.csc_array(laplacian + shift * sparse.eye_array(laplacian.shape[0]))
    return splu(shifted, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True})


def _factored(laplacian: sparse.csr_array, count: int) -> Array | None:
    """(n, count), or None where Lanczos does not end."""
    shift = SHIFT * float(laplacian.diagonal().mean())
    start = np.random.default_rng(0).standard_normal(laplacian.shape[0])
    try:
        inverse = LinearOperator(laplacian.shape, matvec=_factor(laplacian).solve, dtype=np.float64)
        values, vectors = eigsh(laplacian, count, sigma=-shift, v0=start, OPinv=inverse)
    except (ArpackError, RuntimeError):  # the second: a factor without a pivot
        return None
    return np.asarray(vectors[:, np.argsort(values)])


def _filtered(laplacian: sparse.csr_array, count: int, tol: float, make: MakePasses) -> SmoothBasis:
    """As near as PASSES come."""
    norm = _norm(laplacian)
    passes = make(laplacian, count + smooth_bytes.guards(count))
    try:
        for _ in range(PASSES):
            ritz = passes.advance(count)
            residual = float(ritz.residuals.max()) / norm
            if residual <= tol:
                break
        return SmoothBasis(ritz.values, _signed(passes.vectors(count)), residual, "filter")
    finally:
        passes.close()
