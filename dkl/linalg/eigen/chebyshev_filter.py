"""Lowest eigenvectors of a sparse symmetric matrix by filtered subspaces, for one owner of some rows.

The method is `lowest_subspace`'s, with two changes for owners that hold a part of the rows each. Before every product an owner
gets the rows of the block that its entries meet in others' ranges, its halo, and no more. The block is made orthonormal by
the square root of its Gram matrix, twice: such k x k sums over the rows are all that owners have to agree on (shared_rows.py). The order
of a row's entries is that of the matrix, so that the same bits come out for any division among owners, or none.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dkl.linalg.eigen.lowest_subspace import FIRST_CUT, FIRST_DEGREE, next_filter, spectrum_top
from dkl.linalg.late_functions import njit
from dkl.linalg.rows.shared_rows import Halo, Others, SharedRows, SingleOwner
from dkl.linalg.rows.tree_sum import OrderedRows, band_order, put_together, rows_in_order
from dkl.linalg.slabs.layout import WIDTH, empty_aligned
from dkl.linalg.slabs.simd import add_sparse_row, combine_rows, lanes_of

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Ritz:
    """After a pass: the lowest values (count,), and |S q - theta q| of each (count,)."""

    values: Array
    residuals: Array


@dataclass(frozen=True)
class Standing:
    """State between passes: block (n, k), rows in the owners' order, and the next filter (cut, degree)."""

    block: Array = field(repr=False)
    filter: tuple[float, int]


class Passes(Protocol):
    """All rows of a matrix and a block, wherever they are."""

    def advance(self, count: int) -> Ritz:
        """Do one pass over all rows; return its lowest Ritz values."""

    def vectors(self, count: int) -> Array:
        """Return the first columns (n, count) of the block, rows in the matrix' own order."""

    def close(self) -> None:
        """Release the rows; harmless if repeated."""


class PassesHere:
    """All rows in this process."""

    def __init__(self, matrix: sparse.csr_array, k: int) -> None:
        self.order = band_order(matrix)
        rows = rows_in_order(matrix, self.order, (0, len(self.order)), 0)
        self.rows = FilteredRows(rows, k, spectrum_top(matrix), SingleOwner())

    def advance(self, count: int) -> Ritz:
        """Do one pass; return its lowest Ritz values."""
        return self.rows.advance(count)

    def vectors(self, count: int) -> Array:
        """Return the first columns (n, count) of the block, rows in the matrix' order."""
        return put_together([self.rows.block[:, :count]], self.order, count)

    def close(self) -> None:
        """Do nothing: there are no threads or workers."""


class FilteredRows:
    """Rows of a symmetric matrix S (n, n) and of a block (n, k) of vectors that one owner has.

    The block starts random, or at `standing`. top: above the spectrum. standing: these rows of the block, which are copied, and the
    filter. Every method is called by all owners at a time; small results are the same on all of them.
    """

    def __init__(
        self, rows: OrderedRows, k: int, top: float, others: Others, threads: int = 1, standing: Standing | None = None
    ) -> None:
        self.top, self.rows = top, SharedRows(rows.bounds, rows.index, others, threads=threads)
        self.indptr, self.data, n = rows.indptr, rows.data, rows.n_own
        row_of = np.repeat(np.arange(n, dtype=np.int32), np.diff(rows.indptr))
        self.halo = Halo(self.rows, row_of, rows.indices)
        self.indices = self.halo.numbers(rows.indices)
        self.slabs = [empty_aligned((n + self.halo.size, WIDTH), np.float64) for _ in range(2)]
        for slab in self.slabs:
            slab[:] = 0.0  # a halo is scaled before it is first filled, and what memory held may be a signaling NaN
        self.block, self.image = (empty_aligned((n, k), np.float64) for _ in range(2))
        if standing is not None:
            self.block[:], self.filter = standing.block, standing.filter
            return
        self.block[:] = self.rows.random(0, k)
        self.filter = (FIRST_CUT * top, FIRST_DEGREE)

    def advance(self, count: int) -> Ritz:
        """Do a pass: filter, orthonormal basis, Rayleigh-Ritz; leaves the ascending Ritz vectors as block."""
        cut, degree = self.filter
        self._filter(cut, degree)
        # The filter turns columns towards each other, so a basis is made before Rayleigh-Ritz.
        self.rows.orthonormalize(self.block)
        self._each_slab(lambda x, y: self._product(x, y, self.data, 0.0), self.block, self.image)
        projected = self.rows.gram(self.block, self.image)
        values, turn = np.linalg.eigh(0.5 * (projected + projected.T))
        for block in (self.block, self.image):
            # Both are turned by the Ritz vectors: the image needs no second product with S.
            self.rows.times(block, turn, block)
        # |S q - theta q| of every vector, from the image at hand.
        squares = self.rows.sum(lambda lo, hi: ((self.image[lo:hi] - self.block[lo:hi] * values) ** 2).sum(axis=0))
        self.filter = next_filter(values, self.top)
        return Ritz(values[:count], np.sqrt(squares[:count]))

    def close(self) -> None:
        """End the threads, without waiting."""
        self.rows.close()

    def _filter(self, cut: float, degree: int) -> None:
        """Compute block <- T_degree(S mapped from [cut, top] to [-1, 1]) block.

        Not scaled in between: a filter grows by e^MOST_GROWTH, or at LEAST_DEGREE by e^30, which is little in double.
        """
        # The map from [cut, top] to [-1, 1], where a Chebyshev polynomial is small.
        center, half = 0.5 * (self.top + cut), 0.5 * (self.top - cut)
        # 2 M and its shift, as the recurrence needs them: now <- 2 M now - before.
        twice, shift = self.data * (2 / half), 2 * center / half

        def one(before: Array, now: Array) -> Array:
            self._product(before, now, twice, shift)
            now *= 0.5
            for _ in range(2, degree + 1):
                before *= -1.0
                self._product(now, before, twice, shift, add=True)
                before, now = now, before
            return now

        self._each_slab(one, self.block, self.block)

    def _each_slab(self, function: Callable[[Array, Array], Array], source: Array, target: Array) -> None:
        """Compute target <- function(source, scratch), WIDTH columns at a time; the last slab has zeros."""
        n, k = source.shape
        for lo in range(0, k, WIDTH):
            width = min(WIDTH, k - lo)
            x, y = self.slabs
            x[:n, :width], x[:n, width:] = source[:, lo : lo + width], 0.0
            target[:, lo : lo + width] = function(x, y)[:n, :width]

    def _product(self, x: Array, y: Array, data: Array, shift: float, add: bool = False) -> Array:
        """Compute y <- (A - shift) x, or y + (A - shift) x, on own rows, A of S's pattern; fills x's halo."""
        n = self.rows.n_own
        self.halo.fill(x)
        if not add:
            y[:n] = 0.0
        known = self.indptr, self.indices, data, shift, x, y, lanes_of(WIDTH)
        self.rows.each(lambda lo, hi: shifted_product(lo, hi, *known), n)
        return y


@njit(nogil=True, cache=True, fastmath={"contract", "reassoc"}, error_model="numpy")
def shifted_product(lo, hi, indptr, indices, data, shift, x, y, lanes):  # type: ignore[no-untyped-def]
    """Compute y <- y + (A - shift) x in rows [lo, hi), for A in CSR (m, n), x (n, w), y (m or more, w)."""
    for i in range(lo, hi):
        combine_rows((1.0, -shift), (y, x), (i, i), y, i, lanes)
        add_sparse_row(indices, data, indptr[i], indptr[i + 1], x, y, i, lanes)
