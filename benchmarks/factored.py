"""Seconds and products with L to a proven relative gap, from a random start: `python benchmarks/factored.py [a6a] [gaussians]`.

a6a (n = 11,220, 50 neighbours; needs DKL_DATA) and two Gaussians in 10 dimensions (n = 100,000, 10 neighbours); normalised
Laplacian, 0.6 n pairs of each kind, gamma = 100. The ratio is to the time of one scipy product L @ V at the final rank.
The graph is not in the times. One JSON object a line.
"""

from __future__ import annotations

import json
import os
import sys
import time

import numpy as np
from scipy import sparse
from sklearn.neighbors import NearestNeighbors

from dkl.datasets import load, two_gaussians
from dkl.linalg.laplacian import average_width, laplacian_matrix, similarity_graph
from dkl.pairs import Pairs
from dkl.problems.pairwise import target_matrix
from dkl.problems.pairwise_factored import FactoredPairwise
from dkl.solvers.factored import solve_to_gap
from dkl.solvers.watch import Watch

GAPS = (1e-2, 1e-3, 1e-4, 1e-5, 1e-6)
GAMMA, SEED, THREADS = 100.0, 0, 2


def problem(x: np.ndarray, y: np.ndarray, k: int) -> tuple[sparse.csr_array, sparse.csr_array]:
    """The normalised Laplacian of k nearest neighbours, and the targets."""
    algorithm = "brute" if x.shape[1] > 20 else "kd_tree"
    distance, index = NearestNeighbors(n_neighbors=k, algorithm=algorithm).fit(x).kneighbors()
    graph = similarity_graph(distance**2, index, average_width(distance**2))
    pairs = Pairs.from_labels(y, random_state=SEED).check(len(x))
    return laplacian_matrix(graph)[0], target_matrix(len(x), pairs.must_link, pairs.cannot_link)


def measure(name: str, laplacian: sparse.csr_array, targets: sparse.csr_array, seconds: float) -> None:
    """Solve once to compile, once to measure, and print what each gap took."""
    problem = FactoredPairwise(laplacian, targets, GAMMA, threads=THREADS)
    solve_to_gap(problem, target_gap=GAPS[0], max_iter=1, seed=SEED)
    compiled = problem.n_products
    reached: dict[str, dict[str, float]] = {}
    busy = time.process_time()

    def reach(row: dict) -> None:
        for gap in GAPS:
            if row["relative_gap"] is not None and row["relative_gap"] <= gap and f"{gap:g}" not in reached:
                cpu = time.process_time() - busy
                reached[f"{gap:g}"] = {
                    "seconds": row["seconds"],
                    "cpu_seconds": cpu,
                    "products": row["products"] - compiled,
                }

    found = solve_to_gap(problem, target_gap=GAPS[-1], seed=SEED, watch=Watch([reach], time_limit=seconds))
    problem.close()
    factor, certificate = found.factor, found.certificate
    times = []
    for _ in range(7):
        began = time.perf_counter()
        laplacian @ factor
        times.append(time.perf_counter() - began)
    product = float(np.median(times))
    for entry in reached.values():
        entry["ratio"] = entry["seconds"] / product
    report = {"data": name, "n": len(factor), "rank": factor.shape[1], "threads": THREADS, "load": os.getloadavg()[0]}
    report |= {
        "outcome": found.outcome.value,
        "relative_gap": certificate.relative_gap,
        "objective": certificate.objective,
    }
    report |= {
        "iterations": found.n_iter,
        "seconds": found.history[-1]["seconds"],
        "product_seconds": product,
        "gaps": reached,
    }
    print(json.dumps(report), flush=True)


def main(names: list[str]) -> None:
    if "a6a" in names:
        if "DKL_DATA" in os.environ:
            data = load("a6a")
            x = data.X.toarray() if sparse.issparse(data.X) else np.asarray(data.X)
            measure("a6a", *problem(x.astype(float), data.y, 50), seconds=120.0)
        else:
            print("a6a skipped: DKL_DATA is not set", file=sys.stderr)
    if "gaussians" in names:
        data = two_gaussians(100_000, random_state=SEED)
        measure("two_gaussians", *problem(data.X, data.y, 10), seconds=200.0)


if __name__ == "__main__":
    main(sys.argv[1:] or ["a6a", "gaussians"])
