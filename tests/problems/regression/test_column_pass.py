"""The pass over kernel columns against dense products, in one go, stopped and gone on from, and row by row of B."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics.pairwise import rbf_kernel

from dkl.blocks.rows import row_groups
from dkl.blocks.rows.row_groups import RowGroups
from dkl.blocks.session import Session
from dkl.errors import InputError
from dkl.linalg.kernels.kernel_columns import Kernel
from dkl.problems.regression.column_choice import column_scale
from dkl.problems.regression.column_pass import ColumnJob, run_pass, targets_and_roots

N, M = 2000, 12


@pytest.fixture
def case(rng, monkeypatch):
    """(rows, weights, job, dense columns, [y, 1]), both times the roots of the weights."""
    monkeypatch.setattr(row_groups, "ROWS_IN_GROUP", 128)
    X, Y, weights = rng.standard_normal((N, 3)), rng.standard_normal((N, 2)), rng.integers(0, 3, N).astype(float)
    kernel = Kernel("rbf", 0.5)
    job = ColumnJob(kernel, X[:M], column_scale(kernel, X[:M]), targets_and_roots(Y, weights))
    roots = np.sqrt(weights)[:, None]
    return X, job, rbf_kernel(X, X[:M], gamma=0.5) * roots, np.c_[Y, np.ones(N)] * roots


def groups_of(X, threads=2):
    return RowGroups(X, Session(threads=threads), block_rows=64)


def test_folds_are_dense_products_and_rows_in_none_do_not_count(case, rng):
    X, job, C, Y = case
    fold_of = rng.integers(-1, 3, N)
    gram, cross, square = run_pass(groups_of(X), replace(job, n_folds=3, fold_of=fold_of))
    for k in range(3):
        own = fold_of == k
        np.testing.assert_allclose(np.triu(gram[k]), np.triu(C[own].T @ C[own]), rtol=1e-10)
        np.testing.assert_allclose(cross[k], C[own].T @ Y[own], rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(square[k], Y[own].T @ Y[own], rtol=1e-9, atol=1e-9)


def test_a_pass_that_is_stopped_goes_on_with_the_same_bits(case):
    X, job, C, _ = case
    want = run_pass(groups_of(X), job)
    np.testing.assert_allclose(np.triu(want[0][0]), np.triu(C.T @ C), rtol=1e-10)
    partials, waves = {}, []

    def stop(wave):
        waves.append((wave.done, wave.total))
        return True

    assert run_pass(groups_of(X, 1), job, partials=partials, after_wave=stop) is None
    assert waves[0][0] < waves[0][1] and partials
    again = run_pass(groups_of(X, 2), job, partials=partials, after_wave=lambda wave: False)
    for found, part in zip(again, want, strict=True):
        np.testing.assert_array_equal(found, part)


def test_panels_are_rows_of_the_gram_matrix(case):
    X, job, C, Y = case
    for lo, hi in ((0, 5), (5, M)):
        rows, cross, _ = run_pass(groups_of(X), replace(job, panel=(lo, hi)))
        np.testing.assert_allclose(rows[0], C[:, lo:hi].T @ C, rtol=1e-10)
        np.testing.assert_allclose(cross[0], C.T @ Y, rtol=1e-9, atol=1e-9)


def test_a_bad_value_is_told_with_its_place(case):
    X, job, *_ = case
    X = X.copy()
    X[777, 1] = np.nan
    with pytest.raises(InputError, match=r"X\[777, 1\].*NaN"):
        run_pass(groups_of(X), job)
