"""Block arithmetic of k-means against plain loops."""

import numpy as np
import pytest
import scipy.sparse as sp
from mpmath import mpf

from dkl.errors import InputError
from dkl.linalg.kernels.kernel_operators import exact_factor
from dkl.linalg.rows import kmeans


def plain_step(X, centers):
    """Lloyd's step, one row and one center at a time."""
    sums, counts = np.zeros_like(centers), np.zeros(len(centers), int)
    labels, distances = [], []
    for x in X:
        to_each = [float(((x - c) ** 2).sum()) for c in centers]
        labels.append(int(np.argmin(to_each)))
        distances.append(min(to_each))
        sums[labels[-1]] += x
        counts[labels[-1]] += 1
    return np.array(labels), sums, counts, np.array(distances)


# More rows than a chunk; r large enough for a chunk to be cut by size; k = 1 and R = 1.
@pytest.mark.parametrize(("m", "r", "k", "restarts"), [(1300, 7, 5, 3), (300, 600, 4, 2), (50, 3, 1, 1), (1, 1, 3, 2)])
@pytest.mark.parametrize("form", ["dense", "sparse", "float32"])
def test_step_is_that_of_a_plain_loop(rng, m, r, k, restarts, form):
    X = rng.standard_normal((m, r)) * (rng.random((m, r)) < 0.4)
    centers = rng.standard_normal((restarts, k, r))
    offset = None if form == "sparse" else rng.standard_normal(r) + 10
    dtype = np.float32 if form == "float32" else np.float64
    rows = sp.csr_array(X) if form == "sparse" else (X + (0 if offset is None else offset)).astype(dtype)
    tolerance = 1e-4 if form == "float32" else 1e-10
    sums, counts, labels = kmeans.cluster_sums(rows, centers, offset)
    distances = kmeans.own_distances(rows, centers, labels, offset)
    np.testing.assert_array_equal(kmeans.assign(rows, centers, offset), labels)
    for s in range(restarts):
        want_labels, want_sums, want_counts, want_distances = plain_step(X, centers[s])
        np.testing.assert_array_equal(labels[s], want_labels)
        np.testing.assert_array_equal(counts[s], want_counts)
        np.testing.assert_allclose(sums[s], want_sums, rtol=tolerance, atol=tolerance * m)
        np.testing.assert_allclose(distances[s], want_distances, rtol=tolerance, atol=tolerance)
    # What k-means++ needs: distances to points, and their sums were closest lowered by each.
    to_points = ((X[None] - centers.reshape(-1, 1, r)) ** 2).sum(axis=2).reshape(restarts, k, m)
    closest = np.full((restarts, m), np.inf)
    kmeans.lower(rows, centers[:, 0], closest, offset)
    np.testing.assert_allclose(closest, to_points[:, 0], rtol=tolerance, atol=20 * tolerance)
    got = kmeans.lowered_sums(rows, centers, closest, offset)
    want = np.minimum(to_points, to_points[:, :1]).sum(axis=2)
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=20 * tolerance * m)


def test_first_of_equally_near_centers_is_taken():
    centers = np.array([[[1.0], [1.0], [-1.0]]])
    np.testing.assert_array_equal(kmeans.assign(np.zeros((3, 1)), centers), np.zeros((1, 3)))


def test_distances_do_not_cancel_far_from_the_origin(rng):
    """|x|^2 - 2 <x, c> + |c|^2 around 1e7 would keep no digit of a distance of 1e-4."""
    X = 1e7 + 1e-2 * rng.standard_normal((400, 5))
    mean = X.mean(axis=0)
    centers = (X[:3] - mean)[None]
    labels = kmeans.assign(X, centers, mean)
    want = ((X[:, None] - X[None, :3]) ** 2).sum(axis=2)
    np.testing.assert_array_equal(labels[0], want.argmin(axis=1))
    np.testing.assert_allclose(kmeans.own_distances(X, centers, labels, mean)[0], want.min(axis=1), rtol=1e-5)


def test_bits_do_not_depend_on_alignment_or_order(rng):
    X = rng.standard_normal((700, 33))
    raw = np.empty(X.nbytes + 20, np.uint8)
    shifted = raw[20:].view(np.uint8)[: X.nbytes]
    shifted[:] = X.view(np.uint8).ravel()
    misaligned = np.frombuffer(shifted.data, X.dtype).reshape(X.shape)
    centers = rng.standard_normal((3, 4, 33))
    want = kmeans.cluster_sums(X, centers, X.mean(axis=0))
    for rows in (misaligned, np.asfortranarray(X)):
        for got, expected in zip(kmeans.cluster_sums(rows, centers, X.mean(axis=0)), want, strict=True):
            np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("sparse", [False, True])
def test_moments_of_blocks_merge_to_those_of_all(rng, sparse):
    X = rng.standard_normal((500, 6)) * (rng.random((500, 6)) < 0.5) + (0 if sparse else 1e6)
    parts = []
    for lo, hi in [(0, 1), (1, 230), (230, 500)]:
        parts.append((hi - lo, *kmeans.moments(sp.csr_array(X[lo:hi]) if sparse else X[lo:hi])))
    mean, variance = kmeans.merge_moments(parts)
    np.testing.assert_allclose(mean, X.mean(axis=0), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(variance, X.var(axis=0), rtol=1e-8)


def test_exact_factor_gives_the_kernel_back(rng):
    V = rng.standard_normal((40, 6))
    K = V @ V.T
    factor, projection = exact_factor(K)
    assert factor.shape == (40, 6)
    np.testing.assert_allclose(factor @ factor.T, K, atol=1e-12)
    np.testing.assert_allclose(K @ projection, factor, atol=1e-12)


@pytest.mark.parametrize("constant", [0.0, 1e4, 1e8, 1e12])
def test_exact_factor_has_the_distances_of_a_kernel_that_is_all_but_constant(constant, rng):
    X = rng.standard_normal((20, 2))
    K = constant + np.exp(-0.5 * ((X[:, None] - X[None]) ** 2).sum(axis=-1))
    factor, _ = exact_factor(K)
    exact = np.vectorize(mpf, otypes=[object])(K)
    squares = np.diag(exact)[:, None] + np.diag(exact) - 2 * exact
    found = ((factor[:, None] - factor[None]) ** 2).sum(axis=-1)
    # The rounding of products with K, of 20 terms each.
    np.testing.assert_allclose(found, squares.astype(float), atol=1e-12 + 1e-14 * constant)


def test_exact_factor_of_a_zero_kernel_is_a_point():
    factor, projection = exact_factor(np.zeros((3, 3)))
    np.testing.assert_array_equal(factor, np.zeros((3, 1)))
    np.testing.assert_array_equal(projection, np.zeros((3, 1)))


def test_exact_factor_names_the_most_negative_eigenvalue():
    with pytest.raises(InputError, match="smallest eigenvalue -2.5 about its means"):
        exact_factor(-2.5 * np.eye(3))
    with pytest.raises(InputError, match="not symmetric"):
        exact_factor(np.array([[1.0, 0.5], [0.0, 1.0]]))
    with pytest.raises(InputError, match="not square"):
        exact_factor(np.ones((2, 3)))
