"""Constraints tr(K A_t) by their symmetric matrices A_t (n, n): a list of matrices, or one table of their entries, checked; and in files.

A file has rows of constraint, i, j, value, with row numbers or ids, as text or arrays.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dkl.errors import InputError
from dkl.io import table_lines as lines
from dkl.io.array_files import read_array, read_npz
from dkl.io.paths import TABLES, AnyPath, as_source, table_suffix
from dkl.io.plain_arrays import in_memory, refuse_text
from dkl.io.reading import TableOptions, reading
from dkl.io.table_lines import Cells, is_number, is_text, side_delimiter
from dkl.io.tables import read_table
from dkl.side_information.pair_checks import inside_cross_validation, numbered, rows_of_ids, unknown_id

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


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
        # Both halves of an entry end up next to each other, whatever order they were given in.
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


Table = NDArray[np.float64]
WIDTH = len(COLUMNS)


def constraints_in_file(
    path: str | AnyPath,
    *,
    header: bool | None = None,
    delimiter: str | None = None,
    decimal: str | None = None,
    ids: ArrayLike | None = None,
) -> tuple[Table, int]:
    """Return (table (m, 4) of constraint, i, j, value, number of the line of names, 0 for none or ours).

    .npy: such a table; .npz: key constraints, its only array, or arrays constraint, i, j and value (m,); .csv, .tsv, also with .gz: such
    lines, below a line of names or not. ids (n,): i and j are such ids, compared as text. header, delimiter, decimal: of text, where
    they were said. Raises InputError for a missing, damaged or foreign file; what entries mean for n rows is checked later.
    """
    source = as_source(path)
    suffix = table_suffix(source) or source.suffix.lower()
    if suffix not in (".npy", ".npz", *TABLES):
        wanted = ".csv, .tsv, .npy or .npz"
        raise InputError("not a file of constraints", where=str(path), got=repr(suffix), wanted=wanted)
    rows = None if ids is None else rows_of_ids(ids, as_text=True)
    if suffix in TABLES:
        return _of_text(source, rows, TableOptions(header, delimiter, decimal))
    columns = _of_archive(source) if suffix == ".npz" else None
    if columns is None:
        columns = _columns(read_array(source), str(path))
    constraint, i, j, value = columns
    if rows is not None:
        ends = np.stack([_whole_ids(i), _whole_ids(j)], axis=1)
        i, j = numbered(ends, rows, 2, f"{path}, i and j", as_text=True).T
    try:
        return np.stack([np.asarray(column, np.float64) for column in (constraint, i, j, value)], axis=1), 0
    except (TypeError, ValueError) as error:
        raise InputError("not numbers", where=str(path), got=str(error)[:80], wanted=", ".join(COLUMNS)) from error


def names_columns(cells: Sequence[str]) -> bool:
    """Return whether the cells are the names of the columns, in any order."""
    return sorted(cell.strip().lower() for cell in cells) == sorted(COLUMNS)


def _of_archive(path: AnyPath) -> Sequence[NDArray] | None:
    """Return the columns of an archive that has them as arrays, or as `constraints`; None where its only array is meant."""
    names = read_npz(path).keys()
    if names >= set(COLUMNS):
        found = read_npz(path, *COLUMNS)
        shapes = {found[name].shape for name in COLUMNS}
        if len(shapes) > 1 or len(shapes.pop()) != 1:
            got = ", ".join(f"{name} {found[name].shape}" for name in COLUMNS)
            raise InputError("arrays of different lengths", where=str(path), got=got, wanted="(m,) each")
        return [found[name] for name in COLUMNS]
    return _columns(read_array(path, "constraints"), str(path)) if "constraints" in names else None


def _columns(found: Any, where: str) -> Sequence[NDArray]:
    if not isinstance(found, np.ndarray) or found.ndim != 2 or found.shape[1] != WIDTH:
        got = f"shape {getattr(found, 'shape', None)}"
        raise InputError("not constraints", where=where, got=got, wanted=f"(m, {WIDTH}): {', '.join(COLUMNS)}")
    return list(found.T)


def _whole_ids(column: NDArray) -> NDArray:
    """Return whole numbers among floats as integers, as which ids are written."""
    # From 2^53 on a double may not be the whole number that was written.
    is_whole = column.dtype.kind == "f" and bool(
        (np.floor(column) == column).all() and (np.abs(column) < 2.0**53).all()
    )
    return column.astype(np.int64) if is_whole else column


def _of_text(path: AnyPath, rows: Mapping[Hashable, int] | None, options: TableOptions) -> tuple[Table, int]:
    with reading(path):
        some = lines.sample(path)
        delimiter = side_delimiter(path, some, options.delimiter)
        number, first = next(((n, cells) for n, cells in lines.rows_of(some, delimiter) if any(cells)), (0, []))
        named = names_columns(first)
        if named and tuple(cell.strip().lower() for cell in first) != COLUMNS:
            raise InputError(
                "columns in another order", where=f"{path}, line {number}", got=lines.shown_line(first, delimiter),
                wanted=", ".join(COLUMNS),
            )  # fmt: skip
        if rows is not None:
            return _of_ids(path, rows, delimiter, options, named)
        header = is_text(path, delimiter) if options.header is None else options.header
    table = read_table(path, TableOptions(header, delimiter, options.decimal))
    columns = _columns(table.values, str(path))
    return np.stack(columns, axis=1), 0 if named else table.header_line


def _of_ids(
    path: AnyPath, rows: Mapping[Hashable, int], delimiter: str, options: TableOptions, named: bool
) -> tuple[Table, int]:
    """Return (table, the line of names) of lines whose i and j are ids.

    The first line holds names where that was said, or where neither its first nor its last cell is a number.
    """
    comma = lines.has_decimal_comma(path, lines.sample(path), delimiter, options.decimal)
    found, header_line, is_first = [], 0, True
    lines.require_text_room(path)
    with lines.open_text(path) as text:
        for number, line in lines.rows_of(text, delimiter):
            cells = [cell.strip() for cell in line]
            if not any(cells):
                continue
            if is_first and _is_header(cells, options.header, named, comma):
                header_line = 0 if named else number
            else:
                found.append(_entry(cells, rows, f"{path}, line {number}", comma))
            is_first = False
    return np.array(found, np.float64).reshape(-1, WIDTH), header_line


def _is_header(cells: Cells, said: bool | None, named: bool, comma: bool) -> bool:
    if said is not None:
        return said
    # By the first and the last cell alone: those between them are ids, which may be words.
    return named or not (is_number(cells[0], comma=comma) or is_number(cells[-1], comma=comma))


def _entry(cells: Cells, rows: Mapping[Hashable, int], where: str, comma: bool) -> tuple[float, int, int, float]:
    """Return constraint, row of i, row of j and value of a line; InputError names an id that no row has."""
    if len(cells) != WIDTH or not all(is_number(cells[k], comma=comma) for k in (0, -1)):
        got = repr(",".join(cells)[:60])
        wanted = "constraint,i,j,value: a whole number, two ids and a number"
        raise InputError("malformed line", where=where, got=got, wanted=wanted)
    for cell in cells[1:3]:
        if cell not in rows:
            raise unknown_id(cell, where)
    constraint, value = (float(cells[k].replace(",", ".") if comma else cells[k]) for k in (0, -1))
    return constraint, rows[cells[1]], rows[cells[2]], value
