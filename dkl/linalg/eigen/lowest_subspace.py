"""Lowest eigenpairs of a sparse symmetric matrix, many and close, by filtered subspace iteration.

A Chebyshev polynomial of the matrix that is small on [cut, top], the unwanted part of the spectrum, and grows like
exp(2 degree sqrt((cut - theta) / top)) below, is applied to a block of vectors; Rayleigh-Ritz on what comes out gives the
next cut (Zhou, Saad, Tiago & Chelikowsky, Journal of Computational Physics 219, 2006). Lanczos resolves eigenvalues one by
one and needs thousands of steps where some dozens lie next to 0; here they only have to lie below the cut together.

The filter may run in single precision, Rayleigh-Ritz never does: what a Ritz pair is worth is computed from the pair itself.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy import sparse
from scipy.linalg import eigh_tridiagonal

from dkl.linalg.late_functions import njit
from dkl.linalg.rows.shared_rows import Halo, Others, SharedMatrix, SharedRows, SingleOwner, inner_product
from dkl.linalg.rows.tree_sum import OrderedRows, band_order, put_together, rows_in_order
from dkl.linalg.slabs.slab_ops import WIDTH, add_sparse_row, combine_rows, empty_aligned, lanes_of
from dkl.resources import one_blas_thread

Array = NDArray[np.float64]
DEGREE, LEAST_DEGREE = 50, 8
"""Bounds on the filter's degree in a pass."""
FIRST_CUT, FIRST_DEGREE = 0.1, 20
"""Cut, as a share of the spectrum's top, and degree of the first filter, which knows no Ritz values. A random block is a mixture of all
that grows, so that what grows e^16 times as much as the rest would be all that is left of it in single precision."""
MOST_GROWTH = 14.0
"""log of what a filter may make of the lowest Ritz vector: in single precision the others must not drown in its rounding."""
LEAST_CUT, MOST_CUT = 1e-4, 0.9
"""Bounds on the cut, as shares of the top: below is wanted whatever the block can hold, above never."""
FRESH_CUT = 5e-3
"""The least cut of a block that was found for another matrix: where that one was lifted, all of its values are next to 0."""
RESCALE = 10
"""Steps of the recurrence after which its columns are scaled, as they grow exponentially."""
TOP_STEPS = 20
"""Steps of Lanczos' method for the top of the spectrum."""
LEAST_TOP = 1e-150
"""Least top, for a matrix that is 0: its inverse is finite."""


@dataclass(frozen=True)
class RitzBlock:
    """Ritz pairs of S: S Q = Q diag(values) + remainder, Q'Q = I and Q' remainder = 0, to rounding.

    values   (k,) ascending
    vectors, remainder   Q and what is left, the own rows (n_own, k)
    beyond   the lowest Ritz value of the guards, which were iterated with the others but are left out: about where the rest of
             the spectrum begins
    """

    values: Array
    vectors: Array
    remainder: Array
    beyond: float


def lowest_subspaces(
    matrix: SharedMatrix,
    start: Array,
    count: int,
    passes: int,
    dtype: DTypeLike = np.float64,
    known: Array | None = None,
) -> Generator[RitzBlock, None, None]:
    """Yield ever better lowest `count` Ritz pairs of `matrix` (n, n), after each of `passes` passes.

    A pass takes DEGREE block products or less.

    start   (n_own, m), m > count, of full rank; those beyond `count` are guards, which make the others converge
    dtype   of the filter
    known   ascending Ritz values of the first columns, for a matrix nearby; None: they are random
    """
    rows, top = matrix.rows, spectrum_top(matrix)
    block, cut, degree = start, FIRST_CUT * top, FIRST_DEGREE
    if known is not None:
        cut, degree = next_filter(known, top, FRESH_CUT)
    del start  # a block of memory
    for _ in range(passes):
        block = filtered(matrix, block, cut, top, degree, dtype)
        rows.orthonormalize(block)
        # Rayleigh-Ritz is in double precision whatever the filter was: a pair's worth is computed from itself.
        image = matrix.product(block)
        projected = rows.gram(block, image)
        values, turn = np.linalg.eigh(0.5 * (projected + projected.T))
        for one in (block, image):
            rows.times(one, turn, one)
        # Guards are iterated but not handed out: the last vectors of a block converge last.
        kept, lowest = block[:, :count], values[:count]
        yield RitzBlock(lowest, kept, image[:, :count] - kept * lowest, float(values[count]))
        cut, degree = next_filter(values, top)


