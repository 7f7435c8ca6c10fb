"""What `dkl predict` and `dkl transform` hold in each process, before they begin."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import scipy.sparse as sp
from numpy.typing import NDArray

from dkl.blocks.place import Place
from dkl.blocks.plan import PROCESS_BASE, Plan
from dkl.blocks.plan_remedies import RAISE_LIMIT
from dkl.blocks.row_blocks import row_bounds
from dkl.blocks.row_sources import RowSource
from dkl.linalg.kernel_columns import DENSE_POINTS_BYTES, POINTS_AT_A_TIME
from dkl.linalg.kernel_columns import TILE_BYTES as COLUMNS_BYTES
from dkl.problems.column_predict import TILE_BYTES

BLOCKS_AT_ONCE = 4
"""A thread: so many blocks of predictions are held before they are written, if there is room; else one."""
STAGES = 3
"""Of a tile of kernel columns: what the kernel is a function of, the function, and what is summed."""
REMEDY = f"{RAISE_LIMIT}, or take fewer threads"


@dataclass(frozen=True)
class Needs:
    """Bytes that a model takes to predict.

    model: of its arrays; block: of the work on a block of so many rows, beside them and their predictions; row: of the
    predictions for a row, with all that they are made from. least_rows: of a block.
    """

    model: int
    block: Callable[[int], int]
    row: int
    least_rows: int = 1

    def with_more(self, row: int) -> Needs:
        """And so many bytes more for a row."""
        return replace(self, row=self.row + row)


def kernel_needs(points: Any, weights: NDArray, kernels: int = 1) -> Needs:
    """Of sum_m weights[t, m] k(x, x_m), weights (T, m), by several kernels.

    A thread has the points as the kernel takes them, in double, with what it makes them from, a tile of columns at three
    stages, and a smaller one of rows.
    """
    count = max(1, points.shape[0])
    width = points.shape[1] + 2 if points.ndim == 2 else 0
    prepared = DENSE_POINTS_BYTES if sp.issparse(points) else 8 * (count + 2 * min(count, POINTS_AT_A_TIME)) * width

    def block(rows: int) -> int:
        shifted = min(rows, max(16, COLUMNS_BYTES // (8 * count))) * 8 * width
        return STAGES * min(TILE_BYTES, 8 * rows * count) + shifted + prepared

    several = kernels > 1  # weights of each, and sums that are added up
    model = _bytes(points) + (2 if several else 1) * weights.nbytes
    return Needs(model, block, (16 if several else 8) * len(weights))


def _bytes(points: Any) -> int:
    if sp.issparse(points):
        return int(points.data.nbytes + points.indices.nbytes + points.indptr.nbytes)
    return int(points.nbytes)


def prediction_plan(needs: Needs, rows: RowSource, known: int, place: Place, memory_limit: int | None) -> Plan:
    """Bytes of a process, the same for all; shape["at_once"]: blocks of predictions held. known: of targets to compare with.

    MemoryBudgetError where that is more than the limit, or than a worker may use.
    """
    limit, slots = place.allowed(memory_limit), place.threads * place.processes
    for each in (BLOCKS_AT_ONCE, 1):
        made = _plan(needs, rows, known, place, limit, each * slots)
        if made.fits:
            break
    return place.checked(made, memory_limit)


def _plan(needs: Needs, rows: RowSource, known: int, place: Place, limit: int | None, at_once: int) -> Plan:
    bounds = row_bounds(rows.n, rows.row_bytes, needs.least_rows, needs.row)
    most, at_once = max(stop - start for start, stop in bounds), min(at_once, len(bounds))
    threads = min(place.threads, len(bounds))
    items = {
        "the model": needs.model * (2 if place.distributed else 1),  # as it is, and as it is sent or has come
        "rows that are read at once": rows.own_bytes * (2 if place.distributed else 1),
        "targets to compare with": known,
        "blocks of rows": 0 if rows.is_in_memory else _read_bytes(rows, most, threads),
        "work on blocks": threads * needs.block(most),
        "predictions": 2 * at_once * most * needs.row,
    }
    held = {name: size for name, size in items.items() if size}
    shape = {"at_once": at_once}
    return Plan("memory", place.processes, place.threads, PROCESS_BASE, held, {}, limit, shape=shape, remedy=REMEDY)


def _read_bytes(rows: RowSource, most: int, threads: int) -> int:
    """Of blocks in work, one that waits and one as it is read; of chunks also their window, and one unpacked."""
    window = 0 if rows.rows_per_chunk == 1 else 2 * (most + rows.rows_per_chunk)
    return ((threads + 2) * most + window) * rows.row_bytes
