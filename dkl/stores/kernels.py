"""Kernels in zarr, in chunks with checksums: columns C (n x M), rows of their Gram matrix, and tiles of a whole kernel matrix.

Both are sealed (stores/seals.py): B as its rows are written, C by who hears from the workers what they wrote.

The writer of the tiles keeps the checksum of each, and sends it to the readers: a tile in another's place, or of
another matrix, is seen (stores/seals.py has the same for the files of runs).

The order of the tiles is that of dkl/linalg/kernels/packed_symmetric.py, with larger tiles; those at the edge are padded with
zeros.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dkl.errors import StoreError
from dkl.resources import DISK, spending
from dkl.stores.arrays import create_array, open_array
from dkl.stores.folders import disk_errors
from dkl.stores.registry import FLOATS, ONE_EACH, ROWS, StoredArray
from dkl.stores.seals import Files, check_files, file_sum, is_sealed, read_seal, seal_folder

if TYPE_CHECKING:
    import zarr
    from numpy.typing import DTypeLike


GRAM_CHUNK_BYTES = 4_000_000
"""Bytes of the rows of the Gram matrix that are read together; a solver asks for single rows."""

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


def create_columns(path: str | os.PathLike[str], n: int, n_columns: int, block_rows: int, dtype: DTypeLike) -> None:
    """Create an array without values for the columns (n, n_columns), a block of rows a chunk.

    Raises DiskError.
    """
    with disk_errors("could not make the columns' store", Path(path)):
        create_array(Path(path), COLUMNS, (n, n_columns), dtype, rows=block_rows)


def create_gram(path: str | os.PathLike[str], n_columns: int) -> None:
    """Create an array without values for B (n_columns, n_columns). Raises DiskError."""
    rows = max(1, min(n_columns, GRAM_CHUNK_BYTES // (8 * n_columns)))
    with disk_errors("could not make the Gram matrix' store", Path(path)):
        create_array(Path(path), GRAM, (n_columns, n_columns), float, rows=rows)


def is_created(path: str | os.PathLike[str]) -> bool:
    """Return whether there is an array at `path`; a folder alone is what a crash left."""
    return (Path(path) / "zarr.json").is_file()


def stored_columns(path: str | os.PathLike[str]) -> Iterator[tuple[int, NDArray]]:
    """Yield (first row, rows) of kept columns by chunk; StoreError for one missing or damaged."""
    array = open_array(Path(path), COLUMNS, failure="the kept columns cannot be opened")
    n, step = int(array.shape[0]), int(array.chunks[0])
    files = read_seal(Path(path), COLUMNS.name)[0]
    for lo in range(0, n, step):
        where = f"{path}, rows from {lo}"
        try:
            _require_place(Path(path), array, files, lo, lo + 1)
            rows = np.asarray(array[lo : lo + step])
        except Exception as error:
            got = f"{type(error).__name__}: {error}"
            raise StoreError("a chunk of the kept columns is damaged", where=where, got=got) from error
        # zarr reads a chunk that was never written as its fill value, NaN.
        if np.isnan(rows).any():
            raise StoreError("a chunk of the kept columns is missing", where=where, remedy="begin a new run")
        yield lo, rows


def write_columns(path: str | os.PathLike[str], start: int, rows: NDArray) -> None:
    """Store rows (count, M) of C from `start` on, whole chunks. Raises DiskError, StoreError."""
    _write_rows(Path(path), COLUMNS, start, rows)


def column_sums(path: str | os.PathLike[str], starts: Iterable[int]) -> Files:
    """Return a seal's entries for the written chunks of columns that begin at rows `starts`.

    Raises DiskError, StoreError.
    """
    if not (starts := list(starts)):
        return {}
    # Opened here only for the names of its chunks; the workers that wrote them have their own.
    array = open_array(Path(path), COLUMNS)
    with disk_errors("the columns' checksums could not be read", Path(path)):
        return {name: file_sum(Path(path, name)) for lo in starts for name in _chunks_of(array, lo, lo + 1)}


def seal_columns(path: str | os.PathLike[str], files: Files) -> None:
    """Add chunks of columns to those that are sealed. Raises DiskError."""
    _seal_more(Path(path), COLUMNS, files)


def write_gram(path: str | os.PathLike[str], start: int, rows: NDArray) -> None:
    """Store rows (count, M) of B from `start` on, whole chunks, and seal them. Raises DiskError, StoreError."""
    array = _write_rows(Path(path), GRAM, start, rows)
    with disk_errors("could not be sealed", Path(path)):
        files = {name: file_sum(Path(path, name)) for name in _chunks_of(array, start, start + len(rows))}
    _seal_more(Path(path), GRAM, files)


@spending(DISK)
def _write_rows(path: Path, declared: StoredArray, start: int, rows: NDArray) -> zarr.Array:
    array = open_array(path, declared, mode="r+")
    with disk_errors("could not be written", path):
        array[start : start + len(rows)] = rows
    return array


def _seal_more(path: Path, declared: StoredArray, files: Files) -> None:
    known: Files = {}
    if is_sealed(path):
        with suppress(StoreError):  # damaged: what is not written again will not be found in the seal
            known = read_seal(path, declared.name)[0]
    seal_folder(path, declared.name, {**known, "zarr.json": file_sum(path / "zarr.json"), **files})


def _chunks_of(array: zarr.Array, start: int, stop: int) -> list[str]:
    """Return the names of the files of the chunks that some rows lie in."""
    rows = int(array.chunks[0])
    return [array.metadata.encode_chunk_key((k, 0)) for k in range(start // rows, -(-stop // rows))]


def _require_place(path: Path, array: zarr.Array, files: Files, start: int, stop: int) -> None:
    """Raise StoreError where a chunk of these rows is not the one that was written there."""
    check_files(path, files, only=_chunks_of(array, start, stop))


class GramRows:
    """Rows of a stored B, as slices; StoreError for what cannot be read or was never written."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = path
        self._array = open_array(Path(path), GRAM, failure="the Gram matrix cannot be opened")
        self.rows_per_chunk = int(self._array.chunks[0])
        self._files: Files | None = None

    @spending(DISK)
    def __getitem__(self, rows: slice) -> NDArray[np.float64]:
        if self._files is None:
            if not is_sealed(Path(self.path)):
                raise StoreError("rows of the Gram matrix are missing", where=str(self.path), got=f"rows {rows}")
            self._files = read_seal(Path(self.path), GRAM.name)[0]
        try:
            _require_place(Path(self.path), self._array, self._files, rows.start, rows.stop)
            found = np.asarray(self._array[rows])
        except Exception as error:
            got = f"{type(error).__name__}: {error}"
            raise StoreError("a row of the Gram matrix cannot be read", where=str(self.path), got=got) from error
        if np.isnan(found).any():
            raise StoreError("rows of the Gram matrix are missing", where=str(self.path), got=f"rows {rows}")
        return found


