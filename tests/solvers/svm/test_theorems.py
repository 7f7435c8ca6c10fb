"""Theorems 2 and 4 of Liu et al. (2009), (14), and the stops of both algorithms."""

import numpy as np
import pytest
from repeats import but_for
from svm_cases import by_libsvm, f, random_problem

from dkl.linalg.svm_dual import box_hyperplane
from dkl.solvers.svm.gradient import SHRINK, Accelerated, _GradientSteps
from dkl.solvers.svm.level import LevelMethod
from dkl.solvers.watch import Outcome


def lipschitz_of_gradient(of):
    """At least the largest eigenvalue of f'' = 2 Y K Y + (|alpha|^2 I + 2 alpha alpha') / rho over the box."""
    return 2 * np.linalg.eigvalsh(of.kernel.K)[-1] + 3 * (of.C @ of.C) / of.rho


def plain_gradient(of, alpha):
    return 2 * of.y * (of.kernel.K @ (of.y * alpha)) - 2 + (alpha @ alpha) * alpha / of.rho


@pytest.mark.parametrize("tau", but_for([0.2, 0.8], [0.2, 0.5, 0.8]))
def test_theorem_2_gaps_of_the_level_method_fall_as_one_over_the_root(tau, rng):
    of = random_problem(rng, 25, gamma=1.0, rho=10.0)
    found = LevelMethod(tol=1e-6, tau=tau).solve(of)
    assert found.outcome is Outcome.SOLVED
    diameter = np.sqrt(of.C @ of.C)
    steepest = 2 * np.linalg.eigvalsh(of.kernel.K)[-1] * diameter + 2 * np.sqrt(of.n) + diameter**3 / of.rho
    constant = 1 / ((1 - tau) ** 2 * tau * (2 - tau))
    for row in found.history:
        gap = row["relative_gap"] * abs(row["objective"])
        if np.isfinite(gap):
            assert gap <= steepest * diameter * np.sqrt(constant / (row["iteration"] + 1))
    # What the paper says of practice, O(n log(1 / eps)), is far less.
    assert found.n_iter <= of.n * np.log(1e6)


def test_tau_decides_where_the_next_point_is(rng):
    of = random_problem(rng, 25, gamma=1.0, rho=10.0)
    ways = [tuple(row["objective"] for row in LevelMethod(max_iter=6, tau=tau).solve(of).history) for tau in (0.2, 0.8)]
    assert ways[0] != ways[1]


def test_theorem_4_gradient_descent_is_as_good_as_one_over_the_steps(rng):
    of = random_problem(rng, 40, gamma=1.0, rho=5.0)
    best, _ = by_libsvm(of)
    least, curved = f(of, best), lipschitz_of_gradient(of)
    walk = _GradientSteps(of, None, momentum=False)
    for N in range(1, 60):
        walk.step()
        # Backtracking doubles: no step has gamma above 2 L_f, so that O(1) is 1.
        assert walk.lipschitz <= 2 * curved
        assert f(of, walk.alpha) - least <= curved * (best @ best) / N + 1e-9 * abs(least)


def test_14_bounds_f_from_below_at_every_step(rng):
    of = random_problem(rng, 20, gamma=1.0, rho=2.0)
    points = [box_hyperplane(rng.normal(0.5, 1.0, of.n), of.y, of.C) for _ in range(20)]
    walk = _GradientSteps(of, points[0], momentum=False)
    for _ in range(8):
        before = walk.alpha
        walk.step()
        gamma = walk.lipschitz / SHRINK
        p = gamma * (before - walk.alpha)
        for y in points:
            bound = f(of, walk.alpha) + p @ (y - before) + p @ p / (2 * gamma)
            assert f(of, y) >= bound - 1e-10 * max(1.0, abs(bound))


def test_theorem_3_the_root_of_22_need_not_be_unique_though_the_projection_is():
    y, v = np.array([1.0, -1.0]), np.array([5.0, 0.0])

    def h(x):
        return y @ np.clip(v - x * y, 0.0, 1.0)

    roots = np.linspace(1.0, 4.0, 7)
    assert all(h(x) == 0.0 for x in roots) and h(0.5) > 0 > h(4.5)
    for x in roots:
        np.testing.assert_array_equal(np.clip(v - x * y, 0.0, 1.0), [1.0, 1.0])
    np.testing.assert_array_equal(box_hyperplane(v, y, np.ones(2)), [1.0, 1.0])


def test_algorithm_2_ends_by_the_relative_change(rng):
    """After the first step that is short enough, by hand, at its own point and whatever the gap."""
    of, tol = random_problem(rng, 30, gamma=1.0, rho=5.0), 1e-2
    walk, steps = _GradientSteps(of, None, momentum=False), 0
    while True:
        before = walk.alpha
        walk.step()
        steps += 1
        if np.linalg.norm(walk.alpha - before) <= tol * max(np.linalg.norm(before), 1.0):
            break
    found = Accelerated(tol, momentum=False, newton=False, by_change=True).solve(of)
    assert found.n_iter == steps and np.array_equal(found.point.alpha, walk.alpha)
    assert found.outcome is (Outcome.SOLVED if found.point.relative_gap <= tol else Outcome.STATIONARY)
    # A step along the projected gradient, by hand.
    gamma = walk.lipschitz / SHRINK
    by_hand = box_hyperplane(before - plain_gradient(of, before) / gamma, of.y, of.C)
    np.testing.assert_allclose(walk.alpha, by_hand, atol=1e-10)


def test_algorithm_1_ends_by_a_gap_that_is_not_relative(rng):
    of = random_problem(rng, 30, gamma=1.0, rho=5.0, C=3.0)
    found = LevelMethod(tol=0.5, is_absolute=True).solve(of)
    gaps = [row["relative_gap"] * abs(row["objective"]) for row in found.history if np.isfinite(row["relative_gap"])]
    assert gaps[-1] <= 0.5 < min(gaps[:-1])
    assert found.outcome is (Outcome.SOLVED if found.point.relative_gap <= 0.5 else Outcome.STATIONARY)
