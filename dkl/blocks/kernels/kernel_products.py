"""Products K V with a block of vectors V (n, b): K of rows, given as a matrix, or of a factor.

    (K V)_I += K_IJ V_J    and    (K V)_J += K_IJ' V_I,    I a block of rows, J rows of the half circle of blocks after it

The blocks form a circle, and each computes its tiles with the half circle that follows: so each unordered pair of rows
is computed once for all vectors, and all blocks have equally much to do. Tiles stay in the blocks' memos as far as
memory allows, a share of them in each block, and are recomputed otherwise: which of the two makes no difference to the
bits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dkl.blocks.kernels.kernel_checks import check_symmetric
from dkl.blocks.kernels.kernel_operator import Points, finite
from dkl.blocks.rows.predictions import FewRows, KeptPoints
from dkl.blocks.rows.row_blocks import LARGEST_BLOCK, RowBlocks, machine_memory
from dkl.blocks.rows.row_pieces import Block
from dkl.blocks.rows.row_sources import RowSource
from dkl.blocks.session import Session
from dkl.linalg.kernels.kernel_columns import Kernel
from dkl.resources import parse_bytes

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from dkl.blocks.rows.row_sources import Rows

Matrix = NDArray[np.float64]
Range = tuple[int, int]

LEAST_ROWS, MOST_BLOCKS = 256, 256
"""Rows of a block at least, for its products to be large ones; and blocks at most, but where more are needed to keep them small."""
TILE_COLUMNS = 1024
"""Columns of a tile: 4 MB in double with 500 rows, which stay in the cache until the products with V."""

OVERFLOWING = partial(np.errstate, over="ignore", invalid="ignore")
"""Context without NumPy's warnings of numbers that are not finite: an error refuses these later."""


