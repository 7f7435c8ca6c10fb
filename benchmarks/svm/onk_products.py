"""ONK: what a product with the kernel matrix costs, against the bare work that it cannot do without.

    python -m benchmarks.svm.onk_products memory [--n 20000]      # the upper triangle in memory, against reading it
    python -m benchmarks.svm.onk_products recomputed [--n 50000]  # columns at a support made anew, against GEMM + exp
    python -m benchmarks.svm.onk_products disk --folder F         # tiles on disk, against reading the same files

MNIST's first n digits. One BLAS thread (OMP_NUM_THREADS=1) for every process; `--threads` of this one do the work, in the
bare ones too. `disk` reads files that the system's cache holds, and again after it was asked to forget them.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.regression.slkl import bare_factors, circumstances, spread, table
from dkl.blocks.kernels.kernel_operator import MemoryKernel, RecomputedKernel
from dkl.blocks.kernels.stored_kernel import StoredKernel
from dkl.blocks.rows.row_sources import row_source
from dkl.blocks.session import Session
from dkl.datasets import load
from dkl.linalg.kernels.kernel_columns import Kernel
from dkl.resources import format_bytes

KERNEL = Kernel("rbf", 0.02)
BARE_ROWS = 500


def digits(n: int) -> NDArray[np.float32]:
    return (load("mnist").X[:n] / np.float32(255)).astype(np.float32)


def seconds(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def on_threads(work: Callable[[Any], Any], items: list[Any], threads: int) -> None:
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(work, items))


def compared(ours: Callable[[], Any], bare: Callable[[], Any], repeats: int) -> tuple[list[float], list[float], str]:
    """Seconds of both, alternately, after one of each; and the ratios."""
    ours(), bare()
    pairs = [(seconds(ours), seconds(bare)) for _ in range(repeats)]
    return [a for a, _ in pairs], [b for _, b in pairs], spread([a / b for a, b in pairs])


def memory(options: argparse.Namespace) -> None:
    """Bare: the sum of all stored numbers."""
    X, rows = digits(options.n), []
    for dtype in ("float64", "float32"):
        held = MemoryKernel.of(KERNEL, row_source(X), dtype, options.threads)
        v = np.random.default_rng(0).standard_normal(options.n)
        tiles = held.packed.tiles
        parts = np.array_split(tiles, options.threads)

        def product(held: MemoryKernel = held, v: NDArray[np.float64] = v) -> Any:
            return held.times(v)

        def bare(parts: list[NDArray] = parts) -> None:
            on_threads(np.sum, parts, options.threads)

        mine, theirs, ratio = compared(product, bare, options.repeats)
        rate = tiles.nbytes / np.median(mine) / 1e9
        rows.append([f"{options.n:,}", dtype, format_bytes(tiles.nbytes), spread(mine, 4), f"{rate:.1f}",
                     spread(theirs, 4), ratio])  # fmt: skip
    print(table(["n", "kernel", "bytes", "product, s", "GB/s", "reading it, s", "ratio"], rows))


def recomputed(options: argparse.Namespace) -> None:
    """Bare: GEMM and exp for the columns at the support, and their product with the coefficients, block by block."""
    X, rows = digits(options.n), []
    rng = np.random.default_rng(0)
    support = np.sort(rng.choice(options.n, options.support, replace=False))
    v = np.zeros(options.n)
    v[support] = rng.standard_normal(options.support)
    for dtype in ("float64", "float32"):
        operator = RecomputedKernel(KERNEL, X, Session(None, threads=options.threads), None, dtype)
        A, Z = bare_factors(X, X[support], 0.02, dtype)
        weights = v[support].astype(dtype)

        def block(lo: int, A: NDArray = A, Z: NDArray = Z, weights: NDArray = weights) -> Any:
            C = A[lo : lo + BARE_ROWS] @ Z
            np.exp(C, out=C)
            return C @ weights

        def bare(block: Callable[[int], Any] = block) -> None:
            on_threads(block, list(range(0, options.n, BARE_ROWS)), options.threads)

        def product(operator: RecomputedKernel = operator) -> Any:
            return operator.times(v)

        mine, theirs, ratio = compared(product, bare, options.repeats)
        flops = 2 * options.n * options.support * X.shape[1] / np.median(mine) / 1e9
        rows.append(
            [f"{options.n:,}", f"{options.support:,}", dtype, spread(mine), f"{flops:.0f}", spread(theirs), ratio]
        )
        del A
    print(table(["n", "support", "columns", "product, s", "Gflop/s", "bare, s", "ratio"], rows))


def disk(options: argparse.Namespace) -> None:
    """Bare: reading the same files."""
    X, rows = digits(options.n), []
    session = Session(None, threads=options.threads)
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        path = Path(folder) / "kernel.zarr"
        anew = RecomputedKernel(KERNEL, X, session)
        start = time.perf_counter()
        stored = StoredKernel.of(anew, path, "float32")
        made = time.perf_counter() - start
        files = [file for file in path.rglob("*") if file.is_file() and file.stat().st_size > 10**6]
        size = sum(file.stat().st_size for file in files)
        v = np.random.default_rng(0).standard_normal(options.n)
        for name in ("held by the cache", "forgotten by the cache"):

            def prepare(name: str = name) -> None:
                if name.startswith("forgotten"):
                    forget(files)

            mine, theirs = [], []
            for repeat in range(options.repeats + 1):
                prepare()
                ours = seconds(lambda: stored.times(v))
                prepare()
                bare = seconds(lambda: on_threads(read, files, options.threads))
                if repeat:  # the first compiles
                    mine.append(ours)
                    theirs.append(bare)
            ratio = spread([a / b for a, b in zip(mine, theirs, strict=True)])
            rates = [f"{size / np.median(taken) / 1e9:.2f}" for taken in (mine, theirs)]
            rows.append(
                [f"{options.n:,}", format_bytes(size), name, spread(mine), rates[0], spread(theirs), rates[1], ratio]
            )
    print(f"made and written in {made:.1f} s: {size / made / 1e9:.2f} GB/s\n")
    print(table(["n", "bytes", "files", "product, s", "GB/s", "reading, s", "GB/s", "ratio"], rows))


def read(file: Path) -> None:
    """Into this thread's own room: fresh memory costs more than filling it."""
    if not hasattr(_rooms, "room"):
        _rooms.room = bytearray(file.stat().st_size + 4096)
    with open(file, "rb", buffering=0) as opened:
        while opened.readinto(_rooms.room):
            pass


_rooms = threading.local()


def forget(files: list[Path]) -> None:
    """Ask the system to drop the files' pages."""
    for file in files:
        number = os.open(file, os.O_RDONLY)
        os.fsync(number)
        os.posix_fadvise(number, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(number)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["memory", "recomputed", "disk"])
    parser.add_argument("--n", type=int, default=20_000)
    parser.add_argument("--support", type=int, default=6000)
    parser.add_argument("--folder", help="where the kernel is kept for the while; needs some 2 n^2 bytes")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    print(circumstances(options.threads), "\n", sep="")
    {"memory": memory, "recomputed": recomputed, "disk": disk}[options.what](options)


if __name__ == "__main__":
    main()
