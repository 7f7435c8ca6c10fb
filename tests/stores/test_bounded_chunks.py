"""Chunks that unpack to more than they hold are refused before; all others are read as zarr reads them."""

import numcodecs
import numpy as np
import pytest
import zarr
from numpy.testing import assert_array_equal
from zarr.codecs import BloscCodec, Crc32cCodec, GzipCodec, ZstdCodec

from dkl.stores.local_stores import _of_zstd, bounded

NEWER = (ZstdCodec(level=3), ZstdCodec(checksum=True), GzipCodec(), BloscCodec(), [ZstdCodec(), Crc32cCodec()], None)
OLDER = (
    *(numcodecs.Zstd(), numcodecs.GZip(), numcodecs.Zlib(), numcodecs.BZ2(), numcodecs.LZMA(), numcodecs.LZ4()),
    *(numcodecs.Blosc(), None),
)
CASES = [(3, codec, shards) for codec in NEWER for shards in (None, (400, 20))] + [(2, codec, None) for codec in OLDER]


def chunk_of(path):
    return next(file for file in path.rglob("*") if file.is_file() and file.name.replace(".", "").isdigit())


@pytest.mark.parametrize(("version", "codec", "shards"), CASES)
def test_arrays_read_as_they_are(version, codec, shards, tmp_path, rng):
    X = rng.integers(10, size=(1000, 20)).astype(float)
    more = {} if shards is None else {"shards": shards}
    zarr.create_array(str(tmp_path / "X"), data=X, chunks=(100, 20), compressors=codec, zarr_format=version, **more)
    found = bounded(zarr.open_array(str(tmp_path / "X"), mode="r"))
    assert (found.chunks, found.shards) == ((100, 20), shards)
    assert_array_equal(found[...], X)
    assert_array_equal(found[150:160], X[150:160])


@pytest.mark.parametrize(
    ("version", "codec"), [(3, ZstdCodec()), (3, GzipCodec())] + [(2, codec) for codec in OLDER if codec]
)
def test_a_chunk_that_unpacks_to_more_is_refused(version, codec, tmp_path, rng):
    zarr.create_array(
        str(tmp_path / "X"), data=rng.random((100, 20)), chunks=(100, 20), compressors=codec, zarr_format=version
    )
    plain = {ZstdCodec: numcodecs.Zstd(), GzipCodec: numcodecs.GZip()}.get(type(codec), codec)
    chunk_of(tmp_path / "X").write_bytes(plain.encode(np.zeros(5_000_000, np.uint8)))
    with pytest.raises(ValueError, match="unpacks to"):
        bounded(zarr.open_array(str(tmp_path / "X"), mode="r"))[...]


def test_frames_of_zstd_say_what_they_hold(rng):
    for size in (0, 1, 255, 256, 65_791, 65_792, 1 << 20):
        for content in (bytes(size), rng.bytes(size)):
            packed = numcodecs.Zstd(3).encode(content)
            assert _of_zstd(packed) == size
            assert _of_zstd(packed + packed) == 2 * size


def test_a_frame_that_does_not_say_is_counted_by_its_blocks():
    # A frame by hand (RFC 8878): no content size, a window, and two blocks of one byte again and again.
    block = (100_000 << 3 | 1 << 1).to_bytes(3, "little") + b"a"
    last = (5 << 3 | 1 << 1 | 1).to_bytes(3, "little") + b"b"
    frame = (0xFD2FB528).to_bytes(4, "little") + b"\x00\x58" + block + last
    assert numcodecs.Zstd().decode(frame) == b"a" * 100_000 + b"b" * 5
    assert _of_zstd(frame) == 100_005
