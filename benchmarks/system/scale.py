"""A model of larger machines: `python -m benchmarks.system.scale [measure] [check] [predict]`, all three by default.

    OMP_NUM_THREADS=1 python -m benchmarks.system.scale
    OMP_NUM_THREADS=1 python -m benchmarks.system.scale predict --rates rates.json --network 1.25e9

measure   the seconds of one thread for a row and column of KL-ADMM's iteration, and for a row (small systems); for a row and column of the
          factored solver's; of the graph a row; of SLKL's pass a row and column; of a message between two workers, and a byte of it
check     bytes and messages of an iteration beside what the formulas say (in brackets): 2 to 32 workers that share this machine's
          processors, of 16 at most with a share. Their seconds say nothing, their counts all
predict   seconds and memory an iteration of 10^7 to 10^9 patterns on 10 to 1,000 workers of one thread each

Two Gaussians in 10 dimensions in random order, 10 neighbours, 0.6 n pairs of each kind. Workers are as fast as the processor here, the
network gives --network bytes a second each way to each worker. Nothing is assumed of what overlaps: times are added up.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

import dkl
from benchmarks.pairwise.admm import local_cluster
from benchmarks.pairwise.pair_workers import problem_of
from dkl.blocks.graph.neighbor_graph import build_graph
from dkl.blocks.memory_plan import PROCESS_BASE, SUMS_PER_PATTERN, plan_pairwise
from dkl.blocks.session import Session
from dkl.blocks.slabs.placement import ClusterPlacement, LocalPlacement
from dkl.blocks.slabs.sums_exchange import in_ranges, worth_sharing
from dkl.blocks.workers.exchange import Exchange
from dkl.datasets import two_gaussians
from dkl.estimators.pairwise import factored
from dkl.estimators.pairwise import plan as factored_plan
from dkl.estimators.pairwise.settings import PairwiseSettings
from dkl.linalg.rows.tree_sum import row_groups
from dkl.linalg.slabs.slab_ops import slab_width
from dkl.problems.pairwise.problem import PairwiseKernel, RandomStart
from dkl.problems.pairwise.terms import LEAST_ROWS
from dkl.runs.own_workers import own_workers
from dkl.solvers.pairwise.descent import minimize
from dkl.solvers.watch import Watch

GRAPH_ENTRIES, PAIR_ENTRIES = 15.0, 3.4
"""Entries of L and of T a row."""
RANK, WIDTH = 256, 16
"""Of ADMM's factor, and of the factored solver's."""
EXCHANGES, PAIR_BYTES = 14, 40
"""Of an iteration of the factored solver: sums and halos; bytes a column of a row that pairs name, for the preconditioner, in single
precision. Of a row that graph or pairs name, a number in double more, for the direction."""
SIZES, WORKERS = (10**7, 10**8, 10**9), (10, 100, 1000)
COUNTED = ("messages", "bytes")
STEPS_HERE = 3
"""Iterations of ADMM that are counted."""


# -- measure ------------------------------------------------------------------------------------------------------------


def rates(n: int) -> dict[str, float]:
    """Seconds of one thread a row and column, a row, a message, a byte."""
    problem = problem_of(n)
    width = slab_width(RANK, "float64")
    one, two = (_admm_seconds(problem, slabs * width) for slabs in (1, 2))
    found = {"admm": (two - one) / (n * width), "admm_row": max(0.0, 2 * one - two) / n}
    solver = problem.factored(1)
    start = solver.padded(np.random.default_rng(0).standard_normal((n, WIDTH)))
    minimize(solver, start.copy(), tol=0.0, max_iter=2)
    began = time.perf_counter()
    steps = minimize(solver, start, tol=0.0, max_iter=10).n_iter
    found["factored"] = (time.perf_counter() - began) / (steps * n * WIDTH)
    solver.close()
    data = two_gaussians(n, random_state=0)
    found["graph"] = build_graph(data.X, n_neighbors=10, session=Session.find(None, threads=1)).seconds / n
    learner = dkl.LowRankKernelRegressor(n_columns=500, random_state=0, n_jobs=1).fit(data.X, data.X[:, 0])
    found["slkl"] = learner.result_.seconds["pass"] / (n * 500)
    for workers in (2, 8, 16, *WORKERS):
        found[f"met_{workers}"] = _met(problem.n // workers, problem.laplacian, problem.targets)
        found[f"pairs_met_{workers}"] = _met(problem.n // workers, problem.targets, problem.targets)
    return found | _network()


def _met(own: int, laplacian: sparse.csr_array, targets: sparse.csr_array) -> float:
    """Rows of others that the entries of the first `own` rows name, of these: it hardly depends on n."""
    return factored_plan.sizes_of(laplacian, targets, (0, own, targets.shape[0]), 0)[1] / own


def _admm_seconds(problem: PairwiseKernel, rank: int) -> float:
    """The least of some iterations, by one thread."""
    program = problem.admm(rank, "float64", 0.0)
    placement = LocalPlacement(program)
    placement.start(RandomStart(0, problem.n, rank), program.start(100.0))
    seconds = []
    for _ in range(5):
        began = time.perf_counter()
        placement.advance(1)
        seconds.append(time.perf_counter() - began)
    placement.close()
    return min(seconds)


def _ping(addresses: list[str], sizes: tuple[int, ...], times: int) -> list[float]:
    """On each of two workers: seconds of an exchange of so many numbers."""
    from distributed import get_worker

    index = addresses.index(get_worker().address)
    peers, step, found = Exchange("ping", index, addresses), 0, []
    for size in sizes:
        part = np.zeros(size)
        peers(step, part)
        began = time.perf_counter()
        for k in range(times):
            peers(step + 1 + k, part)
        step += 1 + times
        found.append((time.perf_counter() - began) / times)
    return found


def _network() -> dict[str, float]:
    """A message there and back at once, and a byte more of it."""
    with local_cluster(2) as client:
        addresses = sorted(client.scheduler_info(n_workers=-1)["workers"])
        sizes = (1, 1_000_000)
        both = [client.submit(_ping, addresses, sizes, 50, workers=[one], pure=False) for one in addresses]
        small, large = np.mean(client.gather(both), axis=0)
    return {"message": float(small), "loopback_byte": float((large - small) / (8 * sizes[1]))}


# -- check --------------------------------------------------------------------------------------------------------------


def count_sends() -> None:
    """On a worker: what it sends from now on is counted, in the class: this module's own names are copies there."""
    if hasattr(Exchange, "counts"):
        return
    real, Exchange.counts = Exchange._send_all, {"messages": 0, "bytes": 0}  # type: ignore[attr-defined]

    def counted(self: Exchange, step: int, parts: dict[int, Any]) -> None:
        self.counts["messages"] += len(parts)  # type: ignore[attr-defined]
        self.counts["bytes"] += sum(_bytes(part) for part in parts.values())  # type: ignore[attr-defined]
        real(self, step, parts)

    Exchange._send_all = counted  # type: ignore[method-assign]


