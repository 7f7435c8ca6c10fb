"""Slabs on disk: what plain zarr reads of them and writes to them, damage, and disks that are full or write little."""

import errno
import os

import google_crc32c
import numpy as np
import psutil
import pytest
import zarr

from dkl.errors import DiskError, StoreError
from dkl.stores.slab_arrays import CHECKSUM_BYTES, SlabArray

SHAPES = [(1, 1, 4), (3, 37, 16), (2, 5, 32)]
SLABS, N, WIDTH = 3, 37, 16


@pytest.fixture(params=[False, True], ids=["plain", "checked"])
def checked(request):
    return request.param


def filled(path, values, checked):
    array = SlabArray.create(path, *values.shape, values.dtype, checked=checked)
    written = [array.write(slab, values[slab]) for slab in range(len(values))]
    return array, written


def read_all(array):
    out = np.full((array.n_slabs, array.n, array.width), np.nan, array.dtype)
    for slab in range(array.n_slabs):
        array.read(slab, out[slab])
    return out


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_zarr_reads_what_is_written_and_the_other_way_round(rng, tmp_path, shape, dtype, checked):
    values = rng.standard_normal(shape).astype(dtype)
    array, written = filled(tmp_path / "a", values, checked)
    plain = zarr.open_array(str(tmp_path / "a"), mode="r")
    assert plain.shape == shape and plain.chunks == (1, *shape[1:]) and plain.dtype == dtype
    assert np.array_equal(plain[...], values)
    for slab, (size, checksum) in enumerate(written):
        assert array.chunk(slab).stat().st_size == size == values[slab].nbytes + CHECKSUM_BYTES * checked
        assert checksum == (google_crc32c.value(values[slab].tobytes()) if checked else 0)
        assert array.read(slab, np.empty(shape[1:], dtype)) == checksum

    other = rng.standard_normal(shape).astype(dtype)
    zarr.open_array(str(tmp_path / "a"), mode="r+")[...] = other
    assert np.array_equal(read_all(SlabArray.open(tmp_path / "a")), other)


def test_an_opened_array_is_the_created_one(rng, tmp_path, checked):
    array, _ = filled(tmp_path / "a", rng.standard_normal((SLABS, N, WIDTH)), checked)
    assert SlabArray.open(tmp_path / "a") == array


def test_slabs_never_written_are_missing_and_read_as_nan_by_zarr(rng, tmp_path, checked):
    values = rng.standard_normal((N, WIDTH))
    array = SlabArray.create(tmp_path / "a", SLABS, N, WIDTH, np.float64, checked=checked)
    array.write(1, values)
    plain = zarr.open_array(str(tmp_path / "a"), mode="r")[...]
    assert np.isnan(plain[[0, 2]]).all() and np.array_equal(plain[1], values)
    for read in (lambda: array.read(2, values), lambda: array.read_rows(2, 0, N, values)):
        with pytest.raises(StoreError, match=r"c\.2\.0\.0: a slab is missing"):
            read()


def test_a_slab_is_overwritten_in_its_place(rng, tmp_path, checked):
    first, second = rng.standard_normal((2, SLABS, N, WIDTH))
    array, _ = filled(tmp_path / "a", first, checked)
    inode = array.chunk(1).stat().st_ino
    array.write(1, second[1])
    assert np.array_equal(read_all(array), np.stack([first[0], second[1], first[2]]))
    assert array.chunk(1).stat().st_ino == inode


def test_rows_of_a_slab(rng, tmp_path, checked):
    values = rng.standard_normal((SLABS, N, WIDTH)).astype(np.float32)
    array, _ = filled(tmp_path / "a", values, checked)
    for lo, hi in ((0, N), (0, 1), (N - 1, N), (5, 20)):
        out = np.full((hi - lo, WIDTH), np.nan, np.float32)
        array.read_rows(2, lo, hi, out)
        assert np.array_equal(out, values[2, lo:hi])


# -- damage -----------------------------------------------------------------------------------------------------------


def test_every_flipped_bit_is_caught(rng, tmp_path):
    values = rng.standard_normal((1, 3, 4))
    array, _ = filled(tmp_path / "a", values, True)
    content, out = array.chunk(0).read_bytes(), np.empty((3, 4))
    for bit in range(8 * len(content)):
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << bit % 8
        array.chunk(0).write_bytes(damaged)
        with pytest.raises(StoreError, match="checksum does not match"):
            array.read(0, out)
    array.chunk(0).write_bytes(content)
    array.read(0, out)
    assert np.array_equal(out, values[0])


@pytest.mark.parametrize("left", [0, 1, 3 * 4 * 8 - 1])
def test_a_slab_cut_short_is_caught(rng, tmp_path, checked, left):
    array, _ = filled(tmp_path / "a", rng.standard_normal((1, 3, 4)), checked)
    os.truncate(array.chunk(0), left)
    with pytest.raises(StoreError, match=f"cut short; got {left} bytes"):
        array.read(0, np.empty((3, 4)))


def test_a_missing_checksum_is_caught(rng, tmp_path):
    array, _ = filled(tmp_path / "a", rng.standard_normal((1, 3, 4)), True)
    os.truncate(array.chunk(0), 3 * 4 * 8)
    with pytest.raises(StoreError, match="cut short"):
        array.read(0, np.empty((3, 4)))


