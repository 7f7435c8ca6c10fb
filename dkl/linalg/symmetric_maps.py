"""Linear maps B of symmetric matrices Y (m, m) to numbers, B(Y)_t = <B_t, Y>, applied to factors Y = R R'.

`PairForms`: B_t = sym(a_t b_t') with a_t = Q'l_t, b_t = Q'r_t for sparse rows l_t, r_t: entries and squared distances of
Q Y Q', neither of which is formed. `RowForms`: any symmetric B_t, dense.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

Array = NDArray[np.float64]


class Seen(Protocol):
    """What a map keeps of a factor R (m, r)."""

    def squares(self) -> Array:
        """(p,) <B_t, R R'>."""

    def crossed(self, other: Self) -> Array:
        """(p,) <B_t, R D' + D R'>, the derivative of `squares` along the D (m, r) of another."""

    def pulled(self, z: Array) -> Array:
        """(m, r) sum_t z_t B_t R."""

    def curvatures(self) -> Iterator[Array]:
        """For each column x of R the (m, m) matrix 4 sum_t (B_t x)(B_t x)'."""

    def jacobian(self) -> Array:
        """(p, m r) 2 B_t R, column by column of R: the derivative of `squares`; 8 p m r bytes."""


class SymmetricMap(Protocol):
    """Y -> (<B_t, Y>)_t."""

    @property
    def shape(self) -> tuple[int, int]:
        """(p, m)."""

    def see(self, factor: Array) -> Seen:
        """The map at a factor (m, r)."""

    def adjoint(self, z: Array) -> Array:
        """(m, m) sum_t z_t B_t, symmetric."""

    def size(self) -> Array:
        """(m, m) sum_t |B_t|, or a psd matrix like it: in which directions the map sees how much."""

    def congruent(self, J: Array) -> Self:
        """The map with J'B_t J in the place of B_t, J (m, m)."""

    def rows(self) -> Array:
        """(p, m (m + 1) / 2) svec(B_t)."""


@dataclass(frozen=True)
class PairForms:
    """B_t = sym(Q'l_t r_t'Q): Q (n, m) dense, `left` and `right` (p, n) sparse with the rows l_t, r_t."""

    Q: Array
    left: sparse.csr_array
    right: sparse.csr_array

    @classmethod
    def entries(cls, Q: Array, pairs: NDArray[np.integer], weights: Array) -> PairForms:
        """weights_t (Q Y Q')_ij for pairs (p, 2) of rows."""
        root = np.sqrt(weights)
        return cls(np.ascontiguousarray(Q), _rows(pairs[:, 0], root, len(Q)), _rows(pairs[:, 1], root, len(Q)))

    @classmethod
    def distances(cls, Q: Array, pairs: NDArray[np.integer], weights: Array) -> PairForms:
        """weights_t times the squared distance K_ii + K_jj - 2 K_ij, K = Q Y Q', for pairs (p, 2) of rows."""
        root = np.sqrt(weights)
        ends = sparse.csr_array(_rows(pairs[:, 0], root, len(Q)) - _rows(pairs[:, 1], root, len(Q)))
        return cls(np.ascontiguousarray(Q), ends, ends)

    @property
    def shape(self) -> tuple[int, int]:
        """(p, m)."""
        return self.left.shape[0], self.Q.shape[1]

    def see(self, factor: Array) -> SeenPairs:
        """Two products (n, m) x (m, r) and sparse ones."""
        K = self.Q @ factor
        left = self.left @ K
        return SeenPairs(self, left, left if self.right is self.left else self.right @ K)

    def adjoint(self, z: Array) -> Array:
        """Q'(sum_t z_t sym(l_t r_t')) Q."""
        inner = self.left.T @ (sparse.diags_array(z) @ self.right)
        found = self.Q.T @ (inner @ self.Q)
        return 0.5 * (found + found.T)

    def size(self) -> Array:
        """sum_t (a_t a_t' + b_t b_t') / 2: sum_t |B_t| where a = b, and of no smaller trace where not."""
        found = self.Q.T @ (self.left.T @ (self.left @ self.Q) + self.right.T @ (self.right @ self.Q))
        return 0.25 * (found + found.T)

    def congruent(self, J: Array) -> PairForms:
        """Q J in the place of Q."""
        return PairForms(self.Q @ J, self.left, self.right)

    def rows(self) -> Array:
        """svec(sym(a_t b_t'))."""
        return svec_products(self.left @ self.Q, self.right @ self.Q)


