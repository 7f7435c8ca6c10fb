"""The certificate of a low-rank kernel where dozens of eigenvalues of S lie next to 0: duplicates, outliers, wrong pairs."""

from types import SimpleNamespace

import numpy as np
import pytest
from pairwise_cases import dense_targets, hard_rows, recomputed_gap, sdp_optimum
from scipy import sparse

import dkl
from dkl.blocks.graph.neighbor_graph import build_graph
from dkl.blocks.session import Session
from dkl.estimators.pairwise.fit import make_problem
from dkl.linalg.rows.shared_rows import SharedRows
from dkl.problems.pairwise import low_rank_certificate as module
from dkl.problems.pairwise.certificate import OffDiagonal, TraceBound
from dkl.problems.pairwise.dual_correction import Multipliers
from dkl.problems.pairwise.low_rank import FactoredPairwise
from dkl.solvers.pairwise.descent import minimize
from dkl.solvers.pairwise.low_rank import solve_to_gap
from dkl.solvers.watch import Outcome


def hard_problem(n, n_neighbors, gamma, seed):
    """(problem, must, cannot) of `hard_rows`."""
    X, must, cannot = hard_rows(n, seed)
    graph = build_graph(
        X, n_neighbors=n_neighbors, laplacian="normalized", session=Session.find(None, threads=1), warns_of_cuts=False
    )
    given = make_problem(graph.laplacian, dkl.Pairs(must, cannot), gamma)
    return FactoredPairwise(given.laplacian, given.targets, gamma), must, cannot


@pytest.fixture(scope="module")
def beyond_dense():
    """A problem of 450 patterns, and a factor that is near its optimum, but not at it."""
    problem, must, cannot = hard_problem(450, 10, 100.0, 1)
    start = problem.padded(np.random.default_rng(0).standard_normal((450, 12)) / np.sqrt(12))
    return problem, must, cannot, minimize(problem, start, tol=0.0, max_iter=150).v


def recomputed(problem, must, cannot, v, found):
    """(gap, S + M) by dense arithmetic."""
    target, mask = dense_targets(problem.n, must, cannot)
    return recomputed_gap(found, v, problem.laplacian.toarray(), target, mask.astype(float), problem.gamma)


def moved(problem, point, goal):
    """S + E, dense: E as `certify` takes it for this goal."""
    bound = TraceBound.of(point.objective, problem.gamma, problem.diagonal(point))
    entries = module._affordable(problem.multipliers(point, goal), bound, 0.1 * goal * bound.scale).entries
    E = sparse.csr_array((entries, problem.targets.indices, problem.targets.indptr), shape=problem.targets.shape)
    return (problem.gradient_matrix(point) + E).toarray()


def scaled(S):
    """(B^-1/2 S B^-1/2, B^1/2), B = max(1, diag S)."""
    root = np.sqrt(np.maximum(S.diagonal(), 1.0))
    return S / np.outer(root, root), root


@pytest.mark.parametrize("goal", [1e-2, 1e-4, 1e-7])
def test_a_block_of_ritz_vectors_proves_what_all_eigenvectors_prove(beyond_dense, monkeypatch, goal):
    problem, _, _, v = beyond_dense
    assert problem.n > module.DENSE
    found, low = problem.certify(problem.at(v), goal, 0)
    assert low.values.size < 60 and (low.values < -1e-6).sum() >= 2, "many directions at once"
    A, root = scaled(moved(problem, problem.at(v), goal))
    assert (root > 1).any() and low.values[0] == pytest.approx(np.linalg.eigvalsh(A)[0], rel=0.1)
    monkeypatch.setattr(module, "DENSE", problem.n)
    whole, _ = problem.certify(problem.at(v), goal, 0)
    assert found.gap <= 1.2 * max(whole.gap, goal * found.objective / 2), "neither the scale nor the filter costs much"


