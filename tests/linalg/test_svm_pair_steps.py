"""Steps of two coefficients at a time end where LIBSVM and a general solver do."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import LinearConstraint, minimize
from sklearn.svm import SVC

from dkl.linalg.svm_dual import pair_steps


def problem(rng, n, gamma=0.5, C=2.0):
    """(K, y, C (n,)) of overlapping classes, with bounds of their own."""
    y = np.where(np.arange(n) % 3 == 0, 1.0, -1.0)
    X = rng.standard_normal((n, 3)) + 0.8 * y[:, None]
    K = np.exp(-gamma * ((X[:, None] - X) ** 2).sum(axis=2))
    return K, y, C * rng.uniform(0.5, 1.5, n)


def f(K, y, c, rho, alpha):
    beta = y * alpha
    return beta @ K @ beta - 2 * c @ alpha + (alpha @ alpha) ** 2 / (4 * rho)


@pytest.mark.parametrize("start", ["zero", "inside"])
@pytest.mark.parametrize("rho", [0.5, 50.0])
def test_the_least_value_is_a_general_solvers(rho, start, rng):
    K, y, C = problem(rng, 24)
    c = rng.uniform(0.5, 1.5, 24)
    inside = 0.5 * C.min() * np.where(y > 0, 1.0, np.count_nonzero(y > 0) / np.count_nonzero(y < 0))
    alpha, rounds = pair_steps(K, y, C, c, rho, inside if start == "inside" else np.zeros(24), 1e-12, 500)
    assert rounds < 500 and (alpha >= 0).all() and (alpha <= C).all() and abs(y @ alpha) < 1e-12
    other = minimize(
        lambda a: f(K, y, c, rho, a), inside, method="SLSQP", bounds=list(zip(np.zeros(24), C, strict=True)),
        constraints=LinearConstraint(y[None], 0, 0), options={"ftol": 1e-14, "maxiter": 1000},
    )  # fmt: skip
    assert f(K, y, c, rho, alpha) == pytest.approx(other.fun, rel=1e-9)


def test_for_a_large_rho_it_is_the_support_vector_machine(rng):
    K, y, _ = problem(rng, 150)
    alpha, _ = pair_steps(K, y, np.full(150, 1.5), np.ones(150), 1e12, np.zeros(150), 1e-10, 500)
    peer = SVC(C=1.5, kernel="precomputed", tol=1e-8).fit(K, y)
    theirs = np.zeros(150)
    theirs[peer.support_] = peer.dual_coef_[0]
    assert_allclose(y * alpha, theirs, atol=1e-5)


def test_rounds_are_limited_and_values_that_are_none_end_them(rng):
    K, y, C = problem(rng, 60)
    assert pair_steps(K, y, C, np.ones(60), 1.0, np.zeros(60), 0.0, 3)[1] == 3
    assert pair_steps(np.full((60, 60), np.nan), y, C, np.ones(60), 1.0, np.zeros(60), 1e-9, 3)[1] <= 3
