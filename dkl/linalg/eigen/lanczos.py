"""Lanczos' three-term recurrence for a shared matrix, without reorthogonalization.

What rounding costs is copies of Ritz values that were found, none beyond the spectrum (Paige, Linear Algebra and its Applications 34,
1980).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh_tridiagonal

from dkl.linalg.one_blas_thread import one_blas_thread
from dkl.linalg.rows.shared_matrix import SharedMatrix

Array = NDArray[np.float64]


class Lanczos:
    """Steps from a start (n_own,), outside the range of `outside` (n_own, k), orthonormal columns; `diagonal` and `off` are T's."""

    def __init__(self, matrix: SharedMatrix, start: Array, outside: Array | None = None) -> None:
        self.matrix, self.n, rows = matrix, matrix.rows.n_own, matrix.rows
        self.q = np.zeros((self.n, 0)) if outside is None else np.ascontiguousarray(outside)
        room = self.n + matrix.halo.size
        self.vector, self.before, self.image = np.zeros(room), np.zeros(room), np.zeros(room)
        with one_blas_thread():
            self.vector[: self.n] = start - self._combined(rows.gram(self.q, start))
            self.vector[: self.n] /= np.sqrt(rows.dot(self.vector, self.vector))
        self.diagonal: list[float] = []
        self.off: list[float] = []

    def step(self) -> bool:
        """Do a step; return False if the vectors found so far span an invariant subspace."""
        rows, n, off_diagonal = self.matrix.rows, self.n, self.off[-1] if self.off else 0.0
        with one_blas_thread():
            self.matrix.times(self.vector, self.image, off_diagonal, self.before)
            alpha, *inside = rows.sum(self._products)
            self.diagonal.append(float(alpha))
            # With what the vector itself has of q: what rounding leaves of that would grow from step to step.
            of_image, of_vector = np.split(np.array(inside), 2)
            self.image[:n] -= alpha * self.vector[:n] + self._combined(of_image - alpha * of_vector)
            self.off.append(float(np.sqrt(rows.dot(self.image, self.image))))
        if self.off[-1] <= 1e-14 * float(np.abs(self.diagonal).max()):
            return False
        self.image[:n] /= self.off[-1]
        self.before, self.vector, self.image = self.vector, self.image, self.before
        return True

    def end(self, which: int) -> tuple[float, float]:
        """Return (Ritz value, its residual) at one end: which = 0 for the lowest, -1 for the highest."""
        at = which % len(self.diagonal)
        values, vectors = eigh_tridiagonal(self.diagonal, self.off[:-1], select="i", select_range=(at, at))
        return float(values[0]), abs(self.off[-1] * float(vectors[-1, 0]))

    def _products(self, lo: int, hi: int) -> Array:
        """Return [x'Mx, q'Mx, q'x] of some rows: one sum for all."""
        q, x, image = self.q[lo:hi], self.vector[lo:hi], self.image[lo:hi]
        return np.concatenate([[x @ image], q.T @ image, q.T @ x])

    def _combined(self, weights: Array) -> Array:
        """Return q weights (n_own,)."""
        return self.matrix.rows.times(self.q, weights[:, None])[:, 0]
