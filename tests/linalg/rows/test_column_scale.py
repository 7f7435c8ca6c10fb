"""Means, spreads and standardized rows against scikit-learn's StandardScaler."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.preprocessing import StandardScaler

from dkl.linalg.rows.column_moments import ColumnScale, moments_of


def table(rng, n=300):
    """Columns in many units: years, timestamps, tiny numbers, a constant, one that is constant up to rounding."""
    X = rng.standard_normal((n, 7)) * [1, 1e-6, 1e4, 10, 1, 1, 0] + [0, 1e-3, 1.6e9, 2020, -3, 5, 1 / 3]
    X[:, 5] = 0.1 + np.where(np.arange(n) % 2, 1e-17, 0)
    return X


def merged(X, cuts):
    parts = [moments_of(part) for part in np.split(X, cuts)]
    total = parts[0]
    for part in parts[1:]:
        total += part
    return total


@pytest.mark.parametrize("cuts", [[], [1], [100, 101, 250]])
def test_scale_is_the_standard_scalers(rng, cuts):
    X = table(rng)
    scale, known = ColumnScale.of(merged(X, cuts), centered=True), StandardScaler().fit(X)
    np.testing.assert_allclose(scale.means, known.mean_, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(scale.spreads, known.scale_, rtol=1e-8)
    np.testing.assert_allclose(scale.applied(X), known.transform(X), rtol=1e-5, atol=1e-5)
    assert scale.spreads[5] == scale.spreads[6] == 1


def test_a_large_mean_costs_no_digits_of_the_spread(rng):
    """Sums of x and x^2 would leave none of them: eps 1e20 is 22,000."""
    x = rng.standard_normal((1000, 1))
    found = ColumnScale.of(merged(x + 1e10, [300, 700]), centered=True).spreads
    np.testing.assert_allclose(found, (x + 1e10 - 1e10).std(axis=0), rtol=1e-6)


def test_merging_has_the_same_bits_either_way(rng):
    one, other = moments_of(table(rng, 37)), moments_of(table(rng, 91))
    ab, ba = one, other
    ab += other
    ba += one
    assert ab.count == ba.count and np.array_equal(ab.means, ba.means) and np.array_equal(ab.squares, ba.squares)


def test_merging_of_uneven_blocks_has_the_same_bits_either_way():
    """3 / 10 * 7 and 7 / 10 * 3 differ in their last bit, and so did what is between the means of such blocks."""
    one, other = moments_of(np.zeros((3, 1))), moments_of(np.ones((7, 1)))
    ab, ba = one, other
    ab += other
    ba += one
    assert ab.squares[0] == ba.squares[0] == 2.1  # sum of (x - 0.7)^2


def test_sparse_rows_keep_their_zeros(rng):
    S = sp.csr_array(rng.random((200, 30)) * (rng.random((200, 30)) < 0.1))
    parts = [moments_of(S[:50]), moments_of(S[50:])]
    parts[0] += parts[1]
    scale, known = ColumnScale.of(parts[0], centered=False), StandardScaler(with_mean=False).fit(S)
    found = scale.applied(S)
    assert scale.means is None and sp.issparse(found) and found.nnz == S.nnz
    np.testing.assert_allclose(found.toarray(), known.transform(S).toarray(), rtol=1e-12)
    dense = moments_of(S.toarray())
    np.testing.assert_allclose(dense.squares, parts[0].squares, rtol=1e-10)


def test_duplicate_entries_of_sparse_rows_count_as_their_sum():
    S = sp.csr_array((np.array([1.0, 2.0, 5.0]), np.array([0, 0, 1]), np.array([0, 2, 3])), shape=(2, 2))
    np.testing.assert_allclose(moments_of(S).means, [1.5, 2.5])
    np.testing.assert_allclose(moments_of(S).squares, [4.5, 12.5])


def test_single_precision_stays_and_sums_are_double(rng):
    X = (rng.standard_normal((5000, 3)) + [0, 100, 1000]).astype(np.float32)
    scale, known = ColumnScale.of(moments_of(X), centered=True), StandardScaler().fit(X.astype(np.float64))
    np.testing.assert_allclose(scale.spreads, known.scale_, rtol=1e-12)
    assert scale.applied(X).dtype == np.float32


def test_rows_are_written_to_only_where_they_may_be(rng):
    X = table(rng)
    before, scale = X.copy(), ColumnScale.of(moments_of(X), centered=True)
    apart = scale.applied(X)
    assert np.array_equal(X, before)
    assert scale.applied(X, in_place=True) is X and np.array_equal(X, apart)


def test_moments_of_blocks_far_from_0_are_those_of_the_same_rows_near_it(rng):
    X = np.sort(np.round(rng.standard_normal((60, 3)) * 1024) / 1024, axis=0)  # means of blocks far apart
    found = []
    for shift in (0.0, 1e9):
        one, *others = (moments_of(part) for part in np.split(X + shift, [7, 30, 31]))
        for other in others:
            one += other
        found.append(one)
    near, far = found
    assert np.array_equal(near.squares, far.squares)
    np.testing.assert_allclose(far.means, near.means + 1e9, rtol=1e-15)
    np.testing.assert_allclose(near.squares, 60 * X.var(axis=0), rtol=1e-13)
