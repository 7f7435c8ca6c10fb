"""The lasso on columns: its two forms, the gap, screening and the largest nu, against scikit-learn and dense inverses."""

from fractions import Fraction

import numpy as np
import pytest
from column_problems import by_sklearn, kernel_columns, kernel_form, lasso_problem, objective, targets

from dkl.problems.regression import column_lasso
from dkl.problems.regression.column_gram import DenseGram
from dkl.problems.regression.column_lasso import ColumnLasso, largest_nu
from dkl.solvers.regression.active_set import ActiveSet
from dkl.solvers.regression.coordinate_descent import CoordinateDescent


@pytest.fixture(params=["rbf", "laplacian", "linear"])
def data(rng, request):
    C, X = kernel_columns(rng, request.param, 50, 30, 0.4, d=40 if request.param == "linear" else 4)
    return C, targets(rng, X)


def feasible_dual(C, y, theta, kappa):
    assert np.abs(C.T @ theta).max() <= kappa * (1 + 1e-9)
    return float(y @ y - np.sum((y - theta) ** 2))


def test_gap_bounds_the_distance_from_the_optimum_at_any_weights(data, rng):
    C, y = data
    for share in (0.5, 0.05, 1e-3):
        problem = lasso_problem(C, y, share, lam=0.3)
        oracle, least = by_sklearn(C, y, problem.kappa)
        for size in (0.0, 1e-6, 1e-3, 0.1, 1.0, 30.0):
            w = oracle + size * rng.standard_normal(30) * (rng.random(30) < 0.5)
            found = problem.evaluate(w)
            assert found.objective == pytest.approx(objective(C, y, w, problem.kappa), rel=1e-9)
            assert found.dual == pytest.approx(feasible_dual(C, y, found.scale * (y - C @ w), problem.kappa), rel=1e-8)
            assert found.dual <= least * (1 + 1e-10)
            assert found.gap >= objective(C, y, w, problem.kappa) - least - 1e-9 * least
        assert problem.evaluate(oracle).relative_gap <= 1e-8


def test_the_dual_value_is_the_best_along_the_residual(data, rng):
    C, y = data
    problem = lasso_problem(C, y, 0.05)
    for w in (np.zeros(30), rng.standard_normal(30), by_sklearn(C, y, problem.kappa)[0] * 0.9):
        r = y - C @ w
        bound = problem.kappa / np.abs(C.T @ r).max()
        others = [float(y @ y - np.sum((y - s * r) ** 2)) for s in np.linspace(-bound, bound, 401)]
        assert problem.evaluate(w).dual >= max(others) - 1e-9 * float(y @ y)


def test_screened_columns_are_zero_in_the_optimum(data, rng):
    C, y = data
    screened = 0
    for share in (0.7, 0.2, 0.05, 1e-2, 1e-3):
        problem = lasso_problem(C, y, share)
        oracle, _ = by_sklearn(C, y, problem.kappa)
        for size in (0.0, 1e-3, 0.01, 0.1, 1.0):
            w = oracle * (1 + size * rng.standard_normal(30))
            dead = ~problem.may_be_active(problem.evaluate(w))
            assert not oracle[dead].any()
            screened += dead.sum()
    assert screened > 50
    coarse = ActiveSet(tol=1e-2).solve(problem), CoordinateDescent(tol=1e-3).solve(problem)
    assert all(solution.n_screened <= np.count_nonzero(oracle == 0) for solution in coarse)


@pytest.mark.parametrize("solver", [ActiveSet(tol=1e-12), CoordinateDescent(tol=1e-12)])
def test_largest_nu_is_sharp(data, solver):
    C, y = data
    lam = 0.3
    top = largest_nu((C.T @ y)[:, None], lam)
    for nu, active in ((top * 1.0000001, 0), (top * 0.9999, 1)):
        problem = ColumnLasso(DenseGram(C.T @ C), C.T @ y, float(y @ y), lam, nu)
        assert np.count_nonzero(solver.solve(problem).weights) == active
        assert np.count_nonzero(by_sklearn(C, y, problem.kappa)[0]) == active


def test_largest_nu_of_several_outputs_is_the_largest(rng):
    cross = rng.standard_normal((7, 3))
    assert largest_nu(cross, 0.5) == pytest.approx(max(largest_nu(cross[:, [k]], 0.5) for k in range(3)))
    assert largest_nu(np.zeros((4, 1)), 0.5) == 0


@pytest.mark.parametrize("share", [0.5, 0.02, 1e-3])
def test_both_forms_have_the_same_value_at_the_optimum_only(data, rng, share):
    """P(w) = F(mu) at mu = sqrt(lambda/nu) |w|, F by a dense n x n solve."""
    C, y = data
    problem = lasso_problem(C, y, share, lam=0.3)
    lam, nu = problem.lam, problem.nu
    oracle, least = by_sklearn(C, y, problem.kappa)
    mu = problem.kernel_weights(oracle)
    np.testing.assert_allclose(mu, np.sqrt(lam / nu) * np.abs(oracle), rtol=1e-14)
    assert kernel_form(C, y, mu, lam, nu) == pytest.approx(least, rel=1e-9)
    for _ in range(5):
        w = oracle + 0.1 * rng.standard_normal(30)
        other = problem.kernel_weights(w)
        value = kernel_form(C, y, other, lam, nu)
        assert least * (1 - 1e-10) <= value <= objective(C, y, w, problem.kappa) * (1 + 1e-10)


