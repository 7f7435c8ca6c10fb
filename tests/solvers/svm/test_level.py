"""The level method: its answer against LIBSVM's, its bound, its projection onto a level set, and its end."""

import clarabel
import numpy as np
import pytest
from numpy.testing import assert_allclose
from repeats import but_for, crossed
from scipy import sparse
from scipy.optimize import linprog
from svm_cases import by_libsvm, f, problem, random_problem

from dkl.linalg.svm_dual import box_hyperplane
from dkl.solvers.svm.level import Cuts, LevelMethod, nearest_below
from dkl.solvers.watch import Outcome, Watch


def feasible(of, rng):
    return box_hyperplane(of.C * rng.normal(0.5, 1.0, of.n), of.y, of.C)


@pytest.mark.parametrize(("C", "rho"), crossed([1e-6, 1.0, "weights", 30.0], [1e-2, 1.0, 1e4]))
def test_against_libsvm(C, rho, rng):
    C = rng.uniform(0.05, 2.0, 40) if C == "weights" else C
    of = random_problem(rng, 40, gamma=1.0, C=C, rho=rho)
    found = LevelMethod(tol=1e-6).solve(of)
    least = f(of, by_libsvm(of)[0])
    assert found.outcome is Outcome.SOLVED and found.point.relative_gap <= 1e-6
    assert -1e-9 <= (found.point.objective - least) / abs(least) <= 1e-6
    assert found.point.objective - found.point.gap <= least + 1e-9 * abs(least)
    assert found.point.objective == pytest.approx(f(of, found.point.alpha), rel=1e-12)
    assert abs(of.y @ found.point.alpha) <= 1e-12 * found.point.alpha.sum()


@pytest.mark.parametrize("rho", but_for([1e4], [1e2, 1e4, 1e8]))
@pytest.mark.parametrize("n", but_for([40], [20, 40]))
def test_a_wide_box(n, rho, rng):
    """Its first cuts are steep, and lie far below the level of the last ones."""
    for gamma in (0.1, 1.0):
        of = random_problem(rng, n, gamma=gamma, C=1000.0, rho=rho)
        found = LevelMethod(tol=1e-6).solve(of)
        assert found.outcome is Outcome.SOLVED and found.point.relative_gap <= 1e-6


@pytest.mark.exhaustive
def test_some_hundred_patterns(rng):
    of = random_problem(rng, 150, gamma=0.3, rho=100.0)
    found = LevelMethod(tol=1e-9).solve(
        of
    )  # b is of the gradient at alpha: its error is that of alpha, a root of the gap
    alpha, b = by_libsvm(of, 1e-8)
    assert found.outcome is Outcome.SOLVED
    assert found.point.objective == pytest.approx(f(of, alpha), rel=1e-6)
    assert found.point.intercept == pytest.approx(b, abs=1e-4)


@pytest.mark.parametrize("rho", [1e-3, 1.0, 1e6])
def test_in_closed_form(rho):
    """Two patterns and K = 0: f = -4 a + a^4 / rho, so a^3 = rho, whatever a box far beyond."""
    of = problem(np.zeros((2, 2)), np.array([1.0, -1.0]), 1e6, rho)
    found = LevelMethod(tol=1e-8).solve(of)
    assert found.outcome is Outcome.SOLVED
    assert found.point.objective == pytest.approx(-3 * np.cbrt(rho), rel=1e-8)
    assert_allclose(found.point.alpha, np.cbrt(rho), rtol=1e-3)