STORED_TILE = 1024
"""Rows and columns of a tile: 4 or 8 MB, so that a read costs its bytes and not its round through zarr's event loop."""

TILES = StoredArray(
    "work_dir/*/kernel-*.zarr",
    ("tile", "row", "column"),
    FLOATS,
    "Tiles of the upper triangle of a kernel matrix, while it is worked on; not in the run's folder.",
    chunks=ONE_EACH,
    optional=True,
)


def stored_bytes(n: int, dtype: DTypeLike) -> int:
    """Return the bytes on disk of the kernel matrix (n, n)."""
    side = -(-n // STORED_TILE)
    return side * (side + 1) // 2 * STORED_TILE**2 * np.dtype(dtype).itemsize


def create_tiles(path: str | os.PathLike[str], count: int, dtype: DTypeLike) -> None:
    """Create a store without values for `count` tiles. Raises DiskError."""
    shape = (count, STORED_TILE, STORED_TILE)
    with disk_errors("could not make the kernel's store", Path(path)):
        create_array(Path(path), TILES, shape, dtype)


class KernelTiles:
    """The tiles of a store; small to send, with four bytes a tile, and opened where it is used.

    count: of the tiles.
    """

    def __init__(self, path: str | os.PathLike[str], count: int) -> None:
        self.path = str(path)
        self._sums = np.zeros(count, np.uint32)  # of tiles that were written here
        self._array: zarr.Array | None = None

    def __getstate__(self) -> dict[str, object]:
        return {"path": self.path, "_sums": self._sums, "_array": None}

    @spending(DISK)
    def write(self, number: int, tile: NDArray) -> None:
        """Store a tile (STORED_TILE, STORED_TILE). Raises DiskError."""
        with disk_errors("a tile of the kernel could not be written", Path(self.path)):
            self._open("r+")[number] = tile
            self._sums[number] = file_sum(self._chunk(number))[1]

    @spending(DISK)
    def read(self, number: int) -> NDArray:
        """Read a tile; StoreError if it is damaged, was never written, or is another's."""
        try:
            tile = np.asarray(self._open("r")[number])
            # One number says whether the tile was written, as zarr fills whole tiles.
            if np.isnan(tile[0, 0]):
                raise StoreError("a tile of the kernel is missing", where=self.path, got=f"tile {number}")
            # A checksum says that the bytes are whole, the sum kept here that they are this tile's.
            found = file_sum(self._chunk(number))[1]
        except StoreError:
            raise
        except Exception as error:
            got = f"{type(error).__name__}: {error}"
            raise StoreError("a tile of the kernel cannot be read", where=self.path, got=got) from error
        if found != self._sums[number]:
            raise StoreError("a tile of the kernel is another's", where=self.path, got=f"tile {number}")
        return tile

    def _chunk(self, number: int) -> Path:
        return Path(self.path, self._open("r").metadata.encode_chunk_key((number, 0, 0)))

    def _open(self, mode: str) -> zarr.Array:
        # One opened for writing reads as well, so it is never opened back.
        if self._array is None or (mode == "r+" and self._array.read_only):
            self._array = open_array(Path(self.path), TILES, mode)
        return self._array
