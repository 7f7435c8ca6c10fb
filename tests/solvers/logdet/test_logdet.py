"""Problem (3) solved, against optima of scipy on a Cholesky factor, closed forms, and conic programs."""

import tracemalloc
from dataclasses import replace

import clarabel
import numpy as np
import pytest
from logdet_cases import SMOOTH_LOSSES, case, kernel, matrices, objective, optimum, pairs, triplets
from repeats import but_for, crossed
from scipy import sparse
from sklearn.metrics.pairwise import rbf_kernel

from dkl.errors import InputError, MemoryBudgetError
from dkl.problems.logdet.constraints import ConstraintSet
from dkl.problems.logdet.losses import HingeLoss, ItmlLoss, LogLoss, SmoothedHingeLoss
from dkl.problems.logdet.plan import direct_bytes, logdet_plan
from dkl.problems.logdet.problem import LogDetKernelProblem, LogDetMetricProblem
from dkl.solvers.logdet.central_path import central_path
from dkl.solvers.logdet.solve import solve_logdet, solve_logdet_path
from dkl.solvers.logdet.step import _reduce
from dkl.solvers.watch import Outcome, Watch


def solved(problem, **options):
    solution = solve_logdet(problem, **{"tol": 1e-10, **options})
    assert solution.outcome is Outcome.SOLVED
    assert solution.certificate.relative_gap <= options.get("tol", 1e-10)
    return solution


@pytest.mark.parametrize("name", SMOOTH_LOSSES)
def test_the_optimum_is_that_of_a_cholesky_factor(name, rng):
    K0 = kernel(rng)
    constraints, loss = case(name, rng)
    gamma = 0.02 if name == "linear" else 2.0
    problem = LogDetKernelProblem(K0, constraints, loss, gamma, normalize_gamma=False)
    solution = solved(problem)
    A = matrices(constraints)
    best, K = optimum(K0, A, loss, gamma)
    learned = problem.learned(solution.multipliers).block
    assert solution.certificate.objective == pytest.approx(best, rel=1e-8)
    assert objective(learned, K0, A, loss, gamma) == pytest.approx(best, rel=1e-8)
    assert solution.certificate.bound <= best + 1e-9 * abs(best)
    np.testing.assert_allclose(learned, K, atol=1e-4)


def test_a_linear_loss_has_a_closed_form(rng):
    K0 = kernel(rng)
    constraints, loss = case("linear", rng)
    problem = LogDetKernelProblem(K0, constraints, loss, 0.05, n_labelled=5)
    learned = problem.learned(solved(problem).multipliers).block
    closed = np.linalg.inv(np.linalg.inv(K0) - 0.01 * matrices(constraints).sum(axis=0))
    np.testing.assert_allclose(learned, closed, rtol=1e-9)


def test_a_linear_loss_without_a_minimum_is_refused_with_the_largest_gamma(rng):
    K0 = kernel(rng)
    constraints, loss = case("linear", rng)
    with pytest.raises(InputError, match="no minimum") as refusal:
        solve_logdet(LogDetKernelProblem(K0, constraints, loss, 1e3))
    limit = float(refusal.value.wanted.split()[-1])
    solved(LogDetKernelProblem(K0, constraints, loss, 0.99 * limit))
    with pytest.raises(InputError, match="no minimum"):
        solve_logdet(LogDetKernelProblem(K0, constraints, loss, 1.01 * limit))


@pytest.mark.parametrize("name", ["log", "lmnn", "itml", "hoi"])
def test_the_labelled_block_gives_the_whole_kernel(name, rng):
    """Padded with constraints of weight zero on the other rows, the whole problem is solved, not its block."""
    n, labelled = 9, 6
    K0 = kernel(rng, n)
    inner, loss = case(name, rng, labelled, 20)
    part = ConstraintSet(n, inner.rows, inner.columns, inner.incidence)
    reduced = LogDetKernelProblem(K0, part, loss, 3.0, n_labelled=4)
    learned = reduced.learned(solved(reduced).multipliers)
    assert learned.points.tolist() == list(range(labelled))
    whole = learned.of(K0, K0[:, learned.points], K0[:, learned.points])
    _, K = optimum(K0, matrices(part), loss, 3.0 / 4)
    np.testing.assert_allclose(whole, K, atol=1e-4)
    np.testing.assert_allclose(whole[:labelled, :labelled], learned.block, rtol=1e-8, atol=1e-10)
    A = matrices(part)
    assert objective(whole, K0, A, loss, 0.75) == pytest.approx(reduced_objective(reduced, learned, K0), rel=1e-8)


def reduced_objective(problem, learned, K0):
    block = K0[np.ix_(learned.points, learned.points)]
    return objective(learned.block, block, matrices(problem.constraints), problem.loss, problem.weight)


