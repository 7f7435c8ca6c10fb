"""One pass over the rows for `dkl verify`: the residuals of a stored model, and what they are beside the columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dkl.blocks.row_sources import RowSource
from dkl.errors import StoreError
from dkl.estimators.columns.plan import kernel_of
from dkl.estimators.regression.model import load_candidates
from dkl.estimators.regression.settings import RegressionSettings
from dkl.runs.recomputed import apart_from_rows, blocks, kernel_matrix
from dkl.stores.run import RunStore

AGREE = 1e-9
"""Relative to the objective."""
ROUNDINGS = 16
"""Of the columns' precision, relative to the squares that are summed up: they cancel in the solver's sums."""

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class Sums:
    """What one pass over n rows gives: |r|^2, y'r, sum r and y'y (T,), C'r (M, T), and |c_m|^2 (M,)."""

    residual: Vector
    with_targets: Vector
    total: Vector
    squares: Vector
    correlations: NDArray[np.float64]
    norms: Vector
    n: int


def pass_over(
    run: RunStore, rows: RowSource, y: NDArray[np.float64], w: NDArray[np.float64], intercepts: Vector,
    settings: RegressionSettings, budget: int,
) -> Sums:  # fmt: skip
    """The sums over all rows; StoreError where the stored candidates are not rows of the data, or their scale is wrong."""
    candidates, kernel = load_candidates(run), kernel_of(settings)
    scale = scale_of(rows, candidates.points, kernel)
    if not same(candidates.scale, scale):
        raise StoreError("the stored scale of the columns is not the kernel's", where=f"{run.path}/candidates")
    M = len(scale)
    residual, with_targets, total, squares = (np.zeros(y.shape[1]) for _ in range(4))
    correlations, norms = np.zeros((M, y.shape[1])), np.zeros(M)
    for lo, block in blocks(rows, M, budget):
        C = kernel_matrix(kernel, block, candidates.points) * scale
        here = y[lo : lo + block.shape[0]]
        r = here - C @ w.T - intercepts
        residual += (r * r).sum(axis=0)
        with_targets += (here * r).sum(axis=0)
        total += r.sum(axis=0)
        squares += (here * here).sum(axis=0)
        correlations += C.T @ r
        norms += (C * C).sum(axis=0)
        far = apart_from_rows(candidates.points, candidates.indices, block, lo)
        if not far == 0:
            raise StoreError("a stored candidate is not that row of the data", where=f"{run.path}/candidates", got=far)
    return Sums(residual, with_targets, total, squares, correlations, norms, rows.n)


def scale_of(rows: RowSource, points: Any, kernel: Any) -> Vector:
    """1 / sqrt(k(x_m, x_m)), and 0 where that is 0."""
    if kernel.name == "precomputed":
        diagonal = np.array([rows.read(int(m), int(m) + 1)[0, m] for m in points], np.float64)
    else:
        one = [kernel_matrix(kernel, points[m : m + 1], points[m : m + 1])[0, 0] for m in range(points.shape[0])]
        diagonal = np.array(one)
    return np.divide(1.0, np.sqrt(diagonal), out=np.zeros(len(diagonal)), where=diagonal > 0)


def same(found: NDArray[np.float64], wanted: NDArray[np.float64]) -> bool:
    """Whether two arrays are equal but for roundings."""
    return found.shape == wanted.shape and bool(np.allclose(found, wanted, rtol=1e-9, atol=0))
