"""The quartic problem of ONK: its gradient, its gap and its kernel, against plain formulas, LPs and other solvers."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import linprog
from svm_cases import Dense, by_conic, by_libsvm, f, machine, problem, random_problem

from dkl.linalg.svm_dual import box_hyperplane
from dkl.problems.svm.problem import least_bound
from dkl.solvers.svm.gradient import Accelerated

RHOS = [1e-2, 1.0, 1e4]


def feasible(of, rng):
    """Some alpha of P: inside, or on its boundary."""
    return box_hyperplane(of.C * rng.normal(0.5, rng.choice([0.2, 2.0]), of.n), of.y, of.C)


@pytest.mark.parametrize("rho", RHOS)
def test_objective_and_gradient(rho, rng):
    """The remainder of the Taylor expansion falls with the square of the step, and no faster."""
    of = random_problem(rng, 30, rho=rho)
    alpha, d = feasible(of, rng), rng.standard_normal(30)
    point = of.at(alpha)
    assert point.objective == pytest.approx(f(of, alpha), rel=1e-13)
    steps = 10.0 ** -np.arange(1, 5)
    remainders = [abs(f(of, alpha + t * d) - point.objective - t * point.gradient @ d) for t in steps]
    slopes = -np.diff(np.log10(remainders))
    assert (slopes > 1.9).all(), slopes


def test_zero(rng):
    of = random_problem(rng, 20)
    zero, plain = of.zero(), of.at(np.zeros(20))
    assert zero.objective == 0 and zero.gap == plain.gap
    assert_allclose(zero.gradient, plain.gradient)


def kinds(rng, count):
    """(gradient, alpha, y, C) with ties, flat intervals, and patterns at their bounds."""
    for k in range(count):
        n = int(rng.integers(2, 12))
        y = rng.choice([-1.0, 1.0], n)
        y[:2] = 1.0, -1.0
        C = np.ones(n) if k % 2 else rng.uniform(0.01, 3.0, n)
        gradient = rng.integers(-3, 4, n).astype(float) if k % 3 else rng.standard_normal(n)
        if k % 5 == 4:
            gradient = np.full(n, -1.0)  # all active
        if k % 7 == 6:
            C = 10.0 ** rng.uniform(-6, 6, n)
        yield gradient, box_hyperplane(C * rng.normal(0.5, 1.0, n), y, C), y, C


def test_gap_is_that_of_the_linear_programme(rng):
    """alpha'g - min of g'x over x in P, of which the bound over b is the dual."""
    for gradient, alpha, y, C in kinds(rng, 150):
        gap, b = least_bound(gradient, alpha, y, C)
        bounds = np.column_stack([np.zeros(len(y)), C])
        found = linprog(gradient, A_eq=y[None], b_eq=[0.0], bounds=bounds, method="highs")
        assert found.status == 0
        scale = np.abs(gradient) @ C
        assert gap == pytest.approx(alpha @ gradient - found.fun, abs=1e-6 * scale)  # HiGHS' own tolerance is 1e-7


def test_gap_is_least_over_the_breakpoints(rng):
    """A convex, piecewise linear function of b: try all its breakpoints. On a flat bottom, b is the middle."""

    def bound(b, gradient, alpha, y, C):
        return alpha @ gradient + sum(c * max(0.0, -g - 2 * b * s) for c, g, s in zip(C, gradient, y, strict=True))

    flat = 0
    for gradient, alpha, y, C in kinds(rng, 400):
        gap, b = least_bound(gradient, alpha, y, C)
        breaks = np.unique(-gradient * y / 2)
        values = np.array([bound(t, gradient, alpha, y, C) for t in breaks])
        scale = np.abs(gradient) @ C
        assert gap == pytest.approx(max(values.min(), 0.0), abs=1e-13 * scale)
        assert bound(b, gradient, alpha, y, C) == pytest.approx(values.min(), abs=1e-13 * scale)
        least = breaks[values <= values.min() + 1e-13 * scale]
        flat += len(least) > 1
        if np.ptp(np.log10(C)) < 3:
            assert b == pytest.approx((least[0] + least[-1]) / 2, abs=1e-12)
    assert flat > 20


@pytest.mark.parametrize("rho", RHOS)
def test_gap_bounds_what_is_missing(rho, rng):
    of = random_problem(rng, 30, rho=rho, C=rng.uniform(0.1, 2.0, 30))
    least = f(of, by_conic(of))
    for _ in range(50):
        point = of.at(feasible(of, rng))
        assert point.gap >= point.objective - least - 1e-9 * abs(least)
        below = point.objective < 0
        assert point.relative_gap == (point.gap / abs(point.objective) if below else np.inf)


@pytest.mark.parametrize("rho", RHOS)
def test_gap_is_zero_at_the_optimum_and_there_alone(rho, rng):
    of = random_problem(rng, 30, rho=rho)
    alpha = box_hyperplane(by_libsvm(of)[0], of.y, of.C)
    assert of.at(alpha).relative_gap < 1e-6
    elsewhere = alpha + 0.05 * of.C * rng.standard_normal(30)
    assert of.at(box_hyperplane(elsewhere, of.y, of.C)).relative_gap > 1e-4


@pytest.mark.parametrize("rho", RHOS)
def test_learned_kernel(rho, rng):
    """At the optimum G of (5) minimises the inner problem of (3), and alpha is the machine's on G: a saddle point."""
    of = random_problem(rng, 30, rho=rho)
    point = Accelerated(tol=1e-12).solve(of).point
    K, beta = of.kernel.K, of.y * point.alpha
    G = K + np.outer(beta, beta) / (2 * rho)

    def saddle(alpha, at):
        return 2 * alpha.sum() - (of.y * alpha) @ at @ (of.y * alpha) + rho * np.sum((at - K) ** 2)

    value = saddle(point.alpha, G)
    assert value == pytest.approx(-point.objective, rel=1e-10)  # (4) from (3)
    for size in (1e-3, 1e-1, 10.0):
        for _ in range(10):
            D = rng.standard_normal((30, 3))
            for near in (G + size * D @ D.T, G - min(size, 1.0) * G, (1 - 1e-3) * G + 1e-3 * D @ D.T):
                assert saddle(point.alpha, near) >= value
    alpha, b = machine(G, of.y, of.C)
    assert saddle(alpha, G) == pytest.approx(value, rel=1e-8)
    for _ in range(20):
        assert saddle(feasible(of, rng), G) <= value * (1 + 1e-10)
    assert point.intercept == pytest.approx(b, abs=1e-5)


