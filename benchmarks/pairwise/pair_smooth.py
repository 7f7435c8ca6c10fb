"""`LaplacianKernelLearner` next to `PairwiseKernelLearner` and clusters without pairs, of few pairs and of many rows: adjusted Rand index.

    OMP_NUM_THREADS=1 DKL_DATA=... python -m benchmarks.pairwise.pair_smooth [--shares 0.05 0.125] [--draws 2]
    ... --sets usps --rows 10000 --shares 0.05 0.25

`answers.py --learner pairwise laplacian` compares them from n / 4 pairs on, right and wrong, on sets of up to 1,000 rows.
Pairs are of rows drawn uniformly, a share of n of them; learners at their defaults, clusters of the kernel by
`KernelKMeans`. Columns have mean 0 and variance 1 but for pixels; MNIST is its first 30 principal components. At most `--rows` rows of a
set. Differences are means over sets with their standard error (wins, ties within .01, losses); seconds are of the processor.
"""

from __future__ import annotations

import argparse
import time
import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn import datasets
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.metrics import adjusted_rand_score
from sklearn.preprocessing import StandardScaler

import dkl
from dkl.datasets import load

STORED = ("ionosphere", "glass", "heart", "pima", "sonar", "usps", "spambase", "mnist")
BUNDLED = {"iris": datasets.load_iris, "wine": datasets.load_wine, "breast": datasets.load_breast_cancer}
PIXELS = ("usps", "mnist", "digits")
MADE = ("moons", "circles")
SETS = (*STORED[:-1], *BUNDLED, "digits", *MADE)
Rows = NDArray[np.float64]


def read(name: str, rows: int) -> tuple[Rows, NDArray[np.intp]]:
    """Return rows and class numbers of a set."""
    if name in MADE:
        make = {"moons": datasets.make_moons, "circles": datasets.make_circles}[name]
        X, y = make(rows, noise=0.1 if name == "moons" else 0.08, random_state=0)
    elif name in STORED:
        X, y = load(name).X, load(name).y
    else:
        X, y = BUNDLED.get(name, datasets.load_digits)(return_X_y=True)
    some = np.random.default_rng(1).permutation(len(y))[:rows]
    X, y = np.asarray(X, np.float64)[some], np.unique(y[some], return_inverse=True)[1]
    if name == "mnist":
        X = PCA(30, random_state=0).fit_transform(X)
    return X if name in PIXELS else StandardScaler().fit_transform(X[:, X.std(axis=0) > 0]), y


def drawn(y: NDArray[np.intp], share: float, seed: int) -> dict[str, Any]:
    """Return must-links and cannot-links."""
    rng = np.random.default_rng(seed)
    ends = rng.integers(len(y), size=(max(4, int(share * len(y))), 2))
    ends = np.unique(np.sort(ends[ends[:, 0] != ends[:, 1]], axis=1), axis=0)
    alike = y[ends[:, 0]] == y[ends[:, 1]]
    return {"must_link": ends[alike], "cannot_link": ends[~alike]}


def scores(X: Rows, y: NDArray[np.intp], pairs: dict[str, Any], seed: int) -> list[float]:
    """Return ARI and seconds of the smooth kernel, then of the pair learner's."""
    found = []
    for learner in (dkl.LaplacianKernelLearner, dkl.PairwiseKernelLearner):
        start = time.process_time()
        model = learner(random_state=seed, n_jobs=1).fit(X, **pairs)
        seconds = time.process_time() - start
        factor = model.embedding_ if isinstance(model, dkl.LaplacianKernelLearner) else model.factor_
        clusters = dkl.KernelKMeans(len(np.unique(y)), random_state=seed).fit_predict(factor)
        found += [float(adjusted_rand_score(y, clusters)), seconds]
    return found


def difference(paired: Rows) -> str:
    """Return mean, standard error, and wins, ties, losses."""
    error = paired.std(ddof=1) / np.sqrt(len(paired)) if len(paired) > 1 else np.nan
    counts = "-".join(str(int(some.sum())) for some in (paired > 0.01, abs(paired) <= 0.01, paired < -0.01))
    return f"{paired.mean():+.3f} +- {error:.3f} ({counts})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", default=list(SETS))
    parser.add_argument("--shares", nargs="+", type=float, default=[0.05, 0.125])
    parser.add_argument("--draws", type=int, default=2)
    parser.add_argument("--rows", type=int, default=500)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    all_scores: dict[float, list[Any]] = {share: [] for share in options.shares}
    for name in options.sets:
        X, y = read(name, options.rows)
        k = len(np.unique(y))
        plain = [adjusted_rand_score(y, KMeans(k, n_init=10, random_state=s).fit_predict(X)) for s in range(2)]
        print(f"{name}, {len(y):,} rows, k-means {np.mean(plain):.2f}", end="", flush=True)
        for share in options.shares:
            runs = [scores(X, y, drawn(y, share, seed), seed) for seed in range(options.draws)]
            smooth, smooth_s, pairwise, pairwise_s = np.mean(runs, axis=0)
            all_scores[share].append((smooth, pairwise, np.mean(plain)))
            print(
                f"; {share:g} n: {smooth:.2f} ({smooth_s:.1f} s), {pairwise:.2f} ({pairwise_s:.1f} s)",
                end="",
                flush=True,
            )
        print()
    for share, rows in all_scores.items():
        smooth, pairwise, plain = np.array(rows).T
        print(f"| {share:g} n | {difference(smooth - pairwise)} | {difference(smooth - plain)} |")


if __name__ == "__main__":
    main()
