"""B by rows from memory and from disk, centring, folds: against plain numpy on the columns themselves."""

import numpy as np
import pytest
from column_problems import kernel_columns, targets

from dkl.linalg.rows.column_moments import add_moments, zero_moments
from dkl.problems.regression.column_gram import CenteredGram, DenseGram, StoredGram, held_out
from dkl.problems.regression.column_lasso import ColumnLasso, output_problems
from dkl.problems.regression.column_ridge import held_out_error
from dkl.solvers.regression.active_set import ActiveSet
from dkl.solvers.regression.coordinate_descent import CoordinateDescent
from dkl.solvers.regression.lasso_path import solve_outputs

FOLDS, M, N = 3, 20, 61


@pytest.fixture
def data(rng):
    """Columns, two targets, sample weights, fold of each row, and the sums that a pass makes of them."""
    C, X = kernel_columns(rng, "rbf", N, M, 0.5)
    y = np.column_stack([targets(rng, X) + 3, rng.standard_normal(N)])
    S = rng.uniform(0.2, 3.0, N)
    folds = rng.integers(FOLDS, size=N)
    return C, y, S, folds, summed(C, y, S, folds)


def summed(C, y, S, folds, blocks=4):
    moments = zero_moments(FOLDS if folds is not None else 1, M, y.shape[1])
    for rows in np.array_split(np.arange(N), blocks):
        root = np.sqrt(S[rows])[:, None]
        scaled = np.column_stack([y, np.ones(N)])[rows] * root
        add_moments(moments, np.ascontiguousarray(C[rows] * root), scaled, None if folds is None else folds[rows])
    return moments


@pytest.mark.parametrize("intercept", [False, True])
def test_sums_are_those_of_plainly_centred_columns(data, intercept):
    C, y, S, _, _ = data
    shared = CenteredGram.of(summed(C, y, S, None), intercept=intercept)
    c_mean, y_mean = np.average(C, axis=0, weights=S), np.average(y, axis=0, weights=S)
    if not intercept:
        c_mean, y_mean = 0 * c_mean, 0 * y_mean
    D, z = C - c_mean, y - y_mean
    np.testing.assert_allclose(shared.gram.matrix, D.T @ (S[:, None] * D), rtol=1e-10, atol=1e-11)
    np.testing.assert_allclose(shared.cross, D.T @ (S[:, None] * z), rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(shared.squares, (S[:, None] * z**2).sum(axis=0), rtol=1e-11)
    np.testing.assert_allclose(shared.column_means, c_mean, rtol=1e-12)
    np.testing.assert_allclose(shared.target_means, y_mean, rtol=1e-12)
    assert shared.weight == pytest.approx(S.sum())
    w = np.linspace(-1, 1, 2 * M).reshape(2, M)
    np.testing.assert_allclose(shared.intercepts(w), y_mean - w @ c_mean, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("solver", [ActiveSet(tol=1e-9), CoordinateDescent(tol=1e-6)])
def test_rows_on_disk_give_the_solution_of_rows_in_memory(data, intercept, solver, tmp_path):
    zarr = pytest.importorskip("zarr")
    C, y, S, _, _ = data
    moments = summed(C, y, S, None)
    raw = np.triu(moments[0][0]) + np.triu(moments[0][0], 1).T
    stored = zarr.create_array(tmp_path / "gram.zarr", shape=raw.shape, chunks=(3, M), dtype="f8")
    stored[:] = raw
    on_disk = CenteredGram.of(moments, intercept=intercept, gram=stored, diagonal=np.diag(raw).copy())
    in_memory = CenteredGram.of(moments, intercept=intercept)
    assert isinstance(on_disk.gram, StoredGram) and isinstance(in_memory.gram, DenseGram)
    np.testing.assert_allclose(on_disk.gram.diagonal, in_memory.gram.diagonal, rtol=1e-12, atol=1e-13)
    for wanted in ([4], [7, 2, 4], [19, 0]):
        (a, i), (b, j) = on_disk.gram.rows(np.array(wanted)), in_memory.gram.rows(np.array(wanted))
        np.testing.assert_allclose(a[i], b[j], rtol=1e-12, atol=1e-13)
    nu = 1e-2 * np.abs(in_memory.cross).max() ** 2
    for a, b in zip(*(solve_outputs(output_problems(g, 1.0, nu), solver) for g in (on_disk, in_memory)), strict=True):
        assert a.outcome.converged and b.outcome.converged
        np.testing.assert_allclose(a.weights, b.weights, rtol=1e-9, atol=1e-12)
        assert a.evaluation.objective == pytest.approx(b.evaluation.objective, rel=1e-12)


def test_only_rows_of_the_active_set_are_read(data):
    C, y, S, _, _ = data
    moments = summed(C, y, S, None)
    raw, read = np.triu(moments[0][0]) + np.triu(moments[0][0], 1).T, []

    class Rows:
        def __getitem__(self, rows):
            read.append(rows.start)
            return raw[rows]

    gram = StoredGram(Rows(), np.diag(raw).copy())
    shared = CenteredGram.of(moments, intercept=False)
    nu = 0.2 * np.abs(shared.cross[:, 0]).max() ** 2
    problem = ColumnLasso(gram, shared.cross[:, 0].copy(), float(shared.squares[0]), 1.0, nu)
    found = ActiveSet().solve(problem)
    assert set(np.flatnonzero(found.weights)) <= set(read)
    assert len(read) == len(set(read)) < M


@pytest.mark.parametrize("fold", range(FOLDS))
def test_held_out_sums_are_those_of_the_other_rows(data, fold):
    C, y, S, folds, moments = data
    gram, cross, square = held_out(moments, fold)
    C, Y, S = C[folds != fold], np.column_stack([y, np.ones(N)])[folds != fold], S[folds != fold][:, None]
    np.testing.assert_allclose(np.triu(gram[0]), np.triu(C.T @ (S * C)), rtol=1e-11)
    np.testing.assert_allclose(cross[0], C.T @ (S * Y), rtol=1e-10, atol=1e-11)
    np.testing.assert_allclose(square[0], Y.T @ (S * Y), rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("fold", range(FOLDS))
def test_held_out_error_is_the_weighted_error_on_those_rows(data, rng, fold):
    C, y, S, folds, moments = data
    weights = rng.standard_normal((2, M)) * (rng.random((2, M)) < 0.4)
    intercepts = np.array([3.0, -0.5])
    here = folds == fold
    wanted = np.average((y[here] - C[here] @ weights.T - intercepts) ** 2, axis=0, weights=S[here])
    np.testing.assert_allclose(held_out_error(moments, fold, weights, intercepts), wanted, rtol=1e-9)
    nothing = held_out_error(moments, fold, 0 * weights, 0 * intercepts)
    np.testing.assert_allclose(nothing, np.average(y[here] ** 2, axis=0, weights=S[here]), rtol=1e-11)
