"""The methods for kernels of pairs against a conic solver, the pair learner's certificate, and their own bounds."""

import clarabel
import numpy as np
import pytest
from pairwise_cases import dense_targets, objective, random_problem, sdp_optimum
from scipy import sparse
from sklearn.utils.estimator_checks import parametrize_with_checks

import dkl
from dkl.baselines import BCDNPKL, MFPC, HybridSDP, SimpleNPKL
from dkl.baselines.pair_solvers import (
    LOSSES,
    BoundedKernelProblem,
    in_smooth_basis,
    solve_blocks,
    solve_bounded,
    solve_fixed_points,
    solve_hybrid,
)
from dkl.errors import ConvergenceWarning
from dkl.estimators.pairwise.fit import make_problem


@pytest.mark.exhaustive
@pytest.mark.filterwarnings("ignore")  # the checks' data sets are tiny
@parametrize_with_checks([SimpleNPKL(), HybridSDP(random_state=0), MFPC(max_iter=20), BCDNPKL(max_iter=20)])
def test_scikit_learn_s_contract(estimator, check):
    check(estimator)


def conic_optimum(L, i, j, t, gamma, loss, B):
    """The optimum by Clarabel, over x = (svec(K), one slack an entry)."""
    n, m = L.shape[0], len(i)
    upper = [(a, b) for b in range(n) for a in range(b + 1)]  # columns of the upper triangle
    at = {pair: k for k, pair in enumerate(upper)}
    size, root = len(upper), np.sqrt(2.0)
    count = np.where(i == j, 1.0, 2.0)
    linear = np.array([L[a, b] * (1.0 if a == b else root) for a, b in upper])
    pick = np.zeros((m, size))
    for e, (a, b) in enumerate(zip(i, j, strict=True)):
        pick[e, at[min(a, b), max(a, b)]] = 1.0 if a == b else 1 / root
    P = np.zeros((size + m, size + m))
    q = np.append(linear, np.zeros(m))
    if loss == "hinge":
        q[size:] = gamma / 2 * count
    else:
        P[size:, size:] = np.diag(gamma * count)
    rows, right, cones = [], [], []
    if loss == "square":  # slack = K - t
        rows.append(np.hstack([pick, -np.eye(m)]))
        right.append(t)
        cones.append(clarabel.ZeroConeT(m))
    else:  # slack >= 0, slack >= 1 - t K
        rows += [np.hstack([np.zeros((m, size)), -np.eye(m)]), np.hstack([-t[:, None] * pick, -np.eye(m)])]
        right += [np.zeros(m), -np.ones(m)]
        cones.append(clarabel.NonnegativeConeT(2 * m))
    rows.append(np.vstack([np.zeros((1, size + m)), np.hstack([-np.eye(size), np.zeros((size, m))])]))
    right.append(np.append(np.sqrt(B), np.zeros(size)))
    cones.append(clarabel.SecondOrderConeT(size + 1))
    rows.append(np.hstack([-np.eye(size), np.zeros((size, m))]))
    right.append(np.zeros(size))
    cones.append(clarabel.PSDTriangleConeT(n))
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    solver = clarabel.DefaultSolver(
        sparse.csc_matrix(P), q, sparse.csc_matrix(np.vstack(rows)), np.concatenate(right), cones, settings
    )
    return solver.solve().obj_val


@pytest.mark.parametrize("B", [0.5, 5.0, 20.0])
@pytest.mark.parametrize("loss", LOSSES)
def test_simple_npkl_is_optimal(loss, B, rng):
    L, must, cannot = random_problem(rng, 8, 9)
    i, j = np.vstack([must, cannot]).T
    t = np.append(np.ones(len(must)), -np.ones(len(cannot)))
    found = solve_bounded(BoundedKernelProblem(L, i, j, t, 3.0, LOSSES[loss], B), 1e-4, 3000)
    assert found.relative_gap <= 1e-4
    best = conic_optimum(L.toarray(), i, j, t, 3.0, loss, B)
    assert found.objective == pytest.approx(best, rel=2e-4)
    assert found.bound <= best * (1 + 1e-7)
    assert np.linalg.norm(found.factor.T @ found.factor) ** 2 <= B * (1 + 1e-12)


