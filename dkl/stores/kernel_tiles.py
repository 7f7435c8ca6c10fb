"""A kernel matrix on disk: the tiles of its upper triangle, one chunk each, with checksums.

The writer of the tiles keeps the checksum of each, and sends it to the readers: a tile in another's place, or of
another matrix, is seen (stores/seals.py has the same for the files of runs).

The order of the tiles is that of dkl/linalg/kernels/packed_symmetric.py, with larger tiles; those at the edge are padded with
zeros.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dkl.errors import StoreError
from dkl.stores.arrays import create_array, open_array
from dkl.stores.disk import disk_errors
from dkl.stores.registry import FLOATS, ONE_EACH, StoredArray
from dkl.stores.seals import file_sum
from dkl.time_spent import DISK, spending

if TYPE_CHECKING:
    import zarr
    from numpy.typing import DTypeLike

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
            if np.isnan(tile[0, 0]):
                raise StoreError("a tile of the kernel is missing", where=self.path, got=f"tile {number}")
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
        if self._array is None or (mode == "r+" and self._array.read_only):
            self._array = open_array(Path(self.path), TILES, mode)
        return self._array
