"""Memory plan of building a neighbor graph, from shapes alone, and numbers of rows to read at a time."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil
from typing import Any

from dkl.blocks.memory_plan import BYTES_A_SECOND, ROUND_SECONDS, Place, Way, fewer, idle_workers, what_helps
from dkl.blocks.rows.row_sources import RowSource
from dkl.blocks.session import Session
from dkl.errors import MemoryBudgetError
from dkl.linalg.graph.laplacian import SIGMA_NEIGHBORS
from dkl.linalg.graph.neighbors import QUERY_TILE, REFERENCE_TILE
from dkl.linalg.graph.neighbors_ivf import PIECE, sample_size
from dkl.resources import format_bytes

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
