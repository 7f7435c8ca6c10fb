"""Linear maps B of symmetric Y (m, m) to numbers, B(Y)_t = <B_t, Y>, applied to factors Y = R R'.

`RowForms`: any symmetric B_t, dense; `PairForms`: those of pairs of rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dkl.linalg.late_functions import njit

Array = NDArray[np.float64]
Indices = NDArray[np.intp]
CHUNK = 1024
"""Numbers of B that are worked on at a time, where each takes a row."""


class MapAtFactor(Protocol):
    """Map applied to a factor R (m, r)."""

    def squares(self) -> Array:
        """Return (p,) <B_t, R R'>."""

    def crossed(self, other: Self) -> Array:
        """Return (p,) <B_t, R D' + D R'>, the derivative of `squares` along the D (m, r) of another."""

    def curved(self, D: Array) -> Array:
        """Return (m, r) sum_t <B_t, R D' + D R'> B_t R, D (m, r)."""

    def curvature(self, V: Array) -> Array:
        """Return the diagonal (m, r) of J'J in the coordinates of an orthonormal V (m, m): |J d|^2 of d = v_j e_k'."""


class SymmetricMap(Protocol):
    """Y -> (<B_t, Y>)_t."""

    @property
    def shape(self) -> tuple[int, int]:
        """Return (p, m), the numbers of squares and of rows of Y."""

    def see(self, factor: Array) -> MapAtFactor:
        """Return the map at a factor (m, r)."""

    def adjoint(self, z: Array) -> Array:
        """Return (m, m) sum_t z_t B_t, symmetric."""

    def size(self) -> Array:
        """Return (m, m) sum_t |B_t|, or a psd matrix like it: in which directions the map sees how much."""

    def definite(self) -> NDArray[np.bool_]:
        """Return which B_t (p,) are psd."""

    def congruent(self, J: Array) -> Self:
        """Return the map with J'B_t J in the place of B_t, J (m, m)."""

    def single(self) -> Self:
        """Return the map in single precision."""

    def rows(self) -> Array:
        """Return (p, m (m + 1) / 2) svec(B_t)."""

    def gram(self, V: Array, i: Indices, j: Indices, scale: Array) -> Array:
        """Return (k, k) E'E for k pairs of columns of V, those at i_c and j_c.

        E_tc = scale_c <B_t, v_i v_j' + v_j v_i'>, (p, k), is held by CHUNK rows at a time.
        """


@dataclass(frozen=True)
class RowForms:
    """Map of any symmetric B_t (p, m, m): 8 p m^2 bytes, and r / m of it more for each factor seen."""

    forms: Array

    @property
    def shape(self) -> tuple[int, int]:
        """Return (p, m), the numbers of squares and of rows of Y."""
        return self.forms.shape[0], self.forms.shape[1]

    def see(self, factor: Array) -> SeenRows:
        """Return the map at a factor, by p products of m x m with (m, r)."""
        return SeenRows(factor, self.forms @ factor)

    def adjoint(self, z: Array) -> Array:
        """Return sum_t z_t B_t."""
        return np.tensordot(z, self.forms, axes=1)

    def size(self) -> Array:
        """Return sum_t |B_t|, by p eigen-decompositions."""
        values, vectors = np.linalg.eigh(self.forms)
        # |B_t| by the roots of its eigenvalues' sizes, so that the sum is psd.
        half = vectors * np.sqrt(np.abs(values))[:, None, :]
        return np.asarray(np.einsum("tij,tkj->ik", half, half))

    def definite(self) -> NDArray[np.bool_]:
        """Return which B_t are psd (p,), by their eigenvalues, to rounding."""
        values = np.linalg.eigvalsh(self.forms)
        # The rounding of an eigenvalue is relative to the largest one.
        return np.asarray(values[:, 0] >= -1e-14 * np.abs(values).max(axis=1))

    def congruent(self, J: Array) -> RowForms:
        """Return J'B_t J."""
        found = J.T @ self.forms @ J
        # Rounding leaves a congruence a little unsymmetric.
        return RowForms(0.5 * (found + found.transpose(0, 2, 1)))

    def single(self) -> RowForms:
        """Return the map with the forms in single precision."""
        return RowForms(self.forms.astype(np.float32))

    def rows(self) -> Array:
        """Return svec(B_t)."""
        i, j, scale = svec_places(self.forms.shape[1])
        return 2.0 * scale * self.forms[:, i, j]

    def gram(self, V: Array, i: Indices, j: Indices, scale: Array) -> Array:
        """Return the map's `gram` (k, k), from V'B_t V."""
        return gram_of(lambda some: 2.0 * scale * (V.T @ self.forms[some] @ V)[:, i, j], len(self.forms), len(i))


