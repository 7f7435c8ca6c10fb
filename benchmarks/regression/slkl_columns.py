"""The regressor's default on its own columns beside Nystroem + RidgeCV on as many: R2 and columns.

    OMP_NUM_THREADS=1 DKL_DATA=... python -m benchmarks.regression.slkl_columns [--sets diabetes,friedman1] [--splits 2] [--rows 700]

Features have mean 0 and variance 1 on the training rows, at most `--rows` of them; R2 is on at most 3,000 others, a mean over splits. auto
is the default; best, which was the default before, may take a ridge on all columns. Nystroem draws as many rows uniformly as auto has
columns, with the same gamma = 1 / (number of features); RidgeCV's penalties are half decades from 1e-6 to 1e3.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn import datasets
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks.regression.slkl import circumstances, table
from dkl import LowRankKernelRegressor
from dkl.datasets import load

Set = Callable[[], tuple[NDArray[np.float64], NDArray[np.float64]]]
WAYS = ("never", "active", "all", "best", "auto")


def of(name: str) -> Set:
    def read() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        data = load(name)
        return np.asarray(data.X, np.float64), np.asarray(data.y, np.float64)

    return read


SETS: dict[str, Set] = {
    "diabetes": lambda: datasets.load_diabetes(return_X_y=True),
    "boston": of("boston_housing"),
    "abalone": of("abalone_onehot"),
    "friedman1": lambda: datasets.make_friedman1(2000, 10, noise=1.0, random_state=0),
    "friedman2": lambda: datasets.make_friedman2(2000, noise=100.0, random_state=0),
    "friedman3": lambda: datasets.make_friedman3(2000, noise=0.1, random_state=0),
    "breast cancer": lambda: datasets.load_breast_cancer(return_X_y=True),
    "spambase": of("spambase"),
    "hill valley": of("hill_valley_without_noise"),
    "hill valley, noise": of("hill_valley_with_noise"),
}


def split(name: str, seed: int, rows: int) -> tuple[Any, Any, Any, Any]:
    """Return (X, y, X_test, y_test)."""
    X, y = SETS[name]()
    order = np.random.default_rng(seed).permutation(len(y))
    n = min(rows, int(0.7 * len(y)))
    train, test = order[:n], order[n : n + 3000]
    scaler = StandardScaler().fit(X[train])
    return scaler.transform(X[train]), y[train], scaler.transform(X[test]), y[test]


def run(name: str, seed: int, rows: int) -> dict[str, tuple[float, float]]:
    """Return (R2, columns) of each way."""
    X, y, X_test, y_test = split(name, seed, rows)
    found = {}
    for how in WAYS:
        model = LowRankKernelRegressor(refit=how, random_state=seed, n_jobs=1).fit(X, y)
        found[how] = model.score(X_test, y_test), model.n_active_
    for label, columns in (("Nystroem, as many", max(1, model.n_active_)), ("Nystroem, all", min(1000, len(y)))):
        nystroem = Nystroem(gamma=1 / X.shape[1], n_components=columns, random_state=seed)
        peer = make_pipeline(nystroem, RidgeCV(10.0 ** np.arange(-6, 3.5, 0.5))).fit(X, y)
        found[label] = peer.score(X_test, y_test), columns
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--splits", type=int, default=2)
    parser.add_argument("--rows", type=int, default=700)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    print(circumstances(1))
    labels = (*WAYS, "Nystroem, as many", "Nystroem, all")
    lines = []
    for name in options.sets.split(","):
        runs = [run(name, seed, options.rows) for seed in range(options.splits)]
        means = [np.mean([one[label] for one in runs], axis=0) for label in labels]
        lines.append((name, *(f"{r2:.4f}, {columns:.0f}" for r2, columns in means)))
    print(table(("", *labels), lines))


if __name__ == "__main__":
    main()
