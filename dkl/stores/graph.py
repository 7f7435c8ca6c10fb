"""A sparse matrix on disk as CSR blocks of rows, zarr v3: the graph Laplacian, for any reader of anndata's layout.

    root                attrs: kind, version, shape, nnz, row_bounds [0, ..., n], blocks (a checksum of each one's
                        attributes), and the writer's own (sigma, ...)
    block_00017/        attrs: encoding-type csr_matrix, encoding-version 0.1.0, shape, nnz, crc32 of each array
        data            float64 (nnz,)     one chunk each, closed by a crc32c; the indices are compressed
        indices         int32 (nnz,)       sorted within a row; int64 where there are 2^31 columns or more
        indptr          int64 (rows + 1,)

The root's attributes are written after all blocks: a store that has them is whole. In zarr a missing chunk reads as
zeros, without an error; so each array is compared with the checksum in its block's attributes, and these with those in
the root's: of two blocks that were swapped each is whole.
"""

from __future__ import annotations

import json
import zlib
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, vstack

from dkl.errors import InputError, StoreError
from dkl.stores.arrays import create_array, layout_of, require
from dkl.stores.folders import disk_errors
from dkl.stores.registry import COMPRESSED, StoredArray

if TYPE_CHECKING:  # what declares the arrays, and plans, does not wait for zarr
    import zarr

    from dkl.stores.seals import Json

    Target = str | Path | zarr.Group
    """Location of a store that exists or is to be created."""

KIND, VERSION = "dkl.csr-blocks", 1
_RESERVED = {"kind", "version", "shape", "nnz", "row_bounds", "blocks"}
_ENCODING = {"encoding-type": "csr_matrix", "encoding-version": "0.1.0"}

# The format is anndata's: dimensions have no names, and zeros stand for what is not there, so every chunk is written.
DATA = StoredArray(
    "graph/block_*/data",
    ("entry",),
    ("float64",),
    "Entries of the rows of a block of the graph Laplacian L, row by row.",
    fill=0,
    named=False,
)
INDICES = replace(
    DATA.at("graph/block_*/indices", "Columns of the entries, ascending within a row; int64 from 2^31 columns on."),
    dtypes=("int32", "int64"),
    codecs=COMPRESSED,
)
INDPTR = replace(
    DATA.at("graph/block_*/indptr", "Where each row of the block begins among the entries; last, how many there are."),
    dims=("row_bound",),
    dtypes=("int64",),
    codecs=COMPRESSED,
)
GRAPH = {one.name: one for one in (DATA, INDICES, INDPTR)}


def write_csr_blocks(target: Target, csr: csr_array, rows_per_block: int, attrs: Json | None = None) -> None:
    """Store `csr` (n, m) as blocks of `rows_per_block` rows, with `attrs` (JSON) next to the store's own.

    `target`: a path where nothing is yet, or an empty group. Raises InputError, DiskError, and StoreError if in use.
    """
    notes = _json(attrs or {})
    if rows_per_block < 1:
        raise InputError("a block needs a row", where="rows_per_block", got=rows_per_block, wanted=">= 1")
    if csr.ndim != 2 or min(csr.shape) < 1:
        raise InputError("not a matrix with rows and columns", where="csr", got=f"shape {csr.shape}")
    csr = csr_array(csr, dtype=np.float64)
    if not csr.has_canonical_format:
        # A copy, as `sum_duplicates` works in place.
        csr = csr.copy()
        csr.sum_duplicates()
    with disk_errors("the graph could not be written", target if isinstance(target, str | Path) else _name(target)):
        _write_all(_new_group(target), csr, [*range(0, csr.shape[0], rows_per_block), csr.shape[0]], notes)


def _write_all(group: zarr.Group, csr: csr_array, bounds: list[int], notes: Json) -> None:
    blocks = [_write_block(group, number, csr[lo:hi]) for number, (lo, hi) in enumerate(pairwise(bounds))]
    own: Json = {
        "kind": KIND,
        "version": VERSION,
        "shape": list(csr.shape),
        "nnz": int(csr.nnz),
        "row_bounds": bounds,
        "blocks": blocks,
    }
    group.attrs.put({**notes, **own})


