"""The nearest neighbors of all rows of X, block by block, on threads or workers, and the memory plan of building their graph.

The plan follows from shapes alone. A task owns a range of query rows. It reads X once from end to end, block by block, and merges each
block into its lists. An index shortens the way: a k-d tree finds the neighbors of rows of few features without a pass; an inverted
file proposes candidates, whose distances are then taken from X in one pass.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from math import ceil
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse, vstack

from dkl.blocks.memory_plan import BYTES_A_SECOND, ROUND_SECONDS, Place, Way, fewer, idle_workers, what_helps
from dkl.blocks.rows.row_pieces import blocks, check_rows, opened, refuse_first
from dkl.blocks.rows.row_sources import RowSource
from dkl.blocks.session import Session
from dkl.blocks.slabs.slab_worker import is_cluster_failure
from dkl.blocks.workers import waiting
from dkl.errors import DataWarning, MemoryBudgetError
from dkl.linalg.graph import neighbors_ivf
from dkl.linalg.graph.laplacian import SIGMA_NEIGHBORS
from dkl.linalg.graph.neighbors import (
    QUERY_TILE,
    REFERENCE_TILE,
    Lists,
    Rows,
    absorb,
    absorb_candidates,
    empty_lists,
    search_tree,
)
from dkl.linalg.graph.neighbors_ivf import PIECE, sample_size
from dkl.resources import format_bytes, one_blas_thread

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dkl.blocks.session import Out


TREE_FEATURES = 8  # a k-d tree beats products up to here at n = 100,000 of normal deviates
SPARE = 8  # candidates taken beyond the neighbors: the index is of single precision, and finds the query itself
SPAN = PIECE  # query ranges begin at its multiples, so that pieces are the same for every plan
_DEFAULT_BUDGET = 256 * 10**6  # bytes of blocks a slot where no limit is given
# Bytes a directed edge at the peaks of making W and L, measured where no edge is mutual: 49 and 110 to 115.
_GRAPH, _LAPLACIAN = 55, 120
_JOINED = 100  # bytes a directed edge while components are joined
# Of a thread for a distance, and for each byte of a row in it: benchmarks/system/graph.md.
_PAIR_SECONDS, _BYTE_SECONDS = 5e-10, 1.2e-11
_ROUNDS = 20  # of the scheduler's, each some exchanges long
_STAGES = ("search", "check", "assembly", "joining")


def graph_session(source: RowSource, session: Session, memory_limit: int | None) -> Session:
    """Return where the graph of these rows is built: `session`, or this process alone where its workers would take as long.

    On the workers wherever a limit is given, or the rows are not in this process.
    """
    if not session.is_distributed or memory_limit is not None or not source.is_in_memory:
        return session
    place, held = Place.of(session), source.n * source.row_bytes
    seconds = source.n**2 * (_PAIR_SECONDS + source.row_bytes * _BYTE_SECONDS)
    sent = held * place.processes / BYTES_A_SECOND
    there = seconds / (place.processes * place.threads) + _ROUNDS * ROUND_SECONDS + sent
    return session.here() if idle_workers(place, seconds / session.threads, there, held) else session


def plan_graph(
    n: int,
    n_features: int,
    itemsize: int,
    n_neighbors: int,
    memory_limit: int | None,
    *,
    n_slots: int = 1,
    n_tasks: int = 1,
    chunk_rows: int = 1,
    density: float = 1.0,
    in_place: bool = False,
    index: str = "none",
    is_joined: bool = False,
    bytes_used: int = 0,
) -> dict[str, int]:
    """Return the bytes that `build_graph` holds in addition to X, and the two block sizes for that.

    X is (n, n_features) of `itemsize` bytes once read, of which the share `density` is stored (1: dense), in chunks of
    `chunk_rows`, or in this process' memory already (`in_place`). At a time `n_slots` tasks run in a process, which may
    use `memory_limit` bytes (None: no limit); where memory allows there are `n_tasks` tasks in all. `index`: "none", "tree" or
    "ivf", held once. `is_joined`: whether components may be joined, which takes a copy of the rows. `bytes_used`: bytes of the limit
    that are taken already: the process itself, an X that was read for this.

    Returns `query_rows` and `reference_rows` (counts) and, in bytes: `block` (one task), `blocks` (all slots), `index`,
    `lists` (neighbors, twice while they are gathered), `search` (these three), `check` (the first pass), `assembly`
    (W and L, with the lists), `joining` and `peak`, the largest stage. Raises MemoryBudgetError if that and `bytes_used`
    exceed the limit.
    """
    given = {"n_neighbors": n_neighbors, "n_slots": n_slots, "chunk_rows": chunk_rows, "index": index}
    given["is_joined"] = is_joined

    room = None if memory_limit is None else memory_limit - bytes_used

    def plan(**changes: Any) -> dict[str, int]:
        sizes = (n, n_features, itemsize, room)
        return _plan(*sizes, n_tasks=n_tasks, density=density, in_place=in_place, **{**given, **changes})

    def fits(**changes: object) -> bool:
        return room is None or plan(**changes)["peak"] <= room

    found = plan()
    if memory_limit is not None and not fits():
        _refuse(found, memory_limit, bytes_used, _ways(n_slots, n_neighbors, chunk_rows, index, fits))
    return found


def _plan(
    n: int,
    n_features: int,
    itemsize: int,
    memory_limit: int | None,
    *,
    n_neighbors: int,
    n_slots: int,
    n_tasks: int,
    chunk_rows: int,
    density: float,
    in_place: bool,
    index: str,
    is_joined: bool,
) -> dict[str, int]:
    """Return the bytes of `plan_graph`, whether they fit or not."""
    k = max(n_neighbors, min(SIGMA_NEIGHBORS, n - 1))
    entries = ceil(density * n_features)
    if density < 1:
        read, work = (1 if in_place else 2) * entries * (itemsize + 4), 16 * entries
        joining_row = entries * ((2 if in_place else 3) * (itemsize + 4) + 48) + 200
    else:
        read, work = (0 if in_place else 2) * entries * itemsize, (0 if index == "none" else 8) * entries
        joining_row = entries * (2 if in_place else 3) * itemsize + 200
    proposed = {"none": 0, "tree": 48 * (k + 2), "ivf": 24 * (k + SPARE)}[index]
    # Of a query: the row, its working copy, its list, and what the index proposes for it.
    query_row = read + work + 16 * k + proposed
    reference_row = read + work + 8
    queries, references = min(QUERY_TILE, n), min(REFERENCE_TILE, n)
    tiles = 8 * (n_features + 1) + 4 * 8 * (queries + references) * (entries + 1) + 8 * queries * references
    # In addition to the block, the rest of its window of whole chunks, and a chunk as it is stored, unpacked and handed
    # over.
    chunk = 2 * read * min(n, chunk_rows) if chunk_rows > 1 else 0
    held = 0
    if index != "none":
        held = tree_bytes(n, n_features) if index == "tree" else _ivf_bytes(n, n_features)
    lists = 2 * n * k * 16  # twice: the parts, and what they are concatenated to
    # W and L have up to 2 n k + n entries; from 2^31 on their indices are of 64 bits, which counts as twice the edges.
    edges = n * n_neighbors * (2 if 2 * n * n_neighbors + n >= 2**31 else 1)
    assembly = max(lists // 2 + edges * _GRAPH, edges * _LAPLACIAN) + 64 * n

    # What is left of the budget goes to queries and references alike: each half is read as often as the other has blocks.
    least = min(n, SPAN) * (query_row + reference_row) + tiles + chunk
    budget = _DEFAULT_BUDGET if memory_limit is None else (memory_limit - held - lists) // n_slots
    free = max(0, budget - least)
    query_rows = min(_whole(SPAN + free // 2 // query_row, SPAN), _whole(ceil(n / n_tasks) + SPAN - 1, SPAN), n)
    reference_rows = min(_whole(SPAN + free // 2 // reference_row, chunk_rows), n)
    block = query_rows * query_row + reference_rows * reference_row + tiles + chunk
    plan = {
        "query_rows": query_rows,
        "reference_rows": reference_rows,
        "block": block,
        "blocks": n_slots * block,
        "index": held,
        "lists": lists,
        "search": n_slots * block + held + lists,
        "check": n_slots * (reference_rows * reference_row + chunk) + 64 * n,
        "assembly": assembly,
        # The rows, those that differ, and these in the order of their components; their lists; W, and W with the joining edges.
        "joining": n * joining_row + edges * _JOINED + n_slots * tiles if is_joined else 0,
    }
    plan["peak"] = max(plan[stage] for stage in _STAGES)
    return plan


def _ways(n_slots: int, n_neighbors: int, chunk_rows: int, index: str, fits: Callable[..., bool]) -> list[Way]:
    """Return the changes, as remedies with their checks, that may make the graph's plan fit."""
    ways = fewer("use {} thread(s)", lambda count: fits(n_slots=count), n_slots)
    ways += fewer("lower n_neighbors to {}", lambda count: fits(n_neighbors=count), n_neighbors)
    if chunk_rows > 1:
        ways += fewer("store X in chunks of {} rows", lambda count: fits(chunk_rows=count), chunk_rows)
    if index != "none":
        ways.append(("use method='exact'", lambda: fits(index="none")))
    return ways


