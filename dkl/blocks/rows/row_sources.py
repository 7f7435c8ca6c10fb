"""Sources of rows with one interface: n, n_features, dtype to work in, and reading a range of rows.

A source reads in the process that holds it. What a worker can open by itself (`StoredRows`) is sent as it is; what
only this process has is sent as rows.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dkl.errors import InputError, InputTypeError
from dkl.io.plain_arrays import plain_rows, refuse_packed_blocks, refuse_promise, refuse_rounded, unpacked
from dkl.resources import DISK, spending
from dkl.stores.rows import StoredRows, held_rows, stored_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import DTypeLike

Rows = Any
"""(m, r) C-contiguous, aligned ndarray of float32 or float64, or scipy.sparse.csr_array of one of them."""


MOST_SPARSE_COLUMNS = 2**26
"""Largest number of columns, empty ones too, of sparse rows.

Transposed, or made dense one by one, these take 8 bytes a column, half a gigabyte."""


class RowSource:
    """Rows of a 2-d `array`, of which `array[start:stop]` or `array.read(start, stop)` gives some.

    start: number of its first row in the whole, where the array is a part. own_bytes: of the array where it was read from
    a file for this work, and so counts in its memory plan; a user's own array does not. is_scaled: whether its columns
    are standardized (estimators/base/standardize.py). Attributes: n, n_features, dtype (float32 or float64, in which rows are read);
    names (n_features) of columns and ids (n,) of rows, where they come from a table that has them, and a note of how that was read.
    """

    def __init__(self, array: Any, start: int = 0, own_bytes: int = 0, *, is_scaled: bool = False) -> None:
        self.array, self.start, self.own_bytes, self.is_scaled = array, start, own_bytes, is_scaled
        self.n, self.n_features = array.shape
        self.dtype = working_dtype(array.dtype)
        self.names: tuple[str, ...] | None = None
        self.ids: NDArray[np.str_] | None = None
        self.note = ""

    @property
    def row_bytes(self) -> int:
        """Return the bytes a row takes once read; of sparse rows, on average."""
        if self.is_sparse:
            return max(1, self.entries * (self.dtype.itemsize + 4) // max(1, self.n))
        return max(1, self.n_features * self.dtype.itemsize)

    @property
    def rows_per_chunk(self) -> int:
        """Return the rows read together: of a stored or Dask array, the largest chunk; else 1."""
        if isinstance(self.array, StoredRows):
            return self.array.rows_per_chunk
        return max(self.array.chunks[0]) if self.is_dask else 1

    @cached_property
    def entries(self) -> int:
        """Return the stored entries of sparse rows; of a Dask array, found by a pass over it."""
        if not self.is_dask:
            return int(self.array.nnz)

        return stored_entries(self.array)

    @property
    def is_sparse(self) -> bool:
        """Return whether rows are read as scipy sparse matrices: of one in memory, or of a Dask array of them."""
        return bool(sp.issparse(self.array._meta if self.is_dask else self.array))

    @property
    def is_in_memory(self) -> bool:
        """Return whether the rows are an ndarray or sparse matrix of this process."""
        return isinstance(self.array, np.ndarray) or bool(sp.issparse(self.array))

    @property
    def is_in_place(self) -> bool:
        """Return whether rows are used without copies, from this process' memory or a mapped file."""
        return (self.is_in_memory or self.is_mapped) and self.array.dtype == self.dtype

    @property
    def is_stored(self) -> bool:
        """Return whether the rows are stored on disk or in a store, so that a worker can open them itself."""
        return isinstance(self.array, StoredRows)

    @property
    def is_mapped(self) -> bool:
        """Return whether the rows are a memory-mapped file, whose pages the system can drop at any time."""
        return isinstance(self.array, StoredRows) and self.array.mapped

    @property
    def is_dask(self) -> bool:
        """Return whether the rows are a dask array."""
        return is_dask_array(self.array)

    @property
    def is_foreign(self) -> bool:
        """Return whether the rows are of another kind, which only this process is known to be able to read."""
        return not (self.is_in_memory or self.is_stored or self.is_dask)

    def read(self, start: int, stop: int) -> Rows:
        """Read rows start to stop of the whole, contiguous and in `dtype`; rows in memory may be views."""
        first, start, stop = start, start - self.start, stop - self.start
        if isinstance(self.array, StoredRows):
            with spending(DISK):
                return tidy(self.array.read(start, stop), self.dtype, first)
        part = self.array[start:stop]
        part = part.compute() if self.is_dask else plain_rows(part, first=(first, 0))
        if sp.issparse(part) and not self.is_sparse:  # of another library's array, which does not say so before
            part = part.toarray()
        return tidy(part, self.dtype, first)

    def load(self, bounds: list[tuple[int, int]]) -> RowSource:
        """Read the rows from the first bound to the last into this process' memory, block by block."""
        start, stop = bounds[0][0], bounds[-1][1]
        if self.is_dask:
            return RowSource(self.read(start, stop), start)  # one graph, and Dask's own threads
        # Into one array, block by block: concatenating would hold the rows twice.
        rows = np.empty((stop - start, self.n_features), self.dtype)
        for lo, hi in bounds:
            rows[lo - start : hi - start] = self.read(lo, hi)
        return RowSource(rows, start)

    def part(self, start: int, stop: int) -> RowSource:
        """Return rows start to stop as a source in memory, for a worker; contiguous rows are not copied."""
        return RowSource(self.read(start, stop), start)


