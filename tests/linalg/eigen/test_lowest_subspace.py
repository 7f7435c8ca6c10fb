"""The lowest eigenvectors of a sparse matrix, as a block, against LAPACK's."""

import numpy as np
from owners_on_threads import by_owners
from scipy import sparse

from dkl.linalg.eigen.lowest_subspace import lowest_subspaces
from dkl.linalg.rows import tree_sum
from dkl.linalg.rows.shared_rows import SharedMatrix


def test_a_cluster_at_zero_is_found_whole(rng):
    """30 eigenvalues within 1e-5 of 0, some negative, below a quasi-continuum: n = 300."""
    n, count = 300, 36
    values = np.concatenate([1e-5 * rng.standard_normal(30), np.geomspace(1e-2, 5.0, n - 30)])
    basis = np.linalg.qr(rng.standard_normal((n, n)))[0]
    dense = (basis * values) @ basis.T
    matrix = sparse.csr_array(0.5 * (dense + dense.T))
    exact = np.sort(values)
    errors = []
    for found in lowest_subspaces(SharedMatrix.alone(matrix), rng.standard_normal((n, count + 8)), count, 6):
        q = found.vectors
        np.testing.assert_allclose(q.T @ q, np.eye(count), atol=1e-12)
        np.testing.assert_allclose(dense @ q, q * found.values + found.remainder, atol=1e-12)
        assert np.abs(q.T @ found.remainder).max() < 1e-12
        assert (found.values >= exact[:count] - 1e-13).all(), "Ritz values are never below (Cauchy)"
        assert found.beyond >= exact[count] - 1e-13
        errors.append(np.abs(found.values[:30] - exact[:30]).max())
    assert errors[-1] < 1e-9 < errors[0]


def test_rows_shared_out_give_the_same_bits(rng, monkeypatch):
    """By threads and by owners, in both precisions, with more columns than a block of lanes."""
    monkeypatch.setattr(tree_sum, "LEAST_ROWS", 32)
    n, count = 301, 20
    matrix = sparse.csr_array(np.where(rng.random((n, n)) < 0.03, rng.standard_normal((n, n)), 0.0))
    matrix = sparse.csr_array(matrix @ matrix.T + sparse.diags_array(rng.standard_normal(n)))
    start = rng.standard_normal((n, count + 8))

    def last(own, dtype):
        rows = own.rows
        return list(lowest_subspaces(own, start[rows.lo : rows.hi], count, 2, dtype))[-1]

    for dtype in (np.float32, np.float64):
        whole, threaded = (last(SharedMatrix.alone(matrix, threads), dtype) for threads in (1, 3))
        parts = by_owners(
            n, 3, lambda rows, dtype=dtype: last(SharedMatrix.part(matrix[rows.lo : rows.hi], rows), dtype)
        )
        for found in (threaded.vectors, np.concatenate([part.vectors for part in parts])):
            np.testing.assert_array_equal(found, whole.vectors)
        for found in (threaded, *parts):
            np.testing.assert_array_equal(found.values, whole.values)