@pytest.mark.parametrize("few", [False, True])
@pytest.mark.parametrize("goal", [1e-1, 1e-4, 1e-9])
def test_its_proof_holds_by_dense_arithmetic(beyond_dense, goal, few):
    """S + M is psd, and what M costs is the gap: no shift is left for lambda_min."""
    problem, must, cannot, v = beyond_dense
    for last in (False, True):
        found, low = problem.certify(problem.at(v), goal, 0, few=few, last=last)
        gap, lifted = recomputed(problem, must, cannot, v, found)
        assert found.min_eigenvalue <= np.linalg.eigvalsh(lifted)[0] and -1e-9 < found.min_eigenvalue <= 0
        assert gap == pytest.approx(found.gap, rel=1e-6)
        S = problem.gradient_matrix(problem.at(v)).toarray()
        trace = problem.n + np.sqrt(2 * problem.n * found.objective / problem.gamma)
        assert found.gap <= 0.5 * -np.linalg.eigvalsh(S)[0] * trace, "less than the trace would be charged"
        assert low.values.size == problem.padded(v[:, :12]).shape[1] - 4 + (module.FEW_BESIDE if few else module.BESIDE)


def test_multipliers_on_the_pairs_prove_several_times_as_much(beyond_dense, monkeypatch):
    """Against the same proof with E = 0."""
    problem, _, _, _ = beyond_dense
    point = problem.at(problem.padded(solve_to_gap(problem, target_gap=1e-2).factor))
    found, _ = problem.certify(point, 1e-2, 0)
    given = problem.multipliers
    monkeypatch.setattr(problem, "multipliers", lambda *a: given(*a).times(0.0))
    plain, _ = problem.certify(point, 1e-2, 0)
    assert found.pair_lift.any() and not plain.pair_lift.any()
    assert found.gap < 0.3 * plain.gap


def test_ritz_vectors_turned_back_are_directions_of_the_ritz_values_curvature(beyond_dense):
    problem, _, _, v = beyond_dense
    found, low = problem.certify(problem.at(v), 1e-4, 0)
    x, S = low.directions, moved(problem, problem.at(v), 1e-4)
    assert np.linalg.norm(found.direction) == pytest.approx(1.0)
    np.testing.assert_allclose(np.sum(x * (S @ x), axis=0), low.values, atol=1e-12)


def test_large_multipliers_do_not_hide_the_lower_end(monkeypatch):
    """Wrong pairs at a large gamma: S ends far beyond its lowest modes, its scaled form does not, and two passes find them."""
    problem, must, cannot = hard_problem(450, 10, 3000.0, 1)
    point = problem.at(minimize(problem, problem.padded(problem.start(16, 0)), tol=0.0, max_iter=400).v)
    S = moved(problem, point, 1e-6)
    A, _ = scaled(S)
    assert np.linalg.eigvalsh(S)[-1] > 30 > 8 * np.linalg.eigvalsh(A)[-1]
    monkeypatch.setattr(module, "PASSES", 2)
    found, low = problem.certify(point, 1e-6, 0, last=True)
    assert low.values[0] == pytest.approx(np.linalg.eigvalsh(A)[0], rel=0.01)
    monkeypatch.setattr(module, "DENSE", problem.n)
    whole, _ = problem.certify(point, 1e-6, 0, last=True)
    assert found.gap <= 1.2 * whole.gap
    assert recomputed(problem, must, cannot, point.v, found)[0] == pytest.approx(found.gap, rel=1e-6)


def test_a_goal_that_is_out_of_reach_is_left_after_two_passes(beyond_dense, monkeypatch):
    """And no bound on the rest of the spectrum is sought for what proves nothing."""
    problem, _, _, v = beyond_dense
    given, bounds = module.lowest_outside, []
    monkeypatch.setattr(module, "lowest_outside", lambda *a: bounds.append(1) or given(*a))
    monkeypatch.setattr(module, "PASSES", module.HOPELESS)
    found, _ = problem.certify(problem.at(v), 1e-9, 0)
    assert found.relative_gap > 1e-9 and len(bounds) <= 2


