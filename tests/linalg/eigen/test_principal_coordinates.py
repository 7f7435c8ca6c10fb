"""Principal coordinates against scikit-learn's KernelPCA, by Lanczos' method and without."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.decomposition import KernelPCA

from dkl.linalg.eigen import principal_coordinates as module
from dkl.linalg.eigen.principal_coordinates import principal_coordinates


@pytest.mark.parametrize("lanczos_rows", [10, 10_000])
def test_against_kernel_pca(lanczos_rows, rng, monkeypatch):
    monkeypatch.setattr(module, "LANCZOS_ROWS", lanczos_rows)
    X, Z = rng.normal(size=(80, 6)) * np.arange(1, 7), rng.normal(size=(9, 6))
    K, across = (X @ X.T + 1) ** 2, (Z @ X.T + 1) ** 2
    weights, offset = principal_coordinates(K, 4)
    model = KernelPCA(4, kernel="precomputed", eigen_solver="dense").fit(K)
    for rows in (K, across):
        found, wanted = rows @ weights - offset, model.transform(rows)
        assert_allclose(np.abs(found), np.abs(wanted), rtol=1e-6, atol=1e-8 * np.abs(wanted).max())
    vectors = weights / np.linalg.norm(weights, axis=0)
    assert (vectors[np.abs(vectors).argmax(axis=0), np.arange(4)] > 0).all()


def test_not_centred_they_give_the_kernel_back(rng):
    X = rng.normal(size=(12, 3))
    weights, offset = principal_coordinates(X @ X.T, 10, center=False)
    assert weights.shape == (12, 3) and not offset.any()  # as many as K has eigenvalues above rounding
    shown = X @ X.T @ weights
    assert_allclose(shown @ shown.T, X @ X.T, atol=1e-12)


def test_of_rows_that_are_all_one_there_are_none():
    weights, offset = principal_coordinates(np.ones((5, 5)), 3)
    assert weights.shape == (5, 0) and offset.shape == (0,)
