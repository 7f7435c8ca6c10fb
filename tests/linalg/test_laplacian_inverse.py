"""The pseudo-inverse of Laplacians against NumPy's, by eigenvectors."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.sparse import csr_array

from dkl.linalg.laplacian import laplacian_matrix
from dkl.linalg.laplacian_inverse import laplacian_pseudo_inverse


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
