"""The smoothest eigenvectors with their rows on workers, beside this process alone: `python -m benchmarks.system.basis_on_workers [N] [D]`.

The normalised Laplacian of the 10-nearest-neighbour graph of N uniform points in D dimensions (200,000 in 10, where no factor fits), 20
eigenvectors. Each case in a process of its own: wall and CPU seconds of all processes, the peak of this one beyond where it stood
before, bytes that owners send in a product. A Markdown row a case. Start it with OMP_NUM_THREADS=1.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from scipy import sparse

from dkl.blocks.graph.distributed_products import passes_on
from dkl.blocks.graph.neighbor_graph import build_graph
from dkl.blocks.session import Session
from dkl.linalg.eigen import laplacian_eigenmaps
from dkl.linalg.eigen.laplacian_eigenmaps import guards
from dkl.linalg.eigen.lowest_subspace import WIDTH, PassesHere, lowest_subspaces
from dkl.linalg.rows.shared_rows import SharedMatrix
from dkl.linalg.rows.tree_sum import band_order, row_groups, rows_in_order

COUNT, TOL = 20, 1e-8


class Before:
    """The filter on rows as they come, by `lowest_subspaces`."""

    def __init__(self, matrix: sparse.csr_array, k: int) -> None:
        start = np.random.default_rng(0).standard_normal((matrix.shape[0], k))
        self.blocks = lowest_subspaces(SharedMatrix.alone(matrix), start, COUNT, laplacian_eigenmaps.PASSES)

    def advance(self, count: int) -> Any:
        """The next block."""
        self.block = next(self.blocks)
        self.values, self.residuals = self.block.values, np.linalg.norm(self.block.remainder, axis=0)
        return self

    def vectors(self, count: int) -> Any:
        """Of the last."""
        return self.block.vectors

    def close(self) -> None:
        """Nothing."""


def spent() -> float:
    """CPU seconds of the process."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def halos(L: sparse.csr_array, owners: int) -> int:
    """Rows that are sent in a product, by all owners."""
    groups, n = row_groups(L.shape[0]), L.shape[0]
    bounds = (*(groups[k * len(groups) // owners][0] for k in range(owners)), n)
    order, rows = band_order(L), 0
    for k in range(owners):
        columns = np.unique(rows_in_order(L, order, bounds, k).indices)
        rows += int(((columns < bounds[k]) | (columns >= bounds[k + 1])).sum())
    return rows


def measured(L: sparse.csr_array, make: Any, client: Any) -> tuple[Any, float, float, float]:
    """(basis, wall seconds, CPU seconds of all processes, MB of this one's peak beyond where it stood)."""
    Path("/proc/self/clear_refs").write_text("5")  # Linux: the peak begins anew
    stood = psutil.Process().memory_info().rss
    start, own = time.perf_counter(), spent() + (sum(client.run(spent).values()) if client else 0.0)
    found = laplacian_eigenmaps.smoothest(L, COUNT, tol=TOL, passes=make)
    wall = time.perf_counter() - start
    used = spent() + (sum(client.run(spent).values()) if client else 0.0) - own
    lines = Path("/proc/self/status").read_text().splitlines()
    peak = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))
    return found, wall, used, (peak - stood) / 1e6


def case(path: str, name: str) -> None:
    """A line of the table."""
    L = sparse.csr_array(sparse.load_npz(path))
    laplacian_eigenmaps.FILL = 0  # the filter, whatever n
    small = sparse.csr_array(L[:2000, :2000])
    workers = int(name) if name.isdigit() else 0
    if workers:
        from distributed import Client, LocalCluster

        with (
            LocalCluster(
                n_workers=workers, threads_per_worker=1, processes=True, host="127.0.0.1", dashboard_address=None
            ) as cluster,
            Client(cluster) as client,
        ):
            make = passes_on(Session(client), least=0)
            laplacian_eigenmaps.smoothest(small, 5, tol=1.0, passes=make)  # compiles
            found = measured(L, make, client)
    else:
        make = Before if name == "before" else PassesHere
        laplacian_eigenmaps.smoothest(small, COUNT, tol=1.0, passes=make)
        found = measured(L, make, None)
    basis, wall, used, more = found
    sent = 8 * WIDTH * -(-(COUNT + guards(COUNT)) // WIDTH) * halos(L, workers) / 1e6 if workers > 1 else 0.0
    bits = hashlib.sha256(basis.vectors.tobytes()).hexdigest()[:8]
    cells = (
        f"{workers} workers" if workers else name, f"{wall:.1f}", f"{used:.1f}", f"{more:.0f}", f"{sent:.1f}",
        f"{basis.residual:.1e}", bits,
    )  # fmt: skip
    print("| " + " | ".join(cells) + " |", flush=True)


def main() -> None:
    """All cases, of one graph."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("n", nargs="?", type=int, default=200_000)
    parser.add_argument("d", nargs="?", type=int, default=10)
    parser.add_argument("--case", nargs=2, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.case:
        case(*asked.case)
        return
    n, d = asked.n, asked.d
    L = build_graph(np.random.default_rng(0).random((n, d)), n_neighbors=10, laplacian="normalized").laplacian
    print(f"n = {n:,}, d = {d}, {L.nnz:,} entries, {os.cpu_count()} processors\n", flush=True)
    head = ("rows", "wall, s", "CPU, s", "this process, MB more", "sent in a product, MB", "residual", "bits")
    print("| " + " | ".join(head) + " |\n|" + "---|" * len(head), flush=True)
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/laplacian.npz"
        sparse.save_npz(path, L, compressed=False)
        for name in ("before", "here", "2"):
            subprocess.run(
                [sys.executable, "-m", "benchmarks.system.basis_on_workers", "--case", path, name], check=True
            )


if __name__ == "__main__":
    main()