def _refuse(plan: dict[str, int], memory_limit: int, bytes_used: int, ways: list[Way]) -> None:
    """Raise MemoryBudgetError for the stage of the plan that takes most, with the remedies."""
    stage = max(_STAGES, key=lambda name: plan[name])
    what = {
        "joining": "joining components",
        "search": "the search for neighbors",
        "check": "the first pass over X",
        "assembly": "putting the graph together",
    }[stage]
    raise MemoryBudgetError(
        f"{what} does not fit",
        where="build_graph",
        got=f"memory_limit {format_bytes(memory_limit)}",
        wanted=f"{format_bytes(plan['peak'] + bytes_used)}",
        remedy=what_helps(ways),
    )


def _whole(rows: int, unit: int) -> int:
    """Return the largest multiple of `unit` up to `rows`, at least one."""
    return max(unit, rows // unit * unit)


def tree_bytes(n: int, n_features: int) -> int:
    """Return the bytes of a k-d tree: rows in float64, their order, two corners a leaf and a node.

    A leaf has 20 to 40 rows.
    """
    return n * (8 * n_features + 8) + n // 10 * (16 * n_features + 32)


def _ivf_bytes(n: int, n_features: int) -> int:
    """Return the bytes of an inverted file: float32 rows and numbers, in doubling lists; a sample."""
    return 2 * n * (4 * n_features + 8) + sample_size(n) * 24 * n_features


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