@pytest.mark.parametrize("name", ["log", "itml"])
def test_a_metric_is_the_kernel_of_its_rows(name, rng):
    """d = 4 against scipy on W itself, with A_t = sum of (x - y)(x - y)'."""
    X = rng.normal(size=(10, 4))
    W0 = kernel(rng, 4)
    constraints, loss = case(name, rng, 10)
    problem = LogDetMetricProblem(X, constraints, loss, 2.0, W0=W0, normalize_gamma=False)
    solution = solved(problem)
    A = np.einsum("nd,tnm,me->tde", X, matrices(constraints), X)
    best, W = optimum(W0, A, loss, 2.0)
    assert solution.certificate.objective == pytest.approx(best, rel=1e-8)
    np.testing.assert_allclose(problem.learned(solution.multipliers), W, atol=1e-4)


@pytest.mark.parametrize(
    ("gammas", "sizes"), crossed([(1e3,), (10.0, 1e3), (1e4, 1e3)], [(0, 60), (0, 12), (40, 60)]), ids=str
)
def test_pairs_that_contradict_each_other_at_a_large_gamma_are_solved(gammas, sizes, rng, monkeypatch):
    """Along the central path too, of more pairs than W has entries and of fewer. Against scipy on W itself."""
    alone, count = sizes
    X = rng.standard_t(2, size=(40, 5))
    ends = pairs(rng, 40, count)
    constraints, loss = ConstraintSet.distances(40, ends), ItmlLoss(rng.random(count) < 0.5, 0.3, 30.0)
    problem = LogDetMetricProblem(X, constraints, loss, 1.0, normalize_gamma=False)
    monkeypatch.setattr("dkl.solvers.logdet.solve.MOST_ALONE", alone)
    if not alone:  # what is near goes on with the primal
        monkeypatch.setattr("dkl.solvers.logdet.solve.NEAR", 0.0)
    solution = solve_logdet_path(problem, gammas, tol=1e-9)[-1]
    assert solution.outcome is Outcome.SOLVED
    assert alone or solution.method == "primal, central path"
    apart = X[ends[:, 0]] - X[ends[:, 1]]
    A = apart[:, :, None] * apart[:, None, :]
    best, _ = optimum(np.eye(5), A, loss, 1e3)
    W = problem.with_gamma(1e3).learned(solution.multipliers)
    assert solution.certificate.bound <= best * (1 + 1e-9)
    assert objective(W, np.eye(5), A, loss, 1e3) <= best * (1 + 1e-8)


def test_a_metric_that_is_near_when_the_primal_has_had_its_steps_stays_with_it(rng, monkeypatch):
    ends = pairs(rng, 40, 60)
    constraints, loss = ConstraintSet.distances(40, ends), ItmlLoss(rng.random(60) < 0.5, 0.3, 30.0)
    problem = LogDetMetricProblem(rng.normal(size=(40, 5)), constraints, loss, 10.0, normalize_gamma=False)
    monkeypatch.setattr("dkl.solvers.logdet.solve.MOST_ALONE", 200)
    steps = solved(problem).n_iter
    monkeypatch.setattr("dkl.solvers.logdet.solve.MOST_ALONE", steps - 1)
    solution = solved(problem)
    assert (solution.method, solution.n_iter) == ("primal", steps)


def test_a_singular_kernel_is_solved_on_its_range(rng):
    """Hoi's constraints see the null space; the oracle works on coordinates of the range."""
    n, rank = 9, 5
    F = rng.normal(size=(n, rank))
    constraints, loss = case("hoi", rng, n)
    problem = LogDetKernelProblem(F @ F.T, constraints, loss, 2.0, normalize_gamma=False)
    solution = solved(problem)
    best, W = optimum(np.eye(rank), np.einsum("nd,tnm,me->tde", F, matrices(constraints), F), loss, 2.0)
    assert solution.certificate.objective == pytest.approx(best, rel=1e-8)
    np.testing.assert_allclose(problem.learned(solution.multipliers).block, F @ W @ F.T, atol=1e-4)


def test_a_laplacians_pseudo_inverse_keeps_its_null_space(rng):
    weights = rng.random((9, 9))
    weights = weights + weights.T
    laplacian = np.diag(weights.sum(axis=1)) - weights
    K0 = np.linalg.pinv(laplacian, hermitian=True)
    K0 = (K0 + K0.T) / 2
    constraints, loss = case("log", rng, 9, 40)
    problem = LogDetKernelProblem(K0, constraints, loss, 4.0, normalize_gamma=False)
    solution = solved(problem)
    values, vectors = np.linalg.eigh(K0)
    F = vectors[:, 1:] * np.sqrt(values[1:])
    best, W = optimum(np.eye(8), np.einsum("nd,tnm,me->tde", F, matrices(constraints), F), loss, 4.0)
    learned = problem.learned(solution.multipliers)
    assert solution.certificate.objective == pytest.approx(best, rel=1e-8)
    np.testing.assert_allclose(learned.block, F @ W @ F.T, atol=1e-4)
    np.testing.assert_allclose(learned.block @ np.ones(9), 0.0, atol=1e-9)
    np.testing.assert_allclose(K0 + K0 @ learned.M @ K0, learned.block, atol=1e-9)


