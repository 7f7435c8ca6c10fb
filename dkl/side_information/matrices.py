"""Constraints tr(K A_t) by their symmetric matrices A_t (n, n): a list of matrices, or one table of their entries, checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dkl.errors import InputError
from dkl.io.plain_arrays import in_memory, refuse_text
from dkl.side_information.pair_checks import inside_cross_validation

Vector = NDArray[np.float64]
Rows = NDArray[np.int64]
Entries = tuple[Rows, Rows, Rows, Vector]
COLUMNS = ("constraint", "i", "j", "value")
"""Columns of a table of entries."""
ENTRY_BYTES = 130
"""Bytes of an entry of a constraint's matrix while it is checked and sorted."""
FEWER_ENTRIES = "raise memory_limit, or give fewer constraints, or matrices of fewer entries"
ROUNDING = 1e-12
"""Share of a matrix's largest entry by which its halves may differ: their mean is taken."""
WANTED = f"a list of symmetric matrices (n, n), or a table (m, 4) of {', '.join(COLUMNS)}"
MIRROR = "give each entry off the diagonal twice, as (i, j) and as (j, i); of a matrix A take (A + A.T) / 2"


@dataclass(frozen=True, eq=False)
class ConstraintMatrices:
    """Symmetric matrices A_t (n, n), t = 0..count - 1, by their upper halves.

    constraint, i, j (e,): t and i <= j of each entry that is not 0, once, in lexicographic order; value (e,): A_t[i, j].
    """

    n: int
    count: int
    constraint: Rows
    i: Rows
    j: Rows
    value: Vector

    @classmethod
    def checked(cls, n: int, given: Any) -> ConstraintMatrices:
        """Build from what `fit` is given; InputError for what is no list of symmetric, finite matrices (n, n) other than 0."""
        given = in_memory(given, "constraints")
        refuse_text(given, "constraints")
        matrices = _matrices_of(given)
        if matrices is None:
            return cls.of_table(n, given)
        parts = [_entries_of(n, matrix, f"constraints[{t}]") for t, matrix in enumerate(matrices)]
        owner = np.repeat(np.arange(len(parts)), [len(part[0]) for part in parts])
        i, j, value = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        return cls._folded(n, len(parts), (owner, i.astype(np.int64), j.astype(np.int64), value))

    @classmethod
    def of_table(cls, n: int, table: Any, where: str = "constraints") -> ConstraintMatrices:
        """Build from rows (m, 4) of constraint, i, j, value; entries that are given several times are added up."""
        try:
            found = np.asarray(table)
        except ValueError:  # rows of different lengths
            found = np.empty(0)
        if found.ndim != 2 or found.shape[1] != len(COLUMNS) or found.dtype.kind not in "biufO":
            got = f"shape {found.shape}" if found.size else type(table).__name__
            raise InputError("not constraints", where=where, got=got, wanted=WANTED)
        if not len(found):
            raise InputError("no constraints", where=where, got=0, wanted="at least one")
        try:
            columns = [np.asarray(column, np.float64) for column in found.T]
        except (TypeError, ValueError, OverflowError) as error:
            raise InputError("not numbers", where=where, got=str(error)[:80], wanted=WANTED) from error
        _refuse_not_finite(columns[3], where)
        owner, i, j = (
            _whole(column, where, name, most)
            for column, name, most in zip(columns, COLUMNS, (None, n, n), strict=False)
        )
        _refuse_zeros(owner, int(owner.max()) + 1, where)
        return cls._folded(n, int(owner.max()) + 1, (owner, i, j, columns[3]), where)

    @classmethod
    def _folded(cls, n: int, count: int, entries: Entries, where: str = "constraints") -> ConstraintMatrices:
        """Build from entries of both halves; InputError where the halves differ, and for a matrix of zeros."""
        owner, i, j, value = entries
        low, high = np.minimum(i, j), np.maximum(i, j)
        order = np.lexsort((high, low, owner))
        owner, low, high, is_upper, value = owner[order], low[order], high[order], (i <= j)[order], value[order]
        is_new = np.ones(len(owner), bool)
        is_new[1:] = (np.diff(owner) != 0) | (np.diff(low) != 0) | (np.diff(high) != 0)
        place = np.cumsum(is_new) - 1
        owner, low, high = owner[is_new], low[is_new], high[is_new]
        upper, lower = (np.bincount(place[half], value[half], len(owner)) for half in (is_upper, ~is_upper))
        lower = np.where(low == high, upper, lower)  # the diagonal has no other half
        _refuse_not_finite(np.asarray(upper + lower, np.float64), where)
        largest = np.zeros(count)
        np.maximum.at(largest, owner, np.maximum(np.abs(upper), np.abs(lower)))
        wrong = np.flatnonzero(np.abs(upper - lower) > ROUNDING * largest[owner])
        if len(wrong):
            k = wrong[0]
            got = f"A[{low[k]}, {high[k]}] = {upper[k]:.6g}, A[{high[k]}, {low[k]}] = {lower[k]:.6g}"
            raise InputError("not symmetric", where=f"{where}[{owner[k]}]", got=got, wanted="A = A'", remedy=MIRROR)
        # Equal halves keep their bits; of others the halves are added, as their sum may overflow.
        mean = np.where(upper == lower, upper, 0.5 * upper + 0.5 * lower)
        kept = mean != 0
        _refuse_zeros(owner[kept], count, where)
        return cls(n, count, owner[kept], low[kept], high[kept], mean[kept])

    @cached_property
    def points(self) -> Rows:
        """Return the rows that the constraints touch, ascending."""
        return np.unique(np.concatenate([self.i, self.j]))

    @cached_property
    def n_entries(self) -> int:
        """Return the number of distinct entries of K, on and above the diagonal, that the constraints read."""
        return len(np.unique(self.i * self.n + self.j))

    @property
    def widest(self) -> int:
        """Return the largest number of entries of a constraint."""
        return int(np.bincount(self.constraint).max())


