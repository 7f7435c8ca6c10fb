"""The low-rank solver against the conic optimum, from points where it must escape, and for its bits."""

from typing import Any

import clarabel
import numpy as np
import pytest
from pairwise_cases import small_problem
from repeats import but_for
from scipy import sparse

from dkl.linalg.eigen.principal_coordinates import truncate_rank
from dkl.problems.pairwise import low_rank as pairwise_factored
from dkl.problems.pairwise.certificate import certify
from dkl.problems.pairwise.low_rank import FactoredPairwise
from dkl.solvers.pairwise.descent import minimize
from dkl.solvers.pairwise.low_rank import FactoredSolution
from dkl.solvers.pairwise.low_rank import solve_to_gap as solve
from dkl.solvers.pairwise.rank import minimize_over_mixing
from dkl.solvers.watch import Outcome, Watch


def solve_to_gap(laplacian, targets, gamma, start=None, *, threads=1, **options) -> FactoredSolution:
    """The solver on a problem of its own."""
    problem = FactoredPairwise(laplacian, targets, gamma, threads=threads)
    try:
        return solve(problem, start, **options)
    finally:
        problem.close()


def conic_optimum(laplacian: sparse.csr_array, targets: sparse.csr_array, gamma: float) -> float:
    """min over psd K of (1) by an interior point method: x = svec(K), columns of the upper triangle."""
    n = laplacian.shape[0]
    columns, rows = np.tril_indices(n)  # rows <= columns: the upper triangle, column by column
    scale = np.where(rows == columns, 1.0, np.sqrt(2.0))
    wanted = np.full((n, n), np.nan)
    left = np.repeat(np.arange(n), np.diff(targets.indptr))
    wanted[left, targets.indices] = targets.data
    target = wanted[rows, columns]
    held = ~np.isnan(target)
    # An off-diagonal pair is in the sum twice: 2 (K_ij - T_ij)^2 = (x - sqrt(2) T_ij)^2.
    quadratic = sparse.diags(np.where(held, gamma, 0.0)).tocsc()
    linear = scale * laplacian.toarray()[rows, columns] - gamma * np.where(held, scale * target, 0.0)
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-10
    m = rows.size
    cones = [clarabel.PSDTriangleConeT(n)]
    solver = clarabel.DefaultSolver(quadratic, linear, -sparse.eye(m, format="csc"), np.zeros(m), cones, settings)
    return float(solver.solve().obj_val + 0.5 * gamma * np.sum((scale * target)[held] ** 2))


@pytest.mark.parametrize("case", range(10))
def test_the_conic_optimum_is_reached_and_the_bound_holds(case: int) -> None:
    rng = np.random.default_rng(case)
    laplacian, targets = small_problem(rng, int(rng.integers(6, 26)))
    gamma = float(10.0 ** rng.uniform(-1, 2))
    found = solve_to_gap(laplacian, targets, gamma, target_gap=1e-7, seed=case)
    factor, certificate, rows = found.factor, found.certificate, found.history
    assert found.outcome is Outcome.SOLVED and found.n_iter == len(rows) == rows[-1]["iteration"]
    optimum = conic_optimum(laplacian, targets, gamma)
    assert certificate.objective == pytest.approx(optimum, rel=1e-6)
    assert certificate.objective - optimum <= certificate.gap + 1e-7 * optimum
    assert certificate.relative_gap < 1e-5
    # The same bound by the plain certificate, from the kernel alone.
    kernel = factor @ factor.T
    left = np.repeat(np.arange(len(kernel)), np.diff(targets.indptr))
    entries = kernel[left, targets.indices]
    gradient = laplacian + sparse.csr_array(
        (gamma * (entries - targets.data), targets.indices, targets.indptr), shape=targets.shape
    )
    plain = certify(gradient, targets, gamma, entries, float(np.sum(kernel * laplacian.toarray())))
    assert plain.objective == pytest.approx(certificate.objective, rel=1e-9)
    assert plain.min_eigenvalue == pytest.approx(certificate.min_eigenvalue, abs=1e-6)
    assert rows[-1]["relative_gap"] == certificate.relative_gap


def test_a_stationary_point_of_too_low_rank_is_left(rng: np.random.Generator) -> None:
    laplacian, targets = small_problem(rng, 24)
    problem = FactoredPairwise(laplacian, targets, 10.0)
    alone = minimize(problem, problem.padded(rng.standard_normal((24, 1))), tol=1e-9, max_iter=3000)
    assert alone.gradient_norm < 1e-6
    start = alone.v[:, :1]
    found = solve_to_gap(laplacian, targets, 10.0, start, target_gap=1e-6, rank=1)
    rows = found.history
    assert found.outcome is Outcome.SOLVED
    assert found.certificate.objective < 0.99 * alone.objective
    assert rows[-1]["rank"] > 1
    objectives = [row["objective"] for row in rows]
    assert max(np.diff(objectives)) <= 1e-6 * objectives[0]


def test_a_start_of_high_rank_is_compressed(rng: np.random.Generator) -> None:
    laplacian, targets = small_problem(rng, 60)
    start = rng.standard_normal((60, 40)) / 6.0
    found = solve_to_gap(laplacian, targets, 10.0, start, target_gap=1e-5, rank=8)
    assert found.outcome is Outcome.SOLVED and found.certificate.relative_gap <= 1e-5
    assert found.history[0]["rank"] == 8 and found.factor.shape == (60, found.history[-1]["rank"])
    whole = truncate_rank(start, 40)
    np.testing.assert_allclose(whole @ whole.T, start @ start.T, atol=1e-12)


