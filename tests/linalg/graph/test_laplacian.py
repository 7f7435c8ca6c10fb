"""Graphs and Laplacians against dense loops and scipy.sparse.csgraph."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import coo_array, csgraph, csr_array, csr_matrix
from sklearn.neighbors import NearestNeighbors

from dkl.errors import InputError
from dkl.linalg.graph.graph_parts import component_labels, component_sizes
from dkl.linalg.graph.laplacian import laplacian_matrix, laplacian_of, similarity_graph


def lists(X, k):
    far, rows = NearestNeighbors(n_neighbors=k, algorithm="brute").fit(X).kneighbors()
    return far**2, rows.astype(np.int64)


def dense_graph(dist2, rows, sigma):
    n, k = rows.shape
    W = np.zeros((n, n))
    for i in range(n):
        for c in range(k):
            W[i, rows[i, c]] = np.exp(-dist2[i, c] / (2 * sigma**2))
    return np.maximum(W, W.T)


def is_tidy(L):
    return isinstance(L, csr_array) and L.dtype == np.float64 and L.has_canonical_format and (L.data != 0).all()


def is_symmetric_to_the_bit(L):
    dense = L.toarray()
    return np.array_equal(dense, dense.T)


def random_affinity(rng, n=40, density=0.1):
    W = (0.5 + rng.random((n, n))) * (rng.random((n, n)) < density)
    W = np.maximum(W, W.T)
    np.fill_diagonal(W, 0)
    return W


@pytest.mark.parametrize("k", [1, 4])
def test_graph_is_the_larger_of_both_directions(rng, k):
    dist2, rows = lists(rng.standard_normal((30, 3)), k)
    W = similarity_graph(dist2, rows, 0.7)
    np.testing.assert_allclose(W.toarray(), dense_graph(dist2, rows, 0.7), rtol=1e-14)
    assert is_tidy(W)
    assert is_symmetric_to_the_bit(W)


def test_graph_without_width_joins_duplicates_only():
    dist2, rows = np.array([[0.0, 1.0], [0.0, 1.0], [1.0, 1.0]]), np.array([[1, 2], [0, 2], [0, 1]])
    expected = [[0, 1, 0], [1, 0, 0], [0, 0, 0]]
    assert np.array_equal(similarity_graph(dist2, rows, 0.0).toarray(), expected)
    assert np.array_equal(similarity_graph(dist2, rows, 1e-200).toarray(), expected)


def test_underflowed_similarities_are_no_edges():
    W = similarity_graph(np.array([[1.0], [1.0], [1e9]]), np.array([[1], [0], [0]]), 1.0)
    assert W.nnz == 2
    for kind in ("normalized", "unnormalized"):
        L, isolated = laplacian_matrix(W, kind)
        assert np.array_equal(isolated, [2])
        assert not L.toarray()[2].any()
        assert np.isfinite(L.data).all()
        assert is_tidy(L)


@pytest.mark.parametrize("density", [0.02, 0.1, 0.5])
def test_laplacians_agree_with_scipy(rng, density):
    W = random_affinity(rng, density=density)
    for kind in ("normalized", "unnormalized"):
        expected = csgraph.laplacian(W, normed=kind == "normalized")
        L, isolated = laplacian_matrix(csr_array(W), kind)
        np.testing.assert_allclose(L.toarray(), expected, atol=1e-14)
        assert np.array_equal(isolated, np.flatnonzero(W.sum(axis=1) == 0))
        assert is_tidy(L)
        assert is_symmetric_to_the_bit(L)


def test_tiny_degrees_neither_overflow_nor_break_the_symmetry():
    W = csr_array(np.array([[0, 5e-324, 0], [5e-324, 0, 3e-310], [0, 3e-310, 0]]))
    L, _ = laplacian_matrix(W, "normalized")
    assert np.isfinite(L.data).all()
    assert is_symmetric_to_the_bit(L)
    assert L[1, 2] == pytest.approx(-1)


@given(st.integers(1, 25), st.floats(0, 1), st.integers(0, 2**32 - 1))
def test_laplacians_are_psd_with_a_null_vector_a_component(n, density, seed):
    W = random_affinity(np.random.default_rng(seed), n, density)
    sizes = component_sizes(component_labels(csr_array(W))[1])
    assert sizes.sum() == n
    for kind in ("normalized", "unnormalized"):
        L = laplacian_of(W, kind).toarray()
        values = np.linalg.eigvalsh(L)
        assert values[0] > -1e-12 * max(1, values[-1])
        assert (values < 1e-6).sum() == sizes.size
        if kind == "unnormalized":
            np.testing.assert_allclose(L.sum(axis=1), 0, atol=1e-12)
        else:
            np.testing.assert_allclose(L @ np.sqrt(W.sum(axis=1)), 0, atol=1e-12)
            assert values[-1] <= 2 + 1e-12


def test_components_largest_first():
    W = np.zeros((7, 7))
    for i, j in [(0, 3), (3, 5), (1, 6)]:
        W[i, j] = W[j, i] = 1
    assert np.array_equal(component_sizes(component_labels(csr_array(W))[1]), [3, 2, 1, 1])


@pytest.mark.parametrize("form", [np.asarray, csr_matrix, coo_array, np.ndarray.tolist])
def test_own_affinity_in_any_form(rng, form):
    W = random_affinity(rng)
    expected = csgraph.laplacian(W, normed=True)
    np.testing.assert_allclose(laplacian_of(form(W)).toarray(), expected, atol=1e-14)


def test_own_affinity_may_be_asymmetric_by_rounding_and_have_a_diagonal(rng):
    W = random_affinity(rng)
    noisy = W * (1 + 1e-12 * rng.random(W.shape)) + np.diag(rng.random(40))
    before = noisy.copy()
    L = laplacian_of(noisy, "unnormalized")
    assert is_symmetric_to_the_bit(L)
    np.testing.assert_allclose(L.toarray(), csgraph.laplacian(W), atol=1e-10)
    assert np.array_equal(noisy, before)


@pytest.mark.parametrize(
    ("affinity", "message"),
    [
        (np.ones((2, 3)), "square"),
        (np.ones(4), "square"),
        (np.ones((0, 0)), "square"),
        ([["a"]], "real numbers"),
        (np.array([[0, 1j], [1j, 0]]), "real numbers"),
        ([[0, -1], [-1, 0]], r"affinity\[0, 1\]: an affinity is negative"),
        ([[0, np.nan], [0, 0]], r"affinity\[0, 1\]: an affinity is not finite"),
        ([[0, 0], [np.inf, 0]], r"affinity\[1, 0\]: an affinity is not finite"),
        ([[0, 1], [1 + 1e-9, 0]], r"affinity\[0, 1\]: not symmetric"),
    ],
)
def test_own_affinity_refused(affinity, message):
    with pytest.raises(InputError, match=message):
        laplacian_of(affinity)


def test_unknown_kind():
    with pytest.raises(InputError, match="laplacian: unknown kind"):
        laplacian_of(np.ones((2, 2)), "random-walk")