@dataclass(frozen=True)
class SeenPairs:
    """a_t'R and b_t'R, (p, r) each."""

    map: PairForms
    left: Array
    right: Array

    def squares(self) -> Array:
        """(p,)."""
        return np.einsum("tr,tr->t", self.left, self.right)

    def crossed(self, other: SeenPairs) -> Array:
        """(p,)."""
        half = np.einsum("tr,tr->t", self.left, other.right)
        if self.left is self.right:
            return 2.0 * half
        return half + np.einsum("tr,tr->t", other.left, self.right)

    def pulled(self, z: Array) -> Array:
        """(m, r)."""
        m, weights = self.map, z[:, None]
        if self.left is self.right:
            return m.Q.T @ (m.left.T @ (weights * self.left))
        return 0.5 * (m.Q.T @ (m.left.T @ (weights * self.right) + m.right.T @ (weights * self.left)))

    def curvatures(self) -> Iterator[Array]:
        """2 B_t x = a_t (b_t'x) + b_t (a_t'x)."""
        m = self.map
        if self.left is self.right:
            for seen in self.left.T:
                yield 4.0 * m.adjoint(seen**2)
            return
        a, b = m.left @ m.Q, m.right @ m.Q
        for left, right in zip(self.left.T, self.right.T, strict=True):
            image = right[:, None] * a + left[:, None] * b
            yield image.T @ image

    def jacobian(self) -> Array:
        """a_t (b_t'x) + b_t (a_t'x)."""
        m = self.map
        a = m.left @ m.Q
        if self.left is self.right:
            found = 2.0 * self.left[:, :, None] * a[:, None, :]
        else:
            found = self.right[:, :, None] * a[:, None, :]
            found += self.left[:, :, None] * (m.right @ m.Q)[:, None, :]
        return found.reshape(len(a), -1)


@dataclass(frozen=True)
class RowForms:
    """Any B_t, (p, m, m), each symmetric: 8 p m^2 bytes, and r / m of it more for each factor that is seen."""

    forms: Array

    @property
    def shape(self) -> tuple[int, int]:
        """(p, m)."""
        return self.forms.shape[0], self.forms.shape[1]

    def see(self, factor: Array) -> SeenRows:
        """p products of m x m with (m, r)."""
        return SeenRows(factor, self.forms @ factor)

    def adjoint(self, z: Array) -> Array:
        """sum_t z_t B_t."""
        return np.tensordot(z, self.forms, axes=1)

    def size(self) -> Array:
        """sum_t |B_t|, by p eigen-decompositions."""
        values, vectors = np.linalg.eigh(self.forms)
        half = vectors * np.sqrt(np.abs(values))[:, None, :]
        return np.asarray(np.einsum("tij,tkj->ik", half, half))

    def congruent(self, J: Array) -> RowForms:
        """J'B_t J."""
        found = J.T @ self.forms @ J
        return RowForms(0.5 * (found + found.transpose(0, 2, 1)))

    def rows(self) -> Array:
        """svec(B_t)."""
        i, j = np.triu_indices(self.forms.shape[1])
        return self.forms[:, i, j] * np.where(i == j, 1.0, np.sqrt(2.0))


@dataclass(frozen=True)
class SeenRows:
    """R (m, r) and B_t R (p, m, r)."""

    factor: Array
    images: Array

    def squares(self) -> Array:
        """(p,)."""
        return np.einsum("tmr,mr->t", self.images, self.factor)

    def crossed(self, other: SeenRows) -> Array:
        """(p,)."""
        return 2.0 * np.einsum("tmr,mr->t", self.images, other.factor)

    def pulled(self, z: Array) -> Array:
        """(m, r)."""
        return np.tensordot(z, self.images, axes=1)

    def curvatures(self) -> Iterator[Array]:
        """From the images alone."""
        for k in range(self.images.shape[2]):
            column = np.ascontiguousarray(self.images[:, :, k])
            yield 4.0 * (column.T @ column)

    def jacobian(self) -> Array:
        """From the images alone."""
        return 2.0 * np.ascontiguousarray(self.images.transpose(0, 2, 1)).reshape(len(self.images), -1)


def svec_products(left: Array, right: Array) -> Array:
    """(p, m (m + 1) / 2): svec(sym(l_t r_t')) of the rows of left and right (p, m)."""
    i, j = np.triu_indices(left.shape[1])
    both = left[:, i] * right[:, j] + left[:, j] * right[:, i]
    return 0.5 * np.where(i == j, 1.0, np.sqrt(2.0)) * both


def _rows(index: NDArray[np.integer], value: Array, n: int) -> sparse.csr_array:
    """(p, n) with value_t at column index_t of row t."""
    p = len(index)
    return sparse.csr_array((value, np.asarray(index, np.int64), np.arange(p + 1)), shape=(p, n))
