"""The proof by multipliers and a lift: S + M psd by dense eigenvalues, the gap by dense arithmetic, and never below the true one."""

import numpy as np
import pytest
from pairwise_cases import dense_targets, hard_rows, lifted_by, objective, random_problem, sdp_optimum
from repeats import but_for
from scipy import sparse

import dkl
from dkl.blocks.graph.neighbor_graph import build_graph
from dkl.blocks.session import Session
from dkl.linalg.eigen.extreme_eigenvalues import DENSE
from dkl.linalg.rows.shared_rows import SharedRows
from dkl.problems.pairwise import dual_correction as module
from dkl.problems.pairwise import low_rank_certificate
from dkl.problems.pairwise.certificate import TraceBound
from dkl.problems.pairwise.low_rank import FactoredPairwise
from dkl.problems.pairwise.terms import on_targets, target_matrix
from dkl.solvers.pairwise.descent import minimize
from dkl.solvers.pairwise.low_rank import solve_to_gap

EPS = np.finfo(float).eps


def pattern_of(targets):
    """1 on T's pattern (n, n), pairs of weight 0 and cannot-links included."""
    return sparse.csr_array((np.ones(targets.nnz), targets.indices, targets.indptr), shape=targets.shape).toarray()


def bounds(M, K, T, W, S, value, gamma):
    """Both formulas for the gap, from M (n, n) alone: (by the distance to the targets, by duality)."""
    size = np.sum(np.divide(M**2, W, out=np.zeros_like(M), where=W > 0))
    inner = max(np.sum(S * K), 0.0)
    return inner + np.sum(M * T) + np.sqrt(size * 2 * value / gamma), inner + np.sum(M * K) + size / (2 * gamma)


def checked(found, problem, V, T, W):
    """(gap by dense arithmetic, f(V V')) of a certificate, whose M is feasible and of whose numbers each is right."""
    n, gamma, K, laplacian = len(V), problem.gamma, V @ V.T, problem.laplacian.toarray()
    S, M = laplacian + gamma * W * (K - T), lifted_by(found, pattern_of(problem.targets))
    value = objective(K, laplacian, T, W, gamma)
    assert not M[W == 0].any(), "only what has a weight"
    norm = np.abs(S + M).sum(axis=1).max()
    least = np.linalg.eigvalsh(S + M)[0]
    assert least >= -20 * np.sqrt(n) * EPS * norm, "S + M is psd, to the rounding of a dense eigenvalue"
    assert found.min_eigenvalue <= least + n * EPS * norm
    assert found.objective == pytest.approx(value, rel=1e-10)
    # Sums of this many terms of these sizes are off by less.
    rounding = 100 * EPS * (np.sum(np.abs(S * K)) + np.sum(np.abs(M * K)) + np.sum(np.abs(M * T)) + gamma * n)
    gap = min(bounds(M, K, T, W, S, value, gamma))
    assert found.gap == pytest.approx(gap, rel=1e-9, abs=rounding)
    return gap, value


class Case:
    """A random problem, its conic optimum, and factors near it and far from it."""

    def __init__(self, seed, gamma, goal, is_weighted):
        rng = np.random.default_rng([seed, int(1e3 * gamma)])
        n = int(rng.integers(5, 41 if seed else 11))
        laplacian, must, cannot = random_problem(rng, n)
        weights = 10.0 ** rng.uniform(-1, 1, n) if is_weighted else np.ones(len(must) + len(cannot))
        weights = weights[: len(must) + len(cannot)]
        self.T, self.W = dense_targets(n, must, cannot, weights)
        told = on_targets(n, dkl.Pairs(must, cannot), weights) if is_weighted else None
        self.problem = FactoredPairwise(laplacian, target_matrix(n, must, cannot), gamma, weights=told)
        self.best = sdp_optimum(laplacian.toarray(), self.T, self.W, gamma)
        self.size = max(abs(self.best), 0.5 * gamma * np.sum(self.W * self.T**2))
        start = self.problem.padded(rng.standard_normal((n, int(rng.integers(1, 7)))) / 2)
        self.factors = {f"{k} steps": self.descended(start, k) for k in (3, 30, 300)}
        self.factors["finished"] = self.problem.padded(
            solve_to_gap(self.problem, target_gap=goal, max_iter=500, max_rounds=6).factor
        )
        self.factors |= {
            "random": start,
            "zero": 0 * start,
            "large": 30 * start,
            "identity": self.problem.padded(np.eye(n)),
            "full": self.problem.padded(0.3 * rng.standard_normal((n, n)) / np.sqrt(n)),
        }

    def descended(self, start, steps):
        return minimize(self.problem, start.copy(), tol=0.0, max_iter=steps).v.copy()


