"""The lowest eigenpairs of a sparse symmetric matrix, many at once and close together, by filtered subspace iteration.

A Chebyshev polynomial of the matrix that is small on [cut, top], the unwanted part of the spectrum, and grows like
exp(2 degree sqrt((cut - theta) / top)) below, is applied to a block of vectors; Rayleigh-Ritz on what comes out gives the
next cut (Zhou, Saad, Tiago & Chelikowsky, Journal of Computational Physics 219, 2006). Lanczos resolves eigenvalues one by
one and needs thousands of steps where some dozens lie next to 0; here they only have to lie below the cut together.

The filter may run in single precision, Rayleigh-Ritz never does: what a Ritz pair is worth is computed from the pair itself.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import DTypeLike, NDArray
from scipy import sparse
from scipy.linalg import eigh_tridiagonal, qr

from dkl.linalg.lanes import add_sparse_row, combine_rows, lanes_of

Array = NDArray[np.float64]
Each = Callable[[Callable[[int, int], object], int], None]
"""`each(function, count)` calls function(lo, hi) over ranges that make up [0, count), side by side where it has threads."""
DEGREE, LEAST_DEGREE = 50, 8
FIRST_CUT, FIRST_DEGREE = 0.1, 20
"""The filter that knows no Ritz values yet: where it begins, of the top of the spectrum. A random block is a mixture of all that
grows, so that what grows e^16 times as much as the rest would be all that is left of it in single precision."""
MOST_GROWTH = 14.0
"""log of what a filter may make of the lowest Ritz vector: in single precision the others must not drown in its rounding."""
LEAST_CUT, MOST_CUT = 1e-4, 0.9
"""Of the top: what is below is wanted whatever the block can hold, and what is above never."""
FRESH_CUT = 5e-3
"""The least cut of a block that was found for another matrix: where that one was lifted, all of its values are next to 0."""
RESCALE = 10
"""Steps of the recurrence after which its columns are scaled, as they grow exponentially."""
WIDTH = 16
"""Columns of a slab of the block: in single precision the length of a cache line."""
TOP_STEPS = 20
LEAST_TOP = 1e-150
"""Of a matrix that is 0: with room for its inverse."""


def at_once(function: Callable[[int, int], object], count: int) -> None:
    """An `Each` of one range."""
    function(0, count)


@dataclass(frozen=True)
class RitzBlock:
    """S Q = Q diag(values) + remainder with Q'Q = I and Q' remainder = 0, to rounding: values (k,) ascending, the others (n, k).

    beyond   the lowest Ritz value of the guards, which were iterated with the others but are not told: about where the rest of
             the spectrum begins
    """

    values: Array
    vectors: Array
    remainder: Array
    beyond: float


def lowest_subspaces(
    matrix: sparse.csr_array,
    start: Array,
    count: int,
    passes: int,
    dtype: DTypeLike = np.float64,
    known: Array | None = None,
    each: Each = at_once,
) -> Generator[RitzBlock, None, None]:
    """The lowest `count` Ritz pairs of `matrix` (n, n), ever better, after each of so many passes of DEGREE block products or less.

    start   (n, m), m > count, of full rank; those beyond `count` are guards, which make the others converge
    dtype   of the filter
    known   ascending Ritz values of the first columns, for a matrix nearby; None: they are random
    each    how the filter's rows are shared out, of which the result does not depend
    """
    top = spectrum_top(matrix)
    block, cut, degree = start, FIRST_CUT * top, FIRST_DEGREE
    if known is not None:
        cut, degree = next_filter(known, top, FRESH_CUT)
    del start  # a block of memory
    for _ in range(passes):
        block = _orthonormal(filtered(matrix, block, cut, top, degree, dtype, each))
        image = matrix @ block
        values, turn = np.linalg.eigh(block.T @ image)
        block, image = block @ turn, image @ turn
        kept, lowest = block[:, :count], values[:count]
        yield RitzBlock(lowest, kept, image[:, :count] - kept * lowest, float(values[count]))
        cut, degree = next_filter(values, top)


def next_filter(values: Array, top: float, least: float = LEAST_CUT) -> tuple[float, int]:
    """(cut, degree) of the filter that goes on from Ritz values, its cut at least so much of the top."""
    cut = min(max(float(values[-1]), least * top), MOST_CUT * top)
    growth = np.arccosh(1 + 2 * max(cut - float(values[0]), 0.0) / (top - cut))
    return cut, int(np.clip(MOST_GROWTH / max(growth, 1e-3), LEAST_DEGREE, DEGREE))


def _orthonormal(block: Array) -> Array:
    """An orthonormal basis of the block's columns, whatever their lengths."""
    return np.ascontiguousarray(qr(block, mode="economic", overwrite_a=True, check_finite=False)[0])


