"""Sums over rows whose terms are larger than the rows, such as Gram matrices: each process adds up its own blocks.

`RowBlocks.sum` computes a term of each block; here a function adds a block to a running total, so that a thread holds one
total however many blocks it works on:

    groups = RowGroups(X, session, block_rows=4096)
    (gram,) = groups.fold(add_block, shared)     # add_block(block, total or None, shared) -> total, in place

Blocks of `block_rows` rows make up a power of two of groups, by n alone. A group is folded in order by one thread, and
the groups' totals are added up a fixed binary tree: equal rows give equal bits on any number of threads and workers.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection

from dkl.blocks.rows.row_blocks import RowBlocks, owned
from dkl.blocks.rows.row_pieces import Block, Node, Piece, Sums, absorb, in_order, worker_threads
from dkl.blocks.session import Session
from dkl.resources import one_blas_thread

ROWS_IN_GROUP = 4096
"""Minimum number of rows in a group: with fewer, adding up totals costs as much as computing them."""
MOST_GROUPS = 256
"""Maximum number of groups, the leaves of the tree, and so of threads that a pass can use."""

Fold = Callable[..., Sums]
Partials = dict[Node, Sums]


def n_groups(n: int, block_rows: int) -> int:
    """Return the number of groups of n rows: the largest power of two, up to 256, with 4,096 rows and a block in each."""
    most = min(MOST_GROUPS, n // ROWS_IN_GROUP, -(-n // block_rows))
    return 1 << max(0, most.bit_length() - 1)


def reading_bytes(row_bytes: int, block_rows: int, chunk_rows: int) -> int:
    """Return the bytes that a thread holds while it reads blocks.

    These are the block in another type, its window of whole chunks, what is left of the window before, and a chunk as
    it is stored, unpacked and handed over.
    """
    return row_bytes * (2 * block_rows + 6 * chunk_rows)


class RowGroups(RowBlocks):
    """The rows of `X` in blocks of `block_rows`, to be folded group by group where `session` runs."""

    def __init__(
        self,
        X: object,
        session: Session,
        memory_limit: int | float | str | None = None,
        *,
        block_rows: int,
    ) -> None:
        # Before the base class' constructor, which cuts the blocks by it.
        self.block_rows = block_rows
        super().__init__(X, session, memory_limit)

    def fold(self, function: Fold, *shared: object) -> Sums:
        """Return the total over all blocks of function(block, total so far or None, *shared).

        Errors as of `RowBlocks.map`.
        """
        (total,) = self.fold_groups(function, range(self.n_groups), {}, *shared).values()
        return total

    def fold_groups(self, function: Fold, wanted: Collection[int], partials: Partials, *shared: object) -> Partials:
        """Add the totals of the `wanted` groups to `partials`, in place; once all are in, one is left.

        In between they are the state of the sum: stored, they are what a stopped pass is resumed from.
        """
        groups = frozenset(wanted)
        for part in self._run(fold_piece, function, self._group_of, groups, *shared):
            for node, value in part.items():
                absorb(partials, node, owned(value))
        return partials

    @property
    def n_groups(self) -> int:
        """Return the number of groups of these rows."""
        return n_groups(self.n, self.block_rows)

    @property
    def slots(self) -> int:
        """Return the number of groups that are worked on at a time: one a thread of all processes."""
        threads = self.session.most_threads
        return min(self.n_groups, threads * self._processes)

    def starts(self, wanted: Collection[int]) -> list[int]:
        """Return the first rows of the blocks of these groups."""
        groups = frozenset(wanted)
        return [start for (start, _), group in zip(self.bounds, self._group_of, strict=True) if group in groups]

    def in_turn(self) -> list[int]:
        """Return all groups, in an order in which consecutive ones are with different processes.

        So a pass that takes them a few at a time keeps all processes busy.
        """
        # Round robin over the pieces: the first group of each, the second of each, ...
        held = [sorted({self._group_of[index] for index, _, _ in piece}) for piece in self._ranges]
        longest = max(map(len, held))
        return [groups[k] for k in range(longest) for groups in held if k < len(groups)]

    def _bounds(self) -> list[tuple[int, int]]:
        """Cut blocks of `block_rows`, and note which group each belongs to."""
        bounds = [(lo, min(lo + self.block_rows, self.n)) for lo in range(0, self.n, self.block_rows)]
        count = self.n_groups
        self._group_of = [k for k in range(count) for _ in _share(k, count, len(bounds))]
        return bounds

    def _deal(self, pieces: int) -> list[list[tuple[int, int, int]]]:
        """Deal the blocks of whole groups to pieces: a group cut in two would have two totals."""
        count = self.n_groups
        held: list[list[tuple[int, int, int]]] = [[] for _ in range(pieces)]
        for k in range(count):
            for index in _share(k, count, len(self.bounds)):
                held[k * pieces // count].append((index, *self.bounds[index]))
        return [piece for piece in held if piece]

    @property
    def _pass_bytes(self) -> int:
        is_sent = self.session.is_distributed and not self.source.is_stored
        if self.source.is_in_memory or self.source.is_mapped or is_sent:
            return 0
        threads = min(self.n_groups, self.session.most_threads)
        return threads * reading_bytes(self.source.row_bytes, min(self.block_rows, self.n), self.source.rows_per_chunk)

    @property
    def _processes(self) -> int:
        return min(self.session.n_slots, self.n_groups) if self.session.is_distributed else 1


def _share(k: int, count: int, blocks: int) -> range:
    """Return the blocks of group k of `count`, as equal as can be."""
    return range(k * blocks // count, (k + 1) * blocks // count)


def fold_piece(piece: Piece, function: Fold, group_of: list[int], wanted: frozenset[int], *shared: object) -> Partials:
    """Task: return the totals of the `wanted` groups in the piece, by tree node; those of whole subtrees are added up."""
    held: dict[int, list[tuple[int, int, int]]] = {}
    for bound in piece.bounds:
        if group_of[bound[0]] in wanted:
            held.setdefault(group_of[bound[0]], []).append(bound)

    def fold(groups: list[int]) -> Partials:
        # Threads read side by side, each with its own window, over groups that follow each other: a chunk that
        # several groups lie in is read once.
        source = copy.copy(piece.source)
        source.array = copy.copy(source.array) if source.is_stored else source.array
        found: Partials = {}
        for group in groups:
            total = None
            for index, start, stop in held[group]:
                total = function(Block(index, start, stop, source.read(start, stop), {}), total, *shared)
            assert total is not None
            absorb(found, (0, group), total)
        return found

    partials: Partials = {}
    order = sorted(held)
    threads = min(piece.threads or worker_threads(), max(1, len(order)))
    runs = [order[k * len(order) // threads : (k + 1) * len(order) // threads] for k in range(threads)]
    with one_blas_thread():
        for part in in_order(fold, [run for run in runs if run], threads):
            for node, total in part.items():
                absorb(partials, node, total)
    return partials
