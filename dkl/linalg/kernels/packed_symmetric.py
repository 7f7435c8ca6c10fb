"""A symmetric matrix of which the upper triangle is kept, in square tiles, and its products with vectors.

A product reads every stored number once and uses it twice: it takes the time to read half the matrix from memory.
Tiles (I, J), I <= J, lie one after the other, row by row; those at the edge are padded with zeros.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import DTypeLike, NDArray

from dkl.linalg.late_functions import njit

Vector = NDArray[np.float64]

LEAST_TILES_FOR_THREADS = 64
"""Fewer tiles (n below some 2,700) are multiplied by the calling thread: in 1.3 ms at most, where starting two takes 0.2 to 1."""


def tile_number(side: int, row: int, column: int) -> int:
    """Return the number of tile (row, column), row <= column, in storage order; `side`: tiles on a side."""
    return row * side - row * (row - 1) // 2 + column - row


class PackedSymmetric:
    """The upper triangle of a symmetric matrix (n, n): `tiles` (count, TILE, TILE), zeros until `set_rows` fills them."""

    def __init__(self, n: int, dtype: DTypeLike = np.float64) -> None:
        side = n_tiles(n)
        self.n, self.side = n, side
        self.tiles = np.zeros((side * (side + 1) // 2, TILE, TILE), dtype)

    def set_rows(self, row: int, values: NDArray[np.floating]) -> None:
        """Fill tile row `row` from `values` (TILE or fewer, n - TILE * row): rows TILE * row on, columns from their diagonal on."""
        for column in range(row, self.side):
            part = values[:, (column - row) * TILE : (column - row + 1) * TILE]
            self.tiles[tile_number(self.side, row, column), : part.shape[0], : part.shape[1]] = part

    def times(self, v: NDArray[np.float64], threads: int = 1) -> NDArray[np.float64]:
        """Return the product with v (n,) or columns v (n, k), float64; same bits for any number of threads."""
        columns = np.zeros((self.side * TILE, v.shape[1] if v.ndim == 2 else 1))
        columns[: self.n] = v.reshape(self.n, -1)
        # Parts write to sums of their own, as each tile adds to two ranges of rows; they are added in order at the end.
        cuts = self._cuts
        partial = np.zeros((len(cuts) - 1, *columns.shape))

        # Solvers take thousands of products: to start threads costs more than a small one.
        threads = 1 if len(self.tiles) < LEAST_TILES_FOR_THREADS else threads

        def work(thread: int) -> None:
            for part in range(thread, len(partial), threads):
                _multiply(self.tiles, self.side, columns, partial[part], cuts[part], cuts[part + 1])

        if threads == 1:
            work(0)
        else:
            with ThreadPoolExecutor(threads) as pool:
                list(pool.map(work, range(threads)))
        return partial.sum(axis=0)[: self.n].reshape(v.shape)

    def diagonal(self) -> Vector:
        """Return the diagonal (n,), in float64."""
        corners = [self.tiles[tile_number(self.side, k, k)].diagonal() for k in range(self.side)]
        return np.concatenate(corners)[: self.n].astype(np.float64)

    @property
    def _cuts(self) -> NDArray[np.int64]:
        """Return tile numbers that cut the tiles into equal shares."""
        return np.linspace(0, len(self.tiles), min(PARTS, len(self.tiles)) + 1).astype(np.int64)

    def block(self, chosen: NDArray[np.intp]) -> NDArray[np.float64]:
        """Return the matrix (k, k) at the rows and columns `chosen`, in float64."""
        return self.between(chosen, chosen)

    def between(self, rows: NDArray[np.intp], columns: NDArray[np.intp]) -> NDArray[np.float64]:
        """Return the matrix (k, l) at these rows and columns, in float64."""
        out = np.empty((len(rows), len(columns)))
        _gather(self.tiles, self.side, np.asarray(rows, np.int64), np.asarray(columns, np.int64), out)
        return out


@njit(cache=True, nogil=True, fastmath={"reassoc", "nsz", "contract"})
def _multiply(
    tiles: NDArray[np.floating], side: int, v: NDArray[np.float64], out: NDArray[np.float64], first: int, last: int
) -> None:
    """Compute out += tiles[first:last] and their mirror images, times v. Vectors (padded n, k)."""
    # The tile row of the first tile, as tiles are numbered row by row.
    row, start = 0, 0
    while start + side - row <= first:
        start += side - row
        row += 1
    # A tile off the diagonal serves twice: its rows with v below, its columns with v above (summed in `right`).
    left = np.empty(TILE)
    right = np.empty(TILE)
    for number in range(first, last):
        while number >= start + side - row:
            start += side - row
            row += 1
        column = row + number - start
        tile = tiles[number]
        for k in range(v.shape[1]):
            for j in range(TILE):
                left[j] = v[column * TILE + j, k]
                right[j] = 0.0
            # Support vectors are few: rows of a tile that meet zeros on both sides are skipped.
            used = False
            for j in range(TILE):
                if left[j] != 0.0:
                    used = True
            for i in range(TILE):
                value = v[row * TILE + i, k]
                if not used and value == 0.0:
                    continue
                line = tile[i]
                total = 0.0
                for j in range(TILE):
                    total += line[j] * left[j]
                    right[j] += value * line[j]
                out[row * TILE + i, k] += total
            if column != row:
                for j in range(TILE):
                    out[column * TILE + j, k] += right[j]


@njit(cache=True, nogil=True)
def _gather(
    tiles: NDArray[np.floating],
    side: int,
    rows: NDArray[np.int64],
    columns: NDArray[np.int64],
    out: NDArray[np.float64],
) -> None:
    """Compute out[a, b] = entry (rows[a], columns[b]), from its upper tile or the mirror image."""
    of_column, in_column = columns // TILE, columns % TILE
    for a in range(len(rows)):
        i, row, at = rows[a], rows[a] // TILE, rows[a] % TILE
        # `start + column` is `tile_number(side, row, column)`: what the row alone decides is out of the inner loop.
        start = row * side - row * (row - 1) // 2 - row
        for b in range(len(columns)):
            column = of_column[b]
            if i <= columns[b]:
                out[a, b] = tiles[start + column, at, in_column[b]]
            else:
                out[a, b] = tiles[column * side - column * (column - 1) // 2 + row - column, in_column[b], at]


# Bytes of a packed symmetric matrix, from its shape alone: without what is compiled for its products.

TILE = 256
"""Rows and columns of a tile: 512 kB in double, so that a tile is read from memory once a product."""
PARTS = 16
"""Partial sums of a product, each over a share of the tiles, whatever the number of threads: so it has the same bits."""


def n_tiles(n: int) -> int:
    """Return the number of tiles on a side of an n x n matrix: n / TILE, rounded up."""
    return -(-n // TILE)


def packed_bytes(n: int, dtype: DTypeLike) -> int:
    """Return the bytes of the tiles of an n x n matrix in `dtype`, with padding: about n^2 / 2 numbers."""
    side = n_tiles(n)
    return side * (side + 1) // 2 * TILE * TILE * np.dtype(dtype).itemsize