@pytest.mark.exhaustive
def test_bounds_close_in(rng):
    """The gap never grows, and every lower bound told stands below the least value."""
    of = random_problem(rng, 60, gamma=1.0, rho=10.0)
    seen = []
    found = LevelMethod(tol=1e-7).solve(of, watch=Watch([seen.append]))
    assert seen == found.history
    least = f(of, by_libsvm(of)[0])
    gaps = np.array([row["relative_gap"] for row in seen[1:]])
    objectives = np.array([row["objective"] for row in seen[1:]])
    assert (np.diff(objectives) <= 0).all() and objectives[-1] >= least * (1 + 1e-10)
    assert (np.diff(gaps * np.abs(objectives)) <= 0).all()
    assert (objectives - gaps * np.abs(objectives) <= least + 1e-9 * abs(least)).all()
    assert [row["iteration"] for row in seen] == list(range(found.n_iter + 1))
    assert found.products == seen[-1]["products"] == found.n_iter


def cuts_at(of, points):
    cuts = Cuts(of)
    for alpha in points:
        cuts.add(of.at(alpha))
    return cuts


def test_weights_of_cuts_are_the_multipliers_of_the_linear_program(rng):
    """(8) in alpha itself."""
    of = random_problem(rng, 20, gamma=1.0, C=rng.uniform(0.1, 2.0, 20))
    points = [feasible(of, rng) for _ in range(6)]
    cuts = cuts_at(of, points)
    A, b = [], []
    for alpha in points:
        g = of.gradient(alpha, of.product(alpha))
        A.append(np.append(g, -1.0))
        b.append(g @ alpha - f(of, alpha))
    bounds = [*((0.0, c) for c in of.C), (None, None)]
    plain = linprog(np.eye(21)[20], np.array(A), b, np.append(of.y, 0.0)[None], [0.0], bounds=bounds, method="highs")
    weights = cuts.weights(10.0)
    mean = weights @ np.array(A)[:, :20]
    least = linprog(mean, None, None, of.y[None], [0.0], bounds=bounds[:20], method="highs").fun
    assert least - weights @ np.array(b) == pytest.approx(plain.fun, rel=1e-6)


@pytest.mark.parametrize("rho", [1e-3, 1.0, 1e4])
def test_a_bound_by_means_is_between_the_cuts_and_the_least_value(rho, rng):
    """Below f everywhere, whatever the weights: recomputed by a linear program from the two means alone."""
    of = random_problem(rng, 20, gamma=1.0, C=rng.uniform(0.1, 2.0, 20), rho=rho)
    cuts = cuts_at(of, [feasible(of, rng) for _ in range(6)])
    least = f(of, by_libsvm(of, 1e-9)[0])
    for weights in (cuts.weights(10.0), *rng.dirichlet(np.ones(6), 5)):
        found = cuts.lower_bound(weights)
        slope = 2 * of.product(found.alpha) - 2 + found.cubic / rho
        fall = linprog(slope, None, None, of.y[None], [0.0], bounds=[(0.0, c) for c in of.C], method="highs").fun
        constant = found.alpha @ of.product(found.alpha) + 0.75 * np.linalg.norm(found.cubic) ** (4 / 3) / rho
        assert found.value == pytest.approx(fall - constant, rel=1e-9, abs=1e-9)
        of_cuts = weights @ cuts.offsets
        of_cuts += linprog(weights @ cuts.gradients, None, None, of.y[None], [0.0], bounds=[(0.0, c) for c in of.C]).fun
        assert of_cuts - 1e-9 * abs(of_cuts) <= found.value <= least + 1e-9 * abs(least)


def conic(alpha, normals, offsets, y, C):
    n = len(alpha)
    A = sparse.csc_matrix(np.vstack([y[None], -np.eye(n), np.eye(n), normals]))
    b = np.concatenate([[0.0], np.zeros(n), C, -offsets])
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-11
    cones = [clarabel.ZeroConeT(1), clarabel.NonnegativeConeT(2 * n + len(offsets))]
    return np.array(clarabel.DefaultSolver(sparse.eye(n, format="csc"), -alpha, A, b, cones, settings).solve().x)


