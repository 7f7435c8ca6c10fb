"""Rows whose columns are standardized as they are read: no scaled copy of what is on disk or in another library's array is made."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import numpy as np

from dkl.blocks.rows.row_blocks import RowBlocks
from dkl.blocks.rows.row_checks import require_finite
from dkl.blocks.rows.row_pieces import Block
from dkl.blocks.rows.row_sources import RowSource, tidy
from dkl.blocks.session import Session
from dkl.linalg.rows.column_scale import ColumnMoments, ColumnScale, moments_of
from dkl.stores.rows import StoredRows

if TYPE_CHECKING:
    from dkl.linalg.rows import Rows


class ScaledRows(StoredRows):
    """Stored rows that are scaled in whichever process reads them."""

    def __init__(self, base: StoredRows, scale: ColumnScale, dtype: np.dtype) -> None:
        super().__init__(base.shape, dtype, False, base.rows_per_chunk, base.location)
        self.base, self.scale = base, scale

    def __getstate__(self) -> dict[str, object]:
        return {**super().__getstate__(), "base": copy.copy(self.base)}  # with no open file and no window

    def read(self, start: int, stop: int) -> Rows:
        """Read rows start to stop, scaled."""
        return self.scale.applied(tidy(self.base.read(start, stop), self.dtype))


class ScaledView:
    """An array of another library, scaled as slices of rows are taken."""

    def __init__(self, array: Any, scale: ColumnScale, dtype: np.dtype) -> None:
        self.array, self.scale, self.dtype, self.shape = array, scale, dtype, tuple(array.shape)

    def __getitem__(self, rows: slice) -> Rows:
        return self.scale.applied(tidy(self.array[rows], self.dtype))


def column_moments(source: RowSource, session: Session, memory_limit: int | None) -> ColumnMoments:
    """Compute moments of all columns, in one pass. Raises InputError for a value that is not finite."""
    blocks = RowBlocks(source, session, memory_limit, once=True)
    (found,) = blocks.sum(_block_moments)
    return found


def _block_moments(block: Block) -> tuple[ColumnMoments]:
    require_finite(block)
    return (moments_of(block.rows),)


def standardized(source: RowSource, scale: ColumnScale) -> RowSource:
    """Return a source of the same rows with standardized columns, unless they are scaled already.

    Floating arrays in memory are scaled as a copy, or in place where they were read for this work alone; all others
    block by block, as they are read.
    """
    if source.is_scaled:
        return source
    array, dtype = source.array, source.dtype
    if source.is_stored:
        found: Any = ScaledRows(array, scale, dtype)
    elif source.is_dask:
        # The operations of `applied`, so that the bits are the same whatever the chunks.
        found = array.astype(dtype)
        if source.is_sparse:
            # Whole rows, as sparse ones are divided by number of column.
            found = found.rechunk({1: -1}).map_blocks(scale.applied, dtype=dtype, meta=found._meta)
        else:
            found = (found if scale.means is None else found - scale.means.astype(dtype)) / scale.spreads.astype(dtype)
    elif source.is_in_place:
        writeable = (array.data if source.is_sparse else array).flags.writeable
        found = scale.applied(array, in_place=source.own_bytes > 0 and writeable)
    else:
        found = ScaledView(array, scale, dtype)
    scaled = RowSource(found, source.start, source.own_bytes, is_scaled=True)
    scaled.names, scaled.ids = source.names, source.ids
    return scaled
