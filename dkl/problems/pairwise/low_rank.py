"""The pairwise problem (Hu & Kwok 2013, (1)) on K = V V', without the copy U: smooth and unconstrained.

    f(V) = tr(V'LV) + gamma/2 sum over (i,j) in T of W_ij R_ij^2     with R = P_T(V V' - T), W the weights
    gradient   2 S V                                                 with S = L + gamma W R (by entries), sparse
    Hessian    H[D] = 2 (S D + gamma P_T(W (V D' + D V')) V)
    on a line  f(V + t D) is a quartic in t: its coefficients cost one product with L and dot products on T's pattern

V is (n, w) with w a `padded_width`; columns beyond the rank are zero and stay zero. The rows may be shared out over several owners, of
which this is one (linalg/rows/shared_rows.py): slabs that are multiplied have room for the others' rows behind the own ones. The bits do
not depend on the number of threads, nor on that of owners.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy import sparse

from dkl.linalg.graph.gauss_seidel import smooth_rows, sweep
from dkl.linalg.rows.shared_rows import Halo, SharedMatrix, SharedRows, inner_product, row_numbers
from dkl.linalg.slabs import slab_ops as kernels
from dkl.linalg.slabs.slab_ops import empty_aligned, lanes_of
from dkl.linalg.symmetric.psd_quadratic import lowest_of_quartic
from dkl.problems.pairwise.certificate import Certificate, gap_scale, gradient_matrix, optimal_scale
from dkl.problems.pairwise.dual_correction import Modes, Multipliers, least_squares
from dkl.problems.pairwise.low_rank_certificate import certified
from dkl.problems.pairwise.preconditioner import StiffPreconditioner, Ties
from dkl.problems.pairwise.terms import groups, padded_width

Array = NDArray[np.float64]
LEAST_NNZ_FOR_THREADS = 50_000
"""A Laplacian of fewer entries (some 4,000 rows) is multiplied by the calling thread: in 0.3 ms, which handing over would double."""


@dataclass
class FactorPoint:
    """A factor and what is known there; `move` changes it in place.

    v (n_own + halo, w); lv: L V (n_own, w); residual: R on T's pattern (nnz,); smooth: tr(V'LV) over all rows.
    """

    v: Array
    lv: Array
    residual: Array
    gradient: Array
    objective: float
    smooth: float
    gradient_norm: float


@dataclass
class Line:
    """The quartic f(V + t D) = f(V) + c1 t + c2 t^2 + c3 t^3 + c4 t^4, and arrays for a move along D.

    ld is L D; first and second are P_T(V D' + D V') and P_T(D D') on T's pattern (nnz,).
    """

    coefficients: tuple[float, float, float, float]  # of t, t^2, t^3, t^4
    ld: Array
    first: Array
    second: Array

    def minimizer(self) -> tuple[float, float]:
        """Return (t, f(V + t D) - f(V)) at the quartic's lowest point; (0, 0) if its slope has no real root."""
        return lowest_of_quartic(*self.coefficients)


class FactoredPairwise:
    """The pairwise problem in V: f, its gradient and its quartics.

    Points and lines hold the arrays. `n_products` counts products with L, which are what a step costs. Close it to end its threads.
    laplacian, targets, weights: of all rows, or of an owner's `rows` (n_own, n), with its rows of a start: `own_start`.
    """

    def __init__(
        self,
        laplacian: sparse.csr_array,
        targets: sparse.csr_array,
        gamma: float,
        *,
        weights: Array | None = None,
        threads: int = 1,
        rows: SharedRows | None = None,
        own_start: Array | None = None,
    ) -> None:
        n = int(laplacian.shape[1])
        many = laplacian.nnz >= LEAST_NNZ_FOR_THREADS
        self.rows = rows or SharedRows.alone(n, threads if many else 1, groups(n))
        self.n, self.gamma = n, float(gamma)
        self.laplacian, self.targets = laplacian, targets
        # The halo holds the rows of others that L or T meets, so that one exchange serves both products.
        row_of = np.concatenate([row_numbers(laplacian), row_numbers(targets)])
        self.halo = Halo(self.rows, row_of, np.concatenate([laplacian.indices, targets.indices]))
        matrix = SharedMatrix.part(laplacian, self.rows, self.halo)
        self._l = matrix.indptr, matrix.indices, matrix.data
        self._t = targets.indptr.astype(np.int64), self.halo.numbers(targets.indices)
        self._target = np.ascontiguousarray(targets.data, dtype=float)
        self.weights = weights
        self._weights = np.ones(self._target.size) if weights is None else np.ascontiguousarray(weights, dtype=float)
        self._work = np.empty(self._target.size)
        self._ties = Ties(targets, self.rows)
        self._own_start = own_start
        self._products = [0]  # shared with problems of another gamma

    def close(self) -> None:
        """End the threads; harmless if repeated."""
        self.rows.close()

    @property
    def n_products(self) -> int:
        """Return the number of products with L so far."""
        return self._products[0]

    def scale(self, objective: float) -> float:
        """Return the scale of changes of the objective: see `gap_scale`."""
        return gap_scale(objective, self.n, self.gamma)

    def with_gamma(self, gamma: float) -> FactoredPairwise:
        """Return the same problem with another gamma; it shares threads, arrays and the count of products."""
        other = copy.copy(self)
        other.gamma = float(gamma)
        return other

    def with_weights(self, weights: Array) -> FactoredPairwise:
        """Return the problem with other weights (nnz of T,), 0 to drop a pair; it shares as in `with_gamma`."""
        other = copy.copy(self)
        other.weights = other._weights = np.ascontiguousarray(weights, dtype=float)
        return other

    def certify(
        self,
        point: FactorPoint,
        relative: float,
        seed: int,
        *,
        few: bool = False,
        last: bool = False,
        near: Modes | None = None,
    ) -> tuple[Certificate, Modes]:
        """Return (certificate, S's lower end): see problems/pairwise/low_rank_certificate.py."""
        return certified(self, point, relative, seed, few=few, last=last, near=near)

    def sum_entries(self, function: Callable[[int, int], object]) -> Array:
        """Return the sum of function(first, last + 1) over groups of T's entries, row by row."""
        indptr = self._t[0]
        return self.rows.sum(lambda lo, hi: function(int(indptr[lo]), int(indptr[hi])))

    def padded(self, factor: Array) -> Array:
        """Return a copy of `factor` (n_own, r) with zero columns to a `padded_width`, and room for the halo."""
        own, rank = factor.shape
        out = empty_aligned((own + self.halo.size, padded_width(self.n, rank)), float)
        out[:own, :rank] = factor
        out[:own, rank:], out[own:] = 0.0, 0.0
        return out

    def product(self, x: Array) -> Array:
        """Return L X (n_own, k)."""
        # Products with L are the unit that histories and benchmarks count work in.
        self._products[0] += 1
        return SharedMatrix.part(self.laplacian, self.rows, self.halo).product(x)

    def at(self, v: Array) -> FactorPoint:
        """Return the point of a padded factor, which it keeps and `move` will change. One product."""
        lanes, own = lanes_of(v.shape[1]), self.rows.n_own
        self.halo.fill(v)
        # Aligned arrays, as an unaligned one makes BLAS and the compiled loops take another path with other bits.
        lv, residual = empty_aligned((own, v.shape[1]), float), np.empty_like(self._target)
        self.rows.each(lambda lo, hi: kernels.product_rows(lo, hi, *self._l, v, lv, lanes), own)
        self.rows.each(lambda lo, hi: kernels.gram_rows(lo, hi, *self._t, v, residual, lanes), own)
        self._products[0] += 1
        residual -= self._target
        point = FactorPoint(v, lv, residual, empty_aligned(lv.shape, float), 0.0, 0.0, 0.0)
        self._update(point)
        return point

    def again(self, v: Array, lv: Array, residual: Array) -> FactorPoint:
        """Return the point of a padded factor (n_own, w) with known L V and residual: copies, no product."""
        v = self.padded(v)
        self.halo.fill(v)
        known = empty_aligned(lv.shape, float)
        known[:] = lv
        point = FactorPoint(v, known, np.array(residual), empty_aligned(lv.shape, float), 0.0, 0.0, 0.0)
        self._update(point)
        return point

    def optimal_scale(self, point: FactorPoint) -> float:
        """Return the t >= 0 for which f(t K) is least: <S, K> is 0 there, and multipliers of the targets cost next to nothing."""
        entries, target, weights = self.entries(point), self._target, self._weights

        def sums(lo: int, hi: int) -> tuple[float, float]:
            weighted = weights[lo:hi] * entries[lo:hi]
            return inner_product(weighted, target[lo:hi]), inner_product(weighted, entries[lo:hi])

        with_targets, square = map(float, self.sum_entries(sums))
        return optimal_scale(with_targets, square, self.gamma, point.smooth)

    def rescale(self, point: FactorPoint, t: float) -> None:
        """Compute K <- t K, in place, without a product."""
        root = np.sqrt(t)
        point.v *= root  # with the halo
        point.lv *= root
        point.residual += self._target
        point.residual *= t
        point.residual -= self._target
        self._update(point)

    def recount(self, products: int) -> None:
        """Set the count of products with L (when resuming)."""
        self._products[0] = products

    def _update(self, point: FactorPoint) -> None:
        """Set objective and gradient from v, L v and the residual."""
        lanes = lanes_of(point.v.shape[1])
        known = (point.residual, self._weights, self.gamma, point.v, point.lv)
        size, smooth, loss = self.rows.sum(
            lambda lo, hi: kernels.gradient_rows(lo, hi, *self._t, *known, self._work, point.gradient, lanes)
        )
        point.smooth = float(smooth)
        point.objective = float(smooth + 0.5 * self.gamma * loss)
        point.gradient_norm = float(np.sqrt(size))

    def line(self, point: FactorPoint, direction: Array, out: Line | None = None) -> Line:
        """Return the quartic along `direction` (n, w); one product. The buffers of `out` are used again."""
        lanes = lanes_of(direction.shape[1])
        ld = empty_aligned(point.lv.shape, float) if out is None else out.ld
        first, second = (np.empty_like(self._target) for _ in range(2)) if out is None else (out.first, out.second)
        self.halo.fill(direction)
        known = (point.residual, self._weights, point.v, point.lv, direction)
        fr, ff, sr, fs, ss, linear, square = self.rows.sum(
            lambda lo, hi: kernels.line_rows(lo, hi, *self._l, *self._t, *known, ld, first, second, lanes)
        )
        self._products[0] += 1
        # f = tr(V'LV) + gamma/2 R . W R and R(t) = R + t first + t^2 second: square and collect by powers of t.
        half = 0.5 * self.gamma
        coefficients = (2 * half * fr + 2 * linear, half * (ff + 2 * sr) + square, 2 * half * fs, half * ss)
        return Line(tuple(map(float, coefficients)), ld, first, second)  # type: ignore[arg-type]

    def move(self, point: FactorPoint, direction: Array, line: Line, t: float) -> None:
        """Compute point <- V + t D, in place, without a product: L V, R and halo follow from line and D."""
        lanes = lanes_of(direction.shape[1])
        self.rows.each(lambda lo, hi: kernels.move_rows(lo, hi, t, direction, point.v, lanes), len(point.v))
        self.rows.each(lambda lo, hi: kernels.move_rows(lo, hi, t, line.ld, point.lv, lanes), len(point.lv))
        # R(t) = R + t first + t^2 second; rounding adds up over many moves, and a new `at` removes it.
        point.residual += t * line.first
        point.residual += (t * t) * line.second
        self._update(point)

    def start(self, width: int, seed: int) -> Array:
        """Return a start (n_own, width); see `smooth_start`, which one owner of all rows can find."""
        if self._own_start is not None:
            return self._own_start
        return smooth_start(self.laplacian, self.targets, self.gamma, self.weights, width, seed)

    def upper_entries(self) -> tuple[NDArray[np.int64], NDArray[np.int32], Array, Array]:
        """Return (i, j, T_ij, c) of T's entries with i <= j, i from the first own row on, j with the halo.

        c: the root of what an entry's square counts: its weight, twice off the diagonal, as T and K are symmetric.
        """
        i = row_numbers(self.targets).astype(np.int64)
        # The upper triangle alone, as (i, j) and (j, i) are one number; the root of 2 counts it twice in squares.
        kept = self.rows.lo + i <= self.targets.indices
        i, j = i[kept], self._t[1][kept]
        count = np.where(i == j, 1.0, np.sqrt(2.0))
        return i, j, self._target[kept], count if self.weights is None else count * np.sqrt(self._weights[kept])

    def preconditioner(self, width: int, seed: int = 0, dtype: DTypeLike = np.float32) -> StiffPreconditioner:
        """Return a preconditioner for factors of this padded width; it keeps six arrays of at most that size."""
        return StiffPreconditioner(self, self._ties, self._weights, width, seed, dtype)

    def gradient_matrix(self, point: FactorPoint) -> sparse.csr_array:
        """Return S = L + gamma W R at the point, sparse (n_own, n), for its certificate."""
        entries = self.entries(point)
        return gradient_matrix(self.laplacian, self.targets, self.gamma, entries, self.weights)

    def multipliers(self, point: FactorPoint, relative: float) -> Multipliers:
        """Return E on T's pattern by which S + E nearly vanishes on V's columns, for a relative gap."""
        return least_squares(self, point, relative)

    def diagonal(self, point: FactorPoint) -> Array:
        """Return K_ii (n_own,)."""
        entries = sparse.csr_array((self.entries(point), self.targets.indices, self.targets.indptr), self.targets.shape)
        return np.asarray(entries.diagonal(self.rows.lo), float)

    def entries(self, point: FactorPoint) -> Array:
        """Return K = V V' on T's pattern (nnz,)."""
        return point.residual + self._target


# Start of the low-rank solver: smooth rows of the graph, after Gauss-Seidel sweeps over the problem.

SWEEPS = 2
"""Sweeps of Gauss-Seidel. A row's new value is used by the next: one owner makes them, of all rows."""


def smooth_start(
    laplacian: sparse.csr_array, targets: sparse.csr_array, gamma: float, weights: Array | None, width: int, seed: int
) -> Array:
    """Return rows (n, width) that vary little along the graph, after SWEEPS of Gauss-Seidel over them."""
    n, matrix = int(laplacian.shape[0]), SharedMatrix.alone(laplacian)
    v = empty_aligned((n, padded_width(n, width)), float)
    v[:, :width], v[:, width:] = smooth_rows(matrix, width, seed), 0.0
    swept = row_sweeps(laplacian, targets, gamma, weights)
    # Sweeps go forwards and backwards in turn, so that no end of the rows is always updated first.
    for k in range(SWEEPS):
        swept(v, k % 2 == 1)
    return v[:, :width]


def row_sweeps(
    laplacian: sparse.csr_array, targets: sparse.csr_array, gamma: float, weights: Array | None
) -> Callable[[Array, bool], None]:
    """Return a function of a padded factor and whether to go backwards, which sweeps over all rows once, in place."""
    matrix = SharedMatrix.alone(laplacian)
    target = np.ascontiguousarray(targets.data, dtype=float)
    given = np.ones(target.size) if weights is None else np.ascontiguousarray(weights, dtype=float)
    known = (
        matrix.indptr,
        matrix.indices,
        matrix.data,
        targets.indptr.astype(np.int64),
        targets.indices.astype(np.int32),
    )

    def swept(v: Array, backwards: bool) -> None:
        sweep(*known, target, given, gamma, v, backwards, lanes_of(v.shape[1]))

    return swept
