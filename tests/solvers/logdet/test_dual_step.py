"""The dual's Newton step and its preconditioner, against dense solves."""

import numpy as np
import pytest

from dkl.problems.logdet.constraints import ConstraintSet
from dkl.problems.logdet.core import LeadingPreconditioner
from dkl.problems.logdet.losses import LogLoss
from dkl.problems.logdet.problem import LogDetKernelProblem
from dkl.solvers.logdet.step import FEW, LEFT, conjugate_residuals, dual_step

N, C = 24, 300


@pytest.fixture
def problem(rng):
    """At K0, three of whose eigenvalues stand out."""
    vectors = np.linalg.qr(rng.normal(size=(N, N)))[0]
    K0 = (vectors * np.concatenate([[50.0, 30.0, 20.0], np.ones(N - 3)])) @ vectors.T
    triplets = np.array([rng.choice(N, 3, replace=False) for _ in range(C)])
    made = LogDetKernelProblem((K0 + K0.T) / 2, ConstraintSet.triplets(N, triplets), LogLoss(), 1.0)
    assert made.point(np.zeros(C)) is not None
    made.accept()
    return made


def system_of(problem, roots):
    return np.eye(C) + roots[:, None] * problem.hessian(np.arange(C)) * roots


def test_a_preconditioner_of_all_eigenvectors_is_the_inverse(problem, rng):
    roots, r = rng.uniform(0.0, 2.0, C), rng.normal(size=C)
    inverse = LeadingPreconditioner(problem.constraints, problem.form.leading(N), roots)
    np.testing.assert_allclose(inverse(r), np.linalg.solve(system_of(problem, roots), r), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("plain", [0, FEW, 400])
def test_conjugate_residuals_leave_what_they_should(problem, rng, plain):
    roots, differences = rng.uniform(0.0, 2.0, C), rng.normal(size=C)
    step, is_done = conjugate_residuals(problem, roots, differences, 0.0, 400, plain)
    z, right = step.step / roots, roots * differences
    assert is_done
    assert np.linalg.norm(right - system_of(problem, roots) @ z) <= 1.01 * LEFT * np.linalg.norm(right)
    assert step.norm == pytest.approx(np.sqrt(step.step @ problem.product(step.step)), rel=1e-3)


def test_the_preconditioner_takes_fewer_products(problem, rng, monkeypatch):
    roots, differences = rng.uniform(0.2, 0.5, C), rng.normal(size=C)
    assert problem.preconditioner(roots) is None  # of so few rows products are cheaper than it
    monkeypatch.setattr("dkl.problems.logdet.plan.SAVED", np.inf)
    taken = [conjugate_residuals(problem, roots, differences, 0.0, 400, plain)[0].products for plain in (400, 0)]
    assert 2 * taken[1] <= taken[0]


def test_a_direct_step_is_the_same_to_what_is_left(problem, rng):
    curvatures, differences = rng.uniform(0.5, 2.0, C), rng.normal(size=C)
    exact = dual_step(problem, "direct", differences, curvatures, 0.0, is_stiff=False)[1].step
    roots = np.sqrt(curvatures)
    residual = roots * differences - system_of(problem, roots) @ (exact / roots)
    assert np.linalg.norm(residual) <= 1e-6 * np.linalg.norm(roots * differences)
    near = dual_step(problem, "pcg", differences, curvatures, 0.0, is_stiff=True)
    assert near[0] == "pcg"
    assert np.linalg.norm((near[1].step - exact) / roots) <= LEFT * np.linalg.norm(roots * differences)