@dataclass(frozen=True)
class SeenRows:
    """R (m, r) and B_t R (p, m, r)."""

    factor: Array
    images: Array

    def squares(self) -> Array:
        """Return <B_t, R R'> (p,)."""
        return np.einsum("tmr,mr->t", self.images, self.factor)

    def crossed(self, other: SeenRows) -> Array:
        """Return <B_t, R D' + D R'> (p,)."""
        return 2.0 * np.einsum("tmr,mr->t", self.images, other.factor)

    def curved(self, D: Array) -> Array:
        """Return sum_t <B_t, R D' + D R'> B_t R (m, r), from the images."""
        return np.tensordot(2.0 * np.einsum("tmr,mr->t", self.images, D), self.images, axes=1)

    def curvature(self, V: Array) -> Array:
        """Return sum_t (2 v_j'B_t x_k)^2."""
        return 4.0 * np.einsum("tjk->jk", (V.T @ self.images) ** 2)


def gram_of(rows: Callable[[slice], Array], p: int, k: int) -> Array:
    """Return E'E (k, k) of E (p, k), whose rows `rows` computes by parts; in double, whatever their precision."""
    found = np.zeros((k, k))
    for lo in range(0, p, CHUNK):
        # By chunks, as E has a row for each square and a column for each pair.
        some = rows(slice(lo, lo + CHUNK))
        found += some.T @ some
    return found


def svec_places(m: int) -> tuple[Indices, Indices, Array]:
    """Return (i, j, scale), m (m + 1) / 2 each: svec(B)_c = scale_c <B, e_i e_j' + e_j e_i'>."""
    i, j = np.triu_indices(m)
    return i, j, np.where(i == j, 0.5, np.sqrt(0.5))


# -- entries and distances ---------------------------------------------------------------------------------------------
# Maps of entries and squared distances of Q Y Q': B_t = sym(a_t b_t'), a_t = Q'l_t, b_t = Q'r_t.
# l_t and r_t are sparse: a row, or the difference of two.


