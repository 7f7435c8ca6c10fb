"""KL-ADMM's time per iteration against the work that cannot be avoided, in the three placements.

    OMP_NUM_THREADS=1 python -m benchmarks.pairwise.admm placements          # a6a: memory, cluster, disk
    OMP_NUM_THREADS=1 python -m benchmarks.pairwise.admm scaling             # time per iteration against n at r = 256
    OMP_NUM_THREADS=1 python -m benchmarks.pairwise.admm large --n 100000    # out of core on two small workers
    OMP_NUM_THREADS=1 python -m benchmarks.pairwise.admm idle                # a6a: CPU seconds with workers that work, and idle ones

The yardstick is two products of the Laplacian with the factor by scipy (`L @ V`, one thread), divided by the number of
threads used, measured in the same run. Peak memory is the resident memory of this process and all its children together.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from dkl import Pairs
from dkl.blocks.graph.neighbor_graph import build_graph
from dkl.blocks.session import Session
from dkl.datasets import load, two_gaussians
from dkl.estimators.pairwise.fit import fit_problem, make_problem
from dkl.estimators.pairwise.plan import make_plan
from dkl.estimators.pairwise.settings import PairwiseSettings
from dkl.problems.pairwise.problem import PairwiseKernel
from dkl.resources import format_bytes
from dkl.stores.run import RunStore


class PeakMemory:
    """Largest resident memory of this process and its children together, sampled; and of each child alone."""

    def __init__(self, interval: float = 0.1) -> None:
        self.peak = self.peak_child = 0
        self._interval, self._stop = interval, threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> PeakMemory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        me = psutil.Process()
        while not self._stop.wait(self._interval):
            sizes = []
            for process in [me, *me.children(recursive=True)]:
                try:
                    sizes.append(process.memory_info().rss)
                except psutil.Error:
                    continue
            self.peak = max(self.peak, sum(sizes))
            self.peak_child = max([self.peak_child, *sizes[1:]])


@contextmanager
def local_cluster(workers: int, memory_limit: str | int = 0) -> Iterator[Any]:
    import dask
    from distributed import Client, LocalCluster

    with (
        dask.config.set({"dkl.workers": "always"}),
        LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            memory_limit=memory_limit,
            host="127.0.0.1",
            dashboard_address=None,
            scheduler_kwargs={"dashboard_address": "127.0.0.1:0"},
        ) as cluster,
        Client(cluster) as client,
    ):
        yield client


def unavoidable(problem: PairwiseKernel, rank: int, repeats: int = 5) -> float:
    """Seconds of two products of L with an (n, rank) factor by scipy on one thread, median."""
    factor = np.random.default_rng(0).standard_normal((problem.n, rank))
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        problem.laplacian @ factor
        problem.laplacian @ factor
        seconds.append(time.perf_counter() - start)
    return float(np.median(seconds))


def per_iteration(history: list[dict[str, Any]], skip: int = 10) -> float:
    """Seconds an iteration after a warm-up, NaN of one time. Rows of a cluster come several at a time, all with the time of the last."""
    ends = [row for row, after in pairwise([*history, {"seconds": None}]) if row["seconds"] != after["seconds"]]
    first = next(row for row in ends if row["iteration"] >= skip)
    count = ends[-1]["iteration"] - first["iteration"]
    return (ends[-1]["seconds"] - first["seconds"]) / count if count else float("nan")


def placements(repeats: int, max_iter: int) -> list[dict[str, Any]]:
    data = load("a6a")
    graph = build_graph(data.X, n_neighbors=50)
    problem = make_problem(graph.laplacian, Pairs.from_labels(data.y, random_state=0), 100.0)
    settings = PairwiseSettings(solver="admm", n_neighbors=50, max_iter=max_iter, tol=0.0)
    rank = problem.paper_rank
    factors = 3 * problem.n * rank * 8
    print(f"a6a: n = {problem.n:,}, r = {rank}, {problem.laplacian.nnz / problem.n:.1f} entries a row of L")
    rows = []
    for repeat in range(repeats):
        floor = unavoidable(problem, rank) / 2
        memory = run(problem, settings, Session(None, threads=2), "memory, 2 threads")
        with local_cluster(2) as client:
            cluster = run(problem, settings, Session(client), "cluster, 2 workers of 1 thread")
        disk = on_disk(problem, settings, factors)
        for row, base in ((memory, floor), (cluster, memory["seconds"]), (disk, memory["seconds"])):
            row |= {"repeat": repeat, "ratio": row["seconds"] / base, "unavoidable": floor}
            row["to_unavoidable"] = row["seconds"] / floor
            rows.append(row)
            print(
                f"{row['name']:<34}{1e3 * row['seconds']:8.1f} ms/iteration   {row['ratio']:.2f} x its bound's base"
                f"   {row['to_unavoidable']:.2f} x unavoidable ({1e3 * floor:.0f} ms)   total {row['total']:.1f} s",
                flush=True,
            )
    for name in dict.fromkeys(row["name"] for row in rows):
        ratios = [row["ratio"] for row in rows if row["name"] == name]
        print(f"median ratio, {name}: {np.median(ratios):.2f}  ({min(ratios):.2f} to {max(ratios):.2f})")
    return rows


def run(
    problem: PairwiseKernel, settings: PairwiseSettings, session: Session, name: str, **stores: Any
) -> dict[str, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = fit_problem(problem, settings, session, **stores)
    result = fitted.result
    return {
        "name": name,
        "seconds": per_iteration(result.history),
        "total": result.seconds["total"],
        "placement": result.plan["placement"],
        "process_bytes": result.plan["process_bytes"],
        "relative_gap": fitted.certificate.relative_gap,
        "objective": fitted.certificate.objective,
        "n_iter": result.n_iter,
        "plan": result.plan,
    }


def on_disk(problem: PairwiseKernel, settings: PairwiseSettings, factors: int) -> dict[str, Any]:
    """Out of core with a state budget of a quarter of the three factors: buffers of slabs and sums."""
    from dataclasses import replace

    session = Session(None, threads=2)
    with tempfile.TemporaryDirectory() as folder:
        plan = make_plan(problem, replace(settings, memory_limit=1), session, has_store=True, refuse=False)
        state = sum(size for name, size in plan.items.items() if name in STATE)
        assert plan.placement == "disk" and state <= factors / 4, (plan.items, factors)
        limited = replace(settings, memory_limit=plan.process_bytes)
        scratch = RunStore.create(Path(folder) / "run.zarr", {})
        try:
            with PeakMemory() as memory:
                row = run(problem, limited, session, "disk, 2 threads", scratch=scratch)
        finally:
            scratch.close()
    print(f"disk: state {format_bytes(state)} of factors {format_bytes(factors)}; peak {format_bytes(memory.peak)}")
    return row | {"state_bytes": state, "peak": memory.peak}


STATE = ("factors (3) and linear term", "sums over slabs", "rows of hubs")


def gaussians(n: int, n_neighbors: int = 10) -> tuple[PairwiseKernel, float]:
    data = two_gaussians(n, 10, random_state=0)
    graph = build_graph(data.X, n_neighbors=n_neighbors)
    return make_problem(graph.laplacian, Pairs.from_labels(data.y, random_state=0), 100.0), graph.seconds


def idle(max_iter: int) -> list[dict[str, Any]]:
    """CPU seconds of all processes of a fit of a6a by two threads, by two workers, and beside two idle workers."""
    import dask

    data = load("a6a")
    graph = build_graph(data.X, n_neighbors=10)
    problem, rows = make_problem(graph.laplacian, Pairs.from_labels(data.y, random_state=0), 100.0), []
    with local_cluster(2) as client:
        for rank in (64, 275):
            settings = PairwiseSettings(solver="admm", rank=rank, max_iter=max_iter, tol=0.0, target_gap=None)
            for name, where in (("2 threads", None), ("2 workers", "always"), ("2 idle workers", "")):
                session = Session(None, threads=2) if where is None else Session(client)
                before = _cpu(client)
                with dask.config.set({"dkl.workers": where or ""}):
                    run(problem, settings, session, name)
                rows.append({"name": name, "rank": rank, "cpu": _cpu(client) - before})
                print(f"r = {rank:<6}{name:<18}{rows[-1]['cpu']:.2f} s of processors", flush=True)
    return rows


def _cpu(client: Any) -> float:
    return time.process_time() + sum(client.run(time.process_time).values())


def scaling(sizes: list[int], rank: int, max_iter: int) -> list[dict[str, Any]]:
    rows = []
    for n in sizes:
        problem, graph_seconds = gaussians(n)
        settings = PairwiseSettings(solver="admm", rank=rank, max_iter=max_iter, tol=0.0)
        row = run(problem, settings, Session(None, threads=2), f"n = {n:,}")
        row |= {"n": n, "rank": rank, "graph_seconds": graph_seconds, "unavoidable": unavoidable(problem, rank, 3) / 2}
        rows.append(row)
        print(
            f"n = {n:>9,}  r = {rank}  {1e3 * row['seconds']:9.1f} ms/iteration"
            f"  {row['seconds'] / row['unavoidable']:.2f} x unavoidable  graph {graph_seconds:.1f} s",
            flush=True,
        )
    slope = np.polyfit(np.log([row["n"] for row in rows]), np.log([row["seconds"] for row in rows]), 1)[0]
    print(f"slope on log-log: {slope:.3f}")
    return rows


def large(n: int, max_iter: int, memory_limit: str, target_gap: float | None) -> list[dict[str, Any]]:
    start = time.perf_counter()
    with PeakMemory(0.2) as memory:
        problem, graph_seconds = gaussians(n)
        settings = PairwiseSettings(
            solver="admm", max_iter=max_iter, tol=1e-4, target_gap=target_gap, memory_limit=None
        )
        with tempfile.TemporaryDirectory(dir=".") as folder, local_cluster(2, memory_limit) as client:
            session = Session(client)
            print(make_plan(problem, settings, session, has_store=True).describe(), flush=True)
            store = RunStore.create(Path(folder) / "run.zarr", {})
            try:
                row = run(problem, settings, session, f"two Gaussians, n = {n:,}, on disk", run=store)
            finally:
                store.close()
    row |= {"n": n, "graph_seconds": graph_seconds, "peak": memory.peak, "peak_worker": memory.peak_child}
    row["wall"] = time.perf_counter() - start
    print(
        f"{row['name']}: r = {row['plan']['rank']}, {row['n_iter']} iterations, {row['seconds']:.2f} s/iteration,"
        f" relative gap {row['relative_gap']:.2e}, objective {row['objective']:.6g}\n"
        f"peak of all processes {format_bytes(memory.peak)}, of the largest child {format_bytes(memory.peak_child)};"
        f" graph {graph_seconds:.1f} s, whole run {row['wall']:.0f} s\n"
        f"{row['plan']['tasks_per_iteration']} tasks an iteration or a second, whichever is longer;"
        f" {format_bytes(row['plan']['exchanged_per_iteration'])} exchanged an iteration"
    )
    return [row]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=["placements", "scaling", "large", "idle"])
    parser.add_argument("--n", type=lambda text: int(float(text)), nargs="+", default=[10_000, 30_000, 100_000])
    parser.add_argument("--rank", type=int, default=256)
    parser.add_argument("--max-iter", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--memory-limit", default="750 MB")
    parser.add_argument("--target-gap", type=float, default=None)
    parser.add_argument("--json")
    options = parser.parse_args()
    if options.part == "placements":
        rows = placements(options.repeats, options.max_iter)
    elif options.part == "scaling":
        rows = scaling(options.n, options.rank, options.max_iter)
    elif options.part == "idle":
        rows = idle(options.max_iter)
    else:
        rows = large(options.n[-1], options.max_iter, options.memory_limit, options.target_gap)
    if options.json:
        Path(options.json).write_text(json.dumps(rows, indent=1, default=float))


if __name__ == "__main__":
    main()