def _bytes(part: Any) -> int:
    if isinstance(part, tuple):  # ADMM's sums and rows
        return sum(map(_bytes, part))
    return sum(vector.nbytes for vector in part.values()) if isinstance(part, dict) else part.nbytes


def counts() -> dict[str, int]:
    """On a worker, so far."""
    return dict(Exchange.counts)  # type: ignore[attr-defined]


def sent(client: Any, work: Callable[[], Any]) -> list[float]:
    """(messages, bytes) that all workers together send in `work`."""
    client.run(count_sends)
    before = client.run(counts).values()
    work()
    after = client.run(counts).values()
    return [sum(each[what] for each in after) - sum(each[what] for each in before) for what in COUNTED]


def check(n: int, numbers: list[int], rate: dict[str, float]) -> None:
    """A row a number of workers."""
    problem = problem_of(n)
    print("| workers | ADMM: messages | MB | factored: messages | MB |\n|---|---|---|---|---|")
    for workers in numbers:
        with own_workers(workers, 2_000_000_000) as client:
            client.wait_for_workers(workers, timeout=120)
            session = Session(client)
            admm = _admm_iterations(problem, session)
            search = _search(problem, session)
        owners = min(workers, 16)  # of so few slabs, and of the groups of so few rows
        told = predicted(n, owners, rate, None)
        print(
            f"| {workers} | {admm[0] / STEPS_HERE:.0f} ({2 * told['admm_rounds'] * owners * (owners - 1):.0f})"
            f" | {admm[1] / STEPS_HERE / 1e6:.1f} ({told['admm_bytes'] * owners / 1e6:.1f})"
            f" | {search[0]:.0f} ({EXCHANGES * owners * (owners - 1):.0f})"
            f" | {search[1] / 1e6:.1f} ({told['factored_bytes'] * owners / 1e6:.1f}) |",
            flush=True,
        )


def _admm_iterations(problem: PairwiseKernel, session: Session) -> list[float]:
    """(messages, bytes) of STEPS_HERE iterations."""
    program = problem.admm(RANK, "float64", 0.0)
    placement = ClusterPlacement(program, session, f"scale-{time.monotonic_ns()}")
    try:
        placement.start(RandomStart(0, problem.n, RANK), program.start(100.0))
        return sent(session.client, lambda: placement.advance(STEPS_HERE))
    finally:
        placement.close()


