"""Chunks of zarr arrays that unpack to no more than a chunk holds: the check comes before a codec allocates.

A chunk of some kilobytes may claim gigabytes, which zarr finds out once they are there. zstd, blosc and lz4 say in their first bytes what
they unpack to; what gzip, zlib, bz2 and lzma make is unpacked here, until it is too much.
"""

from __future__ import annotations

import bz2
import lzma
import math
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import zarr
from numcodecs.abc import Codec as PlainCodec
from zarr.abc.codec import BytesBytesCodec, Codec
from zarr.codecs import ShardingCodec

if TYPE_CHECKING:
    from zarr.core.array_spec import ArraySpec
    from zarr.core.buffer import Buffer

    from dkl.stores.sealed_json import Json

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
        while not unpacker.eof:
            part = unpacker.decompress(data, PIECE)
            data = getattr(unpacker, "unconsumed_tail", b"")  # zlib's alone gives back what it has not used
            size += len(part)
            _require(size, most)
            if not part and not data and not unpacker.eof:
                raise EOFError("a chunk is cut short")
            parts.append(part)
        packed = unpacker.unused_data
    return b"".join(parts)


def _of_zstd(packed: bytes) -> int:
    """Return the bytes that frames of zstd unpack to, or at most: of a frame that does not say, from the number of its blocks."""
    total, at = 0, 0
    while at + 4 <= len(packed):
        magic = int.from_bytes(packed[at : at + 4], "little")
        if magic & ~0xF == _SKIPPED:
            at += 8 + int.from_bytes(packed[at + 4 : at + 8], "little")
            continue
        if magic != _ZSTD or at + 5 > len(packed):
            break
        flags = packed[at + 4]
        is_single, field = flags >> 5 & 1, (0, 2, 4, 8)[flags >> 6]
        field = field or is_single
        at += 5 + (not is_single) + (0, 1, 2, 4)[flags & 3]
        size = int.from_bytes(packed[at : at + field], "little") + (256 if field == 2 else 0)
        at, blocks, is_last = at + field, 0, False
        while not is_last and at + 3 <= len(packed):
            head = int.from_bytes(packed[at : at + 3], "little")
            is_last, kind, length = bool(head & 1), head >> 1 & 3, head >> 3
            blocks += length if kind < 2 else _ZSTD_BLOCK  # raw, one byte again and again; packed
            at += 3 + (1 if kind == 1 else length)
        total += max(size, 0) if field else blocks
        at += 4 * (flags >> 2 & 1)
    return total


_SIZES: dict[str, Callable[[bytes], int]] = {
    "zstd": _of_zstd,
    "blosc": lambda packed: int.from_bytes(packed[4:8], "little"),
    "lz4": lambda packed: int.from_bytes(packed[:4], "little"),
}
_DECOMPRESSORS: dict[str, Callable[[], Any]] = {
    "gzip": lambda: zlib.decompressobj(31),
    "zlib": zlib.decompressobj,
    "bz2": bz2.BZ2Decompressor,
    "lzma": lzma.LZMADecompressor,
}
