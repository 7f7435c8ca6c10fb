"""Stored arrays as the registry declares them: made from the declaration, compared with it when they are opened.

A small array is written in one chunk with its own checksum, next to zarr's, that covers shape, type and content: an
array that was swapped for another of the same layout, whose chunks are all valid, is seen too.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from dkl.errors import MemoryBudgetError, StoreError
from dkl.io.reading import require_room
from dkl.resources import DISK, spending
from dkl.stores.folders import disk_errors
from dkl.stores.registry import ArrayLayout, Arrays, Shape, StoredArray
from dkl.stores.seals import read_json, replace_text

if TYPE_CHECKING:
    import zarr
    from numpy.typing import DTypeLike

    from dkl.stores.seals import Json

CHUNK_BYTES = 8_000_000
"""Bytes of a chunk of rows, about: below 4 MB zarr's event loop costs time, far above, memory."""

Target: TypeAlias = "Path | tuple[zarr.Group, str]"
"""Location of an array: a path, or a group and the array's name in it."""


def create_array(
    target: Target,
    declared: StoredArray,
    shape: Shape,
    dtype: DTypeLike,
    *,
    rows: int | None = None,
    attributes: Json | None = None,
) -> zarr.Array:
    """Create an array filled with its missing value, with dimensions, chunks and codecs as declared.

    The missing value is NaN or -1, unless the declaration has another.

    rows: of the first dimension in a chunk, where the declaration leaves that open. Raises StoreError for a shape or
    type that is not declared, and OSError; nothing that exists is ever overwritten.
    """
    import zarr
    from zarr.codecs import BytesCodec, Crc32cCodec, ZstdCodec

    from dkl.stores.local_stores import PrivateFiles

    dtype = np.dtype(dtype)
    chunks, dims = declared.chunks.of(shape, rows), declared.dims_of(len(shape)) if declared.named else None
    require(declared, ArrayLayout(shape, chunks, str(dtype), dims, declared.codecs, declared.version), _name(target))
    store, name = (PrivateFiles(target), None) if isinstance(target, Path) else (target[0].store_path, target[1])
    nothing = np.nan if dtype.kind == "f" else -1
    codecs: Json = {"zstd": lambda: ZstdCodec(level=1), "crc32c": Crc32cCodec}
    return zarr.create_array(
        store=store,
        name=name,
        shape=shape,
        chunks=chunks,
        dtype=dtype,
        serializer=BytesCodec(endian="little"),
        filters=None,
        compressors=[codecs[codec]() for codec in declared.codecs[1:]] or None,
        fill_value=nothing if declared.fill is None else declared.fill,
        chunk_key_encoding={"name": "default", "separator": declared.separator},
        dimension_names=dims,
        attributes={**(attributes or {}), **({"version": declared.version} if declared.version > 1 else {})},
        # zarr leaves out a chunk of fill values alone: of NaN that is as good as there, of numbers it is not.
        config={"write_empty_chunks": declared.fill is not None},
    )


def open_array(
    target: Target, declared: StoredArray, mode: str = "r", *, failure: str = "a stored array cannot be read"
) -> Any:
    """Open an array of a store; raise StoreError if it is not as declared. Reads metadata alone.

    failure: what an error says of one that cannot be opened.
    """
    where = _name(target)
    try:
        array = _opened(target, mode) if isinstance(target, Path) else target[0][target[1]]
        layout = layout_of(array)
    except Exception as error:  # damaged metadata fails in as many ways as it has parts
        got = f"{type(error).__name__}: {error}"
        raise StoreError(failure, where=where, got=got) from error
    require(declared, layout, where)
    return array


def _opened(path: Path, mode: Any) -> zarr.Array:
    import zarr

    from dkl.stores.local_stores import PrivateFiles, bounded

    array = zarr.open_array(PrivateFiles(path, read_only=mode == "r"), mode=mode)
    return bounded(array) if mode == "r" else array


def layout_of(array: Any) -> ArrayLayout:
    """Return the layout of a zarr array from its metadata."""
    metadata = array.metadata
    return ArrayLayout(
        tuple(array.shape),
        tuple(array.chunks),
        str(array.dtype),
        None if metadata.dimension_names is None else tuple(metadata.dimension_names),
        tuple(_codec_name(codec.to_dict()) for codec in metadata.codecs),
        array.attrs.get("version", 1),
    )


