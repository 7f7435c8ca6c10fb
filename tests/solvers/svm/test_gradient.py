"""The solvers of (7) against LIBSVM within a bisection, and against a conic solver; and on what is hard for them."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from repeats import crossed
from sklearn.metrics.pairwise import pairwise_kernels
from svm_cases import by_conic, by_libsvm, f, machine, problem, random_problem, two_clouds

from dkl.solvers.svm import interior as svm_face
from dkl.solvers.svm.gradient import Accelerated
from dkl.solvers.svm.interior import FaceNewton
from dkl.solvers.watch import Outcome, Watch

SOLVERS = {
    "accelerated": Accelerated,
    "without Newton": lambda **limits: Accelerated(newton=False, **limits),
    "gradient": lambda **limits: Accelerated(newton=False, momentum=False, **limits),
}
RHOS = [1e-2, 1.0, 100.0, 1e6]
FEATURES = [
    {"kernel": "rbf", "gamma": 0.5, "C": 1.0},
    {"kernel": "rbf", "gamma": 5.0, "C": 100.0},
    {"kernel": "linear", "C": 0.1},
    {"kernel": "poly", "degree": 2, "coef0": 1.0, "C": "weights"},
    {"kernel": "laplacian", "C": "weights"},
]


def made(rng, n, rho, C, **kernel):
    return random_problem(rng, n, rho=rho, C=rng.uniform(0.05, 2.0, n) if C == "weights" else C, **kernel)


def feasible(of, alpha):
    return (alpha >= 0).all() and (alpha <= of.C).all() and abs(of.y @ alpha) <= 1e-12 * max(alpha.sum(), 1e-300)


@pytest.mark.parametrize("rho", RHOS)
@pytest.mark.parametrize("case", FEATURES, ids=lambda case: f"{case['kernel']}, C={case['C']}")
def test_against_libsvm(case, rho, rng):
    """The objective of the machine on K + (s / (2 rho)) I at s = |alpha|^2; alpha and b where they are determined."""
    of = made(rng, 60, rho, **case)
    alpha, b = by_libsvm(of)
    found = Accelerated(tol=1e-10, max_iter=20_000).solve(of)
    assert found.outcome is Outcome.SOLVED and found.point.relative_gap <= 1e-10
    assert feasible(of, found.point.alpha)
    assert found.point.objective == pytest.approx(f(of, alpha), rel=1e-8)
    free = (found.point.alpha > 1e-6 * of.C) & (found.point.alpha < (1 - 1e-6) * of.C)
    if free.any():
        G = of.kernel.K + np.outer(of.y * alpha, of.y * alpha) / (2 * rho)
        margins = of.y * (G @ (of.y * found.point.alpha) + found.point.intercept)
        assert_allclose(margins[free], 1.0, atol=1e-4)
        assert found.point.intercept == pytest.approx(b, abs=1e-4 * max(1.0, abs(b)))


@pytest.mark.parametrize("solver", ["without Newton", "gradient"])
@pytest.mark.parametrize("rho", [1e-2, 1.0, 100.0])
def test_gradients_alone_against_libsvm(solver, rho, rng):
    of = made(rng, 40, rho, kernel="rbf", gamma=1.0, C="weights")
    found = SOLVERS[solver](tol=1e-9, max_iter=20_000).solve(of)
    assert found.outcome is Outcome.SOLVED
    assert found.point.objective == pytest.approx(f(of, by_libsvm(of)[0]), rel=1e-8)


@pytest.mark.parametrize("n", [2, 3, 10, 50])
@pytest.mark.parametrize("rho", [1e-2, 1.0, 100.0])
def test_against_the_conic_form(n, rho, rng):
    of = made(rng, n, rho, kernel="rbf", gamma=1.0, C="weights")
    found = Accelerated(tol=1e-10).solve(of)
    assert found.point.objective == pytest.approx(f(of, by_conic(of)), rel=1e-7)


def test_as_rho_grows_it_is_the_machine_on_the_kernel(rng):
    X, y = two_clouds(rng, 80)
    K = pairwise_kernels(X, metric="rbf", gamma=0.5)
    of = problem(K, y, 1.0, 1e12)
    alpha, b = machine(K, y, of.C)
    point = Accelerated(tol=1e-11, max_iter=50_000).solve(of).point
    assert_allclose(K @ (y * point.alpha) + point.intercept, K @ (y * alpha) + b, atol=1e-5)


@pytest.mark.parametrize("solver", SOLVERS)
def test_warm_start(solver, rng):
    """From the solution, no step is needed; from that of a neighbor, the end is the same; of a wild one too."""
    of = made(rng, 50, 1.0, kernel="rbf", gamma=1.0, C=1.0)
    neighbour = problem(of.kernel.K, of.y, 0.8, 1.3)
    cold = SOLVERS[solver](tol=1e-9).solve(of)
    again = SOLVERS[solver](tol=1e-9).solve(of, cold.point.alpha)
    assert again.n_iter == 0 and again.products == 1
    near = SOLVERS[solver](tol=1e-9).solve(of, SOLVERS[solver](tol=1e-9).solve(neighbour).point.alpha)
    wild = SOLVERS[solver](tol=1e-9).solve(of, 1e3 * rng.standard_normal(50))
    for other in (near, wild):
        assert other.outcome is Outcome.SOLVED and feasible(of, other.point.alpha)
        assert other.point.objective == pytest.approx(cold.point.objective, rel=2e-9)
    if solver == "accelerated":
        assert near.products < cold.products


@pytest.mark.parametrize("solver", SOLVERS)
def test_history(solver, rng):
    of = made(rng, 60, 10.0, kernel="rbf", gamma=1.0, C=1.0)
    seen = []
    found = SOLVERS[solver](tol=1e-8).solve(of, watch=Watch([seen.append]))
    assert seen == found.history
    iterations = [row["iteration"] for row in found.history]
    assert iterations == sorted(iterations) and iterations[0] == 0 and iterations[-1] == found.n_iter
    gaps = [row["relative_gap"] for row in found.history]
    assert gaps[-1] == found.point.relative_gap <= 1e-8
    assert found.history[-1]["products"] == found.products
    assert found.history[-1]["objective"] == found.point.objective


def test_newton_steps_save_products(rng):
    of = made(rng, 150, 100.0, kernel="rbf", gamma=1.0, C=10.0)
    with_them, without = (Accelerated(tol=1e-9, newton=newton).solve(of) for newton in (True, False))
    assert with_them.products < without.products


@pytest.mark.parametrize("solver", SOLVERS)
def test_limit_of_iterations(solver, rng):
    of = made(rng, 60, 10.0, kernel="rbf", gamma=1.0, C=10.0)
    found = SOLVERS[solver](tol=1e-12, max_iter=3).solve(of)
    assert found.outcome is Outcome.ITERATION_LIMIT and found.n_iter == 3
    assert feasible(of, found.point.alpha) and found.point.relative_gap > 1e-12


def adversaries(rng):
    """name -> (K, y, C, rho): degenerate, ill-scaled, or not quite a kernel."""
    X, y = two_clouds(rng, 40)
    K = pairwise_kernels(X, metric="rbf", gamma=0.5)
    twice, opposite = np.tile(X[:20], (2, 1)), np.repeat([1.0, -1.0], 20)
    rank_one = np.outer(X[:, 0], X[:, 0])
    linear = X @ X.T
    one_each = np.where(np.arange(40) == 7, 1.0, -1.0)
    noise = rng.standard_normal((40, 40)) * 1e-10
    return {
        "duplicates with opposite labels": (pairwise_kernels(twice, metric="rbf"), opposite, 1.0, 1.0),
        "the same, C large": (pairwise_kernels(twice, metric="rbf"), opposite, 1e4, 100.0),
        "K = 0": (np.zeros((40, 40)), y, 1.0, 1.0),
        "K = 0, C large": (np.zeros((40, 40)), y, 1e6, 1.0),
        "K = 0, rho large": (np.zeros((40, 40)), y, 1.0, 1e8),
        "K = 1": (np.ones((40, 40)), y, 1.0, 10.0),
        "K = I": (np.eye(40), y, 1.0, 1.0),
        "rank one": (rank_one, y, 1.0, 1.0),
        "rank one, C large": (rank_one, y, 1e3, 1e2),
        "C tiny": (K, y, 1e-8, 1.0),
        "C huge": (K, y, 1e8, 1.0),
        "C huge and rho huge": (linear, y, 1e5, 1e5),
        "C of every size": (K, y, 10.0 ** rng.uniform(-6, 6, 40), 1.0),
        "rho tiny": (K, y, 1.0, 1e-8),
        "K tiny": (1e-12 * K, y, 1.0, 1.0),
        "K huge": (1e12 * K, y, 1.0, 1.0),
        "indefinite by rounding": (K + noise + noise.T, y, 1.0, 1.0),
        "linear, indefinite by rounding": (linear + noise + noise.T, y, 10.0, 1e6),
        "one pattern of a class": (K, one_each, 1.0, 1.0),
        "two patterns": (K[:2, :2], np.array([1.0, -1.0]), 1.0, 1.0),
        "two equal patterns": (np.ones((2, 2)), np.array([1.0, -1.0]), 1.0, 1.0),
    }


@pytest.mark.parametrize(("name", "solver"), crossed(list(adversaries(np.random.default_rng(0))), list(SOLVERS)))
def test_adversaries(name, solver, seed):
    """Solved within the gap that is told, and that gap is true; or given up, and said so."""
    of = problem(*adversaries(np.random.default_rng(seed))[name])
    found = SOLVERS[solver](tol=1e-6, max_iter=3000).solve(of)
    point = found.point
    assert feasible(of, point.alpha) and np.isfinite(point.objective) and np.isfinite(point.intercept)
    assert (found.outcome is Outcome.SOLVED) == (point.relative_gap <= 1e-6)
    assert point.objective == pytest.approx(f(of, point.alpha), rel=1e-9)
    if solver == "accelerated" and name != "K huge":  # there g has no digits left for so small a gap
        assert found.outcome is Outcome.SOLVED, (found.outcome, point.relative_gap)
    if found.outcome is Outcome.SOLVED:
        assert point.objective <= f(of, by_libsvm(of, 1e-6)[0]) + 2e-6 * abs(point.objective)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("size", [1e300, 1e160, 1e-160, 1e-300])
def test_sizes_that_overflow_come_to_an_end(size, solver, rng):
    X, y = two_clouds(rng, 30)
    of = problem(size * pairwise_kernels(X, metric="rbf"), y)
    with np.errstate(all="ignore"):
        found = SOLVERS[solver](tol=1e-6, max_iter=200).solve(of)
    assert (found.outcome is Outcome.SOLVED) == (found.point.relative_gap <= 1e-6)


def test_conjugate_gradients_and_a_sketch(rng, monkeypatch):
    """The way of large faces, on small ones."""
    monkeypatch.setattr(svm_face, "DENSE", 10)
    monkeypatch.setattr(svm_face, "SKETCH", 15)
    for rho in (1.0, 1e4):
        of = made(rng, 80, rho, kernel="rbf", gamma=1.0, C=10.0)
        found = Accelerated(tol=1e-9).solve(of)
        assert found.outcome is Outcome.SOLVED
        assert found.point.objective == pytest.approx(f(of, by_libsvm(of)[0]), rel=1e-8)
    assert found.products < Accelerated(tol=1e-9, newton=False).solve(of).products  # at the last rho, the harder one


def test_newton_on_a_kernel_that_is_indefinite_by_rounding(rng):
    """Its largest negative eigenvalue is beyond what is added to the diagonal at first."""
    K = pairwise_kernels(rng.standard_normal((40, 2)), metric="rbf", gamma=0.1)
    noise = 1e-8 * rng.standard_normal((40, 40))
    of = problem(K + noise + noise.T, np.where(np.arange(40) % 2, 1.0, -1.0), 100.0, 1e15)
    alpha = of.C * 0.5
    assert FaceNewton(of).step(of.at(alpha)).objective < of.at(alpha).objective


def test_random_problems(rng):
    """Sizes, scales and ranks at random: never solved with a gap above tol, and nearly always solved."""
    unsolved = 0
    for _ in range(60):
        n, rank = int(rng.integers(2, 40)), int(rng.integers(1, 10))
        X, y = two_clouds(rng, n, d=rank)
        K = (X @ X.T) * 10.0 ** rng.uniform(-3, 3)
        of = problem(K, y, 10.0 ** rng.uniform(-4, 4), 10.0 ** rng.uniform(-3, 6))
        found = Accelerated(tol=1e-6, max_iter=2000).solve(of)
        assert feasible(of, found.point.alpha)
        assert (found.outcome is Outcome.SOLVED) == (found.point.relative_gap <= 1e-6)
        unsolved += found.outcome is not Outcome.SOLVED
    assert unsolved <= 3
