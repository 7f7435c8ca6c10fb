"""Leading eigenvectors by subspace iteration, against LAPACK."""

import numpy as np

from dkl.linalg.eigen.principal_coordinates import SPARE, first_basis, subspace_iteration


def test_values_that_stand_out_are_found_and_found_again(rng):
    n, k = 60, 5
    vectors = np.linalg.qr(rng.normal(size=(n, n)))[0]
    values = np.concatenate([[900.0, 400.0, 100.0, 90.0, 50.0], rng.uniform(0.1, 1.0, n - k)])
    K = (vectors * values) @ vectors.T
    leading = (vectors[:, :k] * values[:k]) @ vectors[:, :k].T
    S, basis = subspace_iteration(lambda X: K @ X, first_basis(n, k), k)
    assert S.shape == (n, k)
    assert basis.shape == (n, k + SPARE)
    np.testing.assert_allclose(S @ S.T, leading, atol=1e-3 * values[0])
    again, _ = subspace_iteration(lambda X: K @ X, basis, k)
    np.testing.assert_allclose(again @ again.T, leading, atol=1e-6 * values[0])


def test_few_rows_have_few_vectors(rng):
    K = np.diag([3.0, 2.0])
    S, _ = subspace_iteration(lambda X: K @ X, first_basis(2, 2), 2)
    np.testing.assert_allclose(S @ S.T, K, atol=1e-12)
