"""A preconditioner for the pairwise problem in V (Hu & Kwok 2013, (1)): a Chebyshev polynomial in the stiff part of its Hessian.

gamma J'WJ, J'WJ D = P_T(W (V D' + D V')) V, is the stiff part of the Hessian (up to 2,000 where S ends at 8), and lives on T's
pattern, which is far sparser than L. M = 2 (SHIFT I + gamma J'WJ) is the Hessian with SHIFT I in the place of S.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy import sparse
from scipy.sparse.csgraph import reverse_cuthill_mckee

from dkl.linalg.rows.shared_rows import Halo, SharedRows, row_numbers
from dkl.linalg.slabs import slab_ops as kernels
from dkl.linalg.slabs.slab_ops import empty_aligned, lanes_of

if TYPE_CHECKING:
    from dkl.problems.pairwise.low_rank import FactoredPairwise

Array = NDArray[np.float64]


class Ties:
    """T's pattern among the rows that are in pairs.

    rows (m,): the own ones, neighbors in T near each other; halo: other owners' rows that they are in pairs with, behind them; alone: the
    other own rows.
    indptr, indices: CSR of the own rows without the diagonal, entries in T's order; left, right: each pair once, the row of the lower
    number left, `places` (pairs, 2) where CSR has it, twice the same where the other row is another owner's.
    """

    def __init__(self, targets: sparse.csr_array, owned: SharedRows) -> None:
        self.owned, lo = owned, owned.lo
        row_of, columns = row_numbers(targets), targets.indices
        # The diagonal of T concerns one row alone and is treated in closed form; what couples rows are the pairs.
        off = np.flatnonzero(lo + row_of != columns)
        first, second = row_of[off].astype(np.int64), columns[off].astype(np.int64)
        self.rows, self.alone = _tied(first, second, owned)
        places = np.empty(owned.n_own, np.int64)
        places[self.rows] = np.arange(self.rows.size)
        self.halo = Halo(owned, first, second, places, self.rows.size)
        # Rows are renumbered so that linked ones are near each other in memory, which T's own order does not promise.
        order = np.argsort(places[first], kind="stable")
        off, first, second = off[order], first[order], second[order]
        begin, end = places[first], self.halo.numbers(second)
        self.indptr = np.concatenate([[0], np.cumsum(np.bincount(begin, minlength=self.rows.size))]).astype(np.int64)
        self.indices = end
        first += lo  # from here on by the numbers of all owners
        upper, is_own = first < second, (second >= lo) & (second < owned.hi)
        # A pair has the same key from both ends, which matches its two entries.
        key = np.minimum(first, second) * owned.n + np.maximum(first, second)
        both, below, across = (np.flatnonzero(chosen) for chosen in (upper & is_own, ~upper & is_own, ~is_own))
        mirror = np.empty(key.size, np.int64)
        mirror[both[np.argsort(key[both])]] = below[np.argsort(key[below])]
        # Of a pair with another owner's row one entry is here; the other owner does the rest of the work.
        mirror[across] = across
        once = np.sort(np.concatenate([both, across]))
        swapped = ~upper[once]
        self.left, self.right = begin[once], end[once].astype(np.int64)
        # Left is the row of the lower number for all owners: both compute a pair's number in the same order.
        self.left[swapped], self.right[swapped] = self.right[swapped], self.left[swapped]
        self.places = np.column_stack([once, mirror[once]])
        self.of = off[once]
        """Which of T's entries a pair is."""
        self._in_order = np.argsort(self.rows)
        self._sorted = self.rows[self._in_order]

    @property
    def size(self) -> int:
        """Return the number of rows of arrays: own ones and the halo."""
        return int(self.rows.size) + self.halo.size

    def inside(self, lo: int, hi: int) -> NDArray[np.int64]:
        """Return which of `rows` are among the own rows [lo, hi), in their order."""
        first, last = np.searchsorted(self._sorted, [lo, hi])
        return self._in_order[first:last]

    def weights(self, weights: Array) -> Array:
        """Return the weights of the pairs, from those of T's entries."""
        return weights[self.of]


