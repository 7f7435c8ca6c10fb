"""Half of a symmetric matrix in tiles against the whole of it."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from dkl.linalg.kernels import packed_symmetric
from dkl.linalg.kernels.packed_symmetric import TILE, PackedSymmetric, n_tiles, packed_bytes


@pytest.fixture(autouse=True)
def threads_for_few_tiles(monkeypatch):
    """Sizes of tests, too, are cut over the threads that are asked for."""
    monkeypatch.setattr(packed_symmetric, "LEAST_TILES_FOR_THREADS", 2)


SIZES = [1, 7, TILE - 1, TILE, TILE + 1, 2 * TILE, 5 * TILE + 77]


def packed(A, dtype=np.float64):
    found = PackedSymmetric(len(A), dtype)
    for row in range(n_tiles(len(A))):
        lo, hi = row * TILE, min((row + 1) * TILE, len(A))
        found.set_rows(row, A[lo:hi, lo:])
    return found


def symmetric(rng, n):
    A = rng.standard_normal((n, n))
    return A + A.T


@pytest.mark.parametrize("n", SIZES)
def test_products(n, rng):
    A = symmetric(rng, n)
    half = packed(A)
    for v in (rng.standard_normal(n), rng.standard_normal((n, 3)), np.asfortranarray(rng.standard_normal((n, 2)))):
        found = half.times(v)
        assert found.shape == v.shape
        assert_allclose(found, A @ v, rtol=0, atol=1e-12 * n)
        assert_array_equal(found, half.times(v, threads=2))
    v = rng.standard_normal((n, 2))
    assert_array_equal(half.times(v)[:, 1], half.times(np.ascontiguousarray(v[:, 1])))


@pytest.mark.parametrize("n", SIZES)
def test_sparse_vectors(n, rng):
    """Tiles that a vector's zeros switch off."""
    A = symmetric(rng, n)
    for support in ([0], [n - 1], [0, n // 2], np.arange(0, n, 100)):
        v = np.zeros(n)
        v[support] = rng.standard_normal(len(support))
        assert_allclose(packed(A).times(v), A @ v, rtol=0, atol=1e-12)
    assert_array_equal(packed(A).times(np.zeros(n)), np.zeros(n))


@pytest.mark.parametrize("n", SIZES)
def test_parts(n, rng):
    A = symmetric(rng, n)
    half = packed(A)
    assert_array_equal(half.diagonal(), A.diagonal())
    rows, columns = rng.integers(0, n, 40), rng.integers(0, n, 30)
    assert_array_equal(half.between(rows, columns), A[np.ix_(rows, columns)])
    assert_array_equal(half.block(rows), A[np.ix_(rows, rows)])
    nothing = np.empty(0, np.intp)
    assert half.between(nothing, columns).shape == (0, 30) and half.block(nothing).shape == (0, 0)


@pytest.mark.parametrize("n", SIZES)
def test_single_precision(n, rng):
    """Kept in half the bytes; sums are in double."""
    A = symmetric(rng, n)
    rounded, half = A.astype(np.float32).astype(float), packed(A, np.float32)
    assert half.tiles.dtype == np.float32
    v = rng.standard_normal(n)
    assert_allclose(half.times(v), rounded @ v, rtol=0, atol=1e-12 * n)
    assert_array_equal(half.times(v), half.times(v, threads=2))
    assert_array_equal(half.block(np.arange(n)), rounded)
    assert half.diagonal().dtype == float


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_bytes(dtype):
    for n in SIZES:
        assert packed_bytes(n, dtype) == PackedSymmetric(n, dtype).tiles.nbytes
    n = 20_000  # half, and half a tile or so a row
    assert packed_bytes(n, dtype) <= (n + TILE) * (n + 2 * TILE) // 2 * np.dtype(dtype).itemsize
