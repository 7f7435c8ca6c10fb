"""Comma-separated files of labels."""

from __future__ import annotations

import csv
import re
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dkl._object_paths import AnyPath
from dkl._table_lines import WITHOUT_INDEX, is_unnamed
from dkl.errors import InputError

_INTEGER = re.compile(r"[+-]?(0|[1-9][0-9]*)")  # 007 is a name, not a number


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
