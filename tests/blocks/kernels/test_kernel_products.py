"""Products of a kernel with blocks of vectors: each pair of rows computed once, and the dense matrix's numbers."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.metrics.pairwise import pairwise_kernels

from dkl.blocks.kernels import kernel_products
from dkl.blocks.kernels.kernel_products import KernelProducts, held_bytes, tile_bounds, tiles_of
from dkl.blocks.rows.row_sources import row_source
from dkl.blocks.session import Session
from dkl.linalg.kernels.kernel_columns import Kernel


@pytest.mark.parametrize("count", [1, 2, 4, 8, 32])
def test_each_pair_of_rows_is_computed_once(count, monkeypatch):
    monkeypatch.setattr(kernel_products, "TILE_COLUMNS", 7)
    n = 6 * count + 5 if count > 1 else 20
    bounds = [(k * n // count, (k + 1) * n // count) for k in range(count)]
    times = np.zeros((n, n), int)
    work = []
    for index, (start, stop) in enumerate(bounds):
        for span in ((0, n // 3), (n // 3, n)):
            for first, last, is_own in tiles_of(index, bounds, span):
                assert span[0] <= first < last <= min(span[1], first + 7)
                times[start:stop, first:last] += 1
                if not is_own:
                    times[first:last, start:stop] += 1
        work.append(sum(last - first for first, last, _ in tiles_of(index, bounds, (0, n))))
    assert (times == 1).all()
    assert max(work) - min(work) <= 2 + n // count  # a block at most


@pytest.mark.parametrize("name", ["rbf", "poly"])
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
def test_products_are_those_of_the_matrix_held_or_not(name, form, rng, monkeypatch):
    monkeypatch.setattr(kernel_products, "LEAST_ROWS", 20)
    monkeypatch.setattr(kernel_products, "TILE_COLUMNS", 33)
    X = rng.standard_normal((300, 6)) * (rng.random((300, 6)) < 0.6)
    K = pairwise_kernels(X, metric=name, gamma=0.3, filter_params=True, degree=2, coef0=1)
    V = rng.standard_normal((300, 5))
    found = []
    for held in (0, held_bytes(300, 48, "f8") // 3, held_bytes(300, 48, "f8") + 1):
        products = KernelProducts(Kernel(name, 0.3, 2, 1.0), row_source(form(X)), Session(None, threads=2), held=held)
        for _ in range(2):
            found.append(products.times(V))
        kept = [memo for item in products.rows._items for memo in item.memos.values()]
        size = sum(tile.nbytes for memo in kept for tile in memo.values())
        assert 0.6 * held <= size <= held
        products.forget()
        chosen = np.array([3, 50, 299])
        np.testing.assert_allclose(products.thin(chosen, V[:3]), K[:, chosen] @ V[:3], atol=1e-11)
        np.testing.assert_allclose(products.block(chosen), K[np.ix_(chosen, chosen)], atol=1e-12)
    np.testing.assert_allclose(found[0], K @ V, atol=1e-10)
    assert all(np.array_equal(found[0], other) for other in found)
    assert len(tile_bounds(300, 48)) == 8 and size == held_bytes(300, 48, "f8")
