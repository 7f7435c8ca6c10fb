"""Kernel columns and diagonals against scikit-learn's pairwise kernels."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.spatial.distance import cdist
from sklearn.metrics.pairwise import PAIRWISE_KERNEL_FUNCTIONS, pairwise_kernels, rbf_kernel

from dkl.errors import InputError
from dkl.linalg.kernels import kernel_columns
from dkl.linalg.kernels.kernel_columns import Kernel

GIVEN = {"gamma": 0.3, "degree": 3, "coef0": 0.7}
SPARSE = sorted(set(PAIRWISE_KERNEL_FUNCTIONS) - {"chi2", "additive_chi2"})
FORMATS = {"dense": np.asarray, "sparse": sp.csr_array}


def rows_and_points(rng, name, t=37, M=13, d=6):
    X, Z = rng.standard_normal((t, d)), rng.standard_normal((M, d))
    X[rng.random((t, d)) < 0.4] = 0
    Z[:2] = X[:2]
    return (np.abs(X), np.abs(Z)) if "chi2" in name else (X, Z)


def by_sklearn(name, X, Z, **given):
    X, Z = (part.toarray() if sp.issparse(part) else part for part in (X, Z))
    return pairwise_kernels(X.astype(float), Z.astype(float), metric=name, filter_params=True, **given)


@pytest.mark.parametrize("gamma", [None, 0.3])
@pytest.mark.parametrize("name", sorted(PAIRWISE_KERNEL_FUNCTIONS))
def test_every_kernel_is_scikit_learns(rng, name, gamma):
    X, Z = rows_and_points(rng, name)
    given = GIVEN if gamma else {"degree": 3, "coef0": 0.7}
    kernel = Kernel(name, gamma, 3, 0.7)
    found = kernel.columns(X, Z)
    assert found.flags.c_contiguous and found.dtype == np.float64
    np.testing.assert_allclose(found, by_sklearn(name, X, Z, **given), rtol=1e-11, atol=1e-13)
    if name != "additive_chi2":  # of which k(x, x) = 0, a limit of -inf from elsewhere
        np.testing.assert_allclose(kernel.diagonal(Z), np.diag(by_sklearn(name, Z, Z, **given)), rtol=1e-11)


@pytest.mark.parametrize("of_points", FORMATS)
@pytest.mark.parametrize("of_rows", FORMATS)
@pytest.mark.parametrize("name", SPARSE)
@pytest.mark.parametrize("sparse_product", [False, True])
def test_sparse_and_dense_rows_and_points_agree(rng, name, of_rows, of_points, sparse_product, monkeypatch):
    if sparse_product:
        monkeypatch.setattr(kernel_columns, "DENSE_POINTS_BYTES", 0)
    X, Z = rows_and_points(rng, name)
    Z[-1] = 0
    kernel = Kernel(name, **GIVEN)
    found = kernel.columns(FORMATS[of_rows](X), FORMATS[of_points](Z))
    assert isinstance(found, np.ndarray) and found.flags.c_contiguous
    np.testing.assert_allclose(found, by_sklearn(name, X, Z, **GIVEN), rtol=1e-11, atol=1e-13)
    np.testing.assert_allclose(
        kernel.diagonal(FORMATS[of_points](Z)), np.diag(by_sklearn(name, Z, Z, **GIVEN)), atol=1e-13
    )


@pytest.mark.parametrize("of_rows", FORMATS)
@pytest.mark.parametrize("name", ["rbf", "linear", "poly", "sigmoid", "cosine", "laplacian"])
def test_single_precision_is_that_of_its_rounding(rng, name, of_rows):
    X, Z = (part.astype(np.float32) for part in rows_and_points(rng, name))
    make = FORMATS[of_rows]
    found = Kernel(name, **GIVEN).columns(make(X), make(Z), np.float32)
    assert found.dtype == np.float32
    wanted = by_sklearn(name, X, Z, **GIVEN)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=40 * np.finfo(np.float32).eps * np.abs(wanted).max())


@pytest.mark.parametrize(
    ("dtype", "exponent"), [(np.float64, -1000), (np.float64, 1000), (np.float32, -100), (np.float32, 100)]
)
@pytest.mark.parametrize("of_rows", FORMATS)
def test_cosines_do_not_depend_on_the_length_of_rows(rng, of_rows, dtype, exponent):
    """k(s x, z) = k(x, z), though |s x|^2 underflows or overflows; rows of 0 have the cosine 0."""
    X, Z = (part.astype(dtype) for part in rows_and_points(rng, "cosine"))
    X[3] = Z[-1] = 0
    kernel, make, wanted = Kernel("cosine"), FORMATS[of_rows], by_sklearn("cosine", X, Z)
    other = np.where(np.arange(len(X)) % 2, exponent, 0)[:, None]  # rows of both sizes
    for x, z in ((np.ldexp(X, other), Z), (X, np.ldexp(Z, exponent)), (np.ldexp(X, other), np.ldexp(Z, exponent))):
        found = kernel.columns(make(x), make(z), dtype)
        np.testing.assert_allclose(found, wanted, rtol=0, atol=8 * np.finfo(dtype).eps)
        np.testing.assert_array_equal(kernel.diagonal(make(z)), [1] * (len(z) - 1) + [0])


@pytest.mark.parametrize(("dtype", "atol"), [(np.float64, 1e-9), (np.float32, 1e-5)])
def test_rbf_far_from_the_origin_does_not_cancel(rng, dtype, atol):
    X = (rng.standard_normal((50, 5)) + 1e4).astype(dtype)
    wanted = np.exp(-0.5 * ((X[:, None].astype(float) - X[:9].astype(float)) ** 2).sum(axis=2))
    found = Kernel("rbf", gamma=0.5).columns(X, X[:9], dtype)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=atol)
    assert found.max() <= 1


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("of_rows", [np.float64, np.float32])
def test_rbf_of_near_rows_in_clusters_far_apart_does_not_cancel(rng, of_rows, dtype):
    # Multiples of 2^-10 below 2^13: single precision has them all.
    X = (np.round(rng.standard_normal((50, 2)) * 8) / 1024 + 4096 * rng.integers(2, size=(50, 1))).astype(of_rows)
    wanted = np.exp(-5e3 * cdist(X.astype(float), X[:9].astype(float), "sqeuclidean"))
    found = Kernel("rbf", gamma=5e3).columns(X, X[:9], dtype)
    assert found.dtype == dtype
    np.testing.assert_allclose(found, wanted, rtol=0, atol=8 * np.finfo(dtype).eps)
    prepared = Kernel("rbf", gamma=5e3).prepared(X[:9], dtype)
    assert np.array_equal(prepared.since(2, 5).columns(X), found[:, 2:5])


def test_single_columns_of_rows_in_double_precision_are_about_their_mean_in_double(rng):
    X = np.round(rng.standard_normal((50, 5)) * 1024) / 1024
    wanted = np.exp(-0.5 * cdist(X, X[:9], "sqeuclidean"))
    found = Kernel("rbf", gamma=0.5).columns(X + 1e9, X[:9] + 1e9, np.float32)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=40 * np.finfo(np.float32).eps)


def test_rbf_of_many_tiles_and_of_single_rows(rng, monkeypatch):
    X = rng.standard_normal((103, 4))
    whole = Kernel("rbf", gamma=0.2).columns(X, X[:7])
    monkeypatch.setattr(kernel_columns, "TILE_BYTES", 16 * 7 * 8)
    np.testing.assert_allclose(Kernel("rbf", gamma=0.2).columns(X, X[:7]), whole, rtol=1e-13)
    np.testing.assert_allclose(whole, rbf_kernel(X, X[:7], gamma=0.2), rtol=1e-12)
    np.testing.assert_allclose(Kernel("rbf", gamma=0.2).columns(X[40:41], X[:7]), whole[40:41], rtol=1e-13)


def test_rbf_of_equal_sparse_rows_is_at_most_one(rng):
    X = sp.csr_array(1e3 * rng.standard_normal((20, 30)))
    found = Kernel("rbf", gamma=1.0).columns(X, X)
    assert found.max() <= 1
    np.testing.assert_allclose(np.diag(found), 1, atol=1e-7)


def minimum(x, z, power=1.0):
    return float(np.minimum(np.abs(x), np.abs(z)).sum() ** power)


def test_callables_of_two_rows_and_of_two_matrices(rng):
    X, Z = rows_and_points(rng, "")
    kernel = Kernel(minimum, params={"power": 2.0})
    wanted = np.array([[minimum(x, z, 2.0) for z in Z] for x in X])
    np.testing.assert_allclose(kernel.columns(X, Z), wanted, rtol=1e-12)
    np.testing.assert_allclose(kernel.diagonal(Z), [minimum(z, z, 2.0) for z in Z], rtol=1e-12)
    by_name = Kernel("rbf", gamma=0.4).columns(X, Z)
    np.testing.assert_allclose(Kernel(rbf_kernel, params={"gamma": 0.4}).columns(X, Z), by_name, rtol=1e-12)


def test_precomputed_rows_are_taken_by_number(rng):
    K = rng.standard_normal((8, 8))
    K = K @ K.T
    kernel, numbers = Kernel("precomputed"), np.array([5, 0, 3])
    np.testing.assert_array_equal(kernel.columns(K[2:6], numbers), K[2:6][:, numbers])
    np.testing.assert_array_equal(kernel.diagonal(K[numbers], numbers), np.diag(K)[numbers])
    sparse = sp.csr_array(K)
    np.testing.assert_array_equal(kernel.diagonal(sparse[numbers], numbers), np.diag(K)[numbers])


def test_negative_diagonals_are_refused(rng):
    Z = rng.standard_normal((5, 3))
    with pytest.raises(InputError, match="not a positive semidefinite kernel"):
        Kernel("sigmoid", gamma=0.1, coef0=-5.0).diagonal(Z)
    with pytest.raises(InputError, match="not a positive semidefinite kernel"):
        Kernel("precomputed").diagonal(-np.eye(3), np.arange(3))
    with pytest.raises(InputError, match="not a positive semidefinite kernel"):
        Kernel("precomputed").diagonal(np.full((1, 1), np.nan), np.array([0]))


def test_what_scikit_learn_refuses_is_told_as_bad_input(rng):
    X = rng.standard_normal((5, 3))
    with pytest.raises(InputError, match="cannot be evaluated"):
        Kernel("chi2").columns(X, X)  # negative features
    with pytest.raises(InputError, match="not finite"):
        Kernel(lambda x, z: float("inf")).columns(X, X)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("of_rows", FORMATS)
@pytest.mark.parametrize("gamma", [1e-300, 1e-78, 1e-12, 1e12, 1e15, 1e24, 1e77, 1e300])
def test_rbf_of_any_gamma_is_that_of_differences(rng, gamma, of_rows, dtype):
    # Rows of the kernel's width, of which some are equal, some near, and the last far from all others; 2^-8 of the width is exact.
    unit = 2.0 ** round(np.log2(gamma) / -2)
    X = np.round(rng.standard_normal((12, 5)) * 256) / 256 * (rng.random((12, 5)) < 0.6)
    X[7:9] = X[0]
    X[8, 1] += 1 / 64
    X[10:] += 4096
    X[10, 2] += 1 / 16
    make = FORMATS[of_rows]
    found = Kernel("rbf", gamma).columns(make(X * unit), make(X * unit), dtype)
    wanted = np.exp(-(gamma * unit * unit) * cdist(X, X, "sqeuclidean"))
    np.testing.assert_allclose(found, wanted, rtol=0, atol=500 * np.finfo(dtype).eps)
    assert (np.diag(found) == 1).all() or of_rows == "sparse"
    np.testing.assert_allclose(np.diag(found), 1, rtol=0, atol=500 * np.finfo(dtype).eps)


@pytest.mark.parametrize("of_rows", FORMATS)
@pytest.mark.parametrize("gamma", [1e-12, 1.0, 1e15])
def test_rbf_of_rows_without_squares_is_no_number(gamma, of_rows):
    X = np.eye(4)
    X[2, 1], X[3, 3] = 1e200, np.inf
    found = Kernel("rbf", gamma).columns(FORMATS[of_rows](X), FORMATS[of_rows](X[:2]))
    assert np.isnan(found[2:]).all() and (np.diag(found) == 1).all()
    assert np.isnan(Kernel("rbf", gamma).columns(FORMATS[of_rows](X[:2]), FORMATS[of_rows](X))[:, 2:]).all()


@pytest.mark.parametrize("name", SPARSE)
def test_rows_with_64_bit_indices_are_rows(rng, name):
    X, Z = (sp.csr_array(rows) for rows in rows_and_points(rng, name))
    wanted = Kernel(name, **GIVEN).columns(X, Z)
    for rows in (X, Z):
        rows.indices, rows.indptr = rows.indices.astype(np.int64), rows.indptr.astype(np.int64)
    assert np.array_equal(Kernel(name, **GIVEN).columns(X, Z), wanted)
    np.testing.assert_allclose(Kernel(name, **GIVEN).columns(X, Z.toarray()), wanted, rtol=1e-13)
    assert X.indices.dtype == np.int64
