"""Multipliers of the pairs: E against the dense least-squares solution, its price by dense arithmetic, weights, threads, zero columns."""

import numpy as np
import pytest
from pairwise_cases import dense_targets, random_problem
from repeats import but_for

import dkl
from dkl.problems.pairwise import dual_correction as module
from dkl.problems.pairwise import low_rank as pairwise_factored
from dkl.problems.pairwise import terms
from dkl.problems.pairwise.certificate import TraceBound
from dkl.problems.pairwise.low_rank import FactoredPairwise
from dkl.problems.pairwise.terms import on_targets, target_matrix
from dkl.solvers.pairwise.descent import minimize


class Case:
    """A random problem with a factor; `W` (n, n) holds the weights, 0 off the pattern, `E` is dense."""

    def __init__(self, rng, n=12, rank=3, gamma=20.0, weights=None, steps=0):
        self.n, self.gamma = n, gamma
        self.laplacian, must, cannot = random_problem(rng, n, pairs=2 * n)
        self.T, self.W = dense_targets(n, must, cannot, np.ones(2 * n) if weights is None else weights)
        targets = target_matrix(n, must, cannot)
        self.rows, self.columns = np.repeat(np.arange(n), np.diff(targets.indptr)), targets.indices
        told = None if weights is None else self.W[self.rows, self.columns]
        self.problem = FactoredPairwise(self.laplacian, targets, gamma, weights=told)
        self.V = rng.standard_normal((n, rank)) / np.sqrt(rank)
        if steps:
            self.V = minimize(self.problem, self.problem.padded(self.V), tol=0.0, max_iter=steps).v[:, :rank]
        self.K = self.V @ self.V.T
        self.S = self.laplacian.toarray() + gamma * self.W * (self.K - self.T)

    def multipliers(self, goal):
        return module.least_squares(self.problem, self.problem.at(self.problem.padded(self.V)), goal)

    def dense(self, entries):
        E = np.zeros((self.n, self.n))
        E[self.rows, self.columns] = entries
        return E

    def least(self, goal):
        """The minimizer over one unknown for each i <= j of a weight > 0, by numpy's lstsq."""
        n, stiffness = self.n, module.STIFF / goal
        values, vectors = np.linalg.eigh(self.K)
        Q = vectors[:, values > 1e-10 * values[-1]]
        known = [(i, j) for i in range(n) for j in range(i, n) if self.W[i, j] > 0]

        def residuals(E, ridge):
            image = E @ self.V
            return np.concatenate([image.ravel(), np.sqrt(stiffness) * (Q.T @ image).ravel(), ridge.ravel()])

        columns = []
        for i, j in known:
            unit = np.zeros((n, n))
            unit[i, j] = unit[j, i] = 1.0
            columns.append(residuals(unit, np.sqrt(module.RIDGE / self.W[i, j]) * unit))
        found = np.linalg.lstsq(np.array(columns).T, -residuals(self.S, np.zeros((n, n))), rcond=None)[0]
        E = np.zeros((n, n))
        for (i, j), value in zip(known, found, strict=True):
            E[i, j] = E[j, i] = value
        return E


@pytest.fixture
def converged(monkeypatch):
    """Conjugate gradients go on to rounding."""
    monkeypatch.setattr(module, "MOST_STEPS", 5000)
    monkeypatch.setattr(module, "RELATIVE", 1e-12)


def some_weights(rng, n):
    return 10.0 ** rng.uniform(-1.5, 1.5, 2 * n)


@pytest.mark.usefixtures("converged")
@pytest.mark.parametrize("goal", but_for([1e-3], [1e-1, 1e-2, 1e-3, 1e-4]))
@pytest.mark.parametrize("is_weighted", [False, True])
@pytest.mark.parametrize("steps", [0, 15])
def test_it_is_the_least_squares_solution(rng, goal, is_weighted, steps):
    case = Case(rng, weights=some_weights(rng, 12) if is_weighted else None, steps=steps)
    E, least = case.dense(case.multipliers(goal).entries), case.least(goal)
    assert np.abs(least).max() > 1e-6
    np.testing.assert_allclose(E, least, atol=1e-6 * np.abs(least).max())


@pytest.mark.usefixtures("converged")
def test_a_pair_of_weight_0_is_none(rng):
    """Those are the pairs that a fold holds out: their entries are 0, and the others are those of the problem without them."""
    weights = np.where(rng.random(24) < 0.4, 0.0, some_weights(rng, 12))
    case = Case(rng, weights=weights, steps=30)
    found = case.multipliers(1e-2)
    E, least = case.dense(found.entries), case.least(1e-2)
    assert not E[case.W == 0].any() and (found.entries == 0).sum() >= 2 * (weights == 0).sum() > 0
    np.testing.assert_allclose(E, least, atol=1e-6 * np.abs(least).max())