def tile_bounds(n: int, row_bytes: int) -> list[Range]:
    """Return [(start, stop)] of the blocks of n rows, a power of two, from n and a row's bytes alone."""
    count = 1
    while n >= 2 * count * LEAST_ROWS and (count < MOST_BLOCKS or n * row_bytes > count * LARGEST_BLOCK):
        count *= 2
    return [(k * n // count, (k + 1) * n // count) for k in range(count)]


def held_bytes(n: int, row_bytes: int, dtype: DTypeLike) -> int:
    """Return the bytes of all tiles of a kernel of n rows: half of it, and half its diagonal blocks."""
    own = sum((stop - start) ** 2 for start, stop in tile_bounds(n, row_bytes))
    return (n * n + own) // 2 * np.dtype(dtype).itemsize


def tiles_of(index: int, bounds: Sequence[Range], span: Range) -> Iterator[tuple[int, int, bool]]:
    """Yield (first, last, is own) of the rows that block `index` computes tiles with, within `span`."""
    count = len(bounds)
    # The block just opposite is computed by the first of the two.
    after = range(index + 1, index + count // 2 + (index < count // 2))
    ranges = [(*bounds[index], True)]
    for part in ([k for k in after if k < count], [k - count for k in after if k >= count]):
        if part:
            ranges.append((bounds[part[0]][0], bounds[part[-1]][1], False))
    for start, stop, is_own in ranges:
        for first in range(max(start, span[0]), min(stop, span[1]), TILE_COLUMNS):
            yield first, min(first + TILE_COLUMNS, stop, span[1]), is_own


class KernelProducts:
    """K of the rows of `source`, in `dtype`: `held` bytes of its tiles a process may keep, `points` rows that it has ready at a time.

    Where `points` are fewer than all rows, a product takes a pass over the rows for each part of them, and rows may be larger than
    memory. rows_bytes: of rows that a process may keep.
    """

    def __init__(
        self, kernel: Kernel, source: RowSource, session: Session, dtype: DTypeLike = np.float64, *,
        held: int = 0, points: int | None = None, rows_bytes: int | None = None,
    ) -> None:  # fmt: skip
        self.kernel, self.dtype, self.rows = kernel, np.dtype(dtype), _TileRows(source, session, rows_bytes)
        self.n = self.rows.n
        self.points = min(self.n, points or self.n)
        self.spans = [(lo, min(lo + self.points, self.n)) for lo in range(0, self.n, self.points)]
        processes = session.n_slots if session.is_distributed else 1
        # Blocks have a tile more or less: where all of them fit, no share of a row keeps one out.
        is_all = held * processes >= held_bytes(self.n, self.rows.source.row_bytes, self.dtype)
        self._held_a_row = np.inf if is_all else held * processes / self.n
        self._ready: tuple[Range, Points] | None = None

    def times(self, V: Matrix) -> Matrix:
        """Return (n, b) K V, summed in double. Raises InputError where it is not finite."""
        V = np.ascontiguousarray(V, self.dtype)
        total = np.zeros(V.shape)
        for span in self.spans:
            total += self.rows.sum(half_products, self._points(span), span, V, self.rows.bounds, self._held_a_row)[0]
        return np.asarray(finite(total, self.kernel))

    def thin(self, chosen: NDArray[np.intp], weights: Matrix) -> Matrix:
        """Return (n, b) K[:, chosen] weights, for weights (m, b)."""
        points = Points.of(self.rows, self.kernel, chosen, self.dtype)
        return np.concatenate(self.rows.map(weighted_columns, points, weights))

    def block(self, chosen: NDArray[np.intp]) -> Matrix:
        """Return (m, m) K at the rows and columns `chosen`, computed in this process."""
        rows = self.rows.take(chosen)
        with OVERFLOWING():
            return np.asarray(finite(self.kernel.columns(rows, rows), self.kernel), np.float64)

    def forget(self) -> None:
        """Release all tiles and points."""
        self._ready = None
        self.rows.forget()

    def _points(self, span: Range) -> Points:
        if self._ready is None or self._ready[0] != span:
            self._ready = None  # the old ones go before the new ones come
            self._ready = span, Points(self.kernel, self.rows.source.read(*span), self.dtype)
        return self._ready[1]


class RowsKernel:
    """Kernel of new rows with the rows of `source`, prepared a third of memory_limit at a time."""

    def __init__(
        self, kernel: Kernel, source: RowSource, dtype: DTypeLike, memory_limit: int | float | str | None = None
    ) -> None:
        self.kernel, self.source, self.dtype = kernel, source, np.dtype(dtype)
        # A third of the limit for the prepared points, as the rows and the columns are held too.
        room = (parse_bytes(memory_limit) or machine_memory()) // 3
        self._step = max(TILE_COLUMNS, room // (2 * 8 * (source.n_features + 2)))

    def times(self, rows: RowBlocks | FewRows, weights: Matrix, kept: KeptPoints | None = None) -> Matrix:
        """Return (m, k) the kernel of `rows` (m, d) with the source's n rows, times weights (n, k).

        kept: where the source's rows are kept prepared for few rows.
        """
        if isinstance(rows, FewRows) and kept is not None and self.source.n <= self._step:
            points = kept.remembered(
                self.kernel, lambda: Points(self.kernel, self.source.read(0, self.source.n), self.dtype)
            )
            return np.asarray(rows.map(weighted_columns, points, weights)[0])
        total = np.zeros((rows.n, weights.shape[1]))
        for lo in range(0, self.source.n, self._step):
            hi = min(lo + self._step, self.source.n)
            points = Points(self.kernel, self.source.read(lo, hi), self.dtype)
            total += np.concatenate(rows.map(weighted_columns, points, weights[lo:hi]))
        return total


class MatrixKernel:
    """Products of a given kernel matrix, in memory or stored, by its rows; InputError if not symmetric.

    The symmetry is checked where it is in memory.
    """

    def __init__(self, source: RowSource, session: Session, rows_bytes: int | None = None) -> None:
        self.rows = RowBlocks(source, session, rows_bytes)
        self.n = self.rows.n
        if source.is_in_memory:
            for lo, hi in self.rows.bounds:
                check_symmetric(source.array, lo, hi)

    def times(self, V: Matrix) -> Matrix:
        """Return K V for V (n,) or (n, b). Raises InputError where it is not finite."""
        return np.asarray(finite(np.concatenate(self.rows.map(rows_times, V)), Kernel("precomputed")))

    def diagonal(self) -> NDArray[np.float64]:
        """Return the diagonal (n,) of K."""
        return np.concatenate(self.rows.map(own_diagonal))


class FactorProducts:
    """Products of K = Y Y', Y = X - 1 shift', by the factor X (n, d): two passes over the rows a product.

    X is sparse or dense, in memory or stored. shift (d,): means of the first rows, or coordinates far from the origin
    would cancel where K is centered; 0 for sparse rows.
    """

    def __init__(self, source: RowSource, session: Session, rows_bytes: int | None = None) -> None:
        self.rows = RowBlocks(source, session, rows_bytes)
        self.n, self.shift = self.rows.n, first_means(self.rows)

    def times(self, V: Matrix) -> Matrix:
        """Return Y (Y' V) for V (n, b). Raises InputError where it is not finite."""
        W = self.transposed_times(V)
        return np.asarray(finite(np.concatenate(self.rows.map(rows_times, W, self.shift)), Kernel("linear")))

    def transposed_times(self, V: Matrix) -> Matrix:
        """Return (d, b) Y' V."""
        return np.asarray(self.rows.sum(transposed_rows_times, V, self.shift)[0])


class _TileRows(RowBlocks):
    """Rows in blocks of a size for tiles: their work grows with n, so that there are many even of few bytes."""

    def _bounds(self) -> list[Range]:
        return tile_bounds(self.n, self.source.row_bytes)


def half_products(
    block: Block, points: Points, span: Range, V: NDArray[np.floating], bounds: Sequence[Range], held: float
) -> tuple[Matrix]:
    """Return ((n, b),): what the block's tiles with the points, rows of `span`, add to K V.

    It keeps `held` bytes of tiles a row.
    """
    out, own = np.zeros(V.shape), slice(block.start, block.stop)
    # What the block keeps already counts against its share of memory.
    left = held * (block.stop - block.start) - sum(tile.nbytes for tile in block.memo.values())
    with OVERFLOWING():
        for first, last, is_own in tiles_of(block.index, bounds, span):
            name = f"{first} to {last}"
            tile = block.memo.get(name)
            if tile is None:
                tile = points.columns(block.rows, first - span[0], last - span[0])
                # Kept while there is room, in order of the tiles: the same ones in every product.
                if tile.nbytes <= left:
                    block.memo[name] = tile
                    left -= tile.nbytes
            out[own] += tile @ V[first:last]
            # A tile off the diagonal counts for both of its blocks of rows.
            if not is_own:
                out[first:last] += tile.T @ V[own]
    return (out,)


def weighted_columns(block: Block, points: Points, weights: Matrix) -> Matrix:
    """Return (t, b): the points' columns on a block's rows, times weights (m, b), a tile at a time."""
    out, factors = np.zeros((block.rows.shape[0], weights.shape[1])), weights.astype(points.dtype)
    step = max(LEAST_ROWS, LARGEST_BLOCK // (8 * TILE_COLUMNS))
    for start in range(0, len(out), step):
        rows = block.rows[start : start + step]
        for first in range(0, len(weights), TILE_COLUMNS):
            last = min(first + TILE_COLUMNS, len(weights))
            with OVERFLOWING():
                out[start : start + step] += points.columns(rows, first, last) @ factors[first:last]
    return out


def rows_times(block: Block, V: Matrix, shift: Matrix | None = None) -> Matrix:
    """Return the rows of a block times V in double, (t,) or (t, b); dense rows less `shift`, if given."""
    with OVERFLOWING():
        return np.asarray(shifted(block.rows, shift) @ V)


def own_diagonal(block: Block) -> NDArray[np.float64]:
    """Return the entries (t,) of a block of rows of K that are on its diagonal."""
    return np.asarray(block.rows[np.arange(block.stop - block.start), np.arange(block.start, block.stop)], np.float64)


def transposed_rows_times(block: Block, V: Matrix, shift: Matrix) -> tuple[Matrix]:
    """Return ((d, b),): what a block's rows add to (X - 1 shift')' V; shift is 0 where they are sparse."""
    with OVERFLOWING():
        found = np.asarray(shifted(block.rows, shift).T @ V[block.start : block.stop])
    return (np.asarray(finite(found, Kernel("linear"))),)


def first_means(rows: RowBlocks) -> NDArray[np.float64]:
    """Return (d,) means of the first block's columns, about which rows are summed; 0 if sparse."""
    return np.zeros(rows.n_features) if rows.is_sparse else np.asarray(rows.map(column_means, only={0})[0])


def column_means(block: Block) -> NDArray[np.float64]:
    """Return (d,) means of the columns of a block."""
    with OVERFLOWING():
        return np.asarray(block.rows.mean(axis=0, dtype=np.float64))


def shifted(rows: Rows, shift: Matrix | None) -> Rows:
    """Return the rows in double precision, less `shift` (d,) if they are dense and it is given."""
    if sp.issparse(rows):
        return rows.astype(np.float64)
    rows = np.asarray(rows, np.float64)
    return rows if shift is None else rows - shift
