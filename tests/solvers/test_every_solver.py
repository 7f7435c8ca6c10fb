"""What all solvers share: a row of the history for each call of the callbacks, a stop at once, a time limit, honest gaps."""

from dataclasses import dataclass
from typing import Any

import logdet_cases
import numpy as np
import pytest
import qsdp_cases
from column_problems import kernel_columns, lasso_problem, targets
from pairwise_cases import random_problem as random_pairs
from repeats import but_for
from scipy.spatial.distance import cdist
from sklearn.metrics.pairwise import rbf_kernel
from svm_cases import Dense, problem, two_clouds

from dkl.linalg.rows.column_moments import add_moments, zero_moments
from dkl.problems.logdet.problem import LogDetKernelProblem
from dkl.problems.pairwise.low_rank import FactoredPairwise
from dkl.problems.pairwise.terms import target_matrix
from dkl.problems.regression.column_gram import CenteredGram, held_out
from dkl.problems.regression.column_lasso import ColumnLasso, largest_nu, output_problems
from dkl.problems.regression.column_ridge import ColumnFold
from dkl.solvers.kmeans import lloyd
from dkl.solvers.logdet.solve import solve_logdet
from dkl.solvers.pairwise.admm import Loop
from dkl.solvers.pairwise.descent import minimize
from dkl.solvers.pairwise.low_rank import solve_to_gap
from dkl.solvers.qsdp.low_rank import solve_low_rank
from dkl.solvers.regression.active_set import ActiveSet
from dkl.solvers.regression.coordinate_descent import CoordinateDescent
from dkl.solvers.regression.lasso_path import cross_validate, nu_path, solve_outputs, solve_path
from dkl.solvers.regression.paper import slkl
from dkl.solvers.svm.gradient import Accelerated
from dkl.solvers.svm.interior import interior_point
from dkl.solvers.svm.kernel_combination import combine
from dkl.solvers.svm.level import LevelMethod
from dkl.solvers.svm.refinement import refined
from dkl.solvers.svm.working_set import WorkingSets
from dkl.solvers.watch import Outcome, Watch


@dataclass
class Ended:
    """outcome; by how much the objective can be lowered at most, as claimed, and what it is lowered by to full accuracy."""

    outcome: Outcome
    claimed: float = 0.0
    missing: float = 0.0


def rng():
    return np.random.default_rng(20)


# -- the lasso on kernel columns ----------------------------------------------------------------------------------------


def columns():
    C, X = kernel_columns(rng(), "rbf", 80, 30, 0.4)
    return C, targets(rng(), X)


def lasso(solution, of: ColumnLasso):
    best = ActiveSet(tol=1e-12).solve(of).evaluation.objective
    found = of.evaluate(solution.weights)
    assert found.objective == pytest.approx(solution.evaluation.objective)
    return Ended(solution.outcome, solution.evaluation.gap, found.objective - best)


def by_lasso(solver):
    def run(watch):
        of = lasso_problem(*columns(), 1e-4)
        return lasso(solver.solve(of, watch=watch), of)

    return run


def by_outputs(watch):
    C, y = columns()
    of = [lasso_problem(C, y, 1e-4), lasso_problem(C, y**2, 1e-4)]
    ended = [lasso(*pair) for pair in zip(solve_outputs(of, ActiveSet(), watch=watch), of, strict=True)]
    return next((one for one in ended if one.outcome is not Outcome.SOLVED), ended[0])


def by_paper(watch):
    C, y = columns()
    of, draws = lasso_problem(C, y, 1e-3), np.random.default_rng(0)
    state = slkl(C, y, of.lam, of.nu, tol=1e-4, draw=lambda: draws.integers(30), watch=watch)
    best = ActiveSet(tol=1e-12).solve(of).evaluation.objective
    return Ended(state.outcome, np.inf, state.objectives[-1] - best)


def gram(folds=None):
    C, y = columns()
    moments = zero_moments(1 if folds is None else 3, 30, 1)
    add_moments(moments, C, np.column_stack([y, np.ones(len(y))]), folds)
    return moments


def by_path(watch):
    shared = CenteredGram.of(gram(), intercept=True)
    nus = nu_path(largest_nu(shared.cross, 1.0), 40)[:20]
    found = solve_path(lambda nu: output_problems(shared, 1.0, nu), nus, ActiveSet(), watch=watch)
    ended = [lasso(one, output_problems(shared, 1.0, nu)[0]) for nu, (one,) in zip(nus, found, strict=True)]
    return next((one for one in ended if one.outcome is not Outcome.SOLVED), ended[0])


