"""CPU seconds of fits that measure their quality, next to the same fits with `holdout=0`.

    OMP_NUM_THREADS=1 python -m benchmarks.system.quality_cost [--cases pairwise,logdet] [--rows 150,1000,5000] [--repeats 5] [--sets usps]

Fits of the two kinds alternate in one process, after one of each that compiles. Columns: seconds of the processor of a fit without
quality, and of the whole fit with it over that, less 1; medians of the repeats, with the least and the most; what Result.seconds says
of the step "quality" over "solve"; and the number itself.
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.datasets import make_blobs, make_friedman1

import dkl
from dkl.datasets import load

Rows = tuple[Any, Any]
SHARE_LABELED = 0.3


def blobs(n: int) -> Rows:
    """Six overlapping normal clusters in 10 columns."""
    X, y = make_blobs(n, 10, centers=6, cluster_std=3.0, center_box=(-5, 5), random_state=0)
    return X, y


def usps(n: int) -> Rows:
    """Images of digits in 256 columns."""
    data = load("usps")
    some = np.random.default_rng(0).permutation(len(data.y))[:n]
    return data.X[some], data.y[some]


SETS: dict[str, Callable[[int], Rows]] = {"blobs": blobs, "usps": usps}


def pairs_of(y: Any) -> dkl.Pairs:
    """As many pairs as rows, half of each kind."""
    return dkl.Pairs.from_labels(y, n_must=len(y) // 2, n_cannot=len(y) // 2, random_state=0)


def labels_of(y: Any) -> Any:
    """Labels of SHARE_LABELED of the rows."""
    return np.where(np.random.default_rng(1).random(len(y)) < SHARE_LABELED, y, -1)


def fit_by(make: Callable[[float], Any], given: Callable[[Rows], tuple[Any, dict[str, Any]]]) -> Any:
    """A case: `make` a learner of a holdout, fitted on what is `given` of rows and classes."""
    return make, given


def with_pairs(rows: Rows) -> tuple[Any, dict[str, Any]]:
    """Rows and pairs."""
    return rows[0], {"pairs": pairs_of(rows[1])}


def with_labels(rows: Rows) -> tuple[Any, dict[str, Any]]:
    """Rows and labels of some."""
    return rows[0], {"y": labels_of(rows[1])}


def curved(rows: Rows) -> tuple[Any, dict[str, Any]]:
    """Friedman's function of as many rows, in place of classes."""
    X, y = make_friedman1(len(rows[1]), 10, noise=1.0, random_state=0)
    return X, {"y": y}


CASES: dict[str, tuple[Callable[[float], Any], Callable[[Rows], tuple[Any, dict[str, Any]]]]] = {
    "pairwise": (lambda h: dkl.PairwiseKernelLearner(holdout=h, random_state=0), with_pairs),
    "laplacian": (lambda h: dkl.LaplacianKernelLearner(holdout=h, random_state=0), with_pairs),
    "logdet": (lambda h: dkl.LogDetKernelLearner(holdout=h), with_labels),
    "logdet-pairs": (lambda h: dkl.LogDetKernelLearner(loss="itml", holdout=h), with_pairs),
    "metric": (lambda h: dkl.LogDetMetricLearner(holdout=h), with_labels),
    "metric-pairs": (lambda h: dkl.LogDetMetricLearner(holdout=h), with_pairs),
    "metric-log": (lambda h: dkl.LogDetMetricLearner(loss="log", holdout=h), with_labels),
    "regression": (lambda h: dkl.LowRankKernelRegressor(holdout=h, random_state=0), curved),
    "regression-nu": (lambda h: dkl.LowRankKernelRegressor(nu=1e-3, holdout=h, random_state=0), curved),
}


def timed(make: Callable[[float], Any], holdout: float, X: Any, known: dict[str, Any]) -> tuple[float, Any]:
    """(seconds of the processor, the fitted learner)."""
    start = time.process_time()
    learner = make(holdout).fit(X, **known)
    return time.process_time() - start, learner


def line(name: str, case: str, n: int, repeats: int) -> str:
    """A row of the table."""
    make, given = CASES[case]
    X, known = given(SETS[name](n))
    for holdout in (0.0, 0.1):
        timed(make, holdout, X, known)
    plain, shares, own = [], [], []
    for _ in range(repeats):
        without, _ = timed(make, 0.0, X, known)
        whole, learner = timed(make, 0.1, X, known)
        seconds = learner.result_.seconds
        plain.append(without)
        shares.append(whole / without - 1)
        own.append(seconds.get("quality", 0.0) / seconds.get("solve", seconds["total"]))
    quality = learner.result_.quality
    spread = f"{statistics.median(shares):.0%} ({min(shares):.0%} to {max(shares):.0%})"
    value = "none" if quality is None else f"{quality.value:.4f} of {quality.n}"
    return f"| {case} | {name} | {n:,} | {statistics.median(plain):.3g} | {spread} | {statistics.median(own):.0%} | {value} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--rows", default="150,1000,5000")
    parser.add_argument("--sets", default="blobs,usps")
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    print(
        "| case | set | rows | s without | more with quality | quality / solve | measured |\n|---|---|---|---|---|---|---|"
    )
    for case in args.cases.split(","):
        for name in args.sets.split(","):
            for n in map(int, args.rows.split(",")):
                print(line(name, case, n, args.repeats), flush=True)


if __name__ == "__main__":
    main()