def hinge_program(K0, A, t, weight):
    """min weight sum psi + tr(K K0^-1) - log det K by Clarabel, psi as (8) or a sum of -x (t None).

    psi = min over p, q >= 0, p + q >= 1 - x, of 4/(3+t) p + 2/((1-t)(3+t)) q^2. log det K by the largest triangular Z with
    [[K, Z], [Z', diag(Z)]] psd: log det K >= sum log Z_ii (Ben-Tal & Nemirovski, 4.2).
    """
    n, c = len(K0), len(A)
    rows, columns = np.triu_indices(2 * n)
    order = np.lexsort((rows, columns))
    rows, columns = rows[order], columns[order]
    upper, lower = np.triu_indices(n), np.tril_indices(n)
    n_k, n_z, n_p = len(upper[0]), len(lower[0]), 0 if t is None else c
    place_k, place_z = {}, {}
    for e, (i, j) in enumerate(zip(*upper, strict=True)):
        place_k[i, j] = e
    for e, (i, j) in enumerate(zip(*lower, strict=True)):
        place_z[i, j] = n_k + e
    at_log, at_p, at_q = n_k + n_z, n_k + n_z + n, n_k + n_z + n + n_p
    size = at_q + n_p
    cost, quadratic = np.zeros(size), np.zeros(size)
    inverse = np.linalg.inv(K0)
    margin = np.zeros((c, size))
    for (i, j), e in place_k.items():
        double = 1.0 if i == j else 2.0
        cost[e] = double * inverse[i, j]
        margin[:, e] = double * A[:, i, j]
    cost[at_log : at_log + n] = -1.0
    if t is None:
        cost -= weight * margin.sum(axis=0)
    else:
        cost[at_p:at_q] = weight * 4 / (3 + t)
        if t < 1.0:
            quadratic[at_q:] = weight * 4 / ((1 - t) * (3 + t))
        else:
            cost[at_q:] = weight
    blocks, offsets, cones = [], [], []
    if t is not None:
        hinge = -margin
        hinge[np.arange(c), at_p + np.arange(c)] = hinge[np.arange(c), at_q + np.arange(c)] = -1.0
        positive = np.zeros((2 * c, size))
        positive[np.arange(2 * c), at_p + np.arange(2 * c)] = -1.0
        blocks += [hinge, positive]
        offsets += [-np.ones(c), np.zeros(2 * c)]
        cones.append(clarabel.NonnegativeConeT(3 * c))
    psd = np.zeros((len(rows), size))
    for e, (i, j) in enumerate(zip(rows, columns, strict=True)):
        double = 1.0 if i == j else np.sqrt(2.0)
        if j < n:
            psd[e, place_k[i, j]] = -double
        elif i < n and i >= j - n:
            psd[e, place_z[i, j - n]] = -double
        elif i == j:
            psd[e, place_z[i - n, i - n]] = -double
    blocks.append(psd)
    offsets.append(np.zeros(len(rows)))
    cones.append(clarabel.PSDTriangleConeT(2 * n))
    for i in range(n):
        cone = np.zeros((3, size))
        cone[0, at_log + i] = cone[2, place_z[i, i]] = -1.0
        blocks.append(cone)
        offsets.append(np.array([0.0, 1.0, 0.0]))
        cones.append(clarabel.ExponentialConeT())
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-9
    system = sparse.csc_matrix(np.vstack(blocks))
    program = clarabel.DefaultSolver(
        sparse.diags(quadratic).tocsc(), cost, system, np.concatenate(offsets), cones, settings
    )
    found = program.solve()
    # Rounding may keep it from the last digit: it is compared to fewer.
    assert found.status in (clarabel.SolverStatus.Solved, clarabel.SolverStatus.AlmostSolved)
    return found.obj_val - n + np.linalg.slogdet(K0)[1]


@pytest.mark.parametrize("name", ["linear", "hoi"])
def test_the_optimum_is_that_of_a_conic_program(name, rng):
    K0 = kernel(rng, 6)
    constraints, loss = case(name, rng, 6, 12)
    gamma = 0.05 if name == "linear" else 3.0
    solution = solved(LogDetKernelProblem(K0, constraints, loss, gamma, normalize_gamma=False))
    exact = hinge_program(K0, matrices(constraints), None if name == "linear" else loss.t, gamma)
    assert solution.certificate.objective == pytest.approx(exact, rel=1e-6, abs=1e-7)


