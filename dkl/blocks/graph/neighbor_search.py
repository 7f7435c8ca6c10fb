"""The nearest neighbors of all rows of X, block by block, on threads or workers.

A task owns a range of query rows. It reads X once from end to end, block by block, and merges each block into its
lists. An index shortens the way: a k-d tree finds the neighbors of rows of few features without a pass; an inverted
file proposes candidates, whose distances are then taken from X in one pass.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse, vstack

from dkl.blocks.graph.graph_plan import SPARE
from dkl.blocks.rows.row_checks import blocks, check_rows, opened, refuse_first
from dkl.blocks.rows.row_sources import RowSource
from dkl.blocks.session import Session
from dkl.blocks.slabs.slab_worker import is_cluster_failure
from dkl.blocks.workers import waiting
from dkl.errors import DataWarning
from dkl.linalg.graph import neighbors_ivf
from dkl.linalg.graph.neighbors import Lists, Rows, absorb, absorb_candidates, empty_lists, search_tree
from dkl.linalg.one_blas_thread import one_blas_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dkl.blocks.session import Out

RECALL_WANTED = 0.99
"""Share of the true neighbors that an approximate search must find on the sample."""
_SAMPLE = 1000
_FIRST_PROBES = 8
# With more of the cells an inverted file is slower than a look at all rows: 7 ns a row and query against 1 to 2.
_PROBES_WORTH_IT = 1 / 8


@dataclass(frozen=True)
class NeighborSearch:
    """Neighbor search of `source` in `session`, by blocks of `query_rows` and `reference_rows`.

    n_tasks: the number of tasks that a small search, of a sample say, is cut into. Memory follows from the two block sizes:
    see `plan_graph`.
    """

    source: RowSource
    session: Session
    query_rows: int
    reference_rows: int
    n_tasks: int

    def check(self) -> tuple[int, int]:
        """Return (rows that repeat an earlier one, the most rows that are equal), counted in one pass.

        Raises InputError, with the entry's row and column, for NaN, infinity, or a value whose squared distances overflow.
        """
        parts = self._map(check_rows, self._ranges(), (self.source,), self.reference_rows)
        refuse_first([fault for fault, _ in parts], self.source.n_features)
        digests = np.concatenate([np.frombuffer(digest, dtype="S16") for _, digest in parts])
        counts = np.unique(digests, return_counts=True)[1]
        return self.source.n - counts.size, int(counts.max())

    def exact(self, k: int, tree: Any = None) -> Lists:
        """Find the k nearest rows of each row, by distance, then row number; `tree`: a KDTree of all or None."""
        return self._lists(self._ranges(), k, tree)

    def approximate(self, k: int, rng: np.random.Generator, *, worth_it: bool) -> tuple[Lists, float] | None:
        """Return (lists, recall) by an inverted file; None if `worth_it` is set and exact search is faster.

        The number of cells visited doubles until the recall on a sample of 1,000 rows is 0.99, or all are visited. A neighbor
        counts as found if it is no farther than the true k-th one. Warns (DataWarning) of a recall below that.
        """
        n = self.source.n
        sample = np.sort(rng.choice(n, min(_SAMPLE, n), replace=False))
        # The truth of the sample costs a pass over all rows, as any recall that is measured must.
        pieces = np.array_split(sample, min(self.n_tasks, sample.size))
        truth = self._lists(pieces, k, None)
        n_cells, n_probes = neighbors_ivf.n_cells(n), _FIRST_PROBES
        index = self._inverted_file(rng)
        while True:
            n_probes = min(n_probes, n_cells)
            if worth_it and n_probes > _PROBES_WORTH_IT * n_cells:
                return None
            if recall(self._lists(pieces, k, index, n_probes), truth) >= RECALL_WANTED or n_probes == n_cells:
                break
            n_probes *= 2
        lists = self._lists(self._ranges(), k, index, n_probes)
        short = np.flatnonzero(~np.isfinite(lists.dist2[:, -1]))
        if short.size:  # too few rows in the cells that were visited: these are searched exactly
            full = self._lists(np.array_split(short, min(self.n_tasks, short.size)), k, None)
            lists.dist2[short], lists.rows[short] = full
        reached = recall(Lists(lists.dist2[sample], lists.rows[sample]), truth)
        if reached < RECALL_WANTED:
            warnings.warn(
                f"approximate neighbors: recall {reached:.3f} on a sample, wanted {RECALL_WANTED}; try 'exact'",
                DataWarning,
                stacklevel=4,
            )
        return lists, reached

    @cached_property
    def _copies(self) -> dict[int, tuple[Any, Any]]:
        """Return the items that were sent to the workers, (item, as sent) by the item's id."""
        # A cached property of a frozen dataclass: the search itself never changes.
        return {}

    def _shared(self, item: object) -> Any:
        """Return `item` as tasks get it: sent to the workers the first time."""
        if id(item) not in self._copies:
            self._copies[id(item)] = item, share(self.session, item)  # the item too, or its id might be another's
        return self._copies[id(item)][1]

    def _ranges(self) -> list[NDArray[np.int64]]:
        """Return the query rows of each task: consecutive ranges of `query_rows`."""
        n, step = self.source.n, self.query_rows
        return [np.arange(lo, min(lo + step, n)) for lo in range(0, n, step)]

    def _lists(self, pieces: list[NDArray[np.int64]], k: int, index: object, n_probes: int = 0) -> Lists:
        """Return the lists of all rows in `pieces`, in their order, one task a piece."""
        parts = self._map(search_rows, pieces, (self.source, index), n_probes, k, self.reference_rows)
        return Lists(*(np.concatenate(column) for column in zip(*parts, strict=True)))

    def _map(
        self, function: Callable[..., Out], items: Sequence[object], shared: tuple[object, ...], *arguments: object
    ) -> list[Out]:
        """Return function(item, *shared, *arguments) for each item; send shared copies again if lost."""
        if not self.session.is_distributed:
            with one_blas_thread():
                return self.session.map(function, items, *shared, *arguments)
        for _ in waiting.attempts():
            try:
                return self.session.map(function, items, *map(self._shared, shared), *arguments)
            except Exception as error:
                if not is_cluster_failure(error) or type(error).__name__ == "KilledWorker":
                    raise
                # Scattered data has no task that could compute it again: what died with a worker is gone for good.
                self._copies.clear()
                waiting.workers(self.session)
        raise AssertionError("waiting.attempts() ends with WorkersLostError")

    def _inverted_file(self, rng: np.random.Generator) -> neighbors_ivf.InvertedFile:
        """Build the index of all rows, trained and filled in this process from blocks of rows.

        Here and not on workers: faiss numbers rows in the order they are added, and its k-means is not distributed.
        """
        n = self.source.n
        sample = np.sort(rng.choice(n, neighbors_ivf.sample_size(n), replace=False))
        with one_blas_thread():
            index = neighbors_ivf.train(take(self.source, sample, self.reference_rows), n)
            for _, rows in blocks(self.source, self.reference_rows):
                neighbors_ivf.add(index, rows)
        return index


