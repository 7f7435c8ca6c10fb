"""The lowest eigenvectors of a sparse symmetric matrix by filtered subspaces, for one owner of a range of its rows.

The method is `lowest_subspace`'s, with two changes for owners that hold a part of the rows each. Before every product an owner
gets the rows of the block that its entries meet in others' ranges, its halo, and no more. The block is made orthonormal by
the square root of its Gram matrix, twice (Stathopoulos & Wu, SIAM Journal on Scientific Computing 23, 2002): such k x k sums over the
rows are all that owners have to agree on.

Rows are cut into groups by n alone, an owner has whole groups, and their sums are added along a fixed tree; the order of a row's
entries is that of the matrix. So the same bits come out whoever owns what, and of an owner that is alone.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy import sparse

from dkl.linalg.lanes import add_sparse_row, combine_rows, lanes_of
from dkl.linalg.lowest_subspace import FIRST_CUT, FIRST_DEGREE, WIDTH, next_filter, spectrum_top
from dkl.linalg.ordered_rows import Rows, band_order, put_together, row_groups, rows_in_order
from dkl.linalg.slabs import empty_aligned
from dkl.linalg.tree_sum import Partials, absorb, total

Array = NDArray[np.float64]
ROOTS = 4
"""Times that a block is multiplied by the root of its Gram matrix at most; two are enough but for columns that are nearly dependent."""
ORTHONORMAL = 1e-13
"""|X'X - I| that is left."""


class Others(Protocol):
    """The other owners of the rows, as one of them sees them."""

    def __call__(self, step: int, part: Partials) -> list[Partials]:
        """What all owners, this one included, have given for this step, in their order."""

    def swap(self, step: int, parts: dict[int, Array]) -> dict[int, Array]:
        """Gives each owner named its part, and returns what these have given."""


class Alone:
    """No others."""

    def __call__(self, step: int, part: Partials) -> list[Partials]:
        """The part itself."""
        return [part]

    def swap(self, step: int, parts: dict[int, Array]) -> dict[int, Array]:
        """Nothing: there is nobody."""
        return {}


@dataclass(frozen=True)
class Ritz:
    """After a pass: the lowest values (count,), and |S q - theta q| of each (count,)."""

    values: Array
    residuals: Array


@dataclass(frozen=True)
class Standing:
    """Where passes stand between two of them: the block (n, k), rows in the owners' order, and (cut, degree) of the next filter."""

    block: Array = field(repr=False)
    filter: tuple[float, int]


class Passes(Protocol):
    """All rows of a matrix and a block, wherever they are."""

    def advance(self, count: int) -> Ritz:
        """One pass over all of them."""

    def vectors(self, count: int) -> Array:
        """(n, count): the first columns of the block, rows in the matrix' own order."""

    def close(self) -> None:
        """Let go of them; harmless if repeated."""


class PassesHere:
    """All rows in this process."""

    def __init__(self, matrix: sparse.csr_array, k: int) -> None:
        self.order = band_order(matrix)
        rows = rows_in_order(matrix, self.order, (0, len(self.order)), 0)
        self.rows = FilteredRows(rows, k, spectrum_top(matrix), Alone())

    def advance(self, count: int) -> Ritz:
        """One pass."""
        return self.rows.advance(count)

    def vectors(self, count: int) -> Array:
        """(n, count) of the block."""
        return put_together([self.rows.block[:, :count]], self.order, count)

    def close(self) -> None:
        """Nothing."""


