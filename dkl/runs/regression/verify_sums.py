"""A pass over the rows for `dkl verify`: a model's residuals, and their sums with the columns."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dkl.blocks.rows.row_sources import RowSource
from dkl.errors import StoreError
from dkl.estimators.regression.columns.plan import kernel_of
from dkl.estimators.regression.model import load_candidates
from dkl.estimators.regression.settings import RegressionSettings
from dkl.runs.verify.recomputed import apart_from_rows, blocks, kernel_matrix
from dkl.stores.run import RunStore

if TYPE_CHECKING:
    from dkl.blocks.rows.row_sources import Rows
    from dkl.linalg.kernels.kernel_columns import Kernel

AGREE = 1e-9
"""Tolerance relative to the objective."""
ROUNDINGS = 16
"""Tolerance in units of the columns' precision, relative to the summed squares.
They cancel in the solver's sums."""

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class Sums:
    """Sums of one pass over n rows: |r|^2, y'r, sum r and y'y (T,), C'r (M, T), and |c_m|^2 (M,)."""

    residual: Vector
    with_targets: Vector
    total: Vector
    squares: Vector
    correlations: NDArray[np.float64]
    norms: Vector
    n: int

    @classmethod
    def of(cls, C: Matrix, y: Matrix, w: Matrix, intercepts: Vector) -> Sums:
        """Return the sums over rows with columns C (n, M) and targets y (n, T) for a model.
        w: its weights (T, M); intercepts: (T,)."""
        r = y - C @ w.T - intercepts
        squares = (y * y).sum(axis=0)
        return cls(
            (r * r).sum(axis=0), (y * r).sum(axis=0), r.sum(axis=0), squares, C.T @ r, (C * C).sum(axis=0), len(y)
        )

    def plus(self, other: Sums, sign: int = 1) -> Sums:
        """Return the sums with those of other rows added, or subtracted at a sign of -1."""
        names = (one.name for one in fields(self))
        return Sums(*(getattr(self, name) + sign * getattr(other, name) for name in names))


def pass_over(
    run: RunStore, rows: RowSource, y: Matrix, models: list[tuple[Matrix, Vector]], settings: RegressionSettings, budget: int
) -> list[Sums]:  # fmt: skip
    """Return the sums over all rows for each model, its weights (T, M) and intercepts (T,).

    Raises StoreError where the stored candidates are not rows of the data, or their scale is wrong.
    """
    candidates, kernel = load_candidates(run), kernel_of(settings)
    scale = scale_of(rows, candidates.points, kernel)
    if not same(candidates.scale, scale):
        raise StoreError("the stored scale of the columns is not the kernel's", where=f"{run.path}/candidates")
    found: list[Sums] = []
    for lo, block in blocks(rows, len(scale), budget):
        C = kernel_matrix(kernel, block, candidates.points) * scale
        here = [Sums.of(C, y[lo : lo + block.shape[0]], *model) for model in models]
        found = [one.plus(other) for one, other in zip(found, here, strict=True)] if found else here
        far = apart_from_rows(candidates.points, candidates.indices, block, lo)
        if not far == 0:
            raise StoreError("a stored candidate is not that row of the data", where=f"{run.path}/candidates", got=far)
    return found


def rounding(sums: Sums, t: int, w: Vector, settings: RegressionSettings) -> float:
    """Return how far the columns' rounding may move the residuals (n,) of output t: it adds as squares."""
    eps = ROUNDINGS * float(np.finfo(settings.dtype).eps)
    return eps * float(np.sqrt(sums.squares[t]) + np.sqrt(w**2 @ sums.norms))


def total_rounding(sums: Sums, t: int, w: Vector, settings: RegressionSettings) -> float:
    """Return how far the sum of the residuals of output t may be from 0, where an intercept makes it 0."""
    length = np.sqrt(sums.n)
    return float(rounding(sums, t, w, settings) * length + AGREE * length * np.sqrt(sums.residual[t]))


def bounds(
    sums: Sums, t: int, w: Vector, kappa: float, settings: RegressionSettings
) -> tuple[float, float, float, float, float]:
    """Return (P, D, gap, how far rounding may move P, and the gap beyond what is reported) of output t with weights w (M,).

    A reported gap counts the rounding of the sums that it is from. Beyond it counts what the sums here may be off by, in double: each by
    the lengths of both its columns, and by what the residuals' mean, 0 with an intercept, is off by.
    """
    residual, with_targets = float(sums.residual[t]), float(sums.with_targets[t])
    size, largest = float(np.abs(w).sum()), float(np.abs(sums.correlations[:, t]).max(initial=0.0))
    objective = residual + 2 * kappa * size
    dual = _dual(with_targets, residual, largest, kappa)
    mean = (
        min(abs(float(sums.total[t])), total_rounding(sums, t, w, settings)) / np.sqrt(sums.n)
        if settings.fit_intercept
        else 0.0
    )
    off = 2 * float(np.finfo(float).eps) * float(np.sqrt(residual)) + mean
    by_columns, by_targets = off * float(np.sqrt(sums.norms.max(initial=0.0))), off * float(np.sqrt(sums.squares[t]))
    most = float(np.copysign(abs(with_targets) + by_targets, with_targets))
    on_gap = AGREE * objective + max(_dual(most, residual, max(largest - by_columns, 0.0), kappa) - dual, 0.0)
    eps, moved = ROUNDINGS * float(np.finfo(settings.dtype).eps), rounding(sums, t, w, settings)
    return objective, dual, max(objective - dual, 0.0), AGREE * objective + moved**2 / eps, on_gap


def _dual(with_targets: float, residual: float, largest: float, kappa: float) -> float:
    """Return the dual value of the best multiple of the residuals, from y'r, |r|^2 and the largest of |C'r|."""
    best = with_targets / residual if residual > 0 else 0.0
    bound = kappa / largest if largest > 0 else np.inf
    scale = float(np.clip(best, -bound, bound))
    return 2 * scale * with_targets - scale**2 * residual


def scale_of(rows: RowSource, points: Rows, kernel: Kernel) -> Vector:
    """Return 1 / sqrt(k(x_m, x_m)), and 0 for k = 0."""
    if kernel.name == "precomputed":
        diagonal = np.array([rows.read(int(m), int(m) + 1)[0, m] for m in points], np.float64)
    else:
        one = [kernel_matrix(kernel, points[m : m + 1], points[m : m + 1])[0, 0] for m in range(points.shape[0])]
        diagonal = np.array(one)
    return np.divide(1.0, np.sqrt(diagonal), out=np.zeros(len(diagonal)), where=diagonal > 0)


def same(found: NDArray[np.float64], wanted: NDArray[np.float64]) -> bool:
    """Return whether two arrays are equal up to rounding."""
    return found.shape == wanted.shape and bool(np.allclose(found, wanted, rtol=1e-9, atol=0))
