"""Random problems on kernel columns, and their answers by scikit-learn and by dense inverses."""

import warnings

import numpy as np
from sklearn.linear_model import Lasso
from sklearn.metrics.pairwise import pairwise_kernels

from dkl.problems.regression.column_gram import DenseGram
from dkl.problems.regression.column_lasso import ColumnLasso

KERNELS = ("rbf", "laplacian", "polynomial", "linear", "sigmoid")


def kernel_columns(rng, kernel="rbf", n=60, M=25, gamma=None, d=4):
    """(C, X): columns k(., z_m) / sqrt(k(z_m, z_m)) at M of n random rows, or at M other points where M > n."""
    X = rng.standard_normal((n, d))
    Z = X[rng.permutation(n)[:M]] if n >= M else rng.standard_normal((M, d))
    given = {} if kernel == "linear" or gamma is None else {"gamma": gamma}
    lengths = np.sqrt(np.diag(pairwise_kernels(Z, metric=kernel, **given)))
    return pairwise_kernels(X, Z, metric=kernel, **given) / lengths, X


def targets(rng, X):
    return np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] / 2 + 0.1 * rng.standard_normal(len(X))


def lasso_problem(C, y, share, lam=1.0):
    """(14) at this share of the largest useful nu."""
    nu = share * np.abs(C.T @ y).max() ** 2 / lam
    return ColumnLasso(DenseGram(C.T @ C), C.T @ y, float(y @ y), lam, nu)


def objective(C, y, w, kappa):
    """P(w) = |y - C w|^2 + 2 kappa |w|_1."""
    return float(np.sum((y - C @ w) ** 2) + 2 * kappa * np.abs(w).sum())


def dual_bound(C, y, w, kappa):
    """A value below all P, from w's residual."""
    r = y - C @ w
    largest = np.abs(C.T @ r).max()
    scale = min(y @ r / (r @ r), kappa / largest) if largest > 0 else 1.0
    return float(y @ y - np.sum((y - scale * r) ** 2))


def relative_gap(C, y, w, kappa):
    """By how much, at most, P(w) exceeds the least value, as a share of itself; in plain NumPy, whoever found w."""
    value = objective(C, y, w, kappa)
    return (value - dual_bound(C, y, w, kappa)) / value


def finished(C, y, w, kappa):
    """The optimum with the support and signs of w: there C_S'(y - C_S w_S) = kappa sign(w_S), by the columns' QR."""
    support = np.flatnonzero(w)
    Q, R = np.linalg.qr(C[:, support])
    found = np.zeros_like(w)
    found[support] = np.linalg.solve(R, Q.T @ y - kappa * np.linalg.solve(R.T, np.sign(w[support])))
    return found


def by_sklearn(C, y, kappa, tol=1e-11):
    """(w, P(w)) by scikit-learn's Lasso, of which the gap is checked to be below `tol`.

    It corrects one residual over and over, which drifts (before 1.7): each round begins with a new one. Columns of very
    different lengths bring it to rest some roundings short of the optimum, how many depends on the processor. Its support
    and signs are right by then: where a gap is left, the rest is one linear system.
    """
    lasso = Lasso(alpha=kappa / len(y), fit_intercept=False, tol=1e-15, max_iter=10_000, warm_start=True)
    C = np.asfortranarray(C)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that 1e-15 was not reached: what was is checked here
        for _ in range(30):
            w = lasso.fit(C, y).coef_.copy()
            if lasso.n_iter_ < lasso.max_iter:
                break
    if relative_gap(C, y, w, kappa) > tol:
        w = finished(C, y, w, kappa)
    assert relative_gap(C, y, w, kappa) <= tol, "the oracle did not converge"
    return w, objective(C, y, w, kappa)


def kernel_form(C, y, mu, lam, nu):
    """F(mu) of (14), by a dense n x n solve."""
    K = lam * np.eye(len(y)) + (C * mu) @ C.T
    return float(lam * y @ np.linalg.solve(K, y) + nu * mu.sum())
