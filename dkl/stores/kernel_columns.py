"""Kernel columns C (n x M) and rows of their Gram matrix in zarr, in whole chunks of rows with checksums."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dkl.errors import StoreError
from dkl.stores.arrays import create_array, open_array
from dkl.stores.disk import disk_errors
from dkl.stores.registry import FLOATS, ROWS, StoredArray

GRAM_CHUNK_BYTES = 4_000_000
"""Of rows of the Gram matrix that are read together; a solver asks for single rows."""

COLUMNS = StoredArray(
    "columns",
    ("sample", "column"),
    FLOATS,
    "Kernel columns C, c_m = k(., x_m) / sqrt(k(x_m, x_m)), if they are kept; a block of rows a chunk.",
    chunks=ROWS,
    optional=True,
)
GRAM = StoredArray(
    "gram",
    ("column", "column_2"),
    ("float64",),
    "B = C' C, where it is too large for memory.",
    chunks=ROWS,
    optional=True,
)


def create_columns(path: str | os.PathLike[str], n: int, n_columns: int, block_rows: int, dtype: Any) -> None:
    """An array without values for the columns (n, n_columns), a block of rows a chunk. Raises DiskError."""
    with disk_errors("could not make the columns' store", Path(path)):
        create_array(Path(path), COLUMNS, (n, n_columns), dtype, rows=block_rows)


def create_gram(path: str | os.PathLike[str], n_columns: int) -> None:
    """An array without values for B (n_columns, n_columns). Raises DiskError."""
    rows = max(1, min(n_columns, GRAM_CHUNK_BYTES // (8 * n_columns)))
    with disk_errors("could not make the Gram matrix' store", Path(path)):
        create_array(Path(path), GRAM, (n_columns, n_columns), float, rows=rows)


def is_created(path: str | os.PathLike[str]) -> bool:
    """Whether there is an array; a folder alone is what a crash left."""
    return (Path(path) / "zarr.json").is_file()


def stored_columns(path: str | os.PathLike[str]) -> Iterator[tuple[int, NDArray]]:
    """(first row, rows) of kept columns, chunk by chunk; StoreError for one that is missing or damaged."""
    array = open_array(Path(path), COLUMNS, failure="the kept columns cannot be opened")
    n, step = int(array.shape[0]), int(array.chunks[0])
    for lo in range(0, n, step):
        where = f"{path}, rows from {lo}"
        try:
            rows = np.asarray(array[lo : lo + step])
        except Exception as error:
            got = f"{type(error).__name__}: {error}"
            raise StoreError("a chunk of the kept columns is damaged", where=where, got=got) from error
        if np.isnan(rows).any():
            raise StoreError("a chunk of the kept columns is missing", where=where, remedy="begin a new run")
        yield lo, rows


def write_columns(path: str | os.PathLike[str], start: int, rows: NDArray) -> None:
    """Store rows (count, M) of C from `start` on, whole chunks. Raises DiskError, StoreError."""
    _write_rows(Path(path), COLUMNS, start, rows)


def write_gram(path: str | os.PathLike[str], start: int, rows: NDArray) -> None:
    """Store rows (count, M) of B from `start` on, whole chunks. Raises DiskError, StoreError."""
    _write_rows(Path(path), GRAM, start, rows)


def _write_rows(path: Path, declared: StoredArray, start: int, rows: NDArray) -> None:
    array = open_array(path, declared, mode="r+")
    with disk_errors("could not be written", path):
        array[start : start + len(rows)] = rows


class GramRows:
    """Rows of a stored B, as slices; StoreError for what cannot be read or was never written."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = path
        self._array = open_array(Path(path), GRAM, failure="the Gram matrix cannot be opened")
        self.rows_per_chunk = int(self._array.chunks[0])

    def __getitem__(self, rows: slice) -> NDArray[np.float64]:
        try:
            found = np.asarray(self._array[rows])
        except Exception as error:
            got = f"{type(error).__name__}: {error}"
            raise StoreError("a row of the Gram matrix cannot be read", where=str(self.path), got=got) from error
        if np.isnan(found).any():
            raise StoreError("rows of the Gram matrix are missing", where=str(self.path), got=f"rows {rows}")
        return found
