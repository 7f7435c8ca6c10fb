"""A preconditioner for problem (1) in V: a Chebyshev polynomial in the stiff part of the Hessian.

gamma J'WJ, J'WJ D = P_T(W (V D' + D V')) V, is the stiff part of the Hessian (up to 2,000 where S ends at 8), and lives on T's
pattern, which is far sparser than L. M = 2 (SHIFT I + gamma J'WJ) is the Hessian with SHIFT I in the place of S.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy import sparse
from scipy.sparse.csgraph import reverse_cuthill_mckee

from dkl.linalg import stiff_kernels as kernels
from dkl.linalg.lanes import lanes_of
from dkl.linalg.slab_kernels import dot_rows
from dkl.linalg.slabs import empty_aligned

Array = NDArray[np.float64]


class Threaded(Protocol):
    """Work cut over threads."""

    gamma: float

    def sum_parts(self, function: Callable[[int, int], Any]) -> Any:
        """The sum over parts of the rows of V."""

    def each(self, function: Callable[[int, int], Any], count: int) -> None:
        """function(lo, hi) over ranges of [0, count)."""


class Ties:
    """T's pattern among the rows that are in pairs, `rows` (m,), neighbours in T near each other; `alone` are the other rows.

    indptr, indices: CSR (m, m) without the diagonal; left, right, weights: each pair once, `places` (pairs, 2) where CSR has it.
    """

    def __init__(self, targets: sparse.csr_array) -> None:
        n, indptr = int(targets.shape[0]), targets.indptr
        tied = np.diff(indptr) > 1
        self.alone = np.flatnonzero(~tied)
        of = np.repeat(np.arange(n), np.diff(indptr))
        off = np.flatnonzero(of != targets.indices)
        first, second = of[off], targets.indices[off]
        pattern = sparse.csr_array((np.ones(off.size), (first, second)), shape=(n, n))
        order = reverse_cuthill_mckee(pattern, symmetric_mode=True)
        self.rows = order[tied[order]].astype(np.int64)
        numbers = np.empty(n, np.int64)
        numbers[self.rows] = np.arange(self.rows.size)
        first, second = numbers[first], numbers[second]
        order = np.lexsort((second, first))
        first, second = first[order], second[order]
        self.indptr = np.concatenate([[0], np.cumsum(np.bincount(first, minlength=self.rows.size))]).astype(np.int64)
        self.indices = second.astype(np.int32)
        upper = np.flatnonzero(first < second)
        self.left, self.right = first[upper], second[upper]
        lower = np.flatnonzero(first > second)
        lower = lower[np.lexsort((first[lower], second[lower]))]
        self.places = np.column_stack([upper, lower])
        self.of = off[order][upper]
        """Which of T's entries a pair is."""

    def weights(self, weights: Array) -> Array:
        """Of the pairs, of those of T's entries."""
        return weights[self.of]


