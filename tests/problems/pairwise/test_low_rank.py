"""The factored form of problem (1): derivatives, quartics and the preconditioner against what they approximate."""

import numpy as np
import pytest
from pairwise_cases import recomputed_gap, small_problem
from scipy import sparse

from dkl.problems.pairwise import terms
from dkl.problems.pairwise.low_rank import FactoredPairwise
from dkl.problems.pairwise.terms import MANY_ROWS, padded_width


def dense_objective(laplacian: sparse.csr_array, targets: sparse.csr_array, gamma: float, v: np.ndarray) -> float:
    kernel = v @ v.T
    rows = np.repeat(np.arange(len(v)), np.diff(targets.indptr))
    residual = kernel[rows, targets.indices] - targets.data
    return float(np.sum(laplacian.toarray() * kernel) + 0.5 * gamma * residual @ residual)


@pytest.mark.parametrize("rank", [1, 3, 8, 20])
def test_a_line_is_the_objective_along_it_and_the_gradient_its_slope(rng: np.random.Generator, rank: int) -> None:
    """A quartic, as the objective is: at five points the two are one."""
    laplacian, targets = small_problem(rng, 40)
    problem = FactoredPairwise(laplacian, targets, 7.0)
    v, d = (problem.padded(rng.standard_normal((40, rank))) for _ in range(2))
    point = problem.at(v)
    slopes = problem.line(point, d).coefficients
    assert slopes[0] == pytest.approx(np.vdot(point.gradient, d), rel=1e-11, abs=1e-11 * point.objective)
    for t in (-1.0, -0.3, 0.0, 0.2, 1.5):
        value = point.objective + t * np.polyval(slopes[::-1], t)
        assert value == pytest.approx(dense_objective(laplacian, targets, 7.0, v + t * d), rel=1e-12)


def test_widths_waste_at_most_a_half_and_of_many_rows_a_third() -> None:
    for rank in range(1, 200):
        few, many = padded_width(MANY_ROWS - 1, rank), padded_width(MANY_ROWS, rank)
        assert rank <= many <= few < max(2 * rank, 5)
        assert rank <= 16 or many <= 1.5 * rank
        assert few & (few - 1) == 0 and many in (few, 3 * few // 4)


@pytest.mark.parametrize("rank", [17, 24, 40])
def test_a_width_between_powers_of_two_changes_rounding_alone(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, rank: int
) -> None:
    laplacian, targets = small_problem(rng, 40)
    problem = FactoredPairwise(laplacian, targets, 7.0)
    factors, results = rng.standard_normal((2, 40, rank)), []
    for many_rows in (1000, 1):
        monkeypatch.setattr(terms, "MANY_ROWS", many_rows)
        v, d = (problem.padded(factor) for factor in factors)
        point = problem.at(v)
        line = problem.line(point, d)
        assert not line.ld[:, rank:].any() and not point.gradient[:, rank:].any()
        known = [point.objective, point.gradient[:, :rank], *line.coefficients]
        problem.move(point, d, line, 0.3)
        results.append((v.shape[1], [*known, point.objective, point.gradient[:, :rank]]))
    (wide, expected), (narrow, got) = results
    assert narrow == 3 * wide // 4
    for one, other in zip(got, expected, strict=True):
        assert np.allclose(one, other, rtol=0, atol=1e-12 * np.abs(other).max())


def test_a_move_to_the_quartic_s_lowest_point_is_that_point(rng: np.random.Generator) -> None:
    laplacian, targets = small_problem(rng, 30)
    problem = FactoredPairwise(laplacian, targets, 5.0)
    v, d = (problem.padded(rng.standard_normal((30, 5))) for _ in range(2))
    point = problem.at(v)
    line = problem.line(point, d)
    t, change = line.minimizer()
    grid = np.linspace(-5, 5, 2001)
    assert change <= min(sum(c * s ** (k + 1) for k, c in enumerate(line.coefficients)) for s in grid) + 1e-9
    fresh = problem.at(v + t * d)
    problem.move(point, d, line, t)
    assert np.isclose(point.objective, fresh.objective, rtol=1e-12)
    np.testing.assert_allclose(point.gradient, fresh.gradient, atol=1e-10)


def test_the_preconditioner_is_symmetric_positive_and_close_to_the_inverse(rng: np.random.Generator) -> None:
    laplacian, targets = small_problem(rng, 15)
    problem = FactoredPairwise(laplacian, targets, 2.0)
    v = problem.padded(rng.standard_normal((15, 4)))
    precondition, single = problem.preconditioner(4, dtype=np.float64), problem.preconditioner(4)
    for one in (precondition, single):
        one.refresh(v, 40)
    matrix = np.empty((v.size, v.size))
    stiff = np.empty_like(matrix)
    rows = np.repeat(np.arange(15), np.diff(targets.indptr))
    for k in range(v.size):
        unit, image = np.zeros_like(v), np.empty_like(v)
        unit.flat[k] = 1.0
        precondition.apply(v, unit, 1.0, image)
        matrix[:, k] = image.ravel()
        single.apply(v, unit, 1.0, image)
        np.testing.assert_allclose(image.ravel(), matrix[:, k], atol=1e-6 * np.abs(matrix[:, k]).max())
        cross = np.zeros((15, 15))
        cross[rows, targets.indices] = (v @ unit.T + unit @ v.T)[rows, targets.indices]
        stiff[:, k] = 2.0 * (precondition.SHIFT * unit + 2.0 * cross @ v).ravel()
    np.testing.assert_allclose(matrix, matrix.T, atol=1e-12)
    assert np.linalg.eigvalsh(matrix)[0] > 0
    spectrum = np.linalg.eigvals(matrix @ stiff).real
    assert spectrum.max() / spectrum.min() < 4.0


@pytest.mark.parametrize("n", [4, 9, 16])
def test_a_factor_of_full_rank_is_certified_by_its_range_alone(rng: np.random.Generator, n: int) -> None:
    """Nothing is outside its range: where S is not psd, what makes it so costs a gap, which is the one recomputed."""
    laplacian, targets = small_problem(rng, n)
    problem = FactoredPairwise(laplacian, targets, 50.0)
    v = 0.3 * rng.standard_normal((n, n)) / np.sqrt(n)  # far below the targets, so that S is not psd
    found, low = problem.certify(problem.at(problem.padded(v)), 1e-2, 0)
    mask = np.zeros((n, n))
    mask[np.repeat(np.arange(n), np.diff(targets.indptr)), targets.indices] = 1.0
    gap, lifted = recomputed_gap(found, v, laplacian.toarray(), targets.toarray(), mask, 50.0)
    lowest = np.linalg.eigvalsh(lifted)[0]
    assert low.values[0] < 0 and found.min_eigenvalue <= lowest and found.min_eigenvalue > -1e-9
    assert found.gap == pytest.approx(gap, rel=1e-9)
