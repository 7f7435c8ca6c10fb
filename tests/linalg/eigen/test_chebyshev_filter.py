"""Filtered subspaces by owners of rows: scipy's eigenvectors, the same bits whoever owns what, small halos."""

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np
import pytest
from owners_on_threads import Table
from repeats import but_for
from scipy import sparse
from scipy.sparse.linalg import eigsh
from scipy.spatial import cKDTree

from dkl.linalg.eigen import lowest_subspace
from dkl.linalg.eigen.laplacian_eigenmaps import smoothest
from dkl.linalg.eigen.lowest_subspace import FilteredRows, PassesHere, spectrum_top
from dkl.linalg.rows import tree_sum
from dkl.linalg.rows.shared_rows import SingleOwner
from dkl.linalg.rows.tree_sum import band_order, put_together, row_groups, rows_in_order
from dkl.linalg.slabs.slab_ops import empty_aligned


def neighbours(rng, n, d):
    """The Laplacian of a 6-nearest-neighbor graph of uniform points."""
    X = rng.random((n, d))
    found = cKDTree(X).query(X, 7)[1][:, 1:]
    W = sparse.coo_array((np.ones(found.size), (np.repeat(np.arange(n), 6), found.ravel())), shape=(n, n))
    W = ((W + W.T) > 0).astype(float)
    return sparse.csr_array(sparse.diags_array(W.sum(axis=0)) - W)


def shared(L, k, owners, passes, threads=1):
    """(values, vectors) after some passes of so many owners."""
    groups, order, top, n = row_groups(L.shape[0]), band_order(L), spectrum_top(L), L.shape[0]
    starts = [groups[j * len(groups) // owners][0] for j in range(owners)]
    bounds, table = (*starts, n), Table(owners)

    def one(index):
        rows = FilteredRows(rows_in_order(L, order, bounds, index), k, top, table.of(index), threads)
        ritz = [rows.advance(k - 1) for _ in range(passes)][-1]
        rows.close()
        return ritz, rows.block

    with ThreadPoolExecutor(owners) as pool:
        found = list(pool.map(one, range(owners)))
    assert len({ritz.values.tobytes() for ritz, _ in found}) == 1
    return found[0][0], put_together([block for _, block in found], order, k)


@pytest.mark.parametrize(("owners", "threads"), but_for([(2, 1), (5, 1)], [(2, 1), (3, 2), (5, 1)]))
def test_the_bits_are_those_of_an_owner_that_is_alone(owners, threads, rng, monkeypatch):
    monkeypatch.setattr(tree_sum, "LEAST_ROWS", 32)
    L = neighbours(rng, 611, 3)
    alone = PassesHere(L, 19)
    for _ in range(3):
        ritz = alone.advance(18)
    there, vectors = shared(L, 19, owners, 3, threads)
    assert there.values.tobytes() == ritz.values.tobytes() and there.residuals.tobytes() == ritz.residuals.tobytes()
    assert vectors.tobytes() == alone.vectors(19).tobytes()


def test_what_memory_held_before_raises_no_warning(rng, monkeypatch):
    """A signalling NaN in a halo that is not filled yet."""

    def used(shape, dtype):
        out = empty_aligned(shape, dtype)
        out.view(np.uint64)[...] = 0x7FF0000000000001
        return out

    monkeypatch.setattr(tree_sum, "LEAST_ROWS", 32)
    monkeypatch.setattr(lowest_subspace, "empty_aligned", used)
    ritz, vectors = shared(neighbours(rng, 200, 3), 9, 2, 1)
    assert np.isfinite(ritz.values).all() and np.isfinite(vectors).all()


def test_they_are_scipy_s(rng):
    L, count = neighbours(rng, 1500, 4), 8
    passes = PassesHere(L, 18)
    for _ in range(14):
        ritz = passes.advance(count)
    vectors = passes.vectors(count)
    values, theirs = eigsh(L, count + 1, sigma=-0.01)
    np.testing.assert_allclose(ritz.values, values[:count], atol=1e-12 * 20)
    np.testing.assert_allclose(np.linalg.norm(L @ vectors - vectors * ritz.values, axis=0), ritz.residuals, atol=1e-12)
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(count), atol=1e-12)
    assert ritz.residuals.max() <= 1e-7
    # Davis & Kahan: the angle is at most the residual over the gap.
    gap = values[count] - values[count - 1]
    angle = np.linalg.norm(vectors - theirs[:, :count] @ (theirs[:, :count].T @ vectors), 2)
    assert angle <= 2 * count**0.5 * ritz.residuals.max() / gap + 1e-11


def test_neighbours_alone_are_sent(rng, monkeypatch):
    monkeypatch.setattr(tree_sum, "LEAST_ROWS", 32)
    n = 400
    names = rng.permutation(n)  # of a chain's rows
    path = sparse.coo_array((np.ones(n - 1), (names[:-1], names[1:])), shape=(n, n))
    L = sparse.csr_array(sparse.diags_array((path + path.T).sum(axis=0)) - path - path.T)
    bounds, order = (0, 100, 200, 300, 400), band_order(L)
    for index in range(4):
        rows = FilteredRows(rows_in_order(L, order, bounds, index), 4, 4.0, SingleOwner())
        assert sorted(rows.halo.departures) == [k for k in (index - 1, index + 1) if 0 <= k < 4]
        assert all(len(sent) == 1 for sent in rows.halo.departures.values())


def test_columns_that_are_nearly_dependent_are_made_orthonormal(rng):
    L = neighbours(rng, 300, 2)
    rows = PassesHere(L, 12).rows
    rows.block[:, 1:] = rows.block[:, :1] + 1e-9 * rows.block[:, 1:]
    rows.block *= np.logspace(-100, 100, 12)
    rows.rows.orthonormalize(rows.block)
    np.testing.assert_allclose(rows.block.T @ rows.block, np.eye(12), atol=1e-12)


def test_a_matrix_without_entries_has_any_basis():
    found = smoothest(sparse.csr_array((700, 700)), 3)
    assert found.residual == 0 and found.values.tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("n", "count"),
    [
        (1, 1),
        (511, 1),
        (512, 2),
        (16_384, 64),
        (10**6, 64),
        (1 << 21, 128),
        (10**7, 512),
        (1 << 24, 1024),
        (10**9, 1024),
    ],
)
def test_more_rows_are_more_groups(n, count):
    groups = row_groups(n)
    assert len(groups) == count and groups[0][0] == 0 and groups[-1][1] == n
    assert all(one[1] == other[0] for one, other in pairwise(groups))
    sizes = {hi - lo for lo, hi in groups}
    assert max(sizes) - min(sizes) <= 1
