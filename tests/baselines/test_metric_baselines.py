"""The baselines of LogDet kernel learning against a general minimiser of the problems they are to solve."""

import numpy as np
import pytest
from logdet_oracle import itml_loss, least, log_loss
from numpy.testing import assert_allclose
from scipy.linalg import eigh
from scipy.spatial.distance import pdist
from sklearn.datasets import load_breast_cancer, load_iris, load_wine
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import dkl
from dkl.baselines import (
    ConjugateGradientKernelLearner,
    ITMLKernelLearner,
    ITMLMetricLearner,
    LaplacianEigenmaps,
)
from dkl.baselines.logdet_gradient import Objective, line_minimum
from dkl.errors import ConvergenceWarning, InputError, MemoryBudgetError

N = 7
MUST, CANNOT = [[0, 1], [2, 3], [5, 1]], [[0, 4], [1, 2], [3, 6], [5, 2]]
TRIPLETS = [[0, 1, 2], [1, 0, 4], [2, 3, 5], [5, 6, 0], [3, 2, 1]]
BOUNDS = {"upper": 1.0, "lower": 4.0}


@pytest.mark.filterwarnings("ignore")  # three sweeps do not converge, and the checks' data sets are tiny
@parametrize_with_checks([LaplacianEigenmaps(n_components=2, random_state=0)])
def test_scikit_learn_s_contract(estimator, check):
    check(estimator)


@pytest.mark.exhaustive
@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks(
    [ITMLMetricLearner(max_iter=3), ITMLKernelLearner(max_iter=3), ConjugateGradientKernelLearner(max_iter=3)]
)
def test_scikit_learn_s_contract_of_others(estimator, check):
    check(estimator)


@pytest.fixture
def X(rng):
    return rng.normal(size=(N, 3))


@pytest.mark.parametrize("gamma", [0.3, 5.0])
def test_itml_of_a_metric_is_the_least_point_of_its_problem(gamma, X):
    model = ITMLMetricLearner(gamma, tol=1e-10, random_state=0, loss_params=BOUNDS)
    W = model.fit(X, must_link=MUST, cannot_link=CANNOT).get_mahalanobis_matrix()
    best, wanted = least(np.eye(3), lambda A: gamma * itml_loss(X @ A @ X.T, MUST, CANNOT, **BOUNDS))
    assert_allclose(W, wanted, rtol=2e-4, atol=2e-4)
    value = gamma * itml_loss(X @ W @ X.T, MUST, CANNOT, **BOUNDS) + np.trace(W) - np.linalg.slogdet(W)[1] - 3
    assert value <= best + 1e-6 * abs(best)


def test_itml_of_a_kernel_is_that_of_the_metric_in_its_space(X):
    """With as many features as rows, W of the factor's rows and K say the same: LogDet is invariant."""
    K0 = X @ X.T + np.eye(N)
    L = np.linalg.cholesky(K0)
    settings = {"gamma": 2.0, "tol": 1e-14, "random_state": 0, "loss_params": BOUNDS}
    side = {"must_link": MUST, "cannot_link": CANNOT}
    by_kernel = ITMLKernelLearner(kernel="precomputed", **settings).fit(K0, **side)
    by_metric = ITMLMetricLearner(**settings).fit(L, **side)
    assert_allclose(by_kernel.kernel_matrix(K0), L @ by_metric.get_mahalanobis_matrix() @ L.T, atol=1e-7)
    assert_allclose(by_kernel.multipliers_, by_metric.multipliers_, atol=1e-7)


def test_itml_of_a_singular_kernel_leaves_its_null_space(X):
    K0 = X @ X.T  # rank 3
    model = ITMLKernelLearner(2.0, kernel="precomputed", tol=1e-14, random_state=0, loss_params=BOUNDS)
    K = model.fit(K0, must_link=MUST, cannot_link=CANNOT).kernel_matrix(K0)
    W = ITMLMetricLearner(2.0, tol=1e-14, random_state=0, loss_params=BOUNDS)
    W = W.fit(X, must_link=MUST, cannot_link=CANNOT).get_mahalanobis_matrix()
    assert_allclose(K, X @ W @ X.T, atol=1e-7)