@pytest.mark.parametrize("n, c, gamma", [(5, 10, 0.5), (7, 25, 3.0), (7, 25, 100.0)])
def test_the_hinge_itself_is_solved_to_its_own_gap(n, c, gamma, rng):
    """Against a conic program of the hinge; its multipliers are in [-w, 0], as a smoothed one's are not."""
    K0, constraints = kernel(rng, n), ConstraintSet.triplets(n, triplets(rng, n, c))
    solution = solved(LogDetKernelProblem(K0, constraints, HingeLoss(), gamma, normalize_gamma=False), tol=1e-8)
    exact = hinge_program(K0, matrices(constraints), 1.0, gamma)
    assert solution.certificate.objective == pytest.approx(exact, rel=1e-6, abs=1e-7)
    assert solution.certificate.bound <= exact * (1 + 1e-7)
    assert (solution.multipliers <= 0).all() and (solution.multipliers >= -gamma).all()
    learned = LogDetKernelProblem(K0, constraints, HingeLoss(), gamma).learned(solution.multipliers).block
    assert objective(learned, K0, matrices(constraints), HingeLoss(), gamma) == pytest.approx(exact, rel=1e-6)


@pytest.mark.parametrize("draw", [0, 2, 3])
def test_a_dual_whose_steps_gain_nothing_is_left_for_the_primal(draw):
    """A multiplier at -w to rounding promises the same rise at every step: it had taken all 200, to gaps of 1.1e-8 to 1.4e-8."""
    for n, c, gamma in ((5, 10, 0.5), (7, 25, 3.0), (7, 25, 100.0)):
        rng = np.random.default_rng(draw)
        K0, constraints = kernel(rng, n), ConstraintSet.triplets(n, triplets(rng, n, c))
        problem = LogDetKernelProblem(K0, constraints, HingeLoss(), gamma, normalize_gamma=False)
        solved(problem, tol=1e-8)


@pytest.mark.parametrize("share", [1e-15, 1e-14])
def test_the_central_path_ends_where_all_that_is_left_is_rounding(share, rng):
    """Of equal distances that are over their bounds by rounding alone F is 1e-28: it had taken all 200 steps there."""
    i, j = np.triu_indices(5, 1)
    constraints = ConstraintSet.distances(5, np.stack([i, j], 1))
    loss = ItmlLoss(np.arange(10) % 2 == 0, 2 * (1 - share), 2 * (1 + share))
    rows = np.linalg.qr(rng.normal(size=(5, 5)))[0]
    problem = LogDetMetricProblem(rows, constraints, loss, 1e3, normalize_gamma=False)
    end = central_path(problem, np.zeros(10), problem.gamma, tol=1e-9, max_iter=200, watch=Watch())
    assert end.outcome is Outcome.STALLED and end.n_iter < 50
    assert abs(end.certificate.objective) < 1e-24


@pytest.mark.parametrize("gamma", [3.0, 100.0])
def test_a_smoothed_hinge_whose_primal_takes_long_is_solved_on_the_dual(gamma, rng, monkeypatch):
    """By ever narrower neighbors of it, to the gap of the loss itself. Against scipy."""
    monkeypatch.setattr("dkl.solvers.logdet.solve.MOST_BENT", 1)
    K0, constraints, watch = kernel(rng, 7), ConstraintSet.triplets(7, triplets(rng, 7, 25)), Watch()
    problem = LogDetKernelProblem(K0, constraints, SmoothedHingeLoss(0.5), gamma, normalize_gamma=False)
    solution = solved(problem, tol=1e-7, watch=watch)
    exact, _ = optimum(K0, matrices(constraints), SmoothedHingeLoss(0.5), gamma)
    assert solution.method == "primal, dual"
    assert solution.certificate.bound <= exact * (1 + 1e-7)
    assert solution.certificate.objective == pytest.approx(exact, rel=1e-6)
    assert [row["iteration"] for row in watch.history] == sorted(row["iteration"] for row in watch.history)
    limited = solve_logdet(problem, max_iter=2)
    assert limited.outcome is Outcome.ITERATION_LIMIT
    assert limited.certificate.bound <= exact * (1 + 1e-7) <= limited.certificate.objective * (1 + 2e-7)


@pytest.mark.parametrize("loss", [SmoothedHingeLoss(), HingeLoss()], ids=["smoothed", "corner"])
def test_a_hinge_of_margins_that_are_huge_at_k0_is_solved(loss):
    """200 steps of the primal prove nothing of the one, and of the other a first width of 0.5 stalls."""
    rng = np.random.default_rng(5)
    K0, constraints = 300.0 * kernel(rng, 8), ConstraintSet.triplets(8, triplets(rng, 8, 30))
    problem = LogDetKernelProblem(K0, constraints, loss, 3.0, normalize_gamma=False)
    solution = solved(problem, tol=1e-6)
    learned = problem.learned(solution.multipliers).block
    told = objective(learned, K0, matrices(constraints), loss, 3.0)
    assert solution.certificate.objective == pytest.approx(told, rel=1e-6)
    assert solution.certificate.bound <= told * (1 + 1e-9)