def share(session: Session, item: object) -> Any:
    """Return `item` as an argument of `session.map`: itself on threads, or a future of copies on workers.

    Rows on disk and dask arrays are not sent: the workers open them.
    """
    if not session.is_distributed or item is None:
        return item
    if isinstance(item, RowSource):
        if not item.is_in_memory:
            return item
        item = item.array
    return session.send(item)


def take(source: RowSource, ids: NDArray[np.int64], n_rows: int) -> Rows:
    """Return the rows of ascending numbers `ids`, read at most `n_rows` at a time unless consecutive."""
    lo, hi = int(ids[0]), int(ids[-1]) + 1
    if hi - lo == len(ids):
        return source.read(lo, hi)
    parts = []
    for first in range(lo, hi, n_rows):
        wanted = ids[slice(*np.searchsorted(ids, (first, first + n_rows)))]
        if wanted.size:
            parts.append(source.read(first, int(wanted[-1]) + 1)[wanted - first])
    return csr_array(vstack(parts, format="csr")) if issparse(parts[0]) else np.concatenate(parts)


def recall(found: Lists, truth: Lists) -> float:
    """Return the share of neighbors no farther than the last true one: a tie counts as found."""
    return float((found.dist2 <= truth.dist2[:, -1:]).mean())


def search_rows(
    ids: NDArray[np.int64], shared: object, index: object, n_probes: int, k: int, reference_rows: int
) -> Lists:
    """Task: the k nearest rows of the rows `ids`, in one pass over all rows, or by the index.

    index: None for all pairs, a KDTree, or an InvertedFile, of which `n_probes` cells are visited.
    """
    source = opened(shared)
    queries = take(source, ids, reference_rows)
    if index is not None and not isinstance(index, neighbors_ivf.InvertedFile):
        return search_tree(index, np.require(queries, np.float64, ["C", "A"]), ids, k)
    lists = empty_lists(len(ids), k)
    proposed = None if index is None else neighbors_ivf.candidates(index, queries, k + SPARE, n_probes)
    for first, references in blocks(source, reference_rows):
        if proposed is None:
            absorb(lists, queries, ids, references, first)
        else:
            absorb_candidates(lists, queries, ids, references, first, proposed)
    return lists
