"""What a fit of pairs proves and clusters by solver and goal: `python benchmarks/pair_defaults.py [SET ...]`.

For each set, with n/4 and n pairs (half of either kind, drawn from the labels): the proven relative gap, the adjusted Rand
index of KernelKMeans on the factor in as many clusters as classes, and the seconds of the fit without the graph, beside those
of ADMM alone in the same round. One fit of a kind before the first counts compiles. A Markdown row a fit, as they end.
"""

from __future__ import annotations

import sys
import warnings
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

import dkl
from dkl.datasets import load

SETS = ("wine", "heart", "digits", "a1a", "a2a", "a4a", "a5a", "usps")
SHARES = (0.25, 1.0)
SEED, THREADS = 0, 2
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


def fitted(X: Any, pairs: dkl.Pairs, way: dict[str, Any]) -> Any:
    """A learner, fitted."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return dkl.PairwiseKernelLearner(random_state=SEED, n_jobs=THREADS, **way).fit(X, pairs=pairs)


def row(name: str, share: float, way: str, model: Any, y: Any, clusters: int, base: float) -> tuple[str, float]:
    """(a line of the table, seconds without the graph)."""
    seconds = model.result_.seconds["total"] - model.result_.seconds["graph"]
    labels = dkl.KernelKMeans(clusters, n_init=4, random_state=SEED).fit_predict(model.factor_)
    index = dkl.adjusted_rand_index(y, labels)
    cells = (
        name, f"{len(y):,}", f"{share:g} n", way, model.result_.outcome.value, f"{model.certificate_.relative_gap:.1e}",
        f"{index:.3f}", model.rank_, f"{seconds:.2f}", f"{seconds / (base or seconds):.2f}",
    )  # fmt: skip
    return "| " + " | ".join(map(str, cells)) + " |", seconds


def main(names: list[str]) -> None:
    """All sets, shares and ways."""
    X, y, _ = rows_of("wine")
    for way in WAYS.values():  # compiles
        fitted(X, dkl.Pairs.from_labels(y, n_must=40, n_cannot=40, random_state=1), way)
    print("| set | n | pairs | solver | outcome | gap | ARI | rank | s | of ADMM's |\n|" + "---|" * 10, flush=True)
    for name in names:
        X, y, clusters = rows_of(name)
        for share in SHARES:
            half = round(share * len(y) / 2)
            pairs = dkl.Pairs.from_labels(y, n_must=half, n_cannot=half, random_state=SEED)
            base = 0.0
            for way, settings in WAYS.items():
                line, seconds = row(name, share, way, fitted(X, pairs, settings), y, clusters, base)
                base = base or seconds
                print(line, flush=True)


if __name__ == "__main__":
    with threadpool_limits(1):
        main(sys.argv[1:] or list(SETS))
