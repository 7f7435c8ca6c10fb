"""Gram matrix of kernel columns as solvers read it: by rows, needed only of the active set.

B = C'C (M x M), or about the columns' means where an intercept is fitted. `DenseGram` holds it; `StoredGram` reads rows
from zarr when they are asked for, and keeps them: its memory is that of the active set.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dkl.linalg.rows.column_moments import Moments, mirrored

Vector = NDArray[np.float64]

EPS = float(np.finfo(float).eps)
ROUNDED = 8
"""Bound of what sums over rows are off by, in units of the columns' precision and of the lengths of both columns."""


class Gram(Protocol):
    """B (M, M) symmetric positive semidefinite, with its diagonal (M,)."""

    diagonal: Vector

    @property
    def n_columns(self) -> int:
        """Return the number of columns M."""

    def rows(self, indices: NDArray[np.intp]) -> tuple[NDArray[np.float64], NDArray[np.intp]]:
        """Return (buffer, slots) for k row numbers: row indices[j] of B is buffer[slots[j]].

        Read-only, valid until the next call. Two arrays instead of one, so that rows in memory are not copied.
        """


class DenseGram:
    """B in memory, 8 M^2 bytes.

    least (M,): a column whose square is no larger is constant to rounding, and counts as zero.
    """

    def __init__(self, matrix: NDArray[np.float64], least: Vector | float = 0.0) -> None:
        self.matrix = matrix
        self.diagonal = np.where(np.diag(matrix) > least, np.diag(matrix), 0.0)

    @property
    def n_columns(self) -> int:
        """Return the number of columns M."""
        return len(self.matrix)

    def rows(self, indices: NDArray[np.intp]) -> tuple[NDArray[np.float64], NDArray[np.intp]]:
        """Return the matrix itself, and the row numbers as slots."""
        return self.matrix, indices


