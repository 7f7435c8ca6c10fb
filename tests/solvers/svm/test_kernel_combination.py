"""Several kernels are weighed as a conic solver weighs them, and the gap that is told bounds what is missing."""

import clarabel
import numpy as np
import pytest
from scipy import sparse
from sklearn.metrics.pairwise import pairwise_kernels
from svm_cases import Dense, problem, two_clouds

from dkl.problems.svm.problem import NeighborhoodSVM
from dkl.solvers.svm.gradient import Accelerated
from dkl.solvers.svm.kernel_combination import CombinedKernel, ScaledKernel, combine
from dkl.solvers.watch import Outcome


def kernels(X):
    """Five of trace n."""
    found = [pairwise_kernels(X, metric="rbf", gamma=gamma) for gamma in (0.03, 0.3, 3.0)]
    found += [pairwise_kernels(X, metric="linear"), pairwise_kernels(X, metric="poly", degree=2, coef0=1)]
    return [K * len(K) / np.trace(K) for K in found]


def by_conic(Ks, y, C, rho):
    """(least value, theta) of: minimize over alpha and t, -2 e'alpha + t + s^2 / (4 rho) with alpha'Q_k alpha <= t and
    |alpha|^2 <= s; theta are the multipliers of the first cones. Good to some 1e-8 of the value: asked for 1e-11, the
    solver falls short ("AlmostSolved"), at times by 1e-5."""
    n, count = len(y), len(Ks)
    roots = []
    for K in Ks:
        values, vectors = np.linalg.eigh(y[:, None] * K * y)
        roots.append(np.sqrt(np.maximum(values, 0))[:, None] * vectors.T)
    roots.append(np.eye(n))
    rows, right = [np.zeros((1 + 2 * n, n + 2))], [np.zeros(1 + 2 * n)]
    rows[0][0, :n] = y
    rows[0][1 : n + 1, :n], rows[0][n + 1 :, :n] = -np.eye(n), np.eye(n)
    right[0][n + 1 :] = C
    cones = [clarabel.ZeroConeT(1), clarabel.NonnegativeConeT(2 * n)]
    for k, root in enumerate(roots):  # |root alpha|^2 <= u: |(2 root alpha, u - 1)| <= u + 1
        u = n + 1 if k == count else n
        block, b = np.zeros((n + 2, n + 2)), np.zeros(n + 2)
        block[0, u], b[0], block[1, u], b[1] = -1.0, 1.0, -1.0, -1.0
        block[2:, :n] = -2 * root
        rows.append(block)
        right.append(b)
        cones.append(clarabel.SecondOrderConeT(n + 2))
    P = sparse.csc_matrix(([1 / (2 * rho)], ([n + 1], [n + 1])), shape=(n + 2, n + 2))
    linear = np.concatenate([-2 * np.ones(n), [1.0, 0.0]])
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-8
    A = sparse.csc_matrix(np.vstack(rows))
    found = clarabel.DefaultSolver(P, linear, A, np.concatenate(right), cones, settings).solve()
    assert str(found.status) == "Solved"
    z = np.array(found.z)[1 + 2 * n :].reshape(count + 1, n + 2)[:count]
    return found.obj_val, z[:, 0] + z[:, 1]


def bounds(Ks, y, C, rho, theta, alpha):
    """(lower, upper) of min over alpha max over theta of f_theta(alpha), plainly, from any theta and alpha of theirs.

    Upper: the max at this alpha. Lower: f_theta less its gap, w = G Y alpha, at the best of the b where the bound has kinks.
    """
    signed, square = y * alpha, alpha @ alpha
    q = np.array([signed @ K @ signed for K in Ks])
    rest = square**2 / (4 * rho) - 2 * alpha.sum()
    gradient = 2 * y * (np.einsum("k,kij->ij", theta, Ks) @ signed) - 2 + square / rho * alpha
    gap = min(alpha @ gradient + C @ np.maximum(0, -gradient - 2 * b * y) for b in -gradient * y / 2)
    return theta @ q + rest - gap, q.max() + rest


