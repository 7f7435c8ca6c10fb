"""`SpectralEmbedding` and `SpectralClustering` beside scikit-learn's: `python benchmarks/spectral.py [SET ...]`.

The embedding of the same affinity, that of dkl's neighbour graph: CPU seconds of either for the eigenvectors alone, and the sine of the
largest angle between the subspaces. Then clusters from the rows, each with its own 10-nearest-neighbour graph: the adjusted Rand index
and CPU seconds. A Markdown row a set.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import sklearn.cluster
import sklearn.manifold
from pair_defaults import rows_of
from scipy import sparse
from threadpoolctl import threadpool_limits

import dkl
from dkl.blocks.graph import build_graph

SETS = ("wine", "digits", "a4a", "usps")


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """(what it gives, CPU seconds)."""
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = work()
    return found, time.process_time() - start


def row(name: str) -> str:
    """A line of the table."""
    X, y, clusters = rows_of(name)
    L = build_graph(X, laplacian="unnormalized").laplacian
    W = sparse.csr_array(sparse.diags_array(L.diagonal()) - L)
    W.eliminate_zeros()
    mine, own = timed(lambda: dkl.SpectralEmbedding(clusters, affinity="precomputed").fit(W).embedding_)
    theirs, other = timed(
        lambda: sklearn.manifold.spectral_embedding(sparse.csr_matrix(W), n_components=clusters, random_state=0)
    )
    one, two = (np.linalg.qr(found)[0] for found in (mine, theirs))
    angle = np.linalg.norm(two - one @ (one.T @ two), 2)
    found, fitted = timed(lambda: dkl.SpectralClustering(clusters, random_state=0, n_jobs=1).fit_predict(X))
    peer = sklearn.cluster.SpectralClustering(clusters, affinity="nearest_neighbors", random_state=0)
    wanted, peer_fitted = timed(lambda: peer.fit_predict(X))
    indices = [dkl.adjusted_rand_index(y, labels) for labels in (found, wanted)]
    cells = (
        name, f"{len(y):,}", clusters, f"{angle:.1e}", f"{own:.2f}", f"{other:.2f}", f"{own / other:.2f}",
        f"{indices[0]:.3f}", f"{indices[1]:.3f}", f"{fitted:.2f}", f"{peer_fitted:.2f}",
    )  # fmt: skip
    return "| " + " | ".join(map(str, cells)) + " |"


def main(names: list[str]) -> None:
    """All sets."""
    row("wine")  # compiles
    head = (
        "set",
        "n",
        "k",
        "sine",
        "s, dkl",
        "s, sklearn",
        "ratio",
        "ARI, dkl",
        "ARI, sklearn",
        "s, dkl",
        "s, sklearn",
    )
    print("| " + " | ".join(head) + " |\n|" + "---|" * len(head), flush=True)
    for name in names:
        print(row(name), flush=True)


if __name__ == "__main__":
    with threadpool_limits(1):
        main(sys.argv[1:] or list(SETS))
