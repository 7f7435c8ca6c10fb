"""A process' part in a pass over rows: its piece of the blocks, its threads, its partial sums.

Sums are added up a binary tree whose leaves are all blocks, a power of two of them. A process that holds both children
of a node may add them, so a piece returns only the largest whole subtrees of its range, and the sum's bits do not
depend on the cut into pieces. While it runs, a piece holds one partial sum a level.
"""

from __future__ import annotations

import operator
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dkl.blocks.rows.row_sources import RowSource, tidy
from dkl.linalg.one_blas_thread import one_blas_thread

if TYPE_CHECKING:
    import numpy as np

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
