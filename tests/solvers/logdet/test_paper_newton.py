"""TRIN as printed: (6), (7), Table 1, rho_k and Theorem 1, against dense systems and scipy's optimum."""

import numpy as np
import pytest
from logdet_cases import case, kernel, matrices, objective, optimum, triplets

from dkl.errors import InputError
from dkl.problems.logdet.constraints import ConstraintSet
from dkl.problems.logdet.losses import HingeLoss
from dkl.problems.logdet.problem import LogDetKernelProblem, LogDetMetricProblem
from dkl.solvers.logdet.paper import _Iterate, _table1, paper_newton
from dkl.solvers.logdet.solve import solve_logdet, solve_logdet_path
from dkl.solvers.watch import Outcome, Watch


def run(problem, tol=1e-9, max_iter=300, **more):
    form = problem.matrix_form()
    seen = []
    options = {"lowest": problem.lowest, "certify": problem.certificate, "watch": Watch([seen.append]), **more}
    return paper_newton(form, form.prior, tol=tol, max_iter=max_iter, **options), seen


@pytest.mark.parametrize("name", ["log", "lmnn", "linear", "itml", "hoi"])
def test_the_optimum_is_scipys(name, rng):
    K0 = kernel(rng)
    constraints, loss = case(name, rng)
    gamma = 0.02 if name == "linear" else 2.0
    problem = LogDetKernelProblem(K0, constraints, loss, gamma, normalize_gamma=False)
    found = solve_logdet(problem, solver="paper", tol=1e-7, max_iter=300)
    best, K = optimum(K0, matrices(constraints), loss, gamma)
    assert (found.outcome, found.solver, found.method) == (Outcome.SOLVED, "paper", "primal")
    assert found.certificate.objective == pytest.approx(best, rel=1e-8)
    assert found.certificate.bound <= best + 1e-9 * abs(best)
    np.testing.assert_allclose(problem.learned(found.multipliers).block, K, atol=1e-4)


def test_a_metric_and_a_singular_kernel(rng):
    X, W0 = rng.normal(size=(10, 4)), kernel(rng, 4)
    constraints, loss = case("itml", rng, 10)
    metric = LogDetMetricProblem(X, constraints, loss, 2.0, W0=W0, normalize_gamma=False)
    A = np.einsum("nd,tnm,me->tde", X, matrices(constraints), X)
    best, _ = optimum(W0, A, loss, 2.0)
    assert solve_logdet(metric, solver="paper", tol=1e-7).certificate.objective == pytest.approx(best, rel=1e-8)
    # K+ in the place of K^-1: footnote 2. The kernel of a centered factor keeps its null space.
    K0 = kernel(rng, 9, rank=5)
    constraints, loss = case("log", rng, 9)
    singular = LogDetKernelProblem(K0, constraints, loss, 2.0)
    found = solve_logdet(singular, solver="paper", tol=1e-7)
    assert found.outcome is Outcome.SOLVED
    assert found.certificate.objective == pytest.approx(solve_logdet(singular).certificate.objective, rel=1e-5)


def test_table_1_solves_the_newton_equation_to_6_or_ends_at_the_boundary(rng):
    K0 = kernel(rng, 6)
    constraints, loss = case("log", rng, 6, 20)
    form = LogDetKernelProblem(K0, constraints, loss, 5.0, normalize_gamma=False).matrix_form()
    A, at = matrices(constraints), _Iterate.of(form, K0)
    margins = np.einsum("tij,ij->t", A, K0)
    G = np.einsum("t,tij->ij", 5.0 * loss.first(margins), A)  # K0^-1 - K^-1 is zero here
    inverse = np.linalg.inv(K0)

    def hessian(D):
        inner = 5.0 * loss.second(margins) * np.einsum("tij,ij->t", A, D)
        return np.einsum("t,tij->ij", inner, A) + inverse @ D @ inverse

    size = np.linalg.norm(G)
    goal = min(0.5, np.sqrt(size)) * size
    D, HD, products, at_edge = _table1(form, at, G, K0 @ G @ K0, goal, np.inf)
    assert not at_edge and products >= 1
    np.testing.assert_allclose(HD, hessian(D), rtol=1e-8, atol=1e-10)
    assert np.linalg.norm(hessian(D) - G) < goal
    radius = 0.3 * np.linalg.norm(D)
    short, H_short, _, at_edge = _table1(form, at, G, K0 @ G @ K0, goal, radius)
    assert at_edge and np.linalg.norm(short) == pytest.approx(radius, rel=1e-12)
    np.testing.assert_allclose(H_short, hessian(short), rtol=1e-8, atol=1e-10)
    model = -np.sum(G * short) + np.sum(short * hessian(short)) / 2
    assert model < 0


