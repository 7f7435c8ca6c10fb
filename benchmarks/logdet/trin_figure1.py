"""Figure 1 of Li et al. 2009: a Mahalanobis metric of Spambase by TRIN and by ITML's projections, seconds and errors by pairs and gamma.

    OMP_NUM_THREADS=1 DKL_DATA=... python -m benchmarks.logdet.trin_figure1 [--pairs 400 800 6400] [--draws 1] [--sweeps 8000]
        [--methods TRIN ITML]

Both solve one problem: ITML's loss, W0 the identity, gamma from 1e-4 to 1e4 and not divided, each from W0. Rows are standardised, pairs
drawn among half of them; the error is that of the nearest of this half for the other. TRIN ends at a proven relative gap of 1e-3,
ITML at the same gap, with an order of the pairs drawn for each sweep; "*" where a limit ended it, of 1,000 steps or of --sweeps.
Seconds are of the processor.
"""

from __future__ import annotations

import argparse
import time
import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import StandardScaler

import dkl
from dkl.baselines import ITMLMetricLearner
from dkl.datasets import load

GAMMAS = 10.0 ** np.arange(-4, 5)
TOL = 1e-3
Array = NDArray[Any]


def drawn(count: int, seed: int) -> tuple[Array, Array, Array, Array, dict[str, Array]]:
    """(rows, labels, others, their labels, pairs of the rows by whether their labels agree)."""
    found = load("spambase")
    X, y = StandardScaler().fit_transform(found.X), found.y
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(X))
    known, rest = np.array_split(order, 2)
    ends = np.stack([rng.choice(len(known), 2, replace=False) for _ in range(count)])
    alike = y[known][ends[:, 0]] == y[known][ends[:, 1]]
    return X[known], y[known], X[rest], y[rest], {"must_link": ends[alike], "cannot_link": ends[~alike]}


def fitted(learner: Any, draw: tuple[Array, Array, Array, Array, dict[str, Array]]) -> tuple[float, float, int]:
    """(seconds, error in %, steps or sweeps)."""
    X, y, Z, wanted, pairs = draw
    began = time.process_time()
    learner.fit(X, **pairs)
    seconds = time.process_time() - began
    nearest = KNeighborsClassifier(1).fit(learner.transform(X), y)
    return seconds, 100.0 * (1.0 - nearest.score(learner.transform(Z), wanted)), learner.n_iter_


def main() -> None:
    """A Markdown row a number of pairs and method: mean seconds, error, steps at each gamma."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", nargs="+", type=int, default=[400, 800, 6400])
    parser.add_argument("--draws", type=int, default=1)
    parser.add_argument("--sweeps", type=int, default=8000)
    parser.add_argument("--methods", nargs="+", choices=["TRIN", "ITML"], default=["TRIN", "ITML"])
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    small = drawn(50, 0)
    for compiled in (dkl.LogDetMetricLearner(), ITMLMetricLearner()):
        compiled.fit(small[0], **small[-1])
    print("| pairs | method | " + " | ".join(f"{gamma:g}" for gamma in GAMMAS) + " |")
    for count in options.pairs:
        draws = [drawn(count, seed) for seed in range(options.draws)]
        for method in options.methods:
            print(f"| {count} | {method}", end="", flush=True)
            for gamma in map(float, GAMMAS):
                if method == "TRIN":
                    learner: Any = dkl.LogDetMetricLearner(gamma, normalize_gamma=False, tol=TOL, max_iter=1000)
                else:
                    learner = ITMLMetricLearner(gamma, tol=TOL, max_iter=options.sweeps, random_state=0)
                seconds, errors, steps = zip(*(fitted(learner, draw) for draw in draws), strict=True)
                mark = "*" if max(steps) >= learner.max_iter else ""
                cell = f"{np.mean(seconds):.2f} s, {np.mean(errors):.1f} %, {np.mean(steps):.0f}{mark}"
                print(f" | {cell}", end="", flush=True)
            print(" |", flush=True)


if __name__ == "__main__":
    main()
