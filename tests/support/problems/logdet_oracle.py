"""The least point of a loss plus a LogDet divergence by a general minimiser, which shares no code with ours."""

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.optimize import minimize


def squared(K: Any, i: int, j: int) -> Any:
    """d^2(i, j) of a kernel matrix."""
    return K[i, i] + K[j, j] - 2 * K[i, j]


def margins(K: Any, triplets: Any) -> Any:
    """(c,) d^2(anchor, dissimilar) - d^2(anchor, similar)."""
    return np.array([squared(K, i, k) - squared(K, i, j) for i, j, k in triplets])


def log_loss(K: Any, triplets: Any) -> float:
    """The sum of log(1 + exp(-2 x)) over triplets."""
    return float(np.logaddexp(0, -2 * margins(K, triplets)).sum())


def itml_loss(K: Any, must: Any, cannot: Any, upper: float, lower: float) -> float:
    """The sum of Table 2's ITML loss over pairs."""
    total = 0.0
    for pairs, bound, sign in ((must, upper, 1), (cannot, lower, -1)):
        for i, j in pairs:
            x = squared(K, i, j) / bound
            total += x - np.log(x) - 1 if sign * x > sign else 0.0
    return total


def least(A0: Any, loss: Callable[[Any], float]) -> tuple[float, Any]:
    """(the least value, the matrix there) of loss(A) + LogDet(A, A0), by BFGS on A = T T', T lower triangular."""
    d, inverse = len(A0), np.linalg.inv(A0)
    lower = np.tril_indices(d)

    def matrix(t: Any) -> Any:
        T = np.zeros((d, d))
        T[lower] = t
        return T @ T.T

    def value(t: Any) -> float:
        A = matrix(t)
        return float(loss(A) + np.sum(A * inverse) - np.linalg.slogdet(A @ inverse)[1] - d)

    found = minimize(value, np.linalg.cholesky(A0)[lower], method="BFGS", options={"gtol": 1e-9, "maxiter": 3000})
    found = minimize(value, found.x, method="BFGS", options={"gtol": 1e-9, "maxiter": 3000})  # with a fresh Hessian
    return float(found.fun), matrix(found.x)
