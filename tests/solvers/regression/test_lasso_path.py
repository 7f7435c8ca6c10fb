"""Paths over nu and cross-validation from sums, against plain refits by scikit-learn."""

import numpy as np
import pytest
from column_problems import by_sklearn, kernel_columns, objective, targets
from sklearn.linear_model import Lasso

from dkl.linalg.rows.column_moments import add_moments, zero_moments
from dkl.problems.regression.column_gram import CenteredGram, held_out
from dkl.problems.regression.column_lasso import largest_nu, output_problems
from dkl.problems.regression.column_ridge import ColumnFold
from dkl.solvers.regression.active_set import ActiveSet
from dkl.solvers.regression.coordinate_descent import CoordinateDescent
from dkl.solvers.regression.lasso_path import (
    CV_WAITING,
    LEAST_RATIO,
    NU_RATIO,
    continued,
    cross_validate,
    nu_path,
    solve_outputs,
    solve_path,
)
from dkl.solvers.watch import Outcome, Watch

N, M, FOLDS, LAM = 90, 25, 4, 0.6


@pytest.fixture
def data(rng):
    C, X = kernel_columns(rng, "rbf", N, M, 0.4)
    return C, np.column_stack([targets(rng, X) + 1, X[:, 2] ** 2 + 0.5 * rng.standard_normal(N)])


def sums(C, y, folds=None):
    moments = zero_moments(1 if folds is None else FOLDS, M, y.shape[1])
    add_moments(moments, C, np.column_stack([y, np.ones(len(y))]), folds)
    return moments


def folds_of(moments, intercept):
    return [
        ColumnFold(CenteredGram.of(held_out(moments, k), intercept=intercept), moments, k, LAM) for k in range(FOLDS)
    ]


def test_path_is_geometric_and_descends_from_the_largest(rng):
    nus = nu_path(5.0, 7)
    assert nus[0] == pytest.approx(5.0) and len(nus) == 7 and (np.diff(nus) < 0).all()
    np.testing.assert_allclose(nus[1:] / nus[:-1], nus[1] / nus[0], rtol=1e-12)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("solver", [ActiveSet(tol=1e-10), CoordinateDescent(tol=1e-10)])
def test_a_path_has_the_optimum_of_every_nu_and_output(data, solver, threads):
    C, y = data
    shared = CenteredGram.of(sums(C, y), intercept=False)
    nus = largest_nu(shared.cross, LAM) * np.array([1.5, 0.5, 0.1, 0.01, 1e-3])
    found = solve_path(lambda nu: output_problems(shared, LAM, nu), nus, solver, threads=threads)
    assert [len(step) for step in found] == [2] * 5
    for nu, step in zip(nus, found, strict=True):
        for t, solution in enumerate(step):
            kappa = np.sqrt(LAM * nu)
            value = by_sklearn(C, y[:, t], kappa)[1]
            assert objective(C, y[:, t], solution.weights, kappa) == pytest.approx(value, rel=1e-9)
    assert not any(solution.weights.any() for solution in found[0])


def test_threads_change_nothing(data):
    C, y = data
    shared = CenteredGram.of(sums(C, y), intercept=True)
    nu = 0.01 * largest_nu(shared.cross, LAM)
    one, two = (solve_outputs(output_problems(shared, LAM, nu), ActiveSet(), threads=threads) for threads in (1, 2))
    for a, b in zip(one, two, strict=True):
        np.testing.assert_array_equal(a.weights, b.weights)


@pytest.mark.parametrize("intercept", [False, True])
def test_cross_validation_is_plain_refits_on_the_other_rows(data, rng, intercept):
    C, y = data
    folds = rng.integers(FOLDS, size=N)
    moments = sums(C, y, folds)
    trained = folds_of(moments, intercept)
    nus = largest_nu(CenteredGram.of(sums(C, y), intercept=intercept).cross, LAM) * np.geomspace(1, 1e-4, 9)
    found = cross_validate(trained, nus, ActiveSet(tol=1e-11), threads=2)
    wanted = np.empty((len(found.nus), FOLDS, 2))
    active = np.empty(wanted.shape, int)
    for i, nu in enumerate(found.nus):
        for k in range(FOLDS):
            train, test = folds != k, folds == k
            for t in range(2):
                lasso = Lasso(
                    alpha=np.sqrt(LAM * nu) / train.sum(), fit_intercept=intercept, tol=1e-10, max_iter=100_000
                )
                lasso.fit(np.asfortranarray(C[train]), y[train, t])
                wanted[i, k, t] = np.mean((y[test, t] - lasso.predict(C[test])) ** 2)
                active[i, k, t] = np.count_nonzero(lasso.coef_)
    np.testing.assert_allclose(found.errors, wanted, rtol=1e-4)
    np.testing.assert_array_equal(found.n_active, active)
    centred = y - (y.mean(axis=0) if intercept else 0)
    scores = (wanted.mean(axis=1) / np.mean(centred**2, axis=0)).mean(axis=1)
    assert found.best == np.argmin(scores) and found.nu == found.nus[np.argmin(scores)]
    assert 0 < found.best < len(found.nus)


