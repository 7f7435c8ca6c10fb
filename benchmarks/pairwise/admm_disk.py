"""KL-ADMM out of core beside its two bounds, the disk's and the processor's: `python -m benchmarks.pairwise.admm_disk [options]`.

    OMP_NUM_THREADS=1 python -m benchmarks.pairwise.admm_disk --n 1e4 1e5 1e6 --rank 64 256 --pairs 1000 1.2n --picture FILE.png --folder F
    OMP_NUM_THREADS=1 python -m benchmarks.pairwise.admm_disk --n 1e6 --rank rule --dtype float32 --iterations 10 --folder FOLDER

Two Gaussians in 10 dimensions, 10 neighbours, --pairs, half of them of either kind, gamma = 100; "rule" is the paper's rank. One
process; the state is in working arrays below FOLDER, a slab a thread in memory and --ahead more; nothing is committed. Beside the
seconds of each iteration:

    disk        the bytes that an iteration reads and writes, over what the same arrays give when they are read, and files like a quarter
                of them when these are written: in order, by as many threads, with nothing in the system's cache before, all on disk
                after, through the cache and past it; the faster counts
    arithmetic  iterations in memory, of one slab a thread and of two: what a slab more takes, for as many as a thread has; the mean
                of before and after, as a machine whose memory others use as well is not the same from one minute to the next

One JSON object a case, and the seconds of all against n as a picture. Graphs are kept in FOLDER as pair_proofs.py keeps them.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.pairwise.pair_proofs import graph
from dkl import Pairs
from dkl.blocks.slabs.placement import LocalPlacement, create_scratch
from dkl.estimators.pairwise.fit import make_problem
from dkl.estimators.pairwise.plan import AHEAD
from dkl.linalg.slabs.slab_ops import empty_aligned, slab_width
from dkl.problems.pairwise.admm import PairwiseADMM
from dkl.problems.pairwise.problem import PairwiseKernel, RandomStart
from dkl.resources import DISK, spent
from dkl.stores import direct_io

READS, WRITES = 7, 5
"""Arrays of a slab in an iteration: PairwiseADMM.io of the phases v and u."""
RHO = 100.0
BLOCK = 1 << 24


def iterations(
    problem: PairwiseKernel, program: PairwiseADMM, threads: int, steps: int, scratch: Path | None, ahead: int = 0
) -> dict[str, Any]:
    """Seconds of the start and of each of so many iterations, the objective after each, and the share of them that reads and writes."""
    where = None if scratch is None else create_scratch(program, scratch)
    placement = LocalPlacement(program, threads=threads, scratch=where, ahead=ahead)
    try:
        began = time.perf_counter()
        placement.start(RandomStart(0, problem.n, program.rank), program.start(RHO))
        told: dict[str, Any] = {"start": time.perf_counter() - began, "seconds": [], "disk_share": [], "objective": []}
        for _ in range(steps):
            before, began = spent()[DISK], time.perf_counter()
            carry = placement.advance(1)[0]
            seconds = time.perf_counter() - began
            told["seconds"].append(round(seconds, 3))
            told["disk_share"].append(round((spent()[DISK] - before) / threads / seconds, 2))
            told["objective"].append(carry["objective"])
            if scratch is not None:
                print(f"rank {program.rank}: {seconds:.1f} s", file=sys.stderr, flush=True)
    finally:
        placement.close()
    return told


def in_order(paths: list[Path], threads: int, one: Callable[[Path], int]) -> float:
    """Bytes a second of one(path), which returns its bytes, over so many threads."""
    with ThreadPoolExecutor(threads) as pool:
        began = time.perf_counter()
        return sum(pool.map(one, paths)) / (time.perf_counter() - began)


def forget(path: Path) -> None:
    """Put the file on disk and drop its pages from the system's cache."""
    descriptor = os.open(path, os.O_RDWR)
    os.fsync(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)


def read(path: Path) -> int:
    """All of it, into one buffer."""
    buffer, total = bytearray(BLOCK), 0
    with open(path, "rb", buffering=0) as file:
        while got := file.readinto(buffer):
            total += got
    return total


def past_the_cache(path: Path) -> int:
    """As `read`, without the system's cache."""
    size = path.stat().st_size
    return direct_io.read(path, memoryview(empty_aligned((size,), np.uint8, direct_io.BLOCK)))


