"""Rows of a history kept by columns: 8 bytes a number instead of a dict a row."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable, Iterator
from typing import Any

Row = dict[str, Any]
Signature = tuple[tuple[str, str], ...]
"""(name, type code) of each value of a row, in order."""
Columns = dict[str, "array[Any] | list[Any]"]


class HistoryRows:
    """Non-empty rows in order, read as new dicts with the names, values and types that were appended.

    A dict of fifteen numbers takes some 900 bytes, as each float is an object; here it takes 120. Rows of the same names and types
    share their columns, wherever they are.
    """

    def __init__(self, rows: Iterable[Row] = ()) -> None:
        self._tables: dict[Signature, tuple[int, Columns]] = {}
        self._table_of_row = array("I")
        for row in rows:
            self.append(row)

    def append(self, row: Row) -> None:
        """Keep what the row holds now."""
        # By way of a list: a tuple that grows is freed in another size than it is taken in, and Python keeps 2,000 of these.
        signature = tuple([(name, _code(value)) for name, value in row.items()])
        if signature not in self._tables:
            # The strings of a row that came from a worker are its own: of equal ones the first is kept.
            signature = tuple([(sys.intern(name), code) for name, code in signature])
            self._tables[signature] = len(self._tables), {name: array(code) if code else [] for name, code in signature}
        number, columns = self._tables[signature]
        for column, value in zip(columns.values(), row.values(), strict=True):
            column.append(sys.intern(value) if type(value) is str else value)
        self._table_of_row.append(number)

    def __len__(self) -> int:
        return len(self._table_of_row)

    def __iter__(self) -> Iterator[Row]:
        tables = [_rows(columns) for _, columns in self._tables.values()]
        for number in self._table_of_row:
            yield next(tables[number])


def _rows(columns: Columns) -> Iterator[Row]:
    for values in zip(*columns.values(), strict=True):
        yield dict(zip(columns, values, strict=True))


def _code(value: object) -> str:
    """Return the type code of an array that preserves `value`: "d" or "q"; "" if it must stay an object."""
    if type(value) is float:
        return "d"
    return "q" if type(value) is int and -(1 << 63) <= value < 1 << 63 else ""