GAMMAS, GOALS = [1e-2, 1.0, 100.0, 1e4], [1e-2, 1e-4, 1e-6, 1e-9]
SEEDS = range(6)
CASES = [
    (seed, gamma, goal, is_weighted)
    for seed in SEEDS
    for k, gamma in enumerate(GAMMAS)
    for goal, is_weighted in [(GOALS[(k - seed) % 4], (k + seed // 2) % 2 == 1)]
]


@pytest.mark.parametrize(("seed", "gamma", "goal", "is_weighted"), but_for([c for c in CASES if c[0] > 0], CASES))
def test_the_bound_is_proven_and_never_below_the_true_gap(seed, gamma, goal, is_weighted):
    case = Case(seed, gamma, goal, is_weighted)
    for name, V in case.factors.items():
        for ways in ({}, {"last": True}, {"few": True}):
            found, _ = case.problem.certify(case.problem.at(V), goal, 0, **ways)
            gap, value = checked(found, case.problem, V, case.T, case.W)
            # clarabel's optimum is good to 1e-8 or so of the largest terms in it
            assert value - case.best <= min(gap, found.gap) + 1e-7 * case.size, (name, ways)


def hard_problem(n, gamma, seed):
    """(problem, T, W) of `hard_rows`, with weights."""
    X, must, cannot = hard_rows(n, seed)
    graph = build_graph(
        X, n_neighbors=10, laplacian="normalized", session=Session.find(None, threads=1), warns_of_cuts=False
    )
    weights = 10.0 ** np.random.default_rng(seed).uniform(-0.5, 0.5, n)
    told = on_targets(n, dkl.Pairs(must, cannot), weights)
    problem = FactoredPairwise(graph.laplacian, target_matrix(n, must, cannot), gamma, weights=told)
    return problem, *dense_targets(n, must, cannot, weights)


@pytest.fixture(scope="module", params=but_for([450], [100, 450]))
def beyond_dense(request):
    """A hard problem at gamma 1,000, so that B != 1, and proofs by a filter; what is known of the optimum, and factors on the way."""
    n = request.param
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(low_rank_certificate, "DENSE", min(DENSE, n - 1))
        problem, T, W = hard_problem(n, 1000.0, 2)
        start = problem.padded(problem.start(16, 0))
        on_the_way = [minimize(problem, start.copy(), tol=0.0, max_iter=k).v.copy() for k in (5, 60, 200)]
        yield problem, T, W, on_the_way, solve_to_gap(problem, target_gap=1e-8, max_iter=3000)


@pytest.mark.parametrize("goal", but_for([1e-2, 1e-6], GOALS))
@pytest.mark.parametrize("ways", [{}, {"last": True}, {"few": True}], ids=["plain", "last", "few"])
def test_beyond_dense_it_is_proven_and_never_below_the_true_gap(beyond_dense, goal, ways):
    problem, T, W, on_the_way, solved = beyond_dense
    assert problem.n > low_rank_certificate.DENSE and solved.certificate.relative_gap <= 1e-8
    for V in [*on_the_way, problem.padded(solved.factor)]:
        found, _ = problem.certify(problem.at(V), goal, 0, **ways)
        gap, value = checked(found, problem, V, T, W)
        # f of the solved one is at least the optimum: what lies between them is in the gap.
        assert value - solved.certificate.objective <= min(gap, found.gap) + 1e-12 * value
        assert (problem.gradient_matrix(problem.at(V)).diagonal() > 1).any(), "B is not 1"


def test_the_gap_of_a_tight_solve_agrees_with_the_dense_gap(beyond_dense):
    problem, T, W, _, solved = beyond_dense
    gap, value = checked(solved.certificate, problem, solved.factor, T, W)
    assert gap <= 1e-8 * value * (1 + 1e-6)


@pytest.mark.parametrize(("seed", "gamma", "goal"), [(2, 1000.0, 1e-2), (3, 100.0, 1e-4)])
def test_multipliers_on_the_pairs_prove_what_a_diagonal_cannot(monkeypatch, seed, gamma, goal):
    """Dozens of duplicates and wrong pairs: without the pairs' part the gap is more than four times as large, at K of the best scale."""
    monkeypatch.setattr(low_rank_certificate, "DENSE", 99)
    afforded = low_rank_certificate.AFFORDED
    problem, T, W = hard_problem(100, gamma, seed)
    for steps in (100, 150, 200, 250, 300, 400):
        point = problem.at(minimize(problem, problem.padded(problem.start(16, 0)), tol=0.0, max_iter=steps).v)
        problem.rescale(point, problem.optimal_scale(point))
        V = point.v
        monkeypatch.setattr(low_rank_certificate, "AFFORDED", afforded)
        found, _ = problem.certify(point, goal, 0, last=True)
        monkeypatch.setattr(low_rank_certificate, "AFFORDED", -np.inf)
        plain, _ = problem.certify(point, goal, 0, last=True)
        assert found.pair_lift.any() and not plain.pair_lift.any()
        for one in (found, plain):
            checked(one, problem, V, T, W)
        assert found.gap < 0.25 * plain.gap, steps


def test_the_optimal_scale_is_that_of_the_least_objective(rng):
    """By f at other scales, from their factors alone; the solver's proofs are of such kernels, although columns were dropped."""
    problem, T, W = hard_problem(60, 30.0, 2)
    point = problem.at(problem.padded(rng.standard_normal((60, 5))))
    best = problem.optimal_scale(point)
    scaled = problem.at(point.v.copy())
    problem.rescale(scaled, best)
    afresh = problem.at(np.sqrt(best) * point.v)
    for one, other in zip((scaled.v, scaled.lv, scaled.gradient), (afresh.v, afresh.lv, afresh.gradient), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9)
    assert scaled.objective == pytest.approx(afresh.objective, rel=1e-12)
    assert all(scaled.objective < problem.at(np.sqrt(best * t) * point.v).objective for t in (0.5, 0.99, 1.01, 2.0))
    assert problem.optimal_scale(scaled) == pytest.approx(1, rel=1e-12)
    proven = solve_to_gap(problem, target_gap=0.3, max_iter=300).certificate
    assert abs(proven.inner_product) <= 1e-9 * proven.objective


# -- the lift of modes ------------------------------------------------------------------------------------------------------


def random_end(rng, n=30, count=6, scaled=True):
    """(LowEnd of the lowest, not quite converged vectors of a matrix A, S = B^1/2 A B^1/2)."""
    root = np.sqrt(rng.uniform(1, 50, n)) if scaled else np.ones(n)
    turn = np.linalg.qr(rng.standard_normal((n, n)))[0]
    A = (turn * np.concatenate([-(10.0 ** rng.uniform(-4, -1, 4)), rng.uniform(0.01, 3, n - 4)])) @ turn.T
    basis = np.linalg.qr(np.linalg.eigh(A)[1][:, :count] + 0.01 * rng.standard_normal((n, count)))[0]
    values, mix = np.linalg.eigh(basis.T @ A @ basis)
    Q = basis @ mix
    C = A @ Q - Q * values
    beside = np.linalg.qr(np.hstack([Q, rng.standard_normal((n, n - count))]))[0][:, count:]
    mu = np.linalg.eigvalsh(beside.T @ A @ beside)[0]
    return module.LowEnd(values, Q, root, SharedRows.alone(n), C.T @ C, float(mu)), A * np.outer(root, root)


@pytest.mark.parametrize("scaled", [False, True])
def test_its_low_end_is_below_the_spectrum_and_lifted_it_is_psd(rng, scaled):
    for _ in range(20):
        end, S = random_end(rng, scaled=scaled)
        A = S / np.outer(end.root, end.root)
        lowest = np.linalg.eigvalsh(A)[0]
        assert end.lowest <= lowest + 1e-12
        for shift in np.array([0.0, 0.01, 0.3, 1.0]) * -lowest:
            if end.mu + shift > 0:
                Z = end.to_lift(shift)
                raised = S + shift * np.diag(end.root**2) + Z @ Z.T
                assert np.linalg.eigvalsh(raised)[0] >= -1e-11 * np.abs(S).max()


@pytest.mark.parametrize("scaled", [False, True])
def test_the_cheapest_makes_it_psd_and_costs_what_it_says(rng, scaled):
    for _ in range(20):
        end, S = random_end(rng, scaled=scaled)
        n, gamma, given = len(S), 10.0 ** rng.uniform(-2, 3), rng.uniform(-0.01, 0.01, len(S))
        diagonal = rng.uniform(0.5, 1.2, n)
        bound = TraceBound.of(10.0 ** rng.uniform(-6, 1), gamma, diagonal)
        proof = module.cheapest(end, bound, given, 0.0)
        added = proof.lift - given
        assert np.linalg.eigvalsh(S + np.diag(added))[0] >= -1e-11 * np.abs(S).max()
        M = proof.lift
        by_targets = M.sum() + np.linalg.norm(M) * bound.spread
        assert proof.term == pytest.approx(min(by_targets, M @ diagonal + M @ M / (2 * gamma)), rel=1e-12)
        shift = given + max(-end.lowest, 0.0) * end.root**2
        assert proof.term <= bound.gap_term(0.0, shift) * (1 + 1e-12), "no dearer than a shift alone"


def test_nothing_is_lifted_where_nothing_is_below_0(rng):
    end, _ = random_end(rng)
    above = module.LowEnd(np.abs(end.values), end.vectors, end.root, end.rows, 0 * end.coupling, end.mu)
    assert not above.clean_lift().any()
    proof = module.cheapest(above, TraceBound.of(1.0, 10.0, np.ones(30)), np.zeros(30), 0.0)
    assert proof.term == 0.0 and not proof.lift.any()


def test_a_clean_lift_is_0_where_all_modes_are_small(rng):
    """Two modes on five patterns each, with small entries on all others, and one that is above 0 there."""
    n, root = 60, np.sqrt(rng.uniform(1, 9, 60))
    raw = 1e-3 * rng.standard_normal((n, 3))
    for k, size in enumerate((5, 5, 20)):
        raw[10 * k : 10 * k + size, k] += 1 + rng.random(size)
    vectors = np.linalg.qr(raw)[0]
    modes = module.Modes(np.array([-0.5, -0.1, 0.2]), vectors, root, SharedRows.alone(n))
    lift = modes.clean_lift()
    large = np.zeros(n, dtype=bool)
    for k in range(2):
        scaled = root * np.abs(vectors[:, k])
        large |= scaled >= module.CLEAN * scaled.max()
    assert large.sum() <= 12 and (lift[large] > 0).all() and not lift[~large].any()
    # Where they are large the negative part is lifted to 0.
    U = (root[:, None] * vectors[:, :2] * np.sqrt([0.5, 0.1]))[large]
    U[np.abs(U) < module.CLEAN * np.abs(U).max(axis=0)] = 0.0
    assert np.linalg.eigvalsh(np.diag(lift[large]) - U @ U.T)[0] >= -1e-12
