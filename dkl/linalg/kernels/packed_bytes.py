"""Bytes of a packed symmetric matrix, from its shape alone: without what is compiled for its products."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

TILE = 256
"""Rows and columns of a tile: 512 kB in double, so that a tile is read from memory once a product."""
PARTS = 16
"""Partial sums of a product, each over a share of the tiles, whatever the number of threads: so it has the same bits."""


def n_tiles(n: int) -> int:
    """Return the number of tiles on a side of an n x n matrix: n / TILE, rounded up."""
    return -(-n // TILE)


def packed_bytes(n: int, dtype: DTypeLike) -> int:
    """Return the bytes of the tiles of an n x n matrix in `dtype`, with padding: about n^2 / 2 numbers."""
    side = n_tiles(n)
    return side * (side + 1) // 2 * TILE * TILE * np.dtype(dtype).itemsize