@pytest.mark.parametrize("cuts", [1, 3, 15])
def test_projection_onto_a_level_set(cuts, rng):
    """(10) against a conic solver; from a cold and from a wild guess."""
    for _ in range(20):
        n = 25
        y = np.where(np.arange(n) % 3 == 0, 1.0, -1.0)
        C = rng.uniform(0.2, 2.0, n)
        normals = rng.standard_normal((cuts, n)) + 2 * rng.standard_normal(n)
        normals /= np.linalg.norm(normals, axis=1)[:, None]
        inside = box_hyperplane(C * rng.random(n), y, C)
        offsets = -normals @ inside - rng.uniform(0, 0.1, cuts)
        alpha = box_hyperplane(C * rng.normal(0.5, 2.0, n), y, C)
        wanted = conic(alpha, normals, offsets, y, C)
        for guess in (np.zeros(cuts), rng.exponential(3.0, cuts)):
            x, mu = nearest_below(alpha, normals, offsets, y, C, guess)
            assert_allclose(x, wanted, atol=1e-4)
            assert (mu >= 0).all() and (offsets + normals @ x <= 1e-5).all()


def test_a_cut_far_below_the_level_changes_nothing(rng):
    n = 25
    y, C = np.where(np.arange(n) % 3 == 0, 1.0, -1.0), rng.uniform(0.2, 2.0, n)
    normals = rng.standard_normal((4, n))
    inside = box_hyperplane(C * rng.random(n), y, C)
    alpha = box_hyperplane(inside + 1e-3 * rng.standard_normal(n), y, C)
    offsets = -normals @ (inside + alpha) / 2
    offsets[3] = -1e9
    without, _ = nearest_below(alpha, normals[:3], offsets[:3], y, C, np.zeros(3))
    found, mu = nearest_below(alpha, normals, offsets, y, C, np.zeros(4))
    assert np.abs(without - alpha).max() > 1e-5 and mu[3] == 0
    assert_allclose(found, without, atol=1e-9)


def test_twice_the_same_cut(rng):
    """Its dual has no single solution."""
    y, C = np.array([1.0, -1.0, 1.0, -1.0]), np.ones(4)
    normals = np.tile([0.5, 0.5, 0.5, 0.5], (4, 1))
    x, _ = nearest_below(np.ones(4), normals, np.full(4, -1.0), y, C, np.zeros(4))
    assert_allclose(x, np.full(4, 0.5), atol=1e-5)


def test_warm_start(rng):
    of = random_problem(rng, 50, gamma=1.0, rho=10.0)
    cold = LevelMethod(tol=1e-6).solve(of)
    warm = LevelMethod(tol=1e-6).solve(of, cold.point.alpha)
    assert warm.outcome is Outcome.SOLVED and warm.n_iter < cold.n_iter
    assert warm.point.objective == pytest.approx(cold.point.objective, rel=2e-6)


def test_limit_and_stall(rng):
    of = random_problem(rng, 30, gamma=1.0)
    few = LevelMethod(tol=1e-6, max_iter=5).solve(of)
    assert few.outcome is Outcome.ITERATION_LIMIT and few.n_iter == 5 and few.point.relative_gap > 1e-6
    beyond = LevelMethod(tol=0.0, max_iter=100).solve(random_problem(rng, 10, gamma=1.0))
    assert beyond.point.relative_gap < 1e-6
    assert (beyond.outcome is Outcome.SOLVED) == (beyond.point.gap == 0)


def test_cuts_whose_squares_overflow_end(rng):
    """Rows times 1e80 under a linear kernel."""
    X = rng.standard_normal((30, 3)) * 1e80
    y = np.where(np.arange(30) % 2 == 0, 1.0, -1.0)
    with np.errstate(over="ignore", invalid="ignore"):
        found = LevelMethod(tol=1e-4, max_iter=20).solve(problem(X @ X.T, y, 1.0, 2.0))
    assert found.outcome is not Outcome.SOLVED and np.isfinite(found.point.alpha).all()
