"""The classifier at rho="scale": a number for each machine, which is that of the two classes alone."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.model_selection import GridSearchCV
from sklearn.svm import SVC
from svm_cases import blobs

import dkl
from dkl import OptimalNeighborhoodSVC


def test_it_is_the_default_and_stands_for_a_number(rng):
    X, y = blobs(rng, 60, 2)
    scaled = OptimalNeighborhoodSVC(C=2.0).fit(X, y)
    assert scaled.rho == "scale" and scaled.rho_.tolist() == [pytest.approx(4 * 30 * 2.0**3)]
    given = OptimalNeighborhoodSVC(C=2.0, rho=scaled.rho_[0]).fit(X, y)
    assert_array_equal(given.dual_coef_, scaled.dual_coef_)
    assert_array_equal(given.rho_, scaled.rho_)


@pytest.mark.parametrize("kernel", ["rbf", [{"kernel": "rbf", "gamma": 0.1}, "linear"]])
def test_each_machine_is_that_of_its_two_classes(kernel, rng):
    X, y = blobs(rng, 90, 3)
    more = rng.permutation(90)[:70]  # classes of other sizes
    X, y = X[more], y[more]
    whole = OptimalNeighborhoodSVC(kernel=kernel, gamma=0.3).fit(X, y)
    sizes = np.bincount(y)
    assert_allclose(whole.rho_, [4 * min(sizes[i], sizes[j]) for i, j in ((0, 1), (0, 2), (1, 2))])
    chosen = y != 1
    alone = OptimalNeighborhoodSVC(kernel=kernel, gamma=0.3).fit(X[chosen], y[chosen])
    assert_allclose(alone.rho_, whole.rho_[1])
    if isinstance(kernel, str):  # several are made comparable on all rows
        assert_allclose(alone.objective_, whole.objective_[1], rtol=1e-5)


def test_weights_count_and_rows_without_any_do_not(rng):
    X, y = blobs(rng, 60, 2)
    weights = np.where(np.arange(60) < 20, 0.0, 1.5)
    model = OptimalNeighborhoodSVC(gamma=0.5)
    assert_allclose(model.fit(X, y, sample_weight=weights).rho_, 4 * 20 * 1.5**3)
    assert_allclose(clone(model).fit(X[20:], y[20:], sample_weight=np.full(40, 1.5)).rho_, model.rho_)
    # C of 3 for 30 rows and of 1 for 30: the sum of the smaller is 30, which 10 rows of 3 have.
    assert_allclose(model.set_params(class_weight={1: 3.0}).fit(X, y).rho_, 3.0 * (10 * 9.0 + 30) / (2 * 0.25))


def test_it_stays_beside_svc_where_one_number_does_not():
    """A tenth positives: of 16 times the rows one number moves the decision values further from SVC's, the rule does not."""

    def moved(n, rho):
        X, y = make_classification(n, 8, n_informative=5, weights=[0.9], random_state=0)
        ours = OptimalNeighborhoodSVC(rho=rho, tol=1e-4).fit(X, y)
        return np.abs(ours.decision_function(X) - SVC().fit(X, y).decision_function(X)).mean()

    assert moved(1600, 10.0) > 2 * moved(100, 10.0)
    assert moved(1600, "scale") < 1.5 * moved(100, "scale") < 0.15


def test_a_grid_of_numbers_and_the_rule(rng):
    X, y = blobs(rng, 60, 2)
    search = GridSearchCV(OptimalNeighborhoodSVC(), {"rho": ["scale", 1.0]}, cv=2).fit(X, y)
    assert search.best_params_["rho"] in ("scale", 1.0)


def test_a_path_over_C_follows_the_rule(rng):
    X, y = blobs(rng, 60, 3)
    model, Cs = OptimalNeighborhoodSVC(tol=1e-8), [10.0, 0.1, 1.0]
    path = model.path(X, y, Cs)
    assert path.rhos.tolist() == ["scale"] and path.gaps.shape == (3, 1, 3)
    for i, C in enumerate(Cs):
        alone, found = clone(model).set_params(C=C).fit(X, y), path.model(i, 0)
        assert (found.C, found.rho) == (C, "scale")
        assert_allclose(found.rho_, alone.rho_)
        assert_allclose(path.objectives[i, 0], alone.objective_, rtol=1e-8)
    with pytest.raises(dkl.errors.InputError, match="rhos: .* > 0, or 'scale'"):
        model.path(X, y, Cs, "scaled")


@pytest.mark.parametrize("value", ["auto", "Scale", None, True, [1.0]])
def test_what_it_may_not_be(value, rng):
    X, y = blobs(rng, 20, 2)
    with pytest.raises(dkl.errors.InputError, match="'rho' .* a finite number > 0, or 'scale'"):
        OptimalNeighborhoodSVC(rho=value).fit(X, y)
