"""Checks of rows in one pass, block by block: values unfit for distances, and repeated rows."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse

from dkl.blocks.rows.row_pieces import Block
from dkl.blocks.rows.row_sources import RowSource, row_source
from dkl.errors import InputError
from dkl.io.plain_arrays import first_beyond, first_not_finite, largest_value, not_finite, refuse_too_large, too_large

if TYPE_CHECKING:
    from dkl.blocks.rows.row_blocks import RowBlocks

Rows = Any
"""Rows (m, features): an ndarray, or a csr_array."""
Fault = tuple[int, int, float]
"""Row, column and value of an entry that no distance can be computed of."""


def require_finite(block: Block) -> None:
    """Raise InputError for the first value of a block that is not finite, with its row and column in the whole."""
    values = block.rows.data if issparse(block.rows) else block.rows
    with np.errstate(over="ignore", invalid="ignore"):
        flat = values.reshape(-1) if values.flags.c_contiguous else None
        # One dot product answers for most blocks at the speed of reading them; NaN and infinity survive it. A square that
        # overflows is no fault yet: then each value is looked at.
        if (flat is not None and np.isfinite(flat @ flat)) or np.isfinite(values).all():
            return
    found = first_not_finite(block.rows)
    if found is not None:
        row, column, value = found
        raise not_finite(f"X[{block.start + row}, {column}]", value)


LEAST_SQUARE = float(np.finfo(float).tiny / np.finfo(float).eps)
"""Sum of squares of differences below which some are less than the least normal number."""


def refuse_tiny(rows: RowBlocks, square: float) -> None:
    """Raise InputError for rows that differ by so little that the sum of squares of the differences, `square`, underflows.

    One pass, where `square` is below LEAST_SQUARE.
    """
    if square < LEAST_SQUARE and any(rows.map(_differs, rows.take(np.zeros(1, np.intp)))):
        raise InputError("numbers too small to square", where="X", remedy="scale the rows up")


def refuse_extreme(rows: NDArray) -> None:
    """Raise InputError for rows (n, d) in memory that are too large to square, or whose differences are all too small to."""
    refuse_too_large(rows, largest_value(rows.shape[1]))
    spread = float(np.ptp(rows, axis=0).max())
    if 0 < spread < LEAST_SQUARE**0.5:
        raise InputError("numbers too small to square", where="X", remedy="scale the rows up")


def _differs(block: Block, first: object) -> bool:
    """Return whether a row of the block differs from `first` (1, d)."""
    if issparse(block.rows):
        # Sparse arrays do not broadcast: the first row is repeated by a product.
        ones = csr_array(np.ones((block.rows.shape[0], 1)))
        return bool(abs(block.rows - ones @ csr_array(first)).max() > 0)
    return bool((block.rows != first).any())


def check_values(source: RowSource, rows_at_once: int) -> None:
    """Raise InputError for the first NaN or infinity, or value too large for squared distances."""
    refuse_first([check_rows(np.arange(source.n), source, rows_at_once, digests=False)[0]], source.n_features)


def refuse_first(faults: Sequence[Fault | None], n_features: int) -> None:
    """Raise InputError for the first fault, if there is any, by its row and column."""
    fault = next((one for one in faults if one is not None), None)
    if fault is None:
        return
    row, column, value = fault
    where = f"X[{row}, {column}]"
    raise too_large(where, value, largest_value(n_features)) if np.isfinite(value) else not_finite(where, value)


def check_rows(
    ids: NDArray[np.int64], shared: object, reference_rows: int, digests: bool = True
) -> tuple[Fault | None, bytes]:
    """Task: (first bad entry as (row, column, value) or None, a digest of 16 bytes for each row, if they are asked for).

    Digests are of values: float32 and float64 rows, sparse rows with and without stored zeros, 0.0 and -0.0 agree. Equal
    digests of different rows have odds of 2^-128 a pair.
    """
    source, found = opened(shared), []
    for first, rows in blocks(source, reference_rows, int(ids[0]), int(ids[-1]) + 1):
        bad = first_bad(rows, first)
        if bad is not None:
            return bad, b""
        if digests:
            found.append(b"".join(blake2b(row, digest_size=16).digest() for row in _row_bytes(rows)))
    return None, b"".join(found)


def first_bad(rows: Rows, first: int) -> Fault | None:
    """Return (row, column, value) of the first entry that no distance can be computed of; first: number of the first row."""
    found = first_beyond(rows, largest_value(rows.shape[1]))
    return found and (first + found[0], *found[1:])


def _row_bytes(rows: Rows) -> Iterator[bytes]:
    """Yield each row as bytes that are equal where the rows are."""
    if not issparse(rows):
        # Adding 0 makes -0.0 a 0.0.
        yield from (np.add(row, 0.0, dtype=np.float64).tobytes() for row in rows)
        return
    rows = csr_array(rows, copy=True)
    rows.sum_duplicates()
    rows.eliminate_zeros()
    data, indices = rows.data.astype(np.float64), rows.indices.astype(np.int64)
    for lo, hi in zip(rows.indptr[:-1], rows.indptr[1:], strict=True):
        yield indices[lo:hi].tobytes() + data[lo:hi].tobytes()


def blocks(source: RowSource, n_rows: int, lo: int = 0, hi: int | None = None) -> Iterator[tuple[int, Rows]]:
    """Yield (first row, rows) of rows lo to hi, `n_rows` at a time."""
    hi = source.n if hi is None else hi
    for first in range(lo, hi, n_rows):
        yield first, source.read(first, min(first + n_rows, hi))


def opened(shared: object) -> RowSource:
    """Return the rows as a source for one task alone.

    One that reads files keeps a window of what it read last, which threads must not share.
    """
    if not isinstance(shared, RowSource):
        return row_source(shared)
    return RowSource(copy.copy(shared.array)) if shared.is_stored else shared
