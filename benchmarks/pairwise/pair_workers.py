"""The factored solver of pairs with its rows on workers, beside this process alone.

    python -m benchmarks.pairwise.pair_workers [--rows N]

Two Gaussians in 10 dimensions, 10 neighbours, 0.6 n pairs of each kind, gamma = 100, to a proven --goal; each case in a process of its
own, a cluster of one thread a worker on 127.0.0.1. Graph and compilation are not in the seconds; memory is the peak of the process
that asks, of the solve alone, and the largest of a worker, whole. A Markdown row a case. Start it with OMP_NUM_THREADS=1.
"""

from __future__ import annotations

import argparse
import hashlib
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

from dkl.blocks.graph.neighbor_graph import build_graph
from dkl.blocks.session import Session
from dkl.datasets import two_gaussians
from dkl.estimators.pairwise import factored, plan
from dkl.estimators.pairwise.fit import make_problem
from dkl.estimators.pairwise.settings import PairwiseSettings
from dkl.problems.pairwise.problem import PairwiseKernel
from dkl.resources import EXCHANGE, spent
from dkl.side_information.pairs import Pairs
from dkl.solvers.watch import Watch

HEAD = (
    "rows on",
    "wall, s",
    "CPU, s",
    "waiting for others, s",
    "this process, MB more",
    "a worker's peak, MB",
    "planned, MB",
)
HEAD += ("iterations", "gap", "bits")


def problem_of(n: int, laplacian: sparse.csr_array | None = None) -> PairwiseKernel:
    """Of n rows, whose graph may be there."""
    data = two_gaussians(n, random_state=0)
    pairs = Pairs.from_labels(data.y, int(0.6 * n), int(0.6 * n), random_state=0)
    if laplacian is None:
        laplacian = build_graph(data.X, n_neighbors=10, laplacian="normalized").laplacian
    return make_problem(laplacian, pairs, 100.0)


def cpu() -> float:
    """CPU seconds of the process."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def peak() -> float:
    """MB, of the process' whole life."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


def solved(problem: PairwiseKernel, goal: float, client: Any, threads: int) -> tuple[Any, int, float]:
    """(solution, rows of history, MB that a worker is planned to take)."""
    watch, request = Watch(), factored.LowRankRequest(goal, None, 64, 100_000, 0, "float64")
    if client is None:
        return factored.solved_here(problem, None, request, watch, threads), len(watch.history), 0.0
    plan.WORTHWHILE, session = 0, Session(client)
    shared = plan.SharedPlan.of(problem, PairwiseSettings(), session)
    assert shared is not None
    bounds = shared.bounds(len(session.workers()))
    bytes_ = plan.owner_bytes(plan.sizes_of(problem.laplacian, problem.targets, bounds, 0), 16) + plan.PROCESS_BASE
    found, _ = factored.solved_on_workers(problem, None, request, watch, session, shared)
    return found, len(watch.history), bytes_ / 1e6


def case(path: str, n: int, goal: float, workers: int, threads: int) -> None:
    """A line of the table."""
    problem, small = problem_of(n, sparse.csr_array(sparse.load_npz(path))), problem_of(500)

    def one(client: Any) -> None:
        solved(small, 1e-2, client, threads)  # compiles
        Path("/proc/self/clear_refs").write_text("5")  # Linux: the peak begins anew
        stood, before = psutil.Process().memory_info().rss, client.run(spent) if client else {}
        start, own = time.perf_counter(), cpu() + (sum(client.run(cpu).values()) if client else 0.0)
        found, rows, planned = solved(problem, goal, client, threads)
        wall = time.perf_counter() - start
        used = cpu() + (sum(client.run(cpu).values()) if client else 0.0) - own
        lines = Path("/proc/self/status").read_text().splitlines()
        more = (next(int(x.split()[1]) * 1024 for x in lines if x.startswith("VmHWM")) - stood) / 1e6
        after = client.run(spent) if client else {}
        waited = max((after[k][EXCHANGE] - before[k].get(EXCHANGE, 0.0) for k in after), default=0.0)
        largest = max(client.run(peak).values()) if client else 0.0
        bits = hashlib.sha256(np.ascontiguousarray(found.factor).tobytes()).hexdigest()[:8]
        cells = (
            f"{workers} workers" if client else f"{threads} thread(s) here", f"{wall:.1f}", f"{used:.1f}", f"{waited:.1f}",
            f"{more:.0f}", f"{largest:.0f}", f"{planned:.0f}", f"{rows}", f"{found.certificate.relative_gap:.1e}", bits,
        )  # fmt: skip
        print("| " + " | ".join(cells) + " |", flush=True)

    if not workers:
        one(None)
        return
    from distributed import Client, LocalCluster

    how: dict[str, Any] = {"processes": True, "host": "127.0.0.1", "dashboard_address": None}
    with LocalCluster(n_workers=workers, threads_per_worker=threads, **how) as cluster, Client(cluster) as client:
        one(client)


def main() -> None:
    """All cases, of one graph."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--goal", type=float, default=1e-3)
    parser.add_argument("--cases", nargs="+", default=["0x1", "0x2", "2x1"], help="workers x threads; 0: here")
    parser.add_argument("--case", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.case:
        workers, threads = map(int, given.case[1].split("x"))
        case(given.case[0], given.rows, given.goal, workers, threads)
        return
    print("| " + " | ".join(HEAD) + " |\n|" + "---|" * len(HEAD), flush=True)
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/laplacian.npz"
        sparse.save_npz(path, problem_of(given.rows).laplacian, compressed=False)
        for name in given.cases:
            how = ["--rows", str(given.rows), "--goal", str(given.goal), "--case", path, name]
            subprocess.run([sys.executable, "-m", "benchmarks.pairwise.pair_workers", *how], check=True)


if __name__ == "__main__":
    main()
