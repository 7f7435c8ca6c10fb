"""What the first minutes with dkl cost, in processor seconds, each beside its peer in the same run.

    python -m benchmarks.system.first_minutes [--repeats 5] [command regression plot warmup]
    OMP_NUM_THREADS=1 python -m benchmarks.system.first_minutes ...

command: `dkl fit` of a CSV of 200 x 5 beside a script that fits the same by the library, each in a process of its own, with and without
--picture. regression: LowRankKernelRegressor's default at n = 200 beside GridSearchCV of KernelRidge (6 alphas, 5 gammas, 5 folds), in
one process, in turns. plot: plot() of every learner at 5,000 rows, and its PNG, beside the fit. warmup: `dkl warmup` and fits before
and after it, in a new cache.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

DKL = [sys.executable, "-m", "dkl.cli.main"]
FILES = {
    "pairwise": ["--pairs", "pairs.csv"],
    "regression": ["--targets", "y.csv"],
    "svc": ["--targets", "c.csv"],
}
SCRIPTS = {
    "pairwise": "ends = np.loadtxt('pairs.csv', delimiter=',', dtype=str)\n"
    "numbers, kind = ends[:, :2].astype(int), ends[:, 2]\n"
    "dkl.PairwiseKernelLearner(random_state=0).fit("
    "X, must_link=numbers[kind == 'must'], cannot_link=numbers[kind == 'cannot'])",
    "regression": "dkl.LowRankKernelRegressor(random_state=0).fit(X, np.loadtxt('y.csv'))",
    "svc": "dkl.OptimalNeighborhoodSVC().fit(X, np.loadtxt('c.csv', dtype=int))",
}


def spent(command: list[str], **more: str) -> float:
    """Return the processor seconds of a process of its own."""
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, **more}
    )
    _, status, usage = os.wait4(process.pid, 0)
    assert status == 0, command
    return usage.ru_utime + usage.ru_stime


def rows(n: int, d: int = 5) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, d))
    return X, X[:, 0] + np.sin(2 * X[:, 1]) + 0.1 * rng.standard_normal(n)


def write_files() -> None:
    X, y = rows(200)
    np.savetxt("X.csv", X, delimiter=",", fmt="%.6f")
    np.savetxt("y.csv", y, fmt="%.6f")
    np.savetxt("c.csv", y > 0, fmt="%d")
    ends = np.random.default_rng(1).permutation(200)[:100].reshape(-1, 2)
    same = (y[ends[:, 0]] > 0) == (y[ends[:, 1]] > 0)
    lines = [f"{i},{j},{'must' if s else 'cannot'}\n" for (i, j), s in zip(ends, same, strict=True)]
    Path("pairs.csv").write_text("".join(lines))


def fit(task: str, *options: str, **more: str) -> float:
    shutil.rmtree("run.zarr", ignore_errors=True)
    return spent([*DKL, "fit", task, "--data", "X.csv", *FILES[task], *options, "--out", "run.zarr"], **more)


def script(task: str) -> float:
    begin = "import numpy as np\nimport dkl\nX = np.loadtxt('X.csv', delimiter=',')\n"
    return spent([sys.executable, "-c", begin + SCRIPTS[task]])


def report(name: str, runs: list[tuple[float, ...]], *peers: str) -> None:
    """Print the median, least and most of each column, and its median ratio to the last."""
    for k, peer in enumerate(peers):
        column = [run[k] for run in runs]
        ratio = statistics.median(run[k] / run[-1] for run in runs)
        middle = statistics.median(column)
        print(f"{name:<24}{peer:<26}{middle:>7.2f} s ({min(column):.2f} to {max(column):.2f}){ratio:>7.2f}", flush=True)


def command(repeats: int) -> None:
    for task in FILES:
        fit(task), script(task)  # which compile
        runs = [(fit(task, "--picture"), fit(task), script(task)) for _ in range(repeats)]
        report(f"dkl fit {task}", runs, "with --picture", "default", "a script")


def regression(repeats: int) -> None:
    from sklearn.kernel_ridge import KernelRidge
    from sklearn.model_selection import GridSearchCV

    import dkl

    X, y = rows(200)
    grid = {"alpha": np.logspace(-4, 1, 6), "gamma": np.logspace(-3, 1, 5)}
    models: list[Any] = [dkl.LowRankKernelRegressor(random_state=0), GridSearchCV(KernelRidge(kernel="rbf"), grid)]

    def timed(model: Any) -> float:
        start = time.process_time()
        model.fit(X, y)
        return time.process_time() - start

    for model in models:
        timed(model)
    report("regression, n = 200", [tuple(map(timed, models)) for _ in range(repeats)], "dkl", "GridSearchCV")


def plot(repeats: int) -> None:
    import dkl

    rng, n = np.random.default_rng(0), 5000
    classes = rng.integers(10, size=n)
    X = rng.standard_normal((n, 8)) + 3 * rng.standard_normal((10, 8))[classes]
    ends = rng.permutation(n)[:2000].reshape(-1, 2)
    same = classes[ends[:, 0]] == classes[ends[:, 1]]
    pairs = {"must_link": ends[same], "cannot_link": ends[~same]}
    labels = np.where(rng.random(n) < 0.05, classes, -1)
    fits: dict[str, Callable[[], Any]] = {
        "pairs": lambda: dkl.PairwiseKernelLearner(random_state=0).fit(X, **pairs),
        "regression": lambda: dkl.LowRankKernelRegressor(n_columns=200, random_state=0).fit(X, X[:, 0] ** 2),
        "classification": lambda: dkl.OptimalNeighborhoodSVC().fit(X, classes),
        "logdet": lambda: dkl.LogDetKernelLearner().fit(X, labels),
        "metric": lambda: dkl.LogDetMetricLearner().fit(X, labels),
        "laplacian": lambda: dkl.LaplacianKernelLearner(random_state=0).fit(X, **pairs),
        "unfolding": lambda: dkl.MaximumVarianceUnfolding(random_state=0).fit(X),
        "k-means": lambda: dkl.KernelKMeans(10, random_state=0).fit(X),
    }
    for name, make in fits.items():
        start = time.process_time()
        model = make()
        fitted = time.process_time() - start
        model.plot()._repr_png_()
        runs = []
        for _ in range(repeats):
            times = [time.process_time()]
            figure = model.plot()
            times.append(time.process_time())
            figure._repr_png_()
            times.append(time.process_time())
            runs.append((times[1] - times[0], times[2] - times[1], fitted))
        report(f"plot() of {name}", runs, "plot()", "its PNG", "the fit")


def warmup(repeats: int) -> None:
    for task in FILES:
        with tempfile.TemporaryDirectory() as cache:
            cold = fit(task, NUMBA_CACHE_DIR=cache)
            warm = fit(task, NUMBA_CACHE_DIR=cache)
            print(f"dkl fit {task:<14} in a new cache {cold:.1f} s, again {warm:.1f} s", flush=True)
    with tempfile.TemporaryDirectory() as cache:
        print(f"dkl warmup {spent([*DKL, 'warmup'], NUMBA_CACHE_DIR=cache):.1f} s", flush=True)
        for task in FILES:
            print(f"dkl fit {task:<14} after it {fit(task, NUMBA_CACHE_DIR=cache):.1f} s", flush=True)


def main() -> None:
    parts = {"command": command, "regression": regression, "plot": plot, "warmup": warmup}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[*parts, []], metavar="PART", help=", ".join(parts))
    parser.add_argument("--repeats", type=int, default=5)
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        write_files()
        for part in asked.parts or parts:
            parts[part](asked.repeats)
        os.chdir("/")


if __name__ == "__main__":
    main()
