"""What lost workers cost a run in time: `python -m benchmarks.system.kill_rate [--every 2 10]`.

    OMP_NUM_THREADS=1 python -m benchmarks.system.kill_rate

`dkl fit pairwise --workers 2` of --n rows of two Gaussians by KL-ADMM, 0.6 n pairs of each kind, --iterations, a commit each, to the
same bytes; undisturbed, and with SIGKILL to one of its two workers every so many seconds from the first iteration on. A Markdown row a
case: the median of --repeats, in turn.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import psutil

from dkl import Pairs
from dkl.datasets import two_gaussians


def workers(command: int) -> list[psutil.Process]:
    """Of a command: the children of the process that its workers are forked from, in which memory is that of a worker."""
    found = [one for one in psutil.Process(command).children() if "forkserver" in " ".join(one.cmdline())]
    return [child for one in found for child in one.children()]


def run(folder: Path, name: str, arguments: list[str], every: float | None, seed: int) -> tuple[float, int, str]:
    """(seconds, workers killed, hash of what was learned)."""
    out, rng, hits = folder / name, random.Random(seed), 0
    began = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-m", "dkl.cli.main", *arguments, "--out", str(out)], cwd=folder)
    due = None
    while process.poll() is None:
        time.sleep(0.02)
        if every is None:
            continue
        events = out / "events.jsonl"
        if due is None and events.exists() and '"iteration"' in events.read_text():
            due = time.perf_counter() + rng.uniform(0, every)
        if due is not None and time.perf_counter() >= due:
            due += every
            with suppress(psutil.Error):
                if alive := workers(process.pid):
                    rng.choice(alive).send_signal(signal.SIGKILL)
                    hits += 1
    seconds = time.perf_counter() - began
    assert process.returncode == 3, process.returncode  # of so many iterations: not converged
    bits = hashlib.sha256()
    for chunk in sorted(path for path in (out / "factor" / "c").rglob("*") if path.is_file()):
        bits.update(chunk.read_bytes())
    return seconds, hits, bits.hexdigest()[:8]


def main() -> None:
    """All cases."""
    os.environ["DASK_DKL__WORKERS"] = "always"  # however small the fits
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=20_000)
    parser.add_argument("--rank", type=int, default=64)
    parser.add_argument("--iterations", type=int, default=400)
    parser.add_argument("--every", type=float, nargs="+", default=[10.0, 2.0])
    parser.add_argument("--repeats", type=int, default=3)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        data = two_gaussians(asked.n, random_state=0)
        pairs = Pairs.from_labels(data.y, random_state=0)
        np.savez(folder / "X.npz", X=data.X)
        np.savez(folder / "pairs.npz", must_link=pairs.must_link, cannot_link=pairs.cannot_link)
        arguments = [
            "fit",
            "pairwise",
            "--data",
            "X.npz",
            "--pairs",
            "pairs.npz",
            "--solver",
            "admm",
            "--rank",
            str(asked.rank),
        ]
        arguments += [
            "--target-gap",
            "none",
            "--tol",
            "0",
            "--max-iter",
            str(asked.iterations),
            "--checkpoint-every",
            "1",
        ]
        arguments += ["--workers", "2", "--memory-limit", "2GB", "--no-picture"]
        cases: list[float | None] = [None, *asked.every]
        found: dict[float | None, list[tuple[float, int, str]]] = {every: [] for every in cases}
        for repeat in range(asked.repeats):
            for every in cases:
                found[every].append(run(folder, f"run-{repeat}-{every}.zarr", arguments, every, repeat))
    quiet = statistics.median(seconds for seconds, _, _ in found[None])
    print("| SIGKILL every, s | seconds | kills | seconds a kill | of undisturbed | bytes |\n|---|---|---|---|---|---|")
    for every, rows in found.items():
        seconds, hits = (statistics.median(row[k] for row in rows) for k in (0, 1))
        lost = f"{(seconds - quiet) / hits:.2f}" if hits else ""
        bits = ", ".join(sorted({bits for _, _, bits in rows}))
        print(f"| {every or 'never'} | {seconds:.1f} | {hits:.0f} | {lost} | {seconds / quiet:.2f} | {bits} |")


if __name__ == "__main__":
    main()
