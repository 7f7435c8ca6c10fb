"""Kernels under hard pairs ((5)-(9) of Wu, So, Li & Li 2009) next to soft ones, (12), on pairs that were not learned from.

    OMP_NUM_THREADS=1 python -m benchmarks.qsdp.hard_pairs [--sets iris wine digits cancer] [--seeds 5]

Sets of scikit-learn, standardized: iris, wine, images of the digits 3 and 8 (the first 300), breast cancer (300 rows of it). Pairs are
drawn at random, a number for each row on average, and labeled by the classes; `wrong` is the share of them that is turned around, in
which case hard ones that contradict others are left out. A line has means over the seeds, which draw pairs, and rows of the last set:

- ARI: adjusted Rand index of k-means, as many clusters as classes, on the kernel, over all rows;
- pairs: AUC of the kernel's entries, over all pairs of rows that no pair given names, or, where these are fewer than 50 rows, over
  those that were not given;
- s: seconds of the processor of a fit, without a measurement of the quality.

Spectral embedding has the same number of neighbors and no pairs, and as many eigenvectors as there are classes; k-means is of the rows.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.metrics import adjusted_rand_score, roc_auc_score
from sklearn.preprocessing import StandardScaler

import dkl
from dkl.errors import DataWarning

Array = NDArray[np.float64]
SCENES = ((0.2, 0.0), (1.0, 0.0), (1.0, 0.1))
"""Pairs a row, and the share of them that is wrong."""
ENOUGH = 50


def digits() -> tuple[Array, NDArray[Any]]:
    """Return images of 3 and 8."""
    X, y = load_digits(return_X_y=True)
    chosen = np.flatnonzero(np.isin(y, (3, 8)))[:300]
    return X[chosen], y[chosen]


SETS: dict[str, Callable[[], tuple[Array, NDArray[Any]]]] = {
    "iris": lambda: load_iris(return_X_y=True),
    "wine": lambda: load_wine(return_X_y=True),
    "digits": digits,
    "cancer": lambda: load_breast_cancer(return_X_y=True),
}


def drawn(name: str, rng: np.random.Generator) -> tuple[Array, NDArray[Any]]:
    """Return rows, standardized, and classes; of a large set 300 of them."""
    X, y = SETS[name]()
    chosen = np.sort(rng.permutation(len(X))[:300])
    return StandardScaler().fit_transform(X[chosen]), y[chosen]


def pairs_of(
    y: NDArray[Any], count: int, wrong: float, rng: np.random.Generator
) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Return pairs (count, 2), each once, and what is said of them."""
    i, j = np.triu_indices(len(y), 1)
    chosen = rng.permutation(len(i))[:count]
    ends = np.stack([i[chosen], j[chosen]], axis=1)
    return ends, (y[ends[:, 0]] == y[ends[:, 1]]) != (rng.random(count) < wrong)


def measured(E: Array, y: NDArray[Any], ends: NDArray[Any]) -> tuple[float, float]:
    """Return (ARI of k-means on E, AUC of E E' over pairs that were not learned from)."""
    clusters = KMeans(len(np.unique(y)), n_init=10, random_state=0).fit_predict(E)
    is_free = np.ones(len(y), bool)
    is_free[ends.ravel()] = False
    i, j = np.triu_indices(len(y), 1)
    is_given = np.zeros((len(y), len(y)), bool)
    is_given[ends[:, 0], ends[:, 1]] = True
    counts = is_free[i] & is_free[j] if is_free.sum() >= ENOUGH else ~is_given[i, j]
    i, j = i[counts], j[counts]
    return adjusted_rand_score(y, clusters), roc_auc_score(y[i] == y[j], np.einsum("pr,pr->p", E[i], E[j]))


def embedded(method: str, X: Array, ends: NDArray[Any], is_must: NDArray[np.bool_], k: int) -> Array:
    """Return the coordinates whose products are the kernel of a method."""
    if method == "spectral":
        return np.asarray(dkl.SpectralEmbedding(k, n_neighbors=20).fit_transform(X))
    if method == "k-means":
        return X
    rule = "drop" if method == "hard" else "keep"
    learner = dkl.LaplacianKernelLearner(constraints=method, contradictions=rule, holdout=0, tol=1e-4)
    return np.asarray(learner.fit(X, must_link=ends[is_must], cannot_link=ends[~is_must]).embedding_)


def main() -> None:
    """Print a line for each set, scene and method."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=list(SETS))
    parser.add_argument("--seeds", type=int, default=5)
    asked = parser.parse_args()
    warnings.simplefilter("ignore", DataWarning)
    print(f"{'set':8} {'pairs a row':>11} {'wrong':>6} {'method':10} {'ARI':>6} {'pairs':>6} {'s':>6}")
    for name in asked.sets:
        for share, wrong in SCENES:
            for method in ("hard", "soft", "spectral", "k-means"):
                found = []
                for seed in range(asked.seeds):
                    rng = np.random.default_rng(seed)
                    X, y = drawn(name, rng)
                    ends, is_must = pairs_of(y, int(share * len(y)), wrong, rng)
                    began = time.process_time()
                    E = embedded(method, X, ends, is_must, len(np.unique(y)))
                    found.append((*measured(E, y, ends), time.process_time() - began))
                ari, auc, seconds = np.mean(found, axis=0)
                print(f"{name:8} {share:11} {wrong:6} {method:10} {ari:6.3f} {auc:6.3f} {seconds:6.2f}", flush=True)


if __name__ == "__main__":
    main()