def test_what_was_found_nearby_saves_passes_and_proves_as_much(beyond_dense, monkeypatch):
    problem, must, cannot, v = beyond_dense
    point, given, passes = problem.at(v), module.lowest_subspaces, []

    def counted(*arguments):
        for block in given(*arguments):
            passes.append(1)
            yield block

    monkeypatch.setattr(module, "lowest_subspaces", counted)
    cold, low = problem.certify(point, 1e-4, 0)
    needed = len(passes)
    again_at = problem.at(v * (1 + 1e-6 * np.random.default_rng(0).standard_normal(v.shape)))
    warm, again = problem.certify(again_at, 1e-4, 0, near=low)
    assert len(passes) - needed <= needed and again.values.shape == low.values.shape
    assert warm.gap == pytest.approx(cold.gap, rel=0.1)
    assert recomputed(problem, must, cannot, again_at.v, warm)[0] == pytest.approx(warm.gap, rel=1e-6)


@pytest.mark.parametrize(("lifts", "least", "most"), [(1, 3e-3, 1e-2), (module.LIFTS, 4.5e-4, 1e-3)])
def test_modes_that_a_block_has_no_room_for_are_lifted_by_the_next(monkeypatch, lifts, least, most):
    """30 of 600 patterns that are coupled to none, with a curvature of -1e-3 to -2e-3 each, and blocks of 18: lifting them all costs 4.5e-4
    of the objective, a shift by the deepest that is left ten times as much."""
    n, wells = 600, np.arange(5, 590, 20)
    S = (np.eye(n) - 0.4 * np.eye(n, k=1) - 0.4 * np.eye(n, k=-1)).astype(float)
    S[wells], S[:, wells] = 0.0, 0.0
    S[wells, wells] = -np.random.default_rng(1).permutation(np.linspace(1e-3, 2e-3, wells.size))
    nothing = Multipliers(np.zeros(n), np.zeros(n), OffDiagonal())
    problem = SimpleNamespace(
        n=n,
        gamma=10.0,
        targets=sparse.eye_array(n, format="csr"),
        rows=SharedRows.alone(n),
        halo=None,
        diagonal=lambda _: np.ones(n),
        gradient_matrix=lambda _: sparse.csr_array(S),
        multipliers=lambda *_: nothing,
    )
    v = np.column_stack([np.ones(n), np.arange(n) % 2, np.zeros((n, 2))])
    point = SimpleNamespace(objective=100.0, v=v, gradient=np.zeros_like(v))
    monkeypatch.setattr(module, "LIFTS", lifts)
    found, low = module.certified(problem, point, 2e-3, 0, few=True)
    assert low.values.size == 18 and (low.values < 0).all()
    assert least < found.relative_gap < most
    assert np.linalg.eigvalsh(S + np.diag(found.lift))[0] >= -1e-12
    spread = np.sqrt(2 * point.objective / problem.gamma)
    by_trace = found.lift.sum() + np.linalg.norm(found.lift) * spread
    by_kernel = found.lift.sum() + found.lift @ found.lift / (2 * problem.gamma)
    assert found.gap == pytest.approx(min(by_trace, by_kernel), rel=1e-9)


@pytest.mark.parametrize("seed", range(4))
def test_with_duplicates_the_gap_is_true_and_the_goal_is_reached(seed):
    problem, must, cannot = hard_problem(18, 4, 30.0, seed)
    found = solve_to_gap(problem, target_gap=1e-6, max_iter=2000)
    target, mask = dense_targets(18, must, cannot)
    best = sdp_optimum(problem.laplacian.toarray(), target, mask, problem.gamma)
    above = found.certificate.objective - best
    assert found.outcome is Outcome.SOLVED
    assert -1e-7 * best <= above <= found.certificate.gap + 1e-7 * best
