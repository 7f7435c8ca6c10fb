"""Constraint matrices in files: rows of constraint, i, j, value, with row numbers or ids, as text or arrays."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dkl.errors import InputError
from dkl.io import table_lines as lines
from dkl.io.array_files import read_array, read_npz
from dkl.io.paths import AnyPath, as_source
from dkl.io.reading import TableOptions, reading
from dkl.io.table_lines import TABLES, Cells, is_number, is_text, side_delimiter, table_suffix
from dkl.io.tables import read_table
from dkl.side_information.matrices import COLUMNS
from dkl.side_information.row_ids import numbered, rows_of_ids, unknown_id

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

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
