"""A kernel matrix K (n x n) by its products: held in memory, or recomputed from the rows in each product.

`MemoryKernel` keeps the upper triangle in tiles. `RecomputedKernel` keeps nothing: each product computes the columns of
the vector's support, block by block, on threads or on workers; it is the one for n x n that fits nowhere, or of which few
columns are wanted. Both give the kernel of some of the rows: `sub`, in the same form, and `part`, held in memory.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dkl.blocks.kernels.kernel_checks import check_symmetric
from dkl.blocks.rows.row_blocks import RowBlocks
from dkl.blocks.rows.row_pieces import Block
from dkl.blocks.rows.row_sources import RowSource, row_source
from dkl.blocks.session import Session
from dkl.errors import InputError
from dkl.linalg.kernels.kernel_columns import GaussianPoints, Kernel
from dkl.linalg.kernels.packed_symmetric import TILE, PackedSymmetric, n_tiles, packed_bytes
from dkl.resources import one_blas_thread

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from dkl.blocks.rows.row_sources import Rows
    from dkl.linalg.kernels.kernel_operators import KernelOperator

Vector = NDArray[np.float64]

ROWS_AT_A_TIME, COLUMNS_BYTES = 1024, 16_000_000
"""Rows, and bytes, of the columns that a product computes at a time, at most."""
LOOSE = 1.25
"""Points kept for a product over those with a coefficient, at most: with more, the kept ones are fetched again."""


class MemoryKernel:
    """K in memory, float64 or float32. `products` counts the products; `fits` says that parts of it are in memory too."""

    fits = True

    def __init__(self, packed: PackedSymmetric, threads: int = 1) -> None:
        self.packed, self.threads, self.products = packed, threads, 0

    @classmethod
    def of(cls, kernel: Kernel, source: RowSource, dtype: DTypeLike = np.float64, threads: int = 1) -> MemoryKernel:
        """Compute the kernel of `source`'s rows (K's own if precomputed), a tile row at a time on threads.

        Raises InputError where it is not finite, or a precomputed one not symmetric.
        """
        n = source.n
        packed = PackedSymmetric(n, dtype)
        rows = source.read(0, n)
        # Points are prepared once for all tile rows.
        prepared = np.arange(n) if kernel.is_precomputed else kernel.prepared(rows, dtype)

        # Tile rows are of unequal length but many, so threads that take the next one end at about the same time.
        def fill(row: int) -> None:
            lo, hi = row * TILE, min((row + 1) * TILE, n)
            points = prepared.since(lo) if isinstance(prepared, GaussianPoints) else prepared[lo:]
            if kernel.is_precomputed:
                check_symmetric(rows, lo, hi)
            packed.set_rows(row, finite(kernel.columns(rows[lo:hi], points, dtype), kernel))

        with one_blas_thread():
            if n_tiles(n) == 1 or threads == 1:
                for row in range(n_tiles(n)):
                    fill(row)
            else:
                with ThreadPoolExecutor(threads) as pool:
                    list(pool.map(fill, range(n_tiles(n))))
        return cls(packed, threads)

    @property
    def n(self) -> int:
        """Return the number of rows of K."""
        return self.packed.n

    @property
    def dtype(self) -> np.dtype:
        """Return the type of the stored entries; products are float64."""
        return self.packed.tiles.dtype

    def times(self, v: Vector) -> Vector:
        """Return K v for v (n,)."""
        self.products += 1
        return self.packed.times(v, self.threads)

    def roughly(self, v: Vector) -> Vector:
        """Return K v, as `times`: what is stored has one precision."""
        return self.times(v)

    def columns(self, chosen: NDArray[np.intp]) -> NDArray[np.float64]:
        """Return the columns `chosen` of K, (n, k)."""
        # By products with unit vectors: half of each column is stored as a row, in other tiles.
        unit = np.zeros((self.n, len(chosen)))
        unit[chosen, np.arange(len(chosen))] = 1.0
        return self.packed.times(unit, self.threads)

    def block(self, chosen: NDArray[np.intp]) -> NDArray[np.float64]:
        """Return K at the rows and columns `chosen`, (k, k)."""
        return self.packed.block(chosen)

    def diagonal(self) -> Vector:
        """Return the diagonal K_ii, (n,)."""
        return self.packed.diagonal()

    def sub(self, chosen: NDArray[np.intp]) -> MemoryKernel:
        """Return the kernel of the rows `chosen`, copied into new tiles."""
        packed = PackedSymmetric(len(chosen), self.packed.tiles.dtype)
        for row in range(packed.side):
            lo = row * TILE
            packed.set_rows(row, self.packed.between(chosen[lo : lo + TILE], chosen[lo:]))
        return MemoryKernel(packed, self.threads)

    def part(self, chosen: NDArray[np.intp]) -> MemoryKernel:
        """Return the kernel of the rows `chosen`: a copy, or this kernel itself if all are chosen."""
        return self if len(chosen) == self.n else self.sub(chosen)


class RecomputedKernel:
    """K from the rows, computed in each product, in `dtype`. Rows may be larger than memory; those with a coefficient must fit.

    A part of it is held, in `part_dtype` (else `dtype`), where that takes no more than `part_bytes`; a larger one is what
    `store` makes of it, or is recomputed too. `products` counts the products.
    """

    def __init__(
        self,
        kernel: Kernel,
        X: object,
        session: Session,
        memory_limit: int | float | str | None = None,
        dtype: DTypeLike = np.float64,
        *,
        part_dtype: DTypeLike | None = None,
        part_bytes: int = 0,
        store: Callable[[RecomputedKernel], KernelOperator] | None = None,
    ) -> None:
        self.kernel, self.session, self.memory_limit, self.dtype = kernel, session, memory_limit, np.dtype(dtype)
        self.part_dtype, self.part_bytes = np.dtype(dtype if part_dtype is None else part_dtype), part_bytes
        self.store = store
        self.rows = RowBlocks(row_source(X), session, memory_limit)
        self.products = 0
        self._chosen = np.empty(0, np.intp)
        self._points: Any = None

    @property
    def n(self) -> int:
        """Return the number of rows of K."""
        return self.rows.n

    def times(self, v: Vector) -> Vector:
        """Return K v for v (n,), in `dtype`. Raises InputError where it is not finite."""
        return self._product(v, self.dtype)

    def roughly(self, v: Vector) -> Vector:
        """Return K v in `part_dtype`, at half the cost if float32."""
        return self._product(v, self.part_dtype)

    def _product(self, v: Vector, dtype: np.dtype) -> Vector:
        """Return K v from the columns of the support of v alone: others have coefficient 0."""
        self.products += 1
        # An SVM's vectors are sparse: columns of rows without a coefficient need not be computed.
        support = np.flatnonzero(v)
        if not support.size:
            return np.zeros(self.n)
        self._keep(support, dtype)
        parts = self.rows.map(product_block, self._points, v[self._chosen])
        product = np.concatenate(parts)
        finite(product, self.kernel)
        return product

    @property
    def fits(self) -> bool:
        """Return whether a part of all rows would be held in memory."""
        return packed_bytes(self.n, self.part_dtype) <= self.part_bytes

    def columns(self, chosen: NDArray[np.intp]) -> NDArray[np.float64]:
        """Return the columns `chosen` of K, (n, k), in one pass over the rows."""
        points = Points.of(self.rows, self.kernel, chosen)
        return np.concatenate(self.rows.map(columns_block, points))

    def block(self, chosen: NDArray[np.intp]) -> NDArray[np.float64]:
        """Return K at the rows and columns `chosen`, (k, k), computed in this process."""
        rows = self.rows.take(chosen)
        return np.asarray(self.kernel.columns(rows, chosen if self.kernel.is_precomputed else rows), np.float64)

    def diagonal(self) -> Vector:
        """Return the diagonal K_ii, (n,), in one pass over the rows."""
        return np.concatenate(self.rows.map(diagonal_block, self.kernel))

    def sub(self, chosen: NDArray[np.intp]) -> RecomputedKernel:
        """Return the kernel of the rows `chosen`, which are fetched into this process."""
        return RecomputedKernel(
            self.kernel,
            self._rows_of(chosen),
            self.session,
            self.memory_limit,
            self.dtype,
            part_dtype=self.part_dtype,
            part_bytes=self.part_bytes,
            store=self.store,
        )

    def part(self, chosen: NDArray[np.intp]) -> Any:
        """Return the kernel of the rows `chosen` for many products: in memory, where `part_bytes` allow."""
        if packed_bytes(len(chosen), self.part_dtype) > self.part_bytes:
            found = self if len(chosen) == self.n else self.sub(chosen)
            # What is too large to hold is stored, if there is a store, else recomputed in every product.
            return found if self.store is None else self.store(found)
        rows = row_source(self._rows_of(chosen))
        return MemoryKernel.of(self.kernel, rows, self.part_dtype, self.session.threads)

    @property
    def held(self) -> tuple[NDArray[np.intp], str]:
        """Return the rows with points ready for the next product, and their precision ("" without any).

        They are part of what gives a product its last bits: columns without a coefficient among others are another sum.
        """
        return self._chosen, "" if self._points is None else self._points.dtype.name

    def hold(self, rows: NDArray[np.intp], dtype: str) -> None:
        """Have ready what another one held."""
        self._chosen, self._points = np.empty(0, np.intp), None
        if len(rows):
            self._keep(rows, np.dtype(dtype))

    def _rows_of(self, chosen: NDArray[np.intp]) -> Rows:
        rows = self.rows.take(chosen)
        return rows[:, chosen] if self.kernel.is_precomputed else rows

    def _keep(self, support: NDArray[np.intp], dtype: np.dtype) -> None:
        """Have the points of the support ready: those of the last product where they include it and are few more."""
        # Points of a larger support serve as well: the others' coefficients are 0.
        held = np.isin(support, self._chosen, assume_unique=True).all()
        if held and len(self._chosen) <= LOOSE * len(support) and self._points.dtype == dtype:
            return
        self._chosen, self._points = support, None  # the old ones go before the new ones come
        self._points = Points.of(self.rows, self.kernel, support, dtype)


def finite(values: NDArray[np.floating], kernel: Kernel) -> NDArray[np.floating]:
    """Return `values` themselves; InputError if one is NaN or infinite, as the kernel overflowed."""
    if not np.isfinite(values).all():
        raise InputError("the kernel is not finite", where=kernel.where, remedy="scale the columns of X")
    return values


class Points:
    """The points of some columns, prepared once in each process that computes with them.

    Pickled without what is prepared: recomputing that is cheaper than sending it.
    """

    def __init__(self, kernel: Kernel, points: Rows, dtype: DTypeLike) -> None:
        self.kernel, self.points, self.dtype = kernel, points, np.dtype(dtype)
        self._lock = Lock()

    @classmethod
    def of(cls, rows: RowBlocks, kernel: Kernel, chosen: NDArray[np.intp], dtype: DTypeLike = np.float64) -> Points:
        """Return the points of the columns `chosen`: their rows, or numbers if the kernel is precomputed."""
        return cls(kernel, chosen if kernel.is_precomputed else rows.take(chosen), dtype)

    @property
    def nbytes(self) -> int:
        """Return the bytes of the points; a large argument is sent to workers once (see `RowBlocks`)."""
        return int(self.points.data.nbytes if sp.issparse(self.points) else self.points.nbytes)

    def __getstate__(self) -> tuple[object, ...]:
        return self.kernel, self.points, self.dtype

    def __setstate__(self, state: tuple[object, ...]) -> None:
        self.__init__(*state)  # type: ignore[misc]

    @cached_property
    def _prepared(self) -> Any:
        return self.kernel.prepared(self.points, self.dtype)

    def columns(self, rows: Any, first: int = 0, last: int | None = None) -> NDArray[np.floating]:
        """Return (t, M) of the kernel at rows, in `dtype`; of points `first` to `last` (excluded) alone."""
        # The threads of a worker share this object: one prepares, the others wait for it.
        with self._lock:
            prepared = self._prepared
        if (first, last) != (0, None):
            is_gaussian = isinstance(prepared, GaussianPoints)
            prepared = prepared.since(first, last) if is_gaussian else prepared[first:last]
        return self.kernel.columns(rows, prepared, self.dtype)


def product_block(block: Block, points: Points, factors: Vector) -> Vector:
    """Return (t,) K v on the rows of a block; `factors` (M,) are the entries of v at the points."""
    out = np.empty(block.rows.shape[0])
    # In the columns' precision, as a mixed product would convert the columns.
    weights = factors.astype(points.dtype)
    # Some rows at a time, so that the columns stay within a bound of memory.
    step = max(1, min(ROWS_AT_A_TIME, COLUMNS_BYTES // max(1, weights.nbytes)))
    for lo in range(0, len(out), step):
        out[lo : lo + step] = points.columns(block.rows[lo : lo + step]) @ weights
    return out


def columns_block(block: Block, points: Points) -> NDArray[np.float64]:
    """Return (t, M) float64: the columns of the points on the rows of a block."""
    return np.asarray(points.columns(block.rows), np.float64)


def diagonal_block(block: Block, kernel: Kernel) -> Vector:
    """Return (t,) K_ii of the rows of a block."""
    return kernel.diagonal(block.rows, np.arange(block.start, block.stop))
