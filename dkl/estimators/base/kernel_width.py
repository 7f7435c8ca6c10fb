"""The width of a kernel that follows from the rows, as scikit-learn's SVC has it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dkl.blocks.rows.row_blocks import RowBlocks
from dkl.blocks.rows.row_pieces import Block
from dkl.blocks.rows.row_sources import RowSource
from dkl.errors import InputError
from dkl.linalg.rows.column_moments import ColumnMoments, weighted_moments

if TYPE_CHECKING:
    from dkl.estimators.base.validation import UserKernel

WITH_WIDTH = ("rbf", "poly", "polynomial", "sigmoid", "laplacian")
"""Names of the kernels that have a gamma."""
VARIANCE_BYTES = 2_000_000
"""Bytes of rows that are read together for the variance that a width follows from."""


def width_of(kernel: UserKernel, gamma: Any, source: RowSource) -> float:
    """Return gamma as in SVC: "scale" is 1 / (n_features * variance of X), "auto" or None 1 / n_features."""
    if gamma is None or gamma == "auto":
        return 1.0 / source.n_features
    if gamma != "scale":
        return float(gamma)
    if not isinstance(kernel, str) or kernel not in WITH_WIDTH:
        # A function, or a kernel without gamma: the number is handed on and never used, and no pass is made for it.
        return 1.0 / source.n_features
    return width_by_variance(source.n_features, *spread_of(source), remedy="scale X, or give gamma")


def width_by_blocks(
    kernel: UserKernel,
    gamma: float | str | None,
    rows: RowBlocks,
    weights: NDArray[np.float64] | None = None,
    memory_limit: int | None = None,
) -> float | None:
    """Return gamma as `width_of` does, by one pass where the rows are; None for a kernel that has no gamma.

    weights (n,): of the rows in the variance; None counts each once. Errors as of `RowBlocks`.
    """
    if not isinstance(kernel, str) or kernel not in WITH_WIDTH:
        return None if isinstance(gamma, str) else gamma
    if gamma != "scale":
        return 1.0 / rows.n_features if gamma is None or gamma == "auto" else float(gamma)
    # Blocks of their own: the rows' may be cut by the number of columns, and groups of them have no one sum.
    (moments,) = RowBlocks(rows.source, rows.session, memory_limit, once=True).sum(_moments_of_block, weights)
    # About a common value: rows that are moved by what adds to them exactly keep their width, to the bit.
    with np.errstate(over="ignore", invalid="ignore"):  # refused by `width_by_variance`
        means = (moments.origins - moments.origins.min()) + moments.offsets
        variance = float(np.mean(moments.squares) / moments.count + np.var(means))
        # Squares may underflow where values differ; their differences to a row do not.
        is_constant = not (moments.squares.any() or moments.offsets.any() or np.ptp(means))
    return width_by_variance(rows.n_features, variance, 0, 0 if is_constant else 1, remedy="scale X, or give gamma")


def _moments_of_block(block: Block, weights: NDArray[np.float64] | None) -> tuple[ColumnMoments]:
    counted = np.ones(block.stop - block.start) if weights is None else weights[block.start : block.stop]
    return (weighted_moments(block.rows, counted),)


def width_by_variance(n_features: int, variance: float, low: float, high: float, *, remedy: str) -> float:
    """Return 1 / (n_features * variance), and 1 if all values are equal; low, high: their range.

    Raises InputError where the variance, or the width, is beyond double precision.
    """
    if low == high:
        return 1.0
    # NaN variance comes here as well, from squares that overflow: neither comparison holds for it.
    width = 1.0 / (n_features * variance) if variance > 0 else np.nan
    if 0 < width < np.inf:
        return width
    is_small = variance == 0 or width == np.inf
    how = "little that their variance underflows" if is_small else "much that their variance overflows"
    raise InputError(f"values differ, but by so {how}", where="X", remedy=remedy)


@np.errstate(over="ignore", invalid="ignore")  # refused by `width_by_variance`
def variance_of(rows: Any) -> float:
    """Return the variance of all entries of rows (n, d), dense or sparse, in double precision.

    Of dense ones about an entry, whose differences to others are exact.
    """
    if not sp.issparse(rows):
        return float(np.var(np.subtract(rows, rows[0, 0], dtype=np.float64)))
    count = rows.shape[0] * rows.shape[1]
    mean = float(rows.data.sum(dtype=np.float64)) / count
    return float(np.square(rows.data - mean, dtype=np.float64).sum() + (count - rows.nnz) * mean * mean) / count


@np.errstate(over="ignore", invalid="ignore")  # refused by `width_by_variance`
def spread_of(source: RowSource) -> tuple[float, float, float]:
    """Return (variance, least, largest) of all entries, block by block where they are not in memory.

    Blocks are centered on their own means, and combined by Chan, Golub and LeVeque (1983): a mean much larger than the
    spread costs no digits.
    """
    # One call of NumPy: its pairwise sums are more exact than sums of blocks.
    if source.is_in_memory and not sp.issparse(source.array):
        return variance_of(source.array), float(np.min(source.array)), float(np.max(source.array))
    mean, squares, count, low, high = 0.0, 0.0, 0, np.inf, -np.inf
    step = max(1, VARIANCE_BYTES // source.row_bytes)
    for lo in range(0, source.n, step):
        rows = source.read(lo, min(lo + step, source.n))
        size = rows.shape[0] * rows.shape[1]
        values = rows.data if sp.issparse(rows) else rows
        # `size`, not the number of stored entries: zeros of sparse rows are values too, and are added to the squares below.
        own = float(values.sum(dtype=float)) / size
        about = float(np.square(values - own, dtype=float).sum()) + (size - values.size) * own * own
        squares += about + (own - mean) * (own - mean) * count * size / (count + size)
        mean += (own - mean) * size / (count + size)
        count += size
        low, high = min(low, float(rows.min())), max(high, float(rows.max()))
    return squares / count, low, high
