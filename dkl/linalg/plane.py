"""The plane of the first two principal components of rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dkl.linalg.rows.column_scale import middle_row

if TYPE_CHECKING:
    from dkl.linalg.rows.row_types import Rows

EXACT_UP_TO = 512
"""Maximum columns for a plane to come from the full decomposition."""
EXTRA, ROUNDS = 8, 12


@dataclass(frozen=True)
class Plane:
    """Plane of the first two principal components of rows (m, d).

    origin (d,): a row, or 0 of sparse ones; mean (d,) less that; axes (d, 2).
    """

    origin: NDArray[np.float64]
    mean: NDArray[np.float64]
    axes: NDArray[np.float64]

    @classmethod
    def of(cls, rows: Rows) -> Plane:
        """Fit the plane to dense or sparse rows; the signs are fixed, for the same picture every time."""
        is_sparse = sp.issparse(rows)
        origin = np.zeros(rows.shape[1]) if is_sparse else middle_row(np.asarray(rows, float))
        near = (
            rows if is_sparse else np.asarray(rows, float) - origin
        )  # exact: products of rows far from 0 would cancel
        mean = np.asarray(near.mean(axis=0, dtype=float)).ravel()
        axes = _leading(near, mean)
        axes = axes * np.where(axes[np.abs(axes).argmax(axis=0), np.arange(2)] < 0, -1.0, 1.0)
        return cls(origin, mean, axes)

    def project(self, rows: Rows) -> NDArray[np.float64]:
        """Return the rows' coordinates (m, 2) in the plane."""
        if sp.issparse(rows):
            return np.asarray(rows @ self.axes) - self.mean @ self.axes
        return np.asarray((np.asarray(rows, float) - self.origin - self.mean) @ self.axes)


def _leading(rows: Any, mean: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return orthonormal leading directions (d, 2) of the rows about their mean; zero for a single column."""
    d = rows.shape[1]
    if d <= EXACT_UP_TO:
        dense = rows.toarray() if sp.issparse(rows) else np.asarray(rows)
        centred = dense.astype(float) - mean
        axes = np.linalg.eigh(centred.T @ centred)[1][:, ::-1][:, :2]
        return np.hstack([axes, np.zeros((d, 2 - axes.shape[1]))])
    if not sp.issparse(rows):
        rows, mean = np.asarray(rows, float) - mean, np.zeros(d)
    basis = np.random.default_rng(0).standard_normal((d, 2 + EXTRA))
    for _ in range(ROUNDS):
        basis = np.linalg.qr(basis)[0]
        image = np.asarray(rows @ basis) - mean @ basis
        basis = np.asarray(rows.T @ image) - np.outer(mean, image.sum(axis=0))
    basis = np.linalg.qr(basis)[0]
    image = np.asarray(rows @ basis) - mean @ basis
    return np.asarray(basis @ np.linalg.eigh(image.T @ image)[1][:, ::-1][:, :2])
