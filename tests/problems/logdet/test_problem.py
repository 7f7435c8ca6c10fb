"""Constraints by their definition, problem (3)'s values and derivatives, its dual bound, and what is refused."""

import numpy as np
import pytest
from logdet_cases import SMOOTH_LOSSES, case, kernel, matrices, objective, pairs, triplets

from dkl.errors import InputError
from dkl.problems.logdet.constraints import ConstraintSet
from dkl.problems.logdet.losses import ItmlLoss, LogLoss
from dkl.problems.logdet.plan import logdet_plan
from dkl.problems.logdet.problem import LogDetCertificate, LogDetKernelProblem, LogDetMetricProblem
from dkl.side_information.matrices import ConstraintMatrices
from dkl.solvers.logdet.solve import solve_logdet


def distance(K, i, j):
    return K[i, i] + K[j, j] - 2 * K[i, j]


def test_constraints_are_distances_and_similarities(rng):
    K = kernel(rng, 7)
    three, two, signs = triplets(rng, 7, 20), pairs(rng, 7, 20), rng.choice([-1, 1], 20)
    expected = [distance(K, i, k) - distance(K, i, j) for i, j, k in three]
    np.testing.assert_allclose(ConstraintSet.triplets(7, three).values(K), expected, rtol=1e-12)
    np.testing.assert_allclose(
        ConstraintSet.distances(7, two).values(K), [distance(K, i, j) for i, j in two], rtol=1e-12
    )
    signed = ConstraintSet.similarities(7, two, signs).values(K)
    np.testing.assert_allclose(signed, [2 * s * K[i, j] for s, (i, j) in zip(signs, two, strict=True)], rtol=1e-12)


def test_any_symmetric_matrices_are_constraints(rng):
    A = rng.normal(size=(4, 6, 6))
    A = A + A.transpose(0, 2, 1)
    A[1, 2:] = A[1, :, 2:] = 0
    constraints, K, weights = (
        ConstraintSet.of_matrices(ConstraintMatrices.checked(6, list(A))),
        kernel(rng, 6),
        rng.normal(size=4),
    )
    np.testing.assert_allclose(constraints.values(K), np.einsum("tij,ij->t", A, K), rtol=1e-12)
    np.testing.assert_allclose(constraints.weighted(weights).toarray(), np.einsum("t,tij->ij", weights, A), atol=1e-12)
    np.testing.assert_allclose(matrices(constraints), A, atol=1e-14)


def test_constraints_on_points(rng):
    constraints, K = ConstraintSet.triplets(20, [[3, 11, 19], [11, 3, 5]]), kernel(rng, 20)
    assert constraints.points.tolist() == [3, 5, 11, 19]
    block = K[np.ix_(constraints.points, constraints.points)]
    np.testing.assert_allclose(constraints.on_points().values(block), constraints.values(K), rtol=1e-12)


@pytest.mark.parametrize("rank", [None, 5], ids=["inverted", "factored"])
@pytest.mark.parametrize("name", ["log", "itml", "hoi"])
def test_of_some_constraints_it_is_the_problem_of_these_alone(name, rank, rng):
    """Values, kernels and products, of a problem made from the chosen rows of what is given."""
    K0 = kernel(rng, rank=rank)
    constraints, loss = case(name, rng)
    chosen = rng.random(len(constraints)) < 0.5
    A = [matrix for matrix, is_left in zip(matrices(constraints), chosen, strict=True) if is_left]
    alone = ItmlLoss(loss.similar[chosen], loss.upper, loss.lower) if name == "itml" else loss
    some = LogDetKernelProblem(K0, constraints, loss, 0.2).some(chosen, 4)
    wanted = LogDetKernelProblem(
        K0, ConstraintSet.of_matrices(ConstraintMatrices.checked(len(K0), A)), alone, 0.2, n_labelled=4
    )
    multipliers, step = 1e-3 * rng.normal(size=(2, len(A)))
    for one in (some, wanted):
        one.make_current(multipliers)
    np.testing.assert_allclose(some.product(step), wanted.product(step), rtol=1e-8, atol=1e-10)
    points = [one.point(multipliers) for one in (some, wanted)]
    for field in ("margins", "objective", "log_det"):
        np.testing.assert_allclose(*(getattr(point, field) for point in points), rtol=1e-8, atol=1e-10)
    K = np.linalg.inv(np.eye(len(K0)) + K0 @ np.einsum("t,tij->ij", multipliers, A)) @ K0
    block = some.block(multipliers)
    np.testing.assert_allclose(block, K[np.ix_(some.points, some.points)], rtol=1e-8, atol=1e-10)
    assert some.some(np.ones(len(A), bool), None).weight == pytest.approx(
        0.2 / len(np.unique(np.nonzero(np.any(A, axis=0))[0]))
    )


