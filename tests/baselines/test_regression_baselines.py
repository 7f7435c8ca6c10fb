"""The baselines of the SLKL paper against explicit n x n matrices and against scikit-learn."""

import importlib
import subprocess
import sys

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose
from sklearn.kernel_approximation import Nystroem
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import Ridge
from sklearn.metrics.pairwise import pairwise_kernels, rbf_kernel
from sklearn.utils.estimator_checks import parametrize_with_checks

import dkl.baselines
from dkl.baselines import KernelRidgeRegressor, NystromRegressor, UniformWeightsRegressor
from dkl.errors import InputError, MemoryBudgetError

ALL = [KernelRidgeRegressor, NystromRegressor, UniformWeightsRegressor]
N, M, GAMMA, LAM = 90, 25, 0.4, 0.3


@pytest.fixture
def case(rng):
    """X, y with a mean far from 0, unseen rows, row numbers of candidates."""
    X = rng.normal(size=(N, 3))
    y = np.sin(2 * X[:, 0]) + X[:, 1] ** 2 + 20 + 0.1 * rng.normal(size=N)
    return X, y, rng.normal(size=(40, 3)), rng.choice(N, M, replace=False)


def made(method, **params):
    """Uniform weights are 1 / M, as `kernels` has them."""
    return method(**params, **({"mu": "mean"} if method is UniformWeightsRegressor else {}))


def by_explicit_kernel(K, across, y, lam, weights=None, intercept=True):
    """Predictions of KRR on a dense n x n kernel by its bordered system: (K + lam S^-1) a + c = y, sum a = 0."""
    n = len(K)
    S = np.ones(n) if weights is None else weights
    if not intercept:
        return across @ np.linalg.solve(K + lam * np.diag(1 / S), y)
    bordered = np.block([[K + lam * np.diag(1 / S), np.ones((n, 1))], [np.ones((1, n)), np.zeros((1, 1))]])
    found = np.linalg.solve(bordered, np.append(y, 0.0))
    return across @ found[:-1] + found[-1]


def kernels(method, X, Z, columns, kernel="rbf", **params):
    """The n x n matrix that a method works with, and that between unseen rows and X. Plain numpy and scikit-learn."""
    P = X[columns]
    C, across = pairwise_kernels(X, P, metric=kernel, **params), pairwise_kernels(Z, P, metric=kernel, **params)
    if method is NystromRegressor:
        inner = np.linalg.pinv(pairwise_kernels(P, metric=kernel, **params), rcond=1e-14, hermitian=True)
    else:
        inner = np.diag(1 / np.array([pairwise_kernels(p[None], metric=kernel, **params)[0, 0] for p in P]) / len(P))
    return C @ inner @ C.T, across @ inner @ C.T


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("method", [NystromRegressor, UniformWeightsRegressor])
def test_against_the_explicit_kernel(method, weighted, intercept, case, rng):
    X, y, Z, columns = case
    weights = rng.uniform(0.5, 3, N) if weighted else None
    model = made(method, gamma=GAMMA, lam=LAM, columns=columns, fit_intercept=intercept).fit(X, y, weights)
    K, across = kernels(method, X, Z, columns, gamma=GAMMA)
    assert_allclose(model.predict(Z), by_explicit_kernel(K, across, y, LAM, weights, intercept), rtol=1e-8)
    assert_allclose(model.support_vectors_, X[columns])


@pytest.mark.parametrize("method", [NystromRegressor, UniformWeightsRegressor])
def test_columns_of_different_norms(method, case):
    """k(x, x) is not 1: the columns' scale must come out again."""
    X, y, Z, columns = case
    columns = columns[:6]  # of a quadratic kernel in 3 features, which has rank 10
    params = {"kernel": "polynomial", "degree": 2, "gamma": 0.5, "coef0": 1.0}
    model = made(method, lam=LAM, columns=columns, **params).fit(X, y)
    K, across = kernels(method, X, Z, columns, **params)
    assert_allclose(model.predict(Z), by_explicit_kernel(K, across, y, LAM), rtol=1e-8)


def test_uniform_weights_of_a_given_size(case):
    X, y, Z, columns = case
    model = UniformWeightsRegressor(gamma=GAMMA, lam=LAM, mu=0.7, columns=columns).fit(X, y)
    C, across = rbf_kernel(X, X[columns], gamma=GAMMA), rbf_kernel(Z, X[columns], gamma=GAMMA)
    assert_allclose(model.predict(Z), by_explicit_kernel(0.7 * C @ C.T, 0.7 * across @ C.T, y, LAM), rtol=1e-8)


def test_nystrom_against_sklearn(case):
    X, y, Z, _ = case
    features = Nystroem(gamma=GAMMA, n_components=M, random_state=0).fit(X)
    expected = Ridge(alpha=LAM, solver="svd").fit(features.transform(X), y).predict(features.transform(Z))
    model = NystromRegressor(gamma=GAMMA, lam=LAM, columns=features.components_).fit(X, y)
    assert_allclose(model.predict(Z), expected, rtol=1e-8)
    assert (model.columns_ == -1).all()  # points, not rows


