"""A kernel matrix on disk by its products: workers, or threads, go over shares of its tiles.

It is written once and read in every product: worth its disk space where computing columns costs more than reading them,
with many features or a slow kernel function. Shares are cut by the number of tiles alone and added in order, so products
have the same bits on any number of workers.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dkl.blocks.kernels.kernel_operator import Points, RecomputedKernel, finite
from dkl.blocks.rows.row_pieces import Block
from dkl.linalg.kernels.packed_symmetric import tile_number
from dkl.linalg.late_functions import njit
from dkl.stores.kernels import STORED_TILE, KernelTiles, create_tiles

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from dkl.blocks.rows.row_sources import Rows

Vector = NDArray[np.float64]

SHARES = 32
"""Number of partial products, on any number of workers, so that their sum has the same bits."""


class StoredKernel:
    """K (n, n) in a folder on disk, which workers must see under the same name. `products` counts the products.

    `source` recomputes what few columns need, in its own precision; the tiles serve whole products.
    """

    def __init__(self, tiles: KernelTiles, source: RecomputedKernel, dtype: DTypeLike) -> None:
        self.tiles, self.source, self.n, self.dtype = tiles, source, source.n, np.dtype(dtype)
        self.side = -(-self.n // STORED_TILE)
        self.products = 0

    @classmethod
    def of(cls, source: RecomputedKernel, path: str | os.PathLike[str], dtype: DTypeLike = np.float32) -> StoredKernel:
        """Compute the tiles of `source` and write them to `path`, one tile row after the other; `dtype` is theirs.

        Raises InputError where the kernel is not finite, DiskError where the disk is full.
        """
        side = -(-source.n // STORED_TILE)
        # The upper triangle with its diagonal, in tiles.
        count = side * (side + 1) // 2
        create_tiles(path, count, dtype)
        made = cls(KernelTiles(path, count), source, dtype)
        for row in range(made.side):
            made._fill(row)
        return made

    def _fill(self, row: int) -> None:
        """Fill tile row `row` with its points' columns, from every block of rows that reaches below its start."""
        kernel, rows = self.source.kernel, self.source.rows
        lo, hi = row * STORED_TILE, min((row + 1) * STORED_TILE, self.n)
        points = Points.of(rows, kernel, np.arange(lo, hi), self.dtype)
        # The upper triangle alone: blocks of rows that end above the tile row are not read.
        below = {index for index, (_, stop) in enumerate(rows.bounds) if stop > lo}
        parts = rows.map(columns_below, points, lo, only=below)
        columns = finite(np.concatenate(parts), kernel)  # rows lo to n, at this tile row's points
        for column in range(row, self.side):
            tile = np.zeros((STORED_TILE, STORED_TILE), self.dtype)
            part = columns[(column - row) * STORED_TILE : (column - row + 1) * STORED_TILE].T
            tile[: part.shape[0], : part.shape[1]] = part
            self.tiles.write(tile_number(self.side, row, column), tile)

    def times(self, v: Vector) -> Vector:
        """Return K v for v (n,), from the tiles: in their precision, summed in float64."""
        self.products += 1
        count = self.side * (self.side + 1) // 2
        cuts = np.linspace(0, count, min(SHARES, count) + 1).astype(int)
        padded = np.zeros(self.side * STORED_TILE)
        padded[: self.n] = v
        shares = [(int(lo), int(hi)) for lo, hi in zip(cuts[:-1], cuts[1:], strict=True)]
        # v is sent with each task: 8 n bytes, against a share of the tiles that is read.
        parts = self.source.session.map(share_of_product, shares, self.tiles, self.side, padded)
        # Added in order of the shares, whichever task ended first.
        total = parts[0].copy()
        for part in parts[1:]:
            total += part
        return np.asarray(total[: self.n])

    def roughly(self, v: Vector) -> Vector:
        """Return K v, as `times`: what is stored has one precision."""
        return self.times(v)

    @property
    def fits(self) -> bool:
        """Return whether a part of all rows would be held in memory."""
        return self.source.fits

    def columns(self, chosen: NDArray[np.intp]) -> NDArray[np.float64]:
        """Return the columns `chosen` of K, (n, k), recomputed."""
        return self.source.columns(chosen)

    def block(self, chosen: NDArray[np.intp]) -> NDArray[np.float64]:
        """Return K at the rows and columns `chosen`, (k, k), recomputed."""
        return self.source.block(chosen)

    def diagonal(self) -> Vector:
        """Return the diagonal K_ii, (n,), recomputed."""
        return self.source.diagonal()

    def sub(self, chosen: NDArray[np.intp]) -> RecomputedKernel:
        """Return the kernel of the rows `chosen`, to be recomputed: tiles are not cut."""
        return self.source.sub(chosen)

    def part(self, chosen: NDArray[np.intp]) -> Any:
        """Return the kernel of the rows `chosen` for many products: these tiles if all, and too large to hold."""
        return self if len(chosen) == self.n and not self.fits else self.source.part(chosen)


def columns_below(block: Block, points: Points, first: int) -> NDArray[np.floating]:
    """Return (t, M): the kernel of a block's rows from number `first` on, at some points."""
    return points.columns(block.rows[max(0, first - block.start) :])


def share_of_product(share: tuple[int, int], tiles: KernelTiles, side: int, v: Vector) -> Vector:
    """Return (n,) padded: tiles lo to hi and their mirror images, times v, less those that meet zeros."""
    out = np.zeros_like(v)
    row, start = 0, 0
    for number in range(*share):
        # The tile row that `number` lies in; each is one tile shorter than the one above.
        while number >= start + side - row:
            start += side - row
            row += 1
        column = row + number - start
        above = slice(row * STORED_TILE, (row + 1) * STORED_TILE)
        below = slice(column * STORED_TILE, (column + 1) * STORED_TILE)
        # A tile that meets zeros on both sides is not read, as support vectors are few.
        if not (v[above].any() or v[below].any()):
            continue
        add_tile(tiles.read(number), v[below], v[above], out[above], out[below], row != column)
    return out


@njit(cache=True, nogil=True, fastmath={"reassoc", "nsz", "contract"})
def add_tile(tile: Rows, right: Rows, left: Rows, above: Rows, below: Rows, mirrored: bool) -> None:
    """Add tile right to above and, off the diagonal (`mirrored`), tile' left to below; in one reading."""
    for i in range(tile.shape[0]):
        line = tile[i]
        total = 0.0
        value = left[i] if mirrored else 0.0
        # Sums and stores in one loop, a fifth faster than in two: its arrays never overlap, and a test has its bits wherever they lie.
        for j in range(tile.shape[1]):
            total += line[j] * right[j]
            below[j] += value * line[j]
        above[i] += total
