"""Entries of K V K for a sparse symmetric V, where only those on V's own pattern are wanted.

K (b, b) is dense. V K costs 2 nnz(V) b operations and each entry of K (V K) 2 b more: a fraction of the 4 b^3 of two products of
matrices. Columns of K are worked on by panels that stay in the cache.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dkl.linalg.late_functions import njit
from dkl.linalg.slabs.slab_ops import add_sparse_row, lanes_of

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]
Indices = NDArray[np.intp]
PANEL = 32
"""Columns of a panel: of 2,000 rows 1/4 MB in float32."""
LANES = lanes_of(PANEL)
STRIP = 16
"""Rows that are turned at a time: a cache line of float32."""
TASK, SHARED = 4, 32
"""Panels that a thread takes at a time, and number of them from which on threads are worth it: 1,024 columns."""


@dataclass(frozen=True)
class SymmetricPattern:
    """Distinct places (rows[e], columns[e]) of a symmetric matrix of size n, rows <= columns, sorted by rows.

    A weight u_e stands for u_e K[rows[e], columns[e]] in <V, K>: V holds it on the diagonal, and half of it at both
    places off the diagonal.
    """

    n: int
    rows: Indices
    columns: Indices

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def share(self) -> Vector:
        """Return the share (q,) of u_e that one place holds: 1 on the diagonal, else 1/2."""
        # V holds u_e at both places together, so that <V, K> = sum of u_e K_ij.
        return np.where(self.rows == self.columns, 1.0, 0.5)

    @cached_property
    def _both(self) -> tuple[NDArray[np.int32], NDArray[np.int32], Indices]:
        """Return (indptr, indices, places): V as CSR, its k-th number being that of entry places[k]."""
        off = np.flatnonzero(self.rows != self.columns)
        entries = np.concatenate([np.arange(len(self)), off])
        rows = np.concatenate([self.rows, self.columns[off]])
        columns = np.concatenate([self.columns, self.rows[off]])
        order = np.lexsort((columns, rows))
        # CSR by hand: the places of the entries are kept, so that another V needs only other values.
        indptr = np.zeros(self.n + 1, dtype=np.int32)
        np.cumsum(np.bincount(rows, minlength=self.n), out=indptr[1:])
        return indptr, columns[order].astype(np.int32), entries[order]

    def matrix(self, u: Vector) -> sparse.csr_array:
        """Return V (n, n) of the weights u (q,)."""
        indptr, indices, places = self._both
        return sparse.csr_array(((u * self.share)[places], indices, indptr), shape=(self.n, self.n))

    def add_to(self, u: Vector, target: Matrix) -> None:
        """Compute target (n, n) += V, in place."""
        half = u * self.share
        target[self.rows, self.columns] += half
        off = self.rows != self.columns
        target[self.columns[off], self.rows[off]] += half[off]

    def times(self, vector: Vector) -> sparse.csr_array:
        """Return (q, n): in row e the product V z, z = vector (n,), of the V with the weight 1 at entry e alone."""
        e = np.arange(len(self))
        off = np.flatnonzero(self.rows != self.columns)
        values = np.concatenate([self.share * vector[self.columns], self.share[off] * vector[self.rows[off]]])
        places = (np.concatenate([e, off]), np.concatenate([self.rows, self.columns[off]]))
        return sparse.csr_array((values, places), shape=(len(self), self.n))

    def of(self, K: Matrix) -> Vector:
        """Return the entries (q,) of K."""
        return np.asarray(K[self.rows, self.columns])

    def gram(self, K: Matrix, entries: Indices) -> Matrix:
        """Return (k, k) tr(V_e K V_f K) of the weight 1 at each of k chosen entries.

        For e = (i, j) and f = (k, l) it is (K_ik K_jl + K_il K_jk) / 2.
        """
        i, j = self.rows[entries], self.columns[entries]
        out = K[np.ix_(i, i)]
        out *= K[np.ix_(j, j)]
        crossed = K[np.ix_(i, j)]
        crossed *= crossed.T
        out += crossed
        out /= 2.0
        return out

    @cached_property
    def _panels(self) -> tuple[Indices, Indices]:
        """Return (order, first): entries by panel of their rows, then by columns; panel k starts at first[k]."""
        # Entries by the panel of their rows, since a panel of V K is made at a time.
        panel = self.rows // PANEL
        order = np.lexsort((self.rows, self.columns, panel))
        return order, np.searchsorted(panel, np.arange(-(-self.n // PANEL) + 1))

    @property
    def is_worth_threads(self) -> bool:
        """Return whether `congruence` cuts its work over threads."""
        return self.n > (SHARED - 1) * PANEL

    def congruence(self, K: NDArray[np.floating], u: Vector, threads: int = 1) -> Vector:
        """Return (q,) entries of K V K; K (n, n) symmetric, C-contiguous, float64 or float32, which the arithmetic is done in.

        Of several threads each takes the next TASK panels: the bytes are the same, and none waits for one that is held up.
        """
        indptr, indices, places = self._both
        order, first = self._panels
        out = np.empty(len(self))
        # In K's precision, as a mixed product would be computed in double.
        values = (u * self.share)[places].astype(K.dtype)
        given: Any = (K, indptr, indices, values, first, order, self.rows, self.columns)
        count = len(first) - 1
        if threads == 1 or not self.is_worth_threads:
            _sampled(*(*given, 0, count, LANES, out))
            return out
        with ThreadPoolExecutor(threads) as pool:
            pieces = [(k, min(k + TASK, count)) for k in range(0, count, TASK)]
            # Each panel writes only its own entries of `out`, so that no order of threads changes a bit.
            running = [pool.submit(_sampled, *(*given, *piece, LANES, out)) for piece in pieces]
            for one in running:
                one.result()
        return out


@njit(cache=True, nogil=True, fastmath={"reassoc", "nsz", "contract"})
def _sampled(
    K: NDArray[np.floating],
    indptr: NDArray[np.int32],
    indices: NDArray[np.int32],
    values: NDArray[np.floating],
    first: Indices,
    order: Indices,
    rows: Indices,
    columns: Indices,
    begin: int,
    end: int,
    lanes: tuple[int, ...],
    out: Vector,
) -> None:
    """Compute out_e = K[j, :] (V K)[:, i] for the entries e = (i, j), i in one after the other of the panels from `begin` to `end`."""
    n = K.shape[0]
    narrow, strip = np.zeros((n, PANEL), K.dtype), np.zeros((STRIP, PANEL), K.dtype)
    turned = np.empty((PANEL, n), K.dtype)
    for panel in range(begin, end):
        lo = panel * PANEL
        width = min(PANEL, n - lo)
        # The panel of K is copied to columns that lie together, which all rows of V read.
        for m in range(n):
            for j in range(width):
                narrow[m, j] = K[m, lo + j]
        for top in range(0, n, STRIP):
            bottom = min(n, top + STRIP)
            strip[:] = 0.0
            for row in range(top, bottom):
                add_sparse_row(indices, values, indptr[row], indptr[row + 1], narrow, strip, row - top, lanes)
            # Turned, so that an entry is a dot product of two rows in memory.
            for j in range(width):
                for row in range(top, bottom):
                    turned[j, row] = strip[row - top, j]
        for e in order[first[panel] : first[panel + 1]]:
            left, right, total = K[columns[e]], turned[rows[e] - lo], K.dtype.type(0.0)
            for m in range(n):
                total += left[m] * right[m]
            out[e] = total


@njit(cache=True, nogil=True)
def mirror_upper(K: Matrix) -> None:
    """Copy the upper triangle of K (n, n) to the lower one, in place, by tiles."""
    n = K.shape[0]
    for top in range(0, n, 32):
        for left in range(top, n, 32):
            for i in range(top, min(top + 32, n)):
                for j in range(max(left, i + 1), min(left + 32, n)):
                    K[j, i] = K[i, j]