@pytest.mark.parametrize("out", [np.empty((4, 4)), np.empty((3, 8)), np.empty((3, 4), np.float32)])
def test_a_buffer_of_another_kind_is_refused(rng, tmp_path, out):
    array, _ = filled(tmp_path / "a", rng.standard_normal((1, 3, 4)), False)
    with pytest.raises(StoreError, match="another shape or type"):
        array.read(0, out)


def create(path, **changes):
    layout = {"shape": (2, 5, 4), "chunks": (1, 5, 4), "dtype": "f8", "compressors": None}
    zarr.create_array(store=str(path), **layout | changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"shape": (5, 4), "chunks": (5, 4)}, "not laid out as rank slabs"),
        ({"chunks": (2, 5, 4)}, "not laid out as rank slabs"),
        ({"chunks": (1, 3, 4)}, "not laid out as rank slabs"),
        ({"compressors": zarr.codecs.ZstdCodec()}, "unknown codecs"),
    ],
)
def test_foreign_arrays_are_refused(tmp_path, changes, message):
    create(tmp_path / "a", **changes)
    with pytest.raises(StoreError, match=message):
        SlabArray.open(tmp_path / "a")


def test_what_is_no_array_is_refused(tmp_path):
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "zarr.json").write_text("{")
    zarr.create_group(str(tmp_path / "group"))
    for name in ("nowhere", "damaged", "group"):
        with pytest.raises(StoreError, match="no readable slab array"):
            SlabArray.open(tmp_path / name)


def test_nothing_that_exists_is_overwritten(rng, tmp_path, checked):
    values = rng.standard_normal((1, 3, 4))
    array, _ = filled(tmp_path / "a", values, checked)
    with pytest.raises(zarr.errors.ContainsArrayError):
        SlabArray.create(tmp_path / "a", 1, 3, 4, np.float64)
    assert np.array_equal(read_all(array), values)


# -- disks ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EDQUOT])
@pytest.mark.parametrize("call", ["pwrite", "open", "fsync"])
def test_a_disk_that_fails_is_a_disk_error(rng, tmp_path, monkeypatch, call, code):
    values = rng.standard_normal((1, 3, 4))
    array = SlabArray.create(tmp_path / "a", 1, 3, 4, np.float64, checked=True)

    def fail(*arguments):
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patch:
        patch.setattr(os, call, fail)
        with pytest.raises(DiskError, match=os.strerror(code)) as caught:
            array.write(0, values[0])
    assert caught.value.where == str(array.chunk(0)) and caught.value.wanted == "96 bytes"
    assert "free space" in caught.value.remedy
    # Not the number of all that is open: another thread's sockets come and go.
    still_open = [file.path for file in psutil.Process().open_files() if file.path.startswith(str(tmp_path))]
    assert still_open == [], "the file is closed all the same"
    array.write(0, values[0])
    assert np.array_equal(read_all(array), values)


def test_a_disk_that_takes_and_gives_little_at_a_time(rng, tmp_path, monkeypatch, checked):
    values = rng.standard_normal((SLABS, N, WIDTH))
    pwrite, preadv, calls = os.pwrite, os.preadv, []

    def write_some(descriptor, buffer, offset):
        calls.append("write")
        return pwrite(descriptor, buffer[:1000], offset)

    def read_some(descriptor, buffers, offset):
        calls.append("read")
        return preadv(descriptor, [buffers[0][:700]], offset)

    monkeypatch.setattr(os, "pwrite", write_some)
    monkeypatch.setattr(os, "preadv", read_some)
    array, _ = filled(tmp_path / "a", values, checked)
    assert np.array_equal(read_all(array), values)
    assert np.array_equal(zarr.open_array(str(tmp_path / "a"), mode="r")[...], values)
    assert calls.count("write") >= SLABS * 4 and calls.count("read") >= SLABS * 6


def test_a_full_disk_midway_leaves_a_slab_that_is_caught(rng, tmp_path, monkeypatch):
    array = SlabArray.create(tmp_path / "a", 1, N, WIDTH, np.float64, checked=True)
    pwrite = os.pwrite

    def until_full(descriptor, buffer, offset):
        if offset >= 2000:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return pwrite(descriptor, buffer[:1000], offset)

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", until_full)
        with pytest.raises(DiskError, match="No space left"):
            array.write(0, rng.standard_normal((N, WIDTH)))
    with pytest.raises(StoreError, match="cut short; got 2000 bytes"):
        array.read(0, np.empty((N, WIDTH)))


def test_checked_slabs_are_synced_before_the_write_returns(rng, tmp_path, monkeypatch, checked):
    synced = []
    array = SlabArray.create(tmp_path / "a", 2, 3, 4, np.float64, checked=checked)
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(os.fstat(descriptor)))
    for slab in range(2):
        array.write(slab, rng.standard_normal((3, 4)))
    whole = [(array.chunk(slab).stat().st_ino, 96 + CHECKSUM_BYTES) for slab in range(2)]
    assert [(status.st_ino, status.st_size) for status in synced] == (whole if checked else [])


def test_slabs_are_the_owner_s_alone(rng, tmp_path, checked):
    array, _ = filled(tmp_path / "a", rng.standard_normal((1, 3, 4)), checked)
    assert array.chunk(0).stat().st_mode & 0o077 == 0