@pytest.mark.parametrize("name", SMOOTH_LOSSES)
def test_values_derivatives_and_the_bound(name, rng):
    """F by its definition; its slope and curvature along a step by differences; D below F at any other margins."""
    K0 = kernel(rng)
    constraints, loss = case(name, rng)
    problem = LogDetKernelProblem(K0, constraints, loss, 0.2, n_labelled=4)
    A = matrices(constraints)
    multipliers, step = 1e-3 * rng.normal(size=(2, len(constraints)))

    def K_at(t):
        U = np.einsum("t,tij->ij", multipliers + t * step, A)
        return np.linalg.inv(np.linalg.inv(K0) + U)

    point = problem.point(multipliers)
    problem.accept()
    assert point.objective == pytest.approx(objective(K_at(0), K0, A, loss, 0.05), rel=1e-9)
    np.testing.assert_allclose(point.margins, np.einsum("tij,ij->t", A, K_at(0)), rtol=1e-9)
    moved = -problem.product(step)
    h = 1e-4
    np.testing.assert_allclose(moved, np.einsum("tij,ij->t", A, K_at(h) - K_at(-h)) / (2 * h), rtol=1e-5, atol=1e-7)
    slope = (problem.forces(point.margins) - multipliers) @ moved
    ahead, behind = (objective(K_at(t), K0, A, loss, 0.05) for t in (h, -h))
    assert slope == pytest.approx((ahead - behind) / (2 * h), rel=1e-5, abs=1e-9)
    U = np.einsum("t,tij->ij", step, A)
    frobenius = np.linalg.norm(K_at(0) @ U @ K_at(0))
    assert step @ problem.square_product(step) == pytest.approx(frobenius**2, rel=1e-8)
    assert problem.pattern_norm(step) == pytest.approx(np.linalg.norm(U), rel=1e-12)
    active = rng.permutation(len(constraints))[:5]
    units = np.einsum("tij,jk,skl,li->ts", A[active], K_at(0), A[active], K_at(0))
    np.testing.assert_allclose(problem.hessian(active), units, rtol=1e-7, atol=1e-9)
    for margins in (point.margins, point.margins + 0.3 * np.abs(point.margins)):
        assert problem.bound(margins) <= point.objective


def test_a_certificate_says_what_is_proven():
    certificate = LogDetCertificate(2.0, 1.5)
    assert (certificate.gap, certificate.relative_gap) == (0.5, 0.25)
    assert LogDetCertificate(2.0, -np.inf).relative_gap == np.inf
    assert LogDetCertificate(0.0, 0.0).relative_gap == 0.0
    # No bound is above the least value: by how much this one is, so much is unknown.
    assert LogDetCertificate(1.5, 2.0).relative_gap == 0.25


def test_a_plan_grows_with_what_is_dense():
    small, large = logdet_plan(400, 20000, 500), logdet_plan(1200, 20000, 500)
    assert 7.0 * 8 * (1200**2 - 400**2) < large.bytes - small.bytes < 8.0 * 8 * (1200**2 - 400**2)
    assert large.flops > small.flops
    assert logdet_plan(4000, 1000, 500, rank=10).flops < logdet_plan(4000, 1000, 500).flops


