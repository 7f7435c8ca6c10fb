"""A fit streamed from zarr under a memory limit, against the bare work on resident rows.

    OMP_NUM_THREADS=1 python -m benchmarks.regression.slkl_stream                        # n = 2,000,000, M = 500, 2 GB
    OMP_NUM_THREADS=1 python -m benchmarks.regression.slkl_stream --n 100000 --repeats 1    # a small try

Rows (n, 20) in double precision, 100,000 a chunk, in a temporary folder; targets a smooth function under noise. Every
fit runs in a process of its own, whose largest resident memory is its own: on threads, and on two workers of one thread
and `--limit` each. The bare work (slkl.py) is done in between by this process, which has all rows in memory: the same
blocks, as many threads, no disk. The file is in the system's cache then, as it has just been written; `--cold` asks the
system to drop it before every fit.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.regression.slkl import bare_factors, bare_work, circumstances, spread, table
from dkl import LowRankKernelRegressor
from dkl.linalg.kernels.kernel_columns import block_rows
from dkl.resources import format_bytes, parse_bytes, peak_rss

FEATURES, CHUNK, GAMMA = 20, 100_000, 0.02
ALPHA = 1e-4
"""sqrt(nu) / n."""


def make_rows(n: int, path: Path, seed: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(X, y), and X in zarr too."""
    import zarr

    rng = np.random.default_rng(seed)
    X = np.empty((n, FEATURES))
    stored = zarr.create_array(str(path), shape=X.shape, chunks=(CHUNK, FEATURES), dtype="f8")
    for lo in range(0, n, CHUNK):
        X[lo : lo + CHUNK] = rng.standard_normal((min(CHUNK, n - lo), FEATURES))
        stored[lo : lo + CHUNK] = X[lo : lo + CHUNK]
    smooth = np.sin(X[:, 0]) + X[:, 1] * X[:, 2] / 2 + np.cos(X[:, 3] + X[:, 4])
    return X, smooth + 0.5 * rng.standard_normal(n)