def row_source(X: Any, *, where: str = "X") -> RowSource:
    """Return a source of the rows of `X`; raise InputError if unsupported, empty or not of real numbers.

    X: ndarray, memory map, scipy sparse, dask or zarr array, dask data frame, a path to .npy or zarr or the address of
    one in a store, or any other 2-d object with shape, dtype and slices of rows; or a source already.
    """
    if isinstance(X, RowSource):
        return X
    refuse_promise(X, where)
    if is_dask(X):
        X = checked_blocks(X, where)
    X = held_rows(X)
    # First what a worker can open by itself: a memory map is an ndarray too.
    array = stored_rows(X)
    if array is None:
        array = X.tocsr() if sp.issparse(X) else unpacked(X, where)
    if sp.issparse(array):
        # A csr_matrix too: `*` and slices of the two mean different things.
        array = sp.csr_array(array)
    shape = getattr(array, "shape", None)
    if shape is None or not hasattr(array, "dtype"):
        wanted = "an array, or a path to a .npy file or zarr array"
        raise InputError("not an array", where=where, got=type(X).__name__, wanted=wanted)
    check_shape(shape, where)
    if sp.issparse(array) and shape[1] > MOST_SPARSE_COLUMNS:
        wanted, remedy = f"at most {MOST_SPARSE_COLUMNS:,}", "number the columns that are used, or hash them to fewer"
        raise InputError("too many columns", where=where, got=f"shape {shape}", wanted=wanted, remedy=remedy)
    return RowSource(array)


def check_shape(shape: tuple[float, ...], where: str) -> None:
    """Raise InputError for an array that is not 2-d or has no rows or columns; sizes that Dask does not know are NaN."""
    if len(shape) != 2:
        raise InputError("rows must be 2-d", where=where, got=f"shape {shape}", wanted="(n_samples, n_features)")
    if shape[0] == 0 or shape[1] == 0:
        got = f"shape {tuple(shape)}"
        raise InputError("no rows or no columns", where=where, got=got, wanted="a minimum of 1 is required of each")


def working_dtype(dtype: DTypeLike) -> np.dtype:
    """Return the dtype to read rows in: float32 for up to 32-bit floats, else float64, or InputError."""
    try:
        dtype = np.dtype(dtype)
    except TypeError as error:  # another library's
        raise InputTypeError("rows must be NumPy's numbers", where="X", got=f"dtype {dtype}") from error
    if dtype.kind not in "biuf":
        raise InputError("rows must be real numbers", where="X", got=f"dtype {dtype}", wanted="float32 or float64")
    return np.dtype(np.float32) if dtype in (np.float16, np.float32) else np.dtype(np.float64)