def by_cross_validation(watch):
    folds = np.arange(80) % 3
    moments = gram(folds)
    parts = [ColumnFold(CenteredGram.of(held_out(moments, k), intercept=True), moments, k, 1.0) for k in range(3)]
    nus = nu_path(largest_nu(parts[0].rest.cross, 1.0), 60)[::2]
    found = cross_validate(parts, nus, ActiveSet(), watch=watch)
    assert found.best == np.argmin(found.errors.mean(axis=(1, 2))) and len(found.nus) >= 1
    return Ended(found.outcome)


# -- machines -----------------------------------------------------------------------------------------------------------


class Parted(Dense):
    """Of which parts are taken, in single precision where a kernel is not to be the exact one."""

    def __init__(self, K, dtype=np.float64):
        super().__init__(K.astype(dtype))
        self.dtype, self.fits = np.dtype(dtype), True

    def part(self, chosen):
        return Parted(self.K[np.ix_(chosen, chosen)], self.dtype)

    def roughly(self, v):
        return self.times(v)


def kernel_and_labels(n=150):
    X, y = two_clouds(rng(), n, d=2, apart=0.3)
    return rbf_kernel(X, gamma=0.5), y


def machine(point, outcome, gap=None):
    K, y = kernel_and_labels()
    of = problem(K, y, 10.0, 5.0)
    best = Accelerated(tol=1e-10).solve(of).point.objective
    assert (point.alpha >= 0).all() and (point.alpha <= of.C).all() and abs(of.y @ point.alpha) <= 1e-9 * of.C.sum()
    found = of.at(point.alpha)
    assert found.objective == pytest.approx(point.objective, rel=1e-6)
    return Ended(outcome, point.gap if gap is None else gap, found.objective - best)


def by_machine(solver):
    def run(watch):
        K, y = kernel_and_labels()
        of = problem(K, y, 10.0, 5.0)
        found = solver.solve(of if not isinstance(solver, WorkingSets) else of.with_kernel(Parted(K)), watch=watch)
        return machine(found.point, found.outcome)

    return run


def by_interior(watch):
    K, y = kernel_and_labels()
    found = interior_point(problem(K, y, 10.0, 5.0), 1e-9, watch=watch)
    return machine(found.point, found.outcome)


def by_refinement(watch):
    K, y = kernel_and_labels()
    of = problem(K, y, 10.0, 5.0)
    rounded = of.with_kernel(Dense(K.astype(np.float32).astype(np.float64)))
    found = refined(Accelerated(tol=5e-11).solve, rounded, of.kernel, 1e-10, watch=watch)
    return machine(found.point, found.outcome)


def by_combination(watch):
    K, y = kernel_and_labels()
    other = rbf_kernel(rng().standard_normal((150, 3)))
    of, parts = problem(K, y, 10.0, 5.0), [Dense(K), Dense(other)]
    found = combine(of, parts, Accelerated(tol=1e-7), watch=watch)
    best = combine(of, parts, Accelerated(tol=1e-9))
    there = Accelerated(tol=1e-10).solve(problem(found.theta[0] * K + found.theta[1] * other, y, 10.0, 5.0)).point
    return Ended(found.outcome, found.gap, best.solution.point.objective - there.objective)


# -- kernels of pairs ---------------------------------------------------------------------------------------------------


def factored():
    laplacian, must_link, cannot_link = random_pairs(rng(), 40)
    return FactoredPairwise(laplacian, target_matrix(40, must_link, cannot_link), 10.0)


def by_conjugate_gradients(watch):
    of = factored()
    found = minimize(of, of.padded(rng().standard_normal((40, 3))), tol=0.0, progress=1e-9, max_iter=500, watch=watch)
    return Ended(found.outcome)


def by_rank(watch):
    of = factored()
    found = solve_to_gap(of, target_gap=1e-7, watch=watch)
    best = solve_to_gap(of, target_gap=1e-9).certificate.objective
    assert found.factor.shape[0] == 40
    return Ended(found.outcome, found.certificate.gap, found.certificate.objective - best)


# -- kernels near a kernel ----------------------------------------------------------------------------------------------


def by_logdet(watch):
    K0 = logdet_cases.kernel(rng(), 10)
    constraints, loss = logdet_cases.case("log", rng(), 10, 60)
    of = LogDetKernelProblem(K0, constraints, loss, 1e3)
    found = solve_logdet(of, watch=watch)
    best = solve_logdet(of, tol=1e-11).certificate.objective
    assert found.gamma == of.gamma
    return Ended(found.outcome, found.certificate.gap, found.certificate.objective - best)


# -- quadratics over the psd cone ------------------------------------------------------------------------------------------


