"""Pass over the rows: computes kernel columns block by block, and adds up what a solver needs of them.

    c_m = k(., x_m) / sqrt(k(x_m, x_m)),    B = C'C,    C'y,    y'y        (column_moments)

The pass runs in waves of groups of blocks, so that between them it can report, be stopped, stored and resumed.
Where B is too large to be held, each pass computes some of its rows.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dkl.blocks.rows.row_groups import Partials, RowGroups
from dkl.blocks.rows.row_pieces import Block, require_finite
from dkl.errors import InputError
from dkl.linalg.kernels.kernel_columns import Kernel
from dkl.linalg.rows.column_moments import Moments, add_moments, zero_moments
from dkl.resources import one_blas_thread
from dkl.stores.kernels import write_columns

if TYPE_CHECKING:
    from dkl.linalg.rows import Rows

NEAR_POINTS, NEAR_BYTES = 256, 16_000_000
"""Most points, and bytes of columns at them, that `near_means` takes."""
WAVE_SECONDS = 2.0
"""Seconds between two reports that are aimed at: few enough to stop soon, many next to the start of a wave's tasks."""


@dataclass(frozen=True)
class ColumnJob:
    """Settings and data by which a worker turns rows into moments.

    points (M, d), or column numbers for a precomputed kernel; scale (M,): 1 / sqrt(k(x_m, x_m)), 0 for columns of zeros;
    targets (n, T + 1): y and ones, times sqrt(sample weight); n_folds: how many parts of the rows are held out in turn,
    fold_of (n,) which one a row is in (-1: none); panel: these rows of B alone; store: where the columns are kept.
    """

    kernel: Kernel
    points: Rows
    scale: NDArray[np.float64]
    targets: NDArray[np.float64]
    dtype: str = "float64"
    n_folds: int = 1
    fold_of: NDArray[np.integer] | None = None
    panel: tuple[int, int] | None = None
    store: str | None = None
    shift: NDArray[np.float64] | None = None
    """(M,) what is subtracted from each column before it is summed, near its mean; None: nothing."""

    @property
    def n_columns(self) -> int:
        """Return the number of columns M."""
        return len(self.scale)

    @property
    def nbytes(self) -> int:
        """Return the bytes of the arrays; a large job is sent to each worker once (see `RowBlocks`)."""
        points = self.points.data.nbytes if sp.issparse(self.points) else self.points.nbytes
        return int(points + self.targets.nbytes + (0 if self.fold_of is None else self.fold_of.nbytes))

    def __getstate__(self) -> dict[str, object]:
        # What is prepared is computed again by the receiver, and buffers belong to threads.
        return {name: value for name, value in self.__dict__.items() if name not in ("_prepared", "_buffers")}

    @cached_property
    def _prepared(self) -> Any:
        # Prepared once a process, as all blocks need the same.
        return self.kernel.prepared(self.points, self.dtype)

    @cached_property
    def _buffers(self) -> threading.local:
        return threading.local()

    def buffer(self, rows: int) -> NDArray[np.floating]:
        """Return this thread's array (rows or more, M) for a block of columns; used again for each block.

        Fresh memory is paged in by the first writes to it, which costs as much as they do.
        """
        held: NDArray[np.floating] | None = getattr(self._buffers, "held", None)
        if held is None or len(held) < rows:
            held = self._buffers.held = np.empty((rows, self.n_columns), self.dtype)
        return held

    def columns(self, rows: Rows, buffer: NDArray[np.floating] | None = None) -> NDArray[np.floating]:
        """Return the normalized columns c_m (t, M) at these rows, in `buffer` where the kernel can use it."""
        C = self.kernel.columns(rows, self._prepared, self.dtype, buffer)
        # A scale of ones needs no pass over the block.
        if not (self.scale == 1).all():
            C *= self.scale.astype(C.dtype)
        return C


