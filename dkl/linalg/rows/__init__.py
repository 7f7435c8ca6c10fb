"""Sums over rows, and rows that several owners share; the type of rows in memory, for annotations alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import TypeAlias

    import numpy as np
    from numpy.typing import NDArray
    from scipy.sparse import csr_array

    Rows: TypeAlias = NDArray[np.floating] | csr_array
    """Rows (m, features): an ndarray or a csr_array of floats."""
