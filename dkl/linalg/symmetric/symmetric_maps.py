"""Linear maps B of symmetric Y (m, m) to numbers, B(Y)_t = <B_t, Y>, applied to factors Y = R R'.

`RowForms`: any symmetric B_t, dense. Those of pairs of rows: pair_forms.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh

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
        """(m, r) |J d|^2 of d = v_j e_k', for the columns v_j of an orthonormal V (m, m): the diagonal of J'J in these coordinates."""


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
        """(k, k) E'E of E (p, k), E_tc = scale_c <B_t, v_i v_j' + v_j v_i'>, of the pairs of columns of V at i_c and j_c (k,).

        E is held by CHUNK rows at a time.
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
    """Return (k, k) E'E of E (p, k), of which `rows` computes some; in double, whatever these are in."""
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


# Components of a Mahalanobis matrix W = C'C, in which a metric is handed out.

Matrix = NDArray[np.float64]


def metric_components(W: Matrix) -> Matrix:
    """Return C (d, d) of W = C'C (d, d), in descending order of W's eigenvalues, negative ones cut at 0; largest entries are positive."""
    values, vectors = eigh(0.5 * (W + W.T))
    largest = vectors[np.abs(vectors).argmax(axis=0), np.arange(len(W))]
    signed = vectors * np.where(largest < 0, -1.0, 1.0)
    return np.ascontiguousarray((signed * np.sqrt(np.maximum(values, 0.0))).T[::-1])
