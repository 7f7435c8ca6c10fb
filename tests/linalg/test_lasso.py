"""Steps along one weight of the kernel, and what is kept of K, against dense inverses."""

from itertools import islice

import numpy as np
import pytest
from column_problems import by_sklearn, kernel_columns, kernel_form, lasso_problem, targets
from scipy.optimize import minimize_scalar

from dkl.linalg.lasso import EXACT, NEWTON, best_coordinate, new_weight
from dkl.problems.regression.column_gram import StoredGram
from dkl.problems.regression.column_lasso import ColumnLasso
from dkl.solvers.regression import coordinate_descent
from dkl.solvers.regression import paper as slkl_paper
from dkl.solvers.regression.coordinate_descent import CoordinateDescent

LAM = 0.7


def moved(mu, m, value):
    new = mu.copy()
    new[m] = value
    return new


def dense(C, y, mu, lam=LAM):
    """a, q and K^-1 by their definitions."""
    inverse = np.linalg.inv(lam * np.eye(len(y)) + (C * mu) @ C.T)
    return C.T @ inverse @ y, np.einsum("nm,nk,km->m", C, inverse, C), inverse


@pytest.fixture
def setting(rng):
    """(C, y, mu, nu): 12 columns, half of them with a weight."""
    C, X = kernel_columns(rng, "rbf", 30, 12, 0.3)
    y = targets(rng, X)
    mu = np.where(rng.random(12) < 0.5, rng.uniform(0.05, 2.0, 12), 0.0)
    return C, y, mu, 0.02 * np.abs(C.T @ y).max() ** 2 / LAM


def test_exact_step_minimises_the_objective_along_its_coordinate(setting):
    C, y, mu, nu = setting
    a, q, _ = dense(C, y, mu)
    news = [new_weight(a[m], q[m], mu[m], LAM, nu, EXACT) for m in range(12)]
    assert min(news) == 0 < max(news)
    for m, new in enumerate(news):

        def along(value, m=m):
            return kernel_form(C, y, moved(mu, m, value), LAM, nu)

        best = minimize_scalar(along, bounds=(0, 100), method="bounded", options={"xatol": 1e-10})
        assert along(new) <= min(best.fun, along(0.0)) + 1e-12 * best.fun
        assert new == pytest.approx(best.x, abs=2e-4)


def test_newton_step_is_19_with_the_slopes_of_the_objective(setting):
    C, y, mu, nu = setting
    a, q, _ = dense(C, y, mu)
    for m in range(12):
        at, h = mu[m] + 0.3, 1e-3  # a difference on both sides of mu_m = 0 would leave the domain
        a_m, q_m, _ = dense(C, y, moved(mu, m, at))
        values = [kernel_form(C, y, moved(mu, m, at + k * h), LAM, nu) for k in (-2, -1, 0, 1, 2)]
        slope = np.dot(values, [1, -8, 0, 8, -1]) / (12 * h)
        curvature = np.dot(values, [-1, 16, -30, 16, -1]) / (12 * h**2)
        assert slope == pytest.approx(nu - LAM * a_m[m] ** 2, rel=1e-5, abs=1e-6 * nu)  # (20), p = 1
        assert curvature == pytest.approx(2 * LAM * a_m[m] ** 2 * q_m[m], rel=1e-4)  # (21), p = 2
        new = new_weight(a_m[m], q_m[m], at, LAM, nu, NEWTON)
        assert new == pytest.approx(max(0.0, at - slope / curvature), rel=1e-3, abs=1e-6)


@pytest.mark.parametrize("rule", [EXACT, NEWTON])
def test_columns_of_zeros_and_columns_that_tell_nothing_get_no_weight(rule):
    assert new_weight(0.0, 0.0, 0.4, LAM, 1.0, rule) == 0
    assert new_weight(0.0, 0.5, 0.4, LAM, 1.0, rule) == 0


