"""All solvers of SLKL against scikit-learn's Lasso on 30 random problems: the same optimum, the same columns."""

import numpy as np
import pytest
from column_problems import KERNELS, by_sklearn, kernel_columns, lasso_problem, objective, targets
from repeats import but_for
from sklearn.linear_model import Lasso

from dkl.linalg.rows.column_moments import add_moments, zero_moments
from dkl.problems.regression.column_gram import CenteredGram, DenseGram
from dkl.problems.regression.column_lasso import ColumnLasso
from dkl.solvers.regression import paper as slkl_paper
from dkl.solvers.regression.active_set import ActiveSet
from dkl.solvers.regression.coordinate_descent import CoordinateDescent
from dkl.solvers.watch import Outcome

TOL = 1e-9
SOLVERS = {
    "active-set": ActiveSet(tol=1e-11),
    "exact uniform": CoordinateDescent("exact", "uniform", tol=TOL, max_iter=3000),
    "exact greedy": CoordinateDescent("exact", "greedy", tol=TOL, max_iter=3000),
    "newton uniform": CoordinateDescent("newton", "uniform", tol=TOL, max_iter=3000),
    "newton greedy": CoordinateDescent("newton", "greedy", tol=TOL, max_iter=3000),
}
SHARES = (0.9, 0.3, 0.1, 0.03, 1e-2, 1e-3)
SMALL = {8: 1e-8, 10: 1e-4, 13: 1e-3, 20: 1e-5, 23: 1e-9, 28: 1e-5}
KINDS = ("plain", "plain", "duplicated", "zero", "scaled")


