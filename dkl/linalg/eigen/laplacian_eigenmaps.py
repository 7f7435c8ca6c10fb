"""Smoothest eigenvectors of a graph's Laplacian, dozens to hundreds, by the method of least work.

    n up to DENSE                                   LAPACK
    a factor of L + shift fits and is less work     shift-invert Lanczos
    else                                            Chebyshev-filtered subspaces (`lowest_subspace`), by products alone, here or on workers

Low eigenvalues of neighbor graphs lie close together: plain Lanczos takes thousands of steps there, and of chains filters many passes. A
factor of a graph that is locally a chain or a plane has some dozen numbers a row, however many rows; in many dimensions it is dense.
Which it is, is seen from the graph's levels (`eigenmap_work`), and a factor's bytes from those of two neighborhoods of a row. Clusters
that are nearly apart have eigenvalues that levels do not show: a filter that converges too slowly hands over to a factor.
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

from dkl.linalg.eigen import eigenmap_work
from dkl.linalg.eigen.eigenmap_work import factor_work, filter_work, graph_levels, pass_work
from dkl.linalg.eigen.lowest_subspace import Passes, PassesHere
from dkl.linalg.one_blas_thread import one_blas_thread

Array = NDArray[np.float64]
SHIFT, DEEP = 1e-4, 1000
"""Share of the mean of L's diagonal that is added to make L definite. Of a graph of more than DEEP levels it is 0.1 over their square,
below its lowest eigenvalues: far above them it hides what separates them, and Lanczos takes ten times the steps."""
TOL = 1e-8
"""Residual at which the filter's passes end."""
PASSES = 60
RESTARTS = 200
"""Most restarts of Lanczos. An eigenvalue that is there hundreds of times, as 0 where duplicates are components of their own, takes it
thousands."""
LOOK = 0.25
"""Share of a factor's work that the filter spends before it may hand over."""
MakePasses = Callable[[sparse.csr_array, int], Passes]


@dataclass(frozen=True)
class SmoothBasis:
    """L Q = Q diag(values): values (m,) ascending, orthonormal Q; residual: largest |L q - theta q| / |L|."""

    values: Array
    vectors: Array = field(repr=False)
    residual: float
    method: str


@one_blas_thread()  # the same bits on any machine
def smoothest(
    laplacian: sparse.csr_array,
    count: int,
    *,
    tol: float = TOL,
    passes: MakePasses = PassesHere,
    room: int | None = None,
) -> SmoothBasis:
    """Find the eigenvectors of the lowest `count` <= n eigenvalues of L (n, n).

    Each one's largest entry is positive. tol: of `residual`, where the filter's passes end; the other methods go to rounding. passes:
    where the filter's are made, of the Laplacian and a number of columns. room: bytes that a factor may take with all else, at most; None:
    FILL. Nothing is random but a fixed start.
    """
    n, entries = laplacian.shape[0], laplacian.nnz
    if n <= max(eigenmap_work.DENSE, 2 * count):
        vectors = scipy.linalg.eigh(laplacian.toarray(), subset_by_index=[0, count - 1])[1]
        return _orthonormal(laplacian, vectors, "dense")
    allowed = eigenmap_work.factor_room(n, count, entries, room)
    work, factored, found, share = np.inf, False, None, SHIFT
    if allowed:
        levels = graph_levels(laplacian)
        share = SHIFT if levels.depth <= DEEP else 0.1 / levels.depth**2
        # The work of both ways, in nanoseconds: only an estimate, so the filter may still hand over.
        work = factor_work(levels, n, entries, count)
        factored = work < filter_work(levels, entries, count + eigenmap_work.guards(count)) and _fits(
            laplacian, allowed
        )
    if not factored:
        found = _filtered(laplacian, count, tol, passes, work, allowed)
    if found is None:
        vectors = _factored(laplacian, count, share)
        if vectors is not None:
            return _orthonormal(laplacian, vectors, "shift-invert")
        # Work without end: this time the filter cannot hand over, so that there is a result.
        found = _filtered(laplacian, count, tol, passes, np.inf, 0)
    assert found is not None
    return found


def _orthonormal(laplacian: sparse.csr_array, found: Array, method: str) -> SmoothBasis:
    """Return the basis of eigenvectors `found` (n, m), orthonormal and ordered to rounding."""
    vectors = np.linalg.qr(found)[0]
    image = laplacian @ vectors
    # Rayleigh-Ritz once more, as shift-invert orders by the shifted values.
    values, turn = np.linalg.eigh(vectors.T @ image)
    vectors = vectors @ turn
    residual = float(np.linalg.norm(image @ turn - vectors * values, axis=0).max()) / _norm(laplacian)
    return SmoothBasis(values, _signed(np.ascontiguousarray(vectors)), residual, method)


