"""Components of a Mahalanobis matrix W = C'C, in which a metric is handed out."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh

Matrix = NDArray[np.float64]


def metric_components(W: Matrix) -> Matrix:
    """Return C (d, d) of W = C'C (d, d), in descending order of W's eigenvalues, negative ones cut at 0; largest entries are positive."""
    values, vectors = eigh(0.5 * (W + W.T))
    largest = vectors[np.abs(vectors).argmax(axis=0), np.arange(len(W))]
    signed = vectors * np.where(largest < 0, -1.0, 1.0)
    return np.ascontiguousarray((signed * np.sqrt(np.maximum(values, 0.0))).T[::-1])
