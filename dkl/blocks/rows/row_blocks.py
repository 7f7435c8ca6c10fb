"""A pass over the rows of a large 2-d array: the same function on every block of rows, on threads or on workers.

    rows = RowBlocks(X, Session.find(client))
    norms = rows.map(row_norms)                  # [row_norms(block) for each block], in block order
    (gram,) = rows.sum(gram_matrix)              # sum over the blocks of gram_matrix(block), a tuple of arrays

The function gets a `Block` (`block.rows`, `block.start`, `block.stop`, ...) and whatever is passed behind it. Workers
must be able to import it, and may run it again when one of them is lost: it should change nothing but `block.memo`.

- Blocks are cut by n and the bytes of a row alone, never by who works on them, and `sum` adds along a fixed binary
  tree: equal rows give equal bits on any number of threads and workers.
- There is one task a worker and pass. A worker owns a contiguous piece of the blocks, runs its threads over them, and
  keeps the piece between passes. What only this process holds is sent once. What is on disk is read by the workers,
  and kept by them where it fits. A lost worker's piece is sent or read again, on another worker if need be.
- `memory_limit` (bytes a process) bounds the rows a process keeps. Beyond it, stored rows are read again in each pass,
  and pieces of other arrays are cut small, for Dask to spill those not in use.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dkl.blocks.rows.row_pieces import (
    Block,
    Node,
    Piece,
    Sums,
    absorb,
    forget_piece,
    load_piece,
    map_piece,
    open_piece,
    piece_of,
    sum_piece,
)
from dkl.blocks.rows.row_sources import bytes_of_rows, row_source
from dkl.blocks.session import Session
from dkl.blocks.workers import waiting
from dkl.errors import MemoryBudgetError, StateLost, WorkersLostError
from dkl.resources import format_bytes, machine_memory, parse_bytes

if TYPE_CHECKING:
    from dkl.blocks.session import Out
    from dkl.linalg.rows import Rows

__all__ = ["MEMORY_SHARE", "Block", "RowBlocks", "machine_memory", "row_bounds"]

SMALLEST_BLOCK, LARGEST_BLOCK = 2 * 10**6, 16 * 10**6
"""Bytes of a block: enough for its arithmetic to outweigh a call; few enough to hold several."""

BLOCKS_AIMED_AT = 256
"""Number of blocks aimed at between the two sizes: enough for the threads of a large cluster."""
MEMORY_SHARE = 0.75
"""Share of the machine's memory that a plan without a limit may take."""
LARGE_ARGUMENT = 10**6
"""Bytes above which an argument is sent to each worker once, instead of inside each task."""


