"""Lists of neighbors against loops over all pairs: ties by row number, duplicates, any size and order of blocks."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array
from sklearn.neighbors import KDTree, NearestNeighbors

from dkl.linalg.graph.neighbors import absorb, absorb_candidates, empty_lists, search_tree


def by_loop(X, k):
    """(dist2, rows) by sorting (distance, number) of every other row, sums in plain Python."""
    X = X.tolist()
    rows, dist2 = [], []
    for i, x in enumerate(X):
        pairs = []
        for j, y in enumerate(X):
            if i != j:
                total = 0.0
                for a, b in zip(x, y, strict=True):
                    total += (a - b) * (a - b)
                pairs.append((total, j))
        best = sorted(pairs)[:k]
        dist2.append([d for d, _ in best])
        rows.append([j for _, j in best])
    return np.array(dist2), np.array(rows)


def by_blocks(X, k, size, reverse=False):
    n = X.shape[0]
    ids = np.arange(n)
    lists = empty_lists(n, k)
    starts = list(range(0, n, size))
    for start in reversed(starts) if reverse else starts:
        absorb(lists, X, ids, X[start : start + size], start)
    return lists


def same(lists, truth):
    return np.array_equal(lists[0], truth[0]) and np.array_equal(lists[1], truth[1])


@pytest.fixture(params=["normal", "grid", "duplicates", "offset", "sparse binary"])
def X(request, rng):
    n = 130
    if request.param == "normal":
        return rng.standard_normal((n, 5))
    if request.param == "grid":
        return rng.integers(0, 3, (n, 3)).astype(float)
    if request.param == "duplicates":
        return rng.standard_normal((12, 4))[rng.integers(0, 12, n)]
    if request.param == "offset":  # a product of such rows has no digit of their distance left
        return 1e8 + rng.standard_normal((n, 4))
    return (rng.random((n, 40)) < 0.1).astype(float)


@pytest.mark.parametrize("k", [1, 7, 129])
def test_dense_and_sparse_agree_with_a_loop(X, k):
    truth = by_loop(X, k)
    assert same(by_blocks(X, k, 130), truth)
    assert same(by_blocks(csr_array(X), k, 130), truth)


@pytest.mark.parametrize("size", [1, 17, 64, 130])
def test_blocks_of_any_size_and_order_give_the_same_bits(X, size):
    whole = by_blocks(X, 6, 130)
    for rows in (X, csr_array(X)):
        assert same(by_blocks(rows, 6, size), whole)
        assert same(by_blocks(rows, 6, size, reverse=True), whole)


def test_more_rows_than_a_tile(rng):
    X = np.round(rng.standard_normal((2500, 6)), 1)
    lists = by_blocks(X, 8, 2500)
    assert same(by_blocks(csr_array(X), 8, 2500), lists)
    far, _ = NearestNeighbors(n_neighbors=8, algorithm="brute").fit(X).kneighbors()
    np.testing.assert_allclose(np.sqrt(lists.dist2), far, atol=1e-7)


@pytest.mark.parametrize("k", [1, 7, 100])
def test_tree_breaks_ties_as_the_blocks_do(X, k):
    lists = search_tree(KDTree(X, leaf_size=5), X, np.arange(130), k)
    assert same(lists, by_blocks(X, k, 130))


def test_tree_gives_up_on_very_long_ties(monkeypatch):
    monkeypatch.setattr("dkl.linalg.graph.neighbors._MAX_TREE_LIST", 16)
    X = np.zeros((100, 2))
    X[90:] = np.arange(20).reshape(10, 2)
    assert same(search_tree(KDTree(X), X, np.arange(100), 4), by_loop(X, 4))


def test_candidates_are_taken_from_the_blocks_that_hold_them(X):
    candidates = np.tile(np.arange(-1, 130, dtype=np.int64), (130, 1))  # -1: none
    for rows in (X, csr_array(X)):
        lists = empty_lists(130, 6)
        for start in range(0, 130, 50):
            absorb_candidates(lists, rows, np.arange(130), rows[start : start + 50], start, candidates)
        assert same(lists, by_blocks(X, 6, 130))


def test_places_stay_free_where_rows_are_missing():
    lists = empty_lists(2, 3)
    absorb(lists, np.zeros((2, 1)), np.arange(2), np.zeros((2, 1)), 0)
    assert np.array_equal(lists.rows[:, 0], [1, 0])
    assert np.isinf(lists.dist2[:, 1:]).all()


def test_rows_of_single_precision_have_distances_of_double(rng):
    X = rng.standard_normal((60, 5)).astype(np.float32)
    truth = by_blocks(X.astype(np.float64), 4, 60)
    assert same(by_blocks(X, 4, 60), truth)
    assert same(by_blocks(csr_array(X), 4, 60), truth)
    lists = empty_lists(60, 4)
    absorb_candidates(lists, X, np.arange(60), X, 0, np.tile(np.arange(60), (60, 1)))
    assert same(lists, truth)


def test_read_only_rows_and_stored_zeros(rng):
    X = rng.standard_normal((40, 6)) * (rng.random((40, 6)) < 0.4)
    truth = by_loop(X, 3)
    X.setflags(write=False)
    assert same(by_blocks(X, 3, 40), truth)
    full = csr_array((X.ravel(), np.tile(np.arange(6), 40), np.arange(0, 241, 6)), shape=(40, 6))
    assert same(by_blocks(full, 3, 40), truth)


@given(st.integers(2, 40), st.integers(1, 3), st.integers(1, 50), st.integers(0, 2**32 - 1))
def test_any_small_grid(n, n_features, size, seed):
    X = np.random.default_rng(seed).integers(-1, 2, (n, n_features)).astype(float)
    k = min(n - 1, 5)
    truth = by_loop(X, k)
    assert same(by_blocks(X, k, size), truth)
    assert same(by_blocks(csr_array(X), k, size), truth)
    assert same(search_tree(KDTree(X), X, np.arange(n), k), truth)