def drop_cached(path: Path) -> None:
    """Ask the system to forget what it holds of the files."""
    for file in path.rglob("*"):
        if file.is_file():
            with file.open("rb") as handle:
                os.fsync(handle.fileno())
                os.posix_fadvise(handle.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def fit(options: argparse.Namespace) -> dict[str, Any]:
    """What a process of its own does."""
    y = np.load(f"{options.fit}/y.npy")
    model = LowRankKernelRegressor(
        gamma=GAMMA,
        nu=(ALPHA * len(y)) ** 2,
        n_columns=options.columns,
        dtype=options.dtype,
        memory_limit=options.limit,
        n_jobs=options.threads,
        random_state=options.seed,
    )
    rows = f"{options.fit}/X.zarr"
    # Two tasks before the clock starts: libraries are loaded and workers have met.
    warm = LowRankKernelRegressor(nu=1.0, n_columns=10, n_jobs=options.threads, random_state=0)
    if options.workers:
        from benchmarks.pairwise.admm import PeakMemory, local_cluster  # and with it Dask, which threads need none of

        with local_cluster(options.workers, options.limit) as client, PeakMemory(0.05) as memory:
            warm.set_params(client=client).fit(np.zeros((20, 2)) + np.arange(20)[:, None], np.arange(20.0))
            seconds = timed(model.set_params(client=client), rows, y)
        peak = memory.peak_child
    else:
        warm.fit(np.zeros((20, 2)) + np.arange(20)[:, None], np.arange(20.0))
        seconds = timed(model, rows, y)
        peak = peak_rss()
    return {
        "seconds": seconds,
        "stages": model.result_.seconds,
        "peak": peak,
        "planned": model.result_.plan["process_bytes"],
        "placement": model.result_.plan["placement"],
        "gap": model.relative_gap_,
        "n_active": model.n_active_,
        "nu": model.nu_,
        "score": float(np.corrcoef(model.set_params(client=None).predict(_first(rows)), y[:CHUNK])[0, 1] ** 2),
    }


def _first(rows: str) -> NDArray[np.float64]:
    import zarr

    return np.asarray(zarr.open_array(rows, mode="r")[:CHUNK])


def timed(model: LowRankKernelRegressor, rows: str, y: NDArray) -> float:
    start = time.perf_counter()
    model.fit(rows, y)
    return time.perf_counter() - start


def in_own_process(folder: str, workers: int, options: argparse.Namespace) -> dict[str, Any]:
    command = [
        sys.executable, "-m", "benchmarks.regression.slkl_stream", "--fit", folder,
        "--workers", str(workers), "--columns", str(options.columns),
        "--limit", options.limit, "--threads", str(options.threads), "--dtype", options.dtype,
        "--seed", str(options.seed),
    ]  # fmt: skip
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def compare(options: argparse.Namespace) -> list[dict[str, Any]]:
    print(circumstances(options.threads))
    names = {0: f"{options.threads} threads", options.workers or 2: f"{options.workers or 2} workers of 1 thread"}
    rows: dict[int, list[dict[str, Any]]] = {workers: [] for workers in names}
    with tempfile.TemporaryDirectory(dir=options.dir) as folder:
        X, y = make_rows(options.n, Path(folder) / "X.zarr", options.seed)
        np.save(f"{folder}/y.npy", y)
        points = X[np.random.default_rng(options.seed).choice(len(X), options.columns, replace=False)]
        A, Z = bare_factors(X, points, GAMMA, options.dtype)
        del X
        size = block_rows(options.columns, FEATURES, options.dtype)
        bare_work(A[: 4 * size], Z, size, options.threads)
        for _ in range(options.repeats):
            for workers, found in rows.items():
                bare = bare_work(A, Z, size, workers or options.threads)
                if options.cold:
                    drop_cached(Path(folder))
                row = in_own_process(folder, workers, options)
                found.append(row | {"bare": bare.seconds, "ratio": row["stages"]["pass"] / bare.seconds})
                print(f"{names[workers]}: {json.dumps(found[-1])}", flush=True)
    print("\n" + tell(options, names, rows))
    return [row | {"name": names[workers]} for workers, found in rows.items() for row in found]


def tell(options: argparse.Namespace, names: dict[int, str], rows: dict[int, list[dict[str, Any]]]) -> str:
    limit = parse_bytes(options.limit) or 0
    peaks = [
        f"{format_bytes(peak)}, {peak / limit:.0%}"
        for peak in (max(row["peak"] for row in found) for found in rows.values())
    ]
    lines = [
        ["the pass, s", *(spread([row["stages"]["pass"] for row in found]) for found in rows.values())],
        ["bare work on resident rows, s", *(spread([row["bare"] for row in found]) for found in rows.values())],
        ["ratio", *(spread([row["ratio"] for row in found]) for found in rows.values())],
        ["candidates, s", *(spread([row["stages"]["columns"] for row in found]) for found in rows.values())],
        ["solve, s", *(spread([row["stages"]["solve"] for row in found]) for found in rows.values())],
        ["fit, s", *(spread([row["seconds"] for row in found]) for found in rows.values())],
        ["peak of a process, of the limit", *peaks],
        ["planned", *(format_bytes(found[0]["planned"]) for found in rows.values())],
        ["relative gap", *(f"{found[0]['gap']:.1e}" for found in rows.values())],
        ["m0", *(found[0]["n_active"] for found in rows.values())],
    ]
    title = f"n = {options.n:,}, M = {options.columns}, {options.dtype}, limit {options.limit}"
    return table([title, *names.values()], lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=lambda text: int(float(text)), default=2_000_000)
    parser.add_argument("--columns", type=int, default=500)
    parser.add_argument("--dtype", choices=["float32", "float64"], default="float64")
    parser.add_argument("--limit", default="2 GB")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--cold", action="store_true")
    parser.add_argument("--dir", help="where the temporary folder goes")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json")
    parser.add_argument("--fit", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.fit:
        print(json.dumps(fit(options), default=float))
        return
    rows = compare(options)
    if options.json:
        Path(options.json).write_text(json.dumps(rows, indent=1, default=float))


if __name__ == "__main__":
    main()
