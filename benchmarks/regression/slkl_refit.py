"""SLKL with `nu="cv"` and its refit beside Nystrom and uniform weights, at equal columns and at equal time.

    OMP_NUM_THREADS=1 python -m benchmarks.regression.slkl_refit [--sets friedman,abalone] [--runs 3] [--columns 100,500]

Features have mean 0 and variance 1 on the training rows, gamma = 1 / (number of features); run s draws split and columns with
seed s. The baselines' lambda is the best of half decades by the same five folds, which their own fits do not choose: their
seconds are those of the search over lambda, five folds each, and of the last fit. R2 is on the test rows; its difference to
that of "best" is paired by runs, with its standard error; m0: columns of the model; seconds are of the processor, on one
thread. A line that begins with "=" repeats a baseline on the columns that the lasso has chosen, and on as many uniform ones.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_diabetes, make_friedman1
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.preprocessing import StandardScaler

from benchmarks.regression.slkl import circumstances, table
from dkl import LowRankKernelRegressor
from dkl.baselines import NystromRegressor, UniformWeightsRegressor
from dkl.datasets import load

Rows = NDArray[np.float64]
LAMS = 10.0 ** np.arange(2, -4.5, -0.5)


def friedman() -> tuple[Rows, Rows]:
    X, y = make_friedman1(10_000, 9, noise=4.0, random_state=0)
    return X, y


def spambase() -> tuple[Rows, Rows]:
    data = load("spambase")
    return np.log1p(data.X), 2.0 * data.y - 1


def of(name: str) -> Callable[[], tuple[Rows, Rows]]:
    def read() -> tuple[Rows, Rows]:
        data = load(name)
        return data.X, np.asarray(data.y, float)

    return read


SETS: dict[str, tuple[Callable[[], tuple[Rows, Rows]], int]] = {
    "friedman": (friedman, 7000),
    "abalone": (of("abalone_onehot"), 3000),
    "boston": (of("boston_housing"), 350),
    "diabetes": (lambda: load_diabetes(return_X_y=True), 300),
    "spambase": (spambase, 3000),
}


def searched(model: Any, seed: int) -> GridSearchCV:
    return GridSearchCV(model, {"lam": LAMS}, cv=KFold(5, shuffle=True, random_state=seed))


def run(name: str, M: int, seed: int) -> dict[str, tuple[float, float, float]]:
    """(R2, m0, seconds) of each method."""
    (X, y), n_train = SETS[name][0](), SETS[name][1]
    order = np.random.default_rng(seed).permutation(len(y))
    train, test = order[:n_train], order[n_train:]
    scaler = StandardScaler().fit(X[train])
    X, X_test, y, y_test = scaler.transform(X[train]), scaler.transform(X[test]), y[train], y[test]
    shared: dict[str, Any] = {"gamma": 1 / X.shape[1], "random_state": seed, "n_jobs": 1}
    found: dict[str, tuple[float, float, float]] = {}

    def measure(label: str, model: Any) -> Any:
        start = time.process_time()
        model.fit(X, y)
        seconds = time.process_time() - start
        best = getattr(model, "best_estimator_", model)
        found[label] = model.score(X_test, y_test), best.n_active_, seconds
        return best

    lasso = measure("SLKL, refit never", LowRankKernelRegressor(n_columns=M, refit="never", **shared))
    for how in ("active", "all", "best", "auto"):
        measure(f"SLKL, refit {how}", LowRankKernelRegressor(n_columns=M, refit=how, **shared))
    points = X[lasso.columns_]
    measure("Nystrom", searched(NystromRegressor(columns=points, **shared), seed))
    measure("uniform weights", searched(UniformWeightsRegressor(columns=points, **shared), seed))
    drawn = np.random.default_rng(seed).permutation(lasso.columns_)[: lasso.n_active_]
    for label, numbers in (("the lasso's columns", lasso.support_), ("as many uniform", drawn)):
        measure(f"= Nystrom, {label}", searched(NystromRegressor(columns=X[numbers], **shared), seed))
    return found


def difference(paired: Rows) -> str:
    """Mean and standard error; of one run there is none."""
    error = paired.std(ddof=1) / np.sqrt(len(paired)) if len(paired) > 1 else np.nan
    return f"{paired.mean():+.4f} +- {error:.4f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--columns", default="100,300")
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    print(circumstances(1))
    for name in options.sets.split(","):
        run(name, 30, 0)  # compiles
        for M in map(int, options.columns.split(",")):
            runs = [run(name, M, seed) for seed in range(options.runs)]
            print(f"\n{name}, M = {M}\n")
            lines = []
            best = np.array([one["SLKL, refit best"][0] for one in runs])
            for label in runs[0]:
                r2, m0, seconds = np.array([one[label] for one in runs]).T
                spread = f"{r2.mean():.4f} ({r2.min():.4f} to {r2.max():.4f})"
                lines.append((label, spread, difference(r2 - best), f"{m0.mean():.0f}", f"{np.median(seconds):.2f}"))
            print(table(("", "R2", "less that of best", "m0", "s"), lines), flush=True)


if __name__ == "__main__":
    main()
