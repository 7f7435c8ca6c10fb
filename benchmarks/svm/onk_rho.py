"""What rho is worth: OptimalNeighborhoodSVC at rho="scale", at a number and by cross-validation, against SVC at its defaults.

    OMP_NUM_THREADS=1 python -m benchmarks.svm.onk_rho defaults [--sets SET ...]    # C = 1: what the default was chosen for
    OMP_NUM_THREADS=1 python -m benchmarks.svm.onk_rho rows                         # one set of up to 10,000 rows to learn from
    OMP_NUM_THREADS=1 python -m benchmarks.svm.onk_rho shares                       # other shares of the margin than "scale" keeps to
    OMP_NUM_THREADS=1 python -m benchmarks.svm.onk_rho situations                   # few rows, narrow kernels, large C, wrong labels
    OMP_NUM_THREADS=1 python -m benchmarks.svm.onk_rho kernels                      # three widths combined

Stratified splits, half of the rows to learn from; columns are standardised by these. Differences are taken split by split:
mean +- standard error. Seconds are of the processor.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn import datasets
from sklearn.model_selection import GridSearchCV, StratifiedKFold, StratifiedShuffleSplit
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from threadpoolctl import threadpool_limits

from benchmarks.regression.slkl import circumstances, table
from dkl import OptimalNeighborhoodSVC
from dkl.datasets import load

BUNDLED = {
    "iris": datasets.load_iris,
    "wine": datasets.load_wine,
    "breast cancer": datasets.load_breast_cancer,
    "digits": datasets.load_digits,
}
STORED = {"glass": "glass", "heart": "heart", "sonar": "sonar", "ionosphere": "ionosphere", "diabetes": "pima",
          "liver": "bupa", "a1a": "a1a"}  # fmt: skip
SETS = (*BUNDLED, "moons", "a tenth positive", *STORED)
HARD = ("heart", "sonar", "diabetes", "liver")
RHOS = ["scale", 1.0, 10.0, 100.0, 1e3, 1e4]
SHARES = (0.1, 0.25, 0.5, 1.0, 3.0)
SEED = 1000
"""Of the first split; the share of the margin that "scale" keeps was looked at on others, from seed 0."""

Split = tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]


def rows_of(name: str, n: int = 3000) -> tuple[NDArray[Any], NDArray[Any]]:
    if name in BUNDLED:
        X, y = BUNDLED[name](return_X_y=True)
        return X, y
    if name == "moons":
        X, y = datasets.make_moons(600, noise=0.3, random_state=0)
        return X, y
    if name == "a tenth positive":
        X, y = datasets.make_classification(
            n, 20, n_informative=6, weights=[0.9], flip_y=0.03, class_sep=0.8, random_state=0
        )
        return X, y
    data = load(STORED[name])
    return data.X.toarray() if sp.issparse(data.X) else data.X, data.y


def splits(X: NDArray[Any], y: NDArray[Any], count: int, size: float | int = 0.5) -> Iterator[Split]:
    """(rows and classes to learn from, rows and classes to test on)."""
    for fit, test in StratifiedShuffleSplit(count, train_size=size, random_state=SEED).split(X, y):
        scaler = StandardScaler().fit(X[fit])
        yield scaler.transform(X[fit]), y[fit], scaler.transform(X[test]), y[test]


def ours(**settings: Any) -> OptimalNeighborhoodSVC:
    return OptimalNeighborhoodSVC(n_jobs=1, **settings)


def tuned(model: Any, **grid: list[Any]) -> GridSearchCV:
    """By five folds, or as many as the smallest class may give; of equals the first of the grid."""
    return GridSearchCV(model, grid, cv=StratifiedKFold(5, shuffle=True, random_state=0))


def compared(models: dict[str, Any], of: Iterator[Split]) -> tuple[dict[str, Any], dict[str, float], list[Any]]:
    """Accuracies in percent (splits,) and seconds of each model; what grid searches chose for the last."""
    accuracies: dict[str, list[float]] = {name: [] for name in models}
    seconds, chosen = dict.fromkeys(models, 0.0), []
    for X, y, X_test, y_test in of:
        for name, model in models.items():
            start = time.process_time()
            model.fit(X, y)
            seconds[name] += time.process_time() - start
            accuracies[name].append(100 * model.score(X_test, y_test))
            if name == "cv":
                chosen.append(model.best_params_["rho"])
    return {name: np.array(found) for name, found in accuracies.items()}, seconds, chosen


def apart(one: NDArray[np.float64], other: NDArray[np.float64]) -> str:
    """Mean difference and its standard error; * where it is more than two of these below zero, + where above."""
    difference = one - other
    mean, error = difference.mean(), difference.std(ddof=1) / np.sqrt(len(difference))
    return f"{mean:+.2f} ± {error:.2f}" + (" *" if mean < -2 * error else " +" if mean > 2 * error else "")


def median_of(chosen: list[Any]) -> str:
    """The median number (the lower of two), and how often it was "scale"."""
    numbers = [float(value) for value in chosen if value != "scale"]
    count = len(chosen) - len(numbers)
    return f"{np.percentile(numbers, 50, method='lower'):g}, scale {count} of {len(chosen)}" if numbers else "scale"


def defaults(options: argparse.Namespace) -> None:
    rows = []
    for name in options.sets:
        X, y = rows_of(name)
        models = {"svc": SVC(), "scale": ours(), "100": ours(rho=100.0), "cv": tuned(ours(), rho=RHOS)}
        found, seconds, chosen = compared(models, splits(X, y, options.splits))
        svc = found["svc"]
        differences = [apart(found[one], svc) for one in ("scale", "100", "cv")]
        ratio = f"{seconds['scale'] / seconds['svc']:.1f}"
        rows.append([name, len(y) // 2, len(np.unique(y)), f"{svc.mean():.2f}", *differences, median_of(chosen), ratio])
        print(rows[-1], flush=True)
    head = ["set", "n", "classes", "SVC", "scale - SVC", "rho = 100 - SVC", "rho by cv - SVC", "rho by cv", "CPU, scale / SVC"]  # fmt: skip
    print(table(head, rows))


def many_rows(options: argparse.Namespace) -> None:
    rows = []
    X, y = rows_of("a tenth positive", 20_000)
    for n in (100, 1000, 10_000):
        models = {"svc": SVC(), "scale": ours(), "100": ours(rho=100.0)}
        count = options.splits if n < 10_000 else min(options.splits, 4)
        found, seconds, _ = compared(models, splits(X, y, count, n))
        svc, one = found["svc"], models["scale"]
        ratios = [f"{seconds[name] / seconds['svc']:.1f}" for name in ("scale", "100")]
        differences = [apart(found[name], svc) for name in ("scale", "100")]
        rows.append([f"{n:,}", f"{one.rho_[0]:,.0f}", f"{svc.mean():.2f}", *differences, *ratios])
        print(rows[-1], flush=True)
    print(table(["n", "scale is", "SVC", "scale - SVC", "rho = 100 - SVC", "CPU, scale / SVC", "CPU, 100 / SVC"], rows))


def shares(options: argparse.Namespace) -> None:
    """At C = 1 the rule for n rows of the smaller of two classes is n / share."""
    rows = []
    for name in options.sets:
        X, y = rows_of(name)
        counts = np.unique(y, return_counts=True)[1]
        if len(counts) > 2:
            continue
        models = {str(share): ours(rho=counts.min() / 2 / share) for share in SHARES}
        found, _, _ = compared({"svc": SVC(), **models}, splits(X, y, options.splits))
        rows.append([name, *(apart(found[share], found["svc"]) for share in models)])
        print(rows[-1], flush=True)
    print(table(["set", *map(str, SHARES)], rows))


def with_wrong_labels(of: Iterator[Split]) -> Iterator[Split]:
    """A fifth of the labels to learn from are those of the other class."""
    rng = np.random.default_rng(SEED)
    for X, y, X_test, y_test in of:
        names = np.unique(y)
        wrong = rng.random(len(y)) < 0.2
        yield X, np.where(wrong, np.where(y == names[0], names[1], names[0]), y), X_test, y_test


def situations(options: argparse.Namespace) -> None:
    """SVC as it stands there, rho by the rule and by cross-validation, and what choosing C would do instead."""
    kinds = {"half the rows": {}, "40 rows": {}, "gamma x 10": {"gamma": 10.0}, "C = 1000": {"C": 1000.0},
             "a fifth wrong": {}}  # fmt: skip
    rows = []
    for kind, settings in kinds.items():
        for name in options.sets if options.sets != list(SETS) else HARD:
            X, y = rows_of(name)
            if "gamma" in settings:
                settings = {"gamma": 10.0 / X.shape[1]}  # of standardised columns: ten times that of "scale"
            of = splits(X, y, options.splits, 40 if kind == "40 rows" else 0.5)
            models = {
                "svc": SVC(**settings),
                "scale": ours(**settings),
                "cv": tuned(ours(**settings), rho=RHOS),
                "C": tuned(SVC(**settings), C=[*10.0 ** np.arange(-2.0, 5.0)]),
            }
            found, _, chosen = compared(models, with_wrong_labels(of) if kind == "a fifth wrong" else of)
            differences = [apart(found[one], found["svc"]) for one in ("scale", "cv", "C")]
            rows.append([kind, name, f"{found['svc'].mean():.2f}", *differences, median_of(chosen)])
            print(rows[-1], flush=True)
    print(table(["situation", "set", "SVC", "scale - SVC", "rho by cv - SVC", "C by cv - SVC", "rho by cv"], rows))


def several(options: argparse.Namespace) -> None:
    """Kernels of a tenth, once and ten times the width of "scale" combined, against one whose width is chosen."""
    rows = []
    for name in options.sets if options.sets != list(SETS) else HARD:
        X, y = rows_of(name)
        gammas = [0.1 / X.shape[1], 1.0 / X.shape[1], 10.0 / X.shape[1]]
        kernels = [{"kernel": "rbf", "gamma": gamma} for gamma in gammas]
        models = {
            "svc": SVC(),
            "scale": ours(kernel=kernels),
            "cv": tuned(ours(kernel=kernels), rho=RHOS),
            "gamma": tuned(SVC(), gamma=gammas),
        }
        found, seconds, _ = compared(models, splits(X, y, options.splits))
        differences = [apart(found[one], found["svc"]) for one in ("scale", "cv", "gamma")]
        ratio = f"{seconds['scale'] / seconds['gamma']:.1f}"
        rows.append([name, f"{found['svc'].mean():.2f}", *differences, ratio])
        print(rows[-1], flush=True)
    head = ["set", "SVC", "combined, scale - SVC", "combined, rho by cv - SVC", "gamma by cv - SVC"]
    print(table([*head, "CPU, combined / gamma by cv"], rows))


MEASURED = {"defaults": defaults, "rows": many_rows, "shares": shares, "situations": situations, "kernels": several}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=list(MEASURED))
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS), metavar="SET")
    parser.add_argument("--splits", type=int, default=10, help="two at least")
    options = parser.parse_args()
    print(circumstances(1))
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # classes of fewer rows than folds
        ours().fit(*rows_of("iris"))  # compiles
        MEASURED[options.what](options)


if __name__ == "__main__":
    main()