def row_bounds(n: int, row_bytes: int, least_rows: int = 1, result_bytes: int = 0) -> list[tuple[int, int]]:
    """Return [(start, stop)] of the blocks of n rows: a power of two of near-equal ones, for sums.

    As many as give blocks of 2 to 16 MB (or less, by up to half), about 256 in between; none has less than `least_rows`. A
    row counts 128 bytes at least, for what is computed for a row (distances, labels) not to outgrow the rows, or `result_bytes`.
    """
    total = n * max(row_bytes, result_bytes, 128)
    target = min(max(total / BLOCKS_AIMED_AT, SMALLEST_BLOCK), LARGEST_BLOCK)
    count = 1
    while count * target < total and 2 * count * least_rows <= n:
        count *= 2
    return [(k * n // count, (k + 1) * n // count) for k in range(count)]


class RowBlocks:
    """The rows of `X`, block by block, where `session` runs. `X` and the rest: see the head of this file. once: each block is
    asked for in one pass alone, so that stored rows need not be kept. least_rows: of a block. result_bytes: computed for a row, where it
    is more than the row.

    Attributes: n, n_features, dtype (of `block.rows`: float32 or float64), bounds [(start, stop)], is_sparse.
    Raises InputError for what is not a 2-d array of real numbers, MemoryBudgetError when `memory_limit` is less than
    a pass needs.
    """

    def __init__(
        self,
        X: object,
        session: Session,
        memory_limit: int | float | str | None = None,
        *,
        where: str = "X",
        once: bool = False,
        least_rows: int = 1,
        result_bytes: int = 0,
    ) -> None:
        self.source, self.session, self._once = row_source(X, where=where), session, once
        self._least_rows, self._result_bytes = least_rows, result_bytes
        self.n, self.n_features, self.dtype = self.source.n, self.source.n_features, self.source.dtype
        self.is_sparse = self.source.is_sparse
        self.bounds = self._bounds()
        limit = parse_bytes(memory_limit)
        if limit is not None:
            self._check_pass(limit, where)
        self.budget = limit or (_worker_budget(session) if session.is_distributed else machine_memory() // 4)
        self._ranges = self._cut()
        self._items: list[Any] = [None] * len(self._ranges)
        self._shared: dict[int, tuple[Any, Any]] = {}

    def map(self, function: Callable[..., Out], *shared: object, only: Collection[int] | None = None) -> list[Out]:
        """Return [function(block, *shared) for each block (or those with index in `only`)], in block order.

        Raises what the function raises, and WorkersLostError when workers are lost in each of `waiting.attempts()`, or
        several of them in one task.
        """
        pairs = [pair for part in self._run(map_piece, function, only, *shared) for pair in part]
        return [result for _, result in sorted(pairs, key=lambda pair: pair[0])]

    def sum(self, function: Callable[..., Sums], *shared: object) -> Sums:
        """Return the sum over all blocks of the tuple of arrays function(block, *shared), by component.

        The function returns new arrays, which are added in place. Only sums of whole subtrees are sent between
        processes. Errors as of `map`.
        """
        merged: dict[Node, Sums] = {}
        for part in self._run(sum_piece, function, *shared):
            for node, value in part.items():
                absorb(merged, node, owned(value))
        (total,) = merged.values()
        return total

    def keeps(self, bytes_per_row: float) -> bool:
        """Return whether memos of `bytes_per_row` a row fit into a process' budget next to its kept rows."""
        kept = self._share if self._holds_copies else self._pass_bytes
        return kept + bytes_per_row * self.n / self._processes <= self.budget

    def forget(self) -> None:
        """Drop the memos of all blocks, on all workers."""
        self._run(forget_piece)

    # -- who holds which rows -----------------------------------------------------------------------------------------

    def _bounds(self) -> list[tuple[int, int]]:
        """Return [(start, stop)] of the blocks; `RowGroups` cuts them otherwise."""
        return row_bounds(self.n, self.source.row_bytes, self._least_rows, self._result_bytes)

    @property
    def _processes(self) -> int:
        """Return the number of processes that hold pieces."""
        return min(self.session.n_slots, len(self.bounds)) if self.session.is_distributed else 1

    @property
    def _share(self) -> float:
        """Return the bytes of rows for each process."""
        return self.n * self.source.row_bytes / self._processes

    @property
    def _holds_copies(self) -> bool:
        """Return whether passes run over copies of the rows in memory, not X itself or rows read each time."""
        if self.source.is_mapped or (self._once and self.source.is_stored):
            return False
        if self.source.is_stored or not self.session.is_distributed:
            return not self.source.is_in_memory and not self.source.is_foreign and self._share <= self.budget
        return True

    def _cut(self) -> list[list[tuple[int, int, int]]]:
        """Cut the blocks [(index, start, stop)] into pieces: one a process.

        Where rows are sent that do not fit, several: each of a quarter of the budget, so that Dask can spill those not in use.
        """
        processes, rounds = self._processes, 1
        if self.session.is_distributed and not self.source.is_stored and self._share > self.budget:
            rounds = min(-int(-4 * self._share // self.budget), len(self.bounds) // processes)
        cuts = self._deal(processes * rounds)
        if len(cuts) < processes * rounds:
            return cuts
        # Piece k goes to worker k modulo their number: dealt like this, a worker's pieces are neighbors.
        return [cuts[worker * rounds + turn] for turn in range(rounds) for worker in range(processes)]

    def _deal(self, pieces: int) -> list[list[tuple[int, int, int]]]:
        """Return the blocks [(index, start, stop)] in `pieces` contiguous parts."""
        blocks = [(index, start, stop) for index, (start, stop) in enumerate(self.bounds)]
        return [blocks[k * len(blocks) // pieces : (k + 1) * len(blocks) // pieces] for k in range(pieces)]

    def _run(self, task: Callable[..., Out], *shared: object) -> list[Out]:
        """Return task(piece, *shared) for each piece, in order; submitted again if sent rows are lost."""
        if self.session.client is None:
            return self.session.map(task, self._placed_items(), *shared)
        for _ in waiting.attempts():
            try:
                return self._run_on_workers(task, *shared)
            except (CancelledError, StateLost):  # sent again by the next attempt
                continue
            except Exception as error:
                # By name: distributed is not imported where there is no cluster. Dask raises this once several workers
                # have died with a task, most likely because of it: another attempt would kill more.
                if type(error).__name__ != "KilledWorker":
                    raise
                remedy = self.session.more_memory()
                if not self.session.own:  # whose limit --memory-limit is
                    remedy += ", or set memory_limit lower"
                raise WorkersLostError("several workers died in one task", where=str(error), remedy=remedy) from error
        raise AssertionError("waiting.attempts() ends with WorkersLostError")

    def _run_on_workers(self, task: Callable[..., Out], *shared: object) -> list[Out]:
        """Make one attempt of `_run` on the workers; return the results in order.

        Raises CancelledError where a task will never run, StateLost where it could not be sent what it needs; all
        pieces are then placed again.
        """
        # Not Session.map: it would wait for ever for pieces that Dask set aside when all workers were lost. For the same
        # reason tasks name a worker but may run on others.
        client = self.session.client
        try:
            items, workers = self._placed_items(), waiting.workers(self.session)
            sent = [self._sent(argument) for argument in shared]
            futures = [
                self.session.submit(task, item, *sent, allow_other_workers=True, workers=[workers[k % len(workers)]])
                for k, item in enumerate(items)
            ]
            return waiting.gather(self.session, futures, [*items, *(part for part in sent if hasattr(part, "key"))])
        except (CancelledError, StateLost):
            # Everything is sent again. The client may not have heard yet that scattered rows died with their worker; and
            # tasks of a Dask array that wait for a lost worker have the same names as those submitted again, so that
            # Dask would take the former for the latter.
            client.cancel([item for item in self._items if hasattr(item, "key")])
            self._items, self._shared = [None] * len(self._items), {}
            raise

    def _placed_items(self) -> list[Any]:
        """Return a piece for each range: here, or a future on its worker. Those lost are placed again."""
        for k, item in enumerate(self._items):
            if item is None or getattr(item, "status", "pending") not in ("finished", "pending"):
                self._items[k] = self._placed(k)
        return self._items

    def _placed(self, k: int) -> Any:
        """Return piece k: here, or a future of it on its worker.

        What a worker can open by itself is sent as a path; a Dask array is put together by its own graph; all else is sent as
        rows.
        """
        bounds, source, client = self._ranges[k], self.source, self.session.client
        if client is None:
            piece = Piece(source, bounds, self.session.threads)
            return load_piece(piece) if self._holds_copies else piece
        workers = waiting.workers(self.session)
        home = [workers[k % len(workers)]]
        if source.is_stored:
            task = load_piece if self._holds_copies else open_piece
            return self.session.submit(task, Piece(source, bounds), allow_other_workers=True, workers=home)
        start, stop = bounds[0][1], bounds[-1][2]
        if source.is_dask:
            import dask

            rows = source.array[start:stop].rechunk(-1).to_delayed().item()
            # The piece alone is sent to its worker. If the array's own tasks were as well, those of a worker that dies as
            # the last one would be set aside for ever, and under names that everybody who uses the array shares.
            with dask.annotate(workers=home, allow_other_workers=True):
                piece = dask.delayed(piece_of, pure=False)(
                    rows, bounds, source.dtype, dask_key_name=self.session.key(piece_of)
                )
            with self.session.span():
                return client.compute(piece)
        return self.session.send(Piece(source.part(start, stop), bounds), home)

    def _sent(self, argument: object) -> Any:
        """Return a future of a large argument, sent to the workers once, not in each task; two are kept.

        A solver passes the same centers, or points, to several passes.
        """
        if self.session.client is None or bytes_of_rows(argument) < LARGE_ARGUMENT:
            return argument
        known, future = self._shared.get(id(argument), (None, None))
        if known is not argument or future.status != "finished":
            self._shared = {key: value for key, value in list(self._shared.items())[-1:] if key != id(argument)}
            future = self.session.send(argument)
        else:
            del self._shared[id(argument)]  # to its end: of the two that are kept, the one used last stays longest
        self._shared[id(argument)] = argument, future
        return future

    def take(self, indices: NDArray[np.intp]) -> Rows:
        """Return the rows at `indices`, in order, with repeats: (m, n_features), dense or CSR as the rows are."""
        owners = np.searchsorted([start for start, _ in self.bounds], indices, side="right") - 1
        parts = self.map(take_rows, indices, only=set(owners.tolist()) or {0})  # of none: no rows of the first block
        order = np.argsort(owners, kind="stable")  # as the parts come
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        together = sp.vstack(parts, format="csr") if self.is_sparse else np.concatenate(parts)
        return together[back]

    @property
    def _pass_bytes(self) -> int:
        """Return the bytes that a pass over rows that are read holds at a time.

        These are blocks on two threads, one being read, and the chunks that it is cut from, packed and unpacked.
        """
        if self.source.is_in_memory or self.source.is_mapped:
            return 0
        rows = max(stop - start for start, stop in self.bounds)
        return (3 * rows + 2 * (rows + self.source.rows_per_chunk)) * self.source.row_bytes

    def _check_pass(self, limit: int, where: str) -> None:
        if self._pass_bytes > limit:
            rows = max(stop - start for start, stop in self.bounds)
            raise MemoryBudgetError(
                "a pass over the rows does not fit",
                where=where,
                got=f"memory_limit {format_bytes(limit)}",
                wanted=f"{format_bytes(self._pass_bytes)}: blocks of {rows} rows, chunks of {self.source.rows_per_chunk}",
                remedy="raise memory_limit, or store the rows in smaller chunks",
            )


def take_rows(block: Block, indices: NDArray[np.intp]) -> Rows:
    """Return the rows of a block that `indices` (of the whole) name, in their order."""
    return block.rows[indices[(indices >= block.start) & (indices < block.stop)] - block.start]


def owned(value: Sums) -> Sums:
    """Return sums with writable arrays; those that came over a network may be read-only."""
    return tuple(np.require(item, requirements="W") if isinstance(item, np.ndarray) else item for item in value)


def _worker_budget(session: Session) -> int:
    """Return bytes of rows that a worker may keep: 0.4 of the smallest limit, as Dask spills from 0.6 on."""
    workers = session.members().values()
    limits = [worker.get("memory_limit") or machine_memory() // max(1, len(workers)) for worker in workers]
    return int(0.4 * min(limits, default=machine_memory()))
