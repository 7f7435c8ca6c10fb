"""Rejection of integers that no double is: NumPy, pandas and text readers round them without a word."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, issparse

from dkl.errors import InputError

LARGEST = 2**53
"""Largest size up to which every integer is a double."""


def refuse_rounded(values: Any, where: str = "X", first: int = 0) -> None:
    """Raise InputError for the first integer of rows, a list or a data frame that would be rounded to a double.

    first: number of the first row.
    """
    if isinstance(values, np.ndarray) or issparse(values):
        if values.dtype.kind == "O":
            _refuse_object(values.flat, where)
        elif (found := _first_of_rows(values)) is not None:
            place = ", ".join(str(index + first * (k == 0)) for k, index in enumerate(found[0]))
            raise rounded(f"{where}[{place}]", found[1])
    elif isinstance(values, (list, tuple)):
        for row in values:
            _refuse_object(row if isinstance(row, (list, tuple)) else [row], where)
    else:
        for name, column in _columns_of_integers(values):
            place = f"{where}, column {name!r}"
            if column.dtype.kind == "O":
                _refuse_object(column, place)
            elif (found := _first_of_rows(column)) is not None:
                raise rounded(place, found[1])


def is_rounded(value: object) -> bool:
    """Return whether a number is an integer that no double is."""
    # Beyond 1024 bits there is no double at all, which others refuse.
    return isinstance(value, int) and LARGEST < abs(value) < 1 << 1024 and _significant_bits(value) > 53


REMEDY = "drop the column if it holds ids; else subtract an offset, or pass floats, rounded as you want them"


def rounded(where: str, value: int, remedy: str = REMEDY) -> InputError:
    """Return the error for an integer that would be rounded."""
    wanted = "integers of at most 2**53, beyond which doubles round them"
    return InputError("an integer would be rounded", where=where, got=value, wanted=wanted, remedy=remedy)


def _significant_bits(value: int) -> int:
    """Return the bits of |value| up to its last 1; an integer with at most 53 of them is a double."""
    size = abs(value)
    return size.bit_length() - ((size & -size).bit_length() - 1)


def _refuse_object(values: Any, where: str) -> None:
    for value in values:
        number = int(value) if isinstance(value, np.integer) else value
        if is_rounded(number):
            raise rounded(where, number)


def _first_of_rows(values: Any) -> tuple[tuple[int, ...], int] | None:
    """Return (position, value) of the first of an array's or sparse matrix' integers of 64 bits that no double is."""
    if values.dtype.kind not in "iu" or values.dtype.itemsize < 8:
        return None
    entries: NDArray = values.data if issparse(values) else values
    # Two passes settle nearly all arrays: the exact look is at large entries alone.
    if entries.size == 0 or (entries.max() <= LARGEST and entries.min() >= -LARGEST):
        return None
    if issparse(values):
        whole = coo_array(values)
        entries, places = whole.data, np.stack(whole.coords, axis=1)
    else:
        places = None
    large = np.argwhere((entries > LARGEST) | (entries < -LARGEST))
    for place in large:
        value = int(entries[tuple(place)])
        if is_rounded(value):
            position = place if places is None else places[place[0]]
            return tuple(int(index) for index in position), value
    return None


def _columns_of_integers(values: Any) -> Iterator[tuple[Any, NDArray]]:
    """Yield (name, its values that are there) of columns of integers or objects of a pandas, polars or pyarrow table."""
    if hasattr(values, "iloc") and hasattr(values, "columns"):
        for name, column in values.items():
            if getattr(column.dtype, "kind", "O") in "iuO":
                yield name, column.dropna().to_numpy()
    elif hasattr(values, "get_columns"):
        for column in values.get_columns():
            if str(column.dtype).lower() in ("int64", "uint64", "object", "int128"):
                yield column.name, column.drop_nulls().to_numpy()
    elif hasattr(values, "schema") and hasattr(values.schema, "types"):
        for name, kind in zip(values.schema.names, values.schema.types, strict=True):
            if str(kind) in ("int64", "uint64"):
                yield name, values.column(name).drop_null().to_numpy()
