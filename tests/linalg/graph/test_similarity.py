"""Similarities of one width and of local widths against loops, and what must hold of local ones whatever the data."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.spatial.distance import cdist

from dkl.linalg.graph.laplacian import Similarity, average_width, kth_width, similarity_graph


def lists(X, k):
    """Squared distances and numbers of the k nearest others, ties by number."""
    dist2 = ((X[:, None] - X[None]) ** 2).sum(axis=2)
    np.fill_diagonal(dist2, np.inf)
    rows = np.argsort(dist2, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(dist2, rows, axis=1), rows


def local_by_hand(X, k, sharpness=1.0):
    dist2, rows = lists(X, k)
    W, s = np.zeros((len(X), len(X))), np.sqrt(dist2[:, -1])
    for i in range(len(X)):
        for j in rows[i]:
            width = max(s[i], s[j])
            d = np.linalg.norm(X[i] - X[j])
            W[i, j] = W[j, i] = np.exp(-sharpness * d**2 / width**2) if width > 0 else 1.0
    return W


def hard_rows(seed, kind):
    """50 rows of 3 features that one width for all does not fit."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((50, 3))
    if kind == "tails":
        X = rng.standard_cauchy((50, 3)) ** 3
    elif kind == "far rows":
        X[:4] = 1e6 + 1e-3 * X[:4]
        X[9] = -1e12
    elif kind == "duplicates":
        X = X[rng.integers(0, 5, 50)]
    elif kind == "half duplicates":
        X[::2] = X[0]
    elif kind == "scales":
        X[:25] *= 1e-6
    elif kind == "all equal":
        X[:] = X[0]
    elif kind == "all equal but one":
        X[1:] = X[1]
    return X


KINDS = ["normal", "tails", "far rows", "duplicates", "half duplicates", "scales", "all equal", "all equal but one"]


@given(st.integers(0, 2**32 - 1), st.sampled_from(KINDS), st.integers(1, 49))
def test_local_weights_are_bounded_symmetric_and_of_no_unit(seed, kind, k):
    X = hard_rows(seed, kind)
    W = similarity_graph(*lists(X, k), None)
    assert W.data.min() >= np.exp(-1.0) and W.data.max() <= 1.0
    assert np.array_equal(W.toarray(), W.toarray().T)
    assert W.sum(axis=1).min() >= k / np.e * (1 - 1e-12)
    doubled = similarity_graph(*lists(2.0**20 * X, k), None)
    assert np.array_equal(doubled.toarray(), W.toarray())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sharpness", [1.0, 3.0, 0.0])
def test_local_weights_are_those_of_the_formula(kind, sharpness):
    X = hard_rows(0, kind)
    W = similarity_graph(*lists(X, 7), None, sharpness).toarray()
    assert_allclose(W, local_by_hand(X, 7, sharpness), rtol=1e-12)


def test_width_is_half_the_average_distance_to_the_ten_nearest(rng):
    X = rng.standard_normal((60, 3))
    total = 0.0
    for i in range(60):
        total += np.sort(np.linalg.norm(X - X[i], axis=1))[1:11].sum()
    assert average_width(lists(X, 15)[0]) == pytest.approx(total / 600 / 2)


def test_kth_width_is_the_mean_distance_to_the_last_neighbor(rng):
    X = rng.standard_normal((60, 3))
    last = [np.sort(np.linalg.norm(X - row, axis=1))[7] for row in X]  # the row itself comes first
    assert kth_width(lists(X, 7)[0]) == pytest.approx(np.mean(last))


def test_width_of_few_patterns_uses_all_of_them():
    assert average_width(np.array([[4.0], [4.0]])) == 1.0


def test_unseen_rows_have_the_graph_s_weights(rng):
    X, new = rng.standard_normal((40, 2)), 3 * rng.standard_normal((9, 2))
    d = cdist(new, X)
    rows = np.argsort(d, axis=1)[:, :6]
    near = np.take_along_axis(d, rows, axis=1)
    s = np.sqrt(lists(X, 6)[0][:, -1])
    local = Similarity(s, 6, 3.0).weights(near**2, rows)
    for i in range(9):
        for c, j in enumerate(rows[i]):
            assert local[i, c] == pytest.approx(np.exp(-3 * d[i, j] ** 2 / max(near[i, -1], s[j]) ** 2))
    assert local.min() >= np.exp(-3.0) * (1 - 1e-12)
    one = Similarity(np.array([0.7]), 6).weights(near**2, rows)
    relative = np.exp(-(near**2) / (2 * 0.49))
    assert_allclose(one, relative / relative[:, :1])


@pytest.mark.parametrize("unit", [1e-4, 1.0, 1e4])
def test_of_width_0_the_nearest_rows_alone_count_in_any_unit(unit):
    """A graph of duplicates, whose mean distance to 10 neighbors is 0, joins no others: nor are unseen rows joined to farther ones."""
    near = np.array([[0.1, 0.1, 0.9], [0.0, 1.0, 1.0]]) * unit
    weights = Similarity(np.zeros(1), 3).weights(near**2, np.zeros((2, 3), np.intp))
    assert weights.tolist() == [[1.0, 1.0, 0.0], [1.0, 0.0, 0.0]]
