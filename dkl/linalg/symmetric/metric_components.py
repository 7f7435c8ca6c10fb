"""Components C of a metric W = C'C: all, or those that keep most of the distances of some rows."""

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


def leading_components(C: Matrix, spread: Matrix, count: int) -> Matrix:
    """Return U'C (count, d) of C (d, d), U the leading principal axes of rows T C', T'T = `spread`' `spread`; largest entries positive.

    Of all metrics of rank `count` that are nowhere larger than C'C it keeps most of the squared distances between the rows T (n, d),
    which are about their mean. spread (r, d): T itself, or a factor as short. Neither's scale matters.
    """
    scaled = (spread / (float(np.abs(spread).max()) or 1.0)) @ (C / (float(np.abs(C).max()) or 1.0)).T
    found: Matrix = np.linalg.svd(scaled)[2][:count] @ C
    largest = found[np.arange(count), np.abs(found).argmax(axis=1)]
    return np.ascontiguousarray(found * np.where(largest < 0, -1.0, 1.0)[:, None])
