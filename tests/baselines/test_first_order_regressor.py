"""SLKL by gradient steps against dense formulas, scikit-learn's lasso, and SLKL itself."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.linear_model import Lasso
from sklearn.utils.estimator_checks import parametrize_with_checks

import dkl
from dkl.baselines import FirstOrderRegressor
from dkl.baselines.first_order_regressor import WeightDescent, WeightedProblem
from dkl.errors import ConvergenceWarning, InputError
from dkl.problems.regression.column_gram import DenseGram
from dkl.problems.regression.column_lasso import ColumnLasso

N, M, LAM, NU = 40, 8, 2.0, 0.5
SOLVERS = ["coordinate", "projected"]


@pytest.fixture
def case(rng):
    """Columns C (n, M), targets, and the problem."""
    C = rng.normal(size=(N, M)) / np.sqrt(N)
    y = C @ (2.0 * (np.arange(M) % 2)) + 0.1 * rng.normal(size=N)
    return C, y, ColumnLasso(DenseGram(C.T @ C), C.T @ y, float(y @ y), LAM, NU)


def F(C, y, mu):
    """(14), plainly."""
    return LAM * y @ np.linalg.solve(LAM * np.eye(N) + (C * mu) @ C.T, y) + NU * mu.sum()


def test_value_and_derivatives_are_those_of_the_dense_formula(case, rng):
    C, y, lasso = case
    problem = WeightedProblem.of(lasso)
    for mu in (np.zeros(M), rng.uniform(0, 3, M), rng.uniform(0, 3, M) * (np.arange(M) % 3 == 0)):
        K = LAM * np.eye(N) + (C * mu) @ C.T
        a = problem.correlations(mu)
        assert_allclose(a, C.T @ np.linalg.solve(K, y), rtol=1e-10)
        assert_allclose(problem.products(mu), C.T @ np.linalg.solve(K, C), rtol=1e-10, atol=1e-14)
        assert problem.value(mu, a) == pytest.approx(F(C, y, mu), rel=1e-12)
        slopes = [(F(C, y, mu + 1e-6 * e) - F(C, y, mu)) / 1e-6 for e in np.eye(M)]
        assert_allclose(NU - LAM * a**2, slopes, atol=1e-4)


def test_the_constant_bounds_the_second_derivative_everywhere(case, rng):
    """L_m = 2 y'y |c_m|^4 / lambda^2; (21): the second derivative is 2 lambda a_m^2 P_mm."""
    C, y, _ = case
    bound = 2 * (y @ y) * np.sum(C**2, axis=0) ** 2 / LAM**2
    for scale in (0.0, 0.1, 1.0, 100.0):
        mu = scale * rng.uniform(0, 1, M)
        inverse = np.linalg.inv(LAM * np.eye(N) + (C * mu) @ C.T)
        second = 2 * LAM * (C.T @ inverse @ y) ** 2 * np.einsum("nm,nk,km->m", C, inverse, C)
        assert (second <= bound).all()


@pytest.mark.parametrize(("rule", "tol"), [("coordinate", 1e-2), ("projected", 1e-7)])
def test_they_find_the_lasso_s_optimum_and_never_rise(rule, tol, case):
    C, y, lasso = case
    found = WeightDescent(rule, tol, 20_000).solve(lasso)
    kappa = np.sqrt(LAM * NU)
    expected = Lasso(alpha=kappa / N, fit_intercept=False, tol=1e-12, max_iter=100_000).fit(C, y).coef_
    least = np.sum((y - C @ expected) ** 2) + 2 * kappa * np.abs(expected).sum()
    assert found.evaluation.relative_gap <= tol and found.evaluation.objective == pytest.approx(least, rel=2 * tol)
    assert 2 < np.count_nonzero(expected) < M
    # The residual is strongly convex in C w: |C w - C w*|^2 is at most the gap.
    assert np.square(C @ (found.weights - expected)).sum() <= tol * found.evaluation.objective + 1e-12
    values = np.array([row["objective"] for row in found.history])
    assert values[0] == pytest.approx(y @ y) and (np.diff(values) <= 1e-12 * values[0]).all()
    assert [row["iteration"] for row in found.history] == [M * k for k in range(found.n_iter + 1)]


