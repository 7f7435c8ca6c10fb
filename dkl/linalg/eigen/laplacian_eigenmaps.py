"""Smoothest eigenvectors of a graph's Laplacian, dozens to hundreds, by the method of least work.

    n up to DENSE                                   LAPACK
    a factor of L + shift fits and is less work     shift-invert Lanczos
    else                                            Chebyshev-filtered subspaces (`lowest_subspace`), by products alone, here or on workers

Low eigenvalues of neighbor graphs lie close together: plain Lanczos takes thousands of steps there, and a filter many passes on chains. A
factor of a graph that is locally a chain or a plane has some dozen numbers a row, however many rows; in many dimensions it is dense.
Which it is, shows in the graph's breadth-first levels, and a factor's bytes from those of two neighborhoods of a row. Clusters that
are nearly apart have eigenvalues that levels do not show: a filter that converges too slowly hands over to a factor.

A factor's fill grows with the graph's separators, and about as wide are its levels, a few rows of a chain and half of all rows in ten
dimensions; the filter's products grow with the root of what the spectrum spans beyond the wanted end, and so with the number of levels.
Both estimates take milliseconds, where a factor of a part of the graph, to see its fill, can take more than the filter. Their constants
are nanoseconds measured on one core of an AMD EPYC, over chains, circles, planes, cubes, Gaussians in 10 dimensions and digits of 1,000
to 100,000 rows (benchmarks/system/spectral.md): fixed numbers, so that the choice, and with it the bytes of results, is the same on any
machine.
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

from dkl.linalg.eigen.lowest_subspace import DEGREE, Passes, PassesHere
from dkl.linalg.rows.tree_sum import GROUPS, band_order
from dkl.linalg.slabs.slab_ops import WIDTH
from dkl.resources import one_blas_thread

PRODUCTS = (60.0, 16.0)
"""Products with the matrix to a residual of 1e-8: at least, and a level over the root of the columns. At most twice off but for chains,
where it is too many."""
ALL_PASSES = 5e6
"""Nanoseconds that all its passes take of any graph, however small."""
ENTRY = 3.5
"""Nanoseconds of an entry of the matrix times a slab's row."""
ORDER, FLOP = 4000.0, 0.23
"""Nanoseconds of a row's place in the elimination, and of a product of two numbers in it."""
FILL_FLOPS = 4.0
"""Products by the cube of a part's width, and by its rows times its width: between 1 and 7 of them."""
FACTOR_ENTRY, STEP, BASIS = 2.5, 60.0, 1.0
"""Nanoseconds of a step of Lanczos: for a number of the factor, a row, a row's number in one vector of Lanczos' basis."""


@dataclass(frozen=True)
class Levels:
    """Sizes of the breadth-first levels of a graph.

    parts: its components; depth: levels of the deepest part. Of each part's root mean square width w, cubes: the sum of w^3; strips: that
    of w times the part's rows.
    """

    parts: int
    depth: int
    cubes: float
    strips: float


def graph_levels(matrix: sparse.csr_array) -> Levels:
    """Return the levels of a symmetric matrix (n, n).

    By its reverse Cuthill-McKee order, in which a row's last neighbor is about a level away.
    """
    n = matrix.shape[0]
    order = band_order(matrix)
    place = np.empty(n, np.int32)
    place[order] = np.arange(n, dtype=np.int32)
    last, filled = np.arange(n, dtype=np.int32), np.flatnonzero(np.diff(matrix.indptr))
    if len(filled):
        reached = np.maximum.reduceat(place[matrix.indices], matrix.indptr[filled])
        last[place[filled]] = np.maximum(last[place[filled]], reached)
    parts = depth = at = 0
    cubes = strips = 0.0
    while at < n:
        first, count, squares = at, 0, 0.0
        # From each row a jump to its last neighbor, which passes one level; a row without a later one ends the part.
        while last[at] > at:
            squares += float(last[at] - at) ** 2
            at, count = int(last[at]), count + 1
        at += 1
        width = (squares / max(count, 1)) ** 0.5
        parts, depth = parts + 1, max(depth, count)
        cubes, strips = cubes + width**3, strips + width * (at - first)
    return Levels(parts, depth, cubes, strips)


