"""Quality of a kernel on labeled rows: the error of each one's nearest neighbor among the others."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def neighbor_error(K: NDArray[np.float64], codes: NDArray[np.int64]) -> float:
    """Return the share of p rows whose nearest other, by K_ii + K_jj - 2 K_ij, has another class.

    K (p, p), codes (p,).

    For rows that were learned from it is no estimate for others: it shows what the weight of the loss does.
    """
    diagonal = np.diagonal(K)
    distances = diagonal[:, None] + diagonal - 2.0 * K
    np.fill_diagonal(distances, np.inf)
    return float(np.mean(codes[distances.argmin(axis=1)] != codes))