def bytes_of_rows(rows: Any) -> int:
    """Return the bytes of rows, dense or CSR, or of another object that says them as `nbytes`; 0 of one that does not."""
    if hasattr(rows, "indptr"):  # CSR, of which scipy says none
        return int(rows.data.nbytes + rows.indices.nbytes + rows.indptr.nbytes)
    return int(getattr(rows, "nbytes", 0))


def tidy(rows: Rows, dtype: np.dtype, first: int = 0) -> Rows:
    """Return `rows` C-contiguous and aligned in `dtype`, or CSR, as kernels need; copied only if not so.

    first: the number in the whole of their first row. Raises InputError for an integer that would be rounded.

    Arrays that came over a network may be misaligned, which changes the path NumPy takes and so the last bits.
    """
    refuse_rounded(rows, first=first)
    if sp.issparse(rows):
        return sp.csr_array(rows, dtype=dtype)
    return np.require(np.asarray(rows), dtype=dtype, requirements=["C", "A"])


def is_dask_array(array: object) -> bool:
    """Return whether `array` is a dask array.

    Decided by the name of its class: dask.array takes 0.3 s to import, and only its own arrays need it.
    """
    return type(array).__module__.startswith("dask.array") and hasattr(array, "rechunk")


def is_dask(X: Any) -> bool:
    """Return whether `X` is a Dask array, or a Dask data frame or a column of one."""
    return is_dask_array(X) or is_dask_frame(X)


def is_dask_frame(X: object) -> bool:
    """Return whether `X` is a Dask data frame, or a column of one; decided by the name of its class, too."""
    return type(X).__module__.startswith(("dask.dataframe", "dask_expr")) and hasattr(X, "map_partitions")


# Rows in Dask's arrays and data frames: each block is checked as it is read, whatever the collection says of itself.
#
# What a collection says (its meta) decides the form that all rows are read in, dense or sparse; blocks of the other
# form are converted.

PREFIX = "dkl-rows-"
"""Prefix of the names of arrays whose blocks are checked."""


def checked_blocks(X: Any, where: str = "X", *, counted: bool = True) -> Any:
    """Return a Dask array of the rows of a Dask array or data frame, whose blocks are ndarrays, or csr_arrays where its meta is sparse.

    counted: whether sizes that Dask does not know, and those of a data frame, are counted, by a pass over X; else they stay unknown.
    InputError for what is not two-dimensional, and for a data frame with a column that is not of numbers; computing a block raises
    InputError for masked values, and for a block of another type or shape.
    """
    if X.ndim != 2:
        got, wanted = f"{X.ndim} dimension{'s' if X.ndim > 1 else ''}", "(n_samples, n_features)"
        raise InputError("rows must be 2-d", where=where, got=got, wanted=wanted)
    array = X if hasattr(X, "rechunk") else _array_of_frame(X, where, counted)
    # Made here before: its blocks check themselves.
    if array.name.startswith(PREFIX):
        return array
    refuse_packed_blocks(array, where)
    # NaN is Dask's size of what it has not counted.
    if counted and any(size != size for size in array.shape):
        array = _with_sizes(array)
    from dask.base import tokenize

    is_sparse = bool(sp.issparse(array._meta))
    meta: Any = sp.csr_array((0, array.shape[1]), dtype=array.dtype) if is_sparse else np.empty((0, 0), array.dtype)
    name = PREFIX + tokenize(array.name, array.chunks, where)
    return array.map_blocks(_checked, is_sparse, where, array.dtype, dtype=array.dtype, meta=meta, name=name)


def stored_entries(array: Any) -> int:
    """Return the number of stored entries of a Dask array of sparse blocks, by a pass over it."""
    import dask

    return sum(dask.compute(*(dask.delayed(_entries)(block) for block in array.to_delayed().ravel())))


