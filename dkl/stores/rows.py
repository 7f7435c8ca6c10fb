"""Rows that stand on disk, which any process can open for itself: .npy files, memory maps, zarr arrays.

A `StoredRows` is small to send: it carries where the rows stand, and opens them when first asked in a process.
"""

from __future__ import annotations

import mmap
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray

from dkl.errors import InputError


@dataclass
class StoredRows:
    """A 2-d array on disk.

    mapped: the file's own bytes, of which the system keeps in memory what it can. rows_per_chunk: what a read costs at
    least, 1 of a map. location: a path, the five facts of a memory map, or a zarr array that opens itself.
    """

    shape: tuple[int, int]
    dtype: np.dtype
    mapped: bool
    rows_per_chunk: int
    location: Any
    _array: Any = field(default=None, repr=False, compare=False)
    _window: tuple[int, NDArray] | None = field(default=None, repr=False, compare=False)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_array": None, "_window": None}

    def read(self, start: int, stop: int) -> NDArray:
        """Rows start to stop. Chunks are read whole; when rows are read in order, each is read once.

        The last window that was read is kept for that: the rows asked for, out to the borders of their chunks.
        """
        if self._array is None:
            self._array = _open(self.location)
        if self.mapped:
            return self._array[start:stop]
        chunk, n = self.rows_per_chunk, self.shape[0]
        first, last = start // chunk * chunk, min(n, -(-stop // chunk) * chunk)
        window = self._window
        if window is None or not (window[0] <= start and stop <= window[0] + len(window[1])):
            end = -1 if window is None else window[0] + len(window[1])
            if window is not None and window[0] <= start < end:
                rows = np.concatenate([window[1][start - window[0] :], self._array[end:last]])
                window = start, rows
            else:
                window = first, np.asarray(self._array[first:last])
            self._window = window
        return window[1][start - window[0] : stop - window[0]]


def stored_rows(X: Any) -> StoredRows | None:
    """`X` as rows on disk, if that is what it is: a path to a .npy file or a zarr array, a memory map, a zarr array.

    None for anything else, and for what other processes cannot open: arrays in a MemoryStore, private memory maps.
    Raises InputError for a path that does not lead to a 2-d array of numbers.
    """
    if isinstance(X, (str, os.PathLike)):
        return _from_path(Path(X))
    if isinstance(X, np.memmap):
        return _from_memmap(X)
    if isinstance(X, zarr.Array) and not isinstance(X.store, zarr.storage.MemoryStore):
        return _from_zarr(X, X)
    return None


def _from_path(path: Path) -> StoredRows:
    path = path.absolute()
    array = _open(path)
    if isinstance(array, np.memmap):
        rows = _from_memmap(array)
        assert rows is not None
        return rows
    return _from_zarr(array, path)


def _from_zarr(array: Any, location: Any) -> StoredRows:
    # The unit of reading is a chunk, also where several of them lie in one shard.
    rows_per_chunk = array.chunks[0] if array.ndim else 1
    return StoredRows(tuple(array.shape), np.dtype(array.dtype), False, max(1, rows_per_chunk), location)


def _from_memmap(array: np.memmap) -> StoredRows | None:
    buffer = array._mmap  # type: ignore[attr-defined]  # a view keeps its base's map, but not its own offset
    if array.filename is None or array.mode == "c" or buffer is None or array.ndim != 2:
        return None
    if array.flags.c_contiguous:
        order = "C"
    elif array.flags.f_contiguous:
        order = "F"
    else:
        return None
    # The map starts at the last page border before the offset that was asked for.
    start = array.offset - array.offset % mmap.ALLOCATIONGRANULARITY
    offset = start + _address(array) - _address(np.frombuffer(buffer, np.uint8))
    location = (Path(array.filename).absolute(), array.dtype, offset, array.shape, order)
    return StoredRows((array.shape[0], array.shape[1]), array.dtype, True, 1, location, array)


def _address(array: NDArray) -> int:
    return array.__array_interface__["data"][0]


def _open(location: Any) -> Any:
    """The array that stands at `location`: a path, the five facts of a memory map, or a zarr array that opens itself."""
    if isinstance(location, zarr.Array):
        return location
    path = location if isinstance(location, Path) else location[0]
    try:
        if isinstance(location, tuple):
            _, dtype, offset, shape, order = location
            return np.memmap(path, dtype, "r", offset, shape, order)
        if path.suffix == ".npy":
            return np.load(path, mmap_mode="r", allow_pickle=False)
        return zarr.open_array(str(path), mode="r")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            "cannot open the rows",
            where=str(path),
            got=f"{type(error).__name__}: {error}",
            wanted="a .npy file or a zarr array",
            remedy="read other files with `dkl.datasets.read_array`; workers must see a path under the same name",
        ) from error
