"""The factor at new points, against scikit-learn's neighbors and the formula written out."""

import numpy as np
import pytest
import scipy.sparse as sp
import zarr
from scipy.spatial.distance import cdist
from sklearn.neighbors import NearestNeighbors

from dkl.blocks.rows import row_blocks
from dkl.blocks.rows.row_sources import row_source
from dkl.errors import InputError
from dkl.estimators.pairwise import extension
from dkl.estimators.pairwise.extension import Extension, extend_factor, index_bytes
from dkl.linalg.graph.laplacian import Similarity

N, M, RANK, K = 300, 90, 4, 7
SIGMA = 0.8
GRAPH = Similarity(np.array([SIGMA]), K)


@pytest.fixture(params=[3, 20], ids=["few features", "many features"])
def rows(request, rng):
    """(learned, new): some of the new ones are among those learned from, some are far from all."""
    learned = rng.standard_normal((N, request.param))
    new = rng.standard_normal((M, request.param))
    new[5:9], new[50] = learned[40:44], 100.0
    return learned, new


@pytest.fixture
def factor(rng):
    return rng.standard_normal((N, RANK))


def by_hand(new, learned, factor):
    squares = cdist(new, learned, "sqeuclidean")
    neighbors = NearestNeighbors(n_neighbors=K, algorithm="brute").fit(learned).kneighbors(new, return_distance=False)
    found = np.empty((len(new), factor.shape[1]))
    for i, ids in enumerate(neighbors):
        weights = np.exp((squares[i, ids[0]] - squares[i, ids]) / (2 * SIGMA**2))
        mean = sum(w * factor[j] for w, j in zip(weights, ids, strict=True))
        found[i] = mean / np.linalg.norm(mean)
        equal = np.flatnonzero((learned == new[i]).all(axis=1))
        if equal.size:
            found[i] = factor[equal[0]]
    return found


def test_it_is_the_weighted_mean_of_the_neighbours(rows, factor):
    learned, new = rows
    assert np.allclose(extend_factor(new, learned, factor, GRAPH), by_hand(new, learned, factor), rtol=1e-9, atol=1e-12)
    assert extend_factor(learned.copy(), learned, factor, GRAPH) is factor


def test_neighbours_are_the_same_wherever_and_however_rows_are_read(rows, factor, tmp_path, monkeypatch):
    """Trees, products and blocks of any size find the same lists, so that what is in memory need not be known."""
    learned, new = rows
    known = extend_factor(new, learned, factor, GRAPH, 1)
    zarr.create_array(str(tmp_path / "X.zarr"), data=learned, chunks=(64, learned.shape[1]))
    monkeypatch.setattr(extension, "index_bytes", lambda learned, most: 0)
    monkeypatch.setattr(extension, "REFERENCE_BYTES", 50 * learned[0].nbytes)
    for where in (learned, str(tmp_path / "X.zarr"), sp.csr_array(learned)):
        for like in (np.asarray, sp.csr_array):
            assert np.allclose(extend_factor(like(new), where, factor, GRAPH), known, rtol=1e-9)
    monkeypatch.setattr(row_blocks, "SMALLEST_BLOCK", 5000)
    monkeypatch.setattr(extension, "LEAST_ROWS", 8)
    assert np.allclose(extend_factor(new, str(tmp_path / "X.zarr"), factor, GRAPH, 2), known, rtol=1e-12)


def test_a_tree_is_made_where_it_is_of_use_and_small_enough(rows, factor):
    learned = row_source(rows[0])
    size = index_bytes(learned, np.inf)
    assert (size > learned.n * learned.row_bytes) == (learned.n_features == 3)
    assert (Extension.of(learned, factor, GRAPH).tree is None) == (learned.n_features != 3)
    without = Extension.of(learned, factor, GRAPH, size - 1)
    assert without.tree is None
    assert all(map(np.array_equal, without.nearest(rows[1]), Extension.of(learned, factor, GRAPH).nearest(rows[1])))


def test_values_without_distances_are_refused(rows, factor):
    learned, new = rows
    new[70, 1] = np.nan
    with pytest.raises(InputError, match=r"X\[70, 1\]: Input X contains NaN"):
        extend_factor(new, learned, factor, GRAPH)
