"""A kernel matrix on disk by its products, and the plan of where to have one: in memory, on disk, or recomputed when needed.

Plans count bytes from shapes alone. On disk, workers or threads go over shares of the matrix's tiles. It is written once and read in
every product: worth its disk space where computing columns costs more than reading them, with many features or a slow kernel function.
Shares are cut by the number of tiles alone and added in order, so products have the same bits on any number of workers.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dkl.blocks.kernels.kernel_operator import Points, RecomputedKernel, finite
from dkl.blocks.memory_plan import PROCESS_BASE, Plan, fewer, what_helps
from dkl.blocks.rows.row_pieces import Block
from dkl.linalg.kernels.kernel_columns import POINTS_AT_A_TIME
from dkl.linalg.kernels.packed_symmetric import PARTS, packed_bytes, tile_number
from dkl.linalg.late_functions import njit
from dkl.stores.kernels import STORED_TILE, KernelTiles, create_tiles, stored_bytes

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


VECTORS = 24
"""Vectors of n numbers that a solver holds at a time."""


COMMON = ("X, read from its file", "machines", "vectors", "face")
"""Items of the process that solves, wherever K is."""


@dataclass(frozen=True)
class KernelShape:
    """Shape and use of the kernel matrices of a plan: n_kernels of n rows, in `dtype`.

    largest_machine: rows of the largest pair of classes, where its part of the kernel is copied out. is_whole: whether
    many products with all of K are to come, so that holding it pays; else parts of it, at the support, will do.
    rows_in_place: the rows are in this process' memory already, outside the plan. own_bytes: of X in this process,
    where it was read for this fit. machines: bytes of all machines' states, which are held wherever K is.
    is_precomputed: the rows are K's own.
    """

    n: int
    n_features: int
    dtype: DTypeLike
    n_kernels: int = 1
    largest_machine: int | None = None
    is_whole: bool = True
    rows_in_place: bool = True
    own_bytes: int = 0
    machines: int = 0
    is_precomputed: bool = False

    def held(self) -> dict[str, int]:
        """Return bytes by name with K in memory: packed tiles, and a copy of the largest machine's part."""
        copied = 0 if self.largest_machine is None else packed_bytes(self.largest_machine, self.dtype)
        one, width = self.n_kernels == 1, self.n_features + 2
        # Prepared for products, a part of them in double precision next to its multiple.
        points = width * (np.dtype(self.dtype).itemsize * self.n + 2 * 8 * min(self.n, POINTS_AT_A_TIME))
        if np.dtype(self.dtype) != np.float64 and not self.is_precomputed:
            # Then again in double, which gaps are computed by: for each kernel a machine's rows, its points, and these prepared.
            copies = 2 * self.n_kernels + 1 + (0 if self.largest_machine is None else self.n_kernels)
            points = max(points, copies * 8 * width * (self.largest_machine or self.n))
        return {
            "kernel matrix" if one else "kernel matrices": self.n_kernels * (packed_bytes(self.n, self.dtype) + copied),
            "rows": 0 if self.rows_in_place else 8 * self.n * self.n_features,
            "points of the kernel": points,
        }

    def recomputed(self, processes: int, threads: int) -> dict[str, int]:
        """Return bytes by name in each process that recomputes K: rows with a coefficient, a block's columns."""
        size = np.dtype(self.dtype).itemsize
        return {
            "support rows": (1 + self.n_kernels) * 8 * self.n * self.n_features,
            # COLUMNS_BYTES of a product's columns, and ROWS_AT_A_TIME rows of them (blocks/kernels/kernel_operator.py).
            "columns of a block": threads * (16_000_000 + 1024 * self.n * size // 4),
            "rows": 0 if self.rows_in_place else 8 * self.n * self.n_features // processes,
        }

    def on_disk(self, processes: int, threads: int) -> dict[str, int]:
        """Return bytes by name in each process with K on disk: those to compute it, and tiles being read."""
        size = np.dtype(self.dtype).itemsize
        return {
            **self.recomputed(processes, threads),
            "a row of tiles": 3 * STORED_TILE * self.n * size,
            "tiles read": threads * 3 * STORED_TILE**2 * size,
            # SHARES partial products of n doubles (blocks/kernels/stored_kernel.py).
            "sums of products": 32 * 8 * self.n,
        }


def plan_kernel(
    shape: KernelShape,
    *,
    processes: int,
    threads: int,
    limit: int | None,
    driver_limit: int | None,
    may_use_disk: bool = False,
    may_be_single: bool = True,
) -> Plan:
    """Plan an SVM's kernel: held, on disk or recomputed.

    K is whole in this process' memory, where many products will use it and it fits `driver_limit`; else on disk, if
    `may_use_disk`; else recomputed by the processes within `limit`.
    What is left of `driver_limit` is the memory for K of a working set ("working_set_bytes" of the plan's shape). Without a
    client this process is the one that works, and all is counted in it. `Plan.validate` raises where nothing fits, and
    advises what helps. may_be_single: whether single precision is to be had.
    """

    def placed(threads: int, shape: KernelShape = shape) -> Plan:
        return _placed(shape, processes, threads, limit, driver_limit, may_use_disk)

    found = placed(threads)
    if found.fits:
        return found
    single = replace(shape, dtype="float32")
    ways = fewer("use {} thread(s)", lambda count: placed(count).fits, threads) if processes == 1 else []
    if may_be_single and np.dtype(shape.dtype).itemsize == 8:
        ways.append(("use dtype='float32'", lambda: placed(threads, single).fits))
    return replace(found, remedy=what_helps(ways))


def _placed(
    shape: KernelShape, processes: int, threads: int, limit: int | None, driver_limit: int | None, may_use_disk: bool
) -> Plan:
    """Return the plan of `plan_kernel` for these limits, without its remedies."""
    n = shape.n
    common = {
        "X, read from its file": shape.own_bytes,
        "machines": shape.machines,
        "vectors": (VECTORS + PARTS) * 8 * n,
        # Two matrices of DENSE rows, and (n, SKETCH) with some vectors (the Newton steps of solvers/svm/interior.py).
        "face": 8 * (2 * 1500**2 + 220 * n),
    }

    def plan(placement: str, items: dict[str, int], bound: int | None, **disk: int) -> Plan:
        items = {**common, **items}
        return Plan(
            placement=placement,
            processes=1 if placement == "memory" else processes,
            threads=threads,
            base=PROCESS_BASE,
            items={name: count for name, count in items.items() if count},
            disk={name.replace("_", " "): count for name, count in disk.items()},
            limit=bound,
            shape={"n": n, "dtype": np.dtype(shape.dtype).name, "working_set_bytes": 0},
        )

    # In order of speed: memory, then the disk, which is read once a product, then recomputing.
    in_memory = plan("memory", shape.held(), driver_limit)
    if shape.is_whole and in_memory.fits:
        return in_memory
    stored = plan(
        "disk", shape.on_disk(processes, threads), limit, kernel_matrix=shape.n_kernels * stored_bytes(n, shape.dtype)
    )
    if not (shape.is_whole and may_use_disk and stored.fits):
        stored = plan("recomputed", shape.recomputed(processes, threads), limit)
    return _with_working_set(stored, shape, driver_limit, may_use_disk)


def _with_working_set(plan: Plan, shape: KernelShape, driver_limit: int | None, may_use_disk: bool) -> Plan:
    """Return the plan with the memory that is left in this process for K of a working set.

    This process may be the one that works. A larger working set goes to the disk, if `may_use_disk`.
    """
    # On a cluster the working set is solved by this process, which holds little else; alone, with all that the plan
    # counts.
    processes = plan.processes
    wanted = packed_bytes(shape.n, shape.dtype)
    used = plan.process_bytes if processes == 1 else plan.base + sum(plan.items.get(name, 0) for name in COMMON)
    working_set = wanted if driver_limit is None else min(wanted, max(0, driver_limit - used))
    items = {**plan.items, "kernel of the working set": working_set} if processes == 1 and working_set else plan.items
    on_disk = (
        {"kernel of the working set": stored_bytes(shape.n, shape.dtype)}
        if may_use_disk and working_set < wanted
        else {}
    )
    return replace(plan, items=items, disk=plan.disk | on_disk, shape={**plan.shape, "working_set_bytes": working_set})
