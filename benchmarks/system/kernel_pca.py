"""`KernelPCA` beside scikit-learn's, and where that has no room: `python -m benchmarks.system.kernel_pca [peers | memory] [--rows MOST]`.

peers: the leading components of the Gaussian kernel (gamma="scale") of real digits: CPU seconds of scikit-learn's two iterative solvers and
of dkl in double and single precision; the sine of the largest angle to ARPACK's eigenvectors, the largest relative difference of
eigenvalues, and dkl's residual. memory: 50,000 rows of MNIST from zarr under a limit of 2 GB, in a process of its own: products, seconds,
peak, how much of K was held, residual. Markdown rows.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from sklearn.decomposition import KernelPCA
from threadpoolctl import threadpool_limits

import dkl
from dkl.datasets import load
from dkl.resources import format_bytes

CASES = (("usps", 7291, 10), ("mnist", 10_000, 10), ("mnist", 10_000, 50))
LIMIT = "2 GB"


def rows_of(name: str, n: int) -> np.ndarray:
    """(n, d) the first rows, from 0 to 1."""
    X = np.asarray(load(name).X[:n], dtype=float)
    return np.ascontiguousarray((X - X.min()) / (X.max() - X.min()))


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """(what it gives, CPU seconds)."""
    start = time.process_time()
    found = work()
    return found, time.process_time() - start


def row(name: str, n: int, count: int) -> str:
    """A line of the first table."""
    X = rows_of(name, n)
    gamma = 1 / (X.shape[1] * X.var())

    def peer(solver: str) -> Any:
        return KernelPCA(count, kernel="rbf", gamma=gamma, eigen_solver=solver, random_state=0).fit(X)

    def mine(dtype: str) -> Any:
        return dkl.KernelPCA(count, gamma=gamma, dtype=dtype, random_state=0, n_jobs=1).fit(X)

    double, own = timed(lambda: mine("float64"))
    exact, other = timed(lambda: peer("arpack"))
    rough, randomized = timed(lambda: peer("randomized"))
    single, half = timed(lambda: mine("float32"))
    cells = [name, f"{n:,}", count, double.n_iter_]
    cells += [f"{value:.1f}" for value in (own, half, other, randomized)]
    cells += [f"{own / other:.2f}", f"{half / other:.2f}"]
    for model in (double, single, rough):
        V, U = exact.eigenvectors_, model.eigenvectors_
        sine = np.linalg.norm(U - V @ (V.T @ U), 2)
        cells.append(f"{sine:.0e}, {np.abs(model.eigenvalues_ / exact.eigenvalues_ - 1).max():.0e}")
    cells.append(f"{double.residual_.max():.0e}, {single.residual_.max():.0e}")
    return "| " + " | ".join(map(str, cells)) + " |"


def peers(most: int) -> None:
    """The first table."""
    dkl.KernelPCA(2, random_state=0).fit(rows_of("usps", 500))  # imports and compiles
    accuracy = ("double", "single", "sklearn, randomized")
    head = [
        "set",
        "n",
        "k",
        "products",
        "s, dkl",
        "s, single",
        "s, sklearn's arpack",
        "s, its randomized",
        "ratio",
        "ratio, single",
    ]
    head += [f"sine, eigenvalues: {name}" for name in accuracy] + ["residual, double, single"]
    print("| " + " | ".join(head) + " |\n|" + "---|" * len(head), flush=True)
    for name, n, count in CASES:
        print(row(name, min(n, most), count), flush=True)


def memory(most: int) -> None:
    """The line of the second table."""
    n = min(most, 50_000)
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder, "X.zarr"))
        whole = load("mnist").X
        stored = zarr.create_array(path, shape=(n, 784), chunks=(1000, 784), dtype="f4")
        for lo in range(0, n, 1000):
            stored[lo : lo + 1000] = whole[lo : min(lo + 1000, n)] / np.float32(255)
        del whole
        cpu, start = time.process_time(), time.perf_counter()
        model = dkl.KernelPCA(10, gamma="scale", dtype="float32", memory_limit=LIMIT, random_state=0, verbose=1).fit(
            path
        )
        cpu, wall = time.process_time() - cpu, time.perf_counter() - start
        plan = model.result_.plan
        held = plan["held"] / (n * n / 2 * 4)
        cells = [f"{n:,}", LIMIT, format_bytes(4 * n * n), f"{held:.0%}", model.n_iter_, f"{wall:.0f}", f"{cpu:.0f}"]
        cells += [
            format_bytes(plan["process_bytes"]),
            format_bytes(model.result_.peak_bytes),
            f"{model.residual_.max():.0e}",
        ]
        cells.append(model.result_.outcome.value)
        head = ("n", "limit", "K, single", "held", "products", "s", "CPU s", "planned", "peak", "residual", "outcome")
        print("| " + " | ".join(head) + " |\n|" + "---|" * len(head))
        print("| " + " | ".join(map(str, cells)) + " |", flush=True)


def main() -> None:
    """The table that was asked for."""
    parts = {"peers": peers, "memory": memory}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", nargs="?", choices=list(parts), default="peers")
    parser.add_argument("--rows", type=int, default=50_000, help="most rows of a set")
    asked = parser.parse_args()
    with threadpool_limits(1):
        parts[asked.part](asked.rows)


if __name__ == "__main__":
    main()
