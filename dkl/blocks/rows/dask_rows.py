"""Rows in Dask's arrays and data frames: each block is checked as it is read, whatever the collection says of itself.

What a collection says (its meta) decides the form that all rows are read in, dense or sparse; blocks of the other form are converted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dkl.errors import InputError, InputTypeError
from dkl.io.packed_arrays import refuse_packed_blocks
from dkl.io.plain_arrays import plain_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import DTypeLike

    from dkl.blocks.rows.row_sources import Rows

PREFIX = "dkl-rows-"
"""Prefix of the names of arrays whose blocks are checked."""


def checked_blocks(X: Any, where: str = "X") -> Any:
    """Return a Dask array of the rows of a Dask array or data frame, whose blocks are ndarrays, or csr_arrays where its meta is sparse.

    Sizes that Dask does not know are counted, by a pass over X. InputError for what is not two-dimensional, and for a data frame with a
    column that is not of numbers; computing a block raises InputError for masked values, and for a block of another type or shape.
    """
    if X.ndim != 2:
        got, wanted = f"{X.ndim} dimension{'s' if X.ndim > 1 else ''}", "(n_samples, n_features)"
        raise InputError("rows must be 2-d", where=where, got=got, wanted=wanted)
    array = X if hasattr(X, "rechunk") else _array_of_frame(X, where)
    if array.name.startswith(PREFIX):
        return array
    refuse_packed_blocks(array, where)
    if any(size != size for size in array.shape):
        array = _with_sizes(array)
    from dask.base import tokenize

    is_sparse = bool(sp.issparse(array._meta))
    meta: Any = sp.csr_array((0, array.shape[1]), dtype=array.dtype) if is_sparse else np.empty((0, 0), array.dtype)
    name = PREFIX + tokenize(array.name, where)
    return array.map_blocks(_checked, is_sparse, where, array.dtype, dtype=array.dtype, meta=meta, name=name)


def stored_entries(array: Any) -> int:
    """Return the number of stored entries of a Dask array of sparse blocks, by a pass over it."""
    import dask

    return sum(dask.compute(*(dask.delayed(_entries)(block) for block in array.to_delayed().ravel())))


def _checked(block: Any, is_sparse: bool, where: str, dtype: np.dtype, block_info: Any = None) -> Any:
    """Task: a block as `checked_blocks` promises it; InputError for any other. dtype: what the array says of it."""
    place = block_info[0]["array-location"]
    first = tuple(int(start) for start, _ in place)
    wanted = tuple(int(stop - start) for start, stop in place)
    rows = plain_rows(block, where, first)
    if rows.shape != wanted:
        place_name = f"{where}, the block from row {first[0]}"
        got = f"shape {rows.shape}"
        raise InputError("a block of another shape than the array says", where=place_name, got=got, wanted=f"{wanted}")
    if dtype.kind == "f":  # of integers, a block that has fractions keeps them
        with np.errstate(over="ignore"):
            rows = rows.astype(dtype, copy=False)
    if is_sparse:
        return sp.csr_array(rows)
    return rows.toarray() if sp.issparse(rows) else rows


def _entries(block: Rows) -> int:
    """Task: stored entries of a sparse block."""
    return int(block.nnz)


def _with_sizes(array: Any) -> Any:
    """Return the same array with its sizes counted; that of the user is not changed."""
    import dask.array as da

    return da.Array(array.dask, array.name, array.chunks, meta=array._meta).compute_chunk_sizes()


def _array_of_frame(X: Any, where: str) -> Any:
    """Return a Dask array of a data frame's numbers, a block a partition, in float32 or float64.

    float32 where all columns are float16 or float32.
    """
    import dask
    import dask.array as da

    kinds = X._meta.dtypes
    for name, kind in kinds.items():
        if getattr(kind, "kind", "O") not in "biuf":
            wanted, remedy = "a column of numbers", "leave the column out, or make numbers of it"
            raise InputTypeError(
                "not numbers", where=f"{where}[{name!r}]", got=f"dtype {kind}", wanted=wanted, remedy=remedy
            )
    dtype = np.float32 if all(str(kind).lower() in ("float16", "float32") for kind in kinds) else np.float64
    lengths = X.map_partitions(len).compute()
    parts, names = X.to_delayed(), list(X.columns)
    blocks = [
        da.from_delayed(dask.delayed(_numbers)(part, names, dtype, where), (int(length), len(names)), dtype=dtype)
        for part, length in zip(parts, lengths, strict=True)
        if length
    ]
    return da.concatenate(blocks) if blocks else da.zeros((0, len(names)), dtype=dtype)


def _numbers(part: Any, names: Sequence[object], dtype: DTypeLike | None, where: str) -> NDArray[np.floating]:
    """Task: the numbers of a partition; NaN for missing ones. InputError where its columns are others than the frame says."""
    if list(part.columns) != names:
        got, wanted = f"{list(part.columns)}"[:80], f"{names}"[:80]
        raise InputError("columns of a partition differ from those of the frame", where=where, got=got, wanted=wanted)
    try:
        return np.asarray(part.to_numpy(dtype, na_value=np.nan))
    except (TypeError, ValueError) as error:
        raise InputTypeError(
            "a partition that does not hold numbers", where=where, got=error, wanted="numbers"
        ) from error