def case(number):
    """(C, y, share of the largest nu, kind) of one of the 30."""
    rng = np.random.default_rng(1000 + number)
    kernel, share = KERNELS[number % 5], SHARES[number % 6]
    kind = KINDS[(number // 5) % 5]
    n, M = [(80, 20), (25, 40), (60, 30)][number % 3]
    # Wide kernels have nearly dependent columns, on which scikit-learn would not get there.
    gamma = {"rbf": 0.5, "laplacian": 0.3, "polynomial": 0.5, "sigmoid": 0.3}.get(kernel, 1.0) * rng.uniform(0.7, 1.5)
    C, X = kernel_columns(rng, kernel, n, M, gamma, d=4 if kernel != "linear" else 50)
    y = targets(rng, X)
    if number in SMALL:
        share = SMALL[number]
    if kind == "duplicated":
        C[:, M // 2 :] = C[:, rng.integers(M // 2, size=M - M // 2)]
    elif kind == "zero":
        C[:, rng.choice(M, 3, replace=False)] = 0
    elif kind == "scaled":
        C *= 10.0 ** rng.uniform(-3, 3, M)
    return C, y, share, kind


def test_the_cases_are_what_they_say():
    cases = [case(number) for number in range(30)]
    for kind in KINDS:
        of_kind = [C for C, _, _, found in cases if found == kind]
        assert {C.shape[1] > C.shape[0] for C in of_kind} == {True, False}
        for C in of_kind:
            lengths = np.linalg.norm(C, axis=0)
            assert (lengths.max() > 100 * lengths[lengths > 0].min()) or kind != "scaled"
            assert (lengths == 0).sum() == (3 if kind == "zero" else 0)
            assert (len(np.unique(C, axis=1).T) < C.shape[1]) == (kind in ("duplicated", "zero"))


@pytest.fixture(
    scope="module", params=but_for({number for number in range(30) if number % 6 and number not in SMALL}, range(30))
)
def solved(request):
    """A problem and scikit-learn's answer."""
    C, y, share, kind = case(request.param)
    problem = lasso_problem(C, y, share)
    return (C, y, kind, problem, *by_sklearn(C, y, problem.kappa))


@pytest.mark.parametrize("solver", SOLVERS)
def test_optimum_and_columns_are_scikit_learns(solved, solver):
    C, y, kind, problem, oracle, value = solved
    found = SOLVERS[solver].solve(problem)
    assert found.outcome is Outcome.SOLVED
    assert objective(C, y, found.weights, problem.kappa) == pytest.approx(value, rel=1e-9)
    assert found.evaluation.objective == pytest.approx(value, rel=1e-9)
    if kind == "duplicated":
        np.testing.assert_allclose(C @ found.weights, C @ oracle, atol=1e-4 * np.abs(y).max())
    else:
        np.testing.assert_array_equal(np.flatnonzero(found.weights), np.flatnonzero(oracle))


@pytest.mark.parametrize("number", [3, 6, 12, 14, 19, 20])
def test_the_printed_algorithm_finds_scikit_learns_optimum(number):
    C, y, share, kind = case(number)
    problem = lasso_problem(C, y, share)
    stream = np.random.default_rng(number)  # it draws on: M draws may miss a column that the stopping rule then misses
    state = slkl_paper.slkl(
        C, y, problem.lam, problem.nu, tol=-1, max_iter=100, draw=lambda: stream.integers(C.shape[1])
    )
    oracle, value = by_sklearn(C, y, problem.kappa)
    w = slkl_paper.weights(C, y, problem.lam, state)
    assert objective(C, y, w, problem.kappa) == pytest.approx(value, rel=1e-9)
    assert state.objectives[-1] == pytest.approx(value, rel=1e-9)
    assert sorted(state.support) == np.flatnonzero(oracle).tolist() or kind == "duplicated"


@pytest.mark.parametrize("number", [1, 5, 11, 23])
def test_centred_sums_are_a_fit_with_intercept(number):
    C, y, share, kind = case(number)
    C, y = C + 0.3, y + 5.0
    moments = zero_moments(1, C.shape[1], 1)
    add_moments(moments, C, np.column_stack([y, np.ones(len(y))]))
    shared = CenteredGram.of(moments, intercept=True)
    nu = share * np.abs(shared.cross).max() ** 2
    problem = ColumnLasso.of(shared, 0, 1.0, nu)
    found = ActiveSet(tol=1e-11).solve(problem)
    oracle = Lasso(alpha=problem.kappa / len(y), tol=1e-12, max_iter=200_000).fit(np.asfortranarray(C), y)
    (intercept,) = shared.intercepts(found.weights[None])
    value = objective(C, y - oracle.intercept_, oracle.coef_, problem.kappa)
    assert objective(C, y - intercept, found.weights, problem.kappa) == pytest.approx(value, rel=1e-9)
    np.testing.assert_allclose(C @ found.weights + intercept, oracle.predict(C), atol=1e-5 * np.std(y))


def test_warm_starts_end_where_cold_ones_do(rng):
    C, X = kernel_columns(rng, "rbf", 80, 40, 0.4)
    y = targets(rng, X)
    other = lasso_problem(C, y, 0.05)
    problem = lasso_problem(C, y, 1e-3)
    start = ActiveSet().solve(other).weights
    value = by_sklearn(C, y, problem.kappa)[1]
    wrong = rng.standard_normal(40) * 10
    for solver in SOLVERS.values():
        for begin in (start, -start, wrong, None):
            given = None if begin is None else begin.copy()
            found = solver.solve(problem, given)
            assert found.outcome is Outcome.SOLVED
            assert objective(C, y, found.weights, problem.kappa) == pytest.approx(value, rel=1e-9)
            assert begin is None or np.array_equal(given, begin), "the start was written to"


@pytest.mark.parametrize(("kernel", "gamma"), [("rbf", 0.03), ("polynomial", 0.1), ("linear", None)])
def test_sums_of_single_precision_columns_take_no_more_steps(rng, kernel, gamma):
    """Their Gram matrix has negative eigenvalues of rounding; the optimum is that of exact sums, to single precision."""
    C, X = kernel_columns(rng, kernel, 60, 58, gamma, d=4)
    y, rounded = targets(rng, X), C.astype(np.float32)
    problem = lasso_problem(C, y, 1e-4)
    cross = (rounded.T @ y.astype(np.float32)).astype(float)
    single = ColumnLasso(
        type(problem.gram)((rounded.T @ rounded).astype(float)), cross, problem.square, 1.0, problem.nu
    )
    assert np.linalg.eigvalsh(single.gram.matrix)[0] < -1e-7
    found, exact = ActiveSet().solve(single), ActiveSet().solve(problem)
    assert found.outcome is Outcome.SOLVED
    assert found.n_iter <= 3 * exact.n_iter
    assert objective(C, y, found.weights, problem.kappa) == pytest.approx(exact.evaluation.objective, rel=1e-3)


@pytest.mark.parametrize("sampling", ["uniform", "greedy"])
@pytest.mark.parametrize("stopping", ["gap", "paper"])
@pytest.mark.parametrize("scale", [0.0, 1.0], ids=["targets of 0", "targets"])
def test_a_nu_at_which_all_weights_are_zero_ends_at_once(sampling, stopping, scale):
    C, y, _, _ = case(0)
    nu = 2.0 * float(np.abs(C.T @ y).max()) ** 2
    problem = ColumnLasso(DenseGram(C.T @ C), scale * (C.T @ y), scale * float(y @ y), 1.0, nu)
    found = CoordinateDescent("exact", sampling, stopping=stopping).solve(problem)
    assert found.outcome is Outcome.SOLVED and not found.weights.any()
