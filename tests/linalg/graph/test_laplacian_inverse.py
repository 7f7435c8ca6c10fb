"""The pseudo-inverse of Laplacians against NumPy's, by eigenvectors."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.sparse import csr_array

from dkl.errors import NumericalError
from dkl.linalg.graph.laplacian import laplacian_matrix, laplacian_pseudo_inverse


@pytest.mark.parametrize("kind", ["normalized", "unnormalized"])
@pytest.mark.parametrize("parts", [[30], [12, 1, 20], [1, 1]], ids=["connected", "three components", "no edges"])
def test_against_eigenvectors(kind, parts, rng):
    labels = np.repeat(np.arange(len(parts)), parts)
    W = np.where(labels[:, None] == labels, rng.uniform(0.1, 2.0, (len(labels), len(labels))), 0.0)
    W = W + W.T
    np.fill_diagonal(W, 0.0)
    shuffled = rng.permutation(len(W))
    W = csr_array(W[np.ix_(shuffled, shuffled)])
    found = laplacian_pseudo_inverse(laplacian_matrix(W, "unnormalized")[0], kind)
    L = laplacian_matrix(W, kind)[0].toarray()
    assert_allclose(found, np.linalg.pinv(L, rcond=1e-10, hermitian=True), atol=1e-11)
    assert np.array_equal(found, found.T)


def test_a_long_path_has_resistances_of_its_length():
    """Of a chain of unit resistors: K_ii + K_jj - 2 K_ij = |i - j|."""
    n = 300
    W = csr_array(np.eye(n, k=1) + np.eye(n, k=-1))
    K = laplacian_pseudo_inverse(laplacian_matrix(W, "unnormalized")[0], "unnormalized")
    d = K.diagonal()
    assert_allclose(d[:, None] + d - 2 * K, np.abs(np.subtract.outer(np.arange(n), np.arange(n))), atol=1e-7)


def two_groups(rng, weight):
    """Two complete graphs, of 12 rows and of 8, with edges of that weight between them."""
    labels = np.repeat([0, 1], [12, 8])
    W = np.where(labels[:, None] == labels, rng.uniform(0.5, 2.0, (20, 20)), 0.5 * weight)
    W = W + W.T
    np.fill_diagonal(W, 0.0)
    return W, labels


@pytest.mark.parametrize("kind", ["normalized", "unnormalized"])
@pytest.mark.parametrize("weight", [1e-12, 1e-20, 1e-300])
def test_edges_by_name_only_join_nothing(kind, weight, rng):
    """The kernel is that of the two groups alone: with such edges it would be rounding, or none at all."""
    W, labels = two_groups(rng, weight)
    found = laplacian_pseudo_inverse(laplacian_matrix(csr_array(W), "unnormalized")[0], kind)
    apart = csr_array(np.where(labels[:, None] == labels, W, 0.0))
    L = laplacian_matrix(apart, kind)[0].toarray()
    assert_allclose(found, np.linalg.pinv(L, rcond=1e-10, hermitian=True), atol=1e-9)


def test_a_row_of_negligible_weights_alone_is_its_own_component(rng):
    W, _ = two_groups(rng, 0.3)
    W[0, 1:] = W[1:, 0] = 1e-40
    found = laplacian_pseudo_inverse(laplacian_matrix(csr_array(W), "unnormalized")[0])
    assert_allclose(found[0], 0.0, atol=1e-14)
    L = laplacian_matrix(csr_array(W[1:, 1:]))[0].toarray()
    assert_allclose(found[1:, 1:], np.linalg.pinv(L, rcond=1e-10, hermitian=True), atol=1e-9)


def test_a_kernel_of_rounding_is_refused():
    """A chain whose middle edge weighs 1e-13 of the others' degrees, by a row between of next to no degree."""
    W = np.eye(30, k=1)
    W[14, 15] = W[15, 16] = 1e-13
    W = W + W.T
    with pytest.raises(NumericalError, match=r"reciprocal condition .* wanted at least 1e-10.*local widths"):
        laplacian_pseudo_inverse(laplacian_matrix(csr_array(W), "unnormalized")[0], "unnormalized")
