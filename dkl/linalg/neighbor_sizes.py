"""How many rows the searches for neighbors take at a time, and how large values: asked for without what is compiled for searches."""

from __future__ import annotations

import numpy as np

QUERY_TILE, REFERENCE_TILE = 256, 1024  # their (256, 1024) table of products, 2 MB, stays in cache
PIECE = 1024  # query rows that an inverted file is searched for together
SAMPLE_PER_CELL = 64  # training rows a cell; faiss wants 39 at least


def n_cells(n: int) -> int:
    """Of an inverted file: 2 sqrt(n), measured best of 1, 2, 4 times sqrt(n) at n = 300,000; fewer where a cell would starve."""
    return max(1, min(int(2 * np.sqrt(n)), n // 40))


def sample_size(n: int) -> int:
    """How many rows of n its training should be given: 64 a cell."""
    return min(n, SAMPLE_PER_CELL * n_cells(n))
