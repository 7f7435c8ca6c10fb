"""A kernel that is a function: of matrices, as in SVC, and compared with it."""

from functools import partial

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse
from sklearn.metrics.pairwise import pairwise_kernels, polynomial_kernel
from sklearn.svm import SVC

from dkl import OptimalNeighborhoodSVC
from dkl.errors import InputError

TIGHT = {"rho": 1e12, "tol": 1e-10}  # of so large a rho the learned kernel is the given one


def product(X, Z):
    return (X @ Z.T + 1.0) ** 2


def histogram(X, Z):
    return np.minimum(np.abs(X)[:, None], np.abs(Z)[None]).sum(axis=2)


@pytest.fixture
def rows(rng):
    X = rng.standard_normal((90, 4))
    return X[:60], np.where(X[:60, 0] + X[:60, 1] ** 2 > 0.6, "yes", "no"), X[60:]


@pytest.mark.parametrize("kernel", [product, histogram], ids=["product", "histogram"])
def test_it_is_called_as_svc_calls_it(kernel, rows):
    X, y, Z = rows
    ours = OptimalNeighborhoodSVC(kernel=kernel, **TIGHT).fit(X, y)
    theirs = SVC(kernel=kernel, tol=1e-10).fit(X, y)
    assert_allclose(ours.decision_function(Z), theirs.decision_function(Z), atol=1e-5)
    assert (ours.predict(Z) == theirs.predict(Z)).all()


def test_three_classes_and_sparse_rows(rows):
    X, _, Z = rows
    y, dense = np.arange(60) % 3, OptimalNeighborhoodSVC(kernel=product, **TIGHT)
    theirs = SVC(kernel=product, tol=1e-10, decision_function_shape="ovo").fit(X, y)
    assert_allclose(
        dense.set_params(decision_function_shape="ovo").fit(X, y).decision_function(Z),
        theirs.decision_function(Z),
        atol=1e-4,
    )
    of_sparse = OptimalNeighborhoodSVC(kernel=lambda A, B: (A @ B.T).power(1), **TIGHT)
    assert_allclose(
        of_sparse.fit(sparse.csr_array(X), y == 0).decision_function(sparse.csr_array(Z)),
        OptimalNeighborhoodSVC(kernel="linear", **TIGHT).fit(X, y == 0).decision_function(Z),
        atol=1e-6,
    )


def test_parameters_and_functions_of_two_rows(rows):
    X, y, Z = rows
    named = OptimalNeighborhoodSVC(kernel="poly", gamma=0.5, degree=2, coef0=1.0, **TIGHT).fit(X, y)
    given = OptimalNeighborhoodSVC(kernel=polynomial_kernel, kernel_params={"gamma": 0.5, "degree": 2}, **TIGHT)
    of_rows = partial(pairwise_kernels, metric=lambda x, z: (0.5 * x @ z + 1.0) ** 2)
    for model in (given, OptimalNeighborhoodSVC(kernel=of_rows, **TIGHT)):
        assert_allclose(model.fit(X, y).decision_function(Z), named.decision_function(Z), atol=1e-6)


@pytest.mark.parametrize(
    "kernel", [lambda x, z: 1.0, lambda X, Z: X @ X.T, lambda x, z: (x * z).sum(), lambda X, Z: "text"]
)
def test_what_returns_no_matrix_is_refused(kernel, rows):
    X, y, _ = rows
    with pytest.raises(InputError, match="kernel=.*(not a kernel matrix|cannot be evaluated).*pairwise_kernels"):
        OptimalNeighborhoodSVC(kernel=kernel).fit(X, y).decision_function(X[:7])


@pytest.mark.parametrize("class_weight", ["balanced", {"yes": 3.0, "no": 0.5}])
def test_class_weight_with_sample_weight_is_svcs(class_weight, rows, rng):
    X, y, Z = rows
    weights = rng.uniform(0.2, 3.0, len(y))
    ours = OptimalNeighborhoodSVC(class_weight=class_weight, **TIGHT).fit(X, y, sample_weight=weights)
    theirs = SVC(class_weight=class_weight, tol=1e-10).fit(X, y, sample_weight=weights)
    assert_allclose(ours.class_weight_, theirs.class_weight_, rtol=1e-12)
    assert_allclose(ours.decision_function(Z), theirs.decision_function(Z), atol=1e-5)