@dataclass(frozen=True)
class PairForms:
    """B_t = sym(Q'l_t r_t'Q): Q (n, m) dense, `left` and `right` (p, n) sparse with the rows l_t, r_t."""

    Q: Array
    left: sparse.csr_array
    right: sparse.csr_array
    spread: PairSpread
    """z -> sum_t z_t sym(l_t r_t'): the same for all Q."""

    @classmethod
    def of(cls, Q: Array, left: sparse.csr_array, right: sparse.csr_array) -> PairForms:
        """Build the forms from Q in any order of memory."""
        # The bits of BLAS depend on the order in memory.
        return cls(np.ascontiguousarray(Q), left, right, PairSpread.of(left, right))

    @classmethod
    def entries(cls, Q: Array, pairs: NDArray[np.integer], weights: Array) -> PairForms:
        """Build the map to weights_t (Q Y Q')_ij for pairs (p, 2) of rows."""
        root = np.sqrt(weights)
        return cls.of(Q, _rows(pairs[:, 0], root, len(Q)), _rows(pairs[:, 1], root, len(Q)))

    @classmethod
    def distances(cls, Q: Array, pairs: NDArray[np.integer], weights: Array) -> PairForms:
        """Build the map to weighted squared distances K_ii + K_jj - 2 K_ij, K = Q Y Q', of pairs (p, 2)."""
        root = np.sqrt(weights)
        # l_t = r_t is the difference of two rows, so B_t is psd and one product serves both sides.
        ends = sparse.csr_array(_rows(pairs[:, 0], root, len(Q)) - _rows(pairs[:, 1], root, len(Q)))
        return cls.of(Q, ends, ends)

    @property
    def shape(self) -> tuple[int, int]:
        """Return (p, m), the numbers of squares and of rows of Y."""
        return self.left.shape[0], self.Q.shape[1]

    def see(self, factor: Array) -> SeenPairs:
        """Return the map at a factor, by two products (n, m) x (m, r) and sparse ones."""
        K = self.Q @ factor
        left = self.left @ K
        # Distances have equal sides, for which half of the products are enough.
        return SeenPairs(self, left, left if self.right is self.left else self.right @ K)

    def adjoint(self, z: Array) -> Array:
        """Return Q'(sum_t z_t sym(l_t r_t')) Q."""
        found = self.Q.T @ (self.spread.matrix(z) @ self.Q)
        # The same matrix to rounding, made symmetric to the last bit.
        return 0.5 * (found + found.T)

    def size(self) -> Array:
        """Return sum_t (a_t a_t' + b_t b_t') / 2: sum_t |B_t| where a = b, and of no smaller trace where not."""
        found = self.Q.T @ (self.left.T @ (self.left @ self.Q) + self.right.T @ (self.right @ self.Q))
        return 0.25 * (found + found.T)

    def definite(self) -> NDArray[np.bool_]:
        """Return whether l_t = r_t (p,): of others Q'l_t and Q'r_t are parallel only by chance."""
        return np.asarray(abs(self.left - self.right).sum(axis=1)).ravel() == 0.0

    def congruent(self, J: Array) -> PairForms:
        """Return the map with Q J in the place of Q."""
        return replace(self, Q=self.Q @ J)

    def single(self) -> PairForms:
        """Return the map with Q and the weights in single precision."""
        # Numbers of Q of about 1, by a power of 2: others may be beyond single precision where those of B_t are not.
        unit = 2.0 ** np.frexp(float(np.abs(self.Q).max(initial=0.0)))[1]
        left = (self.left * unit).astype(np.float32)
        right = left if self.right is self.left else (self.right * unit).astype(np.float32)
        return PairForms((self.Q / unit).astype(np.float32), left, right, self.spread.single(unit**2))

    def rows(self) -> Array:
        """Return svec(sym(a_t b_t'))."""
        i, j, scale = svec_places(self.Q.shape[1])
        return _products(self.left @ self.Q, self.right @ self.Q, i, j, scale)

    def gram(self, V: Array, i: Indices, j: Indices, scale: Array) -> Array:
        """Return the map's `gram` (k, k), from a_t'V and b_t'V."""
        turned = self.Q @ V
        left = self.left @ turned
        right = left if self.right is self.left else self.right @ turned
        return gram_of(lambda some: _products(left[some], right[some], i, j, scale), len(left), len(i))


@dataclass(frozen=True)
class SeenPairs:
    """a_t'R and b_t'R, (p, r) each."""

    map: PairForms
    left: Array
    right: Array

    def squares(self) -> Array:
        """Return <B_t, R R'> (p,)."""
        return np.einsum("tr,tr->t", self.left, self.right)

    def crossed(self, other: SeenPairs) -> Array:
        """Return <B_t, R D' + D R'> (p,)."""
        half = np.einsum("tr,tr->t", self.left, other.right)
        if self.left is self.right:
            return 2.0 * half
        return half + np.einsum("tr,tr->t", other.left, self.right)

    def curved(self, D: Array) -> Array:
        """Return Q'(sum_t z_t (l_t b_t'R + r_t a_t'R) / 2), z_t = a_t'D R'b_t + b_t'D R'a_t."""
        m, image = self.map, self.map.Q @ D
        a, b = m.left, m.right
        left, right = np.ascontiguousarray(self.left), np.ascontiguousarray(self.right)
        total = _curved(a.indptr, a.indices, a.data, b.indptr, b.indices, b.data, left, right, image)
        return m.Q.T @ total

    def curvature(self, V: Array) -> Array:
        """Return sum_t (a_t'v_j b_t'x_k + b_t'v_j a_t'x_k)^2."""
        m = self.map
        turned = m.Q @ V
        a = m.left @ turned
        if self.left is self.right:
            return 4.0 * (a**2).T @ self.left**2
        b, found = m.right @ turned, np.zeros((V.shape[1], self.left.shape[1]), V.dtype)
        # By chunks of the pairs: A, B and the sides would all be held at once otherwise.
        for lo in range(0, len(a), CHUNK):
            rows = slice(lo, lo + CHUNK)
            A, B, left, right = a[rows], b[rows], self.left[rows], self.right[rows]
            found += (A * A).T @ (right * right) + (B * B).T @ (left * left) + 2.0 * (A * B).T @ (left * right)
        return found


