"""Seconds to build neighbour graphs, beside one bare call of scikit-learn's `kneighbors` with as many threads.

    python -m benchmarks.system.graph [gaussians] [gaussians-8] [adult] [large] [million] [store] [--rows MOST]

`adult` needs a6a.npz in the folder that DKL_DATA names. scikit-learn's call is timed on a sample of the queries where all
of them take long, and its time scaled up; it gives neighbours alone, with no graph, check of X or order among ties. "recall" is what
the graph says of itself, "found" the share of scikit-learn's neighbours of the sample that are joined to their queries in the graph.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from sklearn.neighbors import NearestNeighbors

from dkl.blocks.graph.neighbor_graph import build_graph
from dkl.blocks.session import Session
from dkl.resources import n_cpus
from dkl.stores.graph import read_csr, write_csr_blocks

SAMPLE = 20_000


def gaussians(n: int, n_features: int) -> np.ndarray:
    """Two normal clouds, their means 2 apart in every feature."""
    X = np.random.default_rng(0).standard_normal((n, n_features))
    X[n // 2 :] += 2
    return X


def adult(most: int) -> csr_array:
    with np.load(Path(os.environ["DKL_DATA"], "a6a.npz")) as arrays:
        parts = (arrays["data"].astype(float), arrays["indices"], arrays["indptr"])
        return csr_array(parts, shape=tuple(arrays["shape"]))[:most]


def seconds(function: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    result = function()
    return time.perf_counter() - start, result


def scikit_learn(X: Any, k: int, algorithm: str = "auto") -> tuple[float, np.ndarray, np.ndarray]:
    """(seconds for the k nearest of all rows, from those of at most SAMPLE of them; these; their k nearest and themselves)."""
    model = NearestNeighbors(n_neighbors=k + 1, algorithm=algorithm, n_jobs=n_cpus()).fit(X)
    queries = np.arange(0, X.shape[0], max(1, X.shape[0] // SAMPLE))
    took, (_, found) = seconds(lambda: model.kneighbors(X[queries]))
    return took * X.shape[0] / queries.size, queries, found


def joined(laplacian: csr_array, queries: np.ndarray, nearest: np.ndarray) -> float:
    """Of the pairs of a query and another of its `nearest`, the share that are joined."""
    ends = np.repeat(queries, nearest.shape[1]), nearest.ravel()
    other = ends[0] != ends[1]
    return float(np.mean(laplacian[ends[0][other], ends[1][other]] != 0))


def row(name: str, X: Any, k: int, methods: list[str], algorithm: str = "auto") -> Iterator[str]:
    session = Session(threads=n_cpus())
    bare, queries, nearest = scikit_learn(X, k, algorithm)
    for method in methods:
        took, graph = seconds(lambda method=method: build_graph(X, n_neighbors=k, method=method, session=session))
        recall = "exact" if graph.recall is None else f"{graph.recall:.4f}"
        shape = f"{X.shape[0]:,} x {X.shape[1]}"
        found = joined(graph.laplacian, queries, nearest)
        times = f"{took:9.2f} {bare:9.2f} {bare / took:7.1f}"
        yield f"{name:12} {shape:>15} {k:3d} {graph.method:12} {recall:>7} {found:7.4f} {times}"


def store(most: int) -> Iterator[str]:
    graph = build_graph(gaussians(min(most, 100_000), 8), session=Session(threads=n_cpus()))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "graph.zarr")
        written, _ = seconds(lambda: write_csr_blocks(path, graph.laplacian, 16_384))
        read, _ = seconds(lambda: read_csr(path))
    yield f"store: {graph.laplacian.nnz:,} entries written in {written:.3f} s, read and checked in {read:.3f} s"


CASES: dict[str, Callable[[int], Iterator[str]]] = {
    "gaussians": lambda most: row("gaussians", gaussians(min(most, 100_000), 10), 10, ["exact", "approximate"]),
    "gaussians-8": lambda most: row("gaussians", gaussians(min(most, 100_000), 8), 10, ["exact"]),
    "adult": lambda most: row("a6a", adult(most), 50, ["exact"], "brute"),
    "large": lambda most: row("gaussians", gaussians(min(most, 300_000), 10), 10, ["approximate", "exact"]),
    "million": lambda most: row("gaussians", gaussians(min(most, 1_000_000), 10), 10, ["approximate"]),
    "store": store,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", choices=[*CASES, []], metavar="CASE", help=", ".join(CASES))
    parser.add_argument("--rows", type=int, default=1_000_000, help="most rows of a case")
    asked = parser.parse_args()
    build_graph(gaussians(200, 9), session=Session(threads=1))  # compiles
    build_graph(csr_array(gaussians(200, 9)), session=Session(threads=1))
    print(f"{n_cpus()} threads")
    print(
        f"{'data':12} {'shape':>15} {'k':>3} {'method':12} {'recall':>7} {'found':>7} {'dkl/s':>9} {'sklearn/s':>9} {'ratio':>7}"
    )
    for name in asked.cases or CASES:
        for line in CASES[name](asked.rows):
            print(line, flush=True)


if __name__ == "__main__":
    main()
