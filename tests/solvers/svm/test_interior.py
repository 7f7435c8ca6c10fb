"""The interior point method against LIBSVM, and where gradients creep."""

import numpy as np
import pytest
from repeats import crossed
from scipy.optimize import linprog
from sklearn.metrics.pairwise import rbf_kernel
from svm_cases import by_libsvm, f, problem, random_problem, two_clouds

from dkl.solvers.svm import gradient as svm_gradient
from dkl.solvers.svm.gradient import Accelerated
from dkl.solvers.svm.interior import interior_point, middle
from dkl.solvers.watch import Outcome


def feasible(of, alpha):
    return (alpha >= 0).all() and (alpha <= of.C).all() and abs(of.y @ alpha) <= 1e-12 * max(alpha.sum(), 1e-300)


@pytest.mark.parametrize("kernel", [{"kernel": "rbf", "gamma": 0.5}, {"kernel": "linear"}])
@pytest.mark.parametrize("C", [0.1, 10.0, "weights"])
@pytest.mark.parametrize("rho", [1e-2, 1.0, 1e4])
def test_against_libsvm(kernel, C, rho, rng):
    bounds = rng.uniform(0.05, 2.0, 70) if C == "weights" else C
    of = random_problem(rng, 70, rho=rho, C=bounds, **kernel)
    point = interior_point(of, 1e-10).point
    assert feasible(of, point.alpha) and point.relative_gap <= 1e-10
    assert point.objective == pytest.approx(f(of, by_libsvm(of)[0]), rel=1e-8)
    assert point.gap == pytest.approx(of.at(point.alpha).gap, rel=1e-3)


def nearly_singular(rng, C, rho):
    """A smooth kernel of close points: its eigenvalues fall from a hundred to rounding within a few."""
    X, y = two_clouds(rng, 150, d=2, apart=0.2)
    return problem(rbf_kernel(X, gamma=0.02), y, C, rho)


def missing(of, alpha):
    """What f(alpha) is above its least value by, at most, relative to it: f lies above its tangent, least over P by HiGHS."""
    g = 2 * (of.y * (of.kernel.K @ (of.y * alpha)) - 1) + (alpha @ alpha) / of.rho * alpha
    scale = np.abs(g).max()
    found = linprog(g / scale, A_eq=of.y[None], b_eq=[0.0], bounds=[(0.0, 1.0)] * of.n, method="highs")
    assert found.status == 0 and len(set(of.C)) == 1
    return (g @ alpha - scale * of.C[0] * found.fun) / -f(of, alpha)


@pytest.mark.parametrize(("C", "rho"), crossed([1e3, 1e5], [1e12, 1e16]))
def test_what_gradients_creep_on(C, rho, rng, monkeypatch):
    of = nearly_singular(rng, C, rho)
    found = Accelerated(tol=1e-8, max_iter=2000).solve(of)
    assert found.outcome is Outcome.SOLVED and feasible(of, found.point.alpha) and found.n_iter <= svm_gradient.HARD
    assert missing(of, found.point.alpha) <= 1e-6  # HiGHS' own tolerance, times C
    monkeypatch.setattr(svm_gradient, "FEW", 0)
    creeping = Accelerated(tol=1e-8, max_iter=2000).solve(of)
    assert (
        creeping.outcome is not Outcome.SOLVED or creeping.products > 2 * found.products
    )  # or this would show nothing


@pytest.mark.parametrize("C", [1e-8, 1.0, 1e8])
@pytest.mark.parametrize("rho", [1e-8, 1.0, 1e8, 1e30])
def test_sizes(C, rho, rng):
    of = random_problem(rng, 40, rho=rho, C=C, gamma=0.5)
    point = interior_point(of, 1e-6).point
    assert feasible(of, point.alpha) and point.relative_gap <= 1e-6


def test_degenerate_matrices(rng):
    y = np.where(np.arange(40) % 2, 1.0, -1.0)
    one_each = np.where(np.arange(40) == 7, 1.0, -1.0)
    for K, labels in (
        (np.zeros((40, 40)), y),
        (np.ones((40, 40)), y),
        (np.eye(40), one_each),
        (np.ones((2, 2)), y[:2]),
    ):
        point = interior_point(problem(K, labels, 1.0, 1.0), 1e-8).point
        assert point.relative_gap <= 1e-8


def test_the_middle_is_inside(rng):
    for _ in range(20):
        n = int(rng.integers(2, 30))
        y, C = rng.choice([-1.0, 1.0], n), 10.0 ** rng.uniform(-3, 3, n)
        y[:2] = 1.0, -1.0
        alpha = middle(y, C)
        assert (alpha > 0).all() and (alpha < C).all() and abs(y @ alpha) <= 1e-12 * alpha.sum()
