"""The best low-rank part of K = V V', by the Gram matrix of the columns of V."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dkl.linalg.rows.shared_rows import SharedRows

NEGLIGIBLE = 1e-13
"""Share of the largest singular value squared: columns below are rounding."""


def truncate_rank(factor: NDArray[np.float64], rank: int, rows: SharedRows | None = None) -> NDArray[np.float64]:
    """Return the best rank-`rank` part of V V' as principal columns (n_own, <= rank), the longest first.

    V = `factor` (n_own, any rank). rows: how its rows are shared; None for all of them.
    """
    rows = rows or SharedRows.alone(len(factor))
    values, vectors = np.linalg.eigh(rows.gram(factor, factor))
    keep = np.flatnonzero(values > NEGLIGIBLE * max(values[-1], 0.0))[::-1][:rank]
    return rows.times(factor, vectors[:, keep])