@pytest.mark.parametrize("load", [load_iris, load_wine, load_breast_cancer])
@pytest.mark.parametrize("scale", ["raw", "standardized"])
def test_itml_proves_its_default_gap_on_ordinary_sets(load, scale):
    """F of W and the dual's value of the multipliers, from their definitions by NumPy: no state of the sweeps is in them."""
    X, y = load(return_X_y=True)
    X = StandardScaler().fit_transform(X) if scale == "standardized" else X
    model = ITMLMetricLearner(random_state=0, standardize=False).fit(X, y)  # a ConvergenceWarning is an error here
    pairs = dkl.Triplets.from_labels(X, y).to_pairs().check(len(X))
    upper, lower = np.percentile(pdist(X, "sqeuclidean"), [5, 95])
    sign, bound = pairs.sign, np.where(pairs.sign > 0, upper, lower)
    differences, W = X[pairs.i] - X[pairs.j], model.get_mahalanobis_matrix()
    ratio = np.einsum("td,de,te->t", differences, W, differences) / bound
    ratio = ratio[sign * ratio > sign]
    loss = (ratio - np.log(ratio) - 1).sum()
    objective = loss + np.trace(W) - np.linalg.slogdet(W)[1] - len(W)
    # The dual: log det(I + sum s l a a') + sum log(1 - s l b), of multipliers l >= 0 with 1 - s l b > 0.
    weights = sign * model.multipliers_
    dual = (
        np.linalg.slogdet(np.eye(len(W)) + (differences.T * weights) @ differences)[1]
        + np.log1p(-weights * bound).sum()
    )
    assert model.multipliers_.min() >= 0
    assert (objective - dual) / objective <= 1.1e-6
    assert model.certificate_.objective == pytest.approx(objective, rel=1e-8)
    assert model.certificate_.bound == pytest.approx(dual, rel=1e-8)


def test_itml_takes_labels_and_tuples_and_tells_what_it_cannot(X):
    y = [0, 0, 1, 1, 0, 1, 1]
    by_labels = ITMLMetricLearner(tol=1e-14, random_state=0).fit(X, y)
    pairs = dkl.Triplets.from_labels(X, y).to_pairs().check(N)
    assert_allclose(
        ITMLMetricLearner(tol=1e-14, random_state=0).fit(X, pairs=pairs).components_, by_labels.components_, rtol=1e-6
    )
    tuples, signs = pairs.to_metric_learn()
    assert_allclose(
        ITMLMetricLearner(tol=1e-14, random_state=0).fit(X[tuples], signs).components_, by_labels.components_, rtol=1e-3
    )
    with pytest.raises(InputError, match="method of pairs"):
        ITMLMetricLearner().fit(X[[TRIPLETS[0]]])
    with pytest.raises(InputError, match=r"loss_params\['upper'\]: not a bound; got -1"):
        ITMLKernelLearner(loss_params={"upper": -1}).fit(X, y)
    with pytest.raises(MemoryBudgetError, match="kernel matri"):
        ITMLKernelLearner(memory_limit=1000).fit(X, y)
    with pytest.warns(ConvergenceWarning, match="relative gap .* after 1 sweeps"):
        ITMLMetricLearner(tol=0.0, max_iter=1).fit(X, y)


@pytest.mark.parametrize("gamma", [0.5, 40.0])
def test_conjugate_gradients_come_to_the_least_point(gamma, X):
    K0 = X @ X.T + np.eye(N)
    model = ConjugateGradientKernelLearner(gamma, kernel="precomputed", tol=1e-10).fit(K0, triplets=TRIPLETS)
    best, wanted = least(K0, lambda K: gamma / N * log_loss(K, TRIPLETS))
    certificate = model.certificate_
    assert certificate.objective == pytest.approx(best, rel=1e-8)
    assert certificate.bound <= best * (1 + 1e-9) and certificate.relative_gap <= 1e-10
    assert_allclose(model.kernel_matrix(K0), wanted, rtol=1e-3, atol=1e-4)


def test_conjugate_gradients_prove_their_default_gap_on_iris():
    X, y = load_iris(return_X_y=True)
    y = np.where(np.arange(150) % 4, -1, y)
    model = ConjugateGradientKernelLearner().fit(X, y)  # a ConvergenceWarning is an error here
    wanted = dkl.LogDetKernelLearner(kernel="laplacian").fit(X, y)
    assert model.certificate_.relative_gap <= 1e-6
    assert model.certificate_.objective == pytest.approx(wanted.certificate_.objective, rel=3e-6)


