"""The certificate: its bound against the conic optimum, its inequality in plain numpy, and what the lift saves."""

import numpy as np
import pytest
from pairwise_cases import charged, dense_targets, objective, random_problem, sdp_optimum
from repeats import but_for
from scipy import sparse

from dkl.linalg.eigen.extreme_eigenvalues import DENSE
from dkl.problems.pairwise import certificate as module
from dkl.problems.pairwise.problem import PairwiseKernel
from dkl.problems.pairwise.terms import target_matrix

GAMMAS = [1e-3, 0.1, 7.0, 100.0, 1e4]


class Case:
    """A random problem, its conic optimum, and kernels at which it is to be certified."""

    def __init__(self, seed, gamma):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(5, 31))
        self.laplacian, must, cannot = random_problem(rng, n)
        self.target, self.mask = dense_targets(n, must, cannot)
        self.n, self.gamma = n, gamma
        self.problem = PairwiseKernel(self.laplacian, target_matrix(n, must, cannot), gamma)
        self.optimum = sdp_optimum(self.laplacian.toarray(), self.target, self.mask, gamma)
        near = self.descend(rng.standard_normal((n, n)) / np.sqrt(n))
        self.factors = {
            "rank 1": rng.standard_normal((n, 1)),
            "rank 3": rng.standard_normal((n, 3)) / np.sqrt(3),
            "rank n": rng.standard_normal((n, n)) / np.sqrt(n),
            "large": 30 * rng.standard_normal((n, 3)),
            "small": 1e-3 * rng.standard_normal((n, 3)),
            "zero": np.zeros((n, 2)),
            "ones": np.ones((n, 1)),
            "identity": np.eye(n),
            "near": near,
            "beside": near + 1e-3 * rng.standard_normal((n, n)),
        }

    def descend(self, V):
        """Some gradient steps with backtracking."""
        step = 0.1 / (1 + self.gamma)
        value = self.value(V)
        for _ in range(400):
            residual = np.where(self.mask, V @ V.T - self.target, 0.0)
            gradient = 2 * (self.laplacian @ V + self.gamma * residual @ V)
            while step > 1e-14 and self.value(V - step * gradient) > value - 0.5 * step * np.sum(gradient**2):
                step *= 0.5
            V = V - step * gradient
            value, step = self.value(V), 1.5 * step
        return V

    def value(self, V):
        return objective(V @ V.T, self.laplacian.toarray(), self.target, self.mask, self.gamma)

    def gradient(self, V):
        """S(K), dense."""
        return self.laplacian.toarray() + self.gamma * np.where(self.mask, V @ V.T - self.target, 0.0)

    def certify(self, V):
        return self.problem.certificate(*self.problem.evaluate(V))


@pytest.fixture(scope="module", params=[(seed, gamma) for seed in range(3) for gamma in GAMMAS], ids=str)
def case(request):
    return Case(*request.param)


def plain_gap(case, V, lift):
    """The proof's right-hand side from the factor and D, by dense eigenvalues and nothing of ours."""
    K, S = V @ V.T, case.gradient(V)
    spread = np.sqrt(2 * case.value(V) / case.gamma)
    lowest = np.linalg.eigvalsh(S + np.diag(lift))[0]
    return max(np.sum(S * K), 0.0) + charged(case.n, spread, case.gamma, K.diagonal(), max(-lowest, 0.0), lift)


@pytest.mark.parametrize("lifted", but_for([False], [True, False]))
def test_the_bound_holds_at_any_kernel(case, monkeypatch, lifted):
    if not lifted:
        monkeypatch.setattr(module, "LIFTING_ROUNDS", 0)
    for name, V in case.factors.items():
        found = case.certify(V)
        value = case.value(V)
        assert found.objective == pytest.approx(value, rel=1e-10)
        # clarabel's optimum is good to 1e-8 or so of the largest terms in it
        assert value - case.optimum <= found.gap + 1e-7 * max(case.optimum, 1e-3), name
        assert lifted or not found.lift.any()


