"""Lowest eigenpairs of a sparse symmetric matrix, many and close, by filtered subspace iteration.

A Chebyshev polynomial of the matrix that is small on [cut, top], the unwanted part of the spectrum, and grows like
exp(2 degree sqrt((cut - theta) / top)) below, is applied to a block of vectors; Rayleigh-Ritz on what comes out gives the
next cut (Zhou, Saad, Tiago & Chelikowsky, Journal of Computational Physics 219, 2006). Lanczos resolves eigenvalues one by
one and needs thousands of steps where some dozens lie next to 0; here they only have to lie below the cut together.

The filter may run in single precision, Rayleigh-Ritz never does: what a Ritz pair is worth is computed from the pair itself.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy import sparse
from scipy.linalg import eigh_tridiagonal

from dkl.linalg.late_functions import njit
from dkl.linalg.one_blas_thread import one_blas_thread
from dkl.linalg.rows.shared_matrix import SharedMatrix
from dkl.linalg.slabs.layout import WIDTH
from dkl.linalg.slabs.simd import add_sparse_row, combine_rows, lanes_of

Array = NDArray[np.float64]
DEGREE, LEAST_DEGREE = 50, 8
FIRST_CUT, FIRST_DEGREE = 0.1, 20
"""The filter that knows no Ritz values yet: where it begins, of the top of the spectrum. A random block is a mixture of all that
grows, so that what grows e^16 times as much as the rest would be all that is left of it in single precision."""
MOST_GROWTH = 14.0
"""log of what a filter may make of the lowest Ritz vector: in single precision the others must not drown in its rounding."""
LEAST_CUT, MOST_CUT = 1e-4, 0.9
"""Bounds on the cut, as shares of the top: below is wanted whatever the block can hold, above never."""
FRESH_CUT = 5e-3
"""The least cut of a block that was found for another matrix: where that one was lifted, all of its values are next to 0."""
RESCALE = 10
"""Steps of the recurrence after which its columns are scaled, as they grow exponentially."""
TOP_STEPS = 20
LEAST_TOP = 1e-150
"""Least top, for a matrix that is 0: its inverse is finite."""


@dataclass(frozen=True)
class RitzBlock:
    """S Q = Q diag(values) + remainder with Q'Q = I and Q' remainder = 0, to rounding: values (k,) ascending, of the others these
    rows (n_own, k).

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
    """before <- (M - shift) now - before in the rows [lo, hi), for M in CSR and blocks (n, w): a step of Chebyshev's recurrence."""
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
        return np.concatenate([[x @ image], q.T @ image, q.T @ x])

    def _combined(self, weights: Array) -> Array:
        """Return q weights (n_own,)."""
        return self.matrix.rows.times(self.q, weights[:, None])[:, 0]


# A lower bound on a sparse symmetric matrix on the complement of a few vectors, by Lanczos' method.

LEAST_STEPS, MOST_STEPS, LOOK = 80, 2000, 20
"""Steps before the first look at the Ritz value, at most, and between looks."""
CONVERGED = 0.5
"""Share of the Ritz value's size: with a smaller residual it is as good as an eigenvalue."""


def lowest_outside(matrix: SharedMatrix, q: Array, seed: int) -> float:
    """theta - |residual| for the least Ritz value of P S P, P = I - q q', outside the range of q (n_own, k), q'q = I; to a factor of 2."""
    lanczos, most = Lanczos(matrix, matrix.rows.random(seed), q), min(MOST_STEPS, matrix.n - q.shape[1])
    low, residual = -np.inf, np.inf
    for step in range(1, most + 1):
        is_last = not lanczos.step() or step == most
        if is_last or (step >= LEAST_STEPS and step % LOOK == 0):
            low, residual = lanczos.end(0)
            if is_last or residual <= CONVERGED * abs(low):
                break
    return low - residual
