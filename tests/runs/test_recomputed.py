"""What `verify` recomputes by: scikit-learn's kernels in double precision, block by block, and rows that are those stored."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.spatial.distance import cdist
from sklearn.manifold import trustworthiness
from sklearn.metrics.pairwise import cosine_similarity, polynomial_kernel, rbf_kernel

from dkl.blocks.rows.row_sources import row_source
from dkl.errors import MemoryBudgetError
from dkl.linalg.kernels.kernel_columns import Kernel
from dkl.runs.logdet import verify_proof
from dkl.runs.logdet.verify_proof import Terms
from dkl.runs.qsdp.mvu.verify import _range_of_ties
from dkl.runs.recomputed import apart_from_rows, auc, blocks, diagonals, kernel_matrix, middle_intercept


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_kernels_are_scikit_learns(form, rng):
    X, Z = rng.standard_normal((7, 3)), rng.standard_normal((4, 3))
    single = [form(rows.astype(np.float32)) for rows in (X, Z)]
    double = [rows.astype(np.float64) for rows in single]
    found = kernel_matrix(Kernel("rbf", 0.3), *single)
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, rbf_kernel(*double, gamma=0.3), rtol=1e-13)
    found = kernel_matrix(Kernel("poly", None, 2, 0.5), *single)  # gamma is the function's own default
    assert np.array_equal(found, polynomial_kernel(*double, degree=2, coef0=0.5))
    K = rng.standard_normal((7, 7))
    assert np.array_equal(kernel_matrix(Kernel("precomputed"), K, np.array([1, 5])), K[:, [1, 5]])


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_cosines_of_short_and_long_rows_are_those_of_their_directions(form, rng):
    X, Z = rng.standard_normal((7, 3)), rng.standard_normal((4, 3))
    X[2] = 0
    for scale in (1e-300, 1e-17, 1e200):
        found = kernel_matrix(Kernel("cosine"), form(X * scale), form(Z))
        np.testing.assert_allclose(found, cosine_similarity(X, Z), rtol=0, atol=1e-14)


@pytest.mark.parametrize("gamma", [0.3, 40.0])  # about the first point, and by differences
def test_gaussian_kernels_far_from_0_have_the_digits_of_differences(gamma, rng):
    X, Z = (np.round(rng.standard_normal((9, 3)) * 1024) / 1024 for _ in range(2))
    wanted = np.exp(-gamma * cdist(X, Z, "sqeuclidean"))
    np.testing.assert_allclose(kernel_matrix(Kernel("rbf", gamma), X + 1e9, Z + 1e9), wanted, rtol=1e-12)


@pytest.mark.parametrize(
    "forms", [(sp.csr_array, sp.csr_array), (sp.csr_array, np.asarray), (np.asarray, sp.csr_array)]
)
def test_gaussian_kernels_of_sparse_rows_do_not_cancel(forms, rng, monkeypatch):
    monkeypatch.setattr("dkl.runs.recomputed.DENSE_BYTES", 8 * 13 * 2)
    X = rng.standard_normal((9, 5)) * (rng.random((9, 5)) < 0.5)
    wanted = np.exp(-1e15 * cdist(X, X[:4], "sqeuclidean"))
    assert np.array_equal(kernel_matrix(Kernel("rbf", 1e15), forms[0](X), forms[1](X[:4])), wanted)


def test_diagonals_are_those_of_the_kernels(rng, monkeypatch):
    monkeypatch.setattr("dkl.runs.recomputed.DIAGONAL_ROWS", 4)
    X = rng.standard_normal((10, 3))
    K = polynomial_kernel(X, gamma=0.2, degree=2)
    found = diagonals([Kernel("poly", 0.2, 2, 1), Kernel("linear")], row_source(X))
    np.testing.assert_allclose(found, [K.diagonal(), (X * X).sum(axis=1)], rtol=1e-12)
    np.testing.assert_array_equal(diagonals([Kernel("precomputed")], row_source(K)), [K.diagonal()])


def test_blocks_are_the_same_at_every_budget_that_holds_one(rng, monkeypatch):
    X, needed = rng.standard_normal((10, 3)), 8 * 2 * 5 * 4
    monkeypatch.setattr("dkl.runs.recomputed.BLOCK_BYTES", needed)
    for budget in (needed, 10**12):
        found = list(blocks(row_source(X), 5, budget))
        assert [(lo, len(block)) for lo, block in found] == [(0, 4), (4, 4), (8, 2)]
        assert np.array_equal(np.concatenate([block for _, block in found]), X)
    with pytest.raises(MemoryBudgetError, match="a block of the rows does not fit"):
        list(blocks(row_source(X), 5, needed - 1))
    assert len(list(blocks(row_source(X), needed, 10**12))) == 10  # a row at least


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_points_that_are_not_the_rows_they_are_said_to_be(form, rng):
    X = rng.standard_normal((10, 3))
    numbers = np.array([1, 5, 9, -1])  # the last is no row
    points = np.vstack([X[[1, 5, 9]], np.ones((1, 3))])
    block = form(X[4:8])
    assert apart_from_rows(form(points), numbers, block, 4) == 0
    points[1, 2] += 0.25
    assert apart_from_rows(form(points), numbers, block, 4) == pytest.approx(0.25)
    assert apart_from_rows(form(points), numbers, form(X[6:8]), 6) == 0  # not in this block
    points[1, 2] = np.nan
    assert np.isnan(apart_from_rows(form(points), numbers, block, 4))
    assert apart_from_rows(numbers[:3], numbers[:3], X[4:8], 4) == 0  # columns of a precomputed kernel


def test_the_range_of_ties_is_a_point_without_any_and_holds_every_order_else(rng):
    X, Z = rng.standard_normal((60, 5)), rng.standard_normal((60, 2))
    least, most = _range_of_ties(cdist(X, X, "sqeuclidean"), cdist(Z, Z, "sqeuclidean"), 8)
    assert least == most == pytest.approx(trustworthiness(X, Z, n_neighbors=8), rel=1e-12)
    equal = np.round(Z)  # many rows have one place
    least, most = _range_of_ties(cdist(X, X, "sqeuclidean"), cdist(equal, equal, "sqeuclidean"), 8)
    assert least < most
    for _ in range(20):
        moved = equal + 1e-6 * rng.standard_normal(equal.shape)
        assert least - 1e-12 <= trustworthiness(X, moved, n_neighbors=8) <= most + 1e-12


def test_an_area_says_what_near_scores_leave_open():
    scores, is_must = np.array([1.0, 2.0, 2.0, 3.0]), np.array([False, False, True, True])
    assert auc(scores, is_must, 0.1) == (3.5 / 4, 1 / 4)


def test_bounds_of_a_logdet_kernel_are_bounds():
    """-psi* of the logistic loss is an entropy; c k - log k is least at 1 / c."""
    one = np.zeros((1, 1), int)
    logistic = Terms(one[0], one, one, np.ones((1, 1)), 1.0, lambda a: (np.logaddexp(0, -2 * a), np.tanh(a) - 1))
    for p in (1e-6, 0.2, 0.5, 0.999):
        found = verify_proof.conjugate_sum(logistic, np.array([-2 * p]))
        assert found == pytest.approx(-p * np.log(p) - (1 - p) * np.log1p(-p), rel=1e-8)
    assert verify_proof.conjugate_sum(logistic, np.array([-2.1])) == float("-inf")
    for y, wanted in (
        (1e-13, 0.0),
        (-0.5, -0.5),
        (-2.1, -2.0),
    ):  # beyond what psi' takes by rounding, within, and far beyond
        np.testing.assert_allclose(verify_proof.in_domain(logistic, np.array([y])), wanted, atol=1e-15)
    c = 1.7
    for k in (0.4, 0.55, 1 / c, 0.7, 1.1):
        gap = c * k - np.log(k) - (1 + np.log(c))
        assert 0 <= gap <= verify_proof.gradient_bound(np.array([[c - 1 / k]]), np.array([[k]])) + 1e-12


@pytest.mark.parametrize("rise", [-3.0, 0.0], ids=["flat", "a corner"])
def test_the_middle_of_the_best_intercepts_by_trial(rise, rng):
    """Far below 0 all gradients ask for more, so that the charge is flat between the kinks of the classes."""
    y = np.where(np.arange(20) % 2 == 0, 1.0, -1.0)
    gradient, C = rise + rng.standard_normal(20), np.ones(20)
    kinks = -gradient * y / 2
    charges = np.maximum(0.0, -gradient - 2 * kinks[:, None] * y).sum(axis=1)
    best = kinks[charges <= charges.min() + 1e-9]
    assert middle_intercept(gradient, y, C) == pytest.approx(0.5 * (best.min() + best.max()))
