"""Rows of a run of a metric as they are learned from, and the memory of its verification."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dkl.estimators.logdet.plan import LogDetSizes
from dkl.runs.logdet.inputs import term_bytes

VERIFY_SQUARES, VERIFY_ROWS, VERIFY_TERMS = 14, 5, 40
"""Arrays d x d, of all rows and of those that constraints touch, and numbers a constraint, that `dkl verify` holds at a time."""
CUT_SQUARES = 6
"""Arrays d x d that it holds more where the metric is cut to some components."""


def verified_bytes(sizes: LogDetSizes, *, is_cut: bool) -> int:
    """Return the bytes of `dkl verify`, without the rows as they are read; is_cut: the metric is cut to some components."""
    d, squares = sizes.d, VERIFY_SQUARES + CUT_SQUARES * is_cut
    numbers = squares * d**2 + VERIFY_ROWS * (sizes.n + sizes.p) * d + VERIFY_TERMS * sizes.c
    return 8 * numbers + term_bytes(sizes)


def dense(rows: Any) -> NDArray[np.float64]:
    """Return rows (n, d) as a dense array in double precision."""
    return np.ascontiguousarray(rows.toarray() if sp.issparse(rows) else rows, np.float64)