@pytest.mark.parametrize("is_weighted", [False, True])
def test_its_price_by_dense_arithmetic(rng, is_weighted):
    weights = some_weights(rng, 12) * (rng.random(24) < 0.8) if is_weighted else None
    case = Case(rng, weights=weights, steps=20)
    found = case.multipliers(1e-2)
    E, off, held = case.dense(found.entries), found.off_diagonal, ~np.eye(12, dtype=bool)
    np.testing.assert_array_equal(E, E.T)
    np.testing.assert_array_equal(found.diagonal, E.diagonal())
    size = np.divide(E**2, case.W, out=np.zeros_like(E), where=case.W > 0)
    assert off.with_kernel == pytest.approx(np.sum((E * case.K)[held]), rel=1e-10)
    assert off.with_targets == pytest.approx(np.sum((E * case.T)[held]), rel=1e-10)
    assert off.size == pytest.approx(size[held].sum(), rel=1e-10)
    for share in (1.0, 0.25):
        cost = share * np.sum(E * case.K) + share**2 * size.sum() / (2 * case.gamma)
        bound = TraceBound.of(1.0, case.gamma, case.K.diagonal())
        assert found.times(share).cost(bound) == pytest.approx(cost, rel=1e-10)
        np.testing.assert_array_equal(found.times(share).entries, share * found.entries)


def test_pairs_are_told_once_by_rows_then_columns(rng):
    case = Case(rng, n=9)
    found = case.multipliers(1e-2)
    E, W = case.dense(found.entries), case.W
    wanted = [E[i, j] for i in range(9) for j in range(i + 1, 9) if W[i, j]]
    assert found.on_pairs(case.problem.targets).tolist() == wanted and len(wanted) == 18


@pytest.mark.parametrize("steps", [0, 15])
def test_the_steps_that_are_made_win_nearly_all_there_is(rng, steps):
    """As it runs, conjugate gradients end at RELATIVE: what is minimized is near its least by then."""
    case = Case(rng, steps=steps)
    E, least = case.dense(case.multipliers(1e-2).entries), case.least(1e-2)
    Q, stiffness = np.linalg.qr(case.V)[0], module.STIFF / 1e-2

    def minimized(M):
        image = (case.S + M) @ case.V
        return np.sum(image**2) + stiffness * np.sum((Q.T @ image) ** 2) + module.RIDGE * np.sum(M**2)

    before, after, best = minimized(0 * E), minimized(E), minimized(least)
    assert best * (1 - 1e-12) <= after and after - best <= 0.01 * (before - best)


@pytest.mark.parametrize("goal", [1e-2, 0.0, 5e-324])
def test_zero_columns_and_a_zero_kernel(rng, goal):
    case = Case(rng)
    with np.errstate(all="raise", under="ignore"):
        plain = case.multipliers(goal).entries
        case.V = np.hstack([case.V, np.zeros((12, 3))])
        wider = case.multipliers(goal).entries
        case.V = np.zeros((12, 2))
        none = case.multipliers(goal).entries
    assert np.isfinite(plain).all() and not none.any()
    assert wider.shape == plain.shape and np.isfinite(wider).all()
    if goal == 1e-2:
        np.testing.assert_allclose(wider, plain, atol=1e-3 * np.abs(plain).max())


@pytest.mark.usefixtures("converged")
def test_columns_that_repeat_each_other_count_as_their_kernel(rng):
    case = Case(rng, steps=20)
    plain = case.multipliers(1e-2).entries
    case.V = np.hstack([case.V, case.V]) / np.sqrt(2)
    np.testing.assert_allclose(case.multipliers(1e-2).entries, plain, atol=1e-6 * np.abs(plain).max())


def test_threads_change_no_bits(rng, monkeypatch):
    monkeypatch.setattr(pairwise_factored, "LEAST_NNZ_FOR_THREADS", 0)
    monkeypatch.setattr(terms, "LEAST_ROWS", 16)
    n = 333
    laplacian, must, cannot = random_problem(rng, n, density=0.02)
    V, found = rng.standard_normal((n, 5)), []
    for threads in (1, 2, 3):
        problem = FactoredPairwise(laplacian, target_matrix(n, must, cannot), 50.0, threads=threads)
        found.append(module.least_squares(problem, problem.at(problem.padded(V)), 1e-3))
        assert problem.rows.threads == threads and len(problem.rows.groups) > 1
        problem.close()
    for other in found[1:]:
        np.testing.assert_array_equal(other.entries, found[0].entries)
        assert other.off_diagonal == found[0].off_diagonal


def test_weights_are_taken_in_the_order_of_the_targets(rng):
    """`on_targets` puts one weight a pair where T's entry is: E of these equals the dense one's."""
    _, must, cannot = random_problem(rng, 10)
    weights = np.arange(1.0, 11.0)
    W = dense_targets(10, must, cannot, weights)[1]
    targets = target_matrix(10, must, cannot)
    told = on_targets(10, dkl.Pairs(must, cannot), weights)
    np.testing.assert_array_equal(told, W[np.repeat(np.arange(10), np.diff(targets.indptr)), targets.indices])