def _checked(block: Any, is_sparse: bool, where: str, dtype: np.dtype, block_info: Any = None) -> Any:
    """Task: a block as `checked_blocks` promises it; InputError for any other. dtype: what the array says of it."""
    where, first = place_of_block(where, block_info[0])
    wanted = block_info[None]["chunk-shape"]
    rows = plain_rows(block, where, first)
    if rows.ndim != 2 or any(said == said and said != size for said, size in zip(wanted, rows.shape, strict=True)):
        place = f"{where}, the block from row {first[0]}"
        got, wanted = f"shape {rows.shape}", f"({', '.join(str(size) for size in wanted)})"
        raise InputError("a block of another shape than the array says", where=place, got=got, wanted=wanted)
    if dtype.kind == "f":  # of integers, a block that has fractions keeps them
        with np.errstate(over="ignore"):
            rows = rows.astype(dtype, copy=False)
    if is_sparse:
        return sp.csr_array(rows)
    return rows.toarray() if sp.issparse(rows) else rows


def place_of_block(where: str, info: Any) -> tuple[str, tuple[int, int]]:
    """Return the name of what the places of a block are counted in, and the place there of the block's first entry.

    That is the array, or the block itself where Dask does not know the sizes of those before it. info: Dask's of the block.
    """
    starts = [start for start, _ in info["array-location"]]
    if all(start == start for start in starts):
        return where, (int(starts[0]), int(starts[1]))
    return f"{where}.blocks[{', '.join(map(str, info['chunk-location']))}]", (0, 0)


def _entries(block: Rows) -> int:
    """Task: stored entries of a sparse block."""
    return int(block.nnz)


def _with_sizes(array: Any) -> Any:
    """Return the same array with its sizes counted; that of the user is not changed."""
    import dask.array as da

    # On a second array of the same graph: `compute_chunk_sizes` changes the one it is called on.
    return da.Array(array.dask, array.name, array.chunks, meta=array._meta).compute_chunk_sizes()


def _array_of_frame(X: Any, where: str, counted: bool) -> Any:
    """Return a Dask array of a data frame's numbers, a block a partition, in float32 or float64.

    float32 where all columns are float16 or float32. counted: whether the rows of partitions are counted, and empty ones left out.
    """
    import dask
    import dask.array as da

    kinds = X._meta.dtypes
    for name, kind in kinds.items():
        if getattr(kind, "kind", "O") not in "biuf":
            wanted, remedy = "a column of numbers", "leave the column out, or make numbers of it"
            raise InputTypeError(
                "not numbers", where=f"{where}[{name!r}]", got=f"dtype {kind}", wanted=wanted, remedy=remedy
            )
    dtype = np.float32 if all(str(kind).lower() in ("float16", "float32") for kind in kinds) else np.float64
    lengths = [int(n) for n in X.map_partitions(len).compute()] if counted else [np.nan] * X.npartitions
    parts, names = X.to_delayed(), list(X.columns)
    blocks = [
        da.from_delayed(dask.delayed(_numbers)(part, names, dtype, where), (length, len(names)), dtype=dtype)
        for part, length in zip(parts, lengths, strict=True)
        if length
    ]
    return da.concatenate(blocks) if blocks else da.zeros((0, len(names)), dtype=dtype)


def _numbers(part: Any, names: Sequence[object], dtype: DTypeLike | None, where: str) -> NDArray[np.floating]:
    """Task: the numbers of a partition; NaN for missing ones. InputError where its columns are others than the frame says."""
    if list(part.columns) != names:
        got, wanted = f"{list(part.columns)}"[:80], f"{names}"[:80]
        raise InputError("columns of a partition differ from those of the frame", where=where, got=got, wanted=wanted)
    refuse_rounded(part, where)
    try:
        return np.asarray(part.to_numpy(dtype, na_value=np.nan))
    except (TypeError, ValueError) as error:
        raise InputTypeError(
            "a partition that does not hold numbers", where=where, got=error, wanted="numbers"
        ) from error
