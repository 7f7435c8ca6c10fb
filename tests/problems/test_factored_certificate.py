"""The certificate of a low-rank kernel where dozens of eigenvalues of S lie next to 0: duplicates, outliers, wrong pairs."""

import numpy as np
import pytest
from pairwise_cases import charged, dense_targets, hard_rows, objective, sdp_optimum
from scipy import sparse

import dkl
from dkl.blocks.graph import build_graph
from dkl.blocks.session import Session
from dkl.estimators.pairwise.fit import make_problem
from dkl.problems import factored_certificate as module
from dkl.problems.certificate import TraceBound
from dkl.problems.pairwise_factored import FactoredPairwise
from dkl.solvers.factored import minimize, solve_to_gap
from dkl.solvers.result import Outcome


def hard_problem(n, n_neighbors, gamma, seed):
    """(problem, must, cannot) of `hard_rows`."""
    X, must, cannot = hard_rows(n, seed)
    graph = build_graph(X, n_neighbors=n_neighbors, laplacian="normalized", session=Session.find(None, threads=1))
    given = make_problem(graph.laplacian, dkl.Pairs(must, cannot), gamma)
    return FactoredPairwise(given.laplacian, given.targets, gamma), must, cannot


@pytest.fixture(scope="module")
def beyond_dense():
    """A problem of 450 patterns, and a factor that is near its optimum, but not at it."""
    problem, must, cannot = hard_problem(450, 10, 100.0, 1)
    start = problem.padded(np.random.default_rng(0).standard_normal((450, 12)) / np.sqrt(12))
    return problem, must, cannot, minimize(problem, start, tol=0.0, max_iter=150).v


def by_all_eigenvectors(problem, point):
    """(gap, S, B^1/2, eigenvalues of B^-1/2 S B^-1/2), B = max(1, diag S), from dense arithmetic."""
    S = problem.gradient_matrix(point).toarray()
    root = np.sqrt(np.maximum(S.diagonal(), 1.0))
    end = module._dense_end(sparse.csr_array(S / np.outer(root, root)), root)
    bound = TraceBound.of(point.objective, problem.gamma, problem.diagonal(point))
    return max(0.5 * np.sum(point.v * point.gradient), 0.0) + module._cheapest(end, bound)[0], S, root, end.values


def test_a_block_of_ritz_vectors_proves_what_all_eigenvectors_prove(beyond_dense, monkeypatch):
    problem, _, _, v = beyond_dense
    assert problem.n > module.DENSE
    found, low = problem.certify(problem.at(v), 1e-4, 0)
    assert low.values.size < 60 and (low.values < -1e-6).sum() >= 5, "many directions at once"
    gap, S, root, values = by_all_eigenvectors(problem, problem.at(v))
    assert 0.999 * gap <= found.gap <= 1.2 * gap and (root > 1).any()
    assert low.lowest <= values[0] + 1e-12 and low.lowest == pytest.approx(values[0], rel=0.1)
    lowest = np.linalg.eigvalsh(S)[0]
    assert 1.5 * lowest <= found.min_eigenvalue <= lowest + 1e-12
    monkeypatch.setattr(module, "DENSE", problem.n)
    unscaled, _ = problem.certify(problem.at(v), 1e-4, 0)
    assert unscaled.min_eigenvalue == pytest.approx(lowest, rel=1e-9)
    assert found.gap <= 1.2 * unscaled.gap, "the scale costs nothing"


def test_ritz_vectors_turned_back_are_directions_of_the_ritz_values_curvature(beyond_dense):
    problem, _, _, v = beyond_dense
    found, low = problem.certify(problem.at(v), 1e-4, 0)
    x, S = low.directions, problem.gradient_matrix(problem.at(v))
    assert np.linalg.norm(found.direction) == pytest.approx(1.0)
    np.testing.assert_allclose(np.sum(x * (S @ x), axis=0), low.values, atol=1e-12)


def test_large_multipliers_do_not_hide_the_lower_end(monkeypatch):
    """Wrong pairs at a large gamma: S ends far beyond its lowest modes, its scaled form does not, and one pass finds them."""
    problem, _, _ = hard_problem(450, 10, 3000.0, 1)
    point = problem.at(minimize(problem, problem.padded(problem.start(16, 0)), tol=0.0, max_iter=150).v)
    gap, S, _, values = by_all_eigenvectors(problem, point)
    assert np.linalg.eigvalsh(S)[-1] > 30 > 8 * values[-1]
    monkeypatch.setattr(module, "PASSES", 1)
    found, _ = problem.certify(point, 1e-6, 0)
    assert 0.999 * gap <= found.gap <= 1.05 * gap, "four times as much of S itself"


