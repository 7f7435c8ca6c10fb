"""Learners in the basis of smooth eigenvectors, these found with their rows on workers: what they find in one process, byte by byte."""

import numpy as np
import pytest
from distributed import Client
from repeats import but_for

import dkl
from dkl.blocks.graph import distributed_products
from dkl.linalg.eigen import laplacian_eigenmaps

LEARNERS = {
    "unfolding": (dkl.MaximumVarianceUnfolding(n_basis=8, n_neighbors=8, max_iter=3), "embedding_", False),
    "propagation": (
        dkl.LaplacianKernelLearner(n_basis=8, n_neighbors=8, max_iter=3, random_state=0),
        "embedding_",
        True,
    ),
    "embedding": (dkl.SpectralEmbedding(5), "embedding_", False),
    "clusters": (dkl.SpectralClustering(4, n_init=1, random_state=0), "labels_", False),
}


@pytest.fixture
def shared(monkeypatch):
    """As of graphs that no factor fits, and of as many rows as workers are asked for: those that were shared out."""
    for place, name in ((laplacian_eigenmaps, "FILL"), (distributed_products, "WORTHWHILE")):
        monkeypatch.setattr(place, name, 0)
    made, real = [], distributed_products.SharedPasses

    def noted(*given):
        made.append(real(*given))
        return made[-1]

    monkeypatch.setattr(distributed_products, "SharedPasses", noted)
    return made


@pytest.mark.filterwarnings("ignore::dkl.errors.ConvergenceWarning")
@pytest.mark.parametrize("name", but_for(["propagation", "embedding"], LEARNERS))
def test_they_find_what_one_process_finds(name, shared, cluster, rng):
    learner, found, has_labels = LEARNERS[name]
    X = rng.random((700, 3))
    y = np.where(np.arange(700) % 20, -1, (X[:, 0] > 0.5).astype(int)) if has_labels else None
    here = learner.set_params(client=None, n_jobs=1).fit(X, y)
    wanted, n_made = getattr(here, found).tobytes(), len(shared)
    with Client(cluster) as client:  # only now, as a client that is current is found unasked
        there = learner.set_params(client=client).fit(X, y)
    assert n_made == 0 and len(shared) == 1
    assert getattr(there, found).tobytes() == wanted
