"""Working sets reach the solution of all rows, from few columns; refinement reaches it through a rounded kernel."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from repeats import crossed
from sklearn.metrics.pairwise import pairwise_kernels, rbf_kernel
from svm_cases import Dense, by_libsvm, f, parted, problem, random_problem, two_clouds

from dkl.solvers.svm import working_set
from dkl.solvers.svm import working_set as svm_start
from dkl.solvers.svm.gradient import Accelerated
from dkl.solvers.svm.level import LevelMethod
from dkl.solvers.svm.refinement import refined
from dkl.solvers.svm.working_set import WorkingSets, first_rows
from dkl.solvers.watch import Outcome, Watch


@pytest.fixture(autouse=True)
def few_at_first(monkeypatch):
    """Sets as small, beside a hundred rows, as they are beside many thousand."""
    monkeypatch.setattr(working_set, "FEWEST_FIRST", 10)
    monkeypatch.setattr(working_set, "MOST_FIRST", 12)
    monkeypatch.setattr(working_set, "LEAST_OF_A_CLASS", 3)


def working_sets(tol=1e-10, **options):
    return WorkingSets(Accelerated(tol=tol, max_iter=20_000), smallest=0, **options)


@pytest.mark.parametrize("fits", [True, False], ids=["all rows fit", "parts only"])
@pytest.mark.parametrize(("C", "rho"), crossed([0.1, 10.0, "weights"], [1e-2, 1.0, 100.0]))
def test_against_libsvm(C, rho, fits, rng):
    bounds = rng.uniform(0.05, 2.0, 120) if C == "weights" else C
    of = random_problem(rng, 120, rho=rho, C=bounds, gamma=0.5)
    found = working_sets().solve(parted(of, fits=fits))
    assert found.outcome is Outcome.SOLVED and found.point.relative_gap <= 1e-10
    assert found.point.objective == pytest.approx(f(of, by_libsvm(of)[0]), rel=1e-8)
    assert abs(of.y @ found.point.alpha) <= 1e-12 * found.point.alpha.sum()


@pytest.mark.parametrize("seed", range(4))
def test_what_is_told_is_true_of_all_rows(seed):
    """The gap and b of the point are those of the whole problem at its alpha."""
    rng = np.random.default_rng(seed)
    of = random_problem(rng, 150, gamma=0.5, C=rng.uniform(0.1, 5, 150), rho=10.0)
    for tol in (1e-2, 1e-6):
        point = working_sets(tol).solve(parted(of, fits=False)).point
        again = of.at(point.alpha)
        assert_allclose(point.product, again.product, atol=1e-12)
        assert point.gap == pytest.approx(again.gap, rel=1e-6, abs=1e-12)
        assert again.relative_gap <= tol and again.intercept == pytest.approx(point.intercept, abs=1e-9)


def test_few_columns_are_made_where_few_rows_count(rng):
    X, y = two_clouds(rng, 800, apart=6.0)
    of = parted(problem(rbf_kernel(X, gamma=0.05), y, 10.0, 100.0), fits=False)
    found = working_sets(1e-8).solve(of)
    support = np.count_nonzero(found.point.alpha)
    assert support < 100
    assert of.kernel.largest < 400
    assert of.kernel.columns_used < 20 * support < 800 * 3
    assert [row["rows"] for row in found.history][-1] < 400


def test_all_rows_are_taken_where_most_count(rng):
    of = parted(random_problem(rng, 200, gamma=50.0, C=1.0))
    told = []
    found = WorkingSets(Accelerated(tol=1e-10), smallest=0).solve(of, watch=Watch([told.append]))
    assert told == found.history and {row["rows"] for row in told} > {200}  # parts before, and then all
    assert (np.diff([row["iteration"] for row in told]) >= 0).all()
    assert found.outcome is Outcome.SOLVED and of.kernel.largest == 200
    never = parted(of, fits=False)
    assert working_sets().solve(never).point.objective == pytest.approx(found.point.objective, rel=1e-9)


def test_single_precision_in_the_parts_does_not_show(rng):
    for fits in (True, False):
        of = random_problem(rng, 150, gamma=0.5, C=5.0, rho=100.0)
        found = working_sets(1e-10).solve(parted(of, part_dtype=np.float32, fits=fits))
        assert found.outcome is Outcome.SOLVED
        again = of.at(found.point.alpha)
        assert again.relative_gap <= 1.1e-10
        assert_allclose(found.point.product, again.product, atol=1e-11)


def test_what_is_told_is_told_in_double(rng):
    """Of a run that is broken off in a round whose look at all rows was a rough one."""
    of = random_problem(rng, 200, gamma=1.0, C=10.0, rho=100.0)
    for steps in (5, 15, 30):
        inner = Accelerated(tol=1e-9, max_iter=steps)
        point = WorkingSets(inner, smallest=0).solve(parted(of, part_dtype=np.float16, fits=False)).point
        assert point.gap == of.at(point.alpha).gap and point.objective == pytest.approx(f(of, point.alpha), rel=1e-12)


def test_begun_at_the_solution(rng):
    of = random_problem(rng, 300, gamma=0.3, C=2.0, rho=10.0)
    solution = working_sets(1e-10).solve(parted(of, fits=False))
    again = working_sets(1e-8).solve(parted(of, fits=False), solution.point.alpha)
    assert again.outcome is Outcome.SOLVED and len(again.history) == 1
    assert again.products < solution.products / 3
    near = random_problem(np.random.default_rng(), 300, gamma=0.3)  # any alpha will do
    assert working_sets(1e-8).solve(parted(of, fits=False), near.C).outcome is Outcome.SOLVED


def test_few_of_a_class(rng):
    """A class that a draw might miss."""
    X, y = two_clouds(rng, 400)
    y[:] = -1.0
    y[[7, 123]] = 1.0
    rows = first_rows(y, seed=0)
    assert {7, 123} <= set(rows.tolist()) and len(rows) < 20
    of = problem(rbf_kernel(X), y, 1.0, 1.0)
    found = working_sets(1e-9).solve(parted(of, fits=False))
    assert found.point.objective == pytest.approx(f(of, by_libsvm(of)[0]), rel=1e-8)


@pytest.mark.parametrize("fits", [True, False], ids=["all rows fit", "parts only"])
@pytest.mark.parametrize("kernel", ["rbf", "linear"])
def test_sets_grow_while_rows_ask_to_come_in(kernel, fits):
    """Three rows of a class: no more than three of the other ask at a time by the b of the gap, which hardly falls."""
    for seed in range(8):
        rng = np.random.default_rng(seed)
        X, y = two_clouds(rng, 250)
        y[:] = -1.0
        y[rng.choice(250, 3, replace=False)] = 1.0
        of = problem(pairwise_kernels(X, metric=kernel), y, 10.0, 0.1)
        found = working_sets(1e-6).solve(parted(of, fits=fits))
        assert found.outcome is Outcome.SOLVED and of.at(found.point.alpha).relative_gap <= 1e-6
        assert len(found.history) < 40


@pytest.mark.parametrize("C, tol, precision", [(0.01, 1e-4, np.float32), (0.1, 1e-6, np.float16)])
def test_a_gap_told_roughly_neither_ends_a_run_nor_stands_in_its_way(C, tol, precision):
    """A rough look may tell a smaller gap than any that is true."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        X, y = two_clouds(rng, 200)
        y = np.append([1.0, -1.0], rng.choice([-1.0, 1.0], 198))
        of = problem(pairwise_kernels(X, metric="laplacian", gamma=0.1), y, C, 0.5)
        found = working_sets(tol).solve(parted(of, part_dtype=precision, fits=False))
        assert found.outcome is Outcome.SOLVED and of.at(found.point.alpha).relative_gap <= tol


