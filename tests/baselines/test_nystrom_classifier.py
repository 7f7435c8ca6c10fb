"""The Nystrom classifier against scikit-learn's Gaussian process, its logistic regression, and the mode's own equation."""

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose
from scipy.special import expit
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import LogisticRegression
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.utils.estimator_checks import parametrize_with_checks

from dkl.baselines import NystromClassifier
from dkl.errors import ConvergenceWarning, InputError, MemoryBudgetError

N, M, GAMMA, V = 80, 15, 0.4, 7.0


@pytest.fixture
def case(rng):
    """X, labels of 0 and 1, unseen rows, row numbers of columns."""
    X = rng.normal(size=(N, 3))
    y = (X[:, 0] + X[:, 1] ** 2 + 0.5 * rng.normal(size=N) > 0.7).astype(int)
    return X, y, rng.normal(size=(30, 3)), rng.choice(N, M, replace=False)


@pytest.mark.parametrize("extension", ["rows", "columns"])
def test_on_all_rows_it_is_the_gaussian_process(extension, case):
    X, y, Z, _ = case
    kernel = ConstantKernel(V, "fixed") * RBF(np.sqrt(1 / (2 * GAMMA)), "fixed")
    expected = GaussianProcessClassifier(kernel, optimizer=None).fit(X, y).base_estimator_
    slopes = expected.y_train_ - expected.pi_
    settings = {"gamma": GAMMA, "variance": V, "columns": np.arange(N), "extension": extension}
    # tol is of the mode's value, of which decision values err by the root.
    model = NystromClassifier(**settings, tol=1e-16).fit(X, y)
    assert_allclose(model.decision_function(Z), V * rbf_kernel(Z, X, gamma=GAMMA) @ slopes, rtol=1e-5, atol=1e-6)
    assert_allclose(
        model.log_evidence_, expected.log_marginal_likelihood_value_, rtol=1e-6
    )  # less what rounding of K_MM hides
    assert np.array_equal(model.predict(Z), expected.predict(Z))


def test_on_columns_it_is_logistic_regression_on_nystrom_features(case):
    X, y, Z, _ = case
    features = Nystroem(gamma=GAMMA, n_components=M, random_state=0).fit(X)
    machine = LogisticRegression(C=V, fit_intercept=False, tol=1e-12, max_iter=1000).fit(features.transform(X), y)
    model = NystromClassifier(gamma=GAMMA, variance=V, columns=features.components_, extension="columns").fit(X, y)
    assert_allclose(model.decision_function(Z), machine.decision_function(features.transform(Z)), atol=1e-4)


@pytest.mark.parametrize("weighted", [False, True])
def test_the_mode_s_equation(weighted, case, rng):
    """At the mode f = K~ a, a = S (t - sigma(f)) (Williams and Barber 1998); new rows are compared with all by the kernel itself."""
    X, y, Z, columns = case
    s = rng.uniform(0.0, 3.0, N) if weighted else np.ones(N)
    model = NystromClassifier(gamma=GAMMA, variance=V, columns=columns, tol=1e-16).fit(X, y, s if weighted else None)
    C, inner = rbf_kernel(X, X[columns], gamma=GAMMA), rbf_kernel(X[columns], gamma=GAMMA)
    a = model.dual_coef_[0] / V
    f = V * C @ np.linalg.solve(inner, C.T @ a)
    assert_allclose(a, s * (y - expit(f)), atol=1e-7)
    assert_allclose(model.decision_function(Z), V * rbf_kernel(Z, X, gamma=GAMMA) @ a, rtol=1e-10, atol=1e-12)
    assert np.array_equal(model.support_vectors_, X) and np.array_equal(model.columns_, columns)


def test_a_row_twice_is_a_row_of_weight_two(case):
    X, y, Z, columns = case
    settings = {"gamma": GAMMA, "variance": V, "columns": X[columns]}
    twice = NystromClassifier(**settings).fit(np.concatenate([X, X[:20]]), np.concatenate([y, y[:20]]))
    weighted = NystromClassifier(**settings).fit(X, y, 1.0 + (np.arange(N) < 20))
    assert_allclose(twice.decision_function(Z), weighted.decision_function(Z), rtol=1e-6, atol=1e-9)


