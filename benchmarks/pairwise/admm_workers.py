"""KL-ADMM on two workers beside one, at n = 10^6 and r = 256: `python -m benchmarks.pairwise.admm_workers [options]`.

    OMP_NUM_THREADS=1 python -m benchmarks.pairwise.admm_workers --folder FOLDER
    OMP_NUM_THREADS=1 python -m benchmarks.pairwise.admm_workers --folder FOLDER --on-disk

Two Gaussians in 10 dimensions, 10 neighbours, 0.6 n pairs of each kind, gamma = 100; workers of one thread each on 127.0.0.1, their
slabs in memory, or in working arrays below FOLDER. In turn, --rounds times: one worker with all slabs; two with half of them each; and
both workers at once, of which none knows of the other, with half of the slabs each as a problem of its own: what two processors of
this machine do that share its caches and its memory, without anything of ours between them.

    efficiency    seconds of one worker over twice those of two
    the machine's seconds of one worker with half of the slabs by itself, over those of two that do this at once

One JSON object; graphs are kept in FOLDER as pair_proofs.py keeps them.
"""

from __future__ import annotations

import argparse
import json
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.pairwise.admm import local_cluster
from benchmarks.pairwise.pair_proofs import graph
from dkl import Pairs
from dkl.blocks.session import Session
from dkl.blocks.slabs.placement import ClusterPlacement, create_scratch
from dkl.estimators.pairwise.fit import make_problem
from dkl.problems.pairwise.problem import PairwiseKernel, RandomStart

RHO = 100.0


class Chosen(Session):
    """A session that knows of some workers only."""

    def __init__(self, client: Any, addresses: list[str]) -> None:
        super().__init__(client)
        self.addresses = addresses

    def workers(self) -> list[str]:
        """These alone."""
        return self.addresses


def iterations(
    problem: PairwiseKernel, rank: int, session: Session, steps: int, folder: Path | None, began: Callable[[], Any]
) -> list[float]:
    """Seconds of each of so many iterations after the first; `began` is called when the state is there."""
    program = problem.admm(rank, "float64", 0.0)
    name = f"workers-{time.monotonic_ns()}"
    scratch = None if folder is None else create_scratch(program, folder / name)
    placement = ClusterPlacement(program, session, name, scratch=scratch)
    try:
        placement.start(RandomStart(0, problem.n, rank), program.start(RHO))
        placement.advance(1)
        began()
        seconds = []
        for _ in range(steps):
            start = time.perf_counter()
            placement.advance(1)
            seconds.append(time.perf_counter() - start)
    finally:
        placement.close()
        if scratch is not None:
            shutil.rmtree(scratch, ignore_errors=True)
    return seconds


def at_once(work: list[Callable[[Callable[[], Any]], list[float]]]) -> list[float]:
    """What each returns, one after the other, of all that are run together and begin to measure together."""
    barrier, found = threading.Barrier(len(work)), []
    threads = [threading.Thread(target=lambda one=one: found.extend(one(barrier.wait))) for one in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def measured(problem: PairwiseKernel, rank: int, steps: int, rounds: int, folder: Path | None) -> dict[str, Any]:
    """Seconds of an iteration by case: of each round the median."""
    seconds: dict[str, list[float]] = {"one": [], "two": [], "half": [], "halves": []}
    with local_cluster(2) as client:
        both = sorted(client.scheduler_info(n_workers=-1)["workers"])
        first, second = (Chosen(client, [address]) for address in both)

        def run(session: Session, r: int, began: Callable[[], Any] = lambda: None) -> list[float]:
            return iterations(problem, r, session, steps, folder, began)

        for _ in range(rounds):
            seconds["one"].append(float(np.median(run(first, rank))))
            seconds["two"].append(float(np.median(run(Chosen(client, both), rank))))
            seconds["half"].append(float(np.median(run(first, rank // 2))))
            halves = at_once([lambda began, one=one: run(one, rank // 2, began) for one in (first, second)])
            seconds["halves"].append(float(np.median(halves)))
    told = {name: float(np.median(each)) for name, each in seconds.items()}
    return {
        "n": problem.n,
        "rank": rank,
        "on_disk": folder is not None,
        "efficiency": told["one"] / (2 * told["two"]),
        "machine": told["half"] / told["halves"],
        "seconds": told,
        "rounds": seconds,
    }


def main() -> None:
    """A line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=lambda text: int(float(text)), default=1_000_000)
    parser.add_argument("--rank", type=int, default=256)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--on-disk", action="store_true")
    asked = parser.parse_args()
    laplacian, y = graph("gaussians", asked.n, asked.folder)
    problem = make_problem(laplacian, Pairs.from_labels(y, random_state=0), 100.0)
    folder = asked.folder if asked.on_disk else None
    print(json.dumps(measured(problem, asked.rank, asked.steps, asked.rounds, folder)), flush=True)


if __name__ == "__main__":
    main()
