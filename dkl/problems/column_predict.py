"""Predictions sum_m w_m k(x, x_m) / sqrt(k(x_m, x_m)) + intercept (Machart et al. 2011, (16))."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dkl.blocks.rows.row_checks import require_finite
from dkl.blocks.rows.row_pieces import Block
from dkl.linalg.kernels.kernel_columns import Kernel

if TYPE_CHECKING:
    from dkl.linalg.rows import Rows

TILE_BYTES = 16_000_000
"""Bytes of the kernel columns that are computed at a time."""


@np.errstate(over="ignore", invalid="ignore")  # raised as an InputError instead
def predict_block(
    block: Block, kernel: Kernel, points: Rows, weights: NDArray[np.float64], intercepts: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Predict (t, T) for the rows of a block. weights (T, m) have the columns' scale; intercepts (T,).

    In double whatever the fit was in: large weights of both signs cancel. Raises InputError where rows or predictions are
    not finite.
    """
    require_finite(block)
    # The order in memory chooses the BLAS kernel, and with it the last bits: weights fitted, loaded and sent must be alike.
    weights = np.require(weights, requirements=["C", "A"])
    out = np.empty((block.rows.shape[0], len(weights)))
    out[:] = intercepts
    if weights.shape[1]:
        step = max(1, TILE_BYTES // (8 * weights.shape[1]))
        # Once a block: of many points it costs as much as the columns of some hundred rows.
        prepared = points if sp.issparse(block.rows) else kernel.prepared(points)
        for lo in range(0, len(out), step):
            out[lo : lo + step] += kernel.columns(block.rows[lo : lo + step], prepared) @ weights.T
        if not np.isfinite(out).all():
            raise kernel.not_finite(f"predictions that are not finite in rows {block.start} to {block.stop - 1}")
    return out


@np.errstate(over="ignore", invalid="ignore")  # raised as an InputError instead
def kernel_block(block: Block, kernel: Kernel, points: Rows) -> NDArray[np.float64]:
    """Return k(x, x_m) (t, M) of the rows of a block. Raises InputError where rows or values are not finite."""
    require_finite(block)
    found = np.asarray(kernel.columns(block.rows, points), np.float64)
    if not np.isfinite(found).all():
        raise kernel.not_finite(f"values that are not finite in rows {block.start} to {block.stop - 1}")
    return found
