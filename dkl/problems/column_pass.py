"""One pass over the rows: kernel columns are made block by block, and added up to what a solver needs of them.

    c_m = k(., x_m) / sqrt(k(x_m, x_m)),    B = C'C,    C'y,    y'y        (column_moments)

The pass runs in waves of groups of blocks, so that it can report, be stopped, and be kept and gone on from in between.
Where B is too large to be held, each pass makes some of its rows.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dkl.blocks.row_groups import Partials, RowGroups
from dkl.blocks.row_pieces import Block
from dkl.errors import InputError
from dkl.linalg.column_moments import Moments, add_moments, zero_moments
from dkl.linalg.kernel_columns import Kernel
from dkl.stores.kernel_columns import write_rows

BLOCK_BYTES = 16_000_000
"""Of kernel columns made at a time by a thread."""
SMALLEST_BLOCK, LARGEST_BLOCK = 256, 8192
WAVE_SECONDS = 2.0


def block_rows(n_columns: int, n_features: int, dtype: Any) -> int:
    """Rows of a block: 16 MB of columns, and no more than twice that of features."""
    size = np.dtype(dtype).itemsize
    rows = min(BLOCK_BYTES // (n_columns * size), 2 * BLOCK_BYTES // (max(1, n_features) * 8))
    return int(max(SMALLEST_BLOCK, min(LARGEST_BLOCK, rows)))


@dataclass(frozen=True)
class ColumnJob:
    """What a worker needs to turn rows into moments.

    points (M, d), or column numbers for a precomputed kernel; scale (M,): 1 / sqrt(k(x_m, x_m)), 0 for columns of zeros;
    targets (n, T + 1): y and ones, times sqrt(sample weight); n_folds: how many parts of the rows are held out in turn,
    fold_of (n,) which one a row is in (-1: none); panel: these rows of B alone; store: where the columns are kept.
    """

    kernel: Kernel
    points: Any
    scale: NDArray[np.float64]
    targets: NDArray[np.float64]
    dtype: str = "float64"
    n_folds: int = 1
    fold_of: NDArray[np.integer] | None = None
    panel: tuple[int, int] | None = None
    store: str | None = None

    @property
    def n_columns(self) -> int:
        return len(self.scale)

    @property
    def nbytes(self) -> int:
        points = self.points.data.nbytes if sp.issparse(self.points) else self.points.nbytes
        return int(points + self.targets.nbytes + (0 if self.fold_of is None else self.fold_of.nbytes))

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in ("_prepared", "_rooms")}

    @cached_property
    def _prepared(self) -> Any:
        return self.kernel.prepared(self.points, self.dtype)

    @cached_property
    def _rooms(self) -> threading.local:
        return threading.local()

    def room(self, rows: int) -> NDArray[np.floating]:
        """This thread's room for a block of columns, lent again and again: fresh memory costs as much as filling it."""
        held: NDArray[np.floating] | None = getattr(self._rooms, "held", None)
        if held is None or len(held) < rows:
            held = self._rooms.held = np.empty((rows, self.n_columns), self.dtype)
        return held

    def columns(self, rows: Any, room: NDArray[np.floating] | None = None) -> NDArray[np.floating]:
        """(t, M) of the normalised columns at these rows."""
        C = self.kernel.columns(rows, self._prepared, self.dtype, room)
        if not (self.scale == 1).all():
            C *= self.scale.astype(C.dtype)
        return C


@np.errstate(over="ignore", invalid="ignore")  # told below, as an error
def add_block(block: Block, total: Moments | None, job: ColumnJob) -> Moments:
    """The moments so far and those of a block."""
    check_rows(block)
    if total is None:
        height = None if job.panel is None else job.panel[1] - job.panel[0]
        total = zero_moments(job.n_folds, job.n_columns, job.targets.shape[1] - 1, height)
    C = job.columns(block.rows, job.room(block.rows.shape[0]))
    if job.store is not None:
        write_rows(job.store, block.start, C)
    targets = job.targets[block.start : block.stop]
    root = targets[:, -1]
    if not (root == 1).all():
        C *= root.astype(C.dtype)[:, None]
    folds = None if job.fold_of is None else job.fold_of[block.start : block.stop]
    add_moments(total, C, targets, folds, job.panel)
    if not np.isfinite(total[1]).all():
        raise not_finite(job.kernel, f"a column that is not finite in rows {block.start} to {block.stop - 1}")
    return total


