"""Start of the factored solver: smooth rows of the graph, after Gauss-Seidel sweeps over problem (1)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dkl.linalg.graph.gauss_seidel import sweep
from dkl.linalg.graph.initial_factor import smooth_rows
from dkl.linalg.rows.shared_matrix import SharedMatrix
from dkl.linalg.slabs.layout import empty_aligned
from dkl.linalg.slabs.simd import lanes_of
from dkl.problems.pairwise.slab_layout import padded_width

Array = NDArray[np.float64]
SWEEPS = 2
"""Sweeps of Gauss-Seidel. A row's new value is used by the next: one owner makes them, of all rows."""


def smooth_start(
    laplacian: sparse.csr_array, targets: sparse.csr_array, gamma: float, weights: Array | None, width: int, seed: int
) -> Array:
    """Return rows (n, width) that vary little along the graph, after SWEEPS of Gauss-Seidel over them."""
    n, matrix = int(laplacian.shape[0]), SharedMatrix.alone(laplacian)
    v = empty_aligned((n, padded_width(n, width)), float)
    v[:, :width], v[:, width:] = smooth_rows(matrix, width, seed), 0.0
    target = np.ascontiguousarray(targets.data, dtype=float)
    given = np.ones(target.size) if weights is None else np.ascontiguousarray(weights, dtype=float)
    known = (
        matrix.indptr,
        matrix.indices,
        matrix.data,
        targets.indptr.astype(np.int64),
        targets.indices.astype(np.int32),
    )
    for k in range(SWEEPS):
        sweep(*known, target, given, gamma, v, k % 2 == 1, lanes_of(v.shape[1]))
    return v[:, :width]