def filter_work(levels: Levels, entries: int, columns: int) -> float:
    """Return the nanoseconds of the filter on a block of `columns` vectors."""
    products = PRODUCTS[0] + PRODUCTS[1] * levels.depth / columns**0.5
    return ALL_PASSES + products * -(-columns // WIDTH) * entries * ENTRY


def pass_work(entries: int, columns: int) -> float:
    """Return the nanoseconds of one pass of the filter, at most."""
    return (DEGREE + 1) * -(-columns // WIDTH) * entries * ENTRY


def factor_work(levels: Levels, n: int, entries: int, count: int) -> float:
    """Return the nanoseconds of a factor of n rows and of shift-invert Lanczos with it.

    Each component adds an eigenvalue 0, and Lanczos finds equal eigenvalues one by one.
    """
    # A separator of width w costs w^3, and the rows between them w each.
    flops = FILL_FLOPS * (levels.cubes + levels.strips) + (entries / n) ** 2 * n
    steps, basis = 30 + 2 * count + 6 * (levels.parts - 1), max(2 * count + 1, 20)
    # A column of k numbers costs k^2: of equal columns the factor has n (flops / n)^1/2 numbers.
    step = FACTOR_ENTRY * (n * flops) ** 0.5 + n * (STEP + BASIS * basis)
    return ORDER * n + FLOP * flops + steps * step


# Bytes of the search for the smoothest eigenvectors, from shapes alone: without what it compiles.

DENSE = 600
"""Rows up to which LAPACK decomposes the whole L."""
FILL = 2**30
"""Bytes of a factor at most, foreseen: those of a plane of 700,000 rows. Of rows in many dimensions it has 0.9 n^2 entries."""
GAUGES = (2_500, 5_000)
"""Rows of two neighborhoods, from whose factors the whole one's bytes are foreseen."""
NUMBER = 24
"""Bytes of a number of a factor: its value and its row, in L and in U."""


def guards(count: int) -> int:
    """Return the columns iterated in addition to `count`: a fifth, and those that fill the last slab."""
    return -(-(count + max(4, count // 5)) // WIDTH) * WIDTH - count


def basis_bytes(n: int, count: int, entries: int, room: int | None = None) -> int:
    """Return the most bytes that `smoothest` holds if it may take `room`: with its result, without L."""
    if n <= max(DENSE, 2 * count):
        return 8 * (3 * n * n + 4 * n * count)
    # Which of the two it is follows from the graph, which a plan does not know.
    factor = factor_room(n, count, entries, room)
    by_factor = factor + _lanczos_bytes(n, count, entries) if factor else 0
    return max(by_factor, filter_bytes(n, count + guards(count), entries) + 2 * 8 * n * count)


def factor_room(n: int, count: int, entries: int, room: int | None) -> int:
    """Return the bytes of `room` that Lanczos leaves to a factor, or 0 if its gauges need more."""
    most = min(whole_factor_bytes(n), FILL)
    left = most if room is None else min(most, room - _lanczos_bytes(n, count, entries))
    return left if left >= whole_factor_bytes(min(n, GAUGES[1])) else 0


def whole_factor_bytes(n: int) -> int:
    """Return the bytes of a factor without any zeros."""
    return NUMBER * n * (n + 1) // 2


def _lanczos_bytes(n: int, count: int, entries: int) -> int:
    return 24 * entries + 8 * n * (2 * max(2 * count + 1, 20) + 3 * count)


def filter_bytes(n: int, columns: int, entries: int) -> int:
    """Return a filter's bytes in one process, without the matrix: block, image, two slabs, ordered rows."""
    return 8 * n * 2 * (columns + WIDTH) + 48 * entries


def owner_bytes(own: int, columns: int, entries: int, halo: int) -> int:
    """Return an owner's bytes in a filter: block, slabs with the halo, rows sent and received, entries."""
    return 8 * (2 * own * columns + 2 * (own + halo) * WIDTH + 4 * halo * WIDTH) + 32 * entries


def most_owner_bytes(n: int, columns: int, entries: int, owners: int) -> int:
    """Return the bytes of the largest of `owners` owners, where each meets all rows of the others."""
    own = min(n, -(-n // owners) + n // GROUPS)
    return owner_bytes(own, columns, entries * own // n, n - own)


def shared_bytes(n: int, count: int, entries: int, owners: int) -> int:
    """Return the bytes of the owners' client: the block, old and new, its result, and a part that is sent."""
    return 2 * 8 * n * (count + guards(count)) + 2 * 8 * n * count + 48 * entries // owners


Array = NDArray[np.float64]
SHIFT, DEEP = 1e-4, 1000
"""Share of the mean of L's diagonal that is added to make L definite. Of a graph of more than DEEP levels it is 0.1 over their square,
below its lowest eigenvalues: far above them it hides what separates them, and Lanczos takes ten times the steps."""
TOL = 1e-8
"""Residual at which the filter's passes end."""
PASSES = 60
"""Most passes of the filter."""
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
    if n <= max(DENSE, 2 * count):
        vectors = scipy.linalg.eigh(laplacian.toarray(), subset_by_index=[0, count - 1])[1]
        return _orthonormal(laplacian, vectors, "dense")
    allowed = factor_room(n, count, entries, room)
    work, factored, found, share = np.inf, False, None, SHIFT
    if allowed:
        levels = graph_levels(laplacian)
        share = SHIFT if levels.depth <= DEEP else 0.1 / levels.depth**2
        # The work of both ways, in nanoseconds: only an estimate, so the filter may still hand over.
        work = factor_work(levels, n, entries, count)
        factored = work < filter_work(levels, entries, count + guards(count)) and _fits(laplacian, allowed)
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
    return whole_factor_bytes(laplacian.shape[0]) <= allowed or factor_bytes(laplacian) <= allowed


def factor_bytes(laplacian: sparse.csr_array, gauges: tuple[int, int] | None = None) -> float:
    """Return the bytes foreseen of L + shift's factors, by the growth that two neighborhoods, of `gauges` rows, show."""
    n, gauges = laplacian.shape[0], gauges or GAUGES
    if n <= gauges[1]:
        return whole_factor_bytes(n)
    order = breadth_first_order(
        laplacian, int(laplacian.diagonal().argmax()), directed=False, return_predecessors=False
    )
    fills = []
    for size in gauges:
        # A component that is smaller says nothing of larger ones.
        rows = order[:size] if len(order) >= size else np.arange(size)
        part = laplacian[rows][:, rows]
        fills.append(_factor(part, SHIFT * float(part.diagonal().mean())).L.nnz / size)
    # The growth of fill between two neighborhoods, extrapolated to n rows.
    power = max(0.0, float(np.log(fills[1] / fills[0]) / np.log(gauges[1] / gauges[0])))
    return NUMBER * n * fills[1] * (n / gauges[1]) ** power


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
    """Return the basis to `tol`, or as near as PASSES come; None where a factor would be done sooner.

    work: the factor's, in nanoseconds; allowed: bytes that it may take.
    """
    norm, columns = _norm(laplacian), count + guards(count)
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
