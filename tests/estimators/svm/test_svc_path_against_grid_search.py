"""C and rho by cross-validation along paths: what GridSearchCV chooses, fit by fit, and what LIBSVM's machines do."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.svm import SVC
from svm_cases import by_libsvm, problem, two_clouds

from dkl import OptimalNeighborhoodSVC

CS, RHOS = [0.1, 1.0, 100.0], [0.1, 10.0, 1e6]
FOLDS = StratifiedKFold(4, shuffle=True, random_state=0)
GAMMA = 0.4


@pytest.fixture
def clouds(rng):
    return two_clouds(rng, 80)


@pytest.fixture
def strangers(rng):
    return 2 * rng.standard_normal((300, 3))


def scores_by_path(model, X, y, Cs, rhos):
    """(k, r) mean accuracy over the folds, one path a fold."""

    def scores(fit, held):
        path = model.path(X[fit], y[fit], Cs, rhos)
        return [[path.model(i, j).score(X[held], y[held]) for j in range(len(rhos))] for i in range(len(Cs))]

    return np.mean([scores(fit, held) for fit, held in FOLDS.split(X, y)], axis=0)


def test_the_choice_is_grid_searchs(clouds, strangers):
    X, y = clouds
    model = OptimalNeighborhoodSVC(gamma=GAMMA, tol=1e-9)
    search = GridSearchCV(model, {"C": CS, "rho": RHOS}, cv=FOLDS).fit(X, y)
    found = scores_by_path(model, X, y, CS, RHOS)
    assert_allclose(found.ravel(), search.cv_results_["mean_test_score"], atol=1e-12)
    assert len(np.unique(found)) > 3
    i, j = np.unravel_index(found.argmax(), found.shape)
    assert search.best_params_ == {"C": CS[i], "rho": RHOS[j]}
    chosen = model.path(X, y, CS, RHOS).model(i, j)
    assert_array_equal(chosen.predict(strangers), search.predict(strangers))
    assert_allclose(chosen.decision_function(strangers), search.decision_function(strangers), atol=1e-4)


def test_the_scores_are_those_of_machines_by_libsvm(clouds):
    X, y = clouds
    expected = np.zeros((len(CS), len(RHOS)))
    for fit, held in FOLDS.split(X, y):
        K, K_held = rbf_kernel(X[fit], gamma=GAMMA), rbf_kernel(X[held], X[fit], gamma=GAMMA)
        for i, C in enumerate(CS):
            for j, rho in enumerate(RHOS):
                alpha, b = by_libsvm(problem(K, y[fit], C, rho))
                expected[i, j] += np.mean((K_held @ (y[fit] * alpha) + b > 0) == (y[held] > 0)) / FOLDS.n_splits
    found = scores_by_path(OptimalNeighborhoodSVC(gamma=GAMMA, tol=1e-9), X, y, CS, RHOS)
    assert_allclose(found, expected, atol=1e-12)


def test_at_infinite_rho_the_choice_is_that_of_svc(clouds, strangers):
    X, y = clouds
    theirs = GridSearchCV(SVC(gamma=GAMMA, tol=1e-8), {"C": CS}, cv=FOLDS).fit(X, y)
    found = scores_by_path(OptimalNeighborhoodSVC(gamma=GAMMA, tol=1e-9), X, y, CS, [1e14])[:, 0]
    assert_allclose(found, theirs.cv_results_["mean_test_score"], atol=1e-12)
    ours = OptimalNeighborhoodSVC(C=CS[found.argmax()], rho=1e14, gamma=GAMMA, tol=1e-9).fit(X, y)
    assert theirs.best_params_["C"] == ours.C
    assert_array_equal(ours.predict(strangers), theirs.predict(strangers))
