"""Fits over sizes, files, ranks and limits of memory, each in a process of its own: what it plans and what its processes take."""

from __future__ import annotations

import json
import re
import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import measured_runs
import numpy as np
import zarr
from command_line import call
from patience import PATIENCE
from preloaded import Forked

from dkl.blocks.memory_plan import PROCESS_BASE, WORKER_SHARE

D = 20
LEARNERS = {
    "pairwise": ("--pairs", "pairs.csv", "--max-iter", "2", "--target-gap", "none", "--n-neighbors", "5"),
    "regression": ("--targets", "y.npy", "--nu", "50"),
    "svc": ("--targets", "labels.npy", "--max-iter", "2"),
    "logdet": ("--targets", "labels.npy", "--n-in", "1", "--n-out", "1", "--max-iter", "2", "--solver", "pcg"),
    "metric": ("--targets", "labels.npy", "--n-in", "1", "--n-out", "1", "--max-iter", "2", "--solver", "pcg"),
    "mvu": ("--n-neighbors", "8", "--n-basis", "16", "--max-iter", "4"),
    "laplacian": ("--pairs", "pairs.csv", "--n-neighbors", "8", "--n-basis", "16", "--max-iter", "4"),
}
RANKS = {"pairwise": "--rank", "regression": "--n-columns", "mvu": "--n-basis", "laplacian": "--n-basis"}
UNIT = {"kB": 1e3, "MB": 1e6, "GB": 1e9}


@dataclass(frozen=True)
class Point:
    """rank: columns of what is learned, 0 for the learner's own. chunk: rows of one of the file's; 0: a .npy file.
    is_tight: the least limit under which it is taken on, or none."""

    task: str
    n: int
    rank: int = 0
    chunk: int = 0
    is_tight: bool = True
    place: tuple[str, ...] = ("--threads", "1")

    def __str__(self) -> str:
        chunk = f", chunks of {self.chunk}" if self.chunk else ""
        return f"{self.task} {self.n} x {self.rank}{chunk}{', least limit' if self.is_tight else ''}"


@dataclass(frozen=True)
class Taken:
    """Bytes: planned for a process that works; the limit of each, if any; peaks of this process and of workers."""

    planned: int
    limit: int | None
    own: int
    workers: tuple[int, ...]
    refusal_seconds: float

    @property
    def peak(self) -> int:
        return max(self.workers, default=self.own)


def write_rows(folder: Path, n: int, chunk: int, d: int = D) -> None:
    """X of digits, as one block again and again where it is in chunks; targets, labels and pairs."""
    rng = np.random.default_rng(0)
    if chunk:
        block = rng.integers(10, size=(chunk, d)).astype(np.float64)
        X = zarr.create_array(str(folder / "X"), shape=(n, d), chunks=(chunk, d), dtype="f8")
        for start in range(0, n, chunk):
            X[start : start + chunk] = np.roll(block, start // chunk, axis=1)[: n - start]
    else:
        np.save(folder / "X.npy", rng.standard_normal((n, d)))
    np.save(folder / "y.npy", rng.standard_normal(n))
    np.save(folder / "labels.npy", np.arange(n) % 2)
    lines = [f"{2 * k},{2 * k + 1},{'must' if k % 2 else 'cannot'}" for k in range(min(n // 2, 200))]
    (folder / "pairs.csv").write_text("\n".join(["i,j,label", *lines]) + "\n")


def taken(point: Point, base: Path, d: int = D) -> Taken:
    """What a fit takes; its files are removed."""
    folder = Path(tempfile.mkdtemp(dir=base))
    write_rows(folder, point.n, point.chunk, d)
    given = [point.task, "--data", str(folder / ("X" if point.chunk else "X.npy"))]
    given += [str(folder / word) if (folder / word).is_file() else word for word in LEARNERS[point.task]]
    given += [RANKS[point.task], str(point.rank)] if point.rank else []
    given += [*point.place, "--out", str(folder / "run.zarr")]
    limit, seconds = _least_limit(given) if point.is_tight else (None, 0.0)
    given += ["--no-picture", *(["--memory-limit", str(limit)] if limit else [])]
    process = Forked(measured_runs.on_workers, json.dumps([["fit", *given]]), str(folder / "figures.json"))
    # Rows are read several times, at a quarter of a gigabyte a second on a machine that is busy.
    said = process.communicate(PATIENCE + point.n * 8 * d * 20e-9)
    assert process.returncode == 0, said
    ((code, planned, own, below),) = json.loads((folder / "figures.json").read_text())
    assert code in (0, 3), said
    shutil.rmtree(folder)
    workers = tuple(sorted(below)[-2:]) if "--workers" in point.place else ()
    return Taken(planned, limit, own, workers, seconds)


def _least_limit(given: list[str]) -> tuple[int, float]:
    """The bytes under which a plan is accepted, as refusals name them; the longest of these in seconds."""
    limit, slowest = PROCESS_BASE, 0.0
    for _ in range(20):
        start = time.perf_counter()
        answer = call("plan", *given, "--memory-limit", limit)
        if answer.code == 0:
            return limit, slowest
        slowest = max(slowest, time.perf_counter() - start)
        assert answer.code == 5, answer.err
        found = re.search(r"wanted (?:at least )?([\d.]+) (kB|MB|GB)", answer.err)
        assert found is not None, answer.err
        share = WORKER_SHARE if "% of a worker's" in answer.err else 1.0
        # Three digits are told.
        limit = max(int(1.004 * float(found[1]) * UNIT[found[2]] / share), int(1.002 * limit))
    raise AssertionError(f"no limit is enough: {answer.err}")
