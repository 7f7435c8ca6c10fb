"""A diagonal above a low-rank matrix: it is above, and its sum is the least there is."""

import clarabel
import numpy as np
import pytest
from scipy import sparse

from dkl.linalg.eigen import extreme_eigenvalues
from dkl.linalg.eigen.extreme_eigenvalues import diagonal_above


def least_sum(u):
    """min sum D, diag(D) - u u' psd, by a conic solver: columns of the upper triangle, off-diagonals times sqrt 2."""
    n = len(u)
    columns, rows = np.tril_indices(n)
    weight = np.where(rows == columns, 1.0, np.sqrt(2.0))
    place = np.flatnonzero(rows == columns)
    matrix = sparse.csc_matrix((-np.ones(n), (place, np.arange(n))), shape=(rows.size, n))
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    offset = -weight * (u @ u.T)[rows, columns]
    cones = [clarabel.PSDTriangleConeT(n)]
    return (
        clarabel.DefaultSolver(sparse.csc_matrix((n, n)), np.ones(n), matrix, offset, cones, settings).solve().obj_val
    )


@pytest.mark.parametrize("q", [1, 2, 4])
def test_it_is_above_and_near_the_least(rng, q):
    for n in (6, 12):
        u = rng.standard_normal((n, q)) * 10.0 ** rng.uniform(-4, 0, (n, 1))
        found = diagonal_above(u)
        assert np.linalg.eigvalsh(np.diag(found) - u @ u.T)[0] >= -1e-15 * np.linalg.norm(u) ** 2
        assert (1 - 1e-6) * least_sum(u) <= found.sum() <= 1.05 * least_sum(u)


def test_of_one_column_it_is_gershgorin_s():
    u = np.array([[3.0], [-1.0], [0.0], [1e-200]])
    np.testing.assert_allclose(diagonal_above(u), 4.0 * np.abs(u[:, 0]), rtol=1e-11, atol=1e-30)


def test_columns_apart_pay_for_themselves_alone(rng):
    """Of blocks without common rows the joint diagonal is that of each."""
    u = np.zeros((20, 2))
    u[:10, 0], u[10:, 1] = rng.standard_normal(10), 1e-3 * rng.standard_normal(10)
    apart = diagonal_above(u[:, :1]) + diagonal_above(u[:, 1:])
    np.testing.assert_allclose(diagonal_above(u), apart, rtol=1e-6)


def test_nothing_needs_nothing():
    assert not diagonal_above(np.zeros((5, 0))).any() and not diagonal_above(np.zeros((5, 2))).any()


def test_it_ends_where_steps_win_nothing(rng, monkeypatch):
    """One column has its least sum at once, which the second step confirms."""
    roots, given = [], extreme_eigenvalues._root
    monkeypatch.setattr(extreme_eigenvalues, "_root", lambda matrix: roots.append(1) or given(matrix))
    diagonal_above(rng.standard_normal((30, 1)))
    assert len(roots) == 3
