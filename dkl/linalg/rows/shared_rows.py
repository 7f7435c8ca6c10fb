"""Rows of tall arrays (n, k) that owners share: sums, halos, and products with sparse matrices.

An owner has a range of rows of every tall array and all of what is small. It runs the same program as the others: each sum over the rows is
an exchange with them, after which all have the same number, and so decide alike. An array that is multiplied by a sparse matrix has
room for the others' rows that the matrix' entries meet, the halo, which is filled before the product.

Rows are cut into groups by n alone, an owner has whole groups, and their sums are added along a fixed tree (tree_sum.py): the same bits
come out for any division among owners, or none.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy import sparse

from dkl.linalg.late_functions import njit
from dkl.linalg.rows.tree_sum import Partials, absorb, row_groups, total
from dkl.linalg.slabs.slab_ops import WIDTH, empty_aligned, lanes_of, product_rows
from dkl.resources import one_blas_thread

Array = NDArray[np.float64]
Groups = Sequence[tuple[int, int]]
ROOTS = 4
"""Times that a block is multiplied by the root of its Gram matrix at most; two are enough but for columns that are nearly dependent."""
ORTHONORMAL = 1e-13
"""Largest entry of |X'X - I| with which columns count as orthonormal."""


def inner_product(x: Array, y: Array) -> float:
    """Return x'y of vectors, in bits that do not depend on their addresses.

    BLAS' may: OpenBLAS' kernels for processors without AVX begin where a pair of numbers is aligned, and an owner's rows lie elsewhere
    than the same rows of the whole.
    """
    return float((x * y).sum())


class Others(Protocol):
    """The other owners of the rows, as one of them sees them."""

    def __call__(self, step: int, part: object) -> list[Any]:
        """Give `part` for this step; return the parts of all owners, this one included, in their order."""

    def swap(self, step: int, parts: dict[int, Array]) -> dict[int, Array]:
        """Give each owner named its part, and return what these have given."""


class SingleOwner:
    """No others."""

    def __call__(self, step: int, part: object) -> list[Any]:
        """Return [part] alone."""
        return [part]

    def swap(self, step: int, parts: dict[int, Array]) -> dict[int, Array]:
        """Return {}: a single owner has no peers."""
        return {}


