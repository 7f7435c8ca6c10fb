"""Kernel columns C (n x M) and rows of their Gram matrix in zarr, in whole chunks of rows with checksums."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray

from dkl.errors import StoreError
from dkl.stores.disk import disk_errors
from dkl.stores.run import create_rows

GRAM_CHUNK_BYTES = 4_000_000
"""Of rows of the Gram matrix that are read together; a solver asks for single rows."""


def create_columns(path: str | os.PathLike[str], n: int, n_columns: int, block_rows: int, dtype: Any) -> None:
    """An empty array for the columns, a block of rows a chunk."""
    with disk_errors("could not make the columns' store", Path(path)):
        create_rows(Path(path), (n, n_columns), (min(n, block_rows), n_columns), np.dtype(dtype), ("sample", "column"))


def create_gram(path: str | os.PathLike[str], n_columns: int) -> None:
    """An empty array for B."""
    rows = max(1, min(n_columns, GRAM_CHUNK_BYTES // (8 * n_columns)))
    with disk_errors("could not make the Gram matrix' store", Path(path)):
        create_rows(Path(path), (n_columns, n_columns), (rows, n_columns), np.dtype(float), ("column", "column_2"))


def is_created(path: str | os.PathLike[str]) -> bool:
    """Whether there is an array; a folder alone is what a crash left."""
    return (Path(path) / "zarr.json").is_file()


def stored_columns(path: str | os.PathLike[str]) -> Iterator[tuple[int, NDArray]]:
    """(first row, rows) of kept columns, chunk by chunk; StoreError for one that is missing or damaged."""
    try:
        array: Any = zarr.open_array(str(path), mode="r")
        n, step = int(array.shape[0]), int(array.chunks[0])
    except Exception as error:
        got = f"{type(error).__name__}: {error}"
        raise StoreError("the kept columns cannot be opened", where=str(path), got=got) from error
    for lo in range(0, n, step):
        where = f"{path}, rows from {lo}"
        try:
            rows = np.asarray(array[lo : lo + step])
        except Exception as error:
            got = f"{type(error).__name__}: {error}"
            raise StoreError("a chunk of the kept columns is damaged", where=where, got=got) from error
        if np.isnan(rows).any():
            raise StoreError("a chunk of the kept columns is missing", where=where, mend="begin a new run")
        yield lo, rows


def write_rows(path: str | os.PathLike[str], start: int, rows: NDArray) -> None:
    """Rows from `start`, whole chunks."""
    with disk_errors("could not be written", Path(path)):
        zarr.open_array(str(path), mode="r+")[start : start + len(rows)] = rows


class GramRows:
    """Rows of a stored B, as slices; StoreError for what cannot be read or was never written."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = path
        try:
            self._array: Any = zarr.open_array(str(path), mode="r")
        except Exception as error:
            got = f"{type(error).__name__}: {error}"
            raise StoreError("the Gram matrix cannot be opened", where=str(path), got=got) from error
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
