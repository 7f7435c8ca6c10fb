"""Comma-separated files of numbers and of labels, and what pandas writes beside them unasked: an index, numbered columns."""

from __future__ import annotations

import csv
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dkl._object_paths import AnyPath
from dkl.errors import InputError

_INTEGER = re.compile(r"[+-]?(0|[1-9][0-9]*)")  # 007 is a name, not a number
_COUNTING = frozenset({"id", "index"})
"""Names of a first column that is an index where its values count the rows."""
WITHOUT_INDEX = "write it without: to_csv(path, index=False)"


def labels_from_csv(path: AnyPath, n: int) -> NDArray[Any]:
    """The labels of a one-column file; one line more than n is a header."""
    with path.open("r", encoding="utf-8-sig", newline="") as text:
        rows = [row for row in csv.reader(text) if row]
    for number, row in enumerate(rows, 1):
        if len(row) != 1:
            remedy = WITHOUT_INDEX if number == 1 and len(row) == 2 and is_unnamed(row[0]) else None
            got = f"{len(row)} cells"
            raise InputError("malformed line", where=f"{path}, label {number}", got=got, wanted="1", remedy=remedy)
    cells = [row[0].strip() for row in rows]
    # A header cannot be told from a label of text, but the number of rows is known.
    cells = cells[1:] if len(cells) == n + 1 else cells
    if all(map(_INTEGER.fullmatch, cells)):
        with suppress(OverflowError):
            return np.array([int(cell) for cell in cells], np.int64)
    return np.array(cells, np.str_)


def numbers_from_csv(path: AnyPath) -> NDArray[np.float64]:
    """(n, d) float64 of a comma-separated file; the line that is no numbers is named by the error."""
    with path.open("r", encoding="utf-8-sig") as text:
        first = text.readline().split(",")
        second = next((line for line in text if line.strip()), "")
    _refuse_unnamed(first, path)
    header = not any(map(_is_number, first))  # a damaged first row is not a header
    if header and not second:
        raise InputError("no rows in the file", where=str(path))
    _refuse_numbered(first, second, path)
    try:
        with path.open("r", encoding="utf-8-sig") as text:  # of a name NumPy reads larger pieces than of an open file
            source = path if isinstance(path, Path) else text
            X = np.loadtxt(source, delimiter=",", skiprows=int(header), ndmin=2, comments=None, encoding="utf-8-sig")
        if X.shape[1] != len(first):
            raise ValueError("header and rows differ in length")
    except ValueError as error:
        raise _malformed_line(path, header, len(first)) or error from error
    if header and first[0].strip().strip('"').lower() in _COUNTING and _counts_rows(X[:, 0]):
        got = f"column {first[0].strip()!r}: {X[0, 0]:g}, {X[0, 0] + 1:g}, ..."
        raise InputError("its first column counts the rows", where=str(path), got=got, remedy=WITHOUT_INDEX)
    return X


def is_unnamed(cell: str) -> bool:
    """Whether a cell of the first line names no column: what pandas writes above an index."""
    name = cell.strip().strip('"').lower()
    return not name or name.startswith("unnamed:")


def _refuse_unnamed(first: list[str], path: AnyPath) -> None:
    """InputError for a first column without a name beside others: an index would be learned from as a feature."""
    names = [cell.strip() for cell in first[1:]]
    numbered = names == [str(k) for k in range(len(names))]
    # Anything else with a number in it is a row that lacks a value.
    if names and is_unnamed(first[0]) and any(names) and (numbered or not any(map(_is_number, names))):
        got = repr(",".join(first).strip()[:60])
        raise InputError("its first column is an index", where=f"{path}, line 1", got=got, remedy=WITHOUT_INDEX)


def _refuse_numbered(first: list[str], second: str, path: AnyPath) -> None:
    """InputError for a first line 0,1,2,...: pandas' names of columns that have none. As a row it would shift all others.

    A single 0 is as good as any number, unless a fraction follows: pandas writes a float 0 as 0.0.
    """
    numbered = [cell.strip() for cell in first] == [str(k) for k in range(len(first))]
    if numbered and (len(first) > 1 or not _INTEGER.fullmatch(second.strip() or "0")):
        remedy = "write it with to_csv(path, index=False, header=False); if it is a row, put a line of names above it"
        got = repr(",".join(first).strip()[:60])
        raise InputError("its first line numbers the columns", where=f"{path}, line 1", got=got, remedy=remedy)


def _counts_rows(column: NDArray[np.float64]) -> bool:
    """Whether the values are 0, 1, 2, ... or 1, 2, 3, ..."""
    return bool(column[0] in (0, 1) and len(column) > 1 and (np.diff(column) == 1).all())


def _malformed_line(path: AnyPath, header: bool, width: int) -> InputError | None:
    """The error that names the first line of a CSV file that is not `width` numbers."""
    with path.open("r", encoding="utf-8-sig") as text:
        for number, line in enumerate(text, 1):
            cells = line.split(",")
            good = len(cells) == width and all(map(_is_number, cells))
            if line.strip() and not good and not (header and number == 1):
                got = f"{len(cells)} cells, {line.strip()[:60]!r}"
                where = f"{path}, line {number}"
                return InputError("malformed line", where=where, got=got, wanted=f"{width} numbers")
    return None


def _is_number(cell: str) -> bool:
    """Whether Python reads the cell as a float."""
    try:
        float(cell)
    except ValueError:
        return False
    return True