def filtered(
    matrix: sparse.csr_array,
    block: Array,
    cut: float,
    top: float,
    degree: int,
    dtype: DTypeLike,
    each: Each = at_once,
) -> Array:
    """T_degree(S mapped from [cut, top] to [-1, 1]) times the block, its columns scaled, (n, m) column by column."""
    n, count = block.shape
    center, half = 0.5 * (top + cut), 0.5 * (top - cut)
    twice = sparse.csr_array((matrix - center * sparse.eye_array(n, format="csr")) * (2 / half))
    indptr, indices = twice.indptr.astype(np.int64), twice.indices.astype(np.int32, copy=False)
    data = twice.data.astype(dtype, copy=False)
    out, lanes = np.empty((n, count), order="F"), lanes_of(WIDTH)

    def step_rows(lo: int, hi: int) -> None:
        recurrence(lo, hi, indptr, indices, data, now, before, lanes)

    for lo in range(0, count, WIDTH):
        width = min(WIDTH, count - lo)
        now = np.zeros((n, WIDTH), dtype)
        now[:, :width] = block[:, lo : lo + width]
        before = np.zeros((n, WIDTH), dtype)
        each(step_rows, n)
        before, now = now, before
        now *= now.dtype.type(0.5)
        for step in range(2, degree + 1):
            each(step_rows, n)
            before, now = now, before
            if step % RESCALE == 0:
                size = np.maximum(np.abs(now).max(axis=0), np.finfo(now.dtype).tiny)
                before /= size
                now /= size
        out[:, lo : lo + width] = now[:, :width]
    out /= np.linalg.norm(out, axis=0)
    return out


@njit(nogil=True, cache=True, fastmath={"contract", "reassoc"}, error_model="numpy")
def recurrence(lo, hi, indptr, indices, data, now, before, lanes):  # type: ignore[no-untyped-def]
    """before <- M now - before in the rows [lo, hi), for M in CSR (n, n) and blocks (n, w): a step of Chebyshev's recurrence, M twice
    its matrix."""
    for i in range(lo, hi):
        combine_rows((-1.0,), (before,), (i,), before, i, lanes)
        add_sparse_row(indices, data, indptr[i], indptr[i + 1], now, before, i, lanes)


def spectrum_top(matrix: Any) -> float:
    """A little above the largest eigenvalue, by TOP_STEPS of Lanczos: the largest Ritz value and its residual."""
    vector = np.random.default_rng(0).standard_normal(matrix.shape[0])
    vector /= np.linalg.norm(vector)
    before, beside = np.zeros_like(vector), 0.0
    diagonal: list[float] = []
    off: list[float] = []
    for _ in range(min(TOP_STEPS, matrix.shape[0])):
        image = matrix @ vector - beside * before
        diagonal.append(float(vector @ image))
        image -= diagonal[-1] * vector
        beside = float(np.linalg.norm(image))
        off.append(beside)
        if beside <= 1e-14 * max(np.abs(diagonal)):
            break
        before, vector = vector, image / beside
    values, vectors = eigh_tridiagonal(np.array(diagonal), np.array(off[:-1]))
    return max(1.02 * (float(values[-1]) + abs(off[-1] * vectors[-1, -1])), LEAST_TOP)
