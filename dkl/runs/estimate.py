"""What plans measure: a function's seconds, on rows made up."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from scipy import sparse

from dkl.blocks.row_sources import RowSource


def timed(function: Any) -> float:
    function()  # compiles, and touches the memory
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def random_rows(rows: RowSource, count: int) -> Any:
    """As many features, as dense as the real ones; none is negative, which some kernels refuse."""
    rng = np.random.default_rng(0)
    if rows.is_sparse:
        entries = round(count * rows.array.nnz / rows.n)
        places = rng.integers(count, size=entries), rng.integers(rows.n_features, size=entries)
        return sparse.csr_array((rng.random(entries), places), shape=(count, rows.n_features))
    return rng.random((count, rows.n_features)).astype(rows.dtype)
