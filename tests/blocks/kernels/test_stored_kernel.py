"""A kernel on disk multiplies as the matrix does, on threads and workers, and says what is damaged."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.metrics.pairwise import rbf_kernel

from dkl.blocks.kernels import stored_kernel
from dkl.blocks.kernels.kernel_operator import RecomputedKernel
from dkl.blocks.kernels.stored_kernel import StoredKernel, add_tile
from dkl.blocks.session import Session
from dkl.errors import StoreError
from dkl.linalg.kernels.kernel_columns import Kernel
from dkl.stores import kernels
from dkl.stores.kernels import stored_bytes


def stored_kernel_of(kernel, X, path, session, **kinds):
    return StoredKernel.of(RecomputedKernel(kernel, X, session), path, **kinds)


@pytest.fixture
def small_tiles(monkeypatch):
    monkeypatch.setattr(stored_kernel, "STORED_TILE", 64)
    monkeypatch.setattr(kernels, "STORED_TILE", 64)


@pytest.mark.parametrize("n", [1, 63, 64, 65, 300])
@pytest.mark.parametrize(("dtype", "atol"), [("float64", 1e-12), ("float32", 1e-4)])
def test_products_are_the_matrix_s(rng, small_tiles, tmp_path, n, dtype, atol):
    X = rng.standard_normal((n, 3))
    K = rbf_kernel(X, gamma=0.3)
    for threads in (1, 2):
        path = tmp_path / f"{threads}.zarr"
        stored = stored_kernel_of(Kernel("rbf", 0.3), X, path, Session(None, threads=threads), dtype=dtype)
        v = rng.standard_normal(n)
        for empty in (slice(n // 2), slice(n // 2, n), slice(0)):  # tiles left out: of columns, of rows, none
            u = v.copy()
            u[empty] = 0
            np.testing.assert_allclose(stored.times(u), K @ u, atol=atol * n)
        chosen = rng.permutation(n)[:7]
        np.testing.assert_allclose(stored.columns(chosen), K[:, chosen], atol=1e-12)
        np.testing.assert_allclose(stored.block(chosen), K[np.ix_(chosen, chosen)], atol=1e-12)
        assert stored.products == 3
        assert sum(file.stat().st_size for file in (path / "c").rglob("*") if file.is_file()) >= stored_bytes(n, dtype)


def test_sparse_rows_and_a_matrix_that_is_given(rng, small_tiles, tmp_path):
    X = sp.csr_array(rng.random((150, 20)) * (rng.random((150, 20)) < 0.2))
    K, v = rbf_kernel(X, gamma=0.3), rng.standard_normal(150)
    session = Session(None, threads=2)
    for kernel, rows, name in ((Kernel("rbf", 0.3), X, "sparse"), (Kernel("precomputed"), K, "given")):
        stored = stored_kernel_of(kernel, rows, tmp_path / name, session, dtype="float64")
        np.testing.assert_allclose(stored.times(v), K @ v, atol=1e-11)


def test_threads_and_workers_give_the_same_bits(rng, client, tmp_path):
    X, v = rng.standard_normal((1300, 4)), rng.standard_normal(1300)
    here = stored_kernel_of(Kernel("rbf", 0.2), X, tmp_path / "here", Session(None, threads=2))
    there = stored_kernel_of(Kernel("rbf", 0.2), X, tmp_path / "there", Session(client))
    assert here.times(v).tobytes() == there.times(v).tobytes()


def test_a_tile_that_is_missing_or_damaged_is_told(rng, small_tiles, tmp_path):
    X, v = rng.standard_normal((200, 2)), rng.standard_normal(200)
    stored = stored_kernel_of(Kernel("rbf", 0.3), X, tmp_path / "k", Session(None, threads=1))
    tile = next(file for file in (tmp_path / "k" / "c" / "3").rglob("*") if file.is_file())
    whole = tile.read_bytes()
    tile.write_bytes(whole[:100] + bytes([whole[100] ^ 1]) + whole[101:])
    with pytest.raises(StoreError, match="cannot be read"):
        stored.times(v)
    tile.unlink()
    with pytest.raises(StoreError, match="tile 3"):
        stored.times(v)


def test_a_tile_in_anothers_place_is_told(rng, small_tiles, client, tmp_path):
    """Whole by itself: of the same matrix, or of another one at the same place. Also by workers."""
    X, v = rng.standard_normal((200, 2)), rng.standard_normal(200)
    sessions = (Session(None, threads=1), Session(client))
    one, two = (stored_kernel_of(Kernel("rbf", 0.3), X, tmp_path / str(k), of) for k, of in enumerate(sessions))
    other = stored_kernel_of(Kernel("rbf", 0.4), X, tmp_path / "other", sessions[0])
    for k, stored in enumerate((one, two)):
        tiles = [tmp_path / str(k) / "c" / str(number) / "0" / "0" for number in (1, 4)]
        contents = [tile.read_bytes() for tile in tiles]
        wanted = stored.times(v).tobytes()
        for replaced in (contents[::-1], [(tmp_path / "other" / "c" / "1" / "0" / "0").read_bytes(), contents[1]]):
            for tile, content in zip(tiles, replaced, strict=True):
                tile.write_bytes(content)
            with pytest.raises(StoreError, match="is another's; got tile 1"):
                stored.times(v)
        for tile, content in zip(tiles, contents, strict=True):
            tile.write_bytes(content)
        assert stored.times(v).tobytes() == wanted
    assert other.times(v).tobytes() != one.times(v).tobytes()


def test_the_bits_of_a_tile_do_not_depend_on_where_its_arrays_lie(rng):
    """Each array anywhere in a line of the cache, in turns behind one another in one buffer."""
    tile, right, left = rng.standard_normal((40, 263)), rng.standard_normal(263), rng.standard_normal(40)
    given, seen = [tile, right, left, np.zeros(40), np.zeros(263)], set()
    for _ in range(100):
        buffer, place, arrays = np.empty(sum(array.size + 8 for array in given)), 0, [np.empty(0)] * 5
        for k in rng.permutation(5):
            place += int(rng.integers(8))
            arrays[k] = buffer[place : place + given[k].size].reshape(given[k].shape)
            arrays[k][:] = given[k]
            place += given[k].size
        add_tile(*arrays, True)
        seen.add(arrays[3].tobytes() + arrays[4].tobytes())
    assert len(seen) == 1
    np.testing.assert_allclose(arrays[3], tile @ right, atol=1e-12)
    np.testing.assert_allclose(arrays[4], tile.T @ left, atol=1e-12)
