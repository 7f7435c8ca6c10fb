"""Moments of columns from blocks of rows: means and spreads, and sums in place of the columns themselves.

Means and spreads bring rows to columns of mean 0 and spread 1. Their blocks are merged by T. F. Chan, G. H. Golub, R. J. LeVeque,
Updating formulae and a pairwise algorithm for computing sample variances, COMPSTAT 1982: no difference of large sums, so that years,
timestamps and money keep their digits.

Sums over rows are all that a solver needs of C (n x M) and y (n x T):

    gram = C' S C,  cross = C' S [y, 1],  targets = [y, 1]' S [y, 1]            S = diag(sample weights)

The column of ones gives the sums of columns and targets, by which they are centered later where an intercept is fitted. One set of
sums a fold of cross-validation, or a single one. They are float64 whatever the columns are.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.linalg import cython_blas

from dkl.linalg.late_functions import njit

if TYPE_CHECKING:
    from collections.abc import Callable

    from dkl.linalg.rows import Rows


Moments = tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]
"""gram (K, h, M), cross (K, M, T + 1), targets (K, T + 1, T + 1). Of a whole gram (h = M) the upper triangles count."""


def zero_moments(n_folds: int, n_columns: int, n_targets: int, height: int | None = None) -> Moments:
    """Return moments with no rows added yet, for `n_folds` folds of M columns and T targets.

    height: rows of each gram, M by default; fewer where a pass computes a panel of it. Returns 8 K (h M + M (T + 1) +
    (T + 1)^2) bytes of float64 zeros.
    """
    height = n_columns if height is None else height
    return (
        np.zeros((n_folds, height, n_columns)),
        np.zeros((n_folds, n_columns, n_targets + 1)),
        np.zeros((n_folds, n_targets + 1, n_targets + 1)),
    )


def add_moments(
    moments: Moments,
    columns: NDArray[np.floating],
    targets: NDArray[np.float64],
    folds: NDArray[np.integer] | None = None,
    panel: tuple[int, int] | None = None,
) -> None:
    """Add the rows of a block to `moments`, in place.

    columns (t, M), targets (t, T + 1) and the fold of each row (t,), all scaled by sqrt(S) already; folds=None puts all
    rows into fold 0. panel: only rows lo to hi of the gram are computed, as whole rows; without it, only the upper
    triangle is. Products are in the columns' precision, sums in float64.
    """
    gram, cross, square = moments
    for k in range(len(gram)):
        # Rows of a fold are copied out: C'C of each needs them together.
        chosen = slice(None) if folds is None else np.flatnonzero(folds == k)
        C, y = columns[chosen], targets[chosen]
        if panel is None:
            add_gram(gram[k], C)
        else:
            gram[k] += C[:, panel[0] : panel[1]].T @ C
        # Targets in the columns' dtype: a mixed product would convert all of C, which is the larger by far.
        cross[k] += C.T @ y.astype(C.dtype, copy=False)
        square[k] += y.T @ y


def add_gram(total: NDArray[np.float64], C: NDArray) -> None:
    """Add C'C of C (t, M) to the upper triangle of total (M, M), at half the cost of a GEMM.

    C in single precision is multiplied in single and added in double, so a block's rounding does not grow with n.
    """
    # The syrk of BLAS reads rows in order.
    C = np.ascontiguousarray(C)
    if C.dtype == np.float64:
        syrk(total, C)
    else:
        # BLAS adds in its own precision: the product goes to a block of C's dtype first.
        block = np.empty(total.shape, C.dtype)
        syrk(block, C, beta=0.0)
        upper_add(total, block)


@njit(cache=True, nogil=True)
def upper_add(total: NDArray[np.float64], block: NDArray[np.floating]) -> None:
    """Compute total (M, M) += block (M, M) on the upper triangle; below it `block` is not read."""
    for i in range(len(total)):
        for j in range(i, len(total)):
            total[i, j] += block[i, j]


def mirrored(gram: NDArray[np.float64]) -> NDArray[np.float64]:
    """Copy the upper triangle of `gram` (M, M) below the diagonal, in place, and return `gram`."""
    # By tiles: a transposed copy of the whole matrix would miss the cache once an entry.
    size, step = len(gram), 512
    for lo in range(0, size, step):
        hi = min(lo + step, size)
        corner = gram[lo:hi, lo:hi]
        corner[...] = np.triu(corner) + np.triu(corner, 1).T
        gram[hi:, lo:hi] = gram[lo:hi, hi:].T
    return gram


# -- BLAS without the interpreter's lock -------------------------------------------------------------------------------
# BLAS on several threads of ours at a time.
# SciPy's wrappers hold the interpreter's lock while they work, so that threads wait for each other; these call the very
# same functions (`scipy.linalg.cython_blas`) through ctypes, which releases it.

_LETTERS = {np.dtype(np.float64): ("d", ctypes.c_double), np.dtype(np.float32): ("s", ctypes.c_float)}


@cache
def _function(name: str, n_arguments: int) -> Callable[..., None]:
    """Return the Fortran subroutine `name` of SciPy's BLAS, as a ctypes function with pointer arguments."""
    capsule = cython_blas.__pyx_capi__[name]
    api = ctypes.pythonapi
    api.PyCapsule_GetName.restype, api.PyCapsule_GetName.argtypes = ctypes.c_char_p, [ctypes.py_object]
    api.PyCapsule_GetPointer.restype = ctypes.c_void_p
    api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    address = api.PyCapsule_GetPointer(capsule, api.PyCapsule_GetName(capsule))
    return ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * n_arguments)(address)