def test_a_narrow_block_proves_what_a_loose_goal_asks(beyond_dense):
    """A certificate of few vectors holds as well: the gap is that of all eigenvectors, or more."""
    problem, _, _, v = beyond_dense
    wide, low = problem.certify(problem.at(v), 1e-2, 0)
    narrow, few = problem.certify(problem.at(v), 1e-2, 0, few=True)
    assert few.values.size == low.values.size - module.BESIDE + module.FEW_BESIDE
    assert 0.9 * wide.gap <= narrow.gap <= 1.5 * wide.gap
    _, S, _, values = by_all_eigenvectors(problem, problem.at(v))
    assert narrow.min_eigenvalue <= np.linalg.eigvalsh(S)[0]
    assert few.lowest <= values[0] <= few.values[0] <= 0.9 * values[0]


def test_a_block_that_proves_half_the_goal_is_not_compared_with_a_finished_one(beyond_dense, monkeypatch):
    problem, _, _, v = beyond_dense
    point, given, proofs = problem.at(v), module._cheapest, []
    monkeypatch.setattr(module, "_cheapest", lambda *a: proofs.append(1) or given(*a))
    tight, _ = problem.certify(point, 1e-9, 0)
    needed = len(proofs)
    loose, _ = problem.certify(point, 10 * tight.relative_gap, 0)
    assert needed >= 3 and len(proofs) == needed + 2
    assert loose.gap == pytest.approx(tight.gap, rel=0.1)


def test_what_was_found_nearby_saves_passes_and_proves_as_much(beyond_dense, monkeypatch):
    problem, _, _, v = beyond_dense
    point, given, passes = problem.at(v), module.lowest_subspaces, []

    def counted(*arguments):
        for block in given(*arguments):
            passes.append(1)
            yield block

    monkeypatch.setattr(module, "lowest_subspaces", counted)
    cold, low = problem.certify(point, 1e-4, 0)
    needed = len(passes)
    moved = problem.at(v * (1 + 1e-6 * np.random.default_rng(0).standard_normal(v.shape)))
    warm, again = problem.certify(moved, 1e-4, 0, near=low)
    assert len(passes) - needed <= needed and again.values.shape == low.values.shape
    assert warm.gap == pytest.approx(cold.gap, rel=0.1)
    lowest = np.linalg.eigvalsh(problem.gradient_matrix(moved).toarray())[0]
    assert warm.min_eigenvalue <= lowest + 1e-12


def test_its_proof_holds_by_dense_arithmetic(beyond_dense):
    problem, must, cannot, v = beyond_dense
    found, _ = problem.certify(problem.at(v), 1e-4, 0)
    target, mask = dense_targets(problem.n, must, cannot)
    laplacian, K = problem.laplacian.toarray(), v @ v.T
    S = laplacian + problem.gamma * np.where(mask, K - target, 0.0)
    value = objective(K, laplacian, target, mask, problem.gamma)
    spread = np.sqrt(2 * value / problem.gamma)
    lift, lowest = found.lift, np.linalg.eigvalsh(S + np.diag(found.lift))[0]
    trace = problem.n + np.sqrt(problem.n) * spread
    gap = max(np.sum(S * K), 0) + charged(problem.n, spread, problem.gamma, K.diagonal(), max(-lowest, 0), lift)
    assert lift.any() and (lift >= 0).all() and gap <= found.gap * (1 + 1e-9)
    assert found.gap <= 0.5 * -np.linalg.eigvalsh(S)[0] * trace, "less than the trace would be charged"


@pytest.mark.parametrize("seed", range(4))
def test_with_duplicates_the_gap_is_true_and_the_goal_is_reached(seed):
    problem, must, cannot = hard_problem(18, 4, 30.0, seed)
    found = solve_to_gap(problem, target_gap=1e-6, max_iter=2000)
    target, mask = dense_targets(18, must, cannot)
    best = sdp_optimum(problem.laplacian.toarray(), target, mask, problem.gamma)
    above = found.certificate.objective - best
    assert found.outcome is Outcome.SOLVED
    assert -1e-7 * best <= above <= found.certificate.gap + 1e-7 * best
