"""Lanczos' three-term recurrence for a shared matrix, without reorthogonalization.

What rounding costs is copies of Ritz values that were found, none beyond the spectrum (Paige, Linear Algebra and its Applications 34,
1980).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh_tridiagonal

from dkl.linalg.one_blas_thread import one_blas_thread
from dkl.linalg.shared_matrix import SharedMatrix

Array = NDArray[np.float64]


class Lanczos:
    """Steps from a start (n_own,), which `project` (x (n_own,) in place) keeps within a subspace; `diagonal` and `off` are T's."""

    def __init__(self, matrix: SharedMatrix, start: Array, project: Callable[[Array], None] | None = None) -> None:
        self.matrix, self.project, self.n = matrix, project, matrix.rows.n_own
        room = self.n + matrix.halo.size
        self.vector, self.before, self.image = np.zeros(room), np.zeros(room), np.zeros(room)
        self.vector[: self.n] = start
        self._projected(self.vector)
        self.vector[: self.n] /= np.sqrt(matrix.rows.dot(self.vector, self.vector))
        self.diagonal: list[float] = []
        self.off: list[float] = []

    def step(self) -> bool:
        """One more; False where the vectors found so far span an invariant subspace."""
        rows, n, beside = self.matrix.rows, self.n, self.off[-1] if self.off else 0.0
        with one_blas_thread():
            self.matrix.times(self.vector, self.image, beside, self.before)
            self.diagonal.append(rows.dot(self.vector, self.image))
            self.image[:n] -= self.diagonal[-1] * self.vector[:n]
            # Last: what rounding leaves of the outside in a vector would grow from step to step.
            self._projected(self.image)
            self.off.append(float(np.sqrt(rows.dot(self.image, self.image))))
        if self.off[-1] <= 1e-14 * float(np.abs(self.diagonal).max()):
            return False
        self.image[:n] /= self.off[-1]
        self.before, self.vector, self.image = self.vector, self.image, self.before
        return True

    def end(self, which: int) -> tuple[float, float]:
        """(Ritz value, its residual) at one end: which = 0 for the lowest, -1 for the highest."""
        at = which % len(self.diagonal)
        values, vectors = eigh_tridiagonal(self.diagonal, self.off[:-1], select="i", select_range=(at, at))
        return float(values[0]), abs(self.off[-1] * float(vectors[-1, 0]))

    def _projected(self, x: Array) -> None:
        if self.project is not None:
            self.project(x[: self.n])
