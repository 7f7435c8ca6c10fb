"""Memory plan of kernel principal components: how much of K is held, how many rows ready at a time."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from dkl.blocks.kernels.kernel_products import TILE_COLUMNS, held_bytes, tile_bounds
from dkl.blocks.memory.execution_limits import Place
from dkl.blocks.memory.plan import PROCESS_BASE, Plan
from dkl.blocks.rows.row_blocks import MEMORY_SHARE, machine_memory
from dkl.blocks.rows.row_sources import RowSource
from dkl.estimators.base.size_guard import check_size
from dkl.linalg.kernels.kernel_columns import POINTS_AT_A_TIME
from dkl.problems.kernel_components import LANDMARKS
from dkl.solvers.leading_eigenpairs import block_size, space_columns

BLOCKS_AT_WORK = 6
"""Arrays (n, b) that the eigenpair search holds outside its space: images, residuals, their factors."""
FEWEST_POINTS = 4096
"""Rows that are ready at a time at least: with fewer, a product takes too many passes."""
WORKER_HELD = 0.6
"""Share of a worker's memory for tiles: Dask spills, and so forgets tiles, from three fifths on."""
FEWER = "raise memory_limit, take fewer components, or use dtype='float32'"


@dataclass(frozen=True)
class ProductsPlan:
    """Memory plan of K's products.

    held: bytes of K that a process keeps; points: rows ready at a time; rows: bytes of rows that a process may keep or
    read at a time, None where they are in it.
    """

    plan: Plan
    held: int
    points: int
    rows: int | None


def plan_products(source: RowSource, count: int, dtype: str, place: Place, memory_limit: int | None) -> ProductsPlan:
    """Plan eigenpairs by products of K of these rows.

    All rows are ready at a time where a half of what there is holds them; what is left holds tiles of K.

    MemoryBudgetError where the least does not fit.
    """
    n, d, size, block = source.n, source.n_features, np.dtype(dtype).itemsize, block_size(count)
    allowed = place.allowed(memory_limit) or int(MEMORY_SHARE * machine_memory())
    search = _search(source, count)
    bounds = tile_bounds(n, source.row_bytes)
    tallest = max(stop - start for start, stop in bounds)
    products = {
        "sums of products": (place.threads + 2 + len(bounds).bit_length()) * 8 * n * (block + 1),
        "vectors": (8 + size) * n * (block + 1),
        "tiles being computed": place.threads * size * tallest * (TILE_COLUMNS + d + 2),
        "kernel of the start": 5 * 8 * min(LANDMARKS, n // 8) ** 2,
    }
    # A stored row is read and kept apart; one that is in this process is the user's own. Prepared ones are another copy.
    of_rows = 0 if source.is_in_place and not place.distributed else -(-n // place.processes) * source.row_bytes
    row = (0 if source.is_in_place and not place.distributed else source.row_bytes) + (d + 2) * size
    prepared = 2 * 8 * min(n, POINTS_AT_A_TIME) * d
    fixed = PROCESS_BASE + sum(products.values()) + prepared + (0 if place.distributed else sum(search.values()))
    left = allowed - fixed
    points = n if row * n <= left // 2 else max(min(n, FEWEST_POINTS), left // 3 // row)
    a_pass = (5 * tallest + 2 * source.rows_per_chunk) * source.row_bytes  # what `RowBlocks` asks for
    reading = max(a_pass, min(of_rows, left // 4)) if of_rows else 0
    share = WORKER_HELD if place.distributed else 1.0
    held = min(
        held_bytes(n, source.row_bytes, dtype) // place.processes + 1, int(share * (left - reading - row * points))
    )
    items = {
        **products,
        "points of the kernel": row * points + prepared,
        "rows": reading,
        "kernel matrix": max(0, held),
    }
    if not place.distributed:
        items |= search
    plan = Plan(
        placement="memory" if held * place.processes >= held_bytes(n, source.row_bytes, dtype) else "recomputed",
        processes=place.processes,
        threads=place.threads,
        base=PROCESS_BASE,
        items={name: size for name, size in items.items() if size},
        disk={},
        limit=allowed,
        tasks_per_iteration=place.processes if place.distributed else 0,
        shape={"n": n, "dtype": dtype, "points": points, "held": max(0, held)},
        remedy=FEWER,
        own_bytes=PROCESS_BASE + sum(search.values()) if place.distributed else 0,
    )
    place.checked(plan, memory_limit)
    if place.distributed:
        check_size(search, memory_limit, FEWER)
    return ProductsPlan(plan, max(0, held), int(points), int(reading) or None)


def plan_search(source: RowSource, count: int, place: Place, memory_limit: int | None, more: dict[str, int]) -> Plan:
    """Plan the search alone in this process, for a given K or a factor, with `more` bytes by name."""
    allowed = memory_limit or int(MEMORY_SHARE * machine_memory())
    items = {**_search(source, count), **more}
    plan = Plan("memory", 1, place.threads, PROCESS_BASE, items, {}, allowed, shape={"n": source.n}, remedy=FEWER)
    return replace(plan.validate(), processes=place.processes)


def _search(source: RowSource, count: int) -> dict[str, int]:
    """Return the bytes that the search for eigenpairs holds in this process, by name."""
    n, block = source.n, block_size(count)
    return {
        "X, read from its file": source.own_bytes,
        "Krylov space": 2 * 8 * n * space_columns(n, block),
        "blocks of vectors": BLOCKS_AT_WORK * 8 * n * block,
    }
