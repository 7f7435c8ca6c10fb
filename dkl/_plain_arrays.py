"""What NumPy and scikit-learn make numbers of without a word, and should not: values below a mask, and numerals."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from dkl.errors import InputError, InputTypeError


def refuse_masked(values: Any, where: str) -> None:
    """InputError for an array of which entries are masked: NumPy hands on the values below the mask without a word."""
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        place = ", ".join(map(str, np.argwhere(np.ma.getmaskarray(values))[0]))
        count = int(np.ma.count_masked(values))
        remedy = "fill them, or drop their rows"
        raise InputError("masked values", where=f"{where}[{place}]", got=f"{count} of them", remedy=remedy)


def refuse_text(values: Any, where: str) -> None:
    """InputError for text in an array, list or table, numerals too: which of them are numbers is not for us to guess."""
    for column in _columns_of_objects(values):
        found = next((value for value in column if isinstance(value, (str, bytes))), None)
        if found is not None:
            wanted, remedy = "numbers", f"convert it: numpy.asarray({where}, dtype=float)"
            raise InputTypeError("text, not numbers", where=where, got=repr(found)[:60], wanted=wanted, remedy=remedy)


def _columns_of_objects(values: Any) -> Iterator[Any]:
    """What may hold text, to be looked through; nothing of arrays of numbers."""
    if hasattr(values, "iloc") and hasattr(values, "dtypes"):
        tables = values.items() if hasattr(values, "columns") else [("", values)]
        yield from (column for _, column in tables if getattr(column.dtype, "kind", "O") in "OUS")
    elif isinstance(values, np.ndarray):
        if values.dtype.kind in "OUS":
            yield values.flat
    elif isinstance(values, (list, tuple)):
        yield from (row if isinstance(row, (list, tuple)) else [row] for row in values)