def test_the_mixing_never_raises_the_objective_and_drops_columns(rng: np.random.Generator) -> None:
    laplacian, targets = small_problem(rng, 30)
    problem = FactoredPairwise(laplacian, targets, 10.0)
    factor = rng.standard_normal((30, 12))
    before = problem.at(problem.padded(factor)).objective
    mixed = minimize_over_mixing(problem, factor)
    point = problem.at(problem.padded(mixed))
    assert point.objective <= before
    # Optimal over Q Y Q' with Y positive definite: S vanishes on the range.
    q = np.linalg.qr(mixed)[0]
    assert np.abs(q.T @ (problem.gradient_matrix(point) @ q)).max() < 1e-8


@pytest.mark.parametrize("threads", but_for([2], [2, 3]))
def test_the_bits_do_not_depend_on_the_number_of_threads(
    threads: int, rng: np.random.Generator, monkeypatch: Any
) -> None:
    monkeypatch.setattr(pairwise_factored, "LEAST_NNZ_FOR_THREADS", 0)
    laplacian, targets = small_problem(rng, 450)
    alone, found = (
        solve_to_gap(laplacian, targets, 10.0, target_gap=1e-3, max_iter=60, threads=count, seed=3)
        for count in (1, threads)
    )
    assert found.factor.tobytes() == alone.factor.tobytes()
    assert found.certificate.as_dict() == alone.certificate.as_dict()
    assert len(found.history) == len(alone.history)


def test_the_iteration_limit_ends_the_run(rng: np.random.Generator) -> None:
    laplacian, targets = small_problem(rng, 50)
    found = solve_to_gap(laplacian, targets, 50.0, target_gap=1e-12, max_iter=5)
    assert found.outcome is Outcome.ITERATION_LIMIT and found.n_iter == len(found.history) <= 7


@pytest.mark.parametrize("at", but_for([1, 30], [1, 3, 30]))
def test_a_callback_ends_the_run_with_the_best_so_far(at: int, rng: np.random.Generator) -> None:
    """Of the 60 steps or more that a proof of 1e-12 takes."""
    laplacian, targets = small_problem(rng, 50)
    seen: list = []

    def stop(row: dict) -> bool:
        seen.append(row)
        return len(seen) == at

    found = solve_to_gap(laplacian, targets, 50.0, target_gap=1e-12, watch=Watch([stop]))
    assert found.outcome is Outcome.STOPPED and seen == found.history and len(seen) == at
    assert [row["iteration"] for row in seen] == list(range(1, at + 1))
    optimum = conic_optimum(laplacian, targets, 50.0)
    assert 0 <= found.certificate.objective - optimum <= found.certificate.gap < np.inf


def test_the_warm_up_leaves_the_problem_as_it_is(rng: np.random.Generator) -> None:
    laplacian, targets = small_problem(rng, 20)
    problem = FactoredPairwise(laplacian, targets, 10.0)
    weaker = problem.with_gamma(1.0)
    weaker.at(weaker.padded(rng.standard_normal((20, 2))))
    assert (problem.gamma, weaker.gamma) == (10.0, 1.0) and problem.n_products == weaker.n_products == 1
    solve(problem, target_gap=1e-2, max_iter=3)
    assert problem.gamma == 10.0


class Flat(FactoredPairwise):
    """A problem whose preconditioned gradient vanishes after some steps, as one that underflows does."""

    steps = 0

    def preconditioner(self, width: int, seed: int = 0) -> Any:
        usual, steps, made = super().preconditioner(width, seed), self.steps, []

        class Vanishing:
            refresh = staticmethod(usual.refresh)

            @staticmethod
            def apply(v: np.ndarray, r: np.ndarray, size: float, out: np.ndarray) -> None:
                usual.apply(v, r, size, out)
                made.append(1)
                if len(made) > steps:
                    out[:] = 0.0

        return Vanishing


@pytest.mark.parametrize("steps", [0, 1, 3])
def test_a_preconditioned_gradient_of_zero_ends_the_descent(rng: np.random.Generator, steps: int) -> None:
    """Its size divides the next momentum."""
    problem = Flat(*small_problem(rng, 20), 1000.0)
    problem.steps = steps
    found = minimize(problem, problem.padded(rng.standard_normal((20, 3))), tol=0.0, max_iter=10)
    assert found.outcome is Outcome.SOLVED and found.n_iter == steps + 1 and found.gradient_norm > 0
    # From a random start, too, where it ends each of the weaker problems and all rounds. Of 20 points a round mixes
    # every direction, so that the optimum is found without descent, and rounding decides whether 1e-12 is met.
    ended = solve(problem, target_gap=1e-12, max_rounds=5)
    gap = ended.certificate.relative_gap
    assert 0 <= gap < 1e-7 and (ended.outcome is Outcome.SOLVED) == (gap <= 1e-12)
    optimum = conic_optimum(problem.laplacian, problem.targets, problem.gamma)
    assert ended.certificate.objective == pytest.approx(optimum, rel=1e-6)
