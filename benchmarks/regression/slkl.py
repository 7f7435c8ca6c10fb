"""What the SLKL benchmarks share: the bare work of a pass over rows, machine and versions, spread over repeats.

    slkl_mnist.py    fit of ten outputs against the bare work; errors, pixels and histograms of oriented gradients
    slkl_peers.py    the lasso on the same columns to the same gap: scikit-learn, celer, skglm
    slkl_paper.py    Algorithm 2, its slips mended, against dkl on the same columns
    slkl_stream.py   rows streamed from zarr under a memory limit, against the bare work on resident rows

The bare work is numpy's: one GEMM and one exp for the columns, one C'C for the Gram matrix (numpy sees that both factors
are one array, and does half the work), on `threads` threads of a block each with one BLAS thread. No centring, no
targets, no checks; the product's inner dimension has |x|^2 and 1 in it, put there before the clock starts.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from dkl.resources import n_cpus


@dataclass(frozen=True)
class BareWork:
    """Seconds of the whole; and the shares of it that threads spent in columns and in Gram matrices."""

    seconds: float
    columns: float
    gram: float


def bare_factors(
    X: NDArray, points: NDArray, gamma: float, dtype: Any
) -> tuple[NDArray[np.floating], NDArray[np.floating]]:
    """A (n, d + 2) and Z (d + 2, M) with A Z = -gamma |x - z|^2, about the points' mean."""
    mean = points.mean(axis=0, dtype=np.float64)
    A = np.empty((len(X), X.shape[1] + 2), dtype)
    np.subtract(X, mean, out=A[:, :-2], casting="same_kind")
    A[:, -2] = np.einsum("nd,nd->n", A[:, :-2], A[:, :-2])
    A[:, -1] = 1
    Z = np.empty((X.shape[1] + 2, len(points)))
    Z[:-2] = 2 * gamma * (points - mean).T
    Z[-2] = -gamma
    Z[-1] = -gamma * ((points - mean) ** 2).sum(axis=1)
    return A, Z.astype(dtype)


def bare_work(A: NDArray[np.floating], Z: NDArray[np.floating], block_rows: int, threads: int) -> BareWork:
    """Columns of all rows and the sum of their Gram matrices, block by block."""
    starts = list(range(0, len(A), block_rows))

    def work(mine: list[int]) -> tuple[float, float]:
        total = np.zeros((Z.shape[1], Z.shape[1]))
        room = np.empty((block_rows, Z.shape[1]), A.dtype)
        columns = gram = 0.0
        for lo in mine:
            rows = A[lo : lo + block_rows]
            C = room[: len(rows)]
            began = time.perf_counter()
            np.matmul(rows, Z, out=C)
            np.exp(C, out=C)
            made = time.perf_counter()
            total += C.T @ C
            columns, gram = columns + made - began, gram + time.perf_counter() - made
        return columns, gram

    with threadpool_limits(1, "blas"), ThreadPoolExecutor(threads) as pool:
        start = time.perf_counter()
        parts = np.array(list(pool.map(work, [starts[k::threads] for k in range(threads)])))
        seconds = time.perf_counter() - start
    columns, gram = (seconds * parts.sum(axis=0) / parts.sum()).tolist()
    return BareWork(seconds, columns, gram)


def bare_whole(A: NDArray[np.floating], Z: NDArray[np.floating], threads: int) -> BareWork:
    """The same in three lines, as one would type them: numpy's exp runs on one thread, the products on `threads`."""
    with threadpool_limits(threads, "blas"):
        start = time.perf_counter()
        C = A @ Z
        np.exp(C, out=C)
        made = time.perf_counter()
        C.T @ C
        end = time.perf_counter()
    return BareWork(end - start, made - start, end - made)


def spread(values: Sequence[float], digits: int = 2) -> str:
    """Median (least to most)."""
    return f"{np.median(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def circumstances(threads: int, *packages: str) -> str:
    """Two lines for the record: processors, memory, threads; versions."""
    import psutil

    names = ("numpy", "scipy", "scikit-learn", "numba", "dask", "zarr", *packages)
    memory = psutil.virtual_memory().total / 2**30
    return (
        f"{n_cpus()} processors, {memory:.0f} GiB, {platform.system()}, {threads} threads;"
        f" load {psutil.getloadavg()[0]:.1f} before\n"
        f"Python {platform.python_version()}, " + ", ".join(f"{name} {_version(name)}" for name in names)
    )


def _version(name: str) -> str:
    try:
        return version(name)
    except Exception:
        return "missing"


def table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Markdown."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)