def test_conjugate_gradients_on_a_singular_kernel(X):
    """K0 = X X' of rank 3: the problem of a metric, K = X W X'."""
    model = ConjugateGradientKernelLearner(5.0, kernel="linear", tol=1e-10).fit(X, triplets=TRIPLETS)
    best, W = least(np.eye(3), lambda A: 5.0 / N * log_loss(X @ A @ X.T, TRIPLETS))
    assert model.certificate_.objective == pytest.approx(best, rel=1e-8)
    new = np.array([[1.0, 2.0, 3.0], [0.0, -1.0, 2.0]])
    assert_allclose(model.kernel_matrix(new), new @ W @ new.T, rtol=1e-3, atol=1e-4)


def test_an_eigenvalue_that_is_rounding_is_no_direction_of_the_kernel():
    """Of these 0.2 % had one of more than n eps |K| by SciPy's eigh, and 10,000 steps with an infinite gap."""
    for draw in range(3000):
        rng = np.random.default_rng(draw)
        X = rng.normal(size=(rng.integers(5, 60), 3))
        assert len(Objective.of(X @ X.T, None, None, 1.0).inverse) == 3, draw


def test_conjugate_gradients_say_that_they_have_not_converged(X):
    with pytest.warns(ConvergenceWarning, match="relative gap .* after 2 steps"):
        model = ConjugateGradientKernelLearner(1000.0, kernel="rbf", max_iter=2).fit(X, triplets=TRIPLETS)
    assert model.certificate_.relative_gap > 1e-6


def test_conjugate_gradients_end_at_the_last_kernel_where_a_step_leaves_the_cone(X, monkeypatch):
    """By rounding, as of near equal rows, it may: that was SciPy's error. More steps are then no advice."""
    first = ConjugateGradientKernelLearner(5.0, kernel="rbf", tol=1e-10, max_iter=1)
    with pytest.warns(ConvergenceWarning, match="after 1 steps; raise max_iter"):
        first.fit(X, triplets=TRIPLETS)
    steps = iter([line_minimum])
    monkeypatch.setattr(
        "dkl.baselines.logdet_gradient.line_minimum", lambda *given: next(steps, lambda *given: 1e6)(*given)
    )
    model = ConjugateGradientKernelLearner(5.0, kernel="rbf", tol=1e-10)
    with pytest.warns(ConvergenceWarning, match="after 1 steps; rounding ends all progress"):
        model.fit(X, triplets=TRIPLETS)
    assert_allclose(model.M_, first.M_)
    assert model.certificate_ == first.certificate_


def test_eigenmaps_are_those_of_the_dense_problem(rng):
    """L f = lambda D f of the neighbor graph, built and solved here by NumPy and SciPy alone."""
    X = rng.normal(size=(60, 3))
    d = np.linalg.norm(X[:, None] - X, axis=2)
    order = np.argsort(d, axis=1)[:, 1:11]
    s = np.take_along_axis(d, order, 1)[:, -1]
    is_near = np.zeros(d.shape, bool)
    np.put_along_axis(is_near, order, True, 1)
    W = np.where(is_near | is_near.T, np.exp(-((d / np.maximum(s[:, None], s)) ** 2)), 0.0)
    D = np.diag(W.sum(axis=1))
    _, wanted = eigh(D - W, D, subset_by_index=(1, 3))
    model = LaplacianEigenmaps(3, random_state=0)
    found = model.fit_transform(X)
    for f, g in zip(found.T, wanted.T, strict=True):
        assert_allclose(f / np.linalg.norm(f), np.sign(f @ g) * g / np.linalg.norm(g), atol=1e-6)
    assert_allclose(model.transform(X[:5]), found[:5], rtol=1e-10)  # rows that are known stay where they are
    new = model.transform(X[:5] + 1e-9)
    assert_allclose(np.linalg.norm(new - (mean_weights(X, 1e-9, s) @ found)[:5], axis=1), 0, atol=1e-6)


def mean_weights(X, shift, s):
    """(5, n) weights of the 10 rows nearest to each of the first 5, moved by `shift`."""
    d = np.linalg.norm(X[:5, None] + shift - X, axis=2)
    own = np.sort(d, axis=1)[:, 9]
    near = np.argsort(np.argsort(d, axis=1), axis=1) < 10
    weights = np.where(near, np.exp(-((d / np.maximum(own[:, None], s)) ** 2)), 0.0)
    return weights / weights.sum(axis=1, keepdims=True)
