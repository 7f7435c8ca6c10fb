"""Problem (1) of Hu & Kwok (2013) on K = V V', without the copy U: smooth, unconstrained, twice differentiable.

    f(V) = tr(V'LV) + gamma/2 sum over (i,j) in T of (v_i.v_j - T_ij)^2
    gradient   2 S V                  with S = L + gamma P_T(V V' - T), sparse
    Hessian    H[D] = 2 (S D + gamma P_T(V D' + D V') V)

One product with S is one sparse product and the dot products on T. V is held as slabs (slabs, n, w), worked by threads.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dkl.linalg import slab_kernels as kernels
from dkl.linalg.lanes import lanes_of


class FactoredPairwise:
    """f, its gradient and Hessian products at V (slabs, n, w); a TwiceSmooth problem."""

    def __init__(
        self, laplacian: sparse.csr_array, targets: sparse.csr_array, gamma: float, width: int, threads: int = 1
    ) -> None:
        self.gamma, self.lanes, self.n = gamma, lanes_of(width), laplacian.shape[0]
        self.pool = ThreadPoolExecutor(threads) if threads > 1 else None
        # One sparse matrix on the union of both patterns; `at` says where T's entries are in it.
        ones = sparse.csr_array((np.ones(targets.nnz), targets.indices, targets.indptr), shape=targets.shape)
        magnitude = sparse.csr_array((np.ones(laplacian.nnz), laplacian.indices, laplacian.indptr), laplacian.shape)
        union = sparse.csr_array(ones + magnitude)
        union.sort_indices()
        self.indptr, self.indices = union.indptr.astype(np.int64), union.indices.astype(np.int32)
        self.t_indptr, self.t_indices = targets.indptr.astype(np.int64), targets.indices.astype(np.int32)
        self.targets = targets.data.astype(float)
        self.laplacian = np.zeros(union.nnz)
        self.laplacian[_positions(union, laplacian)] = laplacian.data
        self.at = _positions(union, targets)
        rows = np.repeat(np.arange(self.n), np.diff(self.indptr))
        self.diagonal = np.flatnonzero(self.indices == rows)
        self.t_left = np.repeat(np.arange(self.n, dtype=np.int32), np.diff(self.t_indptr))

    def close(self) -> None:
        if self.pool is not None:
            self.pool.shutdown()

    def _each(self, function: Any, slabs: int) -> list[Any]:
        if self.pool is None or slabs == 1:
            return [function(k) for k in range(slabs)]
        return list(self.pool.map(function, range(slabs)))

    def entries(self, x: NDArray, y: NDArray) -> NDArray[np.float64]:
        """x_i . y_j for every (i, j) in T, the slabs' sums added in order."""

        def one(k: int) -> NDArray[np.float64]:
            total = np.zeros(self.targets.size)
            kernels.edge_dots(self.t_indptr, self.t_indices, x[k], y[k], total, self.lanes)
            return total

        return np.sum(self._each(one, len(x)), axis=0)

    def product(self, data: NDArray, x: NDArray) -> NDArray:
        """A x for A with `data` on the union pattern."""
        out = np.zeros_like(x)
        values = data.astype(x.dtype, copy=False)
        self._each(
            lambda k: kernels.sparse_product(self.indptr, self.indices, values, x[k], out[k], self.lanes), len(x)
        )
        return out

    def value(self, v: NDArray) -> float:
        return self.evaluate(v)[0]

    def evaluate(self, v: NDArray) -> tuple[float, NDArray, NDArray]:
        """(f, gradient, S's data): everything that the other calls at this point need."""
        residual = self.entries(v, v) - self.targets
        data = self.laplacian.copy()
        smooth_product = self.product(data, v)
        smooth = float(np.vdot(v, smooth_product))
        data[self.at] += self.gamma * residual
        gradient = 2.0 * self.product(data, v)
        return smooth + 0.5 * self.gamma * float(residual @ residual), gradient, data

    def hessian_vector(self, v: NDArray, s_data: NDArray, d: NDArray) -> NDArray:
        """H[D] at V, given S's data from `evaluate`."""
        cross = self.entries(v, d)
        # P_T(V D' + D V') is symmetric: entry (i, j) is v_i.d_j + d_i.v_j.
        cross = cross + self._transposed(cross)
        data = np.zeros_like(s_data)
        data[self.at] = self.gamma * cross
        return 2.0 * (self.product(s_data, d) + self.product(data, v))

    def _transposed(self, values: NDArray) -> NDArray:
        if not hasattr(self, "_mirror"):
            numbered = sparse.csr_array(
                (np.arange(self.targets.size), self.t_indices, self.t_indptr), shape=(self.n, self.n)
            )
            mirrored = numbered.T.tocsr()
            mirrored.sort_indices()
            self._mirror = mirrored.data
        return values[self._mirror]

    def preconditioner(self, v: NDArray, s_data: NDArray) -> Any:
        """M^-1 for M_i = 2 (a_i I + 2 gamma v_i v_i'): the diagonal blocks that every pattern has, a_i = max(S_ii, floor)."""
        a = np.maximum(s_data[self.diagonal], 0.05 * np.abs(self.laplacian[self.diagonal]).max())
        norms = np.einsum("kic,kic->i", v, v)
        factor = 2 * self.gamma / (a + 2 * self.gamma * norms)

        def apply(r: NDArray) -> NDArray:
            inner = np.einsum("kic,kic->i", v, r) * factor
            return (r - inner[None, :, None] * v) / (2 * a)[None, :, None]

        return apply


def _positions(union: sparse.csr_array, part: sparse.csr_array) -> NDArray[np.int64]:
    """Where each entry of `part` is among those of `union`; both with sorted indices, part's pattern in union's."""
    n = np.int64(union.shape[1])

    def codes(matrix: sparse.csr_array) -> NDArray[np.int64]:
        rows = np.repeat(np.arange(matrix.shape[0], dtype=np.int64), np.diff(matrix.indptr))
        return rows * n + matrix.indices

    return np.searchsorted(codes(union), codes(part))