def not_finite(kernel: Kernel, got: str) -> InputError:
    mend = "scale the features, or choose other parameters of the kernel"
    return InputError("the kernel is too large", where=kernel.where, got=got, mend=mend)


def check_rows(block: Block) -> None:
    """InputError for the first value of a block that is not finite, with its place in the whole."""
    values = block.rows.data if sp.issparse(block.rows) else block.rows
    with np.errstate(over="ignore", invalid="ignore"):
        flat = values.reshape(-1) if values.flags.c_contiguous else None
        # A square that overflows is no fault yet: then each value is looked at.
        if (flat is not None and np.isfinite(flat @ flat)) or np.isfinite(values).all():
            return
    bad = sp.coo_array(block.rows) if sp.issparse(block.rows) else None
    if bad is not None:
        k = int(np.flatnonzero(~np.isfinite(bad.data))[0])
        i, j, value = bad.coords[0][k], bad.coords[1][k], bad.data[k]
    else:
        i, j = np.argwhere(~np.isfinite(block.rows))[0]
        value = block.rows[i, j]
    raise InputError(
        f"Input X contains {'NaN' if np.isnan(value) else 'infinity'}",
        where=f"X[{block.start + i}, {j}]",
        mend="drop the row, fill the gap or scale the column",
    )


@dataclass
class Wave:
    """What is known after a wave of groups: how many of them are done, and the partial sums."""

    done: int
    total: int
    seconds: float
    partials: Partials


def run_pass(
    groups: RowGroups,
    job: ColumnJob,
    *,
    partials: Partials | None = None,
    after_wave: Callable[[Wave], bool] | None = None,
) -> Moments | None:
    """The moments of all rows; None where `after_wave` returned True before the end.

    partials: the state of an earlier pass with the same job, to go on from.
    """
    partials = {} if partials is None else partials
    start = time.perf_counter()
    waiting = [group for group in groups.in_turn() if not _covered(group, partials)]
    least = size = 1 << (groups.slots - 1).bit_length()
    while waiting:
        # A power of two, up to a multiple of it: so few subtrees are ever in memory that wait for their siblings.
        count = size - (groups.n_groups - len(waiting)) % size
        wave, waiting = waiting[:count], waiting[count:]
        began = time.perf_counter()
        groups.fold_groups(add_block, wave, partials, job)
        now = time.perf_counter()
        size = max(least, (1 << int(len(wave) * WAVE_SECONDS / (now - began)).bit_length()) >> 1)
        note = Wave(groups.n_groups - len(waiting), groups.n_groups, now - start, partials)
        if after_wave is not None and after_wave(note) and waiting:
            return None
    (total,) = partials.values()
    places = np.arange(total[0].shape[1]) + (0 if job.panel is None else job.panel[0])
    if not np.isfinite(total[2]).all():
        raise InputError("targets are too large to square", where="y", mend="scale them, or the sample weights")
    if not all(np.isfinite(part).all() for part in (total[0][:, places - places[0], places], total[1])):
        raise not_finite(job.kernel, "sums of squares that are not finite")
    return total


def _covered(group: int, partials: Partials) -> bool:
    return any(group >> level == index for level, index in partials)


def targets_and_roots(y: NDArray[np.float64], sample_weight: NDArray[np.float64] | None) -> NDArray[np.float64]:
    """(n, T + 1) [y, 1] sqrt(S)."""
    with_ones = np.concatenate([y, np.ones((len(y), 1))], axis=1)
    return with_ones if sample_weight is None else with_ones * np.sqrt(sample_weight)[:, None]


def column_scale(kernel: Kernel, points: Any, places: NDArray[np.intp] | None = None) -> NDArray[np.float64]:
    """1 / sqrt(k(x_m, x_m)), and 0 where that is 0: then the whole column is."""
    with np.errstate(over="ignore", invalid="ignore"):
        diagonal = kernel.diagonal(points, places)
    if not np.isfinite(diagonal).all():
        raise not_finite(kernel, f"k(x, x) = {diagonal[~np.isfinite(diagonal)][0]}")
    return np.divide(1.0, np.sqrt(diagonal), out=np.zeros_like(diagonal), where=diagonal > 0)
