"""Sums over rows in place of the columns themselves: all that a solver needs of C (n x M) and y (n x T).

    gram = C' S C,  cross = C' S [y, 1],  targets = [y, 1]' S [y, 1]            S = diag(sample weights)

One set of sums a fold of cross-validation, or a single one. They are float64 whatever the columns are.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dkl.linalg import free_blas
from dkl.linalg.late_functions import njit

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
        free_blas.add_gram(total, C)
    else:
        # BLAS adds in its own precision: the product goes to a block of C's dtype first.
        block = np.empty(total.shape, C.dtype)
        free_blas.add_gram(block, C, beta=0.0)
        upper_add(total, block)


@njit(cache=True, nogil=True)
def upper_add(total: NDArray[np.float64], block: NDArray[np.floating]) -> None:
    """Compute total (M, M) += block (M, M) on the upper triangle; what is below it in `block` is not read."""
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
