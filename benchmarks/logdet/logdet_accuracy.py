"""1-NN error of learned kernels and metrics on held-out rows: `python -m benchmarks.logdet.logdet_accuracy [SET ...] [--draws N]`.

    ... breast_w ionosphere heart wine --draws 50 --only "10 components" --gammas 0.0625 1 16 256    # Li et al., Table 5
    ... sonar --neighbors 5 --draws 50 --only "10 components" --gammas 0.0625 1 16 256

Of each set some rows are drawn as labelled and others as held out; the draws are the same for every method. Transductive ones
(the kernel of the graph, and eigenmaps) see the held-out rows without their labels; the others see them when they are classified.
Each LogDet learner is fitted along a path of gamma. A Markdown row a method: the mean error in % with its standard deviation over
the draws, at every gamma, and the CPU seconds of a draw. `--metric-learn OLD_PYTHON` adds metric-learn's ITML and LMNN, started with an
interpreter that has them (`pip install metric-learn 'scikit-learn<1.3' 'numpy<2'`).
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.neighbors import KNeighborsClassifier, NearestNeighbors, NeighborhoodComponentsAnalysis

import dkl
from dkl.baselines import LaplacianEigenmaps
from dkl.datasets import load
from dkl.errors import InputError

SETS = {"wine": (89, 89), "digits": (300, 600), "usps": (400, 800)}
"""Labelled and held-out rows of a draw."""
PAPER = {"breast_w": (350, 349), "sonar": (104, 104), "ionosphere": (176, 175), "heart": (135, 135)}
"""Of the paper's Table 5, which has half the rows labelled; not without their names."""
SHARES = (1.0, 0.25, 2.0**-4, 2.0**-6)
"""Gammas of the linear loss, of the largest power of 2 at which it has a minimum."""
UNLEARNED = 2.0**-30
"""A gamma at which the kernel is K0."""
GAMMAS = 4.0 ** np.arange(-4, 6)
OF_GRAPH = {"kernel": "laplacian", "kernel_params": {"sigma": "average"}}
"""K0 by the papers' width, as the tables have it."""
KERNELS: dict[str, dict[str, Any]] = {
    "kernel, graph, 10 components": {**OF_GRAPH, "n_components": 10},
    **{
        f"kernel, graph, {loss}, 10 components": {**OF_GRAPH, "n_components": 10, "loss": loss}
        for loss in ("lmnn", "itml", "hoi")
    },
    "kernel, graph, linear, 10 components": {**OF_GRAPH, "n_components": 10, "loss": "linear"},
    "kernel, graph": {**OF_GRAPH},
    "kernel, graph, all components": {**OF_GRAPH, "n_components": 10_000},
    "kernel, rbf": {"kernel": "rbf"},
    "kernel, rbf, all components": {"kernel": "rbf", "n_components": 10_000},
    "kernel, rbf, itml": {"kernel": "rbf", "loss": "itml"},
}
PLAIN: dict[str, dict[str, Any]] = {
    f"kernel, plain Laplacian, {loss}, 10 components": {"kernel": "laplacian", "n_components": 10, "loss": loss}
    for loss in ("log", "lmnn", "itml", "hoi", "linear")
}
"""D - W itself, and of a wider similarity: what tables 3 and 4 are of as well (`trin.laplacian_kernel`)."""
METRICS: dict[str, dict[str, Any]] = {
    "metric, itml": {},
    "metric, itml, covariance": {"prior": "covariance"},
    "metric, log": {"loss": "log"},
    "metric, lmnn": {"loss": "lmnn"},
}
Draw = tuple[Any, Any, Any, Any]


def draws(name: str, count: int) -> Iterator[Draw]:
    """(labelled rows, labels, held-out rows, theirs). NaN as the column's mean; columns by the labelled rows' deviations, but pixels."""
    found = load(name)
    X, y = np.asarray(found.X, float), found.y
    X = np.where(np.isnan(X), np.nanmean(X, axis=0), X)
    labelled, held_out = (SETS | PAPER)[name]
    for seed in range(count):
        order = np.random.default_rng(seed).permutation(len(X))
        a, b = order[:labelled], order[labelled : labelled + held_out]
        scale = np.where(X[a].std(axis=0) > 0, X[a].std(axis=0), 1.0) if name not in ("digits", "usps") else 1.0
        yield X[a] / scale, y[a], X[b] / scale, y[b]


def nearest(rows: Any, y: Any, others: Any, wanted: Any) -> float:
    """Error in % of the nearest labelled row."""
    return 100.0 * (1.0 - KNeighborsClassifier(1).fit(rows, y).score(others, wanted))


def processor_seconds() -> float:
    """Of this process and of those that it started and that have ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def euclid(draw: Draw) -> list[float]:
    """As the rows are."""
    return [nearest(*draw)]


def nca(draw: Draw) -> list[float]:
    """scikit-learn's neighbourhood components analysis."""
    X, y, Z, wanted = draw
    model = NeighborhoodComponentsAnalysis(random_state=0).fit(X, y)
    return [nearest(model.transform(X), y, model.transform(Z), wanted)]


def eigenmaps(draw: Draw) -> list[float]:
    """Of the graph of labelled and held-out rows that the baseline makes."""
    X, y, Z, wanted = draw
    rows = LaplacianEigenmaps(sigma="average", random_state=0).fit_transform(np.concatenate([X, Z]))
    return [nearest(rows[: len(X)], y, rows[len(X) :], wanted)]


