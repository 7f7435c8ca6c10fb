"""The ridge on kernel columns from their sums: against scikit-learn's Ridge on explicit Nystrom features."""

import numpy as np
import pytest
from column_problems import targets
from sklearn.linear_model import Ridge
from sklearn.metrics.pairwise import rbf_kernel, sigmoid_kernel

from dkl.linalg.rows.column_moments import add_moments, zero_moments
from dkl.problems.regression.column_gram import CenteredGram, held_out
from dkl.problems.regression.column_ridge import DELTA, ColumnFold, ColumnRidge, RidgeFold, is_definite, penalty

N, M, FOLDS, LAM = 80, 15, 4, 0.2
CHOSEN = np.array([0, 3, 4, 9, 14])


@pytest.fixture
def data(rng):
    """Columns (N, M), kernel between their points, two targets, sample weights, folds."""
    X = rng.standard_normal((N, 3))
    y = np.column_stack([targets(rng, X) + 2, rng.standard_normal(N)])
    return (
        rbf_kernel(X, X[:M], gamma=0.5),
        rbf_kernel(X[:M], gamma=0.5),
        y,
        rng.uniform(0.3, 2, N),
        np.arange(N) % FOLDS,
    )


def sums(C, y, S, folds=None):
    moments, root = zero_moments(1 if folds is None else FOLDS, M, 2), np.sqrt(S)[:, None]
    add_moments(moments, C * root, np.column_stack([y, np.ones(N)]) * root, folds)
    return moments


def by_sklearn(C, K, y, S, lam, intercept):
    """Weights (T, s) and constants of Ridge on C P^-1/2, whose weights' squared length is w'P w."""
    values, vectors = np.linalg.eigh(K)
    half = vectors / np.sqrt(values)
    ridge = Ridge(alpha=lam, solver="svd", fit_intercept=intercept).fit(C @ half, y, sample_weight=S)
    return ridge.coef_ @ half.T, ridge.intercept_


@pytest.mark.parametrize("intercept", [True, False])
def test_it_is_ridge_on_nystrom_features(data, intercept):
    C, K, y, S, _ = data
    ridge = ColumnRidge(CenteredGram.of(sums(C, y, S), intercept=intercept), penalty(K.copy()), CHOSEN)
    found = ridge.solve(LAM)
    wanted, constants = by_sklearn(C[:, CHOSEN], K[np.ix_(CHOSEN, CHOSEN)], y, S, LAM, intercept)
    np.testing.assert_allclose(found[:, CHOSEN], wanted, rtol=1e-8)
    assert not np.delete(found, CHOSEN, axis=1).any()
    np.testing.assert_allclose(ridge.shared.intercepts(found), constants, rtol=1e-8, atol=1e-12)


def test_the_gap_is_what_the_dual_leaves_and_bounds_the_distance_to_the_optimum(data, rng):
    C, K, y, S, _ = data
    root = np.sqrt(S)[:, None]
    A, b = (C * root)[:, CHOSEN], y * root
    P = K[np.ix_(CHOSEN, CHOSEN)]
    ridge = ColumnRidge(CenteredGram.of(sums(C, y, S), intercept=False), penalty(K.copy()), CHOSEN)
    best, _ = by_sklearn(C[:, CHOSEN], P, y, S, LAM, False)

    def value(w):
        return ((b - A @ w.T) ** 2).sum(axis=0) + LAM * np.einsum("ts,sr,tr->t", w, P, w)

    for scale in (0.0, 1e-3, 1.0):
        w = best + scale * rng.standard_normal(best.shape)
        full = np.zeros((2, M))
        full[:, CHOSEN] = w
        objective, gap = ridge.evaluate(full, LAM)
        np.testing.assert_allclose(objective, value(w), rtol=1e-10)
        r = b - A @ w.T
        dual = (
            2 * (b * r).sum(axis=0) - (r**2).sum(axis=0) - ((A.T @ r) * np.linalg.solve(P, A.T @ r)).sum(axis=0) / LAM
        )
        np.testing.assert_allclose(gap, value(w) - dual, rtol=1e-7, atol=1e-9)
        assert (value(w) - value(best) <= gap + 1e-10 * value(best)).all()
    assert (ridge.evaluate(ridge.solve(LAM), LAM)[1] <= 1e-12 * value(best)).all()


@pytest.mark.parametrize("intercept", [True, False])
def test_errors_on_rows_held_out_are_those_of_plain_refits(data, intercept):
    C, K, y, S, folds = data
    moments = sums(C, y, S, folds)
    for k in range(FOLDS):
        chosen = np.delete(np.arange(M), [k, k + 5])
        fold = ColumnFold(CenteredGram.of(held_out(moments, k), intercept=intercept), moments, k, 1.0)
        found = RidgeFold.of(fold, penalty(K.copy()), chosen).error(LAM)
        rest, out, part = folds != k, folds == k, K[np.ix_(chosen, chosen)]
        w, c = by_sklearn(C[rest][:, chosen], part, y[rest], S[rest], LAM, intercept)
        wrong = (y[out] - C[out][:, chosen] @ w.T - c) ** 2
        np.testing.assert_allclose(found, np.average(wrong, axis=0, weights=S[out]), rtol=1e-8)


def test_twins_and_columns_of_zeros_have_a_solution(data):
    C, K, y, S, _ = data
    C[:, 4], C[:, 9] = C[:, 3], 0.0
    K[4], K[9] = K[3], 0.0
    K[:, 4], K[:, 9] = K[:, 3], 0.0
    P = penalty(K.copy())
    assert is_definite(P)
    np.testing.assert_allclose(P, K + DELTA * M * np.eye(M), rtol=1e-12)
    shared = CenteredGram.of(sums(C, y, S), intercept=True)
    found, once = (ColumnRidge(shared, P, S).solve(LAM) for S in (np.arange(M), np.delete(np.arange(M), [4, 9])))
    np.testing.assert_allclose(found @ C.T, once @ C.T, rtol=1e-6, atol=1e-8)  # twins count once, however they share
    assert not found[:, 9].any()


def test_what_has_no_space_of_functions_is_told(rng):
    assert not is_definite(penalty(sigmoid_kernel(rng.standard_normal((20, 3)), gamma=1.0, coef0=1.0)))


def test_a_system_that_rounding_leaves_indefinite_has_no_solution(data):
    C, K, y, S, _ = data
    shared = CenteredGram.of(sums(C, y, S), intercept=True)
    shared.gram.matrix[0, 0] = -1.0
    assert ColumnRidge(shared, penalty(K), np.arange(M)).solve(LAM) is None
