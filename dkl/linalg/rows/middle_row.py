"""A row amid others: what to subtract from rows before products of them, which cancel for rows far from 0."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from dkl.linalg.rows.row_types import Rows

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
