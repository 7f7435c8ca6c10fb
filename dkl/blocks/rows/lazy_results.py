"""Results of a model for rows in Dask's collections, and kernels of rows, as dask arrays whose blocks are computed when they are read."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dkl.blocks.rows.row_sources import check_shape, checked_blocks, place_of_block, working_dtype
from dkl.errors import InputError

if TYPE_CHECKING:
    from dkl.linalg.rows import Rows

    Block = Callable[[Rows, Rows | None], NDArray[np.float64]]


def lazy_rows(X: Any) -> Any:
    """Return the rows of a Dask array or data frame as a dask array of whole rows; nothing is computed.

    Chunks of rows stay as they are, those of columns become one. Sizes of chunks of rows that Dask does not know stay unknown, as
    those of a data frame are. InputError for what is not two-dimensional, not of real numbers, has no rows, or columns whose number
    is not known.
    """
    rows = checked_blocks(X, counted=False)
    check_shape(rows.shape, "X")
    working_dtype(rows.dtype)
    if rows.shape[1] != rows.shape[1]:
        remedy = "call X.compute_chunk_sizes() first"
        raise InputError("Dask does not know the number of columns", where="X", got=f"shape {X.shape}", remedy=remedy)
    return rows if rows.numblocks[1] == 1 else rows.rechunk({1: -1})


def lazy_results(model: object, verb: str, rows: Any, like: NDArray) -> Any:
    """Return model.verb(block) of blocks of whole rows, as a dask array of the same chunks of rows.

    rows: as of `lazy_rows`; verb: name of a method; like: an empty array, (0,) or (0, k), of its results' type. The model is one task of
    the graph. Of a block without rows nothing is asked. Errors name the places of a block in the whole.
    """
    import dask

    name = unique_name(f"{type(model).__name__}-{verb}")
    held = dask.delayed(model, name=f"{name}-model", traverse=False)
    form: dict[str, Any] = {"drop_axis": 1} if like.ndim == 1 else {"chunks": (rows.chunks[0], (like.shape[1],))}
    return rows.map_blocks(_result, held, verb, like, dtype=like.dtype, meta=like, name=name, **form)


def unique_name(what: str) -> str:
    """Return a name that no other dask array has: that of equal rows by another model would be taken for this one."""
    return f"dkl-{what}-{uuid.uuid4().hex}"


def _result(block: Rows, model: object, verb: str, like: NDArray, block_info: Any = None) -> NDArray:
    """Task: the results for a block of rows."""
    if not block.shape[0]:
        return like
    try:
        return np.asarray(getattr(model, verb)(block))
    except InputError as error:
        where, (first, _) = place_of_block("X", block_info[0])
        found = re.fullmatch(r"X\[(\d+)(.*)", error.where or "")
        if found is None:
            raise
        raise error.named(found[0], f"{where}[{first + int(found[1])}{found[2]}") from error


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