def test_nystrom_on_all_rows_is_kernel_ridge(case):
    X, y, Z, _ = case
    expected = KernelRidge(kernel="rbf", gamma=GAMMA, alpha=LAM).fit(X, y).predict(Z)
    model = NystromRegressor(gamma=GAMMA, lam=LAM, columns=np.arange(N), fit_intercept=False).fit(X, y)
    assert_allclose(model.predict(Z), expected, rtol=1e-6)


def test_nystrom_with_candidates_that_repeat(case):
    """Twin and near-twin points make K_MM singular; the approximation is that of the points once."""
    X, y, Z, columns = case
    points = X[columns]
    once = NystromRegressor(gamma=GAMMA, lam=LAM, columns=points).fit(X, y)
    twice = NystromRegressor(gamma=GAMMA, lam=LAM, columns=np.concatenate([points, points, points + 1e-13])).fit(X, y)
    assert_allclose(twice.predict(Z), once.predict(Z), rtol=1e-6)


def test_nystrom_of_a_flat_kernel(case):
    """K_MM is singular almost to rounding, and so is what is solved."""
    X, y, Z, columns = case
    C, G = rbf_kernel(X, X[columns], gamma=1e-3), rbf_kernel(X[columns], gamma=1e-3)
    values, vectors = np.linalg.eigh(G)
    assert values[-1] > 1e13 * values[0]
    # As least squares, which squares no condition number: |y - C w|^2 + |G^(1/2) w|^2, about the means.
    root = np.sqrt(np.maximum(values, 0))[:, None] * vectors.T
    stacked = np.concatenate([C - C.mean(axis=0), root])
    w = np.linalg.lstsq(stacked, np.append(y - y.mean(), np.zeros(M)), rcond=1e-14)[0]
    expected = y.mean() + (rbf_kernel(Z, X[columns], gamma=1e-3) - C.mean(axis=0)) @ w
    model = NystromRegressor(gamma=1e-3, lam=1.0, columns=columns).fit(X, y)
    assert_allclose(model.predict(Z), expected, rtol=1e-7)


@pytest.mark.parametrize("weighted", [False, True])
def test_kernel_ridge_on_all_rows(weighted, case, rng):
    X, y, Z, _ = case
    weights = rng.uniform(0.5, 3, N) if weighted else None
    expected = KernelRidge(kernel="rbf", gamma=GAMMA, alpha=LAM).fit(X, y, sample_weight=weights).predict(Z)
    model = KernelRidgeRegressor(gamma=GAMMA, lam=LAM, fit_intercept=False).fit(X, y, weights)
    assert_allclose(model.predict(Z), expected, rtol=1e-10)
    K, across = rbf_kernel(X, gamma=GAMMA), rbf_kernel(Z, X, gamma=GAMMA)
    model = KernelRidgeRegressor(gamma=GAMMA, lam=LAM).fit(X, y, weights)
    assert_allclose(model.predict(Z), by_explicit_kernel(K, across, y, LAM, weights), rtol=1e-8)


def test_kernel_ridge_on_some_rows_sees_no_others(case):
    X, y, Z, columns = case
    expected = KernelRidge(kernel="rbf", gamma=GAMMA, alpha=LAM).fit(X[columns], y[columns]).predict(Z)
    given = KernelRidgeRegressor(gamma=GAMMA, lam=LAM, columns=columns, fit_intercept=False).fit(X, y)
    assert_allclose(given.predict(Z), expected, rtol=1e-10)
    drawn = KernelRidgeRegressor(gamma=GAMMA, lam=LAM, n_columns=M, fit_intercept=False, random_state=3).fit(X, y)
    rows = drawn.columns_
    assert len(np.unique(rows)) == M
    expected = KernelRidge(kernel="rbf", gamma=GAMMA, alpha=LAM).fit(X[rows], y[rows]).predict(Z)
    assert_allclose(drawn.predict(Z), expected, rtol=1e-10)


@pytest.mark.parametrize("method", ALL)
def test_all_draw_the_same_columns(method, case):
    """A comparison on the same columns needs the same seed only."""
    X, y, *_ = case
    for how in ("uniform", "rpcholesky"):
        drawn = method(n_columns=M, columns=how, random_state=5).fit(X, y).columns_
        other = dkl.LowRankKernelRegressor(n_columns=M, columns=how, random_state=5, nu=1.0).fit(X, y).columns_
        assert np.array_equal(drawn, other)