def learned(learner: Any, gammas: list[float], draw: Draw) -> list[float]:
    """An error a gamma."""
    X, y, Z, wanted = draw
    if getattr(learner, "loss", None) == "linear":
        gammas = [share * largest(learner, draw) for share in SHARES]
    if getattr(learner, "kernel", None) == "laplacian":
        rows = np.concatenate([X, Z])
        path = learner.path(rows, np.concatenate([y, np.full(len(Z), -1)]), gammas)
        shown = [path.model(i).transform(rows) for i in range(len(gammas))]
        return [nearest(both[: len(X)], y, both[len(X) :], wanted) for both in shown]
    path = learner.path(X, y, gammas)
    models = [path.model(i) for i in range(len(gammas))]
    return [nearest(model.transform(X), y, model.transform(Z), wanted) for model in models]


def largest(learner: Any, draw: Draw) -> float:
    """The largest power of 2 that leaves the linear loss a minimum."""
    X, y, Z, _ = draw
    rows, codes = np.concatenate([X, Z]), np.concatenate([y, np.full(len(Z), -1)])
    for gamma in 2.0 ** np.arange(8, -40, -1):
        try:
            clone(learner).set_params(gamma=gamma).fit(rows, codes)
        except InputError:
            continue
        return float(gamma)
    raise InputError("no gamma has a minimum", where="the linear loss")


def unlearned(learner: Any, draw: Draw) -> list[float]:
    """Of K0's principal components, and of the same at unit length, which are the graph's eigenmaps."""
    X, y, Z, wanted = draw
    rows = np.concatenate([X, Z])
    both = learner.set_params(gamma=UNLEARNED).fit(rows, np.concatenate([y, np.full(len(Z), -1)])).transform(rows)
    maps = both / np.maximum(np.linalg.norm(both, axis=0), np.finfo(float).tiny)
    return [nearest(one[: len(X)], y, one[len(X) :], wanted) for one in (both, maps)]


def plain(learner: Any, gammas: list[float], draw: Draw) -> list[float]:
    """`learned` by D - W of W_ij = exp(-|x_i - x_j|^2 / s^2), s the mean distance to the last neighbour."""
    return learned(plain_graph(learner, draw), gammas, draw)


def plain_graph(learner: Any, draw: Draw) -> Any:
    """The learner with that kernel."""
    rows = np.concatenate([draw[0], draw[2]])
    distances, _ = NearestNeighbors(n_neighbors=learner.n_neighbors + 1).fit(rows).kneighbors(rows)
    params = {"laplacian": "unnormalized", "sigma": float(distances[:, -1].mean()) / np.sqrt(2.0)}
    return clone(learner).set_params(kernel_params=params)


def metric_learn(python: str, name: str, draw: Draw) -> list[float]:
    """metric-learn's learner of this name, in the environment of the interpreter `python`."""
    X, y, Z, wanted = draw
    with tempfile.TemporaryDirectory() as folder:
        np.savez(f"{folder}/draw.npz", X=X, y=y, Z=Z, wanted=wanted)
        script = Path(__file__).with_name("metric_learn_peer.py")
        done = subprocess.run(
            [python, str(script), name, f"{folder}/draw.npz"], check=True, capture_output=True, text=True
        )
    return [json.loads(done.stdout)["error"]]


def methods(old_python: str | None, gammas: list[float], k: int) -> Iterator[tuple[str, Callable[[Draw], list[float]]]]:
    """(name, errors of a draw)."""
    if old_python is not None:
        yield from ((f"metric-learn {name}", partial(metric_learn, old_python, name)) for name in ("ITML", "LMNN"))
    yield from (("Euclid", euclid), ("NCA", nca), ("eigenmaps", eigenmaps))
    K0 = dkl.LogDetKernelLearner(**OF_GRAPH, n_components=10, n_neighbors=k)
    yield "K0 and eigenmaps, graph, 10 components", partial(unlearned, K0)
    yield "K0 and eigenmaps, plain Laplacian, 10 components", lambda draw: unlearned(plain_graph(K0, draw), draw)
    for name, options in KERNELS.items():
        yield name, partial(learned, dkl.LogDetKernelLearner(n_neighbors=k, **options), gammas)
    for name, options in PLAIN.items():
        yield name, partial(plain, dkl.LogDetKernelLearner(n_neighbors=k, **options), gammas)
    for name, options in METRICS.items():
        yield name, partial(learned, dkl.LogDetMetricLearner(**options), gammas)


def main() -> None:
    """Print a table a set."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sets", nargs="*", default=list(SETS))
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--only", nargs="*", default=[""], help="methods with any of these in their names")
    parser.add_argument("--gammas", nargs="+", type=float, default=list(GAMMAS))
    parser.add_argument("--neighbors", type=int, default=10, help="of a row in the graphs of K0")
    parser.add_argument("--metric-learn", metavar="PYTHON", help="an interpreter that has metric-learn")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    for name in options.sets:
        made = list(draws(name, options.draws))
        print(f"\n{name}: {len(made[0][0])} labelled, {len(made[0][2])} held out, {len(made)} draws")
        print("gamma " + " ".join(f"{gamma:.3g}" for gamma in options.gammas))
        for method, run in methods(options.metric_learn, options.gammas, options.neighbors):
            if not any(part in method for part in options.only):
                continue
            start = processor_seconds()
            errors = np.array([run(draw) for draw in made])
            seconds = (processor_seconds() - start) / len(made)
            means = [f"{mean:.1f} ({sd:.1f})" for mean, sd in zip(errors.mean(axis=0), errors.std(axis=0), strict=True)]
            print(f"| {method} | {' | '.join(means)} | {seconds:.1f} s |", flush=True)


if __name__ == "__main__":
    main()
