"""OptimalNeighborhoodSVC with several kernels, as a user meets it."""

import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.model_selection import GridSearchCV
from svm_cases import two_clouds

from dkl import OptimalNeighborhoodSVC
from dkl.blocks.kernels import stored_kernel
from dkl.errors import ConvergenceWarning, InputError

SEVERAL = [{"kernel": "rbf", "gamma": 0.05}, {"kernel": "rbf", "gamma": 1.0}, "linear", {"kernel": "poly", "degree": 2}]


@pytest.fixture
def clouds(rng):
    return two_clouds(rng, 120)


def test_a_list_of_one_is_the_kernel_itself(clouds):
    X, y = clouds
    one, plain = OptimalNeighborhoodSVC(kernel=["rbf"]).fit(X, y), OptimalNeighborhoodSVC(kernel="rbf").fit(X, y)
    np.testing.assert_array_equal(one.decision_function(X), plain.decision_function(X))
    np.testing.assert_array_equal(one.kernel_weights_, [[1.0]])


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_the_combination_is_no_worse_than_each_and_predicts_by_its_sum(clouds, dtype):
    X, y = clouds
    model = OptimalNeighborhoodSVC(kernel=SEVERAL, dtype=dtype, tol=1e-5).fit(X, y)
    assert model.kernel_weights_.shape == (1, 4)
    assert (model.kernel_weights_ >= 0).all()
    assert model.relative_gap_[0] <= (1e-5 if dtype == "float64" else 1e-3)
    # The very machine on the sum of the kernels, given as a function.
    weights, made = model.kernel_weights_[0], model._kernels

    def summed(A, B):
        return sum(w * k.columns(A, B) for w, k in zip(weights, made, strict=True))

    alone = OptimalNeighborhoodSVC(kernel="precomputed", tol=1e-8).fit(summed(X, X), y)
    np.testing.assert_allclose(model.objective_, alone.objective_, rtol=1e-4)
    np.testing.assert_allclose(model.decision_function(X), alone.decision_function(summed(X, X)), atol=0.05)


def test_machines_of_many_classes_have_weights_of_their_own():
    X, y = load_iris(return_X_y=True)
    model = OptimalNeighborhoodSVC(kernel=SEVERAL, tol=1e-3).fit(X, y)
    assert model.kernel_weights_.shape == (3, 4)
    assert model.score(X, y) > 0.95
    ovr = OptimalNeighborhoodSVC(kernel=SEVERAL, tol=1e-3, multi_class="ovr").fit(X, y)
    assert ovr.score(X, y) > 0.95
    assert clone(model).kernel == SEVERAL
    search = GridSearchCV(OptimalNeighborhoodSVC(tol=1e-2), {"kernel": ["rbf", SEVERAL]}, cv=3).fit(X, y)
    assert search.best_score_ > 0.9


@pytest.mark.parametrize("name", ["cosine", "linear", "poly", "rbf"])
def test_a_kernel_that_is_all_but_constant_is_not_indefinite_in_single_precision(clouds, name):
    X, y = clouds[0][::4], clouds[1][::4]
    far = {"kernel": name, "gamma": 1e-6, "degree": 2, "coef0": 1e3}
    if name in ("cosine", "linear"):
        X, far = X + 1e3, name
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # of what rounding leaves of it
        fitted = OptimalNeighborhoodSVC(
            kernel=[far, {"kernel": "rbf", "gamma": 0.5}], dtype="float32", tol=1e-2, standardize=False
        ).fit(X, y)
    assert fitted.kernel_weights_.shape == (1, 2)
    with pytest.raises(InputError, match="not positive semidefinite"):
        OptimalNeighborhoodSVC(kernel=[lambda A, B: -1e-5 * (A @ B.T), "rbf"], dtype="float32").fit(X, y)


def test_kernels_made_anew_give_the_same_model(clouds, monkeypatch):
    X, y = clouds
    here = OptimalNeighborhoodSVC(kernel=SEVERAL[:2], tol=1e-6).fit(X, y)
    monkeypatch.setattr(stored_kernel, "packed_bytes", lambda n, dtype: 10**15)
    anew = OptimalNeighborhoodSVC(kernel=SEVERAL[:2], tol=1e-6).fit(X, y)
    assert (here.result_.plan["placement"], anew.result_.plan["placement"]) == ("memory", "recomputed")
    np.testing.assert_allclose(anew.decision_function(X), here.decision_function(X), atol=1e-2)


@pytest.mark.parametrize(
    "kernel",
    [
        [],
        ["rbf", "none"],
        ["precomputed", "rbf"],
        [{"gamma": 1.0}],
        [{"kernel": "rbf", "width": 1}],
        [1],
        ["rbf", None],
    ],
)
def test_what_is_no_list_of_kernels_is_refused(clouds, kernel):
    with pytest.raises(InputError, match="'kernel' parameter"):
        OptimalNeighborhoodSVC(kernel=kernel).fit(*clouds)


def test_each_kernel_must_be_positive_semidefinite(clouds):
    X, y = clouds
    with pytest.raises(InputError, match="positive semidefinite"):
        OptimalNeighborhoodSVC(kernel=["rbf", {"kernel": "sigmoid", "gamma": 5.0, "coef0": -1.0}]).fit(X, y)
    with pytest.raises(InputError, match="one kernel only"):
        OptimalNeighborhoodSVC(kernel=["rbf", "linear"], solver="level").fit(X, y)


def test_the_history_of_several_kernels_has_a_row_where_the_gap_falls():
    """Not for each weight that is tried: a hundred rows of each of thousands of machines outweigh their kernels."""
    X = np.round(4 + 3 * np.random.default_rng(0).standard_normal((133, 13)))
    with pytest.warns(ConvergenceWarning):
        fitted = OptimalNeighborhoodSVC(kernel=["rbf", "laplacian"], max_iter=1, holdout=0).fit(X, np.arange(133) % 2)
    gaps = [row["gap"] for row in fitted.result_.history]
    assert (np.diff(gaps) < 0).all() and 0 < len(gaps) < fitted.result_.n_iter
    assert fitted.result_.history[-1]["iteration"] <= fitted.result_.n_iter