@njit(cache=True, nogil=True)
def _products(left: Array, right: Array, i: Indices, j: Indices, scale: Array) -> Array:
    """Return (p, k) scale_c (l_ti r_tj + l_tj r_ti), left and right (p, m): <sym(l_t r_t'), v_i v_j' + v_j v_i'>, scaled."""
    found = np.empty((len(left), len(i)), left.dtype)
    for t in range(len(left)):
        for c in range(len(i)):
            found[t, c] = scale[c] * (left[t, i[c]] * right[t, j[c]] + left[t, j[c]] * right[t, i[c]])
    return found


@njit(cache=True, nogil=True, fastmath={"reassoc", "nsz", "contract"})
def _curved(
    l_indptr: Indices, l_indices: Indices, l_data: Array, r_indptr: Indices, r_indices: Indices, r_data: Array,
    left: Array, right: Array, image: Array,
) -> Array:  # fmt: skip
    """Return (n, r) sum_t z_t (l_t right_t + r_t left_t) / 2, z_t = l_t'image . right_t + r_t'image . left_t.

    left, right (p, r); image (n, r).
    """
    # One loop, where sparse products would write and read four arrays (p, r).
    found = np.zeros_like(image)
    for t in range(len(left)):
        z = image.dtype.type(0)
        for e in range(l_indptr[t], l_indptr[t + 1]):
            row, total = image[l_indices[e]], image.dtype.type(0)
            for c in range(len(row)):
                total += row[c] * right[t, c]
            z += l_data[e] * total
        for e in range(r_indptr[t], r_indptr[t + 1]):
            row, total = image[r_indices[e]], image.dtype.type(0)
            for c in range(len(row)):
                total += row[c] * left[t, c]
            z += r_data[e] * total
        z *= image.dtype.type(0.5)
        for e in range(l_indptr[t], l_indptr[t + 1]):
            row, weight = found[l_indices[e]], z * l_data[e]
            for c in range(len(row)):
                row[c] += weight * right[t, c]
        for e in range(r_indptr[t], r_indptr[t + 1]):
            row, weight = found[r_indices[e]], z * r_data[e]
            for c in range(len(row)):
                row[c] += weight * left[t, c]
    return found


def _rows(index: NDArray[np.integer], value: Array, n: int) -> sparse.csr_array:
    """Return (p, n) with value_t at column index_t of row t."""
    p = len(index)
    return sparse.csr_array((value, np.asarray(index, np.int64), np.arange(p + 1)), shape=(p, n))


# Sums of weighted pairs of sparse rows, whose places are the same whatever the weights.


@dataclass(frozen=True)
class PairSpread:
    """z -> sum_t z_t sym(l_t r_t'), whose places are the same for all z: CSR of `indptr` and `indices`, values = weights @ z."""

    indptr: NDArray[np.integer]
    indices: NDArray[np.integer]
    weights: sparse.csr_array

    @classmethod
    def of(cls, left: sparse.csr_array, right: sparse.csr_array) -> PairSpread:
        """Build the sum of left and right (p, n)."""
        p, n = left.shape
        # Row t of `both` is vec(l_t r_t'): each number of l_t meets all of r_t.
        # `other`: for each number of l_t the places of all of r_t in right.data, one range after the other.
        meets = np.diff(right.indptr)[np.repeat(np.arange(p), np.diff(left.indptr))]
        first = np.repeat(right.indptr[:-1], np.diff(left.indptr))
        other = np.arange(meets.sum()) - np.repeat(np.cumsum(meets) - meets, meets) + np.repeat(first, meets)
        i, j = np.repeat(left.indices, meets).astype(np.int64), right.indices[other].astype(np.int64)
        t = np.repeat(np.repeat(np.arange(p), np.diff(left.indptr)), meets)
        half = 0.5 * np.repeat(left.data, meets) * right.data[other]
        codes, place = np.unique(np.concatenate([i * n + j, j * n + i]), return_inverse=True)
        weights = sparse.coo_array((np.tile(half, 2), (place, np.tile(t, 2))), shape=(len(codes), p)).tocsr()
        indptr = np.searchsorted(codes // n, np.arange(n + 1)) if len(codes) else np.zeros(n + 1, np.int64)
        return cls(indptr, codes % n, weights)

    def single(self, times: float = 1.0) -> PairSpread:
        """Return the sum with its matrices multiplied by `times`, in single precision."""
        return replace(self, weights=(self.weights * times).astype(np.float32))

    def matrix(self, z: Array) -> sparse.csr_array:
        """Return the sum (n, n) for z."""
        n = len(self.indptr) - 1
        return sparse.csr_array((self.weights @ z, self.indices, self.indptr), shape=(n, n))