@pytest.mark.parametrize(("solver", "tol"), [("coordinate", 5e-2), ("projected", 1e-4)])
def test_the_regressor_solves_slkl_s_problem(solver, tol, rng):
    X = rng.normal(size=(60, 2))
    y = np.stack([np.sin(X[:, 0]) + 5, X[:, 1]], axis=1)
    settings = {"gamma": 0.5, "nu": 1.0, "lam": 8.0, "n_columns": 10, "random_state": 3, "n_jobs": 1}
    model = FirstOrderRegressor(solver=solver, tol=tol, max_iter=20_000, **settings).fit(X, y)
    expected = dkl.LowRankKernelRegressor(refit="never", holdout=0, **settings).fit(X, y)
    assert np.array_equal(model.columns_, expected.columns_)
    assert_allclose(model.objective_, expected.objective_, rtol=2 * tol)
    # The residual is strongly convex in the predictions: |C w - C w*|^2 is at most the gap.
    apart = np.square(model.predict(X) - expected.predict(X)).sum(axis=0)
    assert (apart <= 2 * tol * model.objective_ + 1e-9).all()
    assert model.relative_gap_.max() <= tol and len(model.history_) == 2


def test_no_column_pays_where_nu_is_large(rng):
    X, y = rng.normal(size=(30, 2)), rng.normal(size=30)
    for solver in SOLVERS:
        model = FirstOrderRegressor(solver=solver, nu=1e9).fit(X, y)
        assert model.n_active_ == 0 and model.n_iter_ == 0
        assert_allclose(model.predict(X), y.mean())


@pytest.mark.filterwarnings("ignore::dkl.errors.ConvergenceWarning")
def test_a_column_of_zeros_is_left_alone(rng):
    """The kernel is 0 on rows that are 0."""
    X = np.concatenate([np.zeros((3, 2)), rng.normal(size=(30, 2))])
    for solver in SOLVERS:
        model = FirstOrderRegressor("linear", solver=solver, columns=np.arange(6), fit_intercept=False, max_iter=20)
        model.fit(X, X[:, 0])
        assert set(model.support_) <= {3, 4, 5} and model.n_active_


def test_draws_follow_the_seed(rng):
    X, y = rng.normal(size=(30, 2)), rng.normal(size=30)
    with pytest.warns(ConvergenceWarning, match="the relative gap is .*, above tol=0.001: raise max_iter or tol"):
        first, same, other = (
            FirstOrderRegressor(solver="coordinate", columns=np.arange(20), max_iter=2, random_state=seed)
            .fit(X, y)
            .coef_
            for seed in (1, 1, 2)
        )
    assert np.array_equal(first, same) and not np.array_equal(first, other)


@pytest.mark.parametrize(
    ("parameters", "what"), [({"solver": "newton"}, "solver"), ({"nu": "cv"}, "nu"), ({"lam": 0}, "lam")]
)
def test_refuses(parameters, what, rng):
    with pytest.raises(InputError, match=what):
        FirstOrderRegressor(**parameters).fit(rng.normal(size=(9, 2)), np.arange(9.0))


def repeats_count(estimator):
    checks = ("dense", "sparse")
    return {f"check_sample_weight_equivalence_on_{kind}_data": "a repeated row is a second column" for kind in checks}


@pytest.mark.exhaustive
@pytest.mark.filterwarnings("ignore::dkl.errors.ConvergenceWarning")
@parametrize_with_checks([FirstOrderRegressor()], expected_failed_checks=repeats_count)
def test_scikit_learn_s_contract(estimator, check):
    check(estimator)
