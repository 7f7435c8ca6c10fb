"""f(x) = sum_m w_m k(x, x_m) / sqrt(k(x_m, x_m)) + intercept (Machart et al. 2011, (16)), for a block of rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dkl.blocks.row_pieces import Block
from dkl.linalg.kernel_columns import Kernel
from dkl.problems.column_pass import check_rows

TILE_BYTES = 16_000_000


def predict_block(
    block: Block, kernel: Kernel, points: Any, weights: NDArray[np.float64], intercepts: NDArray[np.float64]
) -> NDArray[np.float64]:
    """(t, T). weights (T, m) have the columns' scale in them."""
    check_rows(block)
    out = np.empty((block.rows.shape[0], len(weights)))
    out[:] = intercepts
    if weights.shape[1]:
        step = max(1, TILE_BYTES // (8 * weights.shape[1]))
        for lo in range(0, len(out), step):
            rows = block.rows[lo : lo + step]
            out[lo : lo + step] += kernel.columns(rows, points, rows.dtype) @ weights.T
    return out