def _search(problem: PairwiseKernel, session: Session, first: int = 4, last: int = 12) -> list[float]:
    """(messages, bytes) an iteration of the factored solver, between two that no certificate is between."""
    factored_plan.WORTHWHILE = 0
    shared, marks = factored_plan.SharedPlan.of(problem, PairwiseSettings(), session), {}
    assert shared is not None

    def mark(row: dict[str, Any]) -> bool:
        if row["iteration"] in (first, last):
            every = session.client.run(counts).values()
            marks[row["iteration"]] = [sum(each[what] for each in every) for what in COUNTED]
        return row["iteration"] >= last

    request = factored.LowRankRequest(1e-9, WIDTH, WIDTH, 100, 0, "float64")
    factored.solved_on_workers(problem, None, request, Watch([mark]), session, shared)
    return [(more - less) / (last - first) for less, more in zip(marks[first], marks[last], strict=True)]


# -- predict ------------------------------------------------------------------------------------------------------------


def predicted(n: int, workers: int, rate: dict[str, float], network: float | None) -> dict[str, float]:
    """Of an iteration, a worker: bytes it sends, seconds (with the rates of this machine and the network's) and memory."""
    width = slab_width(RANK, "float64")
    plan = plan_pairwise(
        n, RANK, "float64", laplacian_entries=int(GRAPH_ENTRIES * n), target_entries=int(PAIR_ENTRIES * n), processes=workers
    )  # fmt: skip
    owners, slabs = plan.processes, plan.shape["slabs"]
    sums, shared = int(SUMS_PER_PATTERN * n), worth_sharing(owners, int(PAIR_ENTRIES * n))
    own = n / min(workers, len(row_groups(n, LEAST_ROWS)))
    met, pairs_met = own * rate[f"met_{workers}"], own * rate[f"pairs_met_{workers}"]
    told = {
        "owners": owners,
        "admm_rounds": 1 + in_ranges(owners, sums) + shared,
        "admm_bytes": plan.exchanged_per_iteration / owners,
        "admm_memory": plan.process_bytes,
        "met": met,
        "factored_bytes": WIDTH * (8 * met + PAIR_BYTES * pairs_met),
        "factored_memory": PROCESS_BASE
        + factored_plan.owner_bytes((int(own), int(met), int(GRAPH_ENTRIES * own), int(PAIR_ENTRIES * own)), WIDTH),
        "driver_memory": PROCESS_BASE + 12 * GRAPH_ENTRIES * n + 48 * PAIR_ENTRIES * n + 2 * 8 * n * WIDTH,
    }
    if network is not None:
        rounds = 2 * told["admm_rounds"]
        told |= {
            "admm_arithmetic": rate["admm"] * n * width * -(-slabs // owners)
            + rate["admm_row"] * n / (owners if shared else 1),
            "admm_network": told["admm_bytes"] / network + rounds * (owners - 1) * rate["message"],
            "factored_arithmetic": rate["factored"] * own * WIDTH,
            "factored_network": told["factored_bytes"] / network + EXCHANGES * (n / own - 1) * rate["message"],
            "slkl_pass": rate["slkl"] * n / workers * 500,
            "graph": rate["graph"] * n / workers,
        }
    return told


def predict(rate: dict[str, float], network: float) -> None:
    """A row a size and number of workers."""
    print("| n | workers | ADMM r = 256: owners, arithmetic + network, s | a worker, GB | factored, 16 columns: s | a worker, GB"
          " | driver, GB | SLKL's pass of 500 columns, s |\n|---|---|---|---|---|---|---|---|")  # fmt: skip
    for n in SIZES:
        for workers in WORKERS:
            told = predicted(n, workers, rate, network)
            print(
                f"| {n:.0e} | {workers:,} | {told['owners']:.0f}, {told['admm_arithmetic']:.3g} + {told['admm_network']:.3g}"
                f" | {told['admm_memory'] / 1e9:.3g} | {told['factored_arithmetic']:.3g} + {told['factored_network']:.3g}"
                f" | {told['factored_memory'] / 1e9:.3g} | {told['driver_memory'] / 1e9:.3g} | {told['slkl_pass']:.3g} |"
            )


def main() -> None:
    """What was asked for, in order."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", default=["measure", "check", "predict"])
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--workers", type=int, nargs="+", default=[2, 8, 32], help="of check")
    parser.add_argument("--network", type=float, default=1.25e9, help="bytes a second each way: 10 Gbit/s")
    parser.add_argument("--rates", type=Path, help="a file: written by measure, read by predict")
    asked = parser.parse_args()
    rate: dict[str, float] = {}
    if "measure" in asked.what:
        rate = rates(asked.rows)
        print(json.dumps(rate), flush=True)
        if asked.rates is not None:
            asked.rates.write_text(json.dumps(rate))
    elif asked.rates is not None:
        rate = json.loads(asked.rates.read_text())
    else:
        parser.error("check and predict need rates; measure them too, or name a file of them by --rates")
    if "check" in asked.what:
        check(asked.rows // 2, asked.workers, rate)
    if "predict" in asked.what:
        predict(rate, asked.network)


if __name__ == "__main__":
    main()