@pytest.mark.parametrize("rule", [EXACT, NEWTON])
def test_best_coordinate_lowers_the_objective_most_and_by_what_it_says(setting, rule):
    C, y, mu, nu = setting
    a, q, _ = dense(C, y, mu)
    before = kernel_form(C, y, mu, LAM, nu)
    after = [kernel_form(C, y, moved(mu, m, new_weight(a[m], q[m], mu[m], LAM, nu, rule)), LAM, nu) for m in range(12)]
    best, gain = best_coordinate(a, q, mu, np.ones(12, bool), LAM, nu, rule)
    assert best == np.argmin(after)
    assert gain == pytest.approx(before - min(after), rel=1e-9)
    others = np.arange(12) != best
    second, _ = best_coordinate(a, q, mu, others, LAM, nu, rule)
    assert second == np.flatnonzero(others)[np.argmin(np.array(after)[others])]


def test_nothing_is_best_at_the_optimum(setting):
    C, y, _, nu = setting
    problem = ColumnLasso(lasso_problem(C, y, 0.5).gram, C.T @ y, float(y @ y), LAM, nu)
    w, _ = by_sklearn(C, y, problem.kappa, tol=1e-13)
    mu = np.sqrt(LAM / nu) * np.abs(w)
    a, q, _ = dense(C, y, mu)
    _, gain = best_coordinate(a, q, mu, np.ones(12, bool), LAM, nu, EXACT)
    assert gain <= 1e-12 * float(y @ y)


def test_an_exact_step_never_raises_the_objective_and_a_newton_step_down_may(rng):
    """Theorem 1 (a) of the paper bounds F by a quadratic, which F''' <= 0 allows upwards alone."""
    raised = 0
    for _ in range(200):
        C = rng.standard_normal((6, 3))
        y, mu, nu = C @ rng.standard_normal(3), rng.uniform(0, 5, 3), rng.uniform(0.01, 3)
        a, q, _ = dense(C, y, mu)
        before = kernel_form(C, y, mu, LAM, nu)
        for rule in (EXACT, NEWTON):
            new = new_weight(a[0], q[0], mu[0], LAM, nu, rule)
            rise = kernel_form(C, y, moved(mu, 0, new), LAM, nu) - before
            if rule == EXACT or new >= mu[0]:
                assert rise <= 1e-12 * before
            else:
                raised += rise > 1e-3 * before
    assert raised


def assert_by_definition(state, C, y, lam):
    a, q, _ = dense(C, y, state.mu, lam)
    np.testing.assert_allclose(state.a, a, rtol=1e-8, atol=1e-8 * np.abs(a).max())
    np.testing.assert_allclose(state.q, q, rtol=1e-8, atol=1e-8 * np.abs(q).max())
    support = state.support[: state.size]
    assert sorted(support) == np.flatnonzero(state.mu).tolist()
    assert all(state.position[m] == k for k, m in enumerate(support))
    assert (state.position[state.mu == 0] == -1).all()
    G = np.linalg.inv(np.diag(1 / state.mu[support]) + C[:, support].T @ C[:, support] / lam)
    np.testing.assert_allclose(state.G[: state.size, : state.size], G, atol=1e-8 * np.abs(G).max())


def by_updates_alone(problem):
    """A state that cannot be computed anew, which would hide errors of the updates."""

    def refresh():
        raise AssertionError("the state was not kept up to date")

    state = coordinate_descent._State(problem, None)
    state.refresh = refresh
    return state


class CountedRows:
    """Rows of B, and which of them were read."""

    def __init__(self, matrix):
        self.matrix, self.read = matrix, []

    def __getitem__(self, rows):
        self.read.append(rows.start)
        return self.matrix[rows]


@pytest.mark.parametrize("rule", [EXACT, NEWTON])
@pytest.mark.parametrize("stored", [False, True])
def test_many_moves_keep_what_is_known_of_the_kernel(rng, rule, stored, monkeypatch):
    monkeypatch.setattr(coordinate_descent, "REFRESH", 10**9)
    C, X = kernel_columns(rng, "laplacian", 90, 70, 0.5)
    y = targets(rng, X)
    problem = lasso_problem(C, y, 1e-3, LAM)
    rows = CountedRows(C.T @ C)
    if stored:
        gram = StoredGram(rows, np.diag(rows.matrix).copy())
        problem = ColumnLasso(gram, problem.cross, problem.square, LAM, problem.nu)
    state = by_updates_alone(problem)
    first_room, sizes, left = len(state.G), [], 0
    for _ in range(60):
        before = state.mu > 0
        state.take(rng.integers(70, size=20), rule)
        sizes.append(state.size)
        left += int((before & (state.mu == 0)).sum())
    assert max(sizes) > first_room < len(state.G) and left > 10  # G grew; weights came and went
    assert_by_definition(state, C, y, LAM)
    if stored:
        assert len(set(rows.read)) == len(rows.read) <= 70
        assert set(np.flatnonzero(state.mu)) <= set(rows.read)