@pytest.mark.parametrize("case", range(6))
def test_theta_and_value_are_the_conic_solvers(rng, case):
    X, y = two_clouds(rng, 36)
    Ks, C, rho = kernels(X), np.full(36, 10.0 ** rng.uniform(-1, 1)), 10.0 ** rng.uniform(0, 3)
    value, theta = by_conic(Ks, y, C, rho)
    found = combine(problem(Ks[0], y, C, rho), [Dense(K) for K in Ks], Accelerated(tol=1e-8))
    point = found.solution.point
    assert found.outcome is Outcome.SOLVED
    assert found.relative_gap <= 1e-8
    assert (found.theta >= 0).all() and found.theta.sum() == pytest.approx(1, rel=1e-14)
    assert (point.alpha >= 0).all() and (point.alpha <= C).all() and abs(y @ point.alpha) <= 1e-13 * C.sum()
    # What is told holds, whatever another solver says: the least value lies between these two, a gap apart.
    lower, upper = bounds(Ks, y, C, rho, found.theta, point.alpha)
    rounding = 1e-13 * abs(upper)
    assert lower - rounding <= point.objective <= upper + rounding
    assert upper - lower == pytest.approx(found.gap, rel=1e-6, abs=rounding)
    assert upper - lower <= 1e-8 * abs(upper) + rounding
    # And it is the conic solver's, as far as that goes.
    assert lower - 1e-7 * abs(value) <= value <= upper + 1e-7 * abs(value)
    # Where the value is flat, a gap of its 1e-8 leaves theta the root of that and more.
    np.testing.assert_allclose(found.theta, theta, atol=1e-3)


def test_every_gap_on_the_way_bounds_what_is_missing(rng):
    X, y = two_clouds(rng, 30)
    Ks, C = kernels(X), np.ones(30)
    best = combine(problem(Ks[0], y, C, 10.0), [Dense(K) for K in Ks], Accelerated(tol=1e-9))
    lower, upper = bounds(Ks, y, C, 10.0, best.theta, best.solution.point.alpha)
    assert upper - lower <= 1e-9 * abs(lower)
    found = combine(problem(Ks[0], y, C, 10.0), [Dense(K) for K in Ks], Accelerated(tol=1e-8))
    for row in found.history:
        # J(theta) >= -objective, by no more than the gap of its own machine; min J = -(least value).
        assert lower - row["objective"] <= row["gap"] + 1e-13 * abs(lower)
    assert len(found.history) > 2


def test_equal_kernels_and_a_useless_one(rng):
    X, y = two_clouds(rng, 30)
    K = kernels(X)[1]
    found = combine(problem(K, y), [Dense(K), Dense(K)], Accelerated(tol=1e-8))
    alone = Accelerated(tol=1e-8).solve(problem(K, y))
    assert found.solution.point.objective == pytest.approx(alone.point.objective, rel=2e-8)  # a gap each
    noise = np.eye(30)  # separates everything it has seen: the machine's weights on it show in q
    found = combine(problem(K, y), [Dense(K), Dense(1e-9 * noise)], Accelerated(tol=1e-8))
    np.testing.assert_allclose(found.theta, [1, 0], atol=1e-6)


def test_operators_are_their_sums(rng):
    Ks = [np.cov(rng.standard_normal((6, 20))) for _ in range(3)]
    theta, v, chosen = np.array([0.2, 0.0, 0.8]), rng.standard_normal(6), np.array([4, 1])
    combined, plain = CombinedKernel([Dense(K) for K in Ks], theta), sum(t * K for t, K in zip(theta, Ks, strict=True))
    scaled = ScaledKernel(Dense(plain), 3.0)
    assert combined.n == scaled.n == 6
    for operator, factor in ((combined, 1.0), (scaled, 3.0)):
        np.testing.assert_allclose(operator.times(v), factor * plain @ v)
        np.testing.assert_allclose(operator.columns(chosen), factor * plain[:, chosen])
        np.testing.assert_allclose(operator.block(chosen), factor * plain[np.ix_(chosen, chosen)])
    assert isinstance(problem(plain, np.array([1.0, -1, 1, -1, 1, -1])), NeighborhoodSVM)