def test_the_inequality_recomputed_is_the_gap(case):
    for name, V in case.factors.items():
        found = case.certify(V)
        S = case.gradient(V)
        assert (found.lift >= 0).all() and found.lift.shape == (case.n,)
        # Both sides know lambda_min to n eps |S|, which the trace multiplies; the certificate takes 4 of them off.
        rounding = np.finfo(float).eps * (abs(S).sum(axis=1).max() + found.lift.max())
        slack = 5 * case.n * rounding * found.trace_bound
        assert found.gap == pytest.approx(plain_gap(case, V, found.lift), rel=1e-10, abs=slack), name
        assert found.min_eigenvalue == pytest.approx(np.linalg.eigvalsh(S)[0], abs=1e-10 * np.linalg.norm(S, 2))
        assert found.min_eigenvalue <= np.linalg.eigvalsh(S)[0] + 1e-14 * np.linalg.norm(S, 2)
        assert found.inner_product == pytest.approx(np.sum(S * (V @ V.T)), rel=1e-8, abs=slack)
        spread = np.sqrt(2 * case.value(V) / case.gamma)
        assert found.trace_bound == pytest.approx(case.n + np.sqrt(case.n) * spread, rel=1e-10)
        relative = found.gap / found.objective if found.objective > 0 else np.inf
        assert found.relative_gap == pytest.approx(relative)


def test_the_lift_never_makes_the_bound_worse(case, monkeypatch):
    with_lift = {name: case.certify(V) for name, V in case.factors.items()}
    monkeypatch.setattr(module, "LIFTING_ROUNDS", 0)
    for name, V in case.factors.items():
        plain = case.certify(V)
        assert with_lift[name].gap <= plain.gap, name
        for part in ("objective", "min_eigenvalue", "inner_product", "trace_bound"):
            assert getattr(with_lift[name], part) == getattr(plain, part)


def test_the_direction_leads_down_where_there_is_a_way_down(case):
    for name in ("rank 1", "near", "zero", "ones"):
        V = case.factors[name]
        found = case.certify(V)
        assert np.linalg.norm(found.direction) == pytest.approx(1.0)
        slope = found.direction @ case.gradient(V) @ found.direction
        assert slope == pytest.approx(found.min_eigenvalue, abs=1e-8 * (1 + np.linalg.norm(case.gradient(V), 2)))
        if slope < -1e-3 * case.gamma:
            step = np.sqrt(-slope / case.gamma) * 0.5
            assert case.value(np.column_stack([V, step * found.direction])) < case.value(V)


@pytest.mark.parametrize("seed", but_for([1, 2], range(3)))
def test_a_kernel_close_to_the_optimum_is_proven_close(seed):
    case = Case(seed, 7.0)
    V = case.factors["near"]
    for _ in range(10):
        V = case.descend(V)
    found = case.certify(V)
    assert case.value(V) - case.optimum <= found.gap + 1e-7 * case.optimum
    assert found.relative_gap < 1e-2


def test_the_optimum_s_trace_is_within_the_bound(case):
    """|diag(K*) - 1| <= sqrt(2 f(K*) / gamma), of which everything about tr(K*) follows, at a kernel near K*."""
    V = case.factors["near"]
    diagonal = np.sum(V**2, axis=1)
    spread = np.sqrt(2 * case.value(V) / case.gamma)
    assert np.linalg.norm(diagonal - 1) <= spread
    assert diagonal.sum() <= module.TraceBound.of(case.value(V), case.gamma, diagonal).trace_bound


# -- the lift, beyond the size at which all eigenvalues are computed ------------------------------------------------------


class Localised:
    """K = 1 1' on a ring, at the optimum but for a few patterns that are drawn beyond their targets.

    All targets that K meets cost nothing and L 1 = 0, so that S = L psd and <S, K> = 0. Patterns in `bad` are scaled
    down: there S_ii = L_ii + gamma (K_ii - 1) is far below 0, in a direction that lives on them alone.
    """

    def __init__(self, n, bad, gamma=100.0, scale=0.9):
        edges = np.arange(n)
        weights = sparse.coo_array((np.ones(n), (edges, (edges + 1) % n)), shape=(n, n))
        weights = weights + weights.T
        self.n, self.gamma = n, gamma
        self.laplacian = sparse.csr_array(sparse.diags_array(weights.sum(axis=1)) - weights)
        nothing = np.empty((0, 2), np.int64)
        self.problem = PairwiseKernel(self.laplacian, target_matrix(n, nothing, nothing), gamma)
        self.V = np.ones((n, 1))
        self.V[bad] *= scale

    def certify(self):
        return self.problem.certificate(*self.problem.evaluate(self.V))

    def gradient(self):
        return self.laplacian.toarray() + np.diag(self.gamma * (np.sum(self.V**2, axis=1) - 1))

    def value(self, V):
        residual = np.sum(V**2, axis=1) - 1
        return np.sum(V * (self.laplacian @ V)) + 0.5 * self.gamma * residual @ residual


