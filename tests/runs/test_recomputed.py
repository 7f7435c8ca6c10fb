"""What `verify` recomputes by: scikit-learn's kernels in double precision, block by block, and rows that are those stored."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.spatial.distance import cdist
from sklearn.metrics.pairwise import polynomial_kernel, rbf_kernel

from dkl.blocks.row_sources import row_source
from dkl.linalg.kernel_columns import Kernel
from dkl.runs.recomputed import apart_from_rows, blocks, kernel_matrix, trace


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


@pytest.mark.parametrize("gamma", [0.3, 40.0])  # about the first point, and by differences
def test_gaussian_kernels_far_from_0_have_the_digits_of_differences(gamma, rng):
    X, Z = (np.round(rng.standard_normal((9, 3)) * 1024) / 1024 for _ in range(2))
    wanted = np.exp(-gamma * cdist(X, Z, "sqeuclidean"))
    np.testing.assert_allclose(kernel_matrix(Kernel("rbf", gamma), X + 1e9, Z + 1e9), wanted, rtol=1e-12)


def test_a_trace_is_the_sum_of_the_diagonal(rng, monkeypatch):
    monkeypatch.setattr("dkl.runs.recomputed.DIAGONAL_ROWS", 4)
    X = rng.standard_normal((10, 3))
    wanted = polynomial_kernel(X, gamma=0.2, degree=2).trace()
    assert trace(Kernel("poly", 0.2, 2, 1), row_source(X)) == pytest.approx(wanted, rel=1e-12)


def test_blocks_are_all_rows_in_so_many_bytes(rng):
    X = rng.standard_normal((10, 3))
    found = list(blocks(row_source(X), 5, 8 * 2 * 5 * 4))
    assert [(lo, len(block)) for lo, block in found] == [(0, 4), (4, 4), (8, 2)]
    assert np.array_equal(np.concatenate([block for _, block in found]), X)
    assert len(list(blocks(row_source(X), 5, 1))) == 10  # a row at least
    assert len(list(blocks(row_source(X), 5, 10**12))) == 1


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
