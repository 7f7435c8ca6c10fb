"""rho="scale": the least rho that bounds what support vectors give up of the margin, by vertices, by LIBSVM, by invariances."""

from itertools import product

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.metrics.pairwise import rbf_kernel
from svm_cases import by_libsvm, problem, two_clouds

from dkl.problems.svm.problem import SHARE, largest_square, rho_of, scaled_rho
from dkl.runs.svm import verify


def by_vertices(C, y):
    """The largest |alpha|^2 over P: a convex function is largest at a vertex, where all but one alpha are at a bound."""
    best, n = 0.0, len(C)
    for free in range(n):
        for ends in product((0.0, 1.0), repeat=n - 1):
            alpha = C * np.insert(np.array(ends), free, 0.0)
            alpha[free] = -y[free] * (y @ alpha)
            if -1e-12 <= alpha[free] <= C[free] + 1e-12:
                best = max(best, float(alpha @ alpha))
    return best


def test_the_largest_square_is_that_of_a_vertex(rng):
    for _ in range(20):
        C, y = rng.choice([0.5, 1.0, rng.uniform(0.1, 3.0)], 7), rng.choice([-1.0, 1.0], 7)
        y[:2] = 1.0, -1.0
        assert largest_square(C, y) == pytest.approx(by_vertices(C, y), rel=1e-12)


@pytest.mark.parametrize("C", [0.1, 1.0, 30.0])
def test_of_equal_bounds_it_is_4_n_C_cubed(C):
    y = np.array([1.0] * 3 + [-1.0] * 10)
    assert scaled_rho(np.full(13, C), y) == pytest.approx(4 * 3 * C**3)


def test_a_number_stands_for_itself():
    assert rho_of(7, np.ones(2), np.array([1.0, -1.0])) == 7.0


@pytest.mark.parametrize("C", [1e-200, 1e-110, 1e110, 1e200])
def test_bounds_beyond_what_can_be_cubed(C):
    y = np.array([1.0, -1.0])
    assert 0 < scaled_rho(np.full(2, C), y) < np.inf
    assert scaled_rho(np.full(2, C), y) == verify.scaled_rho(y, np.full(2, C))


def test_verify_finds_the_same_in_its_own_way(rng):
    """Of bounds of a few classes against the rest, which is what runs have."""
    for _ in range(30):
        labels = rng.permutation(np.minimum(rng.integers(6, size=40), 3))
        labels[:4] = range(4)
        C, y = 10.0 ** rng.uniform(-3, 3, 4)[labels], np.where(labels == 0, 1.0, -1.0)
        assert verify.scaled_rho(y, C) == pytest.approx(scaled_rho(C, y), rel=1e-10)


@pytest.mark.parametrize("C", [0.05, 1.0, 10.0])
@pytest.mark.parametrize("apart", [0.0, 0.5, 2.0])
def test_no_support_vector_gives_up_more_than_a_share_of_the_margin(apart, C, rng):
    """By LIBSVM's machine on K + lambda I: y g = 1 - lambda alpha of the free ones, and lambda C <= SHARE."""
    X, y = two_clouds(rng, 80, apart=apart)
    K, bounds = rbf_kernel(X, gamma=0.3), np.full(80, C)
    of = problem(K, y, bounds, scaled_rho(bounds, y))
    alpha, b = by_libsvm(of)
    width = alpha @ alpha / (2 * of.rho) * C
    assert 0 < width <= SHARE
    free = (alpha > 1e-6 * C) & (alpha < (1 - 1e-6) * C)
    given_up = 1 - y * (K @ (y * alpha) + b)
    assert_allclose(given_up[free], width * alpha[free] / C, atol=1e-4)
    assert (given_up[free] <= SHARE + 1e-4).all()


def test_it_is_the_least_that_does():
    """K = 0 and classes of one size: all alpha are at C, and the width is the whole share."""
    y = np.repeat([1.0, -1.0], 10)
    of = problem(np.zeros((20, 20)), y, 0.3, scaled_rho(np.full(20, 0.3), y))
    alpha, _ = by_libsvm(of)
    assert_allclose(alpha, 0.3, rtol=1e-8)
    assert alpha @ alpha / (2 * of.rho) * 0.3 == pytest.approx(SHARE)


def test_rows_repeated_and_kernels_scaled_leave_the_machine(rng):
    X, y = two_clouds(rng, 50)
    K = rbf_kernel(X, gamma=0.5)

    def decisions(K, y, C):
        bounds = np.full(len(y), C)
        of = problem(K, y, bounds, scaled_rho(bounds, y))
        alpha, b = by_libsvm(of)
        return (K @ (y * alpha) + b)[:50]

    wanted = decisions(K, y, 2.0)
    assert_allclose(decisions(7.0 * K, y, 2.0 / 7.0), wanted, atol=1e-5)
    assert_allclose(decisions(np.tile(K, (3, 3)), np.tile(y, 3), 2.0 / 3.0), wanted, atol=1e-5)
    fixed = by_libsvm(problem(np.tile(K, (3, 3)), np.tile(y, 3), 2.0 / 3.0, scaled_rho(np.full(50, 2.0), y)))
    assert np.abs((np.tile(K, (3, 3)) @ (np.tile(y, 3) * fixed[0]) + fixed[1])[:50] - wanted).max() > 1e-3
