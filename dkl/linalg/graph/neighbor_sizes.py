"""Sizes of tiles, pieces and cells in searches for neighbors, without what is compiled for these."""

from __future__ import annotations

import numpy as np

QUERY_TILE, REFERENCE_TILE = 256, 1024  # their (256, 1024) table of products, 2 MB, stays in cache
PIECE = 1024  # query rows that an inverted file is searched for together
SAMPLE_PER_CELL = 64  # training rows a cell; faiss wants 39 at least


def n_cells(n: int) -> int:
    """Return the number of cells of an inverted file: 2 sqrt(n), or fewer where a cell would starve."""
    # Measured best of 1, 2, 4 times sqrt(n) at n = 300,000.
    return max(1, min(int(2 * np.sqrt(n)), n // 40))


def sample_size(n: int) -> int:
    """Return how many of n rows an inverted file should be trained on: 64 a cell."""
    return min(n, SAMPLE_PER_CELL * n_cells(n))
