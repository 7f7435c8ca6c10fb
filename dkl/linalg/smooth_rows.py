"""Rows on the unit sphere that vary little along a graph: where the low-rank solvers begin."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import qr

from dkl.linalg.lowest_subspace import filtered, spectrum_top

Array = NDArray[np.float64]
CUT, DEGREE = 0.05, 20
"""Where the filter begins, of the top of the spectrum, and its degree."""
EASE = 0.01
"""Of the top: eigenvalues below it count nearly alike."""


def smooth_rows(laplacian: sparse.csr_array, width: int, seed: int) -> Array:
    """(n, width): the Ritz vectors of L in the span of filtered random columns, over theta + EASE top, rows scaled to length 1.

    A path of weak gammas leads to such rows as well, in a hundred products with L.
    """
    n, top = int(laplacian.shape[0]), spectrum_top(laplacian)
    block = np.random.default_rng(seed).standard_normal((n, width))
    basis = qr(filtered(laplacian, block, CUT * top, top, DEGREE, np.float32), mode="economic", check_finite=False)[0]
    values, turn = np.linalg.eigh(basis.T @ (laplacian @ basis))
    factor = basis @ (turn / (np.maximum(values, 0.0) + EASE * top))
    length = np.linalg.norm(factor, axis=1)
    # Rows without neighbours have no length to speak of: they stay random.
    lost = length < 1e-6 * length.max()
    factor[lost], length[lost] = block[lost], np.linalg.norm(block[lost], axis=1)
    return np.asarray(factor / length[:, None])