def test_limits_are_told(rng):
    of = parted(random_problem(rng, 200, gamma=1.0, C=10.0), fits=False)
    few = WorkingSets(Accelerated(tol=1e-9, max_iter=15), smallest=0).solve(of)
    assert few.outcome is Outcome.ITERATION_LIMIT and few.n_iter == 15 and few.point.relative_gap > 1e-9
    beyond = WorkingSets(Accelerated(tol=1e-18, max_iter=20_000), smallest=0).solve(of)
    assert beyond.outcome is Outcome.STALLED and 1e-18 < beyond.point.relative_gap < 1e-9


def test_rounds_are_told_and_kept(rng):
    told, kept = [], []
    of = random_problem(rng, 300, gamma=0.3, C=2.0)
    method = WorkingSets(Accelerated(tol=1e-8), smallest=0)
    found = method.solve(parted(of, fits=False), watch=Watch([told.append]), on_state=kept.append)
    assert told == found.history and len(kept) == len(told) > 1
    assert (np.diff([row["iteration"] for row in told]) >= 0).all()
    assert (np.diff([row["products"] for row in told]) > 0).all()
    assert (np.diff([row["relative_gap"] for row in told]) <= 0).all()
    assert_allclose(kept[-1].best.alpha, found.point.alpha)


@pytest.mark.parametrize("solver", [Accelerated(tol=1e-8), LevelMethod(tol=1e-6)], ids=["accelerated", "level"])
def test_steps_on_all_rows_are_kept(solver, rng, monkeypatch):
    """As often as they are told, and where the solution is told."""
    monkeypatch.setattr(svm_start, "MAX_ROWS", 0)
    told, kept = [], []
    of = random_problem(rng, 60, gamma=0.3, C=2.0)
    method = WorkingSets(solver) if isinstance(solver, Accelerated) else solver
    found = method.solve(parted(of), watch=Watch([told.append]), on_state=kept.append)
    assert told == found.history and len(kept) >= len(told) > 2
    first, last = ((state.best or state.inner.best).alpha for state in (kept[0], kept[-1]))
    assert f(of, first) > f(of, last) >= found.point.objective * (1 + 1e-12)  # negative, and summed in another order