class SharedRows:
    """An owner's rows [lo, hi) out of n, on some threads; all owners call the same methods in the same order.

    bounds: of all owners, whole groups each; groups: (first row, last row + 1) of all of them, by default `row_groups(n)`. Arrays have
    the own rows first; the attribute `groups` holds (number, first row, last row + 1), numbered from the first own one.
    """

    def __init__(
        self,
        bounds: tuple[int, ...],
        index: int = 0,
        others: Others | None = None,
        *,
        threads: int = 1,
        groups: Groups | None = None,
    ) -> None:
        self.bounds, self.index, self.n = bounds, index, bounds[-1]
        self.lo, self.hi = bounds[index], bounds[index + 1]
        self.groups = [
            (number, lo - self.lo, hi - self.lo)
            for number, (lo, hi) in enumerate(groups or row_groups(self.n))
            if self.lo <= lo < self.hi
        ]
        self.threads = threads
        self._pool = ThreadPoolExecutor(threads) if threads > 1 else None
        self._others, self._step = others or SingleOwner(), [0]  # the count is shared with what `some` returns

    @classmethod
    def alone(cls, n: int, threads: int = 1, groups: Groups | None = None) -> SharedRows:
        """Return all n rows, of one owner."""
        return cls((0, n), threads=threads, groups=groups)

    def close(self) -> None:
        """End the threads, without waiting; harmless if repeated."""
        if self._pool is not None:
            self._pool.shutdown(wait=False)

    @property
    def n_own(self) -> int:
        """Return the number of own rows."""
        return self.hi - self.lo

    @property
    def is_alone(self) -> bool:
        """Return whether there are no other owners."""
        return len(self.bounds) == 2

    def some(self, chosen: NDArray[np.bool_]) -> SharedRows:
        """Return the same owners with only the `chosen` own rows (n_own,), in arrays of these alone."""
        # Groups keep their numbers, so that sums run over the same tree as those of all rows.
        kept, before = copy.copy(self), np.concatenate([[0], np.cumsum(chosen)])
        kept.groups = [(number, int(before[lo]), int(before[hi])) for number, lo, hi in self.groups]
        return kept

    # -- on threads ---------------------------------------------------------------------------------------------------

    def each(self, function: Callable[[int, int], object], count: int) -> None:
        """Call function(lo, hi) over ranges of [0, count), one a thread: of a function that sums nothing."""
        if self._pool is None or count == 0:
            function(0, count)
            return
        cuts = [(k * count // self.threads, (k + 1) * count // self.threads) for k in range(self.threads)]
        list(self._pool.map(lambda cut: function(*cut), cuts))

    def each_group(self, function: Callable[[int, int], object]) -> list[Any]:
        """Return [function(lo, hi)] over the groups here."""
        if self._pool is None or len(self.groups) == 1:
            return [function(lo, hi) for _, lo, hi in self.groups]
        return list(self._pool.map(lambda group: function(group[1], group[2]), self.groups))

    # -- over all owners ----------------------------------------------------------------------------------------------

    def sum(self, function: Callable[[int, int], object]) -> Array:
        """Return the sum of function(lo, hi) over all owners' groups of rows; of numbers, tuples or arrays."""
        partials: Partials = {}
        # Each group is a leaf of the tree, so the sum does not depend on who has it.
        for (number, _, _), found in zip(self.groups, self.each_group(function), strict=True):
            # In double, whatever the function returns.
            absorb(partials, (0, number), np.array(found, float))
        return total(self._others(self._next(), partials))

    def largest(self, values: object) -> Array:
        """Return the largest of each of these numbers over all owners."""
        found: Array = np.max([np.asarray(part) for part in self._others(self._next(), np.asarray(values))], axis=0)
        return found

    def swap(self, parts: dict[int, Array]) -> dict[int, Array]:
        """Give each owner named its part, and return what these have given."""
        return self._others.swap(self._next(), parts)

    def _next(self) -> int:
        """Return the number of the next exchange, the same on all owners."""
        self._step[0] += 1
        return self._step[0]

    # -- tall arrays --------------------------------------------------------------------------------------------------

    def dot(self, x: Array, y: Array) -> float:
        """Return x'y of vectors."""
        return float(self.sum(lambda lo, hi: inner_product(x[lo:hi], y[lo:hi])))

    def gram(self, x: Array, y: Array) -> Array:
        """Return X'Y, over groups of rows: products of equal shapes have equal bits."""
        # BLAS on several threads cuts a product by their number, which changes its bits.
        with one_blas_thread():
            return self.sum(lambda lo, hi: x[lo:hi].T @ y[lo:hi])

    def times(self, x: Array, matrix: Array, out: Array | None = None) -> Array:
        """Return X M (n_own, k) for a small M, group by group; `out` may be x itself where M is square."""
        out = np.empty((self._rows, matrix.shape[1])) if out is None else out

        def one(lo: int, hi: int) -> None:
            out[lo:hi] = x[lo:hi] @ matrix

        with one_blas_thread():
            self.each_group(one)
        return out

    def random(self, seed: int, *width: int) -> Array:
        """Return normal deviates (n_own, *width), a stream a group: the same for any owner."""
        parts = [
            np.random.default_rng((seed, number)).standard_normal((hi - lo, *width)) for number, lo, hi in self.groups
        ]
        return np.concatenate(parts)

    def orthonormalize(self, block: Array) -> None:
        """Make the columns of a block orthonormal, in place, by the inverse root of their Gram matrix.

        Repeated until that is I (Stathopoulos & Wu, SIAM Journal on Scientific Computing 23, 2002).
        """
        for _ in range(ROOTS):
            # The Gram matrix is the only thing that owners exchange here: k x k numbers.
            gram = self.gram(block, block)
            if np.abs(gram - np.eye(len(gram))).max() <= ORTHONORMAL:
                return
            # Columns of length 1 first, so that their eigenvalues differ by dependence alone.
            scale = 1 / np.sqrt(np.maximum(np.diag(gram), np.finfo(float).tiny))
            values, vectors = np.linalg.eigh(gram * scale[:, None] * scale)
            # Directions that rounding hides are lifted above it; the next time they are orthogonal to the rest.
            values = np.maximum(values, len(gram) * np.finfo(float).eps * values[-1])
            self.times(block, scale[:, None] * vectors / np.sqrt(values), block)

    @property
    def _rows(self) -> int:
        """Return the number of rows of the arrays here."""
        return self.groups[-1][2]


class Halo:
    """Rows of others that entries of the own rows meet, kept owner by owner behind the own ones.

    row_of, columns: of the entries of the own rows of symmetric patterns, row_of from the first own row on, columns of all n.
    places (n_own,): where the own rows are in arrays, `begin` of which are own; None for the rows as they come.
    What another owner needs of these rows follows from symmetry: those that have entries in its range.
    """

    def __init__(
        self,
        rows: SharedRows,
        row_of: NDArray,
        columns: NDArray,
        places: NDArray | None = None,
        begin: int | None = None,
    ) -> None:
        self.rows, self.begin = rows, rows.n_own if begin is None else begin
        self.places = places
        self.departures: dict[int, NDArray] = {}
        self.arrivals: dict[int, slice] = {}
        self.met: NDArray = np.zeros(0, np.int64)
        if rows.is_alone:
            return
        # Entries in one's own range need nothing from others.
        outside = (columns < rows.lo) | (columns >= rows.hi)
        row_of, columns = row_of[outside], columns[outside]
        # Each row of others once, sorted by number and so by owner.
        self.met = np.unique(columns)
        owner_of = np.searchsorted(rows.bounds, columns, side="right") - 1
        cuts = self.begin + np.searchsorted(self.met, rows.bounds)
        for owner in np.unique(owner_of).tolist():
            # By symmetry of the pattern the rows that others need of this owner are those that meet their ranges.
            leaving = np.unique(row_of[owner_of == owner])
            self.departures[owner] = leaving if places is None else places[leaving]
            self.arrivals[owner] = slice(int(cuts[owner]), int(cuts[owner + 1]))

    @property
    def size(self) -> int:
        """Return the number of rows of others."""
        return len(self.met)

    def numbers(self, columns: NDArray) -> NDArray[np.int32]:
        """Return where rows of the numbers `columns` are here, own ones or met ones."""
        if self.rows.is_alone and self.places is None:
            return columns.astype(np.int32, copy=False)
        outside = (columns < self.rows.lo) | (columns >= self.rows.hi)
        own = np.where(outside, 0, columns - self.rows.lo)
        here = own if self.places is None else self.places[own]
        return np.where(outside, self.begin + np.searchsorted(self.met, columns), here).astype(np.int32)

    def fill(self, x: NDArray) -> NDArray:
        """Fill in the others' rows of now in x (begin + size, ...), and return it."""
        if not self.rows.is_alone:
            # Not x[r], which takes five times as long for rows of some columns.
            leaving = {o: np.take(x, r, axis=0) for o, r in self.departures.items()}
            for owner, part in self.rows.swap(leaving).items():
                x[self.arrivals[owner]] = part
        return x


# -- sparse matrices by rows -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SharedMatrix:
    """Own rows of M, a CSR matrix (n_own, n), and its columns as `halo` numbers them, in entry order."""

    own: sparse.csr_array
    indptr: NDArray[np.int64]
    indices: NDArray[np.int32]
    rows: SharedRows
    halo: Halo

    @classmethod
    def alone(cls, matrix: sparse.csr_array, threads: int = 1) -> SharedMatrix:
        """Make the matrix of a single owner, to be closed if it has several threads."""
        return cls.part(sparse.csr_array(matrix), SharedRows.alone(int(matrix.shape[0]), threads))

    @classmethod
    def part(cls, own: sparse.csr_array, rows: SharedRows, halo: Halo | None = None) -> SharedMatrix:
        """Make the matrix of the own rows (n_own, n); halo: one that holds at least what their entries meet."""
        halo = halo or Halo(rows, row_numbers(own), own.indices)
        return cls(own, own.indptr.astype(np.int64), halo.numbers(own.indices), rows, halo)

    @property
    def n(self) -> int:
        """Return the number of rows of all owners."""
        return self.rows.n

    @property
    def data(self) -> Array:
        """Return the entries."""
        return np.ascontiguousarray(self.own.data, dtype=float)

    def diagonal(self) -> Array:
        """Return the own diagonal (n_own,)."""
        return np.asarray(self.own.diagonal(self.rows.lo), float)

    def plus(self, diagonal: Array) -> SharedMatrix:
        """Return M + diag(diagonal (n_own,))."""
        added = sparse.diags_array(diagonal, offsets=self.rows.lo, shape=self.own.shape, format="csr")
        return SharedMatrix.part(sparse.csr_array(self.own + added), self.rows, self.halo)

    def scaled(self, scale: Array) -> SharedMatrix:
        """Return diag(scale) M diag(scale), of the same pattern."""
        whole = np.empty((self.rows.n_own + self.halo.size, 1))
        whole[: self.rows.n_own, 0] = scale
        self.halo.fill(whole)
        data = self.data * whole[self.indices, 0]
        data *= np.repeat(scale, np.diff(self.indptr))
        return replace(self, own=sparse.csr_array((data, self.own.indices, self.own.indptr), shape=self.own.shape))

    def norm(self) -> float:
        """Return max_i sum_j |M_ij|."""
        sums = np.bincount(row_numbers(self.own), np.abs(self.data), 1)
        return float(self.rows.largest(sums.max()))

    def product(self, x: Array) -> Array:
        """Return M X (n_own, k), WIDTH columns at a time."""
        n, k = x.shape
        out, lanes = np.empty((n, k)), lanes_of(WIDTH)
        slab, image = (self.slab(np.float64) for _ in range(2))
        for lo in range(0, k, WIDTH):
            width = min(WIDTH, k - lo)
            # The last slab is filled up with zeros: loops are compiled for one width.
            slab[:n, :width], slab[:n, width:] = x[:, lo : lo + width], 0.0
            self.halo.fill(slab)
            known = self.indptr, self.indices, self.data, slab, image, lanes
            self.rows.each(lambda a, b, known=known: product_rows(a, b, *known), n)  # type: ignore[misc]
            out[:, lo : lo + width] = image[:n, :width]
        return out

    def times(self, x: Array, out: Array, off_diagonal: float = 0.0, before: Array | None = None) -> None:
        """Compute out <- M x - off_diagonal before, vectors with room for the halo, of which x's is filled."""
        self.halo.fill(x)
        known = self.indptr, self.indices, self.data, x, x if before is None else before, off_diagonal, out
        self.rows.each(lambda lo, hi: vector_rows(lo, hi, *known), self.rows.n_own)

    def slab(self, dtype: DTypeLike) -> NDArray:
        """Return zeros (n_own + halo, WIDTH); uninitialized memory could hold a signaling NaN."""
        out = empty_aligned((self.rows.n_own + self.halo.size, WIDTH), dtype)
        out[...] = 0.0
        return out


def row_numbers(own: sparse.csr_array) -> NDArray[np.int32]:
    """Return the row number (nnz,) of each entry, from the first row of the matrix on."""
    return np.repeat(np.arange(own.shape[0], dtype=np.int32), np.diff(own.indptr))


@njit(nogil=True, cache=True, fastmath={"contract", "reassoc"}, error_model="numpy")
def vector_rows(lo, hi, indptr, indices, data, x, before, off_diagonal, out):  # type: ignore[no-untyped-def]
    """Compute out = M x - off_diagonal before in the rows [lo, hi), for M in CSR."""
    for i in range(lo, hi):
        total = 0.0
        for k in range(indptr[i], indptr[i + 1]):
            total += data[k] * x[indices[k]]
        out[i] = total - off_diagonal * before[i]