def next_filter(values: Array, top: float, least: float = LEAST_CUT) -> tuple[float, int]:
    """Return (cut, degree) of the filter that continues from Ritz values, its cut >= `least` of the top."""
    # Never below `least`, as the lowest eigenvalues may be 0, and never near the top.
    cut = min(max(float(values[-1]), least * top), MOST_CUT * top)
    growth = np.arccosh(1 + 2 * max(cut - float(values[0]), 0.0) / (top - cut))
    # The degree by the growth that the filter makes of the lowest vector, bounded by what single precision holds.
    return cut, int(np.clip(MOST_GROWTH / max(growth, 1e-3), LEAST_DEGREE, DEGREE))


def filtered(matrix: SharedMatrix, block: Array, cut: float, top: float, degree: int, dtype: DTypeLike) -> Array:
    """Return T_degree(S mapped from [cut, top] to [-1, 1]) block (n_own, m), columns scaled to length 1."""
    rows, (n, count) = matrix.rows, block.shape
    center, half = 0.5 * (top + cut), 0.5 * (top - cut)
    out, lanes = np.empty((n, count)), lanes_of(WIDTH)
    now, before = matrix.slab(dtype), matrix.slab(dtype)
    real = now.dtype.type
    # Data of 2 M in the filter's dtype: a mixed product would be computed in double.
    known = matrix.indptr, matrix.indices, (matrix.data * (2 / half)).astype(dtype), real(2 * center / half)

    def step() -> None:
        """Compute now, before <- 2 M now - before, now, M the matrix mapped."""
        nonlocal now, before
        matrix.halo.fill(now)
        rows.each(lambda lo, hi: recurrence(lo, hi, *known, now, before, lanes), n)
        now, before = before, now

    for lo in range(0, count, WIDTH):
        width = min(WIDTH, count - lo)
        # Columns beyond the block are zeros, as all slabs have one width.
        now[:n, :width], now[:n, width:], before[:] = block[:, lo : lo + width], 0.0, 0.0
        step()
        now *= real(0.5)
        for k in range(2, degree + 1):
            step()
            # Columns grow exponentially; `before` and `now` are scaled alike, so the recurrence is unchanged.
            if k % RESCALE == 0:
                size = np.maximum(rows.largest(np.abs(now[:n]).max(axis=0)), np.finfo(now.dtype).tiny)
                before /= size
                now /= size
        out[:, lo : lo + width] = now[:n, :width]
    # Length 1, so that the Gram matrix of the block has no spread by length alone.
    out /= np.sqrt(rows.sum(lambda lo, hi: np.einsum("ij,ij->j", out[lo:hi], out[lo:hi])))
    return out


@njit(nogil=True, cache=True, fastmath={"contract", "reassoc"}, error_model="numpy")
def recurrence(lo, hi, indptr, indices, data, shift, now, before, lanes):  # type: ignore[no-untyped-def]
    """Compute before <- (M - shift) now - before in the rows [lo, hi), a step of Chebyshev's recurrence; M in CSR, blocks (n, w)."""
    for i in range(lo, hi):
        combine_rows((-1.0, -shift), (before, now), (i, i), before, i, lanes)
        add_sparse_row(indices, data, indptr[i], indptr[i + 1], now, before, i, lanes)


def spectrum_top(matrix: SharedMatrix | sparse.csr_array) -> float:
    """Return a little more than the largest eigenvalue, by TOP_STEPS of Lanczos: Ritz value and residual."""
    shared = matrix if isinstance(matrix, SharedMatrix) else SharedMatrix.alone(matrix)
    lanczos = Lanczos(shared, shared.rows.random(0))
    for _ in range(min(TOP_STEPS, shared.n)):
        if not lanczos.step():
            break
    # Two percent above the Ritz value and its residual: the filter must not amplify the top.
    return max(1.02 * sum(lanczos.end(-1)), LEAST_TOP)


# Lanczos' three-term recurrence for a shared matrix, without reorthogonalization.
#
# What rounding costs is copies of Ritz values that were found, none beyond the spectrum (Paige, Linear Algebra and its
# Applications 34, 1980).