@pytest.mark.parametrize(
    ("K0", "gamma", "said"),
    [
        (-np.eye(4), 1.0, "an eigenvalue of -1"),
        (np.triu(np.ones((4, 4))), 1.0, "not symmetric"),
        (np.full((4, 4), np.nan), 1.0, "not finite"),
        (np.eye(3), 1.0, "another size"),
        (1e80 * np.eye(4), 1.0, "K0.0, 0.: .* distances overflow; got 1e.80; .* scale K0"),
        (np.zeros((4, 4)), 1.0, "zero on all rows that constraints touch"),
        (np.eye(4), 0.0, "more than 0"),
        (np.eye(4), np.nan, "more than 0"),
    ],
)
def test_a_kernel_that_is_none_is_refused(K0, gamma, said):
    constraints = ConstraintSet.triplets(4, [[0, 1, 2], [1, 0, 3]])
    with pytest.raises(InputError, match=said):
        LogDetKernelProblem(K0, constraints, LogLoss(), gamma)


def test_a_kernel_that_rounding_made_indefinite_is_the_psd_one_next_to_it(rng):
    """As `K0 + K0'` of float32 products is: the same optimum as of the psd matrix, in which no eigenvalue is negative."""
    constraints = ConstraintSet.triplets(6, [[0, 1, 2], [1, 0, 3], [4, 5, 0], [5, 4, 1]])
    Q = np.linalg.qr(rng.normal(size=(6, 6)))[0]
    psd, rounded = ((Q * values) @ Q.T for values in ([5, 4, 3, 2, 1, 0], [5, 4, 3, 2, 1, -1e-9]))
    wanted, found = (
        solve_logdet(LogDetKernelProblem((K + K.T) / 2, constraints, LogLoss(), 9.0), tol=1e-12) for K in (psd, rounded)
    )
    assert found.certificate.objective == pytest.approx(wanted.certificate.objective, rel=1e-9)
    assert found.certificate.relative_gap <= 1e-11


def test_other_bad_input_is_refused():
    constraints = ConstraintSet.triplets(4, [[0, 1, 2], [1, 0, 3]])
    with pytest.raises(InputError, match="n_labelled"):
        LogDetKernelProblem(np.eye(4), constraints, LogLoss(), 1.0, n_labelled=0)
    with pytest.raises(InputError, match="gamma"):
        LogDetKernelProblem(np.eye(4), constraints, LogLoss(), 1.0).with_gamma(-1.0)
    with pytest.raises(InputError, match="finite rows"):
        LogDetMetricProblem(np.ones((3, 2)), constraints, LogLoss(), 1.0)
    with pytest.raises(InputError, match="W0: not positive definite"):
        LogDetMetricProblem(np.ones((4, 2)), constraints, LogLoss(), 1.0, W0=np.zeros((2, 2)))
    with pytest.raises(InputError, match="0 to 3"):
        ConstraintSet.triplets(4, [[0, 1, 4]])
    with pytest.raises(InputError, match=r"an index twice; got triplets\[1\] = \(0, 2, 2\)"):
        ConstraintSet.triplets(4, [[0, 1, 2], [0, 2, 2]])
    with pytest.raises(InputError, match="an index twice"):
        ConstraintSet.distances(4, [[1, 1]])
    with pytest.raises(InputError, match="X.[0-9]+, [0-9]+.: a value is so large that distances overflow"):
        LogDetMetricProblem(1e80 * np.eye(4), constraints, LogLoss(), 1.0)
    with pytest.raises(InputError, match="whole numbers"):
        ConstraintSet.distances(4, [[0.5, 1.0]])
    with pytest.raises(InputError, match="no constraints"):
        ConstraintSet.distances(4, [])
    with pytest.raises(InputError, match="sign"):
        ConstraintSet.similarities(4, [[0, 1]], [2])
