"""Some rows of a large array, for a picture: the same ones every time, read without holding the rest."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dkl.blocks.memory.plan import PROCESS_BASE
from dkl.blocks.rows.row_sources import RowSource, row_source

PIECES = 32
"""Number of stretches to read of rows that are not in memory (more only if they are short)."""
SHORT = 32
"""Rows of a stretch where there are no chunks."""

MIN_POOL, MAX_POOL, MAX_POOL_BYTES = 500, 20_000, 32_000_000
POOL_SHARE = 16
"""Divisor of a memory limit, less the process itself, that bounds the rows of a plain alternative."""


def pool_rows(source: RowSource, memory_limit: int | None) -> int:
    """Return the maximum number of rows that a quality's plain alternative learns from.

    Rows of MAX_POOL_BYTES, or less under a limit, between MIN_POOL and MAX_POOL.
    """
    most = MAX_POOL_BYTES
    if memory_limit is not None:
        most = min(most, max(0, memory_limit - PROCESS_BASE) // POOL_SHARE)
    return min(source.n, max(MIN_POOL, min(MAX_POOL, most // max(source.row_bytes, 1))))


def some_rows(source: RowSource, most: int) -> NDArray[np.intp]:
    """Return (m,) sorted random row numbers, m <= `most`; from a few chunks if the rows are not in memory.

    They follow from the number of rows and the chunks alone.
    """
    n, rng = source.n, np.random.default_rng(0)
    if n <= most:
        return np.arange(n)
    if source.is_in_memory:
        return np.sort(rng.choice(n, most, replace=False, shuffle=False))
    piece = _piece(source)
    pieces = -(-n // piece)
    count = min(pieces, max(PIECES, -(-most // piece) + 1))  # one more, for the last may be short
    starts = np.sort(rng.choice(pieces, count, replace=False)) * piece
    sizes = np.minimum(piece, n - starts)
    drawn = np.sort(rng.choice(int(sizes.sum()), min(most, int(sizes.sum())), replace=False, shuffle=False))
    ends = np.cumsum(sizes)
    owner = np.searchsorted(ends, drawn, side="right")
    return np.asarray(starts[owner] + drawn - (ends - sizes)[owner])


def read_rows(source: RowSource, chosen: NDArray[np.intp]) -> Any:
    """Read the rows (m, d) with these sorted numbers, dense or CSR; a stretch is held at a time."""
    if source.is_in_memory:
        return source.array[chosen]
    piece = _piece(source)
    owner = np.asarray(chosen) // piece
    parts = [
        source.read(int(first * piece), int(min((first + 1) * piece, source.n)))[chosen[owner == first] - first * piece]
        for first in np.unique(owner)
    ]
    return sp.vstack(parts, format="csr") if sp.issparse(parts[0]) else np.concatenate(parts)


def sample(array: object, most: int) -> tuple[NDArray[np.intp], Any]:
    """Return (numbers (m,), rows (m, d)) of at most `most` rows of whatever `row_source` takes."""
    source = row_source(array)
    chosen = some_rows(source, most)
    return chosen, read_rows(source, chosen)


def _piece(source: RowSource) -> int:
    """Return the number of rows that are read together."""
    return max(SHORT, 1 if source.is_mapped else source.rows_per_chunk)