class FilteredRows:
    """One owner's rows of a symmetric matrix S (n, n) and of a block (n, k) of vectors, which begins random, or at `standing`.

    top: above the spectrum. standing: these rows of the block, which are copied, and the filter. Every method is called by all
    owners at a time; small results are the same on all of them.
    """

    def __init__(
        self, rows: Rows, k: int, top: float, others: Others, threads: int = 1, standing: Standing | None = None
    ) -> None:
        self.top, self.others, self.step = top, others, 0
        self.pool = ThreadPoolExecutor(threads) if threads > 1 else None
        self.lo, self.hi = rows.bounds[rows.index], rows.bounds[rows.index + 1]
        self.groups = [
            (number, lo - self.lo, hi - self.lo)
            for number, (lo, hi) in enumerate(row_groups(rows.bounds[-1]))
            if self.lo <= lo < self.hi
        ]
        self.indptr, self.data = rows.indptr, rows.data
        halo = self._numbered(rows)
        n = self.hi - self.lo
        self.slabs = [empty_aligned((n + halo, WIDTH), np.float64) for _ in range(2)]
        for slab in self.slabs:
            slab[:] = 0.0  # a halo is scaled before it is first filled, and what memory held may be a signalling NaN
        self.block, self.image = (empty_aligned((n, k), np.float64) for _ in range(2))
        if standing is not None:
            self.block[:], self.filter = standing.block, standing.filter
            return
        for number, lo, hi in self.groups:
            # A stream a group: whoever owns it.
            self.block[lo:hi] = np.random.default_rng((0, number)).standard_normal((hi - lo, k))
        self.filter = (FIRST_CUT * top, FIRST_DEGREE)

    def _numbered(self, rows: Rows) -> int:
        """Numbers the columns here: own rows first, then the halo, whose rows come owner by owner. Returns the halo's length.

        What another owner needs of these rows follows from symmetry: those that have entries in its range.
        """
        outside = (rows.indices < self.lo) | (rows.indices >= self.hi)
        halo = np.unique(rows.indices[outside])
        n = self.hi - self.lo
        self.indices = np.where(outside, n + np.searchsorted(halo, rows.indices), rows.indices - self.lo).astype(
            np.int32
        )
        owner_of = np.searchsorted(rows.bounds, rows.indices[outside], side="right") - 1
        row_of = np.repeat(np.arange(n, dtype=np.int32), np.diff(rows.indptr))[outside]
        cuts = np.searchsorted(halo, rows.bounds)
        self.arrivals: dict[int, slice] = {}
        self.departures: dict[int, NDArray[np.int32]] = {}
        for owner in np.unique(owner_of).tolist():
            self.arrivals[owner] = slice(n + int(cuts[owner]), n + int(cuts[owner + 1]))
            self.departures[owner] = np.unique(row_of[owner_of == owner])
        return len(halo)

    def advance(self, count: int) -> Ritz:
        """One pass: the filter, an orthonormal basis, Rayleigh-Ritz. The block is the Ritz vectors then, ascending."""
        cut, degree = self.filter
        self._filter(cut, degree)
        self._orthonormalize()
        self._each_slab(lambda x, y: self._product(x, y, self.data, 0.0), self.block, self.image)
        projected = self._sum(lambda lo, hi: self.block[lo:hi].T @ self.image[lo:hi])
        values, turn = np.linalg.eigh(0.5 * (projected + projected.T))
        self._times(turn, self.block, self.image)
        squares = self._sum(lambda lo, hi: ((self.image[lo:hi] - self.block[lo:hi] * values) ** 2).sum(axis=0))
        self.filter = next_filter(values, self.top)
        return Ritz(values[:count], np.sqrt(squares[:count]))

    def close(self) -> None:
        """End the threads, without waiting."""
        if self.pool is not None:
            self.pool.shutdown(wait=False)

    def _filter(self, cut: float, degree: int) -> None:
        """block <- T_degree(S mapped from [cut, top] to [-1, 1]) block.

        Not scaled in between: a filter grows by e^MOST_GROWTH, or at LEAST_DEGREE by e^30, which is little in double.
        """
        center, half = 0.5 * (self.top + cut), 0.5 * (self.top - cut)
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
        """target <- function(source, scratch), WIDTH columns at a time; the last slab is filled up by zeros."""
        n, k = source.shape
        for lo in range(0, k, WIDTH):
            width = min(WIDTH, k - lo)
            x, y = self.slabs
            x[:n, :width], x[:n, width:] = source[:, lo : lo + width], 0.0
            target[:, lo : lo + width] = function(x, y)[:n, :width]

    def _product(self, x: Array, y: Array, data: Array, shift: float, add: bool = False) -> Array:
        """y <- (A - shift) x, or y + (A - shift) x, on the own rows, for A with S's pattern; x's halo is filled first."""
        n = self.hi - self.lo
        for owner, part in self.others.swap(self._next(), {o: x[r] for o, r in self.departures.items()}).items():
            x[self.arrivals[owner]] = part
        if not add:
            y[:n] = 0.0
        lanes = lanes_of(WIDTH)

        def some(rows: tuple[int, int]) -> None:
            shifted_product(*rows, self.indptr, self.indices, data, shift, x, y, lanes)

        if self.pool is None:
            some((0, n))
        else:
            list(self.pool.map(some, [(lo, hi) for _, lo, hi in self.groups]))
        return y

    def _orthonormalize(self) -> None:
        """block <- block R, with R the inverse root of the block's Gram matrix, until that is I."""
        for _ in range(ROOTS):
            gram = self._sum(lambda lo, hi: self.block[lo:hi].T @ self.block[lo:hi])
            if np.abs(gram - np.eye(len(gram))).max() <= ORTHONORMAL:
                return
            scale = 1 / np.sqrt(np.maximum(np.diag(gram), np.finfo(float).tiny))
            values, vectors = np.linalg.eigh(gram * scale[:, None] * scale)
            # Directions that rounding hides are lifted above it; the next time they are orthogonal to the rest.
            values = np.maximum(values, len(gram) * np.finfo(float).eps * values[-1])
            self._times(scale[:, None] * vectors / np.sqrt(values), self.block)

    def _times(self, matrix: Array, *blocks: Array) -> None:
        """block <- block matrix (k, k) for each, group by group: equal shapes have equal bits."""
        for block in blocks:
            for _, lo, hi in self.groups:
                block[lo:hi] = block[lo:hi] @ matrix

    def _sum(self, function: Callable[[int, int], Array]) -> Array:
        """The sum over all owners' groups of function(first row, last row + 1), rows numbered from the first one here."""
        partials: Partials = {}
        for number, lo, hi in self.groups:
            absorb(partials, (0, number), function(lo, hi))
        return total(self.others(self._next(), partials))

    def _next(self) -> int:
        """The number of the next exchange, the same on all owners."""
        self.step += 1
        return self.step


@njit(nogil=True, cache=True, fastmath={"contract", "reassoc"}, error_model="numpy")
def shifted_product(lo, hi, indptr, indices, data, shift, x, y, lanes):  # type: ignore[no-untyped-def]
    """y <- y + (A - shift) x in the rows [lo, hi), for A in CSR (m, n), x (n, w) and y (m or more, w)."""
    for i in range(lo, hi):
        combine_rows((1.0, -shift), (y, x), (i, i), y, i, lanes)
        add_sparse_row(indices, data, indptr[i], indptr[i + 1], x, y, i, lanes)
