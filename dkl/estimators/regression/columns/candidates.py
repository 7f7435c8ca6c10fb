"""The kernel that settings name, the memory plan of a fit on its columns, and the candidate columns drawn from the rows or given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dkl.blocks.kernels.column_plan import RowsHeld, Shape, plan_columns
from dkl.blocks.kernels.kernel_checks import check_among
from dkl.blocks.memory_plan import Place, Plan
from dkl.blocks.rows.row_blocks import MEMORY_SHARE, RowBlocks, machine_memory
from dkl.blocks.rows.row_sources import RowSource
from dkl.blocks.workers.dense_work import blas_threads_for
from dkl.errors import InputError
from dkl.estimators.base.kernel_width import width_by_blocks
from dkl.estimators.base.plain_models import linear_bytes
from dkl.estimators.base.plot_rows import pool_rows
from dkl.estimators.regression.columns.settings import ColumnSettings
from dkl.linalg.kernels.kernel_columns import POINTS_AT_A_TIME, Kernel, block_rows
from dkl.problems.regression.column_choice import column_scale, pivoted_cholesky, uniform
from dkl.resources import n_cpus

if TYPE_CHECKING:
    from dkl.linalg.rows import Rows


def kernel_of(settings: ColumnSettings, gamma: float | None = None) -> Kernel:
    """Return the kernel that the settings name, or are given as a function.

    gamma: the candidates', which may follow from the rows; without it, as for a plan, a width by name is 1 / n_features.
    """
    if gamma is None and not isinstance(settings.gamma, str):
        gamma = settings.gamma
    return Kernel(settings.kernel, gamma, settings.degree, settings.coef0, dict(settings.kernel_params))


def n_candidates(n: int, settings: ColumnSettings, given: Any) -> int:
    """Return the number of candidate columns M: given ones, or as many as requested, at most n."""
    return len(given) if given is not None else min(settings.n_columns, n)


def plan_fit(
    source: RowSource,
    n_columns: int,
    n_targets: int,
    settings: ColumnSettings,
    place: Place,
    *,
    has_folder: bool,
    refuse: bool = True,
) -> Plan:
    """Return the memory plan of a fit; MemoryBudgetError if it exceeds the limit and `refuse` is set."""
    machine = int(MEMORY_SHARE * machine_memory())
    own_limit = machine if settings.memory_limit is None else settings.memory_limit
    limit = place.allowed(settings.memory_limit)
    shape = Shape(
        n_columns,
        n_targets,
        settings.n_folds,
        settings.dtype,
        block_rows(n_columns, source.n_features, settings.dtype),
        # Of a cluster, outputs and folds are solved in this process, on all of its processors.
        solvers=n_cpus() if place.distributed else place.threads,
        columns=settings.columns,
        store_columns=settings.store_columns,
        checkpoints=has_folder,
        whole_columns=settings.whole_columns,
        between_columns=settings.between_columns,
        # Gaussian columns of dense rows are written into the block's buffer; scikit-learn's functions return arrays of their own.
        in_place=settings.kernel == "rbf" and not source.is_sparse,
        held_out=quality_bytes(source, n_columns, n_targets, settings),
    )
    plan = plan_columns(
        rows_held(source, place),
        shape,
        place,
        limit or machine // (place.processes if place.distributed else 1),
        own_limit=own_limit,
        may_use_disk=has_folder and not settings.whole_columns,
        block_rows_of=lambda columns: block_rows(columns, source.n_features, settings.dtype),
    )
    return place.checked(plan, settings.memory_limit) if refuse else plan


def quality_bytes(source: RowSource, n_columns: int, n_targets: int, settings: ColumnSettings) -> int:
    """Return the bytes of measuring the quality: the plain alternative's rows and work, and held-out rows.

    Rows are read by stretches, put together, and a part of them is copied out for each fold, next to those held out.
    """
    if not settings.share_held_out:
        return 0
    count, row, d = pool_rows(source, settings.memory_limit), max(source.row_bytes, 8), source.n_features
    # With folds their errors are known, and only the alternative is fitted; else a model on the rest is, for which columns are made.
    tests = count // settings.n_folds if settings.n_folds > 1 else int(settings.share_held_out * count)
    columns = 0 if settings.n_folds > 1 else 2 * 8 * n_columns * (tests + n_targets)
    points = 8 * (n_columns + 2 * min(n_columns, POINTS_AT_A_TIME)) * (d + 2) if columns and not source.is_sparse else 0
    plain = linear_bytes(count - tests, d, row, n_targets, is_sparse=source.is_sparse)
    errors = 8 * n_targets * (2 * count + 4 * tests + 4 * settings.n_folds)
    return count * row + tests * row + columns + errors + max(plain, points)


def rows_held(source: RowSource, place: Place) -> RowsHeld:
    """Describe how a process of `place` gets the rows."""
    if source.is_mapped or (source.is_in_memory and not place.distributed):
        array: Any = source.array
        # Blocks of rows by columns (order F) are copied before BLAS takes them.
        straight = source.is_in_memory and (source.is_sparse or array.flags.c_contiguous)
        kept, copies = "here", 0 if straight else 1
    elif source.is_stored:
        kept, copies = "read", 1
    elif source.is_dask:
        # Dask hands over a block, of which one in our order is made.
        kept, copies = "sent" if place.distributed else "read", 2
    else:
        kept, copies = "sent" if place.distributed else "streamed", 1
    sizes = (source.n, source.n_features, source.row_bytes, kept, source.rows_per_chunk, source.is_sparse, copies)
    return RowsHeld(*sizes, own_bytes=source.own_bytes)


@dataclass(frozen=True)
class Candidates:
    """Candidate columns: row numbers in the training data (-1 for other points), points and scale (M,).

    gamma: of the kernel that the columns are of; None of a kernel that has none.
    """

    indices: NDArray[np.intp]
    points: Rows
    scale: NDArray[np.float64]
    gamma: float | None = None


def choose_candidates(
    rows: RowBlocks, settings: ColumnSettings, given: object, sample_weight: NDArray[np.float64] | None
) -> Candidates:
    """Draw candidate rows, or take the given row numbers or points."""
    gamma = width_by_blocks(settings.kernel, settings.gamma, rows, sample_weight, settings.memory_limit)
    kernel, allowed = kernel_of(settings, gamma), None if sample_weight is None else sample_weight > 0
    stream = np.random.default_rng([settings.seed, 0])
    if given is not None and np.asarray(given).ndim == 2:
        points = np.ascontiguousarray(given)  # as a run's folder gives them back: products round alike
        return Candidates(np.full(len(points), -1, np.intp), points, column_scale(kernel, points), gamma)
    if given is not None:
        indices = np.asarray(given, np.intp)
    elif settings.columns == "rpcholesky":
        indices = pivoted_cholesky(rows, kernel, settings.n_columns, stream, allowed)
    else:
        indices = uniform(rows.n, settings.n_columns, stream, allowed)
    if not len(indices):
        raise InputError("the kernel is zero on all rows", where=kernel.where, remedy="choose another kernel")
    points = rows.take(indices)
    if kernel.is_precomputed:
        check_among(points[:, indices], indices)
    scale = column_scale(kernel, points, indices)
    return Candidates(indices, indices if kernel.is_precomputed else points, scale, gamma)


def kernel_between(rows: RowBlocks, kernel: Kernel, candidates: Candidates) -> NDArray[np.float64]:
    """Return k(x_i, x_j) (M, M) between the candidates' points, scaled as the columns are.

    `rows`: the training rows, of which a precomputed kernel's values are taken.
    """
    points = rows.take(candidates.indices) if kernel.is_precomputed else candidates.points
    # The order in memory chooses the BLAS kernel, and with it the last bits: drawn and loaded points must be alike.
    points = points if sp.issparse(points) else np.require(points, requirements=["C", "A"])
    with blas_threads_for(len(candidates.scale)):
        found = np.array(kernel.columns(points, candidates.points), np.float64)
    found *= candidates.scale
    found *= candidates.scale[:, None]
    return found


# -- targets -----------------------------------------------------------------------------------------------------------

LEAST = float(1e3 * np.sqrt(np.finfo(float).tiny))
"""Least magnitude of targets, 1.5e-151: below, their squares, and so nu, come close to underflow."""


def are_too_small(targets: NDArray[np.float64]) -> bool:
    """Return whether a nonzero target of (n,) or (n, T) is so small that its squares, and nu, underflow."""
    largest = np.abs(targets).max(axis=0, initial=0.0)
    return bool(np.any((largest > 0) & (largest < LEAST)))


def target_means(targets: NDArray[np.float64], weights: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
    """Return the targets' means (T,), exact for constants, so that sums of squares keep their digits."""
    first = targets[0 if weights is None else int(np.argmax(weights > 0))]
    return np.asarray(first + np.average(targets - first, axis=0, weights=weights))
