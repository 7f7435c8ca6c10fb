"""Sums over rows in place of the columns themselves: all that a solver needs of C (n x M) and y (n x T).

    gram = C' S C,  cross = C' S [y, 1],  targets = [y, 1]' S [y, 1]            S = diag(sample weights)

The column of ones gives the sums of columns and targets, by which they are centered later where an intercept is fitted. One set of
sums a fold of cross-validation, or a single one. They are float64 whatever the columns are.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cython_blas

from dkl.linalg.late_functions import njit

if TYPE_CHECKING:
    from collections.abc import Callable


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
