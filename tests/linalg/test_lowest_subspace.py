"""The lowest eigenvectors of a sparse matrix, as a block, against LAPACK's."""

import numpy as np
from scipy import sparse

from dkl.linalg.lowest_subspace import lowest_subspaces


def test_a_cluster_at_zero_is_found_whole(rng):
    """30 eigenvalues within 1e-5 of 0, some negative, below a quasi-continuum: n = 300."""
    n, count = 300, 36
    values = np.concatenate([1e-5 * rng.standard_normal(30), np.geomspace(1e-2, 5.0, n - 30)])
    basis = np.linalg.qr(rng.standard_normal((n, n)))[0]
    dense = (basis * values) @ basis.T
    matrix = sparse.csr_array(0.5 * (dense + dense.T))
    exact = np.sort(values)
    errors = []
    for found in lowest_subspaces(matrix, rng.standard_normal((n, count + 8)), count, 6):
        q = found.vectors
        np.testing.assert_allclose(q.T @ q, np.eye(count), atol=1e-12)
        np.testing.assert_allclose(dense @ q, q * found.values + found.remainder, atol=1e-12)
        assert np.abs(q.T @ found.remainder).max() < 1e-12
        assert (found.values >= exact[:count] - 1e-13).all(), "Ritz values are never below (Cauchy)"
        assert found.beyond >= exact[count] - 1e-13
        errors.append(np.abs(found.values[:30] - exact[:30]).max())
    assert errors[-1] < 1e-9 < errors[0]


def test_rows_shared_out_give_the_same_bits(rng):
    """The filter by three ranges of rows against one, in both precisions, with more columns than a block of lanes."""
    n, count = 301, 20
    matrix = sparse.csr_array(np.where(rng.random((n, n)) < 0.03, rng.standard_normal((n, n)), 0.0))
    matrix = sparse.csr_array(matrix @ matrix.T + sparse.diags_array(rng.standard_normal(n)))
    start = rng.standard_normal((n, count + 8))

    def by_three(function, rows):
        """Backwards: no range may wait for another."""
        for lo, hi in ((200, rows), (7, 200), (0, 7)):
            function(lo, hi)

    for dtype in (np.float32, np.float64):
        apart, whole = (
            list(lowest_subspaces(matrix, start, count, 2, dtype, None, *each))[-1] for each in ((by_three,), ())
        )
        np.testing.assert_array_equal(apart.vectors, whole.vectors)
        np.testing.assert_array_equal(apart.values, whole.values)
