"""The lowest eigenpairs of a sparse symmetric matrix, many at once and close together, by filtered subspace iteration.

A Chebyshev polynomial of the matrix that is small on [cut, top], the unwanted part of the spectrum, and grows like
exp(2 degree sqrt((cut - theta) / top)) below, is applied to a block of vectors; Rayleigh-Ritz on what comes out gives the
next cut (Zhou, Saad, Tiago & Chelikowsky, Journal of Computational Physics 219, 2006). Lanczos resolves eigenvalues one by
one and needs thousands of steps where some dozens lie next to 0; here they only have to lie below the cut together.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.linalg import ArpackNoConvergence, eigsh

Array = NDArray[np.float64]
DEGREE = 50
FIRST_CUT = 0.1
"""Of the top of the spectrum: where the first filter begins, which knows no Ritz values yet."""
LEAST_CUT = 1e-4
"""Of the top: what is below is wanted whatever the block can hold."""
RESCALE = 10
"""Steps of the recurrence after which its columns are scaled, as they grow exponentially."""


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


def lowest_subspaces(matrix: sparse.csr_array, start: Array, count: int, passes: int) -> Iterator[RitzBlock]:
    """The lowest `count` Ritz pairs of `matrix` (n, n), ever better, after each of so many passes of DEGREE block products.

    start   (n, m), m > count, of full rank; those beyond `count` are guards, which make the others converge
    """
    top = _top(matrix)
    block, cut = np.linalg.qr(start)[0], FIRST_CUT * top
    del start  # a block of memory
    for _ in range(passes):
        block = np.linalg.qr(_filtered(matrix, block, cut, top))[0]
        image = matrix @ block
        values, turn = np.linalg.eigh(block.T @ image)
        block, image = block @ turn, image @ turn
        kept, lowest = block[:, :count], values[:count]
        yield RitzBlock(lowest, kept, image[:, :count] - kept * lowest, float(values[count]))
        cut = max(float(values[-1]), LEAST_CUT * top)


def _filtered(matrix: sparse.csr_array, block: Array, cut: float, top: float) -> Array:
    """T_DEGREE(S mapped from [cut, top] to [-1, 1]) times the block, its columns scaled. Three blocks of memory."""
    center, half = 0.5 * (top + cut), 0.5 * (top - cut)
    twice = sparse.csr_array((matrix - center * sparse.eye_array(matrix.shape[0], format="csr")) * (2 / half))
    before, now = block, twice @ block
    now *= 0.5
    for step in range(2, DEGREE + 1):
        following = twice @ now
        following -= before
        before, now = now, following
        if step % RESCALE == 0:
            size = np.abs(now).max(axis=0)
            before, now = before / size, now / size
    return now


def _top(matrix: sparse.csr_array) -> float:
    """A little above the largest eigenvalue; where Lanczos does not find it, the largest row sum of |S|."""
    try:
        start = np.random.default_rng(0).standard_normal(matrix.shape[0])
        return 1.05 * float(eigsh(matrix, k=1, which="LA", tol=1e-2, v0=start, return_eigenvectors=False)[0])
    except ArpackNoConvergence:
        return float(abs(matrix).sum(axis=1).max())