def test_steps_that_do_not_lower_the_objective_are_taken_back(rng):
    """At a large gamma the first steps leave the cone; the objective of the kept kernels falls all the way."""
    K0 = kernel(rng, 8)
    constraints, loss = case("log", rng, 8, 40)
    problem = LogDetKernelProblem(K0, constraints, loss, 200.0, normalize_gamma=False)
    end, rows = run(problem, tol=1e-6)
    objectives = np.array([row["objective"] for row in rows])
    assert end.outcome is Outcome.STATIONARY and (np.diff(objectives) <= 1e-12 * objectives[:-1]).all()
    assert (np.diff(objectives) == 0).any()  # some were taken back
    best, _ = optimum(K0, matrices(constraints), loss, 200.0)
    assert objectives[-1] == pytest.approx(best, rel=1e-7)
    # Every gap on the way is proven: the dual point is of any K.
    assert all(row["objective"] - row["gap"] <= best + 1e-9 * abs(best) for row in rows)


@pytest.mark.parametrize(("power", "rate"), [(0.5, 1.4), (1.0, 1.9)], ids=["superlinear", "quadratic"])
def test_theorem_1_the_rate_near_the_optimum(power, rate, rng):
    """The gradient falls as its power 3/2 near the optimum, as nu = |G|^1/2, and as its square by nu = |G|; so does the decrement."""
    for name in ("log", "hoi"):
        constraints, loss = case(name, rng, 8, 30)
        problem = LogDetKernelProblem(kernel(rng), constraints, loss, 3.0, normalize_gamma=False)
        _, rows = run(problem, tol=1e-10, forcing_power=power)
        sizes = np.array([row["decrement"] for row in rows])
        near = sizes[sizes < 0.05]
        assert len(near) >= 3 and near[-1] < 1e-9
        assert (near[1:] <= 10 * near[:-1] ** rate + 1e-12).all()  # of which 1e-12 is rounding


def test_a_path_begins_where_the_gamma_before_ended(rng):
    constraints, loss = case("log", rng, 8, 40)
    problem = LogDetKernelProblem(kernel(rng, 8), constraints, loss, 1.0)
    gammas = [1.0, 4.0, 16.0, 64.0]
    along = solve_logdet_path(problem, gammas, solver="paper", tol=1e-6, max_iter=300)
    alone = solve_logdet(problem.with_gamma(64.0), solver="paper", tol=1e-6, max_iter=300)
    assert along[-1].certificate.objective == pytest.approx(alone.certificate.objective, rel=1e-7)
    assert along[-1].n_iter < alone.n_iter


@pytest.mark.parametrize("smallest", [1e-7, 1e-9, 1e-11])
def test_a_kernel_near_singular_is_solved_to_rounding(smallest, rng):
    """Steps that differ from their transposes by rounding had let F fall without end, with a gap of 1e-3 and more.

    |K0^-1| leaves more of G than any tolerance, so that it ends as stalled, within a few steps and near the proven optimum.
    """
    basis = np.linalg.qr(rng.normal(size=(12, 12)))[0]
    K0 = (basis * np.geomspace(1, smallest, 12)) @ basis.T
    constraints, loss = case("log", rng, 12, 40)
    problem = LogDetKernelProblem(K0, constraints, loss, 2.0, normalize_gamma=False)
    found = solve_logdet(problem, solver="paper", tol=1e-12, max_iter=500)
    assert found.outcome is Outcome.STALLED and found.n_iter < 60
    assert found.certificate.relative_gap <= 1e-6
    assert found.certificate.objective == pytest.approx(solve_logdet(problem, tol=1e-9).certificate.objective, rel=1e-6)


def test_limits_and_what_is_refused(rng):
    K0 = kernel(rng, 8)
    constraints, loss = case("log", rng, 8, 40)
    problem = LogDetKernelProblem(K0, constraints, loss, 200.0, normalize_gamma=False)
    found = solve_logdet(problem, solver="paper", tol=1e-9, max_iter=2)
    assert found.outcome is Outcome.ITERATION_LIMIT and found.n_iter == 2
    learned = problem.learned(found.multipliers).block
    at_least = objective(learned, K0, matrices(constraints), loss, 200.0)
    assert found.certificate.objective == pytest.approx(at_least, rel=1e-8)
    with pytest.raises(InputError, match="its own region and stop"):
        solve_logdet(problem, solver="paper", stop="gradient")
    corner = LogDetKernelProblem(K0, ConstraintSet.triplets(8, triplets(rng, 8, 9)), HingeLoss(), 1.0)
    with pytest.raises(InputError, match="second derivatives"):
        solve_logdet(corner, solver="paper")