def by_low_rank(watch):
    of, _ = qsdp_cases.clusters(rng(), 8)
    found = solve_low_rank(of, tol=1e-9, face=4, watch=watch)
    best = solve_low_rank(of, tol=1e-12).certificate.objective
    return Ended(found.outcome, found.certificate.gap, found.certificate.objective - best)


# -- others -------------------------------------------------------------------------------------------------------------


class Rows:
    """Lloyd's steps on points in the plane, whose labels are their own digest."""

    def __init__(self):
        self.X = rng().standard_normal((300, 2))

    def step(self, centers):
        labels = np.array([cdist(self.X, own).argmin(axis=1) for own in centers])
        means = [[self.X[own == k].mean(axis=0) for k in range(len(centers[0]))] for own in labels]
        digests = np.array([[hash(own.tobytes()) & (2**64 - 1), 1] for own in labels], np.uint64)
        return type("Update", (), {"centers": np.array(means), "digests": digests})


def by_lloyd(watch):
    rows = Rows()
    found = lloyd(rows, rows.X[:12].reshape(2, 6, 2), max_iter=100, tol=0.0, watch=watch)
    assert found.n_iter.max() == len(found.history)
    return Ended(found.outcome)


def by_loop(watch):
    class Counter:
        lookahead, at = 1, 0

        def advance(self, steps):
            self.at += 1
            return [{"iteration": self.at, "converged": self.at == 9, "objective": 1.0 / self.at}]

        def recover(self):
            raise AssertionError

    return Ended(Loop(20, watch=watch).run(Counter()))


SOLVERS: dict[str, Any] = {
    "active set": by_lasso(ActiveSet()),
    "coordinate descent": by_lasso(CoordinateDescent()),
    "greedy Newton descent": by_lasso(CoordinateDescent("newton", "greedy")),
    "outputs": by_outputs,
    "algorithm as printed": by_paper,
    "path": by_path,
    "cross-validation": by_cross_validation,
    "accelerated": by_machine(Accelerated(tol=1e-9)),
    "gradient": by_machine(Accelerated(tol=1e-4, momentum=False, newton=False)),
    "level": by_machine(LevelMethod(tol=1e-4)),
    "working sets": by_machine(WorkingSets(Accelerated(tol=1e-9), smallest=0)),
    "interior point": by_interior,
    "refinement": by_refinement,
    "combination": by_combination,
    "conjugate gradients": by_conjugate_gradients,
    "rank": by_rank,
    "logdet": by_logdet,
    "low rank": by_low_rank,
    "lloyd": by_lloyd,
    "loop": by_loop,
}


@pytest.fixture(params=SOLVERS)
def solve(request):
    return SOLVERS[request.param]


def test_callbacks_see_each_row_of_the_history_once_and_in_order(solve):
    seen = []
    watch = Watch([seen.append, lambda row: "no truth"])
    ended = solve(watch)
    assert ended.outcome is Outcome.SOLVED
    assert seen == watch.history and len(seen) > 3
    seconds = [row["seconds"] for row in seen]
    assert seconds == sorted(seconds)
    for output in {row.get("output") for row in seen}:
        counted = [row["iteration"] for row in seen if row.get("output") == output]
        assert counted == sorted(counted)


@pytest.mark.parametrize("at", but_for([1, 3], [1, 2, 3]))
def test_true_stops_at_once_with_an_honest_gap(solve, at):
    seen = []

    def stop(row):
        seen.append(row)
        return len(seen) == at

    watch = Watch([stop])
    ended = solve(watch)
    assert ended.outcome is Outcome.STOPPED and seen == watch.history and len(seen) == at
    assert -1e-6 <= ended.missing <= ended.claimed * (1 + 1e-9) + 1e-12


@pytest.mark.parametrize("rows", but_for([1], [1, 3]))
def test_the_time_limit_ends_it(solve, rows):
    now = [0.0]

    def pass_time(row):
        now[0] += 1.0

    watch = Watch([pass_time], time_limit=rows - 0.5, clock=lambda: now[0])
    ended = solve(watch)
    assert ended.outcome is Outcome.TIME_LIMIT and len(watch.history) == rows
    assert ended.missing <= ended.claimed * (1 + 1e-9) + 1e-12


def test_a_run_that_has_ended_returns_what_it_starts_from(solve):
    seen = []

    def stop(row):
        seen.append(row)
        return True

    watch = Watch([stop])
    watch.record({"iteration": 0})
    ended = solve(watch)
    assert ended.outcome is Outcome.STOPPED and len(seen) == len(watch.history) == 1
    assert ended.missing <= ended.claimed * (1 + 1e-9) + 1e-12
