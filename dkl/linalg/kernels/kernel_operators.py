"""Operations of a kernel matrix too large to look at: its products, some of its columns, small parts.

Solvers and problems ask for no more; `dkl.blocks.kernels.kernel_operator` has it in memory, on disk, recomputed and on workers.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]


class KernelOperator(Protocol):
    """K (n, n), symmetric positive semidefinite, by its products."""

    @property
    def n(self) -> int:
        """Return the number of rows of K."""

    def times(self, v: Vector) -> Vector:
        """Return K v for v (n,), in float64."""

    def columns(self, chosen: NDArray[np.intp]) -> NDArray[np.float64]:
        """Return these columns (n, k) of K."""

    def block(self, chosen: NDArray[np.intp]) -> NDArray[np.float64]:
        """Return these rows and columns (k, k) of K."""


class RowsOf:
    """Kernel of some rows of another, without a copy: a product with it is one with the whole."""

    def __init__(self, whole: KernelOperator, rows: NDArray[np.intp]) -> None:
        self.whole, self.rows = whole, rows

    @property
    def n(self) -> int:
        """Return the number of rows."""
        return len(self.rows)

    def times(self, v: Vector) -> Vector:
        """Return K v for v (n,), in float64."""
        spread = np.zeros(self.whole.n)
        spread[self.rows] = v
        return self.whole.times(spread)[self.rows]

    def columns(self, chosen: NDArray[np.intp]) -> NDArray[np.float64]:
        """Return these columns (n, k) of K."""
        return self.whole.columns(self.rows[chosen])[self.rows]

    def block(self, chosen: NDArray[np.intp]) -> NDArray[np.float64]:
        """Return these rows and columns (k, k) of K."""
        return self.whole.block(self.rows[chosen])


class HeldKernel:
    """A small kernel matrix itself."""

    def __init__(self, matrix: NDArray[np.float64]) -> None:
        self.matrix, self.n = matrix, len(matrix)

    def times(self, v: Vector) -> Vector:
        """Return K v for v (n,), in float64."""
        return np.asarray(self.matrix @ v)

    def columns(self, chosen: NDArray[np.intp]) -> NDArray[np.float64]:
        """Return these columns (n, k) of K."""
        return self.matrix[:, chosen]

    def block(self, chosen: NDArray[np.intp]) -> NDArray[np.float64]:
        """Return these rows and columns (k, k) of K."""
        return self.matrix[np.ix_(chosen, chosen)]


class PartedKernel(KernelOperator, Protocol):
    """A kernel of which a solver takes the part at a working set."""

    @property
    def dtype(self) -> np.dtype:
        """Return the precision of products."""

    @property
    def fits(self) -> bool:
        """Return whether the part of all rows is held in memory, as smaller ones are."""

    def part(self, chosen: NDArray[np.intp]) -> PartedKernel:
        """Return K of these rows, for many products, perhaps in less precision."""

    def roughly(self, v: Vector) -> Vector:
        """Return K v in the precision of parts."""