def syrk(total: NDArray, C: NDArray, beta: float = 1.0) -> None:
    """Set the upper triangle of total (M, M) to that of beta * total + C'C, in place, by syrk; C (t, M).

    Both C-contiguous and of one dtype, float32 or float64; ValueError for others: BLAS would read wrong memory.
    """
    if not (C.flags.c_contiguous and total.flags.c_contiguous and C.dtype == total.dtype):
        raise ValueError("C-contiguous arrays of one dtype are needed")
    letter, real = _LETTERS[C.dtype]
    rows, size = C.shape
    # For Fortran these are the transposes: C' (M, t) in columns of M, and the lower triangle of total'.
    # BLAS refuses a leading dimension of 0, also of an empty matrix.
    n, k, lda, ldc = (ctypes.c_int(value) for value in (size, rows, max(1, size), max(1, size)))
    one, scale = real(1.0), real(beta)
    _function(letter + "syrk", 10)(
        b"L", b"N", ctypes.byref(n), ctypes.byref(k), ctypes.byref(one), C.ctypes.data, ctypes.byref(lda),
        ctypes.byref(scale), total.ctypes.data, ctypes.byref(ldc),
    )  # fmt: skip


Floats = NDArray[np.float64]


@dataclass(eq=False)
class ColumnMoments:
    """Moments of the columns of some rows; `a += b` merges two, in the same bits as `b += a`.

    count: of the rows, or the sum of their weights; offsets (d,): their means less `origins`; squares (d,): sums of squared
    distances to the means; origins (d,): values of rows, 0 of sparse ones. Differences to them are exact, where means far
    from 0 would be rounded.
    """

    count: float
    origins: Floats
    offsets: Floats
    squares: Floats

    @property
    def means(self) -> Floats:
        """Return the means (d,)."""
        return self.origins + self.offsets

    def __iadd__(self, other: ColumnMoments) -> ColumnMoments:
        # The lesser origin, whichever block has it: a choice by position would make the bits depend on the order.
        count, origins = self.count + other.count, np.minimum(self.origins, other.origins)
        with np.errstate(over="ignore", invalid="ignore"):
            one, two = (part.offsets + (part.origins - origins) for part in (self, other))
            # The product of the counts first, which is exact: a share of one times the other rounds by which is which.
            # Rows of no weight at all have no mean.
            between = (one - two) ** 2 * (self.count * other.count / (count or 1))
            offsets = (self.count * one + other.count * two) / (count or 1)
            # Not in place: arrays that came from another process are read-only.
            return ColumnMoments(count, origins, offsets, (self.squares + other.squares) + between)

    def spreads(self) -> Floats:
        """Return the columns' standard deviations (d,).

        0 of a column that is constant up to rounding, as in scikit-learn's StandardScaler, and of one whose variance overflows, which the
        check of values will name.
        """
        n, eps = self.count, np.finfo(np.float64).eps
        with np.errstate(over="ignore", invalid="ignore"):
            variances = self.squares / n
            varies = (variances > n * eps * variances + (n * self.means * eps) ** 2) & np.isfinite(variances)
        return np.sqrt(np.where(varies, variances, 0.0))


