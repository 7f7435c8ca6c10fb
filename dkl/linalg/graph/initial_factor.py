"""Rows on the unit sphere that vary little along a graph: where the low-rank solvers begin."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dkl.linalg.eigen.lowest_subspace import filtered, spectrum_top
from dkl.linalg.rows.shared_matrix import SharedMatrix

Array = NDArray[np.float64]
CUT, DEGREE = 0.05, 20
"""Lower end of the filter as a share of the top of the spectrum, and the filter's degree."""
EASE = 0.01
"""Share of the top of the spectrum: eigenvalues below it count nearly alike."""


def smooth_rows(laplacian: SharedMatrix, width: int, seed: int) -> Array:
    """(n_own, width): the Ritz vectors of L in the span of filtered random columns, over theta + EASE top, rows scaled to length 1.

    A path of weak gammas leads to such rows as well, in a hundred products with L.
    """
    rows, top = laplacian.rows, spectrum_top(laplacian)
    block = rows.random(seed, width)
    basis = filtered(laplacian, block, CUT * top, top, DEGREE, np.float32)
    rows.orthonormalize(basis)
    values, turn = np.linalg.eigh(rows.gram(basis, laplacian.product(basis)))
    factor = rows.times(basis, turn / (np.maximum(values, 0.0) + EASE * top))
    length = np.linalg.norm(factor, axis=1)
    # Rows without neighbors have no length to speak of: they stay random.
    lost = length < 1e-6 * rows.largest(length.max())
    factor[lost], length[lost] = block[lost], np.linalg.norm(block[lost], axis=1)
    return np.asarray(factor / length[:, None])
