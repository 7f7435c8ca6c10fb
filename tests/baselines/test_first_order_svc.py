"""Kelley's cutting planes and projected subgradients against LIBSVM, the linear program, their bounds, and ONK's own machine."""

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose
from scipy.optimize import linprog
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.utils.estimator_checks import parametrize_with_checks
from svm_cases import blobs, by_libsvm, f, random_problem, two_clouds

import dkl
from dkl.baselines import FirstOrderSVC
from dkl.baselines.first_order_svc import ProjectedSubgradient
from dkl.errors import ConvergenceWarning, InputError, MemoryBudgetError
from dkl.problems.svm.problem import largest_square
from dkl.solvers.svm.level import Cuts, LevelMethod
from dkl.solvers.watch import Outcome, Watch


@pytest.mark.parametrize(("C", "rho"), [(1.0, 1.0), (5.0, 0.1), ("weights", 1e3)])
def test_kelley_finds_libsvm_s_optimum(C, rho, rng):
    C = rng.uniform(0.05, 2.0, 6) if C == "weights" else C
    of = random_problem(rng, 6, gamma=1.0, C=C, rho=rho)
    found = LevelMethod(1e-4, tau=0.0).solve(of)
    least = f(of, by_libsvm(of)[0])
    assert found.outcome is Outcome.SOLVED and found.point.relative_gap <= 1e-4
    assert -1e-9 <= (found.point.objective - least) / abs(least) <= 1e-4


def test_kelley_s_next_point_is_the_linear_program_s(rng):
    of = random_problem(rng, 20, gamma=1.0, C=rng.uniform(0.1, 2.0, 20))
    cuts, A, b = Cuts(of), [], []
    for _ in range(5):
        alpha = cuts.minimizer
        cuts.add(of.at(alpha))
        g = of.gradient(alpha, of.product(alpha))
        A.append(np.append(g, -1.0))
        b.append(g @ alpha - f(of, alpha))
        bounds = [*((0.0, c) for c in of.C), (None, None)]
        plain = linprog(np.eye(21)[20], np.array(A), b, np.append(of.y, 0.0)[None], [0.0], bounds=bounds)
        cuts.weights(10.0)
        x = cuts.minimizer
        assert abs(of.y @ x) <= 1e-12 * x.sum() and (x >= 0).all() and (x <= of.C).all()
        assert max(a[:20] @ x - c for a, c in zip(A, b, strict=True)) == pytest.approx(plain.fun, rel=1e-6)


def test_subgradients_keep_to_their_bound(rng):
    """The best of N > 1 points is at most R L (1 + ln N / 2) / sqrt(N) above the least; and what is proven holds."""
    of = random_problem(rng, 40, gamma=1.0, rho=1.0)
    rows = []
    found = ProjectedSubgradient(0.0, 1000).solve(of, watch=Watch([rows.append]))
    least = f(of, by_libsvm(of)[0])
    # |g| <= 2 (|Y K Y| R + sqrt n) + R^3 / rho anywhere in P.
    R = np.sqrt(largest_square(of.C, of.y))
    L = 2 * (np.linalg.norm(of.kernel.K, 2) * R + np.sqrt(of.n)) + R**3 / of.rho
    for row in rows[1:]:
        N = row["iteration"] + 1
        assert row["objective"] - least <= R * L * (1 + np.log(N) / 2) / np.sqrt(N)
        if row["objective"] < 0:
            assert row["objective"] - row["relative_gap"] * abs(row["objective"]) <= least + 1e-9
    # A gap of 0 is met where a step leads to the solution itself.
    is_limit = found.outcome is Outcome.ITERATION_LIMIT
    assert is_limit == (found.point.relative_gap > 0) and found.point.objective <= least * (1 - 1e-2)


@pytest.mark.parametrize(("solver", "n", "tol"), [("kelley", 8, 1e-3), ("subgradient", 60, 2e-2)])
def test_the_machine_is_that_of_the_optimal_neighborhood_kernel(solver, n, tol, rng):
    X, y = two_clouds(rng, n)
    settings = {"gamma": 0.5, "rho": 2.0, "standardize": False, "n_jobs": 1}
    model = FirstOrderSVC(solver=solver, tol=tol, max_iter=20_000, **settings).fit(X, y)
    expected = dkl.OptimalNeighborhoodSVC(tol=1e-9, holdout=0, **settings).fit(X, y)
    assert model.relative_gap_[0] <= tol
    assert 0 <= model.objective_[0] - expected.objective_[0] + 1e-9 <= 2 * tol * abs(expected.objective_[0])
    # f is strongly convex along decisions: |w - w*|^2 <= f - f*, in the kernel's norm.
    apart = model.decision_function(X) - model.intercept_ - expected.decision_function(X) + expected.intercept_
    assert np.abs(apart).max() <= np.sqrt(model.objective_[0] - expected.objective_[0] + 1e-9)
    assert model.rho_[0] == 2.0 and len(model.history_[0]) == model.n_iter_[0] + 1