def resolve_constraints(n: int, given: Any, sample_ids: object = None) -> ConstraintMatrices:
    """Return the checked constraint matrices of n rows; InputError in cross-validation and with `sample_ids`, which cut no matrices."""
    if inside_cross_validation() or sample_ids is not None:
        raise InputError(
            "constraints cannot be followed through cross-validation",
            where="constraints", got="sample_ids" if sample_ids is not None else "matrices of all rows",
            wanted="constraints of the rows of X, without sample_ids",
            remedy="give triplets or pairs with sample_ids, or the matrices of the rows of each fold",
        )  # fmt: skip
    return ConstraintMatrices.checked(n, given)


def count_entries(given: Any) -> int:
    """Return the number of entries of what `fit` is given, other than 0, before it is checked; 0 where nothing is known."""
    if isinstance(given, (list, tuple)):
        if given and not any(sp.issparse(one) or getattr(one, "ndim", 0) == 2 for one in given[:1]):
            return len(given)
        return sum(int(one.nnz if sp.issparse(one) else np.count_nonzero(one)) for one in given if hasattr(one, "ndim"))
    shape: tuple[Any, ...] = getattr(given, "shape", ())
    if len(shape) == 3 and isinstance(given, np.ndarray):
        return int(np.count_nonzero(given))
    return int(shape[0]) if len(shape) == 2 and all(isinstance(size, int) for size in shape) else 0


def _matrices_of(given: Any) -> Sequence[Any] | None:
    """Return the matrices given, or None for a table of entries."""
    if sp.issparse(given):
        got = f"one matrix of shape {given.shape}"
        raise InputError("not a list of matrices", where="constraints", got=got, wanted=WANTED, remedy="give [A]")
    if not isinstance(given, (list, tuple)):
        shape = getattr(given, "shape", None)
        if shape is None or len(shape) not in (1, 2, 3):
            raise InputError("not constraints", where="constraints", got=type(given).__name__, wanted=WANTED)
        if len(shape) == 2:
            return None
        given = list(given)
    if not len(given):
        raise InputError("no constraints", where="constraints", got=0, wanted="at least one")
    return given if any(sp.issparse(one) or _ndim(one) != 1 for one in given) else None


def _ndim(one: Any) -> int:
    try:
        return np.ndim(one)
    except ValueError:  # rows of different lengths
        return -1


def _entries_of(n: int, matrix: Any, where: str) -> tuple[Any, Any, Vector]:
    """Return (i, j, values) of a matrix; InputError unless it is of real, finite numbers and of shape (n, n)."""
    matrix = in_memory(matrix, where)
    refuse_text(matrix, where)
    if not sp.issparse(matrix):
        if _ndim(matrix) != 2:
            got = type(matrix).__name__ if _ndim(matrix) <= 0 else f"shape {np.shape(matrix)}"
            raise InputError("not a matrix", where=where, got=got, wanted=f"({n}, {n}), sparse or dense")
        matrix = np.asarray(matrix)
    if matrix.shape != (n, n):
        raise InputError(
            "a matrix of another shape", where=where, got=matrix.shape, wanted=f"({n}, {n}), as X has {n} rows"
        )
    if matrix.dtype.kind not in "biuf":
        raise InputError("not real numbers", where=where, got=f"dtype {matrix.dtype}", wanted="numbers")
    found = sp.coo_array(matrix)
    value = np.asarray(found.data, np.float64)
    _refuse_not_finite(value, where)
    return found.row, found.col, value


def _refuse_not_finite(value: Vector, where: str) -> None:
    wrong = np.flatnonzero(~np.isfinite(value))
    if len(wrong):
        raise InputError("not finite", where=where, got=f"{value[wrong[0]]}", wanted="finite numbers")


def _refuse_zeros(owner: Rows, count: int, where: str) -> None:
    """Raise InputError where one of `count` constraints has none of the entries, which belong to the constraints `owner`."""
    present = np.unique(owner)
    if len(present) < count:
        # The lowest number that is not among those present, which ascend; -1 stands for none behind the last.
        first = int(np.argmin(np.append(present, -1) == np.arange(len(present) + 1)))
        wanted = f"an entry other than 0 in each constraint, 0 to {count - 1}"
        raise InputError("a matrix of zeros", where=f"{where}[{first}]", got="no entry other than 0", wanted=wanted)


def _whole(column: Vector, where: str, name: str, most: int | None) -> Rows:
    """Return a column of the table as integers; InputError for a number that is not an integer from 0 to `most` - 1."""
    limit = 2.0**53 if most is None else float(most)  # as floats hold whole numbers
    wrong = np.flatnonzero(~((column >= 0) & (column < limit) & (np.floor(column) == column)))
    if len(wrong):
        wanted = "whole numbers from 0" if most is None else f"row numbers from 0 to {most - 1}"
        what = "not a number of a constraint" if most is None else "not a row number"
        raise InputError(what, where=f"{where}, row {wrong[0]}, {name}", got=f"{column[wrong[0]]:g}", wanted=wanted)
    return column.astype(np.int64)