def test_only_the_product_of_lambda_and_nu_matters(data):
    """Proposition 3: from (lambda, nu) to (lambda s, nu / s), mu scales by s and the function stays."""
    C, y = data
    gram, nu = DenseGram(C.T @ C), 0.01 * np.abs(C.T @ y).max() ** 2
    for solver in (ActiveSet(tol=1e-12), CoordinateDescent(tol=1e-10)):
        one, other = (ColumnLasso(gram, C.T @ y, float(y @ y), s, nu / s) for s in (1.0, 50.0))
        w, v = solver.solve(one).weights, solver.solve(other).weights
        np.testing.assert_allclose(v, w, atol=1e-5 * np.abs(w).max())
        np.testing.assert_allclose(other.kernel_weights(w), 50 * one.kernel_weights(w), rtol=1e-12)
        K_w = C.T @ np.linalg.solve(np.eye(50) + (C * one.kernel_weights(w)) @ C.T, y)
        assert CoordinateDescent is not type(solver) or w == pytest.approx(one.kernel_weights(w) * K_w, rel=1e-4)


def test_a_start_is_kept_where_it_helps_and_cleaned_where_it_does_not(data, rng):
    C, y = data
    C[:, 3] = 0
    problem = lasso_problem(C, y, 0.01)
    w = by_sklearn(C, y, problem.kappa)[0]
    w[3] = 2.0
    kept, found = problem.start(w)
    assert found.objective == problem.evaluate(kept).objective < problem.square
    assert kept[3] == 0 and w[3] == 2
    np.testing.assert_array_equal(np.delete(kept, 3), np.delete(w, 3))
    for bad in (1e30 * rng.standard_normal(30), -w, None):
        assert not problem.start(bad)[0].any()


def test_targets_of_zeros_and_columns_of_zeros(rng):
    C = rng.standard_normal((10, 4))
    for columns, y in ((C, np.zeros(10)), (np.zeros((10, 4)), rng.standard_normal(10))):
        problem = ColumnLasso(DenseGram(columns.T @ columns), columns.T @ y, float(y @ y), 1.0, 0.5)
        for solver in (ActiveSet(), CoordinateDescent(), CoordinateDescent("newton", "greedy")):
            for start in (None, rng.standard_normal(4)):
                found = solver.solve(problem, start)
                assert not found.weights.any() and found.outcome.converged
                assert found.evaluation.objective == pytest.approx(float(y @ y))


def test_correlations_are_rounded_once(rng):
    """Of terms that are 10^12 times as large as what is left of them, against rational arithmetic."""
    C = rng.standard_normal((40, 25))
    B, w = C.T @ C, rng.standard_normal(25) * 10.0 ** rng.integers(0, 7, 25)
    w[::4] = 0
    left = rng.standard_normal(25) * 1e-6
    exact = [sum((Fraction(B[j, k]) * Fraction(w[k]) for k in range(25)), Fraction(left[j])) for j in range(25)]
    b = np.array([float(value) for value in exact])
    wanted = np.array([float(Fraction(b[j]) - exact[j] + Fraction(left[j])) for j in range(25)])
    problem = ColumnLasso(DenseGram(B), b, 1.0, 1.0, 1.0)
    terms = np.abs(B) @ np.abs(w)
    assert (
        np.abs(problem.correlations(w, precisely=True) - wanted).max()
        <= 1e-28 * terms.max() + 2e-16 * np.abs(wanted).max()
    )
    assert np.abs(problem.correlations(w) - wanted).max() > 1e-17 * terms.max()


def test_what_rounding_leaves_of_the_gap_is_small(rng, monkeypatch):
    """Wide kernels, whose columns are nearly dependent, and little regularization: weights of 10^5."""
    X = rng.standard_normal((3000, 4))
    C = np.exp(-0.05 * ((X[:, None] - X[None, :300]) ** 2).sum(-1))
    C -= C.mean(axis=0)
    y = np.sin(2 * X[:, 0]) + X[:, 1] ** 2 + 0.1 * rng.standard_normal(3000)
    y -= y.mean()
    kappa = 1e-6 * np.abs(C.T @ y).max()
    problem = ColumnLasso(DenseGram(C.T @ C), C.T @ y, float(y @ y), 1.0, kappa**2)
    precise = ActiveSet(1e-12).solve(problem)
    monkeypatch.setattr(column_lasso, "NEAR", 0.0)
    plain = ActiveSet(1e-12).solve(problem)
    assert precise.evaluation.relative_gap <= min(2e-7, 0.5 * plain.evaluation.relative_gap)
    assert precise.evaluation.objective <= plain.evaluation.objective * (1 + 1e-6)