def test_quadratic_loss_has_the_diagonal_and_targets_of_0(rng):
    """With B out of reach it is the pair learner's problem, of which it has an upper and a lower bound."""
    X = rng.normal(size=(30, 2)) + 3.0 * (np.arange(30) % 2)[:, None]
    pairs = {"must_link": [[0, 2], [1, 3], [4, 8]], "cannot_link": [[0, 1], [2, 5]]}
    exact = dkl.PairwiseKernelLearner(gamma=5.0, target_gap=1e-6, holdout=0, random_state=0).fit(X, **pairs)
    best, size = (
        exact.certificate_.objective,
        np.linalg.norm(np.asarray(exact.factor_).T @ np.asarray(exact.factor_)) ** 2,
    )
    for share in (0.5, 0.99):
        model = SimpleNPKL(gamma=5.0, bound=share * size, tol=1e-3, max_iter=5000).fit(X, **pairs)
        assert model.objective_ >= best * (1 - 1e-6)
    assert model.objective_ == pytest.approx(best, rel=5e-3)
    K = model.kernel_matrix(X)
    np.testing.assert_allclose(K, model.factor_ @ model.factor_.T)
    assert SimpleNPKL(gamma=5.0, bound=size / 2, rank=1).fit(X, **pairs).factor_.shape == (30, 1)


def test_hybrid_ends_at_the_pair_learner_s_optimum(rng):
    L, must, cannot = random_problem(rng, 40, 60)
    problem = make_problem(L, dkl.Pairs(must, cannot), 10.0)
    found = solve_hybrid(problem, rank=20, tol=1e-6, max_iter=2000, random=np.random.RandomState(0))
    K, T, on = found.factor @ found.factor.T, np.eye(40), np.eye(40, dtype=bool)
    for value, pairs in ((1.0, must), (0.0, cannot)):
        for i, j in pairs:
            T[i, j] = T[j, i] = value
            on[i, j] = on[j, i] = True
    objective = np.trace(K @ L) + 5.0 * np.sum((K - T)[on] ** 2)
    assert found.certificate.objective == pytest.approx(objective)
    assert found.certificate.relative_gap <= 1e-6
    # A KKT point of the convex problem: S psd with S K = 0.
    S = L.toarray() + 10.0 * np.where(on, K - T, 0.0)
    assert np.linalg.eigvalsh(S)[0] >= -1e-4
    assert abs(np.trace(S @ K)) <= 1e-6 * objective
    assert found.n_iter == found.factor.shape[1] < 20


def in_basis(Q, U, L, target, mask, gamma, mu):
    """MFPC's objective, term by term."""
    K = Q @ U @ Q.T
    return np.trace(K @ L) / gamma + 0.5 * np.sum(mask * (K - target) ** 2) + mu * np.trace(U)


def conic_in_basis(Q, L, target, mask, gamma, mu):
    """The least of MFPC's objective by Clarabel, over x = svec(U)."""
    m = Q.shape[1]
    upper = [(a, b) for b in range(m) for a in range(b + 1)]  # columns of the upper triangle
    units = np.array([np.where(a == b, 1.0, np.sqrt(0.5)) * unit(m, a, b) for a, b in upper])
    rows = np.array([(Q @ one @ Q.T)[mask.astype(bool)] for one in units]).T
    linear = np.array([np.trace(Q @ one @ Q.T @ L) / gamma + mu * np.trace(one) for one in units])
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-10
    t, size = target[mask.astype(bool)], len(upper)
    solver = clarabel.DefaultSolver(
        sparse.csc_matrix(rows.T @ rows), linear - rows.T @ t, -sparse.identity(size, format="csc"), np.zeros(size),
        [clarabel.PSDTriangleConeT(m)], settings,
    )  # fmt: skip
    return solver.solve().obj_val + 0.5 * t @ t


def unit(m, a, b):
    """The symmetric matrix (m, m) of ones at (a, b) and (b, a)."""
    E = np.zeros((m, m))
    E[a, b] = E[b, a] = 1.0
    return E


