"""Solvers of problems whose numbers are not a number: each ends, and none says that it is solved."""

from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace

import logdet_cases
import numpy as np
import pytest
import qsdp_cases
from column_problems import kernel_columns, lasso_problem, targets
from pairwise_cases import random_problem
from sklearn.metrics.pairwise import rbf_kernel
from svm_cases import Dense, problem, two_clouds

from dkl.errors import DklError
from dkl.linalg.eigen.extreme_eigenvalues import DENSE
from dkl.linalg.symmetric.growing_cholesky import with_ridge
from dkl.problems.logdet.problem import LogDetKernelProblem
from dkl.problems.pairwise.low_rank import FactoredPairwise
from dkl.problems.pairwise.terms import target_matrix
from dkl.problems.regression.column_gram import DenseGram
from dkl.problems.regression.column_lasso import ColumnLasso
from dkl.solvers.kmeans import lloyd
from dkl.solvers.leading_eigenpairs import leading_eigenpairs
from dkl.solvers.logdet.path import NARROWER, NARROWEST, narrowing_losses
from dkl.solvers.logdet.solve import solve_logdet
from dkl.solvers.pairwise.descent import minimize
from dkl.solvers.pairwise.low_rank import solve_to_gap
from dkl.solvers.qsdp.low_rank import solve_low_rank
from dkl.solvers.regression.active_set import ActiveSet
from dkl.solvers.regression.coordinate_descent import CoordinateDescent
from dkl.solvers.regression.paper import slkl
from dkl.solvers.svm.gradient import Accelerated
from dkl.solvers.svm.interior import interior_point
from dkl.solvers.svm.kernel_combination import combine
from dkl.solvers.svm.level import LevelMethod
from dkl.solvers.svm.refinement import refined
from dkl.solvers.svm.working_set import WorkingSets
from dkl.solvers.watch import Outcome, Watch

pytestmark = [pytest.mark.timeout(60), pytest.mark.filterwarnings("ignore::RuntimeWarning")]


def rng():
    return np.random.default_rng(20)


def columns():
    """Return kernel columns (80, 30) and targets (80,)."""
    C, X = kernel_columns(rng(), "rbf", 80, 30, 0.4)
    return C, targets(rng(), X)


class Parted(Dense):
    """Kernel of which solvers take parts."""

    fits, dtype = True, np.dtype(float)

    def part(self, chosen):
        return Parted(self.K[np.ix_(chosen, chosen)])

    def roughly(self, v):
        return self.times(v)


def lasso(place):
    """SLKL's problem with NaN in the Gram matrix, or in the targets."""
    of = lasso_problem(*columns(), 1e-3)
    B, b = of.gram.matrix.copy(), of.cross.copy()
    (B if place == "gram" else b)[(3, 4) if place == "gram" else 3] = np.nan
    return ColumnLasso(DenseGram(B), b, of.square, of.lam, of.nu)


def by_lasso(solver, place):
    return lambda watch: solver.solve(lasso(place), watch=watch).outcome


def by_paper(watch):
    C, y = columns()
    C[3, 4] = np.nan
    draws = np.random.default_rng(0)
    return slkl(C, y, 1.0, 1e-3, max_iter=3, draw=lambda: draws.integers(30), watch=watch).outcome


def machine(entry=np.nan):
    """A classifier's problem with one entry of the kernel that is no number."""
    X, y = two_clouds(rng(), 150, d=2, apart=0.3)
    K = rbf_kernel(X, gamma=0.5)
    K[3, 4] = K[4, 3] = entry
    return problem(K, y, 10.0, 5.0), K


def by_machine(solver):
    def run(watch):
        of, K = machine()
        of = of.with_kernel(Parted(K)) if isinstance(solver, WorkingSets) else of
        return solver.solve(of, watch=watch).outcome

    return run


def by_refinement(watch):
    of, _ = machine()
    return refined(Accelerated(tol=5e-11).solve, of, of.kernel, 1e-10, watch=watch).outcome


def by_combination(watch):
    of, K = machine()
    return combine(of, [Dense(K), Dense(np.eye(len(K)))], Accelerated(tol=1e-7), watch=watch).outcome


def pairs(n=40):
    laplacian, must_link, cannot_link = random_problem(rng(), n)
    laplacian = laplacian.tocsr(copy=True)
    laplacian.data[5] = np.nan
    return FactoredPairwise(laplacian, target_matrix(n, must_link, cannot_link), 10.0)


def by_descent(watch):
    of = pairs()
    start = of.padded(rng().standard_normal((40, 3)))
    return minimize(of, start, tol=0.0, progress=1e-9, max_iter=50, watch=watch).outcome


def by_logdet(watch):
    K0 = logdet_cases.kernel(rng(), 10)
    K0[2, 3] = K0[3, 2] = np.nan
    constraints, loss = logdet_cases.case("log", rng(), 10, 60)
    return solve_logdet(LogDetKernelProblem(K0, constraints, loss, 1e3), watch=watch).outcome


def by_low_rank(watch):
    of, _ = qsdp_cases.clusters(rng(), 8)
    of.targets[0] = np.nan
    return solve_low_rank(of, tol=1e-9, face=4, watch=watch).outcome


