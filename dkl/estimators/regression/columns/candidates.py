"""The candidate columns of a fit, drawn from the rows or given, and its targets about their means."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dkl.blocks.kernels.kernel_checks import check_among
from dkl.blocks.rows.row_blocks import RowBlocks
from dkl.blocks.workers.dense_work import blas_threads_for
from dkl.errors import InputError
from dkl.estimators.base.kernel_width import width_by_blocks
from dkl.estimators.regression.columns.plan import kernel_of
from dkl.estimators.regression.columns.settings import ColumnSettings
from dkl.linalg.kernels.kernel_columns import Kernel
from dkl.problems.regression.column_choice import column_scale, pivoted_cholesky, uniform

if TYPE_CHECKING:
    from dkl.linalg.rows import Rows


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
