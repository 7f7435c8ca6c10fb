"""Means and spreads of columns from blocks of rows, and rows whose columns have mean 0 and spread 1.

Blocks are merged by T. F. Chan, G. H. Golub, R. J. LeVeque, Updating formulae and a pairwise algorithm for computing sample
variances, COMPSTAT 1982: no difference of large sums, so that years, timestamps and money keep their digits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

if TYPE_CHECKING:
    from dkl.linalg.rows import Rows

Floats = NDArray[np.float64]


@dataclass(eq=False)
class ColumnMoments:
    """Moments of the columns of some rows; `a += b` merges two, in the same bits as `b += a`.

    count: of the rows, or the sum of their weights; offsets (d,): their means less `origins`; squares (d,): sums of squared
    distances to the means; origins (d,): values of rows, 0 of sparse ones. Differences to them are exact, where means far
    from 0 would be rounded.
    """

    count: float
    origins: Floats
    offsets: Floats
    squares: Floats

    @property
    def means(self) -> Floats:
        """Return the means (d,)."""
        return self.origins + self.offsets

    def __iadd__(self, other: ColumnMoments) -> ColumnMoments:
        # The lesser origin, whichever block has it: a choice by position would make the bits depend on the order.
        count, origins = self.count + other.count, np.minimum(self.origins, other.origins)
        with np.errstate(over="ignore", invalid="ignore"):
            one, two = (part.offsets + (part.origins - origins) for part in (self, other))
            # The product of the counts first, which is exact: a share of one times the other rounds by which is which.
            # Rows of no weight at all have no mean.
            between = (one - two) ** 2 * (self.count * other.count / (count or 1))
            offsets = (self.count * one + other.count * two) / (count or 1)
            # Not in place: arrays that came from another process are read-only.
            return ColumnMoments(count, origins, offsets, (self.squares + other.squares) + between)

    def spreads(self) -> Floats:
        """Return the columns' standard deviations (d,).

        0 of a column that is constant up to rounding, as in scikit-learn's StandardScaler, and of one whose variance overflows, which the
        check of values will name.
        """
        n, eps = self.count, np.finfo(np.float64).eps
        with np.errstate(over="ignore", invalid="ignore"):
            variances = self.squares / n
            varies = (variances > n * eps * variances + (n * self.means * eps) ** 2) & np.isfinite(variances)
        return np.sqrt(np.where(varies, variances, 0.0))


def weighted_moments(rows: Any, weights: Floats) -> ColumnMoments:
    """Return moments of rows (m, d), dense or CSR, of which each counts as often as its weight >= 0 (m,) says."""
    total = float(weights.sum())
    with np.errstate(over="ignore", invalid="ignore"):
        if not sp.issparse(rows):
            origins: Floats = rows[0].astype(np.float64)
            apart = rows - origins
            offsets: Floats = weights @ apart / (total or 1)
            apart -= offsets
            return ColumnMoments(total, origins, offsets, weights @ np.square(apart, out=apart))
        d, entries = rows.shape[1], rows.tocoo()
        entries.sum_duplicates()
        data, columns, counted = entries.data.astype(np.float64), entries.col, weights[entries.row]
        means = np.asarray(np.bincount(columns, counted * data, d) / (total or 1))
        squares = np.asarray(np.bincount(columns, counted * (data - means[columns]) ** 2, d), np.float64)
        zeros = total - np.bincount(columns, counted, d)
        return ColumnMoments(total, np.zeros(d), means, squares + zeros * means**2)


def moments_of(rows: Any) -> ColumnMoments:
    """Return moments of rows (m, d), dense or CSR, in double precision."""
    m, d = rows.shape
    with np.errstate(over="ignore", invalid="ignore"):
        if not sp.issparse(rows):
            origins: Floats = rows[0].astype(np.float64)
            apart = rows - origins
            offsets: Floats = apart.mean(axis=0)
            # A second pass about the mean itself: about the first row squares would cancel.
            apart -= offsets
            return ColumnMoments(m, origins, offsets, np.square(apart, out=apart).sum(axis=0))
        if not rows.has_canonical_format:
            rows = rows.copy()
            rows.sum_duplicates()
        data, columns = rows.data.astype(np.float64), rows.indices
        means = np.asarray(np.bincount(columns, data, d) / m)
        zeros = m - np.bincount(columns, minlength=d)
        # Zeros that are not stored are one mean away from it each.
        squares = np.bincount(columns, (data - means[columns]) ** 2, d) + zeros * means**2
        return ColumnMoments(m, np.zeros(d), means, squares)


@dataclass(frozen=True, eq=False)
class ColumnScale:
    """Standardization of rows by means (d,), None if zeros are to stay zeros, and spreads (d,), all > 0.

    A constant column has spread 1.
    """

    means: Floats | None
    spreads: Floats

    @classmethod
    def of(cls, moments: ColumnMoments, *, centered: bool) -> ColumnScale:
        """Return the scale by means and standard deviations of the rows that were counted."""
        spreads = moments.spreads()
        return cls(moments.means if centered else None, np.where(spreads > 0, spreads, 1.0))

    def applied(self, rows: Any, *, in_place: bool = False) -> Any:
        """Return (rows - means) / spreads in the rows' own floating type, dense or CSR.

        Sparse rows become dense where there are means. in_place: whether the rows' memory may be written to.
        """
        dtype = rows.dtype
        spreads = self.spreads.astype(dtype)
        if sp.issparse(rows):
            if self.means is None:
                # A quotient as of dense rows: a product with the reciprocal has other last bits.
                data = np.divide(rows.data, spreads[rows.indices], out=rows.data if in_place else None)
                return type(rows)((data, rows.indices, rows.indptr), shape=rows.shape)
            rows, in_place = rows.toarray(), True
        out = rows if in_place else None
        if self.means is not None:
            rows = out = np.subtract(rows, self.means.astype(dtype), out=out)
        return np.divide(rows, spreads, out=out)


# A row amid others: what to subtract from rows before products of them, which cancel for rows far from 0.

SAMPLE = 256
"""Rows that the middle one is chosen from."""


def middle_row(rows: Rows) -> NDArray:
    """Return the row (d,) nearest to the mean of rows (m, d), or of 256 spread evenly; 0 of no rows.

    A mean would do but for its rounding: differences to a row are exact for rows near it, so that rows moved by what adds to them
    exactly have the same differences, to the bit.
    """
    if not len(rows):
        return np.zeros(rows.shape[1], rows.dtype)
    some = np.asarray(rows[:: -(-len(rows) // SAMPLE)])
    with np.errstate(over="ignore", invalid="ignore"):  # of numbers too large to square any row will do
        apart = np.subtract(some, some[0], dtype=np.float64)
        apart -= apart.mean(axis=0)
        return np.asarray(some[np.square(apart, out=apart).sum(axis=1).argmin()])
