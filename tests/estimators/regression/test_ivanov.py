"""The Ivanov form (12)-(13) of SLKL, sum mu <= n1, as (14) at the nu of that sum."""

import pickle

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.metrics.pairwise import rbf_kernel

from dkl import LowRankKernelRegressor
from dkl.errors import InputError


def rows_of(rng):
    X = rng.uniform(-2, 2, (30, 2))
    return X, np.sin(X[:, 0]) + 0.1 * rng.standard_normal(30)


def learner(**more):
    shared = {"gamma": 0.5, "columns": np.arange(6), "fit_intercept": False, "standardize": False, "holdout": 0}
    return LowRankKernelRegressor(**{"nu": 1.0, "lam": 0.7, "n_jobs": 1, "refit": "never", **shared, **more})


@pytest.mark.parametrize("n1", [0.05, 2.0, 300.0])
def test_the_minimum_is_that_of_13(n1, rng):
    X, y = rows_of(rng)
    C = rbf_kernel(X, X[:6], gamma=0.5)

    def loss(mu):
        return y @ np.linalg.solve(np.eye(30) + (C * mu) @ C.T / 0.7, y)

    bound = {"type": "ineq", "fun": lambda mu: n1 - mu.sum()}
    starts = (np.full(6, n1 / 6), n1 * np.eye(6)[0])
    options = {"ftol": 1e-14, "maxiter": 1000}
    found = [
        minimize(loss, x, bounds=[(0, None)] * 6, constraints=bound, method="SLSQP", options=options) for x in starts
    ]
    nu = learner().path(X, y, [1e-1, 1e-2]).nu_of_sum(n1)
    fitted = learner(nu=nu, tol=1e-10).fit(X, y)
    assert fitted.weights_.sum() == pytest.approx(n1, rel=1e-5)
    assert loss(fitted.weights_) == pytest.approx(min(one.fun for one in found), rel=1e-5)


def test_sums_of_the_path_are_those_of_its_models(rng):
    X, y = rows_of(rng)
    path = learner().path(X, np.column_stack([y, 2 * y]), [1.0, 0.1, 0.01])
    for nu, sums in zip(path.nus, path.sums, strict=True):
        mu = learner(nu=nu).fit(X, np.column_stack([y, 2 * y])).weights_
        np.testing.assert_allclose(sums, mu.sum(axis=1), rtol=1e-3)
    assert path.nu_of_sum(1.0, output=1) > path.nu_of_sum(1.0, output=0)


def test_a_path_that_was_pickled_has_the_same_sums(rng):
    path = learner().path(*rows_of(rng), [0.1, 0.01])
    assert pickle.loads(pickle.dumps(path)).nu_of_sum(1.0) == path.nu_of_sum(1.0)


@pytest.mark.parametrize("n1", [0.0, -1.0, np.nan, np.inf, "1", 1e300])
def test_what_is_no_bound_is_refused(n1, rng):
    X, y = rows_of(rng)
    with pytest.raises(InputError, match="n1"):
        learner().path(X, y, [0.1]).nu_of_sum(n1)


def test_nothing_to_explain_has_no_such_nu(rng):
    X, y = rows_of(rng)
    with pytest.raises(InputError, match="zero at every nu"):
        learner().path(X, 0 * y, [0.1]).nu_of_sum(1.0)
