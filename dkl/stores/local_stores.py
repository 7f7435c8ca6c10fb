"""zarr's stores in folders, and chunks that unpack to no more than a chunk holds: the check comes before a codec allocates.

A chunk of some kilobytes may claim gigabytes, which zarr finds out once they are there. zstd, blosc and lz4 say in their first bytes what
they unpack to; what gzip, zlib, bz2 and lzma make is unpacked here, until it is too much.

Apart from who uses them: zarr takes a quarter of a second to import, which a command that refuses its input does not need. Modules of
stores import it, and this one, where they open or make an array.
"""

from __future__ import annotations

import asyncio
import bz2
import lzma
import math
import os
import uuid
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import zarr
from numcodecs.abc import Codec as PlainCodec
from zarr.abc.codec import BytesBytesCodec, Codec
from zarr.codecs import ShardingCodec
from zarr.storage import LocalStore

from dkl.errors import InputError
from dkl.io.plain_arrays import METADATA
from dkl.io.reading import require_file
from dkl.stores.folders import MODE

if TYPE_CHECKING:
    from zarr.core.array_spec import ArraySpec
    from zarr.core.buffer import Buffer

    from dkl.stores.seals import Json


SPARE = 1 << 20
"""Bytes that a chunk may unpack to beyond twice what it holds: checksums, and another codec's frame."""
PIECE = 1 << 20
_ZSTD, _SKIPPED, _ZSTD_BLOCK = 0xFD2FB528, 0x184D2A50, 1 << 17
"""Numbers that begin a frame of zstd, and one that is skipped (16 of them); bytes of a block of zstd at most (RFC 8878)."""


def bounded(array: zarr.Array) -> zarr.Array:
    """Return the array with codecs that refuse, by ValueError, a chunk that unpacks to more than a chunk holds."""
    metadata: Any = array.metadata
    if metadata.zarr_format == 2:
        most = _most(math.prod(metadata.chunks) * metadata.dtype.to_native_dtype().itemsize)
        chain = [_BoundedPlain(codec, most) for codec in (metadata.compressor, *(metadata.filters or ())) if codec]
        if metadata.compressor is None:
            changed = replace(metadata, filters=tuple(chain) or None)
        else:
            changed = replace(metadata, compressor=chain[0], filters=tuple(chain[1:]) or None)
    else:
        changed = replace(metadata, codecs=tuple(map(_bounded_codec, metadata.codecs)))
    return zarr.Array(zarr.AsyncArray(changed, array.store_path))


def _bounded_codec(codec: Codec) -> Codec:
    if isinstance(codec, ShardingCodec):
        return replace(codec, codecs=tuple(map(_bounded_codec, codec.codecs)))
    if isinstance(codec, BytesBytesCodec) and _name_of(codec) in {*_SIZES, *_DECOMPRESSORS}:
        return _Bounded(codec)
    return codec


def _name_of(codec: BytesBytesCodec) -> str:
    return str(codec.to_dict().get("name", "")).removeprefix("numcodecs.")


def _most(chunk_bytes: int) -> int:
    return 2 * chunk_bytes + SPARE


@dataclass(frozen=True)
class _Bounded(BytesBytesCodec):
    """A codec of zarr's format 3, which is asked once the size of what it makes is known."""

    inner: BytesBytesCodec

    @property
    def is_fixed_size(self) -> bool:  # type: ignore[override]
        """Return what the wrapped codec says."""
        return self.inner.is_fixed_size

    def to_dict(self) -> Json:
        """Return the codec's entry in metadata."""
        return dict(self.inner.to_dict())

    def compute_encoded_size(self, input_byte_length: int, chunk_spec: ArraySpec) -> int:
        """Return what the wrapped codec says."""
        return self.inner.compute_encoded_size(input_byte_length, chunk_spec)

    async def _decode_single(self, chunk_bytes: Buffer, chunk_spec: ArraySpec) -> Buffer:
        most = _most(math.prod(chunk_spec.shape) * chunk_spec.dtype.to_native_dtype().itemsize)
        found = _unpacked(_name_of(self.inner), chunk_bytes.to_bytes(), most)
        if found is not None:
            return chunk_spec.prototype.buffer.from_bytes(found)
        return await self.inner._decode_single(chunk_bytes, chunk_spec)

    async def _encode_single(self, chunk_bytes: Buffer, chunk_spec: ArraySpec) -> Buffer | None:
        return await self.inner._encode_single(chunk_bytes, chunk_spec)


class _BoundedPlain(PlainCodec):
    """A codec of zarr's format 2 that refuses a chunk which unpacks to too much."""

    codec_id = "bounded"

    def __init__(self, inner: Any, most: int) -> None:
        self.inner, self.most = inner, most

    def encode(self, buf: Any) -> Any:
        """Encode by the wrapped codec."""
        return self.inner.encode(buf)

    def decode(self, buf: Any, out: Any = None) -> Any:
        """Unpack a chunk; ValueError for more than it holds."""
        found = _unpacked(self.inner.codec_id, bytes(memoryview(buf).cast("B")), self.most)
        return self.inner.decode(buf, out) if found is None else found

    def get_config(self) -> Any:
        """Return the codec's entry in metadata."""
        return self.inner.get_config()


def _unpacked(name: str, packed: bytes, most: int) -> bytes | None:
    """Return what a codec of this name unpacks, None where the codec may do so itself; ValueError for more than `most` bytes."""
    if name in _SIZES:
        _require(_SIZES[name](packed), most)
    return _in_pieces(_DECOMPRESSORS[name], packed, most) if name in _DECOMPRESSORS else None


