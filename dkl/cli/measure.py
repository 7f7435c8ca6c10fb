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
        density = rows.array.nnz / (rows.n * rows.n_features)
        return sparse.csr_array(sparse.random_array((count, rows.n_features), density=density, rng=rng, format="csr"))
    return rng.random((count, rows.n_features)).astype(rows.dtype)
