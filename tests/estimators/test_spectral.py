"""`SpectralEmbedding` and `SpectralClustering`: scikit-learn's on the same affinity, components, unseen rows, bad input."""

import numpy as np
import pytest
import sklearn.cluster
import sklearn.manifold
from scipy import sparse
from sklearn.datasets import make_moons
from sklearn.utils.estimator_checks import parametrize_with_checks
from tailed_rows import tailed_rows

import dkl
from dkl.errors import InputError, MemoryBudgetError
from dkl.linalg import smooth_bytes


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
    ("dense", "factored"), [(600, 10_000), (50, 10_000), (50, 60)], ids=["dense", "shift-invert", "filter"]
)
def test_the_embedding_is_scikit_learns_on_the_same_affinity(rng, monkeypatch, dense, factored):
    monkeypatch.setattr(smooth_bytes, "DENSE", dense)
    monkeypatch.setattr(smooth_bytes, "FACTORED", factored)
    monkeypatch.setattr(smooth_bytes, "FILL", 0)
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
    far = np.concatenate([X, 1e6 + 1e-3 * X[:8]])  # a tight group, all of whose neighbours but a few are its own
    found = dkl.SpectralClustering(3, n_jobs=1, random_state=0).fit_predict(far)[:300]
    assert dkl.adjusted_rand_index(y, found) > 0.6


def test_unseen_rows_and_workers(client):
    X, y = make_moons(240, noise=0.05, random_state=0)
    model = dkl.SpectralClustering(2, random_state=0, n_jobs=1).fit(X[:200])
    assert dkl.adjusted_rand_index(y[200:], model.predict(X[200:])) == 1.0
    assert np.array_equal(model.predict(X[:200]), model.labels_)
    there = dkl.SpectralClustering(2, random_state=0, client=client).fit(X[:200])
    assert np.array_equal(there.labels_, model.labels_) and there.embedding_.tobytes() == model.embedding_.tobytes()
    shown = dkl.SpectralEmbedding(3, n_jobs=1).fit(X[:200])
    assert np.array_equal(shown.transform(X[:200]), shown.embedding_) and shown.transform(X[200:]).shape == (40, 3)


def test_bad_input_is_refused(rng):
    X = rng.standard_normal((20, 3))
    with pytest.raises(InputError, match="n_components: more eigenvectors than the graph has; got 21 eigenvectors"):
        dkl.SpectralEmbedding(20).fit(X)
    with pytest.raises(InputError, match=r"affinity\[0, 0\]: an affinity is negative"):
        dkl.SpectralEmbedding(2, affinity="precomputed").fit(-np.ones((5, 5)))
    with pytest.raises(InputError, match="transform: new rows have no neighbours here"):
        dkl.SpectralEmbedding(2, affinity="precomputed").fit(np.ones((8, 8))).transform(np.ones((2, 8)))
    with pytest.raises(MemoryBudgetError, match="take fewer components"):
        dkl.SpectralEmbedding(2, memory_limit=320_000_100).fit(rng.standard_normal((4000, 2)))