def open_csr_blocks(target: Target) -> zarr.Group:
    """Open the group at `target` for reading, with its root attributes checked. Raises StoreError."""
    group = _existing_group(target)
    attrs, where = _attributes(group), _name(group)
    if "kind" not in attrs:
        raise StoreError("half written, or not a graph", where=where, remedy="write it again")
    if (attrs["kind"], attrs.get("version")) != (KIND, VERSION):
        got = f"kind {attrs['kind']!r}, version {attrs.get('version')!r}"
        raise StoreError("not a store that is understood here", where=where, got=got, wanted=f"{KIND!r}, {VERSION}")
    shape: Any = attrs.get("shape")
    bounds: Any = attrs.get("row_bounds")
    nnz = attrs.get("nnz")
    if not (_are_counts(shape, 2) and _are_counts([nnz]) and _are_bounds(bounds, shape[0])):
        raise StoreError("shape, nnz and row_bounds do not make sense", where=where, got=f"{shape}, {nnz}, {bounds}")
    if not _are_counts(attrs.get("blocks", bounds[1:]), len(bounds) - 1):  # earlier stores have none
        raise StoreError("checksums of the blocks that make no sense", where=where)
    return group


def read_csr_rows(target: Target, lo: int, hi: int) -> csr_array:
    """Read rows lo to hi, (hi - lo, m), from the blocks they touch.

    Raises InputError (range), StoreError (damage).
    """
    group = open_csr_blocks(target)
    attrs = _attributes(group)
    bounds, (n, m), known = attrs["row_bounds"], attrs["shape"], attrs.get("blocks")
    if not 0 <= lo <= hi <= n:
        raise InputError("rows out of range", where=_name(group), got=f"{lo} to {hi}", wanted=f"0 <= lo <= hi <= {n}")
    if lo == hi:
        return csr_array((0, m), dtype=np.float64)
    first = int(np.searchsorted(bounds, lo, side="right")) - 1
    last = int(np.searchsorted(bounds, hi, side="left"))
    parts = []
    for number in range(first, last):
        start, stop = bounds[number], bounds[number + 1]
        block = _read_block(group, number, (stop - start, m), known[number] if known else None)
        inside = start >= lo and stop <= hi
        parts.append(block if inside else block[max(lo, start) - start : min(hi, stop) - start])
    return parts[0] if len(parts) == 1 else csr_array(vstack(parts, format="csr"))


def n_rows_in(target: Target) -> int:
    """Return the number of rows of the matrix. Raises StoreError."""
    return int(_attributes(open_csr_blocks(target))["shape"][0])


def read_csr(target: Target) -> csr_array:
    """Read the whole matrix, with its number of entries checked. Raises StoreError."""
    group = open_csr_blocks(target)
    attrs = _attributes(group)
    csr = read_csr_rows(group, 0, attrs["shape"][0])
    if csr.nnz != attrs["nnz"]:
        raise StoreError("entries are missing", where=_name(group), got=csr.nnz, wanted=attrs["nnz"])
    return csr


def _write_block(group: zarr.Group, number: int, block: csr_array) -> int:
    """Store a block; the checksum of its attributes, which hold those of its arrays."""
    width = np.int32 if block.shape[1] <= np.iinfo(np.int32).max else np.int64
    arrays = {
        "data": block.data,
        "indices": block.indices.astype(width),
        "indptr": block.indptr.astype(np.int64),
    }
    attrs = {
        **_ENCODING,
        "shape": list(block.shape),
        "nnz": int(block.nnz),
        "crc32": {name: _checksum(array) for name, array in arrays.items()},
    }
    child = group.create_group(_block_name(number), attributes=attrs)
    for name, array in arrays.items():
        stored = create_array((child, name), GRAPH[name], array.shape, array.dtype)
        if array.size:
            stored[:] = array
    return _sum_of(attrs)


