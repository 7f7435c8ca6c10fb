"""Class labels in delimited text: a file of one column, or one column of a table."""

from __future__ import annotations

import re
from contextlib import suppress
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from dkl.errors import InputError
from dkl.io.paths import AnyPath
from dkl.io.table_lines import (
    WITHOUT_INDEX,
    found_delimiter,
    is_missing,
    is_number,
    is_unnamed,
    named_delimiter,
    open_text,
    require_text_room,
    rows_of,
    sample,
)
from dkl.io.table_options import TableOptions
from dkl.io.tables import TableLayout, read_texts

_INTEGER = re.compile(r"([+-]?(?:0|[1-9][0-9]*))(?:\.0*)?")  # 007 is a name, not a number


def read_label_text(path: AnyPath, n: int, options: TableOptions) -> NDArray:
    """Return the n labels in delimited text, by the rule of `dkl.datasets.read_labels`: integers if all are, else text; "" is missing."""
    require_text_room(path, a_column=options.target_column is not None)
    if options.target_column is not None:
        return _typed(read_texts(path, options).tolist())
    delimiter = named_delimiter(path, options.delimiter) or found_delimiter(path, sample(path))[0]
    return _typed(_labels(_only_column(path, delimiter), n, options.header, path))


def first_is_name(path: AnyPath, n: int, options: TableOptions) -> bool:
    """Return whether a file of n labels or targets, which was read, has a line of names above them: it has one line more."""
    filled = last = width = 0
    delimiter = named_delimiter(path, options.delimiter) or found_delimiter(path, sample(path))[0]
    with open_text(path) as text:
        for place, (_, cells) in enumerate(rows_of(text, delimiter), 1):
            if cells:
                filled, last, width = filled + 1, place, len(cells)
    return (last if width == 1 else filled) > n  # in one column an empty line is a missing label


def label_line(path: AnyPath, n: int, row: int, options: TableOptions) -> int:
    """Return the number of the line, from 1, that holds label `row`, from 0, of a file of n labels that was read."""
    if options.target_column is not None:
        lines = [number for number, _ in islice(TableLayout.of(path, options).rows(), row + 1)]
        return lines[row]
    delimiter = named_delimiter(path, options.delimiter) or found_delimiter(path, sample(path))[0]
    header = first_is_name(path, n, options) if options.header is None else options.header
    with open_text(path) as text:
        lines = [number for number, _ in islice(rows_of(text, delimiter), row + 1 + header)]
    return lines[row + header]


def _only_column(path: AnyPath, delimiter: str) -> list[str]:
    """Return the cells of a file of one column, empty ones too, but not at the end. InputError for a line of several cells."""
    found: list[str] = []
    with open_text(path) as text:
        for number, cells in rows_of(text, delimiter):
            if len(cells) > 1:
                index = WITHOUT_INDEX if not found and len(cells) == 2 and is_unnamed(cells[0]) else None
                remedy = index or "name the column of labels by --target-column (TableOptions.target_column in Python)"
                where, got = f"{path}, line {number}", f"{len(cells)} cells"
                raise InputError("malformed line", where=where, got=got, wanted="1", remedy=remedy)
            found.append(cells[0].strip() if cells else "")
    while found and not found[-1]:
        found.pop()
    return found


def _labels(cells: list[str], n: int, header: bool | None, path: AnyPath) -> list[str]:
    """Return the cells that are labels of n rows; InputError where they are not n, or the first may be a name or a label."""
    if header is None:
        header = _is_name(cells, n, path)
    found = cells[1:] if header else cells
    if len(found) != n:
        below = " below its name" if header else ""
        got, wanted = f"{len(found):,} labels{below}", f"{n:,}"
        raise InputError("not labels of these rows", where=str(path), got=got, wanted=wanted)
    return found


def _is_name(cells: list[str], n: int, path: AnyPath) -> bool:
    """Return whether the first cell is the name of the labels below it; InputError where both is possible."""
    if not cells or len(cells) not in (n, n + 1):
        return False
    first, below = cells[0], [cell for cell in cells[1:] if cell]
    above_others = bool(below) and is_number(first) != is_number(below[0]) and len(set(map(is_number, below))) == 1
    above_numbers = above_others and not is_number(first)
    remedy = "leave out what is no label, or say whether the line is a name: --header or --no-header"
    where, got = f"{path}, line 1", f"{first!r} above {len(cells) - 1:,} lines, of {n:,} rows"
    if len(cells) == n:
        if above_numbers:
            raise InputError("text above numbers: a name, or a label?", where=where, got=got, remedy=remedy)
        return False
    # A single empty line may separate n labels, and would shift those below it, were it taken for one that is missing.
    is_certain = above_others or (not is_number(first) and len(cells) - 1 - len(below) != 1)
    if not first or first in below or not is_certain:
        raise InputError("one label too many, or a name above them?", where=where, got=got, remedy=remedy)
    return True


def _typed(cells: list[str]) -> NDArray:
    """Return labels as integers if all are written as such, 1.0 as 1, else as text; where some are missing, as text of integers."""
    found = [None if is_missing(cell) else _INTEGER.fullmatch(cell) for cell in cells]
    if not all(one or is_missing(cell) for one, cell in zip(found, cells, strict=True)):
        return np.array(cells, np.str_)
    if all(found):
        with suppress(OverflowError):
            return np.array([int(one[1]) for one in found if one], np.int64)
    return np.array([one[1] if one else cell for one, cell in zip(found, cells, strict=True)], np.str_)