class StoredGram:
    """B on disk: B = stored - s s' / W, `shift` = (s, W), `stored[lo:hi]` raw rows; rows read are kept.

    diagonal (M,): of the raw matrix. s are the weighted column sums, W the sum of weights: the shift centers the columns. least (M,):
    a column whose square is no larger then is constant to rounding, and counts as zero.
    """

    def __init__(
        self,
        stored: Any,
        diagonal: Vector,
        shift: tuple[Vector, float] | None = None,
        least: Vector | float = 0.0,
    ) -> None:
        self.stored, self.shift = stored, shift
        centered = diagonal if shift is None else diagonal - shift[0] ** 2 / shift[1]
        self.diagonal = np.where(centered > least, centered, 0.0)
        self._slot = np.full(len(diagonal), -1, np.intp)
        self._rows = np.empty((0, len(diagonal)))
        self._held = 0

    @property
    def n_columns(self) -> int:
        """Return the number of columns M."""
        return len(self._slot)

    def rows(self, indices: NDArray[np.intp]) -> tuple[NDArray[np.float64], NDArray[np.intp]]:
        """Read the rows that are not held yet, in ascending order; return the buffer and their slots in it."""
        # Ascending, so that neighboring rows are read from the same chunk.
        for index in np.sort(indices[self._slot[indices] < 0]):
            self._read(int(index))
        return self._rows, self._slot[indices]

    def _read(self, index: int) -> None:
        """Read and center row `index` into the next slot; the buffer grows by half when it is full."""
        if self._held == len(self._rows):
            grown = np.empty((max(16, len(self._rows) + len(self._rows) // 2), self.n_columns))
            grown[: self._held] = self._rows[: self._held]
            self._rows = grown
        row = np.asarray(self.stored[index : index + 1])[0]
        # B - s s' / W centers a row without a copy of the whole matrix.
        if self.shift is not None:
            row = row - self.shift[0] * (self.shift[0][index] / self.shift[1])
        self._rows[self._held] = row
        self._slot[index], self._held = self._held, self._held + 1


@dataclass(frozen=True)
class CenteredGram:
    """Sums that all outputs and all nu of a fit share: B, b = C'y and y'y, about the means if asked for.

    cross (M, T); squares (T,); column_means (M,) and target_means (T,): zeros without an intercept; weight: the sum of
    the sample weights; lengths (M,) and target_lengths (T,): |c| and |y| before they are centered, which rounding is relative to;
    eps: the columns' precision; shift (M,): what was subtracted from the columns before they were summed, None: nothing. All sums,
    lengths and means are of the columns less that; whole (M,): lengths of the columns themselves.
    """

    gram: Gram
    cross: NDArray[np.float64]
    squares: Vector
    column_means: Vector
    target_means: Vector
    weight: float
    lengths: Vector
    target_lengths: Vector
    eps: float = EPS
    shift: Vector | None = None
    whole: Vector | None = None

    @classmethod
    def of(
        cls,
        moments: Moments,
        *,
        intercept: bool,
        eps: float = EPS,
        gram: Any = None,
        diagonal: Vector | None = None,
        shift: Vector | None = None,
    ) -> CenteredGram:
        """Build it from sums over rows (one fold); overwrites `moments[0]` unless `gram` is given.

        eps: precision of the columns; gram, diagonal: rows of B on disk, as of `StoredGram`. An intercept is fitted by centering:
        B - s s'/W, b - s t/W, y'y - t^2/W with the weighted sums s of the columns and t of the targets.
        """
        sums, cross, square = moments[0][0], moments[1][0], moments[2][0]
        # The targets' last column is ones times the root of the weight, so its square is the sum of the weights.
        weight = float(square[-1, -1])
        totals, target_totals = cross[:, -1], square[:-1, -1]
        b, squares = cross[:, :-1].copy(), np.diag(square)[:-1].copy()
        centering = (totals, weight) if intercept else None
        raw = np.diag(sums).copy() if diagonal is None else diagonal
        whole = raw if shift is None else np.maximum(raw + 2 * shift * totals + weight * shift**2, 0.0)
        # Without an intercept nothing cancels: a column is zero only where it is zero.
        least = ROUNDED * eps * raw + (ROUNDED * eps) ** 2 * whole if intercept else 0.0
        lengths = np.sqrt(np.maximum(raw, 0.0)), np.sqrt(np.maximum(np.diag(square)[:-1], 0.0))
        if intercept:
            # The targets' part of the shift; the columns' own part is applied where B is read.
            b -= np.outer(totals, target_totals / weight)
            squares = np.maximum(squares - target_totals**2 / weight, 0.0)
        if gram is None:
            matrix = mirrored(sums)
            if centering is not None:
                scaled = totals / np.sqrt(weight)
                # By row panels: the outer product would be one more M x M array.
                for lo in range(0, len(matrix), 512):
                    matrix[lo : lo + 512] -= np.outer(scaled[lo : lo + 512], scaled)
            held: Gram = DenseGram(matrix, least)
        else:
            assert diagonal is not None
            held = StoredGram(gram, diagonal, centering, least)
        zero = 0.0 if not intercept else 1.0
        means = zero * totals / weight, zero * target_totals / weight
        return cls(held, b, squares, *means, weight, *lengths, eps, shift, np.sqrt(whole))

    def spread(self, output: int, weights: Vector, residual: float) -> tuple[float, float, Vector]:
        """Return how far rounding may move |r|^2, y'r and C'r (M,) of an output's weights (M,), r = y - C w; residual: |r|^2.

        Each sum is rounded relative to the lengths of both its columns as they are summed, y'y in double precision; and each number of
        a column is rounded itself, by which C w is another.
        """
        unit, own = ROUNDED * self.eps, float(self.target_lengths[output])
        fitted = float(np.linalg.norm(weights * self.lengths))
        exact = ROUNDED * EPS * own**2
        whole = self.lengths if self.whole is None else self.whole
        moved, length = self.eps * float(np.linalg.norm(weights * whole)), float(np.sqrt(max(residual, 0.0)))
        on_residual = exact + unit * (2 * own + fitted) * fitted + (2 * length + moved) * moved
        on_correlations = unit * (own + fitted) * self.lengths + self.eps * length * whole + moved * self.lengths
        return on_residual, exact + unit * own * fitted + own * moved, on_correlations

    def intercepts(self, weights: NDArray[np.float64]) -> Vector:
        """Return the intercepts (T,) of weights (T, M): the mean of the targets less that of C w."""
        return np.asarray(self.target_means - weights @ self.raw_means)

    @property
    def raw_means(self) -> Vector:
        """Return the means (M,) of the columns themselves, without the shift."""
        return self.column_means if self.shift is None else self.column_means + self.shift


def held_out(total: Moments, fold: int) -> Moments:
    """Return the sums over all rows but those of `fold`, from the sums of each fold (K, ...); -1 for all.

    One fold. Added up and not subtracted from the total, which would cancel.
    """
    parts = []
    for sums in total:
        rest = np.zeros_like(sums[:1])
        for k in range(len(sums)):
            if k != fold:
                rest[0] += sums[k]
        parts.append(rest)
    return parts[0], parts[1], parts[2]