def bandwidths(folder: Path, threads: int) -> dict[str, tuple[float, float]]:
    """(bytes a second read, and written) of the slabs in `folder`, through the system's cache and past it; a quarter is written."""
    slabs = sorted(folder.glob("*/c.*"))
    size = slabs[0].stat().st_size
    values = empty_aligned((size,), np.uint8, direct_io.BLOCK)
    values[:] = np.frombuffer(os.urandom(1 << 16), np.uint8).repeat(-(-size >> 16))[:size]

    def write(path: Path) -> int:
        with open(path, "r+b", buffering=0) as file:
            file.write(values)
            os.fsync(file.fileno())
        return size

    def write_past(path: Path) -> int:
        direct_io.write(path, memoryview(values))
        return size

    found = {}
    for name, (reads, writes) in {"cached": (read, write), "uncached": (past_the_cache, write_past)}.items():
        for path in slabs:
            forget(path)
        reading = in_order(slabs, threads, reads)
        targets = slabs[: max(threads, len(slabs) // 4)]
        found[name] = reading, in_order(targets, threads, writes)
    return found


def in_memory(problem: PairwiseKernel, rank: int, dtype: str, threads: int) -> float:
    """The least seconds of some iterations."""
    return min(iterations(problem, problem.admm(rank, dtype, 0.0), threads, 4, None)["seconds"])


def measured(
    problem: PairwiseKernel, rank: int, dtype: str, threads: int, steps: int, folder: Path, ahead: int
) -> dict[str, Any]:
    """The iterations out of core, the same in memory for a slab a thread, and the disk."""
    width = slab_width(rank, dtype)
    program, slabs = problem.admm(rank, dtype, 0.0), -(-rank // width)
    scratch = folder / "working"

    def arithmetic() -> float:
        """Seconds of an iteration without a disk, by those of one slab a thread, and of what each further one takes."""
        one, two = (in_memory(problem, k * threads * width, dtype, threads) for k in (1, 2))
        return one + (two - one) * (-(-slabs // threads) - 1)

    # Before and after: within minutes a machine whose memory others use as well is twice as fast, or half.
    around = [arithmetic()]
    try:
        told = iterations(problem, program, threads, steps, scratch, ahead)
        disk = bandwidths(scratch, threads)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    around.append(arithmetic())
    array = problem.n * width * np.dtype(dtype).itemsize * slabs
    seconds = float(np.median(told["seconds"][1:]))
    bounds = {
        "disk": min(READS * array / reading + WRITES * array / writing for reading, writing in disk.values()),
        "arithmetic": sum(around) / 2,
    }
    return {
        "n": problem.n, "rank": rank, "dtype": dtype, "threads": threads, "slabs": slabs, "array_gb": array / 1e9,
        "an_iteration": seconds, "bounds": bounds, "of_the_larger": seconds / max(bounds.values()),
        "arithmetic_around": around,
        "mb_s": {name: [round(each / 1e6) for each in both] for name, both in disk.items()}, "ahead": ahead,
        "peak_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6, **told,
    }  # fmt: skip


def picture(rows: list[dict[str, Any]], path: Path) -> None:
    """Seconds of an iteration against n, a line for each rank and number of pairs, and one of slope 1."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axis = pyplot.subplots(figsize=(6, 4.5), layout="constrained")
    for rank, pairs in dict.fromkeys((row["rank"], row["pairs_asked"]) for row in rows):
        part = [row for row in rows if (row["rank"], row["pairs_asked"]) == (rank, pairs)]
        n, seconds = np.array([(row["n"], row["an_iteration"]) for row in part]).T
        slope = f", slope {np.polyfit(np.log(n), np.log(seconds), 1)[0]:.2f}" if len(n) > 1 else ""
        axis.loglog(n, seconds, "o-", label=f"r = {rank}, {pairs.replace('n', ' n')} pairs{slope}")
    ends = np.array([min(row["n"] for row in rows), max(row["n"] for row in rows)], float)
    least = min(row["an_iteration"] / row["n"] for row in rows)
    axis.loglog(ends, 0.7 * least * ends, "k:", label="slope 1")
    axis.set(xlabel="patterns n", ylabel="seconds an iteration, out of core")
    axis.legend()
    axis.grid(alpha=0.3)
    figure.savefig(path, dpi=130)


def main() -> None:
    """A line a case."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", nargs="+", type=lambda text: int(float(text)), default=[1_000_000])
    parser.add_argument("--rank", nargs="+", default=["64", "256"], help='numbers, or "rule"')
    parser.add_argument("--pairs", nargs="+", default=["1.2n"], help='numbers, or with "n" times n')
    parser.add_argument("--dtype", default="float64", choices=("float64", "float32"))
    parser.add_argument("--iterations", type=int, default=10)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--ahead", type=int, default=AHEAD, help="slabs on their way while others are computed")
    parser.add_argument("--picture", type=Path)
    parser.add_argument("--folder", type=Path, required=True)
    asked, rows = parser.parse_args(), []
    for n in asked.n:
        began = time.perf_counter()
        laplacian, y = graph("gaussians", n, asked.folder)
        print(json.dumps({"n": n, "graph_or_its_file": round(time.perf_counter() - began, 1)}), flush=True)
        for pairs in asked.pairs:
            each = int(float(pairs.removesuffix("n")) * (n if pairs.endswith("n") else 1)) // 2
            problem = make_problem(laplacian, Pairs.from_labels(y, each, each, random_state=0), 100.0)
            for rank in asked.rank:
                r = problem.paper_rank if rank == "rule" else int(rank)
                told = measured(problem, r, asked.dtype, asked.threads, asked.iterations, asked.folder, asked.ahead)
                rows.append({**told, "pairs": 2 * each, "pairs_asked": pairs})
                print(json.dumps(rows[-1]), flush=True)
    if asked.picture is not None:
        picture(rows, asked.picture)


if __name__ == "__main__":
    main()
