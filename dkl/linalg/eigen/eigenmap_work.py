"""Work of both ways to the smoothest eigenvectors of a large graph, estimated from its breadth-first levels.

A factor's fill grows with the graph's separators, and about as wide are its levels; the filter's products grow with the root of what the
spectrum spans beyond the wanted end, and so with the number of levels. A level is a few rows of a chain and half of all rows in ten
dimensions. Both estimates take milliseconds, where a factor of a part of the graph, to see its fill, can take more than the filter.

Constants are nanoseconds measured on one core of an AMD EPYC, over chains, circles, planes, cubes, Gaussians in 10 dimensions and
digits of 1,000 to 100,000 rows (benchmarks/system/spectral.md): fixed numbers, so that the choice, and with it the bytes of results, is
the same on any machine.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import sparse

from dkl.linalg.eigen.lowest_subspace import DEGREE
from dkl.linalg.rows.tree_sum import GROUPS, band_order
from dkl.linalg.slabs.slab_ops import WIDTH

PRODUCTS = (60.0, 16.0)
"""Products with the matrix to a residual of 1e-8: at least, and a level over the root of the columns. At most twice off but for chains,
where it is too many."""
PASSES = 5e6
"""Nanoseconds that its passes take of any graph, however small."""
ENTRY = 3.5
"""An entry of the matrix times a slab's row."""
ORDER, FLOP = 4000.0, 0.23
"""A row's place in the elimination, and a product of two numbers in it."""
FILL_FLOPS = 4.0
"""Products by the cube of a part's width, and by its rows times its width: between 1 and 7 of them."""
FACTOR_ENTRY, STEP, BASIS = 2.5, 60.0, 1.0
"""Nanoseconds of a step of Lanczos: for a number of the factor, a row, a row's number in one vector of Lanczos' basis."""


@dataclass(frozen=True)
class Levels:
    """Breadth-first levels of a graph: parts (its components), depth (levels of the deepest part), and each part's root mean square
    width w: `cubes` the sum of w^3, `strips` of w times the part's rows."""

    parts: int
    depth: int
    cubes: float
    strips: float


def graph_levels(matrix: sparse.csr_array) -> Levels:
    """Return the levels of a symmetric matrix (n, n), from its reverse Cuthill-McKee order: a row's last neighbor is about a level away."""
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
    return PASSES + products * -(-columns // WIDTH) * entries * ENTRY


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
    """Return the bytes of the owners' client: the block, old and new, what comes of it, a part it sends."""
    return 2 * 8 * n * (count + guards(count)) + 2 * 8 * n * count + 48 * entries // owners
