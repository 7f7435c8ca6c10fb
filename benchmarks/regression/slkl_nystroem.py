"""`LowRankKernelRegressor(nu="cv")` beside scikit-learn's Nystroem + Ridge, at as many columns and at as many seconds.

    OMP_NUM_THREADS=1 python -m benchmarks.regression.slkl_nystroem [--sets friedman,mnist] [--columns 1000] [--runs 3] [--n 60000]

    friedman  make_friedman1: 10,000 rows of 9 features, noise 4, mean 0 and variance 1; 5,000 rows to test on; gamma 1/9; double
    mnist     60,000 rows of 784 pixels in [0, 1], ten outputs of +1 and -1, the 10,000 test rows; gamma 0.02; single

Both search on the same five folds. Nystroem has the columns that the regressor drew; its features are made once a fold, then a
Ridge is fitted for each lambda, and one on all rows in the end. "in as many seconds" is Nystroem + Ridge with the number of
columns, found by trial, for which all of that takes as long as the regressor's fit. R2 is the mean over outputs on the test
rows; wrong: rows of which another output is the largest; m0: columns of the model; seconds are of the processor, on one
thread, median of the runs. Run s draws columns and folds, and friedman's rows, with seed s.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import make_friedman1
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import Ridge
from sklearn.metrics import r2_score
from sklearn.model_selection import KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from benchmarks.regression.slkl import circumstances, table
from dkl import LowRankKernelRegressor
from dkl.datasets import load

LAMS = 10.0 ** np.arange(2, -4.5, -0.5)
TRIALS = 2
"""Numbers of columns that are tried for as many seconds."""


class Data(NamedTuple):
    X: NDArray
    y: NDArray
    X_test: NDArray
    y_test: NDArray
    gamma: float
    dtype: str


class Found(NamedTuple):
    columns: int
    r2: float
    wrong: float
    m0: int
    seconds: float


def friedman(n: int, seed: int) -> Data:
    X, y = make_friedman1(15_000, 9, noise=4.0, random_state=seed)
    n = min(n, 10_000)
    scaler = StandardScaler().fit(X[:n])
    return Data(scaler.transform(X[:n]), y[:n], scaler.transform(X[10_000:]), y[10_000:], 1 / 9, "float64")


def mnist(n: int, seed: int) -> Data:
    data = load("mnist")
    signs = [np.where(labels[:, None] == np.arange(10), 1.0, -1.0) for labels in (data.y, data.y_test)]
    rows = [np.asarray(X, np.float32) / 255 for X in (data.X, data.X_test)]
    order = np.random.default_rng(seed).permutation(len(rows[0]))[:n]
    return Data(rows[0][order], signs[0][order], rows[1], signs[1], 0.02, "float32")


SETS = {"friedman": friedman, "mnist": mnist}


def judged(model: Any, data: Data, columns: int, m0: int, seconds: float) -> Found:
    predicted = model.predict(data.X_test)
    wrong = np.nan
    if predicted.ndim == 2:
        wrong = float(np.mean(predicted.argmax(axis=1) != data.y_test.argmax(axis=1)))
    found = Found(columns, float(r2_score(data.y_test, predicted)), wrong, m0, seconds)
    print(type(model).__name__, found, file=sys.stderr, flush=True)
    return found


def slkl(data: Data, M: int, seed: int, refit: str) -> tuple[Found, NDArray]:
    model = LowRankKernelRegressor(
        gamma=data.gamma, n_columns=M, refit=refit, dtype=data.dtype, random_state=seed, n_jobs=1
    )
    start = time.process_time()
    model.fit(data.X, data.y)
    seconds = time.process_time() - start
    return judged(model, data, M, model.n_active_, seconds), model.columns_


def nystroem_ridge(data: Data, points: NDArray, seed: int) -> Found:
    """scikit-learn's, on these columns."""

    def features() -> Nystroem:
        return Nystroem(kernel="rbf", gamma=data.gamma, n_components=len(points), random_state=seed).fit(points)

    start = time.process_time()
    errors = np.zeros(len(LAMS))
    for train, held_out in KFold(5, shuffle=True, random_state=seed).split(data.X):
        made = features()
        inside, outside = made.transform(data.X[train]), made.transform(data.X[held_out])
        for place, lam in enumerate(LAMS):
            predicted = Ridge(lam).fit(inside, data.y[train]).predict(outside)
            errors[place] += ((predicted - data.y[held_out]) ** 2).sum()
    best = float(LAMS[errors.argmin()])
    made = features()
    ridge = Ridge(best).fit(made.transform(data.X), data.y)
    seconds = time.process_time() - start
    return judged(make_pipeline(made, ridge), data, len(points), len(points), seconds)


def run(name: str, n: int, M: int, seed: int) -> dict[str, Found]:
    data = SETS[name](n, seed)
    found, columns = {}, np.empty(0, int)
    for how in ("never", "best"):
        found[f"SLKL, refit {how}"], columns = slkl(data, M, seed, how)
    found["Nystroem + Ridge"] = nystroem_ridge(data, data.X[columns], seed)
    goal, tried = found["SLKL, refit best"].seconds, found["Nystroem + Ridge"]
    order = np.random.default_rng(seed).permutation(len(data.X))
    for _ in range(TRIALS):
        count = int(np.clip(tried.columns * (goal / tried.seconds) ** 0.7, 10, min(3 * M, len(data.X))))
        if abs(tried.seconds / goal - 1) < 0.1:
            break
        tried = nystroem_ridge(data, data.X[order[:count]], seed)
    found["Nystroem + Ridge, in as many seconds"] = tried
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", default="friedman,mnist")
    parser.add_argument("--columns", type=int, default=1000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--n", type=int, default=60_000, help="rows to learn from, at most")
    given = parser.parse_args()
    print(circumstances(1), flush=True)
    with threadpool_limits(1):
        for name in given.sets.split(","):
            run(name, 1000, 30, 0)  # compiles
            runs = [run(name, given.n, given.columns, seed) for seed in range(given.runs)]
            lines = []
            for label in runs[0]:
                every = np.array([one[label] for one in runs])
                columns, r2, wrong, m0, seconds = np.median(every, axis=0)
                spread = f"{every[:, 1].mean():.4f} ({every[:, 1].min():.4f} to {every[:, 1].max():.4f})"
                error = "-" if np.isnan(wrong) else f"{every[:, 2].mean():.2%}"
                lines.append((label, f"{columns:.0f}", spread, error, f"{m0:.0f}", f"{seconds:.1f}"))
            print(f"\n{name}, n = {given.n:,} at most, {given.runs} run(s)\n")
            print(table(("", "M", "R2", "wrong", "m0", "s"), lines), flush=True)


if __name__ == "__main__":
    main()
