"""Operations of a kernel matrix that is too large to be held: its products, some of its columns, small parts.

Solvers and problems ask for no more; `dkl.blocks.kernels.kernel_operator` has it in memory, on disk, recomputed and on workers.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from dkl.errors import InputError
from dkl.resources import one_blas_thread

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
    """Kernel whose rows and columns at a working set make a smaller one, for a solver."""

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


# A kernel's distances as those of rows, exactly: for kernels small enough to be held and decomposed whole.

MATRICES_HELD = 6
"""n x n float64 arrays alive at the peak: K, its symmetric part, eigenvectors, two of LAPACK's workspace, a spare."""
ENTRIES = 4.0
"""Bound of the eigenvalues of a matrix of roundings, in units of the largest entry's and of sqrt(n)."""


def exact_factor(K: NDArray[np.floating], *, where: str = "kernel") -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return (V, P), both (n, p), with K_ii - 2 K_ij + K_jj = |V_i - V_j|^2 and V = K P.

    P = U / sqrt(lambda) for H K H = U diag(lambda) U'. H = I - 1 1'/n, as distances do not change where a constant is added to K, in which
    the digits of a kernel that is all but constant would be lost. A row k(x) of kernel values with the n patterns becomes the coordinates
    k(x) P. They differ from the feature map of x by a part that is orthogonal to all differences of patterns, hence by the same length
    from each mean of patterns, and by a point that is the same for all x. Eigenvalues within rounding of zero (10 n eps lambda_max and
    what the entries of K are rounded, eps that of K's dtype) are dropped. Raises InputError when K is not symmetric, or H K H has an
    eigenvalue below minus that.
    """
    n = K.shape[0]
    if K.shape != (n, n):
        raise InputError("the kernel matrix is not square", where=where, got=f"shape {K.shape}", wanted="n x n")
    eps = float(np.finfo(K.dtype).eps if K.dtype.kind == "f" else np.finfo(np.float64).eps)
    exact = np.asarray(K, np.float64)
    largest = float(np.abs(exact).max())
    # A kernel computed in single precision is symmetric to single precision only, so the tolerance follows its dtype.
    asymmetry = float(np.abs(exact - exact.T).max())
    if asymmetry > max(1e-8, 10 * eps) * largest:
        raise InputError("the kernel matrix is not symmetric", where=where, got=f"|K - K'| up to {asymmetry:.3g}")
    means, centered = exact.mean(axis=0), 0.5 * (exact + exact.T)
    for axis in (0, 1, 0):  # once more, as the first means are rounded as K is
        centered -= centered.mean(axis=axis, keepdims=True)
    # The eigenvectors of equal eigenvalues are any basis: on another number of threads LAPACK
    # may return another one.
    driver = "evd" if n > 1 else "ev"  # SciPy 1.13 gives evd too little workspace for one pattern
    with one_blas_thread():
        values, vectors = scipy.linalg.eigh(centered, driver=driver, overwrite_a=True)
    floor = eps * (10 * n * float(np.abs(values).max()) + ENTRIES * np.sqrt(n) * largest)
    if values[0] < -floor:
        raise InputError(
            "the kernel matrix is not positive semidefinite",
            where=where,
            got=f"smallest eigenvalue {values[0]:.6g} about its means, largest {values[-1]:.6g}",
            wanted=f"no eigenvalue below {-floor:.3g}",
            remedy="use a kernel that is positive semidefinite, or project it: set its negative eigenvalues to zero",
        )
    kept = values > floor
    if not kept.any():  # all patterns are one point, the origin of a line
        return np.zeros((n, 1)), np.zeros((n, 1))
    roots = np.sqrt(values[kept])
    P = vectors[:, kept] / roots
    return vectors[:, kept] * roots + means @ P, P
