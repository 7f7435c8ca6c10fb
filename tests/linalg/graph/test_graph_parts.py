"""Components of a graph, rows that are cut off and the edges that join components, against SciPy on all distances."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components, minimum_spanning_tree
from scipy.spatial.distance import cdist

from dkl.errors import InputError
from dkl.linalg.graph.graph_parts import cut_rows, spanning_edges
from dkl.linalg.graph.neighbors import absorb


def least_length(X, labels):
    """Of the tree that joins the components, by SciPy on the matrix of the least distances between them."""
    count = labels.max() + 1
    D = cdist(X, X)
    between = np.array([[D[np.ix_(labels == a, labels == b)].min() for b in range(count)] for a in range(count)])
    return minimum_spanning_tree(np.where(np.eye(count), 0.0, between + 1.0)).sum() - (count - 1)


@given(st.integers(0, 2**32 - 1), st.integers(1, 12), st.sampled_from([np.asarray, csr_array, np.float32]))
def test_components_are_joined_by_the_least_tree(seed, count, form):
    rng = np.random.default_rng(seed)
    X = np.round(rng.standard_normal((60, 3)), rng.integers(1, 6)).astype(np.float32).astype(np.float64)
    labels = np.append(np.arange(count), rng.integers(0, count, 60 - count) ** 2 // count)
    edges = spanning_edges(form(X), labels.astype(np.int32))
    assert edges.shape == (count - 1, 2) and (edges[:, 0] < edges[:, 1]).all()
    assert np.array_equal(edges, edges[np.lexsort(edges.T[::-1])])
    merged = csr_array((np.ones(len(edges)), (labels[edges[:, 0]], labels[edges[:, 1]])), shape=(count, count))
    assert connected_components(merged, directed=False)[0] == 1
    lengths = np.linalg.norm(X[edges[:, 0]] - X[edges[:, 1]], axis=1)
    assert lengths.sum() == pytest.approx(least_length(X, labels), rel=1e-9, abs=1e-9)


def test_rows_that_negligible_weights_join_are_all_but_the_largest_part():
    """A chain of three groups of 5, 3 and 4 rows, and a component of its own: the largest parts of both stay."""
    sizes = [5, 3, 4, 2]
    group = np.repeat(range(4), sizes)
    W = np.where(group[:, None] == group, 1.0, 0.0)
    np.fill_diagonal(W, 0.0)
    pattern = W.copy()
    for i, j in ((4, 5), (7, 8)):
        W[i, j] = W[j, i] = 1e-11
        pattern[i, j] = 1.0
    found = cut_rows(csr_array(W), W.sum(axis=1), csr_array(pattern))
    assert np.array_equal(found, np.arange(5, 12))
    assert not cut_rows(csr_array(W), W.sum(axis=1), csr_array(np.where(group[:, None] == group, 1.0, 0.0))).size


def test_copies_are_searched_for_once(monkeypatch):
    """Eight places of 40 copies each, and one of them in two components: edges of the first of the copies."""
    searched = []

    def absorbed(lists, queries, *others):
        searched.append(len(queries))
        absorb(lists, queries, *others)

    monkeypatch.setattr("dkl.linalg.graph.graph_parts.absorb", absorbed)
    X = np.repeat(np.random.default_rng(0).standard_normal((8, 4)), 40, axis=0)
    labels = np.repeat(range(8), 40)
    edges = spanning_edges(X, labels)
    assert (edges % 40 == 0).all() and sum(searched) <= 8 * 3
    labels[:20] = 8
    assert [0, 20] in spanning_edges(X, labels).tolist()


@pytest.mark.parametrize("form", [np.asarray, csr_array])
def test_rows_whose_distances_overflow_are_refused(form, rng):
    X = rng.standard_normal((9, 3))
    X[4, 1] = 1e160
    with pytest.raises(InputError, match=r"^X\[4, 1\]: a value is so large that distances overflow"):
        spanning_edges(form(X), np.arange(9) % 3)
