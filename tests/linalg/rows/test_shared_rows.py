"""What owners of rows add up and meet of each other: against arrays that one has whole, bit by bit."""

import numpy as np
import pytest
from owners_on_threads import by_owners
from scipy import sparse

from dkl.linalg.eigen.lowest_subspace import Lanczos
from dkl.linalg.rows.shared_rows import Halo, SharedMatrix, SharedRows, row_numbers

N = 300


@pytest.fixture
def matrix(rng):
    """Sparse, symmetric, of mixed signs, with rows that meet nobody."""
    A = sparse.csr_array(np.where(rng.random((N, N)) < 0.02, rng.standard_normal((N, N)), 0.0))
    A = sparse.csr_array(A + A.T + sparse.diags_array(rng.standard_normal(N)))
    lonely = np.ones(N)
    lonely[::17] = 0
    return sparse.csr_array(A.multiply(lonely[:, None]).multiply(lonely) + sparse.eye_array(N))


@pytest.mark.parametrize("owners", [1, 3])
def test_sums_and_products_of_tall_arrays(rng, owners):
    X, Y, M = rng.standard_normal((N, 5)), rng.standard_normal((N, 3)), rng.standard_normal((5, 2))

    def one(rows):
        own = slice(rows.lo, rows.hi)
        x, y = X[own].copy(), Y[own].copy()
        sums = rows.sum(lambda lo, hi: (hi - lo, x[lo:hi].sum()))
        return rows.gram(x, y), rows.times(x, M), sums, rows.dot(x[:, 0], x[:, 1]), rows.largest(x.max(axis=0))

    found = by_owners(N, owners, one, least=32)
    for gram, _, (count, total), dot, largest in found:
        assert gram.tobytes() == found[0][0].tobytes() and dot == found[0][3]
        np.testing.assert_allclose(gram, X.T @ Y, atol=1e-12)
        assert count == N and total == pytest.approx(X.sum()) and dot == pytest.approx(X[:, 0] @ X[:, 1])
        np.testing.assert_array_equal(largest, X.max(axis=0))
    np.testing.assert_allclose(np.concatenate([one[1] for one in found]), X @ M, atol=1e-12)


def test_random_rows_do_not_depend_on_who_has_them():
    found = [np.concatenate(by_owners(N, k, lambda rows: rows.random(3, 4), least=32)) for k in (1, 2, 5)]
    assert len({one.tobytes() for one in found}) == 1 and abs(found[0].mean()) < 0.1
    assert found[0].std() == pytest.approx(1, rel=0.1)


def test_chosen_rows_keep_their_owners(rng):
    X, chosen = rng.standard_normal((N, 4)), rng.random(N) < 0.1
    chosen[:40] = False  # a group without any

    def one(rows):
        own = chosen[rows.lo : rows.hi]
        x = X[rows.lo : rows.hi][own]
        return rows.some(own).gram(x, x)

    alone, *parts = (*by_owners(N, 1, one, least=32), *by_owners(N, 4, one, least=32))
    np.testing.assert_allclose(alone, X[chosen].T @ X[chosen], atol=1e-12)
    assert {part.tobytes() for part in parts} == {alone.tobytes()}


def test_nearly_dependent_columns_are_made_orthonormal(rng):
    X = rng.standard_normal((N, 6))
    X[:, 1:] = X[:, :1] + 1e-8 * X[:, 1:]

    def one(rows):
        x = X[rows.lo : rows.hi].copy()
        rows.orthonormalize(x)
        return x

    whole, parts = by_owners(N, 1, one, least=32)[0], np.concatenate(by_owners(N, 4, one, least=32))
    assert parts.tobytes() == whole.tobytes()
    np.testing.assert_allclose(whole.T @ whole, np.eye(6), atol=1e-12)
    np.testing.assert_allclose(whole @ (whole.T @ X), X, atol=1e-6)  # the same range


@pytest.mark.parametrize("is_placed", [False, True])
def test_a_halo_holds_what_entries_meet_and_no_more(matrix, rng, is_placed):
    X = rng.standard_normal((N, 2))

    def one(rows):
        own = matrix[rows.lo : rows.hi]
        places = np.random.default_rng(rows.index).permutation(rows.n_own) if is_placed else None
        halo = Halo(rows, row_numbers(own), own.indices, places)
        x = np.full((rows.n_own + halo.size, 2), np.nan)
        x[np.arange(rows.n_own) if places is None else places] = X[rows.lo : rows.hi]
        halo.fill(x)
        np.testing.assert_array_equal(x[halo.numbers(own.indices)], X[own.indices])
        outside = np.setdiff1d(own.indices, np.arange(rows.lo, rows.hi))
        np.testing.assert_array_equal(halo.met, outside)
        return halo.size

    assert min(by_owners(N, 4, one, least=32)) > 0 == by_owners(N, 1, one, least=32)[0]


@pytest.mark.parametrize("owners", [1, 4])
def test_a_shared_matrix_is_the_matrix(matrix, rng, owners):
    X, scale, d = rng.standard_normal((N, 21)), rng.uniform(0.5, 2, N), rng.standard_normal(N)

    def one(rows):
        own, mine = SharedMatrix.part(matrix[rows.lo : rows.hi], rows), slice(rows.lo, rows.hi)
        changed = own.scaled(scale[mine]).plus(d[mine])
        return own.product(X[mine]), own.diagonal(), own.norm(), changed.product(X[mine])

    products, diagonals, norms, changed = zip(*by_owners(N, owners, one, least=32), strict=True)
    np.testing.assert_allclose(np.concatenate(products), matrix @ X, atol=1e-12)
    np.testing.assert_array_equal(np.concatenate(diagonals), matrix.diagonal())
    assert set(norms) == {norms[0]} and norms[0] == pytest.approx(float(abs(matrix).sum(axis=1).max()))
    wanted = scale[:, None] * (matrix @ (scale[:, None] * X)) + d[:, None] * X
    np.testing.assert_allclose(np.concatenate(changed), wanted, atol=1e-12)


def test_a_diagonal_entry_that_is_not_stored_is_added():
    matrix = sparse.csr_array(np.array([[0.0, 2.0], [2.0, 0.0]]))
    assert SharedMatrix.alone(matrix).plus(np.array([1.0, 3.0])).own.toarray().tolist() == [[1, 2], [2, 3]]


@pytest.mark.parametrize("owners", [1, 3])
def test_lanczos_finds_both_ends_of_the_spectrum(matrix, owners):
    exact = np.linalg.eigvalsh(matrix.toarray())

    def one(rows):
        lanczos = Lanczos(SharedMatrix.part(matrix[rows.lo : rows.hi], rows), rows.random(0))
        for _ in range(120):
            lanczos.step()
        return lanczos.end(0), lanczos.end(-1)

    for (low, low_rest), (high, high_rest) in by_owners(N, owners, one, least=32):
        assert low == pytest.approx(exact[0], abs=1e-8) and high == pytest.approx(exact[-1], abs=1e-8)
        assert low_rest < 1e-3 > high_rest


def test_lanczos_ends_in_an_invariant_subspace():
    lanczos = Lanczos(SharedMatrix.alone(sparse.csr_array(2.0 * np.eye(5))), SharedRows.alone(5).random(0))
    assert not lanczos.step() and lanczos.end(0)[0] == lanczos.end(-1)[0] == pytest.approx(2.0)
