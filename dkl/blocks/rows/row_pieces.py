"""A process' part in a pass over rows: its piece of the blocks, its threads, its partial sums.

Sums are added up a binary tree whose leaves are all blocks, a power of two of them. A process that holds both children
of a node may add them, so a piece returns only the largest whole subtrees of its range, and the sum's bits do not
depend on the cut into pieces. While it runs, a piece holds one partial sum a level.

Checks of rows take one pass too: values unfit for distances, and repeated rows.
"""

from __future__ import annotations

import copy
import operator
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse

from dkl.blocks.rows.row_sources import RowSource, row_source, tidy
from dkl.errors import InputError
from dkl.io.plain_arrays import first_beyond, first_not_finite, largest_value, not_finite, refuse_too_large, too_large
from dkl.resources import one_blas_thread

if TYPE_CHECKING:
    from dkl.blocks.rows.row_blocks import RowBlocks
    from dkl.blocks.rows.row_sources import Rows
    from dkl.blocks.session import Item, Out
    from dkl.stores.seals import Json

Node = tuple[int, int]
"""(level, index) in the tree of blocks: level 0 are the blocks."""

Sums = tuple[Any, ...]
"""Result of a summed function for a block: a tuple of new arrays, which are added in place."""


@dataclass(frozen=True)
class Block:
    """Rows `start` to `stop` of the whole, (stop - start, n_features).

    `memo` keeps what the function puts there between passes, as long as the process lives and has memory: a cache, so what
    it holds must follow from the rows and the function's arguments.
    """

    index: int
    start: int
    stop: int
    rows: Rows
    memo: Json


class Piece:
    """The blocks that one process owns, `bounds` = [(index, start, stop)], and the source of their rows.

    threads=None: as many as the Dask worker has. `memos` are the blocks' caches, by block index.
    """

    def __init__(self, source: RowSource, bounds: list[tuple[int, int, int]], threads: int | None = None) -> None:
        self.source, self.bounds, self.threads = source, bounds, threads
        self.memos: dict[int, Json] = {}

    def __getstate__(self) -> dict[str, object]:
        # Memos are not sent: they are cheaper to compute again.
        return {**self.__dict__, "memos": {}}

    def __sizeof__(self) -> int:
        """Return the bytes of rows in memory and of memos; Dask asks, to decide what to spill."""
        rows = self.source.row_bytes * sum(stop - start for _, start, stop in self.bounds)
        notes = sum(getattr(item, "nbytes", 0) for memo in list(self.memos.values()) for item in list(memo.values()))
        return notes + (rows if self.source.is_in_memory else 0)

    def run(
        self, function: Callable[..., Any], only: Collection[int] | None, shared: tuple[Any, ...]
    ) -> Iterator[tuple[int, Any]]:
        """Yield (index, function(block, *shared)) for each block (those in `only`, if given), in order.

        Rows are read here, one block after the other, while the threads work on the blocks before.
        """
        wanted = [(index, start, stop) for index, start, stop in self.bounds if only is None or index in only]
        # A generator: a block is read when a thread is free for it, so that few are in memory.
        blocks = (
            Block(index, start, stop, self.source.read(start, stop), self.memos.setdefault(index, {}))
            for index, start, stop in wanted
        )
        threads = min(self.threads or worker_threads(), len(wanted))
        with one_blas_thread():
            yield from in_order(lambda block: (block.index, function(block, *shared)), blocks, threads)


def worker_threads() -> int:
    """Return the number of threads of the Dask worker that runs the current task."""
    from distributed import get_worker

    return int(get_worker().state.nthreads)


def in_order(function: Callable[[Item], Out], blocks: Iterable[Item], threads: int) -> Iterator[Out]:
    """Yield function(block) in order, computed on threads; at most `threads` + 1 blocks are held.

    Where the caller stops early, or a block fails, calls that have not started are cancelled.
    """
    if threads <= 1:
        yield from map(function, blocks)
        return
    with ThreadPoolExecutor(threads) as pool:
        pending: deque[Future[Out]] = deque()
        try:
            for block in blocks:
                pending.append(pool.submit(function, block))
                if len(pending) > threads:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            for future in pending:
                future.cancel()


