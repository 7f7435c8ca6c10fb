"""Rows on disk or in a store that any process can open: .npy files, memory maps, zarr arrays.

A `StoredRows` is small to send: it carries the rows' location, and opens them when first asked in a process.
"""

from __future__ import annotations

import copy
import math
import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dkl.errors import DklError, InputError
from dkl.io.array_files import npy_array
from dkl.io.npy_files import RawArray, raw_array, require_sizes
from dkl.io.packed_arrays import Packing, packing_of
from dkl.io.paths import AnyPath, ObjectPath, as_source, is_address
from dkl.io.plain_arrays import METADATA, is_zarr_array, unpacked
from dkl.io.reading import reading, require_file, require_room
from dkl.resources import format_bytes, machine_memory

if TYPE_CHECKING:
    import zarr

SPARSEST = 1000
NAMED, MOST_LISTED = 6, 1000
"""Most arrays of a group that an error names, and that are looked at for it."""
UNPACKED_BYTES = 1_000_000
"""Bytes of small chunks unpacked together, each by a thread of zarr's, which keeps its memory."""
SMALLER = "store it in smaller chunks"
CHUNKS_HELD = 2
"""Chunks in memory at least while one is read: what is unpacked, and the rows of it."""


@dataclass
class StoredRows:
    """A 2-d array on disk, or in a store.

    mapped: the file's own bytes, of which the system keeps in memory what it can. rows_per_chunk: what a read costs at
    least, 1 where rows are stored uncompressed. location: a path, an object's address, a raw array in a file, the
    five facts of a memory map, or a zarr array that opens itself.
    """

    shape: tuple[int, int]
    dtype: np.dtype
    mapped: bool
    rows_per_chunk: int
    location: Any
    _array: Any = field(default=None, repr=False, compare=False)
    _window: tuple[int, NDArray] | None = field(default=None, repr=False, compare=False)

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_array": None, "_window": None}

    def read(self, start: int, stop: int) -> NDArray:
        """Read rows start to stop. Chunks are read whole; when rows are read in order, each is read once.

        The last window that was read is kept for that: the rows asked for, out to the borders of their chunks. Raises
        InputError for a chunk that is damaged.
        """
        if self._array is None:
            self._array = _opened(self.location)
        if self.mapped:
            return self._array[start:stop]
        if isinstance(self.location, RawArray):
            return self.location.read(start, stop)
        with _reading(self.location, start, stop):
            return self._read_chunks(start, stop)

    def _read_chunks(self, start: int, stop: int) -> NDArray:
        """Read rows of a zarr array, by way of the last window."""
        window = self._window
        if window is None or not (window[0] <= start and stop <= window[0] + len(window[1])):
            chunk = self.rows_per_chunk
            first, kept = start // chunk * chunk, np.empty((0, self.shape[1]), self.dtype)
            if window is not None and window[0] <= start < window[0] + len(window[1]):
                # A copy: a view would keep the whole old window in memory.
                first, kept = start, window[1][start - window[0] :].copy()
            window = self._window = None  # the old one goes before the new one comes
            window = self._window = first, self._extended(first, kept, min(self.shape[0], -(-stop // chunk) * chunk))
        return window[1][start - window[0] : stop - window[0]]

    def _extended(self, first: int, kept: NDArray, last: int) -> NDArray:
        """Return rows first to last, of which `kept` are known; the others are read a few chunks at a time.

        zarr unpacks what is asked for together at once, in addition to its result.
        """
        rows = np.empty((last - first, self.shape[1]), self.dtype)
        rows[: len(kept)] = kept
        chunk_bytes = max(1, self.rows_per_chunk * self.shape[1] * self.dtype.itemsize)
        step = self.rows_per_chunk * max(1, UNPACKED_BYTES // chunk_bytes)
        for lo in range(first + len(kept), last, step):
            hi = min(lo + step, last)
            rows[lo - first : hi - first] = self._array[lo:hi]
        return rows


class PackedRows(StoredRows):
    """Packed rows of a zarr array, decoded in whichever process reads them."""

    def __init__(self, base: StoredRows, packing: Packing) -> None:
        super().__init__(base.shape, np.dtype(np.float64), False, base.rows_per_chunk, base.location)
        self.base, self.packing = base, packing

    def __getstate__(self) -> dict[str, object]:
        return {**super().__getstate__(), "base": copy.copy(self.base)}  # with no open file and no window

    def read(self, start: int, stop: int) -> NDArray:
        """Return rows start to stop, decoded."""
        return self.packing.decoded(self.base.read(start, stop))


def stored_rows(X: Any) -> StoredRows | None:
    """Return `X` as rows on disk that other processes can open; None for anything else.

    X: a path to a .npy file or a zarr array or the address of one in a store, a raw array, a memory map, a zarr array.
    None, too, for arrays in a MemoryStore and private memory maps.
    Raises InputError for a path that does not lead to a 2-d array of numbers.
    """
    if isinstance(X, StoredRows):
        return X
    if isinstance(X, (str, os.PathLike)):
        return _from_path(as_source(X, "X").absolute())
    if isinstance(X, RawArray):
        return StoredRows(X.header.shape, X.header.dtype, False, 1, X)  # type: ignore[arg-type]
    if isinstance(X, np.memmap):
        return _from_memmap(X)
    if is_zarr_array(X) and not _is_of_this_process(X.store):
        return _from_zarr(X, X)
    return None


def _is_of_this_process(store: object) -> bool:
    """Return whether the store is in this process' memory (fsspec's or zarr's): no other can open it."""
    from zarr.storage import MemoryStore

    files = getattr(store, "fs", None)
    # zarr wraps a file system without coroutines in an asynchronous one, which has it as `sync_fs`.
    kind = getattr(getattr(files, "sync_fs", files), "protocol", ())
    return isinstance(store, MemoryStore) or "memory" in ([kind] if isinstance(kind, str) else kind)


@contextmanager
def _reading(location: object, start: int, stop: int) -> Iterator[None]:
    """Turn any error of reading a chunk into an InputError: each codec fails in a different way."""
    try:
        with location.telling() if isinstance(location, ObjectPath) else nullcontext():
            yield
    except (DklError, MemoryError):
        raise
    except Exception as error:
        where = str(location if isinstance(location, AnyPath) else getattr(location, "store_path", location))
        raise InputError(
            "a chunk cannot be read",
            where=f"{where}, rows {start} to {stop - 1}",
            got=f"{type(error).__name__}: {error}",
            remedy="write that array again",
        ) from error


def held_rows(X: Any) -> Any:
    """Return `X`, or the array at an address in this process' own memory, which no worker can open."""
    if isinstance(X, str) and is_address(X) and (path := ObjectPath.of(X, "X")).is_of_this_process:
        X = _open(path)
        if is_zarr_array(X):
            _check_layout(X, path)
    if isinstance(X, RawArray) and isinstance(X.path, ObjectPath) and X.path.is_of_this_process:
        return X.read(0, X.header.shape[0])
    return X


def _from_path(path: AnyPath) -> StoredRows | None:
    array = _open(path)
    return stored_rows(array) if isinstance(array, RawArray) else _from_zarr(array, path)


def _from_zarr(array: Any, location: Any) -> StoredRows:
    _check_layout(array, location)
    # The unit of reading is a chunk, also where several of them lie in one shard.
    rows_per_chunk = array.chunks[0] if array.ndim else 1
    rows = StoredRows(tuple(array.shape), np.dtype(array.dtype), False, max(1, rows_per_chunk), location)
    packing = packing_of(array, str(location if isinstance(location, AnyPath) else array.store_path))
    return rows if packing is None else PackedRows(rows, packing)


def _check_layout(array: zarr.Array, location: object) -> None:
    """Raise InputError for a layout that only bad metadata claims: zeros would be worked on for hours."""
    where = str(location if isinstance(location, AnyPath) else array.store_path)
    require_sizes(array.shape, where)
    if min(array.chunks, default=1) < 1:
        raise InputError("no chunks of an array", where=where, got=f"chunks {array.chunks}")
    chunk_bytes = math.prod(array.chunks) * np.dtype(array.dtype).itemsize
    if chunk_bytes > (most := machine_memory()):
        got, wanted = f"chunks {array.chunks}, {format_bytes(chunk_bytes)} each", f"at most {format_bytes(most)}"
        raise InputError("a chunk is larger than the memory", where=where, got=got, wanted=wanted, remedy=SMALLER)
    require_room(CHUNKS_HELD * chunk_bytes, where, f"a chunk does not fit: {SMALLER}")
    if isinstance(location, AnyPath) and 0 not in array.shape:
        _check_stored(array, location)


def _check_stored(array: zarr.Array, path: AnyPath) -> None:
    """Raise InputError if under one chunk in SPARSEST is stored: zarr reads the others as fill values."""
    expected = math.prod(
        -(-size // chunk) for size, chunk in zip(array.shape, array.shards or array.chunks, strict=True)
    )
    enough = -(-expected // SPARSEST)
    names = path.listed() if isinstance(path, ObjectPath) else (name for _, _, some in os.walk(path) for name in some)
    found = sum(1 for _ in islice((name for name in names if name not in METADATA), enough))
    if found < enough:
        got, wanted = f"{found} of {expected} chunks", "an array that has been written"
        remedy = "write it again, also chunks of fill values alone (config={'write_empty_chunks': True})"
        raise InputError("hardly a chunk of it is stored", where=str(path), got=got, wanted=wanted, remedy=remedy)


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


def whole_array(path: str | os.PathLike[str], where: str) -> NDArray:
    """Return the array in a .npy file or a zarr array, of any number of dimensions, in memory. Raises InputError."""
    source = as_source(path, where)
    if source.suffix == ".npy":
        require_file(source)
        with reading(source):
            return np.array(npy_array(source))
    array = _opened(source)
    _check_layout(array, source)
    require_room(2 * array.nbytes, source)
    return np.asarray(unpacked(array, where))


_ZARR_FILES = ("zarr.json", ".zarray", ".zgroup")
"""One of which the folder of a zarr array or group has, by its format 3 or 2."""


def _a_group(group: zarr.Group, path: AnyPath) -> InputError:
    """Return the error of a zarr group where an array is wanted, which names some of the arrays in it."""
    arrays = ((name, found.shape) for name, found in group.members(None) if hasattr(found, "shape"))
    named = sorted(islice(arrays, MOST_LISTED), key=lambda one: (one[0].count("/"), one[0]))
    texts = [f"{name} {tuple(shape)}" for name, shape in named[:NAMED]] + ["..."] * (len(named) > NAMED)
    parts = {name.rpartition("/")[2] for name, _ in named}
    remedy = f"name one of them, as {path}/{named[0][0]}" if named else None
    if group.attrs.get("encoding-type") in ("csr_matrix", "csc_matrix") and {"data", "indices", "indptr"} <= parts:
        remedy = "read the sparse matrix, and save it by scipy.sparse.save_npz as CSR"
    got = f"a group of {', '.join(texts)}" if named else "a group without arrays"
    return InputError("not a zarr array", where=str(path), got=got, wanted="a zarr array", remedy=remedy)


def _opened(location: object) -> Any:
    """Open the array at `location` for reading; a zarr array's chunks unpack to no more than they hold."""
    array = _open(location)
    if not is_zarr_array(array):
        return array
    from dkl.stores.local_stores import bounded

    return bounded(array)


def _open(location: Any) -> Any:
    """Open the array at `location`, without a bound on what a zarr array's chunks unpack to.

    location: a path, an object's address, the five facts of a memory map, or a zarr array that opens itself.
    """
    if isinstance(location, RawArray) or is_zarr_array(location):
        return location
    path: AnyPath = location if isinstance(location, AnyPath) else location[0]
    try:
        if isinstance(location, tuple):
            file, dtype, *rest = location
            return np.memmap(file, dtype, "r", *rest)
        if path.suffix == ".npy":
            require_file(path)
            return raw_array(path)
        import zarr

        from dkl.stores.local_stores import PlainFiles

        if isinstance(path, Path) and path.is_dir() and not any((path / name).exists() for name in _ZARR_FILES):
            got, wanted = "a folder that is no zarr array", "a file of rows, or a zarr array"
            raise InputError("cannot read a folder", where=str(path), got=got, wanted=wanted)
        if isinstance(path, ObjectPath):
            with path.telling():
                # fsspec would else answer from listings that it has made before the array was written.
                store = zarr.storage.FsspecStore.from_url(path.url, {"use_listings_cache": False}, read_only=True)
                found = zarr.open(store, mode="r")
        else:
            found = zarr.open(PlainFiles(path, read_only=True), mode="r")
        if isinstance(found, zarr.Group):
            raise _a_group(found, path)
        return found
    except DklError:
        raise
    except Exception as error:  # damaged metadata fails in as many ways as it has parts
        raise InputError(
            "cannot open the array",
            where=str(path),
            got=f"{type(error).__name__}: {error}",
            wanted="a .npy file or a zarr array",
            remedy="read other files with `dkl.datasets.read_array`; workers must see a path under the same name",
        ) from error