def test_decision_has_no_coordinate_of_its_own(rng):
    of = random_problem(rng, 20)
    point = of.at(feasible(of, rng))
    coefficients, b = of.decision(point)
    assert_allclose(coefficients, of.y * point.alpha)
    assert b == point.intercept


def test_flat_interval_of_a_machine_without_free_vectors():
    """Two patterns, both at C: any b between their margins will do; the middle is LIBSVM's, and ours."""
    of = problem(np.array([[1.0, 0.2], [0.2, 3.0]]), np.array([1.0, -1.0]), C=0.1, rho=1e12)
    point = of.at(np.array([0.1, 0.1]))
    assert point.gap == pytest.approx(0, abs=1e-15)
    assert point.intercept == pytest.approx(machine(of.kernel.K, of.y, of.C)[1], abs=1e-9)


def test_a_linear_term_of_one_s_own(rng):
    """Of the problem, of one on some of its rows, and corrected once more: f = alpha'Q alpha - 2 c'alpha + ..."""
    of = random_problem(rng, 30, rho=2.0)
    c = rng.uniform(0.5, 1.5, 30)
    own, rows = replace(of, linear=c), np.sort(rng.permutation(30)[:20])
    some = own.among(rows, Dense(of.kernel.block(rows)))
    alpha = feasible(some, rng)
    full = np.zeros(30)
    full[rows] = alpha
    wanted = f(of, full) - 2 * (c - 1) @ full
    assert own.at(full).objective == pytest.approx(wanted, rel=1e-12)
    assert some.at(alpha).objective == pytest.approx(wanted, rel=1e-12)
    exact, rounded = some.at(alpha), replace(some, kernel=Dense(np.round(some.kernel.K, 2)))
    corrected = rounded.corrected(alpha, exact.product)
    assert_allclose(corrected.at(alpha).gradient, exact.gradient, atol=1e-12)
    assert np.abs(rounded.at(alpha).gradient - exact.gradient).max() > 1e-3
