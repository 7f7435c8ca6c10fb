"""Slabs past the system's cache: the same files as through it, of any size, cut short, and where it cannot be done."""

import dataclasses
import errno
import os
from pathlib import Path

import numpy as np
import pytest

from dkl.blocks.slabs import slab_program
from dkl.blocks.slabs.placement import create_scratch
from dkl.errors import DiskError, StoreError
from dkl.linalg.slabs.slab_ops import empty_aligned
from dkl.problems.pairwise.admm import PairwiseADMM
from dkl.stores import direct_io
from dkl.stores.slab_arrays import SlabArray

ROWS = [1, 31, 32, 33, 64, 1000]  # of 128 bytes: 32 to a block


@pytest.fixture(autouse=True)
def somewhere_it_can_be_done(tmp_path: Path) -> None:
    if not direct_io.supported(tmp_path):
        pytest.skip("this file system knows nothing but its cache")


def pair_of(path: Path, n: int) -> tuple[SlabArray, SlabArray]:
    """(as it is by default, past the cache): the same array."""
    array = SlabArray.create(path, 2, n, 16, np.float64)
    return array, dataclasses.replace(array, uncached=True)


def buffer(n: int, values: np.ndarray | None = None) -> np.ndarray:
    out = empty_aligned((n, 16), np.float64, direct_io.BLOCK)
    out[...] = np.nan if values is None else values
    return out


@pytest.mark.parametrize("n", ROWS)
def test_both_read_what_either_writes(rng, tmp_path, n):
    plain, past = pair_of(tmp_path / "a", n)
    for writer, reader in ((past, plain), (plain, past), (past, past)):
        for slab in (1, 0, 1):  # a new file, and one that is there
            values, out = buffer(n, rng.standard_normal((n, 16))), buffer(n)
            assert writer.write(slab, values) == (n * 128, 0)
            assert reader.read(slab, out) == 0
            assert out.tobytes() == values.tobytes()
            assert writer.chunk(slab).stat().st_size == n * 128
            assert writer.chunk(slab).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("n", ROWS)
def test_a_slab_that_is_cut_short_is_refused(rng, tmp_path, n):
    _, past = pair_of(tmp_path / "a", n)
    past.write(0, buffer(n, rng.standard_normal((n, 16))))
    size = n * 128
    for left in sorted({0, 8, size - 4096, size - 512, size - 8} & set(range(size))):
        os.truncate(past.chunk(0), left)
        with pytest.raises(StoreError, match=rf"c\.0\.0\.0: a slab is cut short; got {left} bytes"):
            past.read(0, buffer(n))
    past.chunk(0).unlink()
    with pytest.raises(StoreError, match="a slab is missing"):
        past.read(0, buffer(n))


def test_a_buffer_anywhere_else_goes_through_the_cache(rng, tmp_path):
    plain, past = pair_of(tmp_path / "a", 64)
    values, out = (buffer(65)[1:] for _ in range(2))  # 128 bytes off
    values[...] = rng.standard_normal((64, 16))
    assert not direct_io.aligned(values)
    past.write(0, values)
    past.read(0, out)
    assert out.tobytes() == values.tobytes()


def test_what_the_disk_says_is_told(monkeypatch, rng, tmp_path):
    _, past = pair_of(tmp_path / "a", 64)
    values = buffer(64, rng.standard_normal((64, 16)))
    past.write(0, values)

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(DiskError, match="could not write a slab .No space left on device"):
        past.write(0, values)
    assert not direct_io.supported(tmp_path)
    monkeypatch.setattr(os, "preadv", full)
    with pytest.raises(StoreError, match="a slab is missing"):
        past.read(0, values)


def test_no_file_is_left_of_the_question(tmp_path):
    assert direct_io.supported(tmp_path)
    assert not direct_io.supported(tmp_path / "nowhere")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("memory", [10**5, 10**7])
def test_only_what_the_cache_cannot_hold_goes_past_it(monkeypatch, tmp_path, memory):
    program = PairwiseADMM.__new__(PairwiseADMM)
    for name, value in {"rank": 20, "width": 16, "dtype": np.dtype(float), "matrix": np.empty((50, 50))}.items():
        object.__setattr__(program, name, value)
    size = 4 * 2 * 50 * 128  # four arrays of two slabs
    monkeypatch.setattr(slab_program, "machine_memory", lambda: memory)
    storage = slab_program.make_storage(program, range(2), create_scratch(program, tmp_path / "scratch"), 1)
    assert isinstance(storage, slab_program.DiskSlabs) and storage.ahead == 1
    assert {array.uncached for array in storage.arrays.values()} == {size > 0.5 * memory}
    for slab in range(2):
        out = storage.open(slab, (), ("V",))
        assert all(direct_io.aligned(array) for array in out.values())
        out["V"][...] = slab
        storage.close(slab, out, ("V",))
    assert [storage.open(slab, ("V",), ())["V"].max() for slab in range(2)] == [0, 1]