def path_case(rng):
    return LogDetKernelProblem(kernel(rng, 10), ConstraintSet.triplets(10, triplets(rng, 10, 60)), LogLoss(), 1.0)


def test_a_hinge_that_hardly_moves_the_kernel_is_solved(rng):
    """Objectives of kernels that differ by rounding alone say nothing: the multipliers of each width are where the next begins."""
    K0, y = 4.0 * kernel(rng, 12, rank=12), np.arange(12) % 2
    i, j = np.triu_indices(12, 1)
    constraints = ConstraintSet.similarities(12, np.stack([i, j], 1), np.where(y[i] == y[j], 1, -1))
    found = solved(LogDetKernelProblem(K0, constraints, HingeLoss(), 1e-8), tol=1e-6)
    at_K0 = 1e-8 / 12 * float(np.maximum(1 - constraints.values(K0), 0).sum())
    assert found.certificate.objective == pytest.approx(at_K0, rel=1e-6)


def test_a_path_is_the_same_in_either_direction(rng):
    problem, gammas = path_case(rng), [2.0**-4, 1.0, 2.0**8, 2.0**10]
    up = solve_logdet_path(problem, gammas, tol=1e-10)
    down = solve_logdet_path(problem, gammas[::-1], tol=1e-10)[::-1]
    for gamma, one, other in zip(gammas, up, down, strict=True):
        cold = solved(problem.with_gamma(gamma))
        assert one.gamma == other.gamma == gamma
        assert one.certificate.objective == pytest.approx(cold.certificate.objective, rel=1e-9)
        assert other.certificate.objective == pytest.approx(cold.certificate.objective, rel=1e-9)
        np.testing.assert_allclose(one.margins, cold.margins, rtol=1e-3, atol=1e-3)


class PlainLogLoss:
    """The log-loss without the inverse of its slope: the primal is solved."""

    lowest = 0.0
    value, first, second = LogLoss.value, LogLoss.first, LogLoss.second


def grown_case(rng):
    """A kernel that has to grow along few directions: classes that lie within each other, drawn apart."""
    n, y = 60, np.arange(60) % 3
    X = rng.normal(size=(n, 8)) + 0.3 * np.eye(8)[y]
    K0 = 0.05 * (X @ X.T) + 1e-2 * np.eye(n)
    three = np.array(
        [(i, rng.choice(np.flatnonzero(y == y[i])), rng.choice(np.flatnonzero(y != y[i]))) for i in range(n)]
    )
    three = three[three[:, 0] != three[:, 1]]
    return lambda loss: LogDetKernelProblem(K0, ConstraintSet.triplets(n, three), loss, 1.0)


