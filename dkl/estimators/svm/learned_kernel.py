"""The optimal neighborhood kernel of a machine, for rows learned from and for others (Liu et al. 2009, (5) and section 2.2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dkl.errors import InputError
from dkl.linalg.kernels.kernel_columns import Kernel

if TYPE_CHECKING:
    from dkl.linalg.rows.row_types import Rows

ALIKE = 1e-3
"""Largest difference between the coordinates of equal rows, relative to the largest of all, that is put down
to the solver's tolerance."""


@dataclass(frozen=True)
class MachineKernel:
    """K = sum_k shares_k kernels_k of one machine."""

    kernels: list[Kernel]
    shares: NDArray[np.float64]

    def __call__(self, rows: Rows, others: Rows | None) -> NDArray[np.float64]:
        """Return K (m, l) of rows with others, or (m, m) of rows with themselves, symmetric to the bit.

        Rows of a precomputed kernel are rows of K.
        """
        if self.kernels[0].is_precomputed:
            return np.asarray(rows, np.float64)
        points = rows if others is None else others
        K = np.zeros((rows.shape[0], points.shape[0]))
        for kernel, share in zip(self.kernels, self.shares, strict=True):
            if share:
                K += share * kernel.columns(rows, points)
        return 0.5 * (K + K.T) if others is None else K


@dataclass(frozen=True)
class OwnCoordinates:
    """Coordinates y_i alpha_i / sqrt(2 rho) of the learned kernel, one that only this row has for each row learned from.

    support (s,): numbers of the support vectors; values (s,) theirs, other rows have 0.
    """

    support: NDArray[np.intp]
    values: NDArray[np.float64]

    def of_all(self, n: int) -> NDArray[np.float64]:
        """Return those of all n rows learned from."""
        found = np.zeros(n)
        found[self.support] = self.values
        return found

    def of_numbers(self, numbers: object, m: int) -> NDArray[np.float64]:
        """Return those (m,) of rows by their numbers among those learned from, -1 for others; InputError for other numbers."""
        given = np.asarray(numbers)
        if given.shape != (m,) or given.dtype.kind not in "iu" or (m and given.min() < -1):
            least = f", the least {given.min()}" if given.dtype.kind in "iu" and given.size else ""
            raise InputError(
                "not row numbers", where="rows", got=f"{given.dtype} of shape {given.shape}{least}",
                wanted=f"({m},) whole numbers, the row's among those learned from, or -1",
            )  # fmt: skip
        known = dict(zip(self.support.tolist(), self.values.tolist(), strict=True))
        return np.array([known.get(number, 0.0) for number in given.tolist()])

    def of_equal(self, rows: Rows, points: Rows, where: str) -> NDArray[np.float64]:
        """Return those (m,) of the support vectors `points` (s, d) that rows (m, d) equal, else 0.

        Raises InputError for a row that equals several support vectors of different coordinates.
        """
        known: dict[bytes, list[float]] = {}
        for name, value in zip(_names(points), self.values.tolist(), strict=True):
            known.setdefault(name, []).append(value)
        most, found = ALIKE * float(np.abs(self.values).max(initial=0.0)), np.zeros(rows.shape[0])
        for i, name in enumerate(_names(rows)):
            values = known.get(name, [0.0])
            if max(values) - min(values) > most:
                raise InputError(
                    "equals several rows that were learned from, whose labels or weights differ", where=f"{where}[{i}]",
                    remedy="give rows=, the number of each row of X among those learned from, or -1",
                )  # fmt: skip
            found[i] = sum(values) / len(values)
        return found


def _names(rows: Rows) -> list[bytes]:
    """Return the values of each row as bytes, the same for equal rows, dense or sparse."""
    found = sp.csr_array(rows, dtype=np.float64, copy=True)
    found.sum_duplicates()
    found.eliminate_zeros()
    columns, values, ends = found.indices.astype(np.int64), found.data, found.indptr.tolist()
    return [columns[lo:hi].tobytes() + values[lo:hi].tobytes() for lo, hi in zip(ends[:-1], ends[1:], strict=True)]
