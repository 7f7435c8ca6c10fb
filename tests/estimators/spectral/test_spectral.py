"""`SpectralEmbedding` and `SpectralClustering`: scikit-learn's on the same affinity, components, unseen rows, bad input."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.linalg
import sklearn.cluster
import sklearn.manifold
from scipy import sparse
from scipy.spatial.distance import cdist
from sklearn.datasets import make_moons
from sklearn.neighbors import NearestNeighbors
from sklearn.utils.estimator_checks import parametrize_with_checks
from tailed_rows import tailed_rows

import dkl
from dkl.errors import ConvergenceWarning, DataWarning, InputError, MemoryBudgetError
from dkl.estimators.spectral import clustering
from dkl.estimators.spectral.embedding import eigenmaps
from dkl.linalg.eigen import laplacian_eigenmaps


@pytest.mark.filterwarnings("ignore")  # the checks' data sets have duplicates and components
@parametrize_with_checks([dkl.SpectralEmbedding()])
def test_scikit_learn_s_contract(estimator, check):
    check(estimator)


@pytest.mark.exhaustive
@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks([dkl.SpectralClustering(2, random_state=0)])
def test_scikit_learn_s_contract_of_clusters(estimator, check):
    check(estimator)


def affinity_of(rng, n):
    """A connected weighted graph, whose lowest eigenvalues are apart."""
    X = rng.standard_normal((n, 2)) + 4 * rng.integers(0, 2, (n, 1))
    distances = ((X[:, None] - X[None]) ** 2).sum(axis=2)
    W = np.exp(-distances / 2) * (distances < np.sort(distances, axis=1)[:, [15]])
    W = np.maximum(W, W.T)
    np.fill_diagonal(W, 0.0)
    return W + 1e-3 * np.exp(-distances / 30) * (1 - np.eye(n))


@pytest.mark.parametrize(
    ("dense", "fill"), [(600, 2**31), (50, 2**31), (50, 0)], ids=["dense", "shift-invert", "filter"]
)
def test_the_embedding_is_scikit_learns_on_the_same_affinity(rng, monkeypatch, dense, fill):
    monkeypatch.setattr(laplacian_eigenmaps, "DENSE", dense)
    monkeypatch.setattr(laplacian_eigenmaps, "FILL", fill)
    monkeypatch.setattr(laplacian_eigenmaps, "filter_work", lambda *_: np.inf)
    W = affinity_of(rng, 150)
    mine = dkl.SpectralEmbedding(3, affinity="precomputed").fit(sparse.csr_array(W))
    wanted = sklearn.manifold.spectral_embedding(W, n_components=3, eigen_solver="arpack", eigen_tol=0.0)
    # As subspaces, and column by column up to the sign.
    ours, theirs = (np.linalg.qr(found)[0] for found in (mine.embedding_, wanted))
    assert np.linalg.norm(theirs - ours @ (ours.T @ theirs), 2) <= 1e-6
    signs = np.sign((mine.embedding_ * wanted).sum(axis=0))
    np.testing.assert_allclose(mine.embedding_ * signs, wanted, atol=1e-6 * np.abs(wanted).max())
    assert mine.residual_ <= 1e-7 and (np.diff(mine.eigenvalues_) >= 0).all()


def test_clusters_are_scikit_learns_on_the_same_affinity_and_components_are_clusters(rng):
    W = affinity_of(rng, 120)
    mine = dkl.SpectralClustering(2, affinity="precomputed", random_state=0).fit_predict(W)
    wanted = sklearn.cluster.SpectralClustering(2, affinity="precomputed", random_state=0).fit_predict(W)
    assert dkl.adjusted_rand_index(wanted, mine) > 0.95
    blocks = sparse.block_diag([affinity_of(rng, 30) for _ in range(3)])
    found = dkl.SpectralClustering(3, affinity="precomputed", random_state=0).fit_predict(blocks)
    assert dkl.adjusted_rand_index(np.repeat(range(3), 30), found) == 1.0


@pytest.mark.parametrize("seed", [0, 2])
def test_tails_do_not_hide_the_clusters(seed):
    """Of one width for all rows, the lowest eigenvectors are those of single far rows: ARI 0."""
    X, y = tailed_rows(seed)
    mine = dkl.adjusted_rand_index(y, dkl.SpectralClustering(3, n_jobs=1, random_state=0).fit_predict(X))
    theirs = sklearn.cluster.SpectralClustering(3, affinity="nearest_neighbors", random_state=0).fit_predict(X)
    assert mine >= dkl.adjusted_rand_index(y, theirs) - 0.02 and mine > 0.6
    far = np.concatenate([X, 1e6 + 1e-3 * X[:8]])  # a tight group, all of whose neighbors but a few are its own
    found = dkl.SpectralClustering(3, n_jobs=1, random_state=0).fit_predict(far)[:300]
    assert dkl.adjusted_rand_index(y, found) > 0.6


EXTREMES = {
    "two far components": lambda X: np.concatenate([X[:60], X[60:] + 1e6]),
    "an isolated row": lambda X: np.concatenate([X, [[1e6] * 3]]),
    "a tight group of far rows": lambda X: np.concatenate([X, 100 + 1e-4 * X[:7]]),
    "half of the rows equal": lambda X: np.where(np.arange(120)[:, None] < 30, X[0], X),
    "two scales": lambda X: np.concatenate([1e-6 * X[:60], X[60:]]),
}


@pytest.mark.filterwarnings("ignore::dkl.errors.DataWarning")  # of components that are joined
@pytest.mark.parametrize("case", EXTREMES)
def test_extreme_rows_do_not_harm_the_others(rng, case):
    y = np.repeat([0, 1], 60)
    X = EXTREMES[case](rng.standard_normal((120, 3)) + 6 * y[:, None])
    found = dkl.SpectralClustering(2, n_jobs=1, random_state=0).fit_predict(X)[:120]
    assert dkl.adjusted_rand_index(y, found) > 0.95
    shown = dkl.SpectralEmbedding(2, n_jobs=1).fit(X)
    assert np.isfinite(shown.embedding_).all() and shown.eigenvalues_[0] > 1e-8


def test_components_are_joined_for_an_embedding(rng):
    """Two parts, of 60 and 30 rows, and two tight far rows: one edge each, of the least weight; the places within parts are shown."""
    X = np.concatenate([rng.standard_normal((60, 2)), 50 + rng.standard_normal((30, 2)), 900 + rng.random((2, 2))])
    with pytest.warns(
        DataWarning, match=r"had 2 components \(60, 32 rows\), joined by the shortest edge between them; raise"
    ):
        shown = dkl.SpectralEmbedding(2, n_jobs=1).fit(X)
    D, s = cdist(X, X), NearestNeighbors(n_neighbors=10).fit(X).kneighbors()[0][:, -1]
    near = np.where(np.eye(92), -1, s[:, None]) >= D
    W = np.where(near | near.T, np.exp(-((D / np.maximum(s[:, None], s)) ** 2)), 0.0)
    i, j = np.unravel_index(np.argmin(D[:60, 60:]), (60, 32))
    W[i, 60 + j] = W[60 + j, i] = np.exp(-1.0)
    wanted = scipy.linalg.eigh(np.diag(W.sum(axis=1)) - W, np.diag(W.sum(axis=1)), subset_by_index=(1, 2))
    np.testing.assert_allclose(shown.eigenvalues_, wanted[0], rtol=1e-8)
    norms = np.linalg.norm(wanted[1], axis=0) * np.linalg.norm(shown.embedding_, axis=0)
    np.testing.assert_allclose(np.abs((wanted[1] * shown.embedding_).sum(axis=0)) / norms, 1.0, rtol=1e-8)


def test_components_that_cannot_be_joined_are_warned_of(rng):
    X = np.concatenate([rng.standard_normal((40, 2)), 50 + rng.standard_normal((30, 2))])
    with pytest.warns(DataWarning, match=r"has 2 components \(40, 30 rows\): its eigenvectors tell components apart"):
        dkl.SpectralEmbedding(1, sigma=3.0, n_jobs=1).fit(X)
    W = np.kron(np.eye(3), np.ones((9, 9)))
    with pytest.warns(DataWarning, match=r"has 3 components \(9, 9, 9 rows\).*; give affinities between them"):
        dkl.SpectralEmbedding(2, affinity="precomputed").fit(W)
    assert len(set(dkl.SpectralClustering(3, affinity="precomputed", random_state=0).fit_predict(W))) == 3


def test_more_components_than_clusters_are_joined_by_nearness(rng):
    """15 copies of each of 8 places in two groups: their neighbors are all copies, and eigenvectors would merge them at random."""
    places = np.concatenate([rng.standard_normal((4, 2)), 30 + rng.standard_normal((4, 2))])
    X, y = np.repeat(places, 15, axis=0), np.repeat([0, 1], 60)
    with pytest.warns(DataWarning, match=r"had 8 components .* take n_neighbors above 14, the copies of a row"):
        found = dkl.SpectralClustering(2, n_jobs=1, random_state=0).fit_predict(X)
    assert dkl.adjusted_rand_index(y, found) == 1.0


def test_islands_that_are_the_clusters_are_warned_of(rng):
    X = np.concatenate([rng.standard_normal((80, 2)), 40 + rng.standard_normal((12, 2))])
    with pytest.warns(
        DataWarning, match=r"has 2 components \(80, 12 rows\): these are the clusters; raise n_neighbors"
    ):
        dkl.SpectralClustering(2, n_jobs=1, random_state=0).fit(X)


def test_few_distinct_coordinates_are_not_blamed_on_duplicates(rng, monkeypatch):
    X = rng.standard_normal((30, 2))
    found = eigenmaps(dkl.SpectralClustering(2, n_jobs=1), X, 2, 2)
    monkeypatch.setattr(clustering, "eigenmaps", lambda *_, **__: replace(found, coordinates=np.ones((30, 2))))
    with pytest.warns(ConvergenceWarning, match="1 distinct clusters found, .*: the eigenvectors tell no more"):
        dkl.SpectralClustering(2, n_jobs=1, random_state=0).fit(X)


def test_unseen_rows_and_workers(client):
    X, y = make_moons(240, noise=0.05, random_state=0)
    model = dkl.SpectralClustering(2, random_state=0, n_jobs=1).fit(X[:200])
    assert dkl.adjusted_rand_index(y[200:], model.predict(X[200:])) == 1.0
    assert np.array_equal(model.predict(X[:200]), model.labels_)
    there = dkl.SpectralClustering(2, random_state=0, client=client).fit(X[:200])
    assert np.array_equal(there.labels_, model.labels_) and there.embedding_.tobytes() == model.embedding_.tobytes()
    with pytest.warns(DataWarning, match="had 2 components .* joined"):
        shown = dkl.SpectralEmbedding(3, n_jobs=1).fit(X[:200])
    assert np.array_equal(shown.transform(X[:200]), shown.embedding_) and shown.transform(X[200:]).shape == (40, 3)


def test_bad_input_is_refused(rng):
    X = rng.standard_normal((20, 3))
    with pytest.raises(InputError, match="n_components: more eigenvectors than the graph has; got 21 eigenvectors"):
        dkl.SpectralEmbedding(20).fit(X)
    with pytest.raises(InputError, match=r"affinity\[0, 0\]: an affinity is negative"):
        dkl.SpectralEmbedding(2, affinity="precomputed").fit(-np.ones((5, 5)))
    with pytest.raises(InputError, match="transform: new rows have no neighbors here"):
        dkl.SpectralEmbedding(2, affinity="precomputed").fit(np.ones((8, 8))).transform(np.ones((2, 8)))
    with pytest.raises(MemoryBudgetError, match="take fewer components"):
        dkl.SpectralEmbedding(2, memory_limit=320_000_100).fit(rng.standard_normal((4000, 2)))
