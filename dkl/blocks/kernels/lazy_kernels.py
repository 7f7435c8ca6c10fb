"""Kernels of rows as dask arrays, whose blocks are computed when they are read."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dkl.blocks.rows.lazy_results import unique_name

if TYPE_CHECKING:
    from dkl.linalg.rows import Rows

    Block = Callable[[Rows, Rows | None], NDArray[np.float64]]

BLOCK = 2048
"""Rows and columns of a block of a kernel that is computed as it is read: 34 MB."""


def kernel_of_rows(block: Block, rows: Rows, others: Rows | None, *, lazy: bool, is_precomputed: bool) -> Any:
    """Return block(rows, others) of checked rows; where `lazy`, a dask array that computes it by blocks.

    Rows of a precomputed kernel belong to all its columns: those are computed now, and cut into blocks.
    """
    if lazy and not is_precomputed:
        return lazy_kernel(block, rows, rows if others is None else others)
    found = block(rows, others)
    if not lazy:
        return found
    import dask.array as da

    return da.from_array(found, chunks=(BLOCK, BLOCK), name=unique_name("kernel"))


def lazy_kernel(block: Block, rows: Rows, others: Rows) -> Any:
    """Return a dask array (m, l) whose blocks are block(rows[i], others[j])."""
    import dask.array as da

    cut = [
        da.from_array(part, chunks=(BLOCK, part.shape[1]), name=unique_name(what), asarray=False)
        for what, part in (("rows", rows), ("columns", others))
    ]
    return da.blockwise(
        block, "ij", cut[0], "ik", cut[1], "jk", dtype=np.float64, concatenate=True, meta=np.empty((0, 0)),
        name=unique_name("kernel"),
    )  # fmt: skip
