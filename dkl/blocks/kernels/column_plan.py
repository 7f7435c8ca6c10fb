"""Bytes of a pass over kernel columns and of the solve after it, from shapes and types alone.

The stages are not held at the same time: a plan shows the one that takes most of its limit. On a cluster there is one
more, that of the process that asks: it receives the workers' sums, and solves.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import log2
from typing import Any

import numpy as np

from dkl.blocks.memory_plan import PROCESS_BASE, Place, Plan, fewer, what_helps
from dkl.blocks.rows.row_groups import n_groups, reading_bytes

SMALLEST_PANEL = 64
"""Rows of B computed in one pass at least: a pass costs as much for few rows as for many."""
TILE_BYTES = 8_000_000
"""Bytes of the centered rows that a thread works on at a time, and of its other temporary arrays."""
PIECES = 4
"""Number of pieces in which rows are sent to a worker whose memory they do not fit all at once."""
WORKER_EXTRA = 30_000_000
"""Bytes of a Dask worker on top of PROCESS_BASE: its server, connections and keys.

With little data a worker was measured to take 312 to 336 MB."""
LARGEST_DENSE_POINTS = 64_000_000
"""Bytes up to which sparse points are made dense; see `dkl.linalg.kernels.kernel_columns`."""

Items = dict[str, int]


@dataclass(frozen=True)
class RowsHeld:
    """Description of how a process gets the rows of X, for memory plans.

    row_bytes: of a row once read, on average. kept: "here" (X itself, in memory or mapped), "streamed" (block by block),
    "read" (from disk; kept where they fit) or "sent" (to workers, which have to keep them). chunk_rows: rows that are read
    together. copies: of rows, while Dask puts them together from chunks, or of the block that is worked on, where its layout
    in X is another. own_bytes: of all of X, in the process that asks, where it was read for this fit.
    """

    n: int
    n_features: int
    row_bytes: int
    kept: str = "here"
    chunk_rows: int = 0
    is_sparse: bool = False
    copies: int = 1
    own_bytes: int = 0


@dataclass(frozen=True)
class Shape:
    """M columns, T outputs, K folds; `block_rows` rows are worked on at a time, with columns in `dtype`.

    solvers: threads that solve. columns: how candidates are drawn ("rpcholesky" needs 6 M x M arrays for it).
    store_columns, checkpoints: what goes to disk. whole_columns: the solver takes C itself (n x M). between_columns: it takes
    the kernel between the columns' points too (M x M). in_place: the kernel
    writes its columns into the buffer given to it, instead of a new array. held_out: bytes of rows, and of the columns
    of those that are held out, to measure the quality by; 0: it is not measured.
    """

    n_columns: int
    n_targets: int
    n_folds: int
    dtype: str
    block_rows: int
    solvers: int = 1
    columns: str = "uniform"
    store_columns: bool = False
    checkpoints: bool = False
    whole_columns: bool = False
    between_columns: bool = False
    in_place: bool = False
    held_out: int = 0


def plan_columns(
    rows: RowsHeld,
    shape: Shape,
    place: Place,
    limit: int,
    *,
    own_limit: int | None = None,
    may_use_disk: bool = False,
    block_rows_of: Callable[[int], int] | None = None,
) -> Plan:
    """Plan the memory with B in memory or, if that does not fit and `may_use_disk`, on disk by rows.

    limit: bytes that a process of `place` may use; own_limit: those of the process that asks, where it is another. The rows
    of a pass ("panel" of the plan's shape) are halved until the plan fits. The plan returned may still not fit:
    `Plan.validate` raises, and advises what helps. block_rows_of: rows of a block for another number of columns.
    """
    found = _smallest(rows, shape, place, limit, own_limit, may_use_disk)
    if found.fits:
        return found

    def fits(place: Place = place, disk: bool = may_use_disk, **changes: Any) -> bool:
        return _smallest(rows, replace(shape, **changes), place, limit, own_limit, disk).fits

    return replace(found, remedy=_remedy(shape, place, may_use_disk, fits, block_rows_of))


def _smallest(
    rows: RowsHeld, shape: Shape, place: Place, limit: int, own_limit: int | None, may_use_disk: bool
) -> Plan:
    """Return the plan with all of B in memory, or the first with a part of it that fits, or the last."""
    panel: int | None = None
    chosen = _plan(rows, shape, place, limit, own_limit, panel, may_use_disk)
    height = shape.n_columns
    while not chosen.fits and may_use_disk and shape.n_folds == 1 and height > SMALLEST_PANEL:
        height = -(-height // 2)
        chosen = _plan(rows, shape, place, limit, own_limit, height, may_use_disk)
    return chosen


def _plan(
    rows: RowsHeld, shape: Shape, place: Place, limit: int, own_limit: int | None, panel: int | None, may_use_disk: bool
) -> Plan:
    """Return the plan with all of B (panel=None) or `panel` rows of B a pass: its tightest stage."""
    held = _rows_and_pass(rows, shape, place, limit, panel)
    solve = _targets(rows, shape, 3) | _points(rows, shape, 1) | _solve(rows, shape, panel)
    stages = [(held, limit), (solve, limit if own_limit is None else own_limit)]
    if place.distributed:
        gather = _targets(rows, shape, 3) | _points(rows, shape, 2) | _gathered(rows, shape, place, panel)
        stages.append((gather, limit if own_limit is None else own_limit))
    base = _base(place)
    asking = stages[1:] if place.distributed else stages
    if rows.own_bytes:  # workers hold what is sent to them, which is in their stage
        for stage, _ in asking:
            stage["X, read from its file"] = rows.own_bytes
    if place.distributed and rows.kept == "sent" and rows.copies == 1:  # those of a Dask array do not pass through here
        pieces = 1 if held["rows"] == _share(rows, shape, place) else PIECES
        asking[-1][0]["rows on their way to a worker"] = held["rows"] // pieces
    # The stage with the least to spare, not the largest: their limits differ.
    items, bound = min(stages, key=lambda stage: stage[1] - sum(stage[0].values()))
    own = base + max(sum(stage.values()) for stage, _ in asking) if place.distributed else 0
    disk = {}
    if panel is not None:
        disk["Gram matrix"] = 8 * shape.n_columns**2
    if shape.store_columns:
        disk["kernel columns"] = rows.n * shape.n_columns * np.dtype(shape.dtype).itemsize
    if shape.checkpoints:
        disk["checkpoints (1 and 1 in progress)"] = 2 * _levels(rows, shape) * _total(shape, panel)
    return Plan(
        placement="memory" if panel is None else "disk",
        processes=place.processes,
        threads=place.threads,
        base=base,
        items={name: count for name, count in items.items() if count},
        disk=disk,
        limit=bound,
        shape={
            "n": rows.n, "columns": shape.n_columns, "targets": shape.n_targets, "folds": shape.n_folds,
            "dtype": shape.dtype, "panel": panel, "rows_budget": held["rows"] // (rows.copies if rows.kept == "sent" else 1),
        },
        own_bytes=own if own > base + sum(items.values()) else 0,
    )  # fmt: skip


def _base(place: Place) -> int:
    """Return the bytes of a process that holds no data."""
    return PROCESS_BASE + (WORKER_EXTRA if place.distributed else 0)


# -- stages -----------------------------------------------------------------------------------------------------------


def _rows_and_pass(rows: RowsHeld, shape: Shape, place: Place, limit: int, panel: int | None) -> Items:
    """Return bytes of stage 1, a process' pass over rows: its work arrays, and the rows that still fit."""
    M, size, count = shape.n_columns, np.dtype(shape.dtype).itemsize, n_groups(rows.n, shape.block_rows)
    threads, height = min(place.threads, count), M if panel is None else panel
    # In single precision, or of a panel, a block's product is made apart and then added (see column_moments).
    product = 4 if size == 4 else 8 if panel is not None else 0
    targets = _targets(rows, shape, 2 if place.distributed else 4)
    others = targets | _points(rows, shape, 4)
    # Each thread has a buffer for a block; functions of scikit-learn return an array of their own, and folds are copied out.
    blocks = 1 + (not shape.in_place) + (shape.n_folds > 1)
    block = min(shape.block_rows, rows.n) * M * size
    others["kernel columns of a block"] = threads * (blocks * block + min(TILE_BYTES, block))
    others["sums over rows"] = min(count, _levels(rows, shape) + threads) * _total(shape, panel)
    others["a block's Gram matrix"] = threads * product * height * M
    if shape.columns == "rpcholesky":
        drawing = 6 * 8 * M * M
        others["drawing columns"] = max(0, drawing - others["sums over rows"])
    return others | {"rows": _rows(rows, shape, place, threads, limit - _base(place) - sum(others.values()))}


def _rows(rows: RowsHeld, shape: Shape, place: Place, threads: int, budget: int) -> int:
    """Return the bytes of rows that a process holds: all of its share if it fits, or the least of a pass."""
    if rows.kept == "here":
        return threads * rows.copies * rows.row_bytes * min(shape.block_rows, rows.n)
    share = _share(rows, shape, place)
    if rows.kept == "sent":  # whole, or in pieces of a group at least, of which Dask spills those not in use
        least = rows.row_bytes * -(-rows.n // n_groups(rows.n, shape.block_rows))
        return min(rows.copies * share, max(budget, PIECES * rows.copies * least))
    reading = threads * reading_bytes(rows.row_bytes, min(shape.block_rows, rows.n), rows.chunk_rows)
    keeps = rows.kept == "read" and (rows.copies * share + reading <= budget or share <= reading)
    return rows.copies * share + reading if keeps else reading


def _share(rows: RowsHeld, shape: Shape, place: Place) -> int:
    """Return the bytes of the rows that one process passes over, at most."""
    groups = n_groups(rows.n, shape.block_rows)
    groups_held = -(-groups // min(place.processes, groups))
    return rows.row_bytes * -(-rows.n * groups_held // groups)


def _gathered(rows: RowsHeld, shape: Shape, place: Place, panel: int | None) -> Items:
    """Return bytes of stage 3, on a cluster: the workers' subtree sums while this process adds them up."""
    count = min(n_groups(rows.n, shape.block_rows), 2 * place.processes + _levels(rows, shape))
    return {"sums of the workers": count * _total(shape, panel)}


def _solve(rows: RowsHeld, shape: Shape, panel: int | None) -> Items:
    """Return bytes of stage 2, solving; of B on disk a quarter of the columns is assumed active and read."""
    M, folds = shape.n_columns, shape.n_folds
    gram = 8 * M * M
    if panel is not None:
        active = M // 4
        return {"active set (a quarter of B)": 8 * (5 * active * M // 2 + 4 * active * active)}
    items = {"Gram matrix": _total(shape, None) // folds}
    if folds > 1:
        items["Gram matrices of the folds, and of all rows but those"] = 2 * _total(shape, None)
    items["solver"] = 4 * gram * min(shape.solvers, max(shape.n_targets, folds))
    if shape.held_out:
        items["measuring the quality"] = shape.held_out + (2 * gram if folds == 1 else 0)
    if shape.between_columns:
        items["kernel between the columns"] = 2 * gram  # and a copy while it is made symmetric
    if shape.whole_columns:
        items["kernel columns (3)"] = 3 * 8 * rows.n * M
    return items


# -- parts ------------------------------------------------------------------------------------------------------------


def _total(shape: Shape, panel: int | None) -> int:
    """Return the bytes of the sums of one group: see `dkl.linalg.rows.column_moments`."""
    M, T = shape.n_columns, shape.n_targets + 1
    return 8 * shape.n_folds * ((M if panel is None else panel) * M + M * T + T * T)


def _levels(rows: RowsHeld, shape: Shape) -> int:
    """Return how many partial sums a thread may hold at a time: one a level of the tree of groups."""
    return int(log2(n_groups(rows.n, shape.block_rows))) + 1


def _targets(rows: RowsHeld, shape: Shape, copies: int) -> Items:
    """Return the bytes of [y, 1] in float64 and of the folds, `copies` times."""
    return {"targets": rows.n * (8 * (shape.n_targets + 1) * copies + (8 if shape.n_folds > 1 else 0))}


def _points(rows: RowsHeld, shape: Shape, copies: int) -> Items:
    """Return the bytes of M candidate points, dense or sparse, `copies` times, with their preparation."""
    dense = 8 * shape.n_columns * (rows.n_features + 2)
    if not rows.is_sparse:
        return {"candidate points": copies * dense}
    return {"candidate points": 2 * shape.n_columns * rows.row_bytes + copies * min(dense, LARGEST_DENSE_POINTS)}


def _remedy(
    shape: Shape,
    place: Place,
    may_use_disk: bool,
    fits: Callable[..., bool],
    block_rows_of: Callable[[int], int] | None,
) -> str:
    """Describe the settings that make the plan fit, in one sentence."""

    def of_columns(count: int) -> bool:
        height = shape.block_rows if block_rows_of is None else block_rows_of(count)
        return fits(n_columns=count, block_rows=height)

    def of_threads(count: int) -> bool:
        return fits(replace(place, threads=count), solvers=min(count, shape.solvers))

    ways = fewer("lower n_columns to {}", of_columns, shape.n_columns) if shape.columns != "given" else []
    if not place.distributed:
        ways += fewer("use {} thread(s)", of_threads, place.threads)
    if shape.n_folds > 1:
        words = "give nu as a number (a fold of cross-validation takes twice as much again)"
        ways.append((words, lambda: fits(n_folds=1)))
    if shape.held_out:
        ways.append(("give holdout=0", lambda: fits(held_out=0)))
    if shape.whole_columns:
        ways.append(("use another solver, which needs none of the columns", lambda: fits(whole_columns=False)))
    elif not may_use_disk:
        ways.append(("give work_dir, so that the Gram matrix can be kept on disk", lambda: fits(disk=True)))
    return what_helps(ways)
