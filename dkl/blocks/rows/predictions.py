"""Predictions for rows: a block's by kernel columns, of few rows without a pass, and of Dask's collections; lazy kernels of rows.

A block's are sum_m w_m k(x, x_m) / sqrt(k(x_m, x_m)) + intercept (Machart et al. 2011, (16)). Plans and prepared points take ten times
as long as the prediction of few rows.

Results for Dask's collections, and kernels of their rows, are dask arrays whose blocks are computed when they are read.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dkl.blocks.rows.row_blocks import RowBlocks
from dkl.blocks.rows.row_pieces import Block, require_finite
from dkl.blocks.rows.row_sources import check_shape, checked_blocks, place_of_block, tidy, working_dtype
from dkl.blocks.session import Session
from dkl.errors import InputError
from dkl.io.plain_arrays import refuse_overflow
from dkl.linalg.kernels.kernel_columns import Kernel
from dkl.resources import one_blas_thread, parse_bytes

if TYPE_CHECKING:
    from dkl.blocks.session import Out
    from dkl.linalg.rows import Rows

    KernelBlock = Callable[[Rows, Rows | None], NDArray[np.float64]]


FEW, FEW_BYTES = 64, 2 * 10**6
"""Maximum numbers of rows and bytes that count as few: one block of a pass, so that bits are equal."""
KEPT_BYTES = 256 * 10**6
"""Largest bytes of prepared points that a model keeps in addition to its own."""


MAX_KERNELS = 8
"""Most kernels for which a model keeps its points prepared."""


class FewRows:
    """Few dense rows in memory: `map` as that of `RowBlocks`, in this thread."""

    is_sparse = False

    def __init__(self, rows: Rows) -> None:
        self.dtype = working_dtype(rows.dtype)
        self.rows, self.n = tidy(rows, self.dtype), len(rows)

    def map(self, function: Callable[..., Out], *shared: object, only: Collection[int] | None = None) -> list[Out]:
        """Return [function(block, *shared)] of the only block; [] where `only` does not name it."""
        if only is not None and 0 not in only:
            return []
        with one_blas_thread():
            return [function(Block(0, 0, self.n, self.rows, {}), *shared)]


def rows_to_predict(X: Any, session: Session, memory_limit: int | float | str | None) -> RowBlocks | FewRows:
    """Return the checked rows X (m, d) for a model: few in memory, or blocks of them on `session`."""
    is_few = type(X) is np.ndarray and 0 < len(X) <= FEW and X.nbytes <= FEW_BYTES and not session.is_distributed
    if not is_few or X.shape[1] == 0:
        return RowBlocks(X, session, memory_limit)
    parse_bytes(memory_limit)
    return FewRows(X)


class KeptPoints:
    """A model's points and, once few rows were predicted, all that its kernels can compute of them beforehand.

    Copies and pickles have the points alone, which pickle stores once with the model's own.
    """

    def __init__(self, points: Rows) -> None:
        self.points = points
        self._prepared: list[tuple[Kernel, Any]] = []

    def __getstate__(self) -> Any:
        return self.points

    def __setstate__(self, points: Rows) -> None:
        self.__init__(points)  # type: ignore[misc]

    def for_rows(self, rows: RowBlocks | FewRows, kernel: Kernel) -> Rows:
        """Return the points as `kernel` takes them with these rows."""
        if not isinstance(rows, FewRows) or self.points.shape[0] == 0:
            return self.points
        return self.remembered(kernel, lambda: kernel.prepared(self.points))

    def remembered(self, kernel: Kernel, make: Callable[[], Any]) -> Any:
        """Return what `make` has made of the points for this kernel, or makes now, and keep it unless it is large."""
        for of, prepared in self._prepared:
            if of is kernel or of == kernel:
                return prepared
        prepared = make()
        if prepared is not self.points and prepared.nbytes <= KEPT_BYTES:
            self._prepared = [*self._prepared[1 - MAX_KERNELS :], (kernel, prepared)]
        return prepared


TILE_BYTES = 16_000_000
"""Bytes of the kernel columns that are computed at a time."""


@np.errstate(over="ignore", invalid="ignore")  # raised as an InputError instead
def predict_block(
    block: Block, kernel: Kernel, points: Rows, weights: NDArray[np.float64], intercepts: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Predict (t, T) for the rows of a block. weights (T, m) have the columns' scale; intercepts (T,).

    In double whatever the fit was in: large weights of both signs cancel. Raises InputError where rows or predictions are
    not finite.
    """
    require_finite(block)
    # The order in memory chooses the BLAS kernel, and with it the last bits: weights fitted, loaded and sent must be alike.
    weights = np.require(weights, requirements=["C", "A"])
    out = np.empty((block.rows.shape[0], len(weights)))
    out[:] = intercepts
    if weights.shape[1]:
        step = max(1, TILE_BYTES // (8 * weights.shape[1]))
        # Once a block: of many points it costs as much as the columns of some hundred rows.
        prepared = points if sp.issparse(block.rows) else kernel.prepared(points)
        for lo in range(0, len(out), step):
            out[lo : lo + step] += kernel.columns(block.rows[lo : lo + step], prepared) @ weights.T
        if not np.isfinite(out).all():
            raise kernel.not_finite(f"predictions that are not finite in rows {block.start} to {block.stop - 1}")
    return out


@np.errstate(over="ignore", invalid="ignore")  # raised as an InputError instead
def kernel_block(block: Block, kernel: Kernel, points: Rows) -> NDArray[np.float64]:
    """Return k(x, x_m) (t, M) of the rows of a block. Raises InputError where rows or values are not finite."""
    require_finite(block)
    found = np.asarray(kernel.columns(block.rows, points), np.float64)
    if not np.isfinite(found).all():
        raise kernel.not_finite(f"values that are not finite in rows {block.start} to {block.stop - 1}")
    return found


def lazy_rows(X: Any) -> Any:
    """Return the rows of a Dask array or data frame as a dask array of whole rows; nothing is computed.

    Chunks of rows stay as they are, those of columns become one. Sizes of chunks of rows that Dask does not know stay unknown, as
    those of a data frame are. InputError for what is not two-dimensional, not of real numbers, has no rows, or columns whose number
    is not known.
    """
    rows = checked_blocks(X, counted=False)
    check_shape(rows.shape, "X")
    working_dtype(rows.dtype)
    if rows.shape[1] != rows.shape[1]:
        remedy = "call X.compute_chunk_sizes() first"
        raise InputError("Dask does not know the number of columns", where="X", got=f"shape {X.shape}", remedy=remedy)
    return rows if rows.numblocks[1] == 1 else rows.rechunk({1: -1})


def lazy_results(model: object, verb: str, rows: Any, like: NDArray) -> Any:
    """Return model.verb(block) of blocks of whole rows, as a dask array of the same chunks of rows.

    rows: as of `lazy_rows`; verb: name of a method; like: an empty array, (0,) or (0, k), of its results' type. The model is one task of
    the graph. Of a block without rows nothing is asked. Errors name the places of a block in the whole.
    """
    import dask

    name = unique_name(f"{type(model).__name__}-{verb}")
    held = dask.delayed(model, name=f"{name}-model", traverse=False)
    form: dict[str, Any] = {"drop_axis": 1} if like.ndim == 1 else {"chunks": (rows.chunks[0], (like.shape[1],))}
    return rows.map_blocks(_result, held, verb, like, dtype=like.dtype, meta=like, name=name, **form)


def unique_name(what: str) -> str:
    """Return a name that no other dask array has: that of equal rows by another model would be taken for this one."""
    return f"dkl-{what}-{uuid.uuid4().hex}"


def _result(block: Rows, model: object, verb: str, like: NDArray, block_info: Any = None) -> NDArray:
    """Task: the results for a block of rows."""
    if not block.shape[0]:
        return like
    try:
        return np.asarray(getattr(model, verb)(block))
    except InputError as error:
        where, (first, _) = place_of_block("X", block_info[0])
        found = re.fullmatch(r"X\[(\d+)(.*)", error.where or "")
        if found is None:
            raise
        raise error.named(found[0], f"{where}[{first + int(found[1])}{found[2]}") from error


BLOCK = 2048
"""Rows and columns of a block of a kernel that is computed as it is read: 34 MB."""


def kernel_of_rows(block: KernelBlock, rows: Rows, others: Rows | None, *, lazy: bool, is_precomputed: bool) -> Any:
    """Return block(rows, others) of checked rows; where `lazy`, a dask array that computes it by blocks.

    Rows of a precomputed kernel belong to all its columns: those are computed now, and cut into blocks.
    """
    if lazy and not is_precomputed:
        return lazy_kernel(block, rows, others)
    with np.errstate(over="ignore", invalid="ignore"):  # refused by value
        found = block(rows, others)
    refuse_overflow(found, rows, others)
    if not lazy:
        return found
    import dask.array as da

    return da.from_array(found, chunks=(BLOCK, BLOCK), name=unique_name("kernel"))


@contextmanager
def naming_z() -> Iterator[None]:
    """Have an InputError about the rows X, raised by checks of rows of any name, speak of Z."""
    try:
        yield
    except InputError as error:
        if not (error.where or "").startswith("X"):
            raise
        raise error.named("X", "Z") from error


def lazy_kernel(block: KernelBlock, rows: Rows, others: Rows | None, *, is_of_user: bool = True) -> Any:
    """Return a dask array (m, l) whose blocks are block(rows[i], others[j]), of rows with themselves where others are None.

    is_of_user: whether rows and others are the user's X and Z, so that an error names their values.
    Computing a block raises InputError where its values are not finite, as all at once do.
    """
    import dask.array as da

    columns = rows if others is None else others
    cut = [
        da.from_array(part, chunks=(BLOCK, part.shape[1]), name=unique_name(what), asarray=False)
        for what, part in (("rows", rows), ("columns", columns))
    ]
    numbers = [da.arange(len_of, chunks=BLOCK) for len_of in (rows.shape[0], columns.shape[0])]
    of_block = partial(_finite_block, block, ("X" if others is None else "Z") if is_of_user else None)
    return da.blockwise(
        of_block, "ij", cut[0], "ik", cut[1], "jk", numbers[0], "i", numbers[1], "j", dtype=np.float64, concatenate=True,
        meta=np.empty((0, 0)), name=unique_name("kernel"),
    )  # fmt: skip


def _finite_block(
    block: KernelBlock, of_others: str | None, rows: Rows, others: Rows, i: NDArray[np.intp], j: NDArray[np.intp]
) -> NDArray[np.float64]:
    """Task: block(rows, others), whose numbers in the whole are i and j; InputError for values that are not finite.

    of_others: what the user calls the others; None where neither rows nor others are the user's.
    """
    try:
        with np.errstate(over="ignore", invalid="ignore"):  # refused by value
            found = block(rows, others)
        refuse_overflow(found, *((None,) if of_others is None else (rows, others)))
    except InputError as error:
        place = re.fullmatch(r"([XZ])\[(\d+)(.*)", error.where or "")
        if of_others is None or place is None:
            raise
        name, first = ("X", i[0]) if place[1] == "X" else (of_others, j[0])
        raise error.named(place[0], f"{name}[{first + int(place[2])}{place[3]}") from error
    return found
