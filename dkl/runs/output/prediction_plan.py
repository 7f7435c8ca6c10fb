"""Plans of the memory that `dkl predict` and `dkl transform` need in each process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import scipy.sparse as sp
from numpy.typing import NDArray

from dkl.blocks.memory.execution_limits import Place
from dkl.blocks.memory.plan import PROCESS_BASE, RAISE_LIMIT, Plan
from dkl.blocks.rows.row_blocks import row_bounds
from dkl.blocks.rows.row_sources import RowSource
from dkl.linalg.kernels.kernel_columns import DENSE_POINTS_BYTES, POINTS_AT_A_TIME
from dkl.linalg.kernels.kernel_columns import TILE_BYTES as COLUMNS_BYTES
from dkl.problems.column_predict import TILE_BYTES

if TYPE_CHECKING:
    from dkl.blocks.rows.row_sources import Rows

BLOCKS_AT_ONCE = 4
"""Blocks of predictions per thread that are held before they are written, if they fit; else one."""
STAGES = 3
"""Copies of a tile of kernel columns: the kernel's argument, its values, and what is summed."""
TREE_COPIES = 3
"""Copies of a graph's rows: themselves, in double for the search, and its tree or some distances."""
REMEDY = f"{RAISE_LIMIT}, or take fewer threads"


@dataclass(frozen=True)
class Needs:
    """Bytes that a model takes to predict.

    model: of its arrays; block: of the work on a block of that many rows, without them and their predictions; row: of the
    predictions for a row, with all that they are made from. least_rows: of a block.
    """

    model: int
    block: Callable[[int], int]
    row: int
    least_rows: int = 1

    def with_more(self, row: int) -> Needs:
        """Return these needs with `row` more bytes for a row."""
        return replace(self, row=self.row + row)


def kernel_needs(points: Rows, weights: NDArray, kernels: int = 1) -> Needs:
    """Return the needs of sum_m weights[t, m] k(x, x_m), weights (T, m), by several kernels."""
    width = points.shape[1] if points.ndim == 2 else 0
    sizes = PointSizes(points.shape[0], width, _bytes(points), sp.issparse(points))
    return sizes.needs(len(weights), weights.nbytes, kernels)


@dataclass(frozen=True)
class PointSizes:
    """Sizes of `count` points of an expansion, of `width` columns (0: precomputed), `size` bytes in all."""

    count: int
    width: int
    size: int
    is_sparse: bool = False

    @classmethod
    def of(cls, rows: RowSource, count: int, *, is_precomputed: bool = False) -> PointSizes:
        """Return the sizes of `count` of these rows as points."""
        if is_precomputed:
            return cls(count, 0, 8 * count)
        return cls(count, rows.n_features, count * max(rows.row_bytes, 8), rows.is_sparse)

    def needs(self, outputs: int, weights: int, kernels: int = 1) -> Needs:
        """Return the needs of `outputs` sums over the points with `weights` bytes of weights.

        A thread has the points as the kernel takes them, in double, with what it makes them from, a tile of columns at three
        stages, and a smaller one of rows.
        """
        count, width = max(1, self.count), self.width + 2 if self.width else 0
        prepared = DENSE_POINTS_BYTES if self.is_sparse else 8 * (count + 2 * min(count, POINTS_AT_A_TIME)) * width

        def block(rows: int) -> int:
            shifted = min(rows, max(16, COLUMNS_BYTES // (8 * count))) * 8 * width
            return STAGES * min(TILE_BYTES, 8 * rows * count) + shifted + prepared

        several = kernels > 1  # weights of each, and sums that are added up
        return Needs(self.size + (2 if several else 1) * weights, block, (16 if several else 8) * outputs)


def graph_needs(n: int, d: int, k: int, n_neighbors: int) -> Needs:
    """Return the needs of k coordinates of rows from `n_neighbors` neighbors among n rows of d features."""

    def block(count: int) -> int:
        return 8 * (TREE_COPIES * n * d + count * (4 * d + 8 * n_neighbors))

    return Needs(8 * n * (d + k + 2), block, 8 * k)


def with_later(plan: Plan, place: Place, memory_limit: int | None, later: dict[str, int]) -> Plan:
    """Return a fit's plan with the stages of later uses of its run, under the same limit; checked.

    Not on a cluster, whose workers predict and whose limit is theirs.
    """
    if place.distributed:
        return plan
    stages = plan.stages | {f"{name}, later": size for name, size in later.items()}
    place.checked(replace(plan, stages=stages, remedy=f"{RAISE_LIMIT}; the fit alone would fit"), memory_limit)
    return replace(plan, stages=stages)


def applied_bytes(needs: Needs, rows: RowSource, place: Place, known: int = 0) -> int:
    """Return the least bytes of a model with these needs, applied to such rows; `known`: of their targets."""
    return sum(_plan(needs, rows, known, place, None, 1).items.values())


def _bytes(points: Rows) -> int:
    if sp.issparse(points):
        return int(points.data.nbytes + points.indices.nbytes + points.indptr.nbytes)
    return int(points.nbytes)


def prediction_plan(needs: Needs, rows: RowSource, known: int, place: Place, memory_limit: int | None) -> Plan:
    """Return the plan of each process; shape["at_once"]: blocks of predictions that are held.

    known: bytes of targets to compare with. MemoryBudgetError for more than the limit, or than a worker may use.
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
    """Return bytes of blocks in work, one waiting and one being read; and of chunks' window."""
    window = 0 if rows.rows_per_chunk == 1 else 2 * (most + rows.rows_per_chunk)
    return ((threads + 2) * most + window) * rows.row_bytes