@pytest.mark.parametrize("method", ALL)
def test_outputs_are_learnt_one_by_one(method, case):
    X, y, Z, columns = case
    both = np.stack([y, -3 * X[:, 2]], axis=1)
    model = method(columns=columns, lam=LAM).fit(X, both)
    assert model.coef_.shape == (2, M) and model.intercept_.shape == (2,)
    for t in range(2):
        alone = method(columns=columns, lam=LAM).fit(X, both[:, t])
        assert_allclose(model.predict(Z)[:, t], alone.predict(Z), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("method", ALL)
def test_sparse_and_precomputed_rows(method, case):
    X, y, Z, columns = case
    X = np.where(np.abs(X) > 0.2, X, 0.0)  # few enough zeros for no two rows to be the same
    dense = method(gamma=GAMMA, columns=columns).fit(X, y)
    sparse = method(gamma=GAMMA, columns=columns).fit(sp.csr_array(X), y)
    assert_allclose(sparse.predict(sp.csr_array(Z)), dense.predict(Z), rtol=1e-9)
    known = method(kernel="precomputed", columns=columns).fit(rbf_kernel(X, gamma=GAMMA), y)
    assert_allclose(known.predict(rbf_kernel(Z, X, gamma=GAMMA)), dense.predict(Z), rtol=1e-9)


@pytest.mark.parametrize("method", ALL)
def test_rows_on_workers(method, case, client):
    X, y, Z, columns = case
    here = method(gamma=GAMMA, n_columns=M, random_state=0, client=None).fit(X, y)
    there = method(gamma=GAMMA, n_columns=M, random_state=0, client=client).fit(da.from_array(X, chunks=(20, 3)), y)
    assert_allclose(there.predict(da.from_array(Z, chunks=(11, 3))), here.predict(Z), rtol=1e-10)


@pytest.mark.parametrize("method", ALL)
def test_rows_without_weight_count_for_nothing(method, case):
    X, y, Z, columns = case
    weights = np.ones(N)
    weights[np.setdiff1d(np.arange(N), columns)[:20]] = 0
    spoilt = np.where(weights > 0, y, 1e3)
    model = method(columns=columns).fit(X, spoilt, weights)
    kept = np.flatnonzero(weights)
    expected = method(columns=np.searchsorted(kept, columns)).fit(X[kept], y[kept])
    assert_allclose(model.predict(Z), expected.predict(Z), rtol=1e-9)


def test_kernel_ridge_refuses_a_matrix_that_does_not_fit(case):
    X, y, *_ = case
    model = KernelRidgeRegressor(memory_limit="1 GB")
    large = np.zeros((20_000, 1)), np.zeros(20_000)
    with pytest.raises(MemoryBudgetError, match=r"kernel matrix of 20000 rows.*n_columns"):
        model.fit(*large)
    model.set_params(n_columns=50).fit(*large)
    assert model.n_columns_ == 50


def test_nystrom_refuses_columns_that_do_not_fit(case):
    X, y, *_ = case
    with pytest.raises(MemoryBudgetError, match="n_columns"):
        NystromRegressor(n_columns=20_000, memory_limit="500 MB").fit(np.zeros((20_000, 1)), np.zeros(20_000))


@pytest.mark.parametrize(
    ("model", "what"),
    [
        (KernelRidgeRegressor(columns=np.zeros((3, 3))), "points have no targets"),
        (KernelRidgeRegressor(n_columns=0), "n_columns"),
        (NystromRegressor(lam=0), "lam"),
        (UniformWeightsRegressor(mu=0), "mu"),
        (UniformWeightsRegressor(mu="max"), "mu"),
        (UniformWeightsRegressor(fit_intercept="no"), "fit_intercept"),
        (NystromRegressor(columns=[0, 0]), "columns"),
    ],
)
def test_refuses(model, what, case):
    X, y, *_ = case
    with pytest.raises(InputError, match=what):
        model.fit(X, y)


@pytest.mark.parametrize("name", ["baselines", "datasets", "errors", "metrics"])
def test_import_dkl_is_enough(name, monkeypatch):
    known = importlib.import_module(f"dkl.{name}")
    monkeypatch.delattr(dkl, name)  # which importing it set
    assert getattr(dkl, name) is known and name in dir(dkl)
    assert "baselines" in dkl.__all__


def test_names_are_listed_and_others_are_not_there():
    assert set(dkl.baselines.__all__) <= set(dir(dkl.baselines))
    with pytest.raises(AttributeError, match="no attribute 'Itml'"):
        dkl.baselines.Itml  # noqa: B018


def repeats_count(estimator):
    """A row that is there twice makes two candidates, and K~ counts both: that is the method."""
    if not isinstance(estimator, UniformWeightsRegressor):
        return {}
    checks = ("dense", "sparse")
    return {f"check_sample_weight_equivalence_on_{kind}_data": "a repeated row is a second column" for kind in checks}


@parametrize_with_checks([NystromRegressor()], expected_failed_checks=repeats_count)
def test_sklearn_contract(estimator, check):
    check(estimator)


@pytest.mark.exhaustive
@parametrize_with_checks([KernelRidgeRegressor(), UniformWeightsRegressor()], expected_failed_checks=repeats_count)
def test_sklearn_contract_of_others(estimator, check):
    check(estimator)


def test_the_package_has_them_once_they_are_asked_for():
    code = (
        "import sys, dkl; assert not {'dkl.baselines', 'sklearn', 'scipy', 'zarr'} & sys.modules.keys(), sys.modules.keys();"
        "assert dkl.baselines.__name__ == 'dkl.baselines' and 'baselines' in dir(dkl)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
