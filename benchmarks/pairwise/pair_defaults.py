"""What a fit of pairs proves and clusters by solver and goal: `python -m benchmarks.pairwise.pair_defaults [SET ...]`.

For each set, with n/4 and n pairs (half of either kind, drawn from the labels): the proven relative gap, the adjusted Rand
index of KernelKMeans on the factor in as many clusters as classes, and the CPU seconds of the fit without the graph, beside those
of ADMM alone in the same round, one thread. Fits before the first that counts compile. A Markdown row a fit, as they end.
"""

from __future__ import annotations

import argparse
import time
import warnings
from typing import Any

import numpy as np
from scipy import sparse
from threadpoolctl import threadpool_limits

import dkl
from benchmarks.pairwise.pair_proofs import compile_steps
from dkl.blocks.graph.neighbor_graph import build_graph
from dkl.datasets import load

SETS = ("wine", "heart", "digits", "a1a", "a2a", "a4a", "a5a", "usps")
SHARES = (0.25, 1.0)
SEED = 0
WAYS: dict[str, dict[str, Any]] = {
    "admm": {"solver": "admm", "target_gap": None},
    "admm to 1e-2": {"solver": "admm", "target_gap": 1e-2},
    "admm to 1e-3": {"solver": "admm", "target_gap": 1e-3},
    "factored to 1e-2": {"solver": "factored", "target_gap": 1e-2},
    "factored to 1e-3": {"solver": "factored", "target_gap": 1e-3},
}


def rows_of(name: str) -> tuple[Any, Any, int]:
    """(X, y, number of classes); columns of the small dense sets are scaled to unit variance."""
    found = load(name)
    X = found.X
    if isinstance(X, np.ndarray) and X.shape[1] < 50:
        X = (X - X.mean(axis=0)) / np.where(X.std(axis=0) > 0, X.std(axis=0), 1.0)
    return X, found.y, len(np.unique(found.y))


def similarities(X: Any) -> Any:
    """(n, n) weights of the graph of 10 neighbours."""
    laplacian = build_graph(X, n_neighbors=10, laplacian="unnormalized").laplacian
    weights = sparse.csr_array(sparse.diags_array(laplacian.diagonal()) - laplacian)
    weights.eliminate_zeros()
    return weights


def fitted(graph: Any, pairs: dkl.Pairs, way: dict[str, Any]) -> tuple[Any, float]:
    """(a learner, fitted; CPU seconds)."""
    learner = dkl.PairwiseKernelLearner(affinity="precomputed", random_state=SEED, n_jobs=1, **way)
    began = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        learner.fit(graph, pairs=pairs)
    return learner, time.process_time() - began


def row(name: str, share: float, way: str, found: tuple[Any, float], y: Any, clusters: int, base: float) -> str:
    """A line of the table."""
    model, seconds = found
    labels = dkl.KernelKMeans(clusters, n_init=4, random_state=SEED).fit_predict(model.factor_)
    index = dkl.adjusted_rand_index(y, labels)
    cells = (
        name, f"{len(y):,}", f"{share:g} n", way, model.result_.outcome.value, f"{model.certificate_.relative_gap:.1e}",
        f"{index:.3f}", model.rank_, f"{seconds:.2f}", f"{seconds / base:.2f}",
    )  # fmt: skip
    return "| " + " | ".join(map(str, cells)) + " |"


def main() -> None:
    """All sets, shares and ways."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="*", metavar="SET", default=list(SETS))
    asked = parser.parse_args()
    compile_steps()
    X, y, _ = rows_of("wine")
    for way in WAYS.values():  # compiles what is left
        fitted(similarities(X), dkl.Pairs.from_labels(y, n_must=40, n_cannot=40, random_state=1), way)
    print("| set | n | pairs | solver | outcome | gap | ARI | rank | CPU s | of ADMM's |\n|" + "---|" * 10, flush=True)
    for name in asked.sets:
        X, y, clusters = rows_of(name)
        graph = similarities(X)
        for share in SHARES:
            half = round(share * len(y) / 2)
            pairs = dkl.Pairs.from_labels(y, n_must=half, n_cannot=half, random_state=SEED)
            base = 0.0
            for way, settings in WAYS.items():
                found = fitted(graph, pairs, settings)
                base = base or found[1]
                print(row(name, share, way, found, y, clusters, base), flush=True)


if __name__ == "__main__":
    with threadpool_limits(1):
        main()