def _read_block(group: zarr.Group, number: int, shape: tuple[int, int], known: int | None) -> csr_array:
    """Read a block; `known`: checksum of its attributes, or None.

    None in stores that were written before the root had checksums.
    """
    name = _block_name(number)
    where = f"{_name(group)}/{name}"
    try:
        child = group[name]
        attrs = _attributes(child)
        claims = {"shape": attrs.get("shape"), "encoding-type": attrs.get("encoding-type")}
        wanted = {"shape": list(shape), "encoding-type": "csr_matrix"}
        if claims != wanted or not _are_counts([attrs.get("nnz")]) or not isinstance(attrs.get("crc32"), dict):
            raise StoreError("a block is not what the root says", where=where, got=claims, wanted=wanted)
        if known is not None and known != _sum_of(attrs):
            raise StoreError("not the block that was written here", where=where, remedy="write the store again")
        nnz = attrs["nnz"]
        sizes = {"data": nnz, "indices": nnz, "indptr": shape[0] + 1}
        arrays = {key: _read_array(child, key, size, attrs["crc32"], where) for key, size in sizes.items()}
    except (KeyError, ValueError, OverflowError, TypeError, AttributeError, RuntimeError, OSError) as error:
        got = f"{type(error).__name__}: {error}"
        raise StoreError(
            "a block is damaged or missing", where=where, got=got, remedy="write the store again"
        ) from error
    data, indices, indptr = arrays["data"], arrays["indices"], arrays["indptr"]
    if indptr[0] != 0 or indptr[-1] != nnz or (np.diff(indptr) < 0).any():
        raise StoreError("indptr does not ascend from 0 to nnz", where=where)
    if nnz and (indices.min() < 0 or indices.max() >= shape[1]):
        raise StoreError("a column lies outside the matrix", where=where, wanted=f"0 to {shape[1] - 1}")
    # Of one type, as scipy keeps both: a wider indptr would double the bytes of the columns.
    return csr_array((data, indices, indptr.astype(indices.dtype) if nnz < 2**31 else indptr), shape=shape)


def _read_array(child: Any, key: str, size: int, checksums: dict[str, int], where: str) -> NDArray:
    import zarr

    from dkl.stores.local_stores import bounded

    stored = child[key]
    # Compared before anything is read, so that a false shape cannot ask for all memory.
    sound = isinstance(stored, zarr.Array) and (stored.shape, stored.chunks) == ((size,), (max(1, size),))
    if not sound or str(stored.dtype) not in GRAPH[key].dtypes:
        got = f"{getattr(stored, 'dtype', type(stored).__name__)} {getattr(stored, 'shape', '')}"
        raise StoreError("an array is not what its block says", where=f"{where}/{key}", got=got, wanted=f"({size},)")
    require(GRAPH[key], layout_of(stored), f"{where}/{key}")
    array = np.asarray(bounded(stored)[:])
    if _checksum(array) != checksums.get(key):
        raise StoreError("a chunk is missing or altered", where=f"{where}/{key}", remedy="write the store again")
    return array


def _checksum(array: NDArray) -> int:
    return zlib.crc32(np.ascontiguousarray(array).data.cast("B"))


def _sum_of(attrs: Json) -> int:
    return zlib.crc32(json.dumps(attrs, sort_keys=True).encode())


def _block_name(number: int) -> str:
    return f"block_{number:05d}"


def _attributes(group: Any) -> Json:
    return dict(group.attrs)


def _name(group: zarr.Group) -> str:
    return str(group.store_path)


def _are_counts(values: object, size: int | None = None) -> bool:
    if not isinstance(values, list) or size not in (None, len(values)):
        return False
    return all(type(value) is int and 0 <= value < 2**63 for value in values)


def _are_bounds(bounds: Any, n: int) -> bool:
    """Return whether `bounds` are integers that ascend strictly from 0 to n."""
    return _are_counts(bounds) and bounds[:1] + bounds[-1:] == [0, n] and all(lo < hi for lo, hi in pairwise(bounds))


def _json(attrs: Json) -> Json:
    """Return `attrs` as plain JSON, with NumPy's values converted; NaN and infinity are refused."""
    if clash := _RESERVED & attrs.keys():
        raise InputError("names that the store uses itself", where="attrs", got=sorted(clash))
    try:
        return json.loads(json.dumps(attrs, allow_nan=False, default=lambda value: value.tolist()))
    except (AttributeError, TypeError, ValueError) as error:
        raise InputError("attributes that JSON cannot hold", where="attrs", got=error) from error


def _new_group(target: Target) -> zarr.Group:
    if isinstance(target, str | Path):
        import zarr

        from dkl.stores.local_stores import PrivateFiles

        path = Path(target)
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise StoreError("something is there already", where=str(path), remedy="choose a new path, or remove it")
        # Never "w", which deletes what is there.
        return zarr.open_group(PrivateFiles(path), mode="a", zarr_format=3)
    if len(target.attrs) or any(True for _ in target.keys()):  # noqa: SIM118 - a group is no dict
        raise StoreError("the group is not empty", where=_name(target), remedy="choose a new one")
    return target


def _existing_group(target: Target) -> zarr.Group:
    if not isinstance(target, str | Path):
        return target
    import zarr

    try:
        return zarr.open_group(str(target), mode="r", zarr_format=3)
    except (OSError, ValueError, OverflowError, KeyError, TypeError) as error:
        raise StoreError("no zarr v3 group", where=str(target), got=type(error).__name__) from error
