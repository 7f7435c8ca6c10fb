"""Gaps of columns that are all but constant: against the lasso's gap in 60 digits, on the kernel's exact values."""

import warnings

import numpy as np
import pytest
from mpmath import mp, mpf

from dkl import LowRankKernelRegressor
from dkl.errors import ConvergenceWarning
from dkl.solvers.watch import Outcome

N, M = 30, 6


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, 3))
    y = 10 + np.sin(X @ rng.standard_normal(3)) + 0.1 * rng.standard_normal(N)
    return X, np.column_stack([y, 1e3 * y**2])


def exact_gap(X, y, points, w, nu, gamma):
    """Return (P, P - D) of weights w (M,), D the best dual value along the residual about its mean; all in `mp`."""
    X, Z = ([[mpf(float(v)) for v in row] for row in rows] for rows in (X, points))
    C = [[mp.exp(-mpf(gamma) * sum((a - b) ** 2 for a, b in zip(x, z, strict=True))) for z in Z] for x in X]
    w, y = [mpf(float(v)) for v in w], [mpf(float(v)) for v in y]
    r = [t - sum(a * b for a, b in zip(row, w, strict=True)) for t, row in zip(y, C, strict=True)]
    mean, middle = sum(r) / len(r), sum(y) / len(y)
    r, y = [v - mean for v in r], [v - middle for v in y]
    kappa, square = mp.sqrt(mpf(nu)), sum(v * v for v in r)
    with_targets = sum(a * b for a, b in zip(y, r, strict=True))
    largest = max(abs(sum(row[m] * v for row, v in zip(C, r, strict=True))) for m in range(len(w)))
    scale = min(with_targets / square, kappa / largest)
    objective = square + 2 * kappa * sum(abs(v) for v in w)
    return objective, objective - 2 * scale * with_targets + scale**2 * square


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("gamma", [1e-2, 1e-4, 1e-6, 1e-8, 1e-10, 1e-12, 1e-14])
def test_no_gap_is_less_than_that_of_exact_columns(data, gamma, dtype):
    X, Y = data
    points = X[:M]
    given = {"gamma": gamma, "columns": np.arange(M), "dtype": dtype, "refit": "never", "holdout": 0, "random_state": 0}
    # From the largest useful nu downward, where the weights become so large that they are rounding.
    for nu in (0.1 * gamma**2, 1e-5 * gamma**2, 1e-10):
        with warnings.catch_warnings(), mp.workdps(60):
            warnings.simplefilter("ignore")
            fitted = LowRankKernelRegressor(nu=nu, **given).fit(X, Y)
            weights = np.zeros((Y.shape[1], M))
            weights[:, fitted.support_] = fitted.coef_
            for w, target, gap in zip(weights, Y.T, fitted.duality_gap_, strict=True):
                objective, true = exact_gap(X, target, points, w, nu, gamma)
                assert gap >= true - 1e-9 * objective
                if fitted.result_.outcome is Outcome.SOLVED:
                    assert true <= 1e-6 * objective


def test_ordinary_gaps_are_proven_and_a_column_that_is_constant_to_rounding_has_no_weight(data):
    X, Y = data
    given = {"columns": np.arange(M), "refit": "never", "holdout": 0, "random_state": 0}
    ordinary = LowRankKernelRegressor(gamma=0.3, nu=1e-3, **given).fit(X, Y)
    assert ordinary.result_.outcome is Outcome.SOLVED and (ordinary.relative_gap_ <= 1e-9).all()
    with pytest.warns(ConvergenceWarning, match="stalled"):
        constant = LowRankKernelRegressor(gamma=1e-17, nu=1e-35, **given).fit(X, Y)
    assert constant.coef_.size == 0 and (constant.relative_gap_ > 0.1).all()