def map_piece(
    piece: Piece, function: Callable[..., Out], only: Collection[int] | None, *shared: object
) -> list[tuple[int, Out]]:
    """Task: [(index, function(block, *shared))] of the piece's blocks."""
    return list(piece.run(function, only, shared))


def sum_piece(piece: Piece, function: Callable[..., Sums], *shared: object) -> dict[Node, Sums]:
    """Task: the sums of function(block, *shared) over the largest whole subtrees of the piece's blocks."""
    partials: dict[Node, Sums] = {}
    for index, value in piece.run(function, None, shared):
        absorb(partials, (0, index), value)
    return partials


def absorb(partials: dict[Node, Sums], node: Node, value: Sums) -> None:
    """Put `value` at `node` of `partials`, then add siblings upwards as long as both are there; adds in place."""
    level, index = node
    while (level, index ^ 1) in partials:
        # Floating-point addition commutes, so it does not matter which of the two came first.
        value = tuple(map(operator.iadd, value, partials.pop((level, index ^ 1))))
        level, index = level + 1, index >> 1
    partials[level, index] = value


def load_piece(piece: Piece) -> Piece:
    """Task: the piece with its rows in the worker's memory, and no memos."""
    # Read in the piece's own blocks: a chunked file is not read at once next to its copy.
    source = piece.source.load([(start, stop) for _, start, stop in piece.bounds])
    return Piece(source, piece.bounds, piece.threads)


def open_piece(piece: Piece) -> Piece:
    """Task: the piece itself, to live on a worker with its open files and memos."""
    return piece


def piece_of(rows: Rows, bounds: list[tuple[int, int, int]], dtype: np.dtype) -> Piece:
    """Task: a piece of rows (m, n_features) that Dask has put together, in the dtype of the whole."""
    return Piece(RowSource(tidy(rows, dtype, bounds[0][1]), bounds[0][1]), bounds)


def forget_piece(piece: Piece) -> None:
    """Task: drop the memos."""
    piece.memos.clear()


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
    """Raise InputError for rows whose sum of squares about their mean, `square`, underflows, or is what rounding has left of it.

    One pass, where `square` is below LEAST_SQUARE.
    """
    if not square < LEAST_SQUARE:
        return
    largest = max(rows.map(_largest_difference, rows.take(np.zeros(1, np.intp))))
    # The squares of two rows about their mean are half that of their difference at least.
    if largest > 2 * LEAST_SQUARE**0.5:
        raise InputError(
            "rounding hides how rows differ: they are too far from 0", where="X",
            got=f"differences of at most {largest:.3g} in a column", remedy="subtract each column's mean",
        )  # fmt: skip
    if largest > 0:
        raise InputError("numbers too small to square", where="X", remedy="scale the rows up")


def refuse_extreme(rows: NDArray) -> None:
    """Raise InputError for rows (n, d) in memory that are too large to square, or whose differences are all too small to."""
    refuse_too_large(rows, largest_value(rows.shape[1]))
    spread = float(np.ptp(rows, axis=0).max())
    if 0 < spread < LEAST_SQUARE**0.5:
        raise InputError("numbers too small to square", where="X", remedy="scale the rows up")


def _largest_difference(block: Block, first: Any) -> float:
    """Return the largest |difference| of an entry of the block from that of `first` (1, d)."""
    if issparse(block.rows):
        # Sparse arrays do not broadcast: the first row is repeated by a product.
        ones = csr_array(np.ones((block.rows.shape[0], 1)))
        return float(abs(block.rows - ones @ csr_array(first)).max())
    return float(np.abs(block.rows - first).max())


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