class Lanczos:
    """Steps from a start (n_own,), outside the range of `outside` (n_own, k), orthonormal columns; `diagonal` and `off` are T's."""

    def __init__(self, matrix: SharedMatrix, start: Array, outside: Array | None = None) -> None:
        self.matrix, self.n, rows = matrix, matrix.rows.n_own, matrix.rows
        self.q = np.zeros((self.n, 0)) if outside is None else np.ascontiguousarray(outside)
        room = self.n + matrix.halo.size
        self.vector, self.before, self.image = np.zeros(room), np.zeros(room), np.zeros(room)
        with one_blas_thread():
            self.vector[: self.n] = start - self._combined(rows.gram(self.q, start))
            self.vector[: self.n] /= np.sqrt(rows.dot(self.vector, self.vector))
        self.diagonal: list[float] = []
        self.off: list[float] = []

    def step(self) -> bool:
        """Do a step; return False if the vectors found so far span an invariant subspace."""
        rows, n, off_diagonal = self.matrix.rows, self.n, self.off[-1] if self.off else 0.0
        with one_blas_thread():
            self.matrix.times(self.vector, self.image, off_diagonal, self.before)
            alpha, *inside = rows.sum(self._products)
            self.diagonal.append(float(alpha))
            # With what the vector itself has of q: what rounding leaves of that would grow from step to step.
            of_image, of_vector = np.split(np.array(inside), 2)
            self.image[:n] -= alpha * self.vector[:n] + self._combined(of_image - alpha * of_vector)
            self.off.append(float(np.sqrt(rows.dot(self.image, self.image))))
        if self.off[-1] <= 1e-14 * float(np.abs(self.diagonal).max()):
            return False
        self.image[:n] /= self.off[-1]
        self.before, self.vector, self.image = self.vector, self.image, self.before
        return True

    def end(self, which: int) -> tuple[float, float]:
        """Return (Ritz value, its residual) at one end: which = 0 for the lowest, -1 for the highest."""
        at = which % len(self.diagonal)
        values, vectors = eigh_tridiagonal(self.diagonal, self.off[:-1], select="i", select_range=(at, at))
        return float(values[0]), abs(self.off[-1] * float(vectors[-1, 0]))

    def _products(self, lo: int, hi: int) -> Array:
        """Return [x'Mx, q'Mx, q'x] of some rows: one sum for all."""
        q, x, image = self.q[lo:hi], self.vector[lo:hi], self.image[lo:hi]
        return np.concatenate([[inner_product(x, image)], q.T @ image, q.T @ x])

    def _combined(self, weights: Array) -> Array:
        """Return q weights (n_own,)."""
        return self.matrix.rows.times(self.q, weights[:, None])[:, 0]


# A lower bound on a sparse symmetric matrix on the complement of a few vectors, by Lanczos' method.

LEAST_STEPS, MOST_STEPS, LOOK = 80, 2000, 20
"""Steps before the first look at the Ritz value, at most, and between looks."""
CONVERGED = 0.5
"""Share of the Ritz value's size: with a smaller residual it is as good as an eigenvalue."""


def lowest_outside(matrix: SharedMatrix, q: Array, seed: int) -> float:
    """Return theta - |residual| for the least Ritz value theta of S outside the range of q, to a factor of 2.

    q (n_own, k), q'q = I; the values are those of P S P, P = I - q q'.
    """
    lanczos, most = Lanczos(matrix, matrix.rows.random(seed), q), min(MOST_STEPS, matrix.n - q.shape[1])
    low, residual = -np.inf, np.inf
    for step in range(1, most + 1):
        is_last = not lanczos.step() or step == most
        if is_last or (step >= LEAST_STEPS and step % LOOK == 0):
            low, residual = lanczos.end(0)
            if is_last or residual <= CONVERGED * abs(low):
                break
    return low - residual


# -- for several owners ------------------------------------------------------------------------------------------------
# Lowest eigenvectors of a sparse symmetric matrix by filtered subspaces, for one owner of some rows.
# The method is `lowest_subspace`'s, with two changes for owners that hold a part of the rows each. Before every product an owner
# gets the rows of the block that its entries meet in others' ranges, its halo, and no more. The block is made orthonormal by
# the square root of its Gram matrix, twice: such k x k sums over the rows are all that owners have to agree on (shared_rows.py). The order
# of a row's entries is that of the matrix, so that the same bits come out for any division among owners, or none.


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
                # 2 M now - before takes the place of `before`, which nothing needs any more.
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