def _norm(laplacian: sparse.csr_array) -> float:
    """Return |L| by its rows' sums, or 1 of no entries."""
    return float(abs(laplacian).sum(axis=1).max()) if laplacian.nnz else 1.0


def _signed(vectors: Array) -> Array:
    """Make each column's largest entry positive, in place."""
    for column in vectors.T:
        # A sign by the largest entry, as eigenvectors are determined up to it and results should not be.
        if column[np.abs(column).argmax()] < 0:
            column *= -1.0
    return vectors


def _fits(laplacian: sparse.csr_array, allowed: int) -> bool:
    """Return whether a factor takes at most `allowed` bytes."""
    return eigenmap_work.whole_factor_bytes(laplacian.shape[0]) <= allowed or factor_bytes(laplacian) <= allowed


def factor_bytes(laplacian: sparse.csr_array) -> float:
    """Return the bytes foreseen of L + shift's factors, by the growth that two neighborhoods show."""
    n = laplacian.shape[0]
    if n <= eigenmap_work.GAUGES[1]:
        return eigenmap_work.whole_factor_bytes(n)
    order = breadth_first_order(
        laplacian, int(laplacian.diagonal().argmax()), directed=False, return_predecessors=False
    )
    fills = []
    for size in eigenmap_work.GAUGES:
        # A component that is smaller says nothing of larger ones.
        rows = order[:size] if len(order) >= size else np.arange(size)
        part = laplacian[rows][:, rows]
        fills.append(_factor(part, SHIFT * float(part.diagonal().mean())).L.nnz / size)
    # The growth of fill between two neighborhoods, extrapolated to n rows.
    power = max(0.0, float(np.log(fills[1] / fills[0]) / np.log(eigenmap_work.GAUGES[1] / eigenmap_work.GAUGES[0])))
    return eigenmap_work.NUMBER * n * fills[1] * (n / eigenmap_work.GAUGES[1]) ** power


def _factor(laplacian: sparse.csr_array, shift: float) -> SuperLU:
    """Return the factor of L + shift, positive definite: no pivots but the diagonal's."""
    # L + shift is definite, so pivots of the diagonal are safe and the pattern stays symmetric.
    shifted = sparse.csc_array(laplacian + shift * sparse.eye_array(laplacian.shape[0]))
    return splu(shifted, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True})


def _factored(laplacian: sparse.csr_array, count: int, share: float) -> Array | None:
    """Return vectors (n, count), or None if Lanczos does not end. share: the shift over L's mean diagonal."""
    shift = share * float(laplacian.diagonal().mean())
    start = np.random.default_rng(0).standard_normal(laplacian.shape[0])
    try:
        inverse = LinearOperator(laplacian.shape, matvec=_factor(laplacian, shift).solve, dtype=np.float64)
        values, vectors = eigsh(laplacian, count, sigma=-shift, v0=start, OPinv=inverse, maxiter=RESTARTS)
    except (ArpackError, RuntimeError):  # the second: a factor without a pivot
        return None
    return np.asarray(vectors[:, np.argsort(values)])


def _filtered(
    laplacian: sparse.csr_array, count: int, tol: float, make: MakePasses, work: float, allowed: int
) -> SmoothBasis | None:
    """Return the basis as near as PASSES come; None where a factor, of this work and within the allowed bytes, is sooner done than the
    passes to come."""
    norm, columns = _norm(laplacian), count + eigenmap_work.guards(count)
    passes, each, before = make(laplacian, columns), pass_work(laplacian.nnz, columns), np.inf
    try:
        for done in range(1, PASSES + 1):
            ritz = passes.advance(count)
            residual = float(ritz.residuals.max()) / norm
            if residual <= tol:
                break
            # After a share of a factor's work the passes still to come are foreseen by their rate.
            if done * each >= LOOK * work:
                rate = np.log(before / residual) if residual < before else 0.0
                # log(residual / tol) / rate passes are left; multiplied out, as the rate may be 0.
                if each * np.log(residual / tol) > rate * work:
                    if _fits(laplacian, allowed):
                        return None
                    # The factor does not fit: the filter continues to its end.
                    work = np.inf
            before = residual
        return SmoothBasis(ritz.values, _signed(passes.vectors(count)), residual, "filter")
    finally:
        passes.close()
