"""1-NN accuracy of K columns of a learned metric: `python -m benchmarks.logdet.truncated_metrics [SET ...] [--draws N]`.

W = C'C of `LogDetMetricLearner` at its defaults, cut to K components in two ways: the leading eigenvectors of W, and the
directions that keep most of the learned distances of the rows (the leading principal components of the learned rows). Beside
them PCA and scikit-learn's NCA at K components, and with `--metric-learn OLD_PYTHON` metric-learn's LMNN (see
`metric_learn_peer.py`). Columns are standardized by the labeled rows, which are 70 % (at most 500), classes in proportion; the
others (at most 1,000) are classified. Mean accuracy in % with its standard deviation over the draws, which are the same for all.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.decomposition import PCA
from sklearn.model_selection import train_test_split
from sklearn.neighbors import KNeighborsClassifier, NeighborhoodComponentsAnalysis
from sklearn.preprocessing import StandardScaler

from dkl import LogDetMetricLearner
from dkl.datasets import load

SETS = (
    "breast_cancer", "digits", "glass", "heart", "ionosphere", "iris", "pima", "sonar", "spambase", "wine",
)  # fmt: skip
COUNTS = (2, 5)
MOST_LABELED, MOST_OTHERS = 500, 1000

Map = Callable[[Any], Any]


def cut_metrics(X: Any, y: Any, prior: str) -> dict[str, Callable[[int], Map]]:
    """Return, by name, the map onto K components of a metric that is learned once, with all of it."""
    C = LogDetMetricLearner(prior=prior, standardize=False, holdout=0.0).fit(X, y).components_
    turned = np.linalg.svd((X - X.mean(axis=0)) @ C.T, full_matrices=False)[2]

    def onto(rows: Any, C: Any) -> Any:
        return rows @ C.T

    return {
        "metric, all": lambda k: partial(onto, C=C),
        "metric, by W": lambda k: partial(onto, C=C[:k]),
        "metric, by the rows": lambda k: partial(onto, C=turned[:k] @ C),
    }


def maps(X: Any, y: Any, prior: str) -> dict[str, Callable[[int], Map]]:
    """Return, by name, what makes the map of rows onto K columns."""
    return {
        **cut_metrics(X, y, prior),
        "PCA": lambda k: PCA(k).fit(X).transform,
        "NCA": lambda k: NeighborhoodComponentsAnalysis(k, random_state=0).fit(X, y).transform,
    }


def accuracy(rows: Any, y: Any, others: Any, wanted: Any) -> float:
    """Return the accuracy in % of the nearest labeled row."""
    return 100.0 * float(KNeighborsClassifier(1).fit(rows, y).score(others, wanted))


def peer(python: str, draw: dict[str, Any], k: int) -> float:
    """Return the accuracy in % of metric-learn's LMNN with k components."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "draw.npz")
        np.savez(path, **draw)
        script = Path(__file__).with_name("metric_learn_peer.py")
        made = subprocess.run(
            [python, str(script), "LMNN", str(path), str(k)], capture_output=True, text=True, check=True
        )
    return 100.0 - float(json.loads(made.stdout)["error"])


def measured(name: str, draws: int, prior: str, python: str | None) -> dict[tuple[str, int], list[float]]:
    """Return the accuracies of each method and K, a number a draw."""
    data, found = load(name), dict[tuple[str, int], list[float]]()
    X, y = np.asarray(data.X, float), np.unique(data.y, return_inverse=True)[1]
    for seed in range(draws):
        n = min(int(0.7 * len(X)), MOST_LABELED)
        X0, X1, y0, y1 = train_test_split(X, y, train_size=n, stratify=y, random_state=seed)
        scale = StandardScaler().fit(X0)
        X0, X1, y1 = scale.transform(X0), scale.transform(X1[:MOST_OTHERS]), y1[:MOST_OTHERS]
        for method, make in maps(X0, y0, prior).items():
            for k in (min(count, X.shape[1]) for count in COUNTS):
                onto = make(k)
                found.setdefault((method, k), []).append(accuracy(onto(X0), y0, onto(X1), y1))
        if python:
            for k in (min(count, X.shape[1]) for count in COUNTS):
                draw = {"X": X0, "y": y0, "Z": X1, "wanted": y1}
                found.setdefault(("LMNN", k), []).append(peer(python, draw, k))
    return found


def main() -> None:
    """Print a Markdown row for each set, method and K."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="*", default=SETS)
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--prior", default="identity", choices=("identity", "covariance"))
    parser.add_argument("--metric-learn", metavar="OLD_PYTHON")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    for name in given.sets:
        for (method, k), values in measured(name, given.draws, given.prior, given.metric_learn).items():
            print(f"| {name} | {method} | {k} | {np.mean(values):.1f} ({np.std(values):.1f}) |", flush=True)


if __name__ == "__main__":
    main()