def test_three_classes_are_one_against_the_rest(rng):
    X, y = blobs(rng, 60, 3)
    model = FirstOrderSVC(solver="subgradient", tol=1e-2, max_iter=20_000, n_jobs=1).fit(X, y)
    expected = dkl.OptimalNeighborhoodSVC(multi_class="ovr", holdout=0, n_jobs=1).fit(X, y)
    assert model.decision_function(X).shape == (60, 3) and model.relative_gap_.max() <= 1e-2
    assert_allclose(model.objective_, expected.objective_, rtol=2e-2)
    assert (model.predict(X) == expected.predict(X)).mean() > 0.9


@pytest.mark.parametrize("solver", ["kelley", "subgradient"])
@pytest.mark.filterwarnings("ignore::dkl.errors.ConvergenceWarning")
def test_sparse_and_precomputed_rows_and_rows_without_weight(solver, rng):
    X, y = two_clouds(rng, 30)
    Z = rng.standard_normal((9, 3))
    settings = {"solver": solver, "max_iter": 15, "n_jobs": 1}
    dense = FirstOrderSVC(gamma=0.5, **settings).fit(X, y).decision_function(Z)
    sparse = FirstOrderSVC(gamma=0.5, **settings).fit(sp.csr_array(X), y).decision_function(sp.csr_array(Z))
    assert_allclose(sparse, dense, rtol=1e-6, atol=1e-8)
    known = FirstOrderSVC(kernel="precomputed", **settings).fit(rbf_kernel(X, gamma=0.5), y)
    assert_allclose(known.decision_function(rbf_kernel(Z, X, gamma=0.5)), dense, rtol=1e-6, atol=1e-8)
    weights = np.ones(30)
    weights[25:] = 0
    some = FirstOrderSVC(gamma=0.5, **settings).fit(X, y, weights)
    fewer = FirstOrderSVC(gamma=0.5, **settings).fit(X[:25], y[:25])
    assert_allclose(some.decision_function(Z), fewer.decision_function(Z), rtol=1e-8, atol=1e-10)
    assert some.support_.max() < 25


def test_a_gap_that_is_left_is_said(rng):
    X, y = two_clouds(rng, 30)
    with pytest.warns(ConvergenceWarning, match=r"the relative gap is .*, above tol=0\.001: raise max_iter or tol"):
        FirstOrderSVC(max_iter=3).fit(X, y)


@pytest.mark.parametrize(
    ("parameters", "what"),
    [
        ({"solver": "level"}, "solver"),
        ({"C": 0}, "C"),
        ({"C": 1e80}, "overflows"),
        ({"rho": "small"}, "rho"),
        ({"kernel_params": {"width": 1}}, "kernel_params"),
    ],
)
def test_refuses(parameters, what, rng):
    X, y = two_clouds(rng, 30)
    with pytest.raises(InputError, match=what):
        FirstOrderSVC(**parameters).fit(X, y)


def test_a_kernel_matrix_that_does_not_fit_is_refused_before_work():
    with pytest.raises(MemoryBudgetError, match="kernel matrix of 50,000 rows.*OptimalNeighborhoodSVC"):
        FirstOrderSVC(memory_limit="1 GB").fit(np.arange(50_000.0)[:, None], np.arange(50_000) % 2)


def repeats_count(estimator):
    checks = ("dense", "sparse")
    return {f"check_sample_weight_equivalence_on_{kind}_data": "|G - K| counts a row twice" for kind in checks}


@pytest.mark.exhaustive
@pytest.mark.filterwarnings("ignore::dkl.errors.ConvergenceWarning")
@parametrize_with_checks(
    [FirstOrderSVC(solver="subgradient", tol=1e-2, max_iter=500)], expected_failed_checks=repeats_count
)
def test_scikit_learn_s_contract(estimator, check):
    check(estimator)