@pytest.mark.parametrize("bad", [[500], pytest.param([100, 500, 900], marks=pytest.mark.exhaustive)])
def test_one_bad_pattern_is_charged_for_itself_alone(monkeypatch, bad):
    case = Localised(1000, bad)
    assert case.n > DENSE
    found = case.certify()
    monkeypatch.setattr(module, "LIFTING_ROUNDS", 0)
    plain = case.certify()
    assert plain.min_eigenvalue == found.min_eigenvalue < -10
    assert plain.gap > 10_000 and not plain.lift.any()
    assert found.gap < 0.005 * len(bad) * plain.gap, "some thousandths: the patterns and what surrounds them"
    assert found.gap >= case.value(case.V) - case.value(np.ones((case.n, 1))), "what is known of the optimum"

    # S + diag(lift) has come up to 0, and the inequality gives the gap.
    S, lift = case.gradient(), found.lift
    before, after = np.linalg.eigvalsh(S)[0], np.linalg.eigvalsh(S + np.diag(lift))[0]
    assert before == pytest.approx(found.min_eigenvalue, abs=1e-4) and after > 1e-3 * before
    spread = np.sqrt(2 * case.value(case.V) / case.gamma)
    inner = float(np.sum(case.V * (S @ case.V)))
    exact = max(inner, 0.0) + charged(case.n, spread, case.gamma, np.sum(case.V**2, axis=1), max(-after, 0.0), lift)
    assert exact <= found.gap + 1e-9 * found.gap, "the gap that is told takes Lanczos's residual in"
    assert found.gap == pytest.approx(exact, rel=1e-3)

    # It lies on the bad patterns and those next to them.
    near = np.zeros(case.n, bool)
    for k in bad:
        near[k - 10 : k + 11] = True
    assert lift[near].sum() > 0.99 * lift.sum()
    assert found.as_dict()["lift"] == lift.sum()


def test_an_optimum_is_not_lifted():
    found = Localised(1000, []).certify()
    assert found.objective == pytest.approx(0.0, abs=1e-20)
    assert not found.lift.any() or found.gap < 1e-8
    assert found.gap < 1e-8


def test_a_direction_that_all_patterns_share_is_left_alone():
    """Scaling every pattern down makes S = L - c I: no diagonal proves more than lambda_min does."""
    case = Localised(1000, np.arange(1000), scale=0.9)
    found = case.certify()
    assert found.gap >= case.value(case.V)  # the optimum is 0
    assert found.min_eigenvalue == pytest.approx(100.0 * (0.81 - 1), rel=1e-5)
    assert found.gap <= -found.min_eigenvalue * found.trace_bound * (1 + 1e-12)


def test_the_lift_is_within_its_budget_and_never_negative(rng):
    dense = rng.standard_normal((60, 60))
    matrix = module.Shifted.of(sparse.csr_array(dense + dense.T - 5 * np.eye(60)))
    for budget in (0.0, 1.0, 50.0, 1e4):
        lift = module.find_lift(matrix, budget)
        assert (lift >= 0).all() and lift.sum() <= budget


def test_the_best_multiple_makes_the_inner_product_zero(case):
    for name in ("rank 1", "rank 3", "large", "small", "near"):
        V = case.factors[name]
        scale = case.problem.scale(*case.problem.evaluate(V))
        scaled = np.sqrt(scale) * V
        found = case.certify(scaled)
        others = [case.value(np.sqrt(t) * V) for t in np.linspace(0, 3, 301) * max(scale, 1e-3)]
        assert found.objective <= min(others) * (1 + 1e-12)
        if scale > 0:
            S = case.gradient(scaled)
            assert abs(found.inner_product) <= 1e-9 * np.linalg.norm(S) * np.linalg.norm(scaled @ scaled.T)
    assert case.problem.scale(np.zeros(case.problem.targets.nnz), 0.0) == 0.0