def _require(size: int, most: int) -> None:
    if size > most:
        raise ValueError(f"it unpacks to {size} bytes or more, and may hold {most} at most")


def _in_pieces(make: Callable[[], Any], packed: bytes, most: int) -> bytes:
    """Unpack all members, one behind the other."""
    parts, size = [], 0
    while packed:
        unpacker, data = make(), packed
        # Piece by piece: a few bytes may unpack to gigabytes, which are refused before they are made.
        while not unpacker.eof:
            part = unpacker.decompress(data, PIECE)
            data = getattr(unpacker, "unconsumed_tail", b"")  # zlib's alone gives back what it has not used
            size += len(part)
            _require(size, most)
            if not part and not data and not unpacker.eof:
                raise EOFError("a chunk is cut short")
            parts.append(part)
        # Another member may follow, as `cat a.gz b.gz` makes them.
        packed = unpacker.unused_data
    return b"".join(parts)


def _of_zstd(packed: bytes) -> int:
    """Return the bytes that frames of zstd unpack to, or at most: of a frame that does not say, from the number of its blocks."""
    total, at = 0, 0
    while at + 4 <= len(packed):
        magic = int.from_bytes(packed[at : at + 4], "little")
        # A frame that may hold anything, and unpacks to nothing.
        if magic & ~0xF == _SKIPPED:
            at += 8 + int.from_bytes(packed[at + 4 : at + 8], "little")
            continue
        if magic != _ZSTD or at + 5 > len(packed):
            break
        flags = packed[at + 4]
        is_single, field = flags >> 5 & 1, (0, 2, 4, 8)[flags >> 6]
        field = field or is_single
        at += 5 + (not is_single) + (0, 1, 2, 4)[flags & 3]
        # The format counts sizes of two bytes from 256 on (RFC 8878, 3.1.1.1.4).
        size = int.from_bytes(packed[at : at + field], "little") + (256 if field == 2 else 0)
        at, blocks, is_last = at + field, 0, False
        while not is_last and at + 3 <= len(packed):
            head = int.from_bytes(packed[at : at + 3], "little")
            is_last, kind, length = bool(head & 1), head >> 1 & 3, head >> 3
            blocks += length if kind < 2 else _ZSTD_BLOCK  # raw, one byte again and again; packed
            at += 3 + (1 if kind == 1 else length)
        total += size if field else blocks
        at += 4 * (flags >> 2 & 1)
    return total


_SIZES: dict[str, Callable[[bytes], int]] = {
    "zstd": _of_zstd,
    "blosc": lambda packed: int.from_bytes(packed[4:8], "little"),
    "lz4": lambda packed: int.from_bytes(packed[:4], "little"),
}
_DECOMPRESSORS: dict[str, Callable[[], Any]] = {
    # 31: 15 bits of window, and 16 for gzip's header in place of zlib's.
    "gzip": lambda: zlib.decompressobj(31),
    "zlib": zlib.decompressobj,
    "bz2": bz2.BZ2Decompressor,
    "lzma": lzma.LZMADecompressor,
}


class PrivateFiles(LocalStore):
    """A store in a folder, whose files are for the owner alone; zarr's own are as the umask leaves them.

    The folder above it must be there: zarr would make it, and all above, at the path of a run that was renamed.
    """

    async def _open(self, **how: Any) -> None:
        if not self.read_only:
            self.root.mkdir(exist_ok=True)
        await super()._open(**how)

    async def set(self, key: str, value: Any) -> None:
        """Write a file, whole or not at all. Raises FileNotFoundError where the store's folder is gone."""
        await self._write(key, value, os.replace)

    async def set_if_not_exists(self, key: str, value: Any) -> None:
        """Write a file, unless there is one."""
        with suppress(FileExistsError):
            await self._write(key, value, _link)

    async def _write(self, key: str, value: Any, put: Callable[[Path, Path], None]) -> None:
        self._check_writable()
        if not self._is_open:
            await self._open()
        await asyncio.to_thread(_write_file, self.root, key, value.as_numpy_array(), put)


def _write_file(root: Path, key: str, content: Any, put: Callable[[Path, Path], None]) -> None:
    """Write a file under a unique name, then put it in its place; folders are made below the root alone."""
    path = root / key
    for parent in reversed(path.relative_to(root).parents[:-1]):
        (root / parent).mkdir(exist_ok=True)
    partial = path.with_suffix(f".{uuid.uuid4().hex}.partial")
    try:
        # Without fsync: a commit has that done for its whole folder, once (stores/folders.py).
        with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, MODE), "wb") as file:
            file.write(content)
        # A rename, or a link that does not overwrite: readers see the old file, the new one, or none.
        put(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def _link(source: Path, target: Path) -> None:
    """Move a file without overwriting: raises FileExistsError if `target` exists."""
    os.link(source, target)
    source.unlink()


LARGEST_METADATA = 32_000_000
"""Maximum bytes of a file of metadata."""


class PlainFiles(LocalStore):
    """An array in a folder, of which ordinary files alone are read: of a pipe or /dev/zero there is no end."""

    async def get(self, key: str, prototype: Any = None, byte_range: Any = None) -> Any:
        """Return a file's bytes, or None if it does not exist; InputError for a device or pipe."""
        path = Path(self.root, key)
        if os.path.lexists(path):  # a folder in a chunk's place would be read as fill values
            require_file(path)
            if path.name in METADATA and (size := path.stat().st_size) > LARGEST_METADATA:
                raise InputError("larger than metadata is", where=str(path), got=f"{size} bytes")
        return await super().get(key, prototype, byte_range)
