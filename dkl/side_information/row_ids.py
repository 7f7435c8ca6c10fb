"""Rows by their ids: labels of a data frame's index, or the cells of a column of ids, in place of row numbers."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np

from dkl.errors import InputError
from dkl.side_information.pair_checks import Integers


def rows_of_ids(index: Any, *, as_text: bool = False) -> dict[Hashable, int]:
    """Return the row number of each id. index: a data frame, its index, or any sequence of ids; as_text: compare ids as text.

    Raises InputError for ids that are repeated or cannot be compared.
    """
    labels = getattr(index, "index", index) if hasattr(index, "iloc") else index
    wanted = "a distinct id a row: a data frame, its index, or a sequence of ids"
    try:
        found = [str(label) if as_text else label for label in labels]
        rows = {label: row for row, label in enumerate(found)}
    except TypeError as error:
        raise InputError("not ids of rows", where="index", got=type(index).__name__, wanted=wanted) from error
    if len(rows) < len(found):
        row, label = next((row, label) for row, label in enumerate(found) if rows[label] != row)
        got = f"{label!r} in rows {row} and {rows[label]}"
        raise InputError("two rows of one id", where="index", got=got, wanted=wanted)
    return rows


def numbered(tuples: object, rows: Mapping[Hashable, int], size: int, where: str, *, as_text: bool = False) -> Integers:
    """Return tuples of ids, a list or an array (m, size) of them, as row numbers (m, size); InputError names the first unknown id."""
    given = [] if tuples is None else _rows_of(tuples)
    found = np.empty((len(given), size), dtype=np.int64)
    for position, one in enumerate(given):
        try:
            ids = [str(each) if as_text else each for each in one]
            if isinstance(one, (str, bytes)) or len(ids) != size:
                raise TypeError("of another length")
            found[position] = [rows[each] for each in ids]
        except KeyError:
            unknown = next(each for each in ids if each not in rows)
            raise unknown_id(unknown, f"{where}[{position}]") from None
        except TypeError as error:
            raise InputError("not ids", where=f"{where}[{position}]", got=repr(one), wanted=f"{size} ids") from error
    return found


def _rows_of(tuples: Any) -> list[Any]:
    """Return the rows of a data frame, a table, an array or a sequence of tuples of ids."""
    if hasattr(tuples, "itertuples"):  # of pandas: each column keeps its type, as timestamps
        return list(tuples.itertuples(index=False, name=None))
    if hasattr(tuples, "__array__"):  # other frames and tables would be listed by columns
        tuples = np.asarray(tuples)
    return tuples.tolist() if isinstance(tuples, np.ndarray) else list(tuples)


def unknown_id(label: object, where: str) -> InputError:
    """Return the error of an id that no row has."""
    remedy = "rows that have ids are named by these, not by number" if str(label).isdecimal() else None
    wanted = "an id of a row of the data"
    return InputError("no row has this id", where=where, got=repr(label), wanted=wanted, remedy=remedy)
