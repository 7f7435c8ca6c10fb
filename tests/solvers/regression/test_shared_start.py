"""Starts of several outputs from one inverse: optima by scikit-learn's Lasso, or none."""

import numpy as np
import pytest
from column_problems import by_sklearn, objective, relative_gap

from dkl.problems.regression.column_gram import DenseGram
from dkl.problems.regression.column_lasso import ColumnLasso
from dkl.solvers.regression.active_set import ActiveSet
from dkl.solvers.regression.lasso_path import inverse, solve_outputs, start_of, starts_of

N, M, T = 200, 12, 4


@pytest.fixture
def case(rng):
    """Columns, targets, and the problem of each output at a share of its largest nu."""
    C = rng.standard_normal((N, M)) + rng.standard_normal((N, 1))
    y = C @ rng.standard_normal((M, T)) + rng.standard_normal((N, T))
    return C, y


def problems(C, y, share):
    gram = DenseGram(C.T @ C)
    nu = share * np.abs(C.T @ y).max() ** 2
    return [ColumnLasso(gram, C.T @ y[:, t], float(y[:, t] @ y[:, t]), 1.0, nu) for t in range(y.shape[1])]


@pytest.mark.parametrize("share", [1e-3, 1e-5, 1e-8])
def test_a_start_is_the_optimum(case, share):
    C, y = case
    given = problems(C, y, share)
    found = starts_of(given, C.T @ C, threads=2)
    assert all(w is not None for w in found)
    for t, (w, problem) in enumerate(zip(found, given, strict=True)):
        wanted = by_sklearn(C, y[:, t], problem.kappa)[0]
        np.testing.assert_allclose(w, wanted, rtol=1e-6, atol=1e-9)
        np.testing.assert_array_equal(w != 0, wanted != 0)
        assert relative_gap(C, y[:, t], w, problem.kappa) < 1e-12
    assert all(solution.n_iter == 0 for solution in solve_outputs(given, ActiveSet(1e-9), found))


def test_the_active_set_has_columns_outside(case):
    """Otherwise the test above would not see a wrong multiplier."""
    C, y = case
    assert any(0 < np.count_nonzero(w == 0) < M / 2 for w in starts_of(problems(C, y, 1e-3), C.T @ C))


def test_few_columns_are_left_to_the_solver(case):
    C, y = case
    given = problems(C, y, 0.5)
    found = starts_of(given, C.T @ C)
    assert found == [None] * T
    for t, solution in enumerate(solve_outputs(given, ActiveSet(1e-10), found)):
        value = by_sklearn(C, y[:, t], given[t].kappa)[1]
        assert objective(C, y[:, t], solution.weights, given[t].kappa) == pytest.approx(value, rel=1e-9)


def test_a_singular_matrix_has_no_inverse(case):
    C, y = case
    C[:, 3] = 0.0
    assert inverse(C.T @ C) is None and starts_of(problems(C, y, 1e-3), C.T @ C) == [None] * T


def test_a_wrong_inverse_gives_a_start_at_worst(case, rng):
    C, y = case
    problem = problems(C, y, 1e-3)[0]
    wrong = np.linalg.inv(C.T @ C + 50 * np.eye(M))
    solution = ActiveSet(1e-10).solve(problem, start_of(problem, wrong))
    assert objective(C, y[:, 0], solution.weights, problem.kappa) == pytest.approx(
        by_sklearn(C, y[:, 0], problem.kappa)[1], rel=1e-9
    )
