"""Small cases of problem (3), and its optimum by means that share no code with ours."""

import numpy as np
from scipy.optimize import minimize

from dkl.estimators.base.rules import SIMILARITY_LOSSES, SMOOTH_LOSS_NAME, TRIPLET_LOSSES
from dkl.problems.logdet.constraints import ConstraintSet
from dkl.problems.logdet.losses import ItmlLoss, as_loss

SMOOTH_LOSSES = SMOOTH_LOSS_NAME.words
"""Names of all losses without a corner."""


def kernel(rng, n=8, rank=None):
    """A psd K0 (n, n) with distances around 2."""
    X = rng.normal(size=(n, rank or n + 3))
    return X @ X.T / X.shape[1] + (0.1 * np.eye(n) if rank is None else 0.0)


def triplets(rng, n, c):
    return np.stack([rng.permutation(n)[:3] for _ in range(c)])


def pairs(rng, n, c):
    return np.stack([rng.permutation(n)[:2] for _ in range(c)])


def case(name, rng, n=8, c=30):
    """Return (constraints, loss) of a loss by its name."""
    if name in TRIPLET_LOSSES:
        return ConstraintSet.triplets(n, triplets(rng, n, c)), as_loss(name)
    signs = rng.choice([-1, 1], size=c)
    if name in SIMILARITY_LOSSES:
        return ConstraintSet.similarities(n, pairs(rng, n, c), signs), as_loss(name)
    return ConstraintSet.distances(n, pairs(rng, n, c)), ItmlLoss(signs > 0, 1.0, 2.5)


def matrices(constraints):
    """The A_t (c, n, n), each built from its definition entry by entry."""
    out = np.zeros((len(constraints), constraints.n, constraints.n))
    for t, row in enumerate(constraints.incidence.toarray()):
        for weight, i, j in zip(row, constraints.rows, constraints.columns, strict=True):
            out[t, i, j] += weight / 2
            out[t, j, i] += weight / 2
    return out


def objective(K, K0, A, loss, weight):
    """F of (3), by its definition."""
    margins = np.einsum("tij,ij->t", A, K)
    product = np.linalg.solve(K0, K)
    return weight * loss.value(margins).sum() + np.trace(product) - np.linalg.slogdet(product)[1] - len(K)


def optimum(K0, A, loss, weight):
    """The least F over K = R R', R lower triangular with exp on its diagonal: scipy's trust-region Newton, gradient by hand."""
    n, low, inverse = len(K0), np.tril_indices(len(K0)), np.linalg.inv(K0)
    diagonal = low[0] == low[1]

    def factor(x):
        R = np.zeros((n, n))
        R[low] = np.where(diagonal, np.exp(np.where(diagonal, x, 0.0)), x)
        return R

    def value_and_slope(x):
        R = factor(x)
        K = R @ R.T
        margins = np.einsum("tij,ij->t", A, K)
        F = (
            weight * loss.value(margins).sum()
            + np.sum(inverse * K)
            - 2 * x[diagonal].sum()
            - n
            + np.linalg.slogdet(K0)[1]
        )
        slope = 2 * (np.einsum("t,tij->ij", weight * loss.first(margins), A) + inverse) @ R
        flat = slope[low] * np.where(diagonal, R[low], 1.0)
        return F, flat - 2.0 * diagonal

    R0 = np.linalg.cholesky(K0)[low]
    start = np.where(diagonal, np.log(np.where(diagonal, R0, 1.0)), R0)
    found = minimize(value_and_slope, start, jac=True, method="BFGS", options={"gtol": 1e-9, "maxiter": 5000})
    found = minimize(
        value_and_slope, found.x, jac=True, method="L-BFGS-B", options={"ftol": 0, "gtol": 1e-10, "maxiter": 5000}
    )
    R = factor(found.x)
    return found.fun, R @ R.T