def _tied(
    first: NDArray[np.int64], second: NDArray[np.int64], owned: SharedRows
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return (own rows in pairs, ordered to keep those of own pairs near each other; own rows in none)."""
    n, second = owned.n_own, second - owned.lo
    here = (second >= 0) & (second < n)
    pattern = sparse.csr_array((np.ones(int(here.sum())), (first[here], second[here])), shape=(n, n))
    # Reverse Cuthill-McKee keeps the rows of a pair near each other, so that gathers stay in the cache.
    order = reverse_cuthill_mckee(pattern, symmetric_mode=True)
    tied = np.zeros(n, bool)
    tied[first] = True
    return order[tied[order]].astype(np.int64), np.flatnonzero(~tied)


class StiffPreconditioner:
    """An approximation of M^-1: a polynomial in M, hence linear and symmetric.

    It is positive definite while `top` bounds the spectrum, of which it treats the part [top / RATIO, top] and leaves the rest.
    It holds five arrays (m, width) of `dtype` for the m rows that are in pairs: single precision does for a preconditioner.
    """

    # DEGREE steps treat the spectrum from top / RATIO on; SHIFT I is in the place of S, a product with which would take L.
    DEGREE, RATIO, SHIFT = 10, 100.0, 1.0
    MARGIN = 1.15  # power iteration approaches the top from below

    def __init__(
        self,
        problem: FactoredPairwise,
        ties: Ties,
        weights: Array,
        width: int,
        seed: int,
        dtype: DTypeLike = np.float32,
    ) -> None:
        # Scalars in the arrays' own type: a double would make Numba compute single precision in double.
        self.real: Any = np.dtype(dtype).type
        self.gamma, self.owned, self.ties, self.lanes = problem.gamma, problem.rows, ties, lanes_of(width)
        self._weights = ties.weights(weights).astype(dtype)
        self._v, self._power, *self._buffers = (empty_aligned((ties.size, width), dtype) for _ in range(5))
        for buffer in (self._power, *self._buffers):
            buffer[:] = 0.0  # a halo is scaled before it is first filled, and what memory held may be a signaling NaN
        for number, lo, hi in self.owned.groups:
            # A random stream a group, whatever its owner.
            some = ties.inside(lo, hi)
            self._power[some] = np.random.default_rng((seed, number)).standard_normal((some.size, width))
        self._work = np.empty(ties.indices.size, dtype)
        self._is_idle = not self.owned.largest(float(ties.rows.size))
        self.top = 0.0

    def refresh(self, v: Array, steps: int) -> None:
        """Follow the top of M's spectrum at v by `steps` power iterations, from the vector of the last time."""
        image = self._buffers[0]
        self._gather(v, 1.0, self._v)
        self.ties.halo.fill(self._v)
        top = 0.0
        for _ in range(0 if self._is_idle else steps):
            # Normalized before each product, or gamma to the number of steps would overflow single precision.
            self._power *= self.real(1.0 / np.sqrt(self._dot(self._power, self._power)))
            image[:] = 0.0
            self._step(self._power, (2.0 * self.SHIFT, 0.0, 0.0), 2.0 * self.gamma, self._power, image)  # M p
            # The Rayleigh quotient p'M p of the unit vector p, which approaches the top from below.
            top = self._dot(self._power, image)
            np.copyto(self._power, image)
        # A row in no pair has the diagonal target alone: the top of its block of M is 2 SHIFT + 4 gamma |v_i|^2.
        of_alone = kernels.largest_rows(0, self.ties.alone.size, self.ties.alone, v, self.lanes)
        self.top = max(top, 2.0 * self.SHIFT + 4.0 * self.gamma * float(self.owned.largest(of_alone)))

    def spectrum(self) -> tuple[NDArray, float]:
        """Return (the last power vector (n_own, width), zero on rows in no pairs, and the top)."""
        rows = self.ties.rows
        power = np.zeros((self.owned.n_own, self._power.shape[1]), self._power.dtype)
        power[rows] = self._power[: rows.size]
        return power, self.top

    def restore(self, power: NDArray, top: float) -> None:
        """Restore the state returned by another preconditioner's `spectrum`."""
        rows = self.ties.rows
        self._power[: rows.size], self.top = power[rows], top

    def apply(self, v: Array, r: Array, size: float, out: Array) -> None:
        """Compute out <- M^-1 r approximately, M at v and |r| = size.

        By DEGREE steps of the Chebyshev semi-iteration (Saad, Iterative methods for sparse linear systems, 2003, algorithm 12.1), which has
        no dot products, and so no sums to wait for.
        """
        # A top that is too low would make the polynomial grow beyond it, and M^-1 indefinite: hence the margin.
        high = self.MARGIN * self.top
        # Eigenvalues below `low` are left as they are: conjugate gradients outside cope with a spread of RATIO.
        low = max(2.0 * self.SHIFT, high / self.RATIO)
        # The half-width is kept above 0 where the spectrum is a point, as the recurrence divides by it.
        center, half = 0.5 * (high + low), max(0.5 * (high - low), 1e-3 * high)
        keep, gain = _steps(center / half, half, self.DEGREE - 1)
        # Rows in no pair need one vector each: they are done without the buffers.
        alone, rows = self.ties.alone, self.ties.rows
        self.owned.each(
            lambda lo, hi: kernels.alone_rows(
                lo, hi, alone, self.gamma, self.SHIFT, center, keep, gain, v, r, out, self.lanes
            ),
            alone.size,
        )
        if self._is_idle or size == 0.0:
            return
        # Single precision has no numbers below 1e-38: the gradient is taken to the length 1 and back.
        x, before, right = self._buffers
        self._gather(v, 1.0, self._v)
        self.ties.halo.fill(self._v)
        self._gather(r, 1.0 / size, right)
        np.multiply(right, self.real(1.0 / center), out=x)
        before[:] = 0.0
        for kept, gained in zip(keep, gain, strict=True):
            # M = 2 (SHIFT I + gamma J'WJ): SHIFT goes into the share of x, the pairs into the product.
            shares = (1.0 + kept - 2.0 * gained * self.SHIFT, -kept, gained)
            self._step(x, shares, -2.0 * gained * self.gamma, right, before)
            x, before = before, x
        self.owned.each(lambda lo, hi: kernels.scatter_rows(lo, hi, rows, x, size, out, self.lanes), rows.size)

    def _gather(self, x: Array, scale: float, out: Array) -> None:
        """Compute out <- scale x on the rows that are in pairs."""
        rows = self.ties.rows
        self.owned.each(lambda lo, hi: kernels.gather_rows(lo, hi, rows, x, scale, out, self.lanes), rows.size)

    def _step(self, x: Array, shares: tuple[float, float, float], scale: float, r: Array, before: Array) -> None:
        """Compute before <- shares . (x, before, r) + scale J'WJ x: see `chebyshev_rows`."""
        ties, work, v, lanes = self.ties, self._work, self._v, self.lanes
        # Fresh values of rows that other owners hold, before any pair across reads them.
        ties.halo.fill(x)
        pairs = (ties.left, ties.right, ties.places, self._weights, scale, v, x, work, lanes)
        self.owned.each(lambda lo, hi: kernels.pair_changes(lo, hi, *pairs), ties.left.size)
        arrays = (work, scale, v, x, shares, r, before, lanes)
        self.owned.each(
            lambda lo, hi: kernels.chebyshev_rows(lo, hi, ties.indptr, ties.indices, *arrays), ties.rows.size
        )

    def _dot(self, x: Array, y: Array) -> float:
        """Return x . y over the rows in pairs, group by group in the rows' order, which is not that of `ties`."""
        products = np.empty(self.ties.rows.size)
        kernels.row_dots(0, products.size, x, y, products, self.lanes)
        return float(self.owned.sum(lambda lo, hi: products[self.ties.inside(lo, hi)].sum()))


def _steps(sigma: float, half: float, count: int) -> tuple[Array, Array]:
    """Return (keep, gain) of `count` Chebyshev steps on the interval half * [sigma - 1, sigma + 1]."""
    keep, gain, rho = np.empty(count), np.empty(count), 1.0 / sigma
    for k in range(count):
        # The three-term recurrence of Chebyshev polynomials, rho_k = 1 / (2 sigma - rho_(k-1)).
        following = 1.0 / (2.0 * sigma - rho)
        keep[k], gain[k], rho = rho * following, 2.0 * following / half, following
    return keep, gain