def weighted_moments(rows: Any, weights: Floats) -> ColumnMoments:
    """Return moments of rows (m, d), dense or CSR, of which each counts as often as its weight >= 0 (m,) says."""
    total = float(weights.sum())
    with np.errstate(over="ignore", invalid="ignore"):
        if not sp.issparse(rows):
            origins: Floats = rows[0].astype(np.float64)
            apart = rows - origins
            offsets: Floats = weights @ apart / (total or 1)
            apart -= offsets
            return ColumnMoments(total, origins, offsets, weights @ np.square(apart, out=apart))
        d, entries = rows.shape[1], rows.tocoo()
        entries.sum_duplicates()
        data, columns, counted = entries.data.astype(np.float64), entries.col, weights[entries.row]
        means = np.asarray(np.bincount(columns, counted * data, d) / (total or 1))
        squares = np.asarray(np.bincount(columns, counted * (data - means[columns]) ** 2, d), np.float64)
        zeros = total - np.bincount(columns, counted, d)
        return ColumnMoments(total, np.zeros(d), means, squares + zeros * means**2)


def moments_of(rows: Any) -> ColumnMoments:
    """Return moments of rows (m, d), dense or CSR, in double precision."""
    m, d = rows.shape
    with np.errstate(over="ignore", invalid="ignore"):
        if not sp.issparse(rows):
            origins: Floats = rows[0].astype(np.float64)
            apart = rows - origins
            offsets: Floats = apart.mean(axis=0)
            # A second pass about the mean itself: about the first row squares would cancel.
            apart -= offsets
            return ColumnMoments(m, origins, offsets, np.square(apart, out=apart).sum(axis=0))
        if not rows.has_canonical_format:
            rows = rows.copy()
            rows.sum_duplicates()
        data, columns = rows.data.astype(np.float64), rows.indices
        means = np.asarray(np.bincount(columns, data, d) / m)
        zeros = m - np.bincount(columns, minlength=d)
        # Zeros that are not stored are one mean away from it each.
        squares = np.bincount(columns, (data - means[columns]) ** 2, d) + zeros * means**2
        return ColumnMoments(m, np.zeros(d), means, squares)


@dataclass(frozen=True, eq=False)
class ColumnScale:
    """Standardization of rows by means (d,), None if zeros are to stay zeros, and spreads (d,), all > 0.

    A constant column has spread 1.
    """

    means: Floats | None
    spreads: Floats

    @classmethod
    def of(cls, moments: ColumnMoments, *, centered: bool) -> ColumnScale:
        """Return the scale by means and standard deviations of the rows that were counted."""
        spreads = moments.spreads()
        return cls(moments.means if centered else None, np.where(spreads > 0, spreads, 1.0))

    def applied(self, rows: Any, *, in_place: bool = False) -> Any:
        """Return (rows - means) / spreads in the rows' own floating type, dense or CSR.

        Sparse rows become dense where there are means. in_place: whether the rows' memory may be written to.
        """
        dtype = rows.dtype
        spreads = self.spreads.astype(dtype)
        if sp.issparse(rows):
            if self.means is None:
                # A quotient as of dense rows: a product with the reciprocal has other last bits.
                data = np.divide(rows.data, spreads[rows.indices], out=rows.data if in_place else None)
                return type(rows)((data, rows.indices, rows.indptr), shape=rows.shape)
            rows, in_place = rows.toarray(), True
        out = rows if in_place else None
        if self.means is not None:
            rows = out = np.subtract(rows, self.means.astype(dtype), out=out)
        return np.divide(rows, spreads, out=out)


# A row amid others: what to subtract from rows before products of them, which cancel for rows far from 0.

SAMPLE = 256
"""Rows that the middle one is chosen from."""


def middle_row(rows: Rows) -> NDArray:
    """Return the row (d,) nearest to the mean of rows (m, d), or of 256 spread evenly; 0 of no rows.

    A mean would do but for its rounding: differences to a row are exact for rows near it, so that rows moved by what adds to them
    exactly have the same differences, to the bit.
    """
    if not len(rows):
        return np.zeros(rows.shape[1], rows.dtype)
    some = np.asarray(rows[:: -(-len(rows) // SAMPLE)])
    with np.errstate(over="ignore", invalid="ignore"):  # of numbers too large to square any row will do
        apart = np.subtract(some, some[0], dtype=np.float64)
        apart -= apart.mean(axis=0)
        return np.asarray(some[np.square(apart, out=apart).sum(axis=1).argmin()])