def by_lloyd(watch):
    class Steps:
        def step(self, centers):
            return SimpleNamespace(
                centers=centers * np.nan, digests=rng().integers(9, size=(2, 2)).astype(np.uint64) + 1
            )

    return lloyd(Steps(), rng().standard_normal((2, 6, 2)), max_iter=20, tol=0.0, watch=watch).outcome


def by_eigenpairs(watch):
    class Products:
        def times(self, block):
            return np.full_like(block, np.nan)

    start = rng().standard_normal((30, 3))
    return leading_eigenpairs(Products(), start, 2, tol=1e-8, max_iter=50, watch=watch).outcome


SOLVERS = {
    "active set, gram": by_lasso(ActiveSet(), "gram"),
    "active set, targets": by_lasso(ActiveSet(), "targets"),
    "coordinate descent, gram": by_lasso(CoordinateDescent(max_iter=20), "gram"),
    "coordinate descent, targets": by_lasso(CoordinateDescent(max_iter=20), "targets"),
    "greedy Newton descent": by_lasso(CoordinateDescent("newton", "greedy", max_iter=20), "gram"),
    "algorithm as printed": by_paper,
    "accelerated": by_machine(Accelerated(tol=1e-9)),
    "gradient": by_machine(Accelerated(tol=1e-4, momentum=False, newton=False, max_iter=200)),
    "level": by_machine(LevelMethod(tol=1e-4)),
    "working sets": by_machine(WorkingSets(Accelerated(tol=1e-9), smallest=0)),
    "interior point": lambda watch: interior_point(machine()[0], 1e-9, watch=watch).outcome,
    "refinement": by_refinement,
    "combination": by_combination,
    "conjugate gradients": by_descent,
    "rank": lambda watch: solve_to_gap(pairs(), target_gap=1e-7, watch=watch).outcome,
    "logdet": by_logdet,
    "low rank": by_low_rank,
    "lloyd": by_lloyd,
    "eigenpairs": by_eigenpairs,
}


@pytest.mark.parametrize("name", SOLVERS)
def test_a_number_that_is_none_ends_the_solver_and_is_no_solution(name):
    try:
        outcome = SOLVERS[name](Watch())
    except (DklError, np.linalg.LinAlgError, FloatingPointError, ValueError):
        return
    assert outcome is not Outcome.SOLVED


class Unprovable:
    """Problem with margins of one size at the start, of which no width of the loss ever proves anything."""

    def __init__(self, margin):
        self.margin, self.widths = margin, []

    def __len__(self):
        return 2

    def point(self, multipliers):
        return SimpleNamespace(margins=np.array([0.0, self.margin]))

    def softened(self, width):
        self.widths.append(width)
        return self

    def softened_certificate(self, multipliers):
        return SimpleNamespace(relative_gap=np.nan)


@pytest.mark.parametrize("margin", [0.0, 1e300, np.inf, -np.inf, np.nan])
def test_losses_narrow_until_they_are_narrow_and_no_further(margin):
    problem = Unprovable(margin)

    def solved(of, **options):
        return SimpleNamespace(multipliers=np.zeros(2), outcome=Outcome.SOLVED, n_iter=0, n_products=0)

    end = narrowing_losses(problem, solved, None, tol=1e-6, max_iter=100, watch=Watch())
    assert end.outcome is Outcome.STALLED
    assert all(after == before / NARROWER for before, after in pairwise(problem.widths))
    assert problem.widths == [np.inf] or NARROWEST <= problem.widths[-1] < NARROWER * NARROWEST


class Mistaken(FactoredPairwise):
    """Problem whose certificate number `wrong`, of 0, 1, ..., has a gap that is no number."""

    wrong, count = 0, 0

    def certify(self, *given, **options):
        certificate, low = super().certify(*given, **options)
        self.count += 1
        if self.count == self.wrong + 1:
            certificate = replace(certificate, gap=np.nan, relative_gap=np.nan)
        return certificate, low


@pytest.mark.parametrize("wrong", [0, 1])
def test_one_certificate_of_nan_ends_the_rounds(wrong):
    laplacian, must_link, cannot_link = random_problem(rng(), 40)
    of = Mistaken(laplacian, target_matrix(40, must_link, cannot_link), 10.0)
    of.wrong = wrong
    found = solve_to_gap(of, target_gap=1e-13, max_rounds=5)
    assert found.outcome is Outcome.NUMERICAL_ERROR and of.count == wrong + 1
    assert np.isnan(found.certificate.relative_gap) == (wrong == 0)  # the best is kept


@pytest.mark.parametrize("n", [40, DENSE + 50], ids=["by all", "by lifts"])
def test_a_certificate_of_nan_ends_and_proves_nothing(n):
    of = pairs(n)
    point = of.at(of.padded(rng().standard_normal((n, 3))))
    try:
        certificate, _ = of.certify(point, 1e-3, 0)
    except (DklError, np.linalg.LinAlgError, FloatingPointError, ValueError):
        return
    assert not certificate.relative_gap < np.inf


@pytest.mark.parametrize("matrix", [np.full((3, 3), np.nan), np.diag([1.0, np.nan])], ids=["all", "one"])
def test_no_ridge_makes_a_factor_of_nan(matrix):
    with pytest.raises(np.linalg.LinAlgError):
        with_ridge(matrix, 1e-12)


def test_a_matrix_of_zeros_has_a_factor_with_a_ridge():
    assert np.isfinite(with_ridge(np.zeros((3, 3)), 1e-14)).all()
