"""KernelKMeans on the rows of a factor, against sklearn.cluster.KMeans on the same rows: seconds and inertia.

    python -m benchmarks.system.kmeans [--threads 2] [--repeats 5] [--workers 0] [--sizes 11220x275,100000x32]

Both get the same number of threads and ten k-means++ starts; runs alternate, each with a seed of its own. Stated are
medians over the runs, the ratio of the medians of seconds (below 1: dkl is faster), and the relative difference of the
mean inertias beside its standard error over seeds. CPU seconds (workers' not counted) tell more than seconds on a busy
machine, where OpenMP's threads wait for each other. With --workers, KernelKMeans also runs on that many worker
processes of one thread each, with the rows sent from here.

The rows are blobs that overlap, so that Lloyd's algorithm needs tens of iterations and starts end apart.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any

import numpy as np
from sklearn.cluster import KMeans
from sklearn.datasets import make_blobs
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

from dkl.estimators.kmeans.learner import KernelKMeans
from dkl.resources import n_cpus

N_CLUSTERS, N_INIT = 10, 10


def rows(n: int, r: int) -> np.ndarray:
    X, _ = make_blobs(n, r, centers=3 * N_CLUSTERS, cluster_std=6.0, random_state=0)
    return X


def timed(fit: Callable[[], Any]) -> tuple[float, float, int, float]:
    """(seconds, inertia, iterations, CPU seconds of this process)"""
    start, cpu_start = time.perf_counter(), time.process_time()
    fitted = fit()
    return time.perf_counter() - start, fitted.inertia_, fitted.n_iter_, time.process_time() - cpu_start


def contestants(X: np.ndarray, threads: int, client: Any) -> dict[str, Callable[[int], Any]]:
    def sklearn(seed: int) -> Any:
        with threadpool_limits(threads):
            return KMeans(N_CLUSTERS, n_init=N_INIT, random_state=seed).fit(X)

    def dkl(seed: int) -> Any:
        return KernelKMeans(N_CLUSTERS, n_init=N_INIT, random_state=seed).fit(X)

    def dkl_on_workers(seed: int) -> Any:
        return KernelKMeans(N_CLUSTERS, n_init=N_INIT, random_state=seed, client=client).fit(X)

    both: dict[str, Callable[[int], Any]] = {"sklearn": sklearn, "dkl": dkl}
    return both if client is None else {**both, "dkl on workers": dkl_on_workers}


def compare(n: int, r: int, threads: int, repeats: int, client: Any) -> dict[str, Any]:
    X = rows(n, r)
    fits = contestants(X, threads, client)
    for fit in fits.values():
        fit(0)  # compiles, loads libraries
    runs: dict[str, list[tuple[float, float, int, float]]] = {name: [] for name in fits}
    for seed in range(1, repeats + 1):
        for name, fit in fits.items():
            runs[name].append(timed(partial(fit, seed)))
    table = {name: np.array(values) for name, values in runs.items()}
    seconds = {name: float(np.median(values[:, 0])) for name, values in table.items()}
    ours, theirs = table["dkl"][:, 1], table["sklearn"][:, 1]
    return {
        "n": n,
        "r": r,
        "threads": threads,
        "repeats": repeats,
        "seconds": seconds,
        "ratio": {name: value / seconds["sklearn"] for name, value in seconds.items()},
        "cpu_seconds": {name: float(np.median(values[:, 3])) for name, values in table.items()},
        "iterations": {name: float(np.median(values[:, 2])) for name, values in table.items()},
        "inertia": {name: float(values[:, 1].mean()) for name, values in table.items()},
        "inertia_difference": float(ours.mean() / theirs.mean() - 1),
        "inertia_noise": float(np.hypot(ours.std(), theirs.std()) / np.sqrt(repeats) / theirs.mean()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=min(2, n_cpus()))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--sizes", default="11220x275,100000x32")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    with ExitStack() as stack:
        client = None
        if arguments.workers:
            from distributed import Client, LocalCluster

            cluster = LocalCluster(
                n_workers=arguments.workers, threads_per_worker=1, host="127.0.0.1", dashboard_address=None
            )
            client = stack.enter_context(Client(stack.enter_context(cluster), set_as_default=False))
        # After the workers have started: from here on, this process has so many processors, and dkl takes all of them.
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: arguments.threads])
        for size in arguments.sizes.split(","):
            n, r = map(int, size.split("x"))
            print(json.dumps(compare(n, r, arguments.threads, arguments.repeats, client)), flush=True)


if __name__ == "__main__":
    main()