@pytest.mark.parametrize("gammas", [[2.0**8], [1.0, 2.0**8], [2.0**8, 1.0]], ids=["cold", "up", "down"])
def test_the_dual_and_the_primal_find_the_same_kernel(gammas, rng):
    of = grown_case(rng)
    dual, primal = (solve_logdet_path(of(loss), gammas, tol=1e-9)[-1] for loss in (LogLoss(), PlainLogLoss()))
    for one, other in ((dual, primal), (primal, dual)):
        assert one.outcome is Outcome.SOLVED
        assert one.certificate.bound <= other.certificate.objective * (1 + 1e-12)
    np.testing.assert_allclose(dual.margins, primal.margins, rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize("scale", but_for([100.0], [1e-6, 100.0]))
def test_kernels_far_from_the_scale_of_the_loss_take_few_steps(scale):
    """Slopes of -2 or of 0 to rounding at K0: from there Newton's method on the primal takes 168 steps at the larger scale."""
    rng = np.random.default_rng(1)
    constraints, K0 = ConstraintSet.triplets(8, triplets(rng, 8, 30)), scale * kernel(rng, 8)
    solution = solved(LogDetKernelProblem(K0, constraints, LogLoss(), 1e3), tol=1e-7)
    weight = 1e3 / len(constraints.points)
    best, _ = optimum(K0, matrices(constraints), LogLoss(), weight)
    assert solution.certificate.bound <= best * (1 + 1e-9)
    assert solution.certificate.objective <= best * (1 + 1e-7)
    assert solution.n_iter < 60


@pytest.mark.parametrize("seed", but_for([9, 12, 18], [9, 12, 15, 18]))
def test_contradictory_triplets_at_a_large_gamma_take_few_steps(seed):
    """Kernels that are large where many multipliers balance: each bent by itself, steps left the cone at a hundredth of their length."""
    rng = np.random.default_rng(seed)
    K0, constraints = kernel(rng, 10), ConstraintSet.triplets(10, triplets(rng, 10, 60))
    solution = solved(LogDetKernelProblem(K0, constraints, LogLoss(), 2.0**12), tol=1e-8)
    best, _ = optimum(K0, matrices(constraints), LogLoss(), 2.0**12 / len(constraints.points))
    assert solution.certificate.bound <= best * (1 + 1e-9)
    assert solution.certificate.objective <= best * (1 + 1e-8)
    assert solution.method == "dual"
    assert solution.n_iter < 60


@pytest.mark.parametrize("seed", but_for([4, 8, 10], [4, 8, 9, 10]))
def test_margins_that_were_huge_at_k0_have_a_way_back(seed):
    """Their multipliers are 0 to rounding, without a curvature of their own: without the secant 200 steps did not end it."""
    rng = np.random.default_rng(seed)
    K0, constraints = 300.0 * kernel(rng, 8), ConstraintSet.triplets(8, triplets(rng, 8, 30))
    solution = solved(LogDetKernelProblem(K0, constraints, LogLoss(), 1e4), tol=1e-7)
    best, _ = optimum(K0, matrices(constraints), LogLoss(), 1e4 / len(constraints.points))
    assert solution.certificate.bound <= best * (1 + 1e-9)
    assert solution.certificate.objective <= best * (1 + 1e-7)
    assert solution.method == "dual"
    assert solution.n_iter < 40


def test_a_loose_tolerance_takes_no_more_steps_than_a_tight_one():
    """Steps on the way were as loose as the last ones may be: of objectives that are large there, 134 steps where 20 led to 1e-6."""
    rng = np.random.default_rng(1)
    K0, constraints = kernel(rng, 40), ConstraintSet.triplets(40, triplets(rng, 40, 400))
    problem = LogDetKernelProblem(K0, constraints, LogLoss(), 2.0**16)
    assert solved(problem, tol=1e-3).n_iter <= solved(problem, tol=1e-6).n_iter + 2


def test_where_the_dual_takes_long_the_primal_ends_it(rng, monkeypatch):
    monkeypatch.setattr("dkl.solvers.logdet.solve.MOST_ASCENT", 3)
    watch = Watch()
    problem = path_case(rng).with_gamma(50.0)
    solution = solved(problem, tol=1e-8, watch=watch)
    assert solution.method == "dual, primal"
    assert [row["iteration"] for row in watch.history] == sorted(row["iteration"] for row in watch.history)
    monkeypatch.undo()
    alone = solved(problem, tol=1e-8)
    assert alone.method == "dual"
    assert solution.certificate.objective == pytest.approx(alone.certificate.objective, rel=1e-7)


def test_multipliers_grow_with_gamma_near_k0(rng):
    """Slopes hardly change there: without it each doubling of gamma takes a step, five here."""
    first, second = solve_logdet_path(path_case(rng), [2.0**-14, 2.0**-10])
    assert second.n_iter <= 1 and second.certificate.relative_gap <= 1e-6
    assert first.gamma < second.gamma


@pytest.mark.parametrize("towards", [1, -1], ids=["up", "down"])
def test_two_solutions_lead_on_to_the_next(towards, rng):
    """By octaves: a fifth less of the steps of a path whose gammas each know the last alone, and the same optima."""
    problem, gammas = grown_case(rng)(LogLoss()), [2.0**e for e in range(-8, 17)][::towards]
    led, alone = solve_logdet_path(problem, gammas), []
    for gamma in gammas:
        alone.append(solve_logdet(problem.with_gamma(gamma), start=alone[-1] if alone else None))
    for one, other in zip(led, alone, strict=True):
        assert one.outcome is other.outcome is Outcome.SOLVED
        assert one.certificate.bound <= other.certificate.objective * (1 + 1e-10)
        assert other.certificate.bound <= one.certificate.objective * (1 + 1e-10)
    assert sum(one.n_iter for one in led) < 0.8 * sum(one.n_iter for one in alone)


@pytest.mark.parametrize("wrong", ["signs", "gamma", "nan", "outside"])
def test_two_solutions_that_lead_nowhere_are_left(wrong, rng):
    problem = path_case(rng)
    earlier, start = solve_logdet_path(problem, [1.0, 2.0])
    changes = {
        "signs": {"multipliers": -earlier.multipliers},
        "gamma": {"gamma": start.gamma},
        "nan": {"multipliers": np.full_like(earlier.multipliers, np.nan)},
        "outside": {"multipliers": 1e-9 * earlier.multipliers},
    }
    at = problem.with_gamma(4.0)
    found = solve_logdet(at, start=start, earlier=replace(earlier, **changes[wrong]), tol=1e-9)
    assert found.outcome is Outcome.SOLVED
    assert found.certificate.objective == pytest.approx(solved(at).certificate.objective, rel=1e-8)
    with pytest.raises(InputError, match="earlier"):
        solve_logdet(at, start=start, earlier=replace(earlier, multipliers=earlier.multipliers[:-1]))


def test_a_start_that_holds_no_slopes_is_left(rng):
    problem = path_case(rng)
    before = solved(problem)
    wrong = replace(before, multipliers=-before.multipliers)
    found = solved(problem.with_gamma(4.0), start=wrong)
    assert found.certificate.objective == pytest.approx(solved(problem.with_gamma(4.0)).certificate.objective, rel=1e-9)


@pytest.mark.parametrize("region", ["local", "frobenius"])
@pytest.mark.parametrize("stop", ["decrement", "gradient"])
def test_other_regions_and_stops_come_to_the_same_rest(region, stop, rng):
    problem = path_case(rng).with_gamma(50.0)
    rested = solve_logdet(problem, region=region, stop=stop, tol=1e-9 if stop == "decrement" else 1e-5)
    assert rested.outcome is Outcome.STATIONARY
    assert rested.certificate.objective == pytest.approx(solved(problem).certificate.objective, rel=1e-8)


def test_direct_and_iterative_steps_lead_to_the_same_optimum(rng):
    for name in ("log", "lmnn", "itml"):
        constraints, loss = case(name, rng, 9, 40)
        problem = LogDetKernelProblem(kernel(rng, 9), constraints, loss, 20.0)
        one, other = solved(problem, solver="pcg"), solved(problem, solver="direct")
        assert (one.solver, other.solver) == ("pcg", "direct")
        assert one.certificate.objective == pytest.approx(other.certificate.objective, rel=1e-9)
        np.testing.assert_allclose(one.margins, other.margins, rtol=1e-3, atol=1e-3)


def test_a_direct_solve_that_does_not_fit_is_refused_and_auto_does_without(monkeypatch, rng):
    problem = path_case(rng)
    assert solved(problem.with_gamma(2.0**10)).solver in ("auto", "direct")
    monkeypatch.setattr("dkl.problems.logdet.core.DIRECT_BYTES", 0)
    assert solved(problem.with_gamma(2.0**10)).solver == "pcg"
    with pytest.raises(MemoryBudgetError, match="too many active"):
        solve_logdet(problem, solver="direct")


@pytest.mark.parametrize(
    "options", [{"solver": "dual"}, {"stop": "never"}, {"region": "box"}, {"tol": -1.0}, {"max_iter": -1}]
)
def test_unknown_options_are_refused(options, rng):
    with pytest.raises(InputError, match=next(iter(options))):
        solve_logdet(path_case(rng), **options)


@pytest.mark.parametrize("options", [{"stop": "gradient"}, {"region": "frobenius"}])
def test_what_takes_a_smooth_loss_is_refused_of_a_hinge(options, rng):
    constraints = ConstraintSet.triplets(6, triplets(rng, 6, 9))
    with pytest.raises(InputError, match="stop or region"):
        solve_logdet(LogDetKernelProblem(kernel(rng, 6), constraints, HingeLoss(), 1.0), **options)


@pytest.mark.parametrize("gamma", [2.0**-12, 2.0**16])
def test_contradictory_triplets_and_a_nearly_singular_kernel_end_with_a_certificate(gamma, rng):
    three = triplets(rng, 8, 15)
    constraints = ConstraintSet.triplets(8, np.concatenate([three, three[:, [0, 2, 1]]]))
    K0 = kernel(rng, 8, rank=8)
    values, vectors = np.linalg.eigh(K0)
    K0 = (vectors * np.concatenate([[1e-11], values[1:]])) @ vectors.T
    solution = solve_logdet(LogDetKernelProblem((K0 + K0.T) / 2, constraints, LogLoss(), gamma), tol=1e-6)
    assert solution.outcome is Outcome.SOLVED
    # Contradictions cost log 2 each at least, by convexity, whatever K is.
    assert solution.certificate.bound >= (1 - 1e-6) * gamma / len(np.unique(three)) * len(three) * 2 * np.log(2)


@pytest.mark.parametrize("gamma", [1e155, 1e300])
def test_nothing_is_proven_where_forces_overflow(gamma, rng):
    """(gamma psi')^2 is beyond doubles: the decrement is a NaN, which is no proof."""
    constraints, loss = case("log", rng)
    solution = solve_logdet(LogDetKernelProblem(kernel(rng), constraints, loss, gamma), tol=1e-6)
    assert solution.outcome is not Outcome.SOLVED
    assert solution.certificate.relative_gap > 1e-6


@pytest.mark.parametrize(("loss", "scale"), [(LogLoss(), 1e16), (LogLoss(), 1e40), (SmoothedHingeLoss(), 1e20)])
def test_kernels_that_only_rounding_is_left_of_end_with_what_is_proven(loss, scale, rng):
    """No step keeps K0^-1 + U positive definite, or the direct step's system: an outcome, and no bound above the objective."""
    constraints = ConstraintSet.triplets(12, triplets(rng, 12, 200))
    problem = LogDetKernelProblem(scale * kernel(rng, 12, rank=12), constraints, loss, 16.0)
    solution = solve_logdet(problem, tol=1e-6)
    proven = solution.certificate
    assert solution.outcome is not Outcome.SOLVED or proven.relative_gap <= 1e-6
    assert np.isfinite(proven.objective) and proven.bound <= proven.objective * (1 + 1e-9)


def test_ends_have_names_and_certificates(rng):
    problem = path_case(rng).with_gamma(2.0**12)
    limited = solve_logdet(problem, max_iter=1)
    assert limited.outcome is Outcome.ITERATION_LIMIT
    assert 0 <= limited.certificate.bound < solved(problem).certificate.objective < limited.certificate.objective
    watch = Watch([lambda row: row["iteration"] == 2])
    stopped = solve_logdet(problem, watch=watch)
    assert (stopped.outcome, stopped.n_iter) == (Outcome.STOPPED, 2)
    assert [row["iteration"] for row in watch.history] == [0, 1, 2]
    assert watch.history[-1]["objective"] == stopped.certificate.objective
    assert solve_logdet(problem, watch=Watch(time_limit=0.0)).outcome is Outcome.TIME_LIMIT
    assert solve_logdet(problem, tol=1e-30).outcome in (Outcome.STALLED, Outcome.SOLVED)


@pytest.mark.parametrize("kind", ["inverted", "factored", "metric"])
def test_the_plan_bounds_the_memory_that_a_fit_takes(kind, rng):
    n, d = 260, 20
    X = rng.normal(size=(n, d if kind == "metric" else n - 60))
    constraints = ConstraintSet.similarities(n, pairs(rng, n, 1500), rng.choice([-1, 1], 1500))
    K0 = X @ X.T / X.shape[1] + (np.eye(n) if kind == "inverted" else 0.0)
    rank = None if kind == "inverted" else X.shape[1]
    plan = logdet_plan(len(constraints.points), len(constraints), len(constraints.rows), rank=rank)
    solve_logdet(path_case(rng))
    tracemalloc.start()
    try:
        if kind == "metric":
            problem = LogDetMetricProblem(X, constraints, SmoothedHingeLoss(), 1.0)
        else:
            problem = LogDetKernelProblem(K0, constraints, SmoothedHingeLoss(), 1.0)
        multipliers = solve_logdet(problem, max_iter=3).multipliers
        problem.learned(multipliers)
        problem.handed_out(multipliers, 0.0)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak <= plan.bytes
    bare = plan.bytes - direct_bytes(len(constraints), len(constraints.rows))
    assert kind == "metric" or bare < 2.0 * peak


def test_residuals_whose_squares_underflow_end_the_step():
    z, left = np.zeros(3), np.full(3, 1e-120)
    assert _reduce(lambda y: y, lambda r: 1e-30 * r, z, left, 0.0, 10) == 1
    assert (z == 0).all() and (left == 1e-120).all()


def test_a_loss_of_infinite_value_at_the_start_is_refused(rng):
    X = rng.normal(size=(4, 2))[[0, 0, 1, 2]]
    loss = ItmlLoss(np.array([False]), 1.0, 2.0)
    with pytest.raises(InputError, match="infinite at K0"):
        solve_logdet(LogDetMetricProblem(X, ConstraintSet.distances(4, [[0, 1]]), loss, 1.0))
    other = solve_logdet(path_case(rng))
    with pytest.raises(InputError, match="of another problem"):
        solve_logdet(LogDetMetricProblem(X, ConstraintSet.distances(4, [[0, 2]]), loss, 1.0), start=other)


def test_a_solved_kernel_is_proven_by_its_own_multipliers():
    """By the least objective of one step and the highest bound of another it was solved too early, and nobody could verify it."""
    rng = np.random.default_rng(38)
    K0 = rbf_kernel(rng.standard_normal((12, 1)))
    problem = LogDetKernelProblem(K0, *case("log", rng, 12, 80), 10.0, normalize_gamma=False)
    found = solve_logdet(problem, tol=1e-3)
    point = problem.point(found.multipliers)
    dual = problem.dual_objective(point, problem.dual_margins(found.multipliers))
    assert (found.outcome, found.method) == (Outcome.SOLVED, "dual")
    assert problem.certificate(point.objective, dual).relative_gap <= 1e-3