@pytest.mark.parametrize("mu", [1e-8, 0.05])
def test_mfpc_ends_at_the_optimum_in_its_basis(mu, rng):
    L, must, cannot = random_problem(rng, 14, 16)
    target, mask = dense_targets(14, must, cannot)
    Q, problem = in_smooth_basis(L, dkl.Pairs(must, cannot), 5, 4.0)
    values, vectors = np.linalg.eigh(L.toarray())
    np.testing.assert_allclose(Q @ Q.T, vectors[:, :5] @ vectors[:, :5].T, atol=1e-8)
    found = solve_fixed_points(problem, mu=mu, tol=1e-7, max_iter=20000)
    assert found.relative_gap <= 1e-7
    U = found.factor @ found.factor.T
    best = conic_in_basis(Q, L.toarray(), target, mask, 4.0, mu)
    assert in_basis(Q, U, L.toarray(), target, mask, 4.0, mu) == pytest.approx(best, rel=2e-7)
    # A fixed point: the step and the thresholding leave it where it is.
    K = Q @ U @ Q.T
    gradient = np.diag(values[:5] / 4.0) + Q.T @ (mask * (K - target)) @ Q
    sizes, turn = np.linalg.eigh(U - gradient)
    np.testing.assert_allclose((turn * np.maximum(sizes - mu, 0.0)) @ turn.T, U, atol=1e-3)


def test_a_trace_of_mfpc_that_outweighs_the_pairs_leaves_no_kernel(rng):
    """U = 0 is optimal where mu is beyond the largest eigenvalue of Q'TQ - diag(values) / gamma."""
    L, must, cannot = random_problem(rng, 14, 16)
    target, mask = dense_targets(14, must, cannot)
    Q, problem = in_smooth_basis(L, dkl.Pairs(must, cannot), 5, 4.0)
    most = np.linalg.eigvalsh(Q.T @ (mask * target - L.toarray() / 4.0) @ Q)[-1]
    assert not solve_fixed_points(problem, mu=1.001 * most, tol=1e-6, max_iter=50).factor.any()
    assert solve_fixed_points(problem, mu=0.99 * most, tol=1e-6, max_iter=50).factor.any()


def test_bcd_lowers_the_objective_to_the_optimum(rng):
    L, must, cannot = random_problem(rng, 16, 20)
    target, mask = dense_targets(16, must, cannot)
    problem = make_problem(L, dkl.Pairs(must, cannot), 5.0)
    V, values = rng.standard_normal((16, 10)), []
    for _ in range(5):
        values.append(objective(V @ V.T, L.toarray(), target, mask, 5.0))
        V = solve_blocks(problem, V, tol=0.0, max_iter=1).factor
    assert (np.diff(values) < 0).all()
    found = solve_blocks(problem, V, tol=1e-7, max_iter=5000)
    assert found.certificate.relative_gap <= 1e-7
    assert found.certificate.objective == pytest.approx(sdp_optimum(L.toarray(), target, mask, 5.0), rel=2e-7)
    K = found.factor @ found.factor.T
    assert found.certificate.objective == pytest.approx(objective(K, L.toarray(), target, mask, 5.0))


def test_bcd_and_mfpc_have_the_paper_s_rank_and_ask_for_more_steps(rng):
    X = rng.normal(size=(40, 2))
    pairs = {"must_link": [[0, 2], [1, 3], [4, 8]], "cannot_link": [[0, 1], [2, 5]]}
    for make in (BCDNPKL, MFPC):  # 40 + 2 * 5 entries: 9 * 10 / 2 <= 50
        with pytest.warns(ConvergenceWarning, match="raise max_iter"):
            model = make(max_iter=3, tol=1e-9, random_state=0).fit(X, **pairs)
        assert model.factor_.shape[0] == 40 and model.factor_.shape[1] <= 9 and model.n_iter_ == 3


def test_too_few_columns_are_warned_of(rng):
    X = rng.normal(size=(40, 2))
    y = np.arange(40) % 4
    with pytest.warns(ConvergenceWarning, match="raise max_iter or rank"):
        model = HybridSDP(rank=1, random_state=0).fit(X, y)
    assert model.factor_.shape == (40, 1) and model.certificate_.relative_gap > 1e-3


def test_no_work_is_begun_that_does_not_fit(rng):
    with pytest.raises(dkl.errors.MemoryBudgetError):
        SimpleNPKL(memory_limit="1 MB").fit(rng.normal(size=(400, 2)), np.arange(400) % 2)


@pytest.mark.parametrize("laplacian", ["normalized", "unnormalized"])
@pytest.mark.parametrize("learner", [SimpleNPKL, HybridSDP, MFPC, BCDNPKL])
def test_a_gamma_beyond_double_precision_is_refused(learner, laplacian, rng):
    with pytest.raises(dkl.errors.InputError, match="gamma"):
        learner(gamma=1e200, laplacian=laplacian).fit(rng.normal(size=(30, 2)), np.arange(30) % 2)
