"""What `dkl verify` recomputes of any learner on kernels: scikit-learn's kernels in double precision, block by block.

Nothing here comes from solvers, problems or their arithmetic, as nothing does in the learners' verify.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn import metrics

from dkl.blocks.row_sources import RowSource

BLOCK_BYTES = 64_000_000
DIAGONAL_ROWS = 256


def kernel_matrix(kernel: Any, rows: Any, points: Any) -> NDArray[np.float64]:
    """(t, m) of k(x, z) in double precision, for rows x (t, d) and points z (m, d).

    kernel: its `name` as scikit-learn has it, `gamma` (None: the function's default), `degree`, `coef0`, and `params` of a
    function. Of a "precomputed" one, points (m,) are the numbers of the rows' columns.
    """
    if kernel.name == "precomputed":
        return np.asarray(rows[:, points], np.float64)
    given = {"degree": kernel.degree, "coef0": kernel.coef0, **kernel.params}
    if kernel.gamma is not None:
        given["gamma"] = kernel.gamma
    rows, points = rows.astype(np.float64), points.astype(np.float64)
    found = metrics.pairwise_kernels(rows, points, metric=kernel.name, filter_params=True, **given)
    return np.asarray(found, np.float64)


def blocks(rows: RowSource, width: int, budget: int) -> Iterator[tuple[int, Any]]:
    """(number of the first row, rows) of stretches so short that a kernel block of `width` columns, and the rows, fit
    within `budget` bytes."""
    step = max(1, min(BLOCK_BYTES, budget) // (8 * 2 * max(width, rows.n_features)))
    for lo in range(0, rows.n, step):
        yield lo, rows.read(lo, min(lo + step, rows.n))


def apart_from_rows(points: Any, numbers: NDArray[np.intp], block: Any, lo: int) -> float | np.floating:
    """How far stored points (m, d) are from those of the rows that they are said to be, `numbers` (m,), which are in the
    block that begins at row `lo`: 0 where they are the same. Column numbers of a precomputed kernel are no rows."""
    here = np.flatnonzero((numbers >= lo) & (numbers < lo + block.shape[0]))
    if points.ndim == 1 or not here.size:
        return 0.0
    found: np.floating = abs(points[here] - block[numbers[here] - lo]).max()
    return found


def trace(kernel: Any, rows: RowSource) -> float:
    """The sum of k(x, x) over all rows; not of a precomputed kernel."""
    total = 0.0
    for lo in range(0, rows.n, DIAGONAL_ROWS):
        block = rows.read(lo, min(lo + DIAGONAL_ROWS, rows.n))
        total += float(np.diagonal(kernel_matrix(kernel, block, block)).sum())
    return total
