"""Whether a number known without labels tells that k-means clusters better than `SpectralClustering`.

    python -m benchmarks.system.cluster_choice --mlbench mlbench/usr/lib/R/site-library/mlbench --seeds 6

On all sets with classes of `answers.py`: of each draw the rule "take spectral clusters where their number is the better one", by several
numbers. Printed for each: the share of right decisions among draws on which the adjusted Rand indices differ by more than .02, the share of
its warnings of spectral clusters that are right, and the mean index of what it takes, for the table of `answers.md`.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score, silhouette_score
from sklearn.neighbors import kneighbors_graph
from threadpoolctl import threadpool_limits

import dkl
from benchmarks.system import answers_sets as sets
from benchmarks.system.answers_questions import draw

TIE = 0.02
REPEATS = 5


def cuts(W: Any, labels: Any) -> tuple[float, float]:
    """Return (normalized cut, modularity) of clusters on a graph of weights W (n, n)."""
    inside = np.array([float((W[labels == c][:, labels == c]).sum()) for c in np.unique(labels)])
    volumes = np.array([float(W[labels == c].sum()) for c in np.unique(labels)])
    return float((1 - inside / volumes).sum()), float((inside / W.sum() - (volumes / W.sum()) ** 2).sum())


def numbers(X: Any, W: Any, make: Any, labels: Any, seed: int) -> dict[str, float]:
    """Return the numbers of clusters, larger is better. Stability: adjusted Rand indices of fits on parts of the rows."""
    stream, halves, parts = np.random.default_rng([seed, 7]), [], []
    for _ in range(REPEATS):
        order = stream.permutation(len(X))
        a, b = order[: len(X) // 2], order[len(X) // 2 :]
        first, second = make().fit(X[a]), make().fit(X[b])
        halves += [adjusted_rand_score(first.predict(X[b]), second.labels_)]
        halves += [adjusted_rand_score(second.predict(X[a]), first.labels_)]
        most = order[: 4 * len(X) // 5]
        parts.append(adjusted_rand_score(make().fit(X[most]).labels_, labels[most]))
    cut, modularity = cuts(W, labels)
    silhouette = float(silhouette_score(X, labels)) if len(np.unique(labels)) > 1 else -1.0
    return {
        "silhouette of rows": silhouette,
        "stability between two halves": float(np.mean(halves)),
        "stability of four fifths": float(np.mean(parts)),
        "normalized cut, 10 neighbors": -cut,
        "modularity, 10 neighbors": modularity,
    }


def main() -> None:
    """Print a table: a line a number."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mlbench", default=sets.MLBENCH, help="folder of the R package; " + sets.HOW_TO_GET_MLBENCH)
    parser.add_argument("--sets", nargs="+", choices=sets.NAMES, default=list(sets.NAMES), metavar="SET")
    parser.add_argument("--seeds", type=int, default=6, help="draws of each set")
    parser.add_argument("--rows", type=int, default=1000, help="most rows of a set")
    options = parser.parse_args()
    gains, apart = [], []
    for seed in range(options.seeds):
        for name in (name for name in options.sets if name not in sets.TARGETS):
            made = draw(name, "all rows", seed, options.rows, "standardized", Path(options.mlbench))
            X, k = np.asarray(made.X), made.k
            W = kneighbors_graph(X, min(10, len(X) - 1), mode="connectivity")
            W = (W + W.T).tocsr()
            found = []
            for make in (
                lambda k=k, seed=seed: dkl.SpectralClustering(k, random_state=seed),
                lambda k=k, seed=seed: KMeans(k, n_init=10, random_state=seed),
            ):
                labels = make().fit(X).labels_
                found.append((adjusted_rand_score(made.y, labels), numbers(X, W, make, labels, seed)))
            (spectral, ours), (plain, theirs) = found
            gains.append(spectral - plain)
            apart.append([ours[one] - theirs[one] for one in ours])
    gain, by_number = np.array(gains), np.array(apart).T
    decided = np.abs(gain) > TIE
    print(f"{len(gain)} draws, {decided.sum()} of them decisions; k-means is better in {(gain[decided] < 0).sum()}.\n")
    print(
        "| number | right decisions | right of its warnings | mean ARI over k-means of what it takes |\n|---|---|---|---|"
    )
    for one, scores in zip(ours, by_number, strict=True):
        right, warned = (scores > 0) == (gain > 0), decided & (scores <= 0)
        of_warnings = f"{(gain[warned] < 0).sum()} of {warned.sum()}"
        print(f"| {one} | {right[decided].mean():.0%} | {of_warnings} | {np.where(scores > 0, gain, 0).mean():+.3f} |")
    print(f"| labels | 100% | | {np.maximum(gain, 0).mean():+.3f} |\n| always spectral | | | {gain.mean():+.3f} |")


if __name__ == "__main__":
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        main()
