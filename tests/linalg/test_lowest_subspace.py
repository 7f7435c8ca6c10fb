"""The lowest eigenvectors of a sparse matrix, as a block, against LAPACK's."""

import numpy as np
from scipy import sparse

from dkl.linalg.lowest_subspace import lowest_subspaces


def test_a_cluster_at_zero_is_found_whole(rng):
    """30 eigenvalues within 1e-5 of 0, some negative, below a quasi-continuum: n = 300."""
    n, count = 300, 36
    values = np.concatenate([1e-5 * rng.standard_normal(30), np.geomspace(1e-2, 5.0, n - 30)])
    basis = np.linalg.qr(rng.standard_normal((n, n)))[0]
    dense = (basis * values) @ basis.T
    matrix = sparse.csr_array(0.5 * (dense + dense.T))
    exact = np.sort(values)
    errors = []
    for found in lowest_subspaces(matrix, rng.standard_normal((n, count + 8)), count, 6):
        q = found.vectors
        np.testing.assert_allclose(q.T @ q, np.eye(count), atol=1e-12)
        np.testing.assert_allclose(dense @ q, q * found.values + found.remainder, atol=1e-12)
        assert np.abs(q.T @ found.remainder).max() < 1e-12
        assert (found.values >= exact[:count] - 1e-13).all(), "Ritz values are never below (Cauchy)"
        assert found.beyond >= exact[count] - 1e-13
        errors.append(np.abs(found.values[:30] - exact[:30]).max())
    assert errors[-1] < 1e-9 < errors[0]