def test_a_state_from_weights_is_by_definition(setting):
    C, y, mu, nu = setting
    problem = ColumnLasso(lasso_problem(C, y, 0.5).gram, C.T @ y, float(y @ y), LAM, nu)
    state = coordinate_descent._State(problem, None)
    state.mu = mu.copy()
    state.refresh()
    assert_by_definition(state, C, y, LAM)
    assert state.objective == pytest.approx(kernel_form(C, y, mu, LAM, nu), rel=1e-12)


def paper_and_ours(C, y, lam, nu, order, each):
    """Runs Algorithm 2 as printed and our Newton steps along the same coordinates; each(printed, ours) after a step."""
    problem = ColumnLasso(lasso_problem(C, y, 0.5).gram, C.T @ y, float(y @ y), lam, nu)
    ours = by_updates_alone(problem)
    left, state = iter(order), slkl_paper.PaperState.zero(C.shape[1])
    for printed in islice(slkl_paper.steps(C, y, lam, nu, state, lambda: next(left)), len(order)):
        ours.take(order[printed.n_iter - 1 : printed.n_iter], NEWTON)
        each(printed, ours)
    left = iter(order)
    whole = slkl_paper.slkl(C, y, lam, nu, tol=-1, max_iter=len(order) // C.shape[1], draw=lambda: next(left))
    assert np.array_equal(whole.mu, state.mu) and whole.n_iter == state.n_iter == len(order)
    return whole


def test_printed_algorithm_and_newton_steps_agree_at_every_step(rng):
    C, X = kernel_columns(rng, "rbf", 40, 15, 0.5)
    y = targets(rng, X)
    nu = 1e-3 * np.abs(C.T @ y).max() ** 2 / LAM
    sizes = []

    def each(printed, ours):
        np.testing.assert_allclose(ours.mu, printed.mu, rtol=1e-8, atol=1e-8)
        S = printed.support
        by_23 = np.linalg.inv(np.diag(1 / printed.mu[S]) + C[:, S].T @ C[:, S] / LAM)
        np.testing.assert_allclose(printed.G, by_23, rtol=1e-8, atol=1e-10)
        sizes.append(len(S))

    order = rng.integers(15, size=300)
    state = paper_and_ours(C, y, LAM, nu, order, each)
    assert any(b < a for a, b in zip(sizes, sizes[1:], strict=False)), "no weight ever left"
    assert len(state.objectives) == 21 and (np.diff(state.objectives) <= 1e-12 * state.objectives[0]).all()
    assert state.objectives[-1] == pytest.approx(kernel_form(C, y, state.mu, LAM, nu), rel=1e-10)


@pytest.mark.parametrize("sampling", ["uniform", "greedy"])
def test_exact_descent_is_monotone(rng, sampling):
    C, X = kernel_columns(rng, "rbf", 40, 25, 0.5)
    y = targets(rng, X)
    problem = lasso_problem(C, y, 1e-4)
    values = []
    for passes in range(1, 15):
        w = CoordinateDescent("exact", sampling, tol=0.0, max_iter=passes).solve(problem).weights
        a = (problem.cross - problem.gram.matrix @ w) / problem.lam
        mu = np.divide(w, a, out=np.zeros_like(w), where=w != 0)
        values.append(kernel_form(C, y, mu, problem.lam, problem.nu))
    assert values[-1] < values[0]
    assert (np.diff(values) <= 1e-10 * values[0]).all()


def test_a_state_that_drifted_is_computed_anew(rng):
    """A wrong G or q is seen at the next move, before it is used."""
    C, X = kernel_columns(rng, "rbf", 40, 20, 0.5)
    y = targets(rng, X)
    problem = lasso_problem(C, y, 1e-3, LAM)
    for spoil in ("G", "q"):
        state = coordinate_descent._State(problem, None)
        state.take(np.arange(20), EXACT)
        part = getattr(state, spoil)
        part *= 1.01
        state.take(np.tile(np.arange(20), 2), EXACT)
        assert_by_definition(state, C, y, LAM)