def test_three_classes_are_one_against_the_rest(case, rng):
    X, _, Z, columns = case
    y = np.array(["a", "b", "c"])[np.argsort(np.abs(X), axis=1)[:, 0]]
    model = NystromClassifier(gamma=GAMMA, variance=V, columns=columns).fit(X, y)
    alone = [
        NystromClassifier(gamma=GAMMA, variance=V, columns=columns).fit(X, y == one).decision_function(Z)
        for one in "abc"
    ]
    assert_allclose(model.decision_function(Z), np.stack(alone, axis=1), rtol=1e-9, atol=1e-12)
    assert np.array_equal(model.predict(Z), np.array(["a", "b", "c"])[np.argmax(alone, axis=0)])


@pytest.mark.parametrize("extension", ["rows", "columns"])
def test_sparse_and_precomputed_rows(extension, case):
    X, y, Z, columns = case
    settings = {"variance": V, "columns": columns, "extension": extension}
    dense = NystromClassifier(gamma=GAMMA, **settings).fit(X, y).decision_function(Z)
    sparse = NystromClassifier(gamma=GAMMA, **settings).fit(sp.csr_array(X), y)
    assert_allclose(sparse.decision_function(sp.csr_array(Z)), dense, rtol=1e-8, atol=1e-10)
    known = NystromClassifier(kernel="precomputed", **settings).fit(rbf_kernel(X, gamma=GAMMA), y)
    assert_allclose(known.decision_function(rbf_kernel(Z, X, gamma=GAMMA)), dense, rtol=1e-8, atol=1e-10)


def test_the_evidence_is_highest_near_the_variance_that_labels_were_drawn_with(rng):
    X = rng.normal(size=(400, 2))
    f = np.linalg.cholesky(rbf_kernel(X, gamma=0.5) + 1e-8 * np.eye(400)) @ rng.normal(size=400)
    y = rng.random(400) < expit(5.0 * f)
    found = [
        NystromClassifier(gamma=0.5, variance=v, n_columns=60, random_state=0).fit(X, y).log_evidence_[0]
        for v in (0.1, 25.0, 1e4)
    ]
    assert np.argmax(found) == 1


def test_a_separable_set_and_a_wide_prior_need_short_steps(rng):
    """The full Newton step overshoots where all probabilities are 0 or 1."""
    X = np.linspace(-1, 1, 40)[:, None]
    model = NystromClassifier(gamma=10.0, variance=1e6, columns=np.arange(40)).fit(X, X[:, 0] > 0)
    assert (model.predict(X) == (X[:, 0] > 0)).all() and model.n_iter_[0] < 100


def test_too_few_steps_are_said(case):
    X, y, *_ = case
    with pytest.warns(ConvergenceWarning, match="the mode is .* away, more than tol=1e-10: raise max_iter"):
        NystromClassifier(gamma=GAMMA, max_iter=1).fit(X, y)


@pytest.mark.parametrize(
    ("parameters", "what"),
    [
        ({"variance": 0}, "variance"),
        ({"extension": "points"}, "extension"),
        ({"columns": [0, 0]}, "columns"),
        ({"columns": [N]}, "row numbers out of range"),
        ({"kernel": "linear", "kernel_params": {"gamma": 1}}, "kernel_params"),
    ],
)
def test_refuses(parameters, what, case):
    X, y, *_ = case
    with pytest.raises(InputError, match=what):
        NystromClassifier(**parameters).fit(X, y)


def test_columns_that_do_not_fit_are_refused_before_work():
    X = np.zeros((50_000, 1))
    with pytest.raises(MemoryBudgetError, match="5000 kernel columns of 50000 rows.*n_columns"):
        NystromClassifier(n_columns=5000, memory_limit="1 GB").fit(X, np.arange(50_000) % 2)


@pytest.mark.exhaustive
@parametrize_with_checks([NystromClassifier()])
def test_scikit_learn_s_contract(estimator, check):
    check(estimator)


@pytest.mark.parametrize(
    ("weight", "what"),
    [
        (lambda y: np.full(len(y), 1e300), "^sample_weight: the sample weights are too large"),
        (lambda y: (y == y[0]).astype(float), "^sample_weight: all samples of a class have weight zero"),
    ],
)
def test_weights_that_no_mode_has(weight, what, case):
    X, y = case[:2]
    with pytest.raises(InputError, match=what):
        NystromClassifier().fit(X, y, sample_weight=weight(np.asarray(y)))