class StiffPreconditioner:
    """M^-1, approximately: a polynomial in M, hence linear, symmetric and, while `top` bounds the spectrum, positive definite. It
    treats the part [top / RATIO, top] of the spectrum; what is below is left as it is.

    It holds five arrays (m, width) of `dtype` for the m rows that are in pairs: single precision does for a preconditioner.
    """

    DEGREE, RATIO, SHIFT = 10, 100.0, 1.0
    MARGIN = 1.15  # power iteration approaches the top from below

    def __init__(
        self, problem: Threaded, ties: Ties, weights: Array, width: int, seed: int, dtype: DTypeLike = np.float32
    ) -> None:
        self.real: Any = np.dtype(dtype).type
        self.problem, self.gamma, self.ties, self.lanes = problem, problem.gamma, ties, lanes_of(width)
        self._weights = ties.weights(weights).astype(dtype)
        self._v, self._power, *self._buffers = (empty_aligned((ties.rows.size, width), dtype) for _ in range(5))
        self._power[:] = np.random.default_rng(seed).standard_normal(self._power.shape)
        self._work = np.empty(ties.indices.size, dtype)
        self.top = 0.0

    def refresh(self, v: Array, steps: int) -> None:
        """Follow the top of M's spectrum at v by `steps` power iterations, from the vector of the last time."""
        image = self._buffers[0]
        self._gather(v, 1.0, self._v)
        top = 0.0
        for _ in range(steps if self._power.size else 0):
            self._power *= self.real(1.0 / np.sqrt(self._dot(self._power, self._power)))
            image[:] = 0.0
            self._step(self._power, (2.0 * self.SHIFT, 0.0, 0.0), 2.0 * self.gamma, self._power, image)  # M p
            top = self._dot(self._power, image)
            np.copyto(self._power, image)
        of_alone = kernels.largest_rows(0, self.ties.alone.size, self.ties.alone, v, self.lanes)
        self.top = max(top, 2.0 * self.SHIFT + 4.0 * self.gamma * of_alone)

    def apply(self, v: Array, r: Array, out: Array) -> None:
        """out <- M^-1 r, M at v, approximately: DEGREE steps of the Chebyshev semi-iteration (Saad, Iterative methods for sparse
        linear systems, 2003, algorithm 12.1). No dot products, so no sums to wait for.
        """
        # A top that is too low would make the polynomial grow beyond it, and M^-1 indefinite: hence the margin.
        high = self.MARGIN * self.top
        low = max(2.0 * self.SHIFT, high / self.RATIO)
        center, half = 0.5 * (high + low), max(0.5 * (high - low), 1e-3 * high)
        keep, gain = _steps(center / half, half, self.DEGREE - 1)
        alone, rows = self.ties.alone, self.ties.rows
        self.problem.each(
            lambda lo, hi: kernels.alone_rows(
                lo, hi, alone, self.gamma, self.SHIFT, center, keep, gain, v, r, out, self.lanes
            ),
            alone.size,
        )
        size = float(np.sqrt(self.problem.sum_parts(lambda lo, hi: dot_rows(lo, hi, r, r, self.lanes))))
        if rows.size == 0 or size == 0.0:
            return
        # Single precision has no numbers below 1e-38: the gradient is taken to the length 1 and back.
        x, before, right = self._buffers
        self._gather(v, 1.0, self._v)
        self._gather(r, 1.0 / size, right)
        np.multiply(right, self.real(1.0 / center), out=x)
        before[:] = 0.0
        for kept, gained in zip(keep, gain, strict=True):
            shares = (1.0 + kept - 2.0 * gained * self.SHIFT, -kept, gained)
            self._step(x, shares, -2.0 * gained * self.gamma, right, before)
            x, before = before, x
        self.problem.each(lambda lo, hi: kernels.scatter_rows(lo, hi, rows, x, size, out, self.lanes), rows.size)

    def _gather(self, x: Array, scale: float, out: Array) -> None:
        """out <- scale x on the rows that are in pairs."""
        rows = self.ties.rows
        self.problem.each(lambda lo, hi: kernels.gather_rows(lo, hi, rows, x, scale, out, self.lanes), rows.size)

    def _step(self, x: Array, shares: tuple[float, float, float], scale: float, r: Array, before: Array) -> None:
        """before <- shares . (x, before, r) + scale J'WJ x: see `chebyshev_rows`."""
        ties, work, v, lanes = self.ties, self._work, self._v, self.lanes
        pairs = (ties.left, ties.right, ties.places, self._weights, scale, v, x, work, lanes)
        self.problem.each(lambda lo, hi: kernels.pair_changes(lo, hi, *pairs), ties.left.size)
        arrays = (work, scale, v, x, shares, r, before, lanes)
        self.problem.each(
            lambda lo, hi: kernels.chebyshev_rows(lo, hi, ties.indptr, ties.indices, *arrays), ties.rows.size
        )

    def _dot(self, x: Array, y: Array) -> float:
        return float(dot_rows(0, len(x), x, y, self.lanes))


def _steps(sigma: float, half: float, count: int) -> tuple[Array, Array]:
    """(keep, gain) of so many steps, for an interval of that half width, sigma half widths from 0."""
    keep, gain, rho = np.empty(count), np.empty(count), 1.0 / sigma
    for k in range(count):
        following = 1.0 / (2.0 * sigma - rho)
        keep[k], gain[k], rho = rho * following, 2.0 * following / half, following
    return keep, gain