def test_it_waits_no_longer_than_said_for_a_better_nu(data, rng):
    """Targets of noise alone are best predicted by no column at all."""
    C, _ = data
    y = rng.standard_normal((N, 1))
    moments = sums(C, y, np.arange(N) % FOLDS)
    trained = folds_of(moments, True)
    seen = []
    nus = nu_path(largest_nu(trained[0].rest.cross, LAM) * 4, 200)[::4]
    found = cross_validate(trained, nus, ActiveSet(), watch=Watch([seen.append]))
    assert found.errors.shape == (len(found.nus), FOLDS, 1) and found.best + CV_WAITING == len(found.nus) - 1 < 49
    assert [note["nu"] for note in seen] == found.nus.tolist()
    assert found.nu == nus[found.best]


def noiseless(rng):
    """Columns of very different lengths in an orthonormal basis, and targets in their range: the less nu, the better."""
    C = np.linalg.qr(rng.standard_normal((N, 12)))[0] * np.geomspace(1, 1e-6, 12)
    return C, C @ np.geomspace(1, 1e6, 12)[:, None]


def validated(C, y, nus, solver, **choices):
    moments = zero_moments(FOLDS, C.shape[1], 1)
    add_moments(moments, C, np.column_stack([y, np.ones(N)]), np.arange(N) % FOLDS)
    return cross_validate(folds_of(moments, False), nus, solver, **choices)


def test_where_the_end_of_the_path_is_the_best_it_goes_on(rng):
    """As a longer path would have been, value by value, until a decade is no better."""
    C = np.linalg.qr(rng.standard_normal((N, 8)))[0] * np.geomspace(1, 1e-3, 8)
    y = C @ np.geomspace(1, 1e3, 8)[:, None] + 0.05 * rng.standard_normal((N, 1))
    nu_max = largest_nu(C.T @ y, LAM)
    long = np.geomspace(nu_max, nu_max * 1e-20, 41)
    whole, cut = (validated(C, y, long[:count], ActiveSet(tol=1e-9)) for count in (41, 9))
    assert cut.best == whole.best > 9 and cut.edge is whole.edge is None
    assert len(whole.nus) == whole.best + CV_WAITING + 1 < 41 and len(cut.nus) == cut.best + 2 + 1  # half decades
    np.testing.assert_allclose(cut.nus, whole.nus[: len(cut.nus)], rtol=1e-9)
    np.testing.assert_allclose(cut.errors, whole.errors[: len(cut.nus)], rtol=1e-6)


def test_rounding_ends_a_path_and_is_told(rng):
    C, y = noiseless(rng)
    nus = nu_path(largest_nu(C.T @ y, LAM), 10)
    told = []
    found = validated(C, y, nus, ActiveSet(tol=1e-9), watch=Watch([told.append]))
    assert found.edge is Outcome.STALLED and found.best == len(found.nus) - 1 > 9
    assert found.outcome is Outcome.SOLVED and found.nu < nus[-1]
    assert all(row["iteration"] <= row["of"] for row in told)
    stopped = validated(C, y, nus, ActiveSet(tol=1e-9), watch=Watch([lambda row: row["iteration"] == 11]))
    assert stopped.edge is None and stopped.outcome is Outcome.STOPPED and len(stopped.nus) == 11
    short = validated(C, y, nus, CoordinateDescent(tol=1e-9, max_iter=3))
    assert short.edge in (Outcome.ITERATION_LIMIT, None) and (short.edge is None) == (short.best < len(short.nus) - 1)


def test_a_path_is_continued_in_its_ratio_to_the_last_digit_of_the_largest():
    nus = np.array(list(continued(nu_path(3.0, 10))))
    np.testing.assert_allclose(nus[:10], nu_path(3.0, 10), rtol=1e-14)
    np.testing.assert_allclose(nus[1:] / nus[:-1], 0.1, rtol=1e-9)
    assert 3.0 * LEAST_RATIO <= nus[-1] < 30.0 * LEAST_RATIO
    alone = list(continued(nu_path(3.0, 1)))
    np.testing.assert_allclose(alone, 3.0 * NU_RATIO ** np.arange(4), rtol=1e-12)
    tiny = np.array(list(continued(nu_path(1e-290, 10))))
    assert (tiny >= np.finfo(float).tiny).all() and len(tiny) > 10
