"""What a learned kernel claims is true of the numbers that it hands out, however far apart the sizes of its rows are."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import minimize

from dkl import LogDetKernelLearner, LogDetMetricLearner

TRIPLETS = 40


def case(rng, n=30, d=4):
    """Return rows (n, d) of three classes, and triplets (t, 3), each once."""
    y = np.arange(n) % 3
    X = rng.standard_normal((n, d)) + 2 * np.eye(3, d)[y]
    anchors = rng.integers(n, size=TRIPLETS)
    same = [rng.choice(np.flatnonzero((y == y[a]) & (np.arange(n) != a))) for a in anchors]
    triplets = np.stack([anchors, same, [rng.choice(np.flatnonzero(y != y[a])) for a in anchors]], axis=1)
    return X, np.unique(triplets, axis=0)


def margins_of(K, triplets):
    a, s, d = triplets.T
    return 2 * K[a, s] - 2 * K[a, d] - K[s, s] + K[d, d]


def losses_of(K, triplets):
    return float(np.logaddexp(0.0, -2.0 * margins_of(K, triplets)).sum())


def log_det_divergence(W):
    """Return LogDet(W, I)."""
    values = np.linalg.eigvalsh(W)
    return float(np.sum(values - 1.0 - np.log(values)))


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3, 1e6])
def test_the_objective_of_a_linear_kernel_is_that_of_the_kernel_handed_out(rng, scale):
    X, triplets = case(rng)
    X = scale * X
    model = LogDetKernelLearner(8.0, kernel="linear", standardize=False, holdout=0.0).fit(X, triplets=triplets)
    K, back = model.kernel_matrix(X), np.linalg.pinv(X)
    W = back @ K @ back.T
    objective = 8.0 / len(model.points_) * losses_of(K, triplets) + log_det_divergence(0.5 * (W + W.T))
    # K is about 1 and K0 scale^2: relative to K its rounding is that much larger, and so is what log det W leaves open.
    assert_allclose(model.certificate_.objective, objective, rtol=1e-6, atol=50 * np.finfo(float).eps * scale**2)
    assert not model.result_.outcome.converged or model.certificate_.relative_gap <= model.tol


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("scale", [1.0, 1e6])
def test_the_objective_of_a_metric_is_that_of_the_metric_handed_out(rng, scale):
    X, triplets = case(rng)
    X = scale * X
    model = LogDetMetricLearner(8.0, loss="log", standardize=False, holdout=0.0).fit(X, triplets=triplets)
    W, touched = model.get_mahalanobis_matrix(), len(np.unique(triplets))
    objective = 8.0 / touched * losses_of(X @ W @ X.T, triplets) + log_det_divergence(W)
    assert_allclose(model.certificate_.objective, objective, rtol=1e-6)


def test_coordinates_are_those_of_the_kernel_where_multipliers_are_huge(rng):
    X, triplets = case(rng, d=6)
    X *= np.abs(rng.standard_t(1.5, (len(X), 1)))
    model = LogDetKernelLearner(1e4, kernel="linear", normalize_gamma=False, holdout=0.0).fit(X, triplets=triplets)
    K, Y = model.kernel_matrix(X), model.transform(X)
    centered = K - K.mean(axis=0) - K.mean(axis=1)[:, None] + K.mean()
    assert_allclose(Y @ Y.T, centered, atol=1e-9 * np.abs(centered).max())


@pytest.mark.exhaustive
@pytest.mark.parametrize("spread", [1e6, 1e12, 1e16])
def test_no_kernel_is_below_the_bound_where_rows_are_of_all_sizes(rng, spread):
    n, triplets = 6, np.array([[3, 4, 5], [4, 5, 3], [2, 3, 4], [0, 1, 2], [5, 3, 0]])
    D = np.geomspace(spread**-0.5, spread**0.5, n)
    C = np.linalg.cholesky(0.5 * np.eye(n) + 0.5)
    w, places = 16.0 / n, np.tril_indices(n)

    def value(factor):  # of K = D C T T' C' D in scaled coordinates, where nothing is lost
        T = np.zeros((n, n))
        T[places] = factor
        half = D[:, None] * (C @ T)
        change = float(np.sum(T**2)) - 2.0 * float(np.log(np.abs(np.diag(T))).sum()) - n
        return w * losses_of(half @ half.T, triplets) + change

    starts = (np.eye(n)[places] * s for s in (1.0, 0.3))
    least = min(minimize(value, one, method="BFGS", options={"maxiter": 2000}).fun for one in starts)
    model = LogDetKernelLearner(16.0, kernel="precomputed", holdout=0.0)
    with np.errstate(all="ignore"):
        model.fit(D[:, None] * (C @ C.T) * D, triplets=triplets)
    assert model.certificate_.bound <= least * (1 + 1e-9)
    assert model.result_.outcome.converged
    assert model.certificate_.objective <= least * (1 + 1e-5)