def test_a_small_problem_is_solved_at_once(rng, monkeypatch):
    monkeypatch.setattr(svm_start, "MAX_ROWS", 0)
    of = random_problem(rng, 80, gamma=1.0)
    whole = Accelerated(tol=1e-9).solve(of)
    found = WorkingSets(Accelerated(tol=1e-9)).solve(parted(of))
    assert_allclose(found.point.alpha, whole.point.alpha, atol=0)
    assert [row["relative_gap"] for row in found.history] == [row["relative_gap"] for row in whole.history]


# -- a rounded kernel -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("plain", [False, True], ids=["accelerated", "gradient"])
def test_refinement_is_as_exact_as_the_exact_kernel(plain, rng):
    solver = Accelerated(tol=5e-11, max_iter=20_000, momentum=not plain, newton=not plain)
    of = random_problem(rng, 60, gamma=0.5, C=5.0, rho=10.0)
    rounded = problem(of.kernel.K.astype(np.float32).astype(float), of.y, of.C, of.rho)
    once = of.at(solver.solve(rounded).point.alpha)
    found = refined(solver.solve, rounded, of.kernel, 2 * solver.tol)
    assert once.relative_gap > 2 * solver.tol  # or the test would show nothing
    assert found.outcome is Outcome.SOLVED and found.point.relative_gap <= 2 * solver.tol
    assert found.point.gap == pytest.approx(of.at(found.point.alpha).gap, rel=1e-9)
    assert found.point.objective == pytest.approx(f(of, by_libsvm(of)[0]), rel=1e-8)


def test_what_refinement_cannot_mend_is_told(rng):
    """A kernel that is another altogether."""
    of = random_problem(rng, 60, gamma=0.5, C=5.0)
    found = refined(Accelerated(tol=1e-9).solve, of, Dense(rbf_kernel(rng.standard_normal((60, 3)))), 1e-9)
    assert found.outcome is Outcome.STALLED and found.point.relative_gap > 1e-9