@np.errstate(over="ignore", invalid="ignore")  # what is not finite is refused by the pass
def near_means(job: ColumnJob) -> NDArray[np.float64] | None:
    """Return the mean (M,) of each column at some of the points; None for a precomputed kernel, whose rows are not at hand.

    Sums of columns less such means keep the digits that centering would cancel, of columns that are all but constant.
    """
    if job.kernel.is_precomputed:
        return None
    most = max(1, min(job.n_columns, NEAR_POINTS, NEAR_BYTES // (8 * job.n_columns)))
    some = np.unique(np.linspace(0, job.n_columns - 1, most).astype(np.intp))
    with one_blas_thread():  # whose bits do not depend on their number
        means = job.columns(job.points[some]).mean(axis=0, dtype=np.float64)
    # Rounded to the columns' precision, in which they are subtracted: what is added back later is the same number.
    return means.astype(job.dtype).astype(np.float64)


@np.errstate(over="ignore", invalid="ignore")  # raised as an InputError instead
def add_block(block: Block, total: Moments | None, job: ColumnJob) -> Moments:
    """Add a block's moments in place to those so far (None before the first block), and return them.

    Raises InputError where a row or a column is not finite. Writes the block's columns to `job.store`, if there is one.
    """
    require_finite(block)
    if total is None:
        height = None if job.panel is None else job.panel[1] - job.panel[0]
        total = zero_moments(job.n_folds, job.n_columns, job.targets.shape[1] - 1, height)
    C = job.columns(block.rows, job.buffer(block.rows.shape[0]))
    if job.store is not None:
        write_columns(job.store, block.start, C)
    # Before weights: the shift is of the columns themselves.
    if job.shift is not None:
        C -= job.shift.astype(C.dtype)
    targets = job.targets[block.start : block.stop]
    # The column of ones, weighted, holds the roots of the weights.
    root = targets[:, -1]
    if not (root == 1).all():
        C *= root.astype(C.dtype)[:, None]
    folds = None if job.fold_of is None else job.fold_of[block.start : block.stop]
    add_moments(total, C, targets, folds, job.panel)
    # What is not finite shows in C'y too, which is far smaller than B.
    if not np.isfinite(total[1]).all():
        raise job.kernel.not_finite(f"a column that is not finite in rows {block.start} to {block.stop - 1}")
    return total


@dataclass
class Wave:
    """State after a wave of groups: how many of `total` are done, seconds of the pass, partial sums.

    starts: the first rows of the wave's blocks, whose columns are now written where they are kept.
    """

    done: int
    total: int
    seconds: float
    partials: Partials
    starts: Sequence[int] = ()


def run_pass(
    groups: RowGroups,
    job: ColumnJob,
    *,
    partials: Partials | None = None,
    after_wave: Callable[[Wave], bool] | None = None,
) -> Moments | None:
    """Return the moments of all rows; None where `after_wave` returned True before the end.

    partials: the state of an earlier pass with the same job, to resume from; it is added to in place. Raises InputError for
    rows, columns or targets that are not finite, or whose squares overflow.
    """
    partials = {} if partials is None else partials
    start = time.perf_counter()
    waiting = [group for group in groups.in_turn() if not _covered(group, partials)]
    # At first a group a slot, rounded up to a power of two: no slot is idle.
    least = size = 1 << (groups.slots - 1).bit_length()
    while waiting:
        # A power of two, up to a multiple of it: so few subtrees are ever in memory that wait for their siblings.
        count = size - (groups.n_groups - len(waiting)) % size
        wave, waiting = waiting[:count], waiting[count:]
        began = time.perf_counter()
        groups.fold_groups(add_block, wave, partials, job)
        now = time.perf_counter()
        # As many groups as WAVE_SECONDS allow, rounded down to a power of two: between waves it reports and commits.
        size = max(least, (1 << int(len(wave) * WAVE_SECONDS / (now - began)).bit_length()) >> 1)
        written = groups.starts(wave) if job.store is not None else ()
        note = Wave(groups.n_groups - len(waiting), groups.n_groups, now - start, partials, written)
        if after_wave is not None and after_wave(note) and waiting:
            return None
    (total,) = partials.values()
    # |B_ij|^2 <= B_ii B_jj: a finite diagonal shows that all of B is, by M numbers instead of M^2.
    diagonal = np.arange(total[0].shape[1]) + (0 if job.panel is None else job.panel[0])
    if not np.isfinite(total[2]).all():
        raise InputError("targets are too large to square", where="y", remedy="scale them, or the sample weights")
    if not all(np.isfinite(part).all() for part in (total[0][:, diagonal - diagonal[0], diagonal], total[1])):
        raise job.kernel.not_finite("sums of squares that are not finite")
    return total


def _covered(group: int, partials: Partials) -> bool:
    """Return whether a group is in a subtree of the partial sums already."""
    return any(group >> level == index for level, index in partials)


def targets_and_roots(y: NDArray[np.float64], sample_weight: NDArray[np.float64] | None) -> NDArray[np.float64]:
    """Return [y, 1] sqrt(S) (n, T + 1) for targets y (n, T) and sample weights S (n,), sqrt(S) last."""
    with_ones = np.concatenate([y, np.ones((len(y), 1))], axis=1)
    return with_ones if sample_weight is None else with_ones * np.sqrt(sample_weight)[:, None]
