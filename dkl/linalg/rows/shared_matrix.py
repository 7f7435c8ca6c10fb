"""A sparse symmetric matrix by the rows of one owner, and its products with tall arrays shared alike."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy import sparse

from dkl.linalg.late_functions import njit
from dkl.linalg.rows.shared_rows import Halo, SharedRows
from dkl.linalg.slabs.layout import WIDTH, empty_aligned
from dkl.linalg.slabs.simd import lanes_of
from dkl.linalg.slabs.slab_ops import product_rows

Array = NDArray[np.float64]


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
        """Make it from the own rows (n_own, n); halo: one that holds at least what these entries meet."""
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
        """Return zeros (n_own + halo, WIDTH): what memory held may be a signaling NaN."""
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