def rows_per_chunk(n: int, width: int, dtype: DTypeLike | None) -> int:
    """Return the rows of a tall array (n, width) in a chunk of `CHUNK_BYTES`; one at least."""
    return min(n, max(1, CHUNK_BYTES // (width * np.dtype(dtype).itemsize)))


@spending(DISK)
def write_array(path: Path, values: NDArray, declared: StoredArray, *, attributes: Json | None = None) -> None:
    """Write a small array in one chunk; raise DiskError, or StoreError for values not as declared.

    zarr has no empty chunk: an array of no rows is stored as one row of nothing, and its attribute `rows` says 0.
    """
    shape = (max(1, values.shape[0]), *values.shape[1:])
    notes = {"rows": len(values), "crc32c": _sum_of(values), **(attributes or {})}
    with disk_errors("an array could not be written", path):
        array = create_array(path, declared, shape, values.dtype, attributes=notes)
        if values.size:
            array[...] = values


@spending(DISK)
def write_parts(path: Path, rows: int, parts: Iterable[NDArray], declared: StoredArray) -> None:
    """Write a tall array of `rows` >= 1 rows from its parts in order, in chunks of about CHUNK_BYTES.

    Raises DiskError, and StoreError for parts that are not as declared, or do not have `rows` rows in all.
    """
    array, at = None, 0
    for part in parts:
        with disk_errors("an array could not be written", path):
            if array is None:
                some = rows_per_chunk(rows, int(np.prod(part.shape[1:])), part.dtype)
                array = create_array(path, declared, (rows, *part.shape[1:]), part.dtype, rows=some)
            if at + len(part) <= rows:
                array[at : at + len(part)] = part
        at += len(part)
    if at != rows:
        raise StoreError("not all rows of an array, or too many", where=str(path), got=at, wanted=rows)


@spending(DISK)
def read_array(path: Path, declared: StoredArray) -> NDArray:
    """Return the values that `write_array` wrote; raise StoreError for anything else.

    That includes a missing chunk, which zarr reads as fill values.
    """
    array = open_array(path, declared)
    try:
        rows, checksum = int(array.attrs["rows"]), array.attrs["crc32c"]
        # Metadata may claim any shape: the bytes of the chunk, and what they are decoded to.
        require_room(2 * array.nbytes, path)
        values = np.asarray(array[:rows])
    except MemoryBudgetError:
        raise
    except Exception as error:
        got = f"{type(error).__name__}: {error}"
        raise StoreError("a stored array cannot be read", where=str(path), got=got) from error
    if len(values) != rows or _sum_of(values) != checksum:
        raise StoreError("a stored array is missing or not what was written", where=str(path))
    return values


def declaration_of(arrays: Arrays | None, path: str, where: Path) -> StoredArray:
    """Return the declaration of the array at `path` in a run's folder; StoreError if undeclared.

    where: the run's folder, for the error.
    """
    if arrays is None:
        raise StoreError("unknown run type: no arrays are declared for it", where=str(where))
    declared = arrays.find(path)
    if declared is None:
        wanted = ", ".join(one.name for one in arrays.inside(path.rpartition("/")[0])) or None
        raise StoreError("an array that is not declared", where=f"{where}/{path}", wanted=wanted)
    return declared


def stored_arrays(root: Path, arrays: Arrays) -> Iterator[tuple[str, StoredArray]]:
    """Yield (path in the folder, declaration) of every array under `root`; StoreError if undeclared."""
    import zarr

    for metadata in sorted(root.rglob("zarr.json")):
        if metadata.parent == root:
            continue
        found = zarr.open(str(metadata.parent), mode="r")
        if isinstance(found, zarr.Array):
            path = str(metadata.parent.relative_to(root))
            declared = declaration_of(arrays, path, root)
            require(declared, layout_of(found), str(metadata.parent))
            yield path, declared


def list_arrays(run: Path, parts: Iterable[str]) -> None:
    """Write zarr's consolidated metadata: that of the arrays and groups of some parts of a run, in the run's own zarr.json.

    By it `zarr.open_group(run)` lists them; without it zarr looks at each file of a run, and warns of those that are not its own.
    Here it is never read. Raises OSError.
    """
    found: Json = {}
    for metadata in sorted(path for part in set(parts) for path in (run / part).rglob("zarr.json")):
        name = metadata.parent.relative_to(run)
        # From the outermost folder down, without ".", which is the run itself.
        for above in name.parents[-2::-1]:  # a part has no file of a group
            found.setdefault(str(above), {"zarr_format": 3, "node_type": "group", "attributes": {}})
        found[str(name)] = read_json(metadata)
    root = read_json(run / "zarr.json")
    root["consolidated_metadata"] = {"kind": "inline", "must_understand": False, "metadata": found}
    replace_text(run / "zarr.json", json.dumps(root, indent=1))


def _codec_name(codec: Json) -> str:
    # Slabs are read past zarr, as the bytes they are: those of the other order would be numbers too.
    return f"{codec['name']}{' in big-endian order' if codec.get('configuration', {}).get('endian') == 'big' else ''}"


def require(declared: StoredArray, found: ArrayLayout, where: str) -> None:
    """Raise StoreError where a layout is not as declared. where: the array, for the error."""
    fault = declared.fault(found)
    if fault is not None:
        raise StoreError(f"{fault.what} than declared", where=where, got=fault.got, wanted=fault.wanted)


def _name(target: Target) -> str:
    return str(target) if isinstance(target, Path) else f"{target[0].store_path}/{target[1]}"


def _sum_of(values: NDArray) -> int:
    """Return the crc32c of shape, dtype and bytes, which are copied only where in another order."""
    described = google_crc32c.value(f"{values.shape} {values.dtype.str} ".encode())
    return int(google_crc32c.extend(described, np.ascontiguousarray(values).reshape(-1).view(np.uint8)))
