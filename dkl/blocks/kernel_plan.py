"""Whether a kernel matrix is held or made anew in each product: bytes from shapes alone."""

from __future__ import annotations

from typing import Any

import numpy as np

from dkl.blocks.plan import PROCESS_BASE, Plan
from dkl.linalg.packed_symmetric import PARTS, packed_bytes

VECTORS = 24
"""Vectors of n numbers that a solver holds at a time."""


def plan_kernel(
    n: int,
    n_features: int,
    dtype: Any,
    *,
    processes: int,
    threads: int,
    limit: int | None,
    driver_limit: int | None,
    rows_in_place: bool,
    largest_machine: int | None = None,
    n_kernels: int = 1,
) -> Plan:
    """The kernel in this process' memory where that fits `driver_limit`, else made anew by the processes within `limit`.

    largest_machine: rows of the largest pair of classes, whose part of the kernel is copied out.
    """
    size = np.dtype(dtype).itemsize
    vectors = (VECTORS + PARTS) * 8 * n
    copied = 0 if largest_machine is None else packed_bytes(largest_machine, dtype)
    held = {
        "kernel matrix" if n_kernels == 1 else "kernel matrices": n_kernels * (packed_bytes(n, dtype) + copied),
        "vectors": vectors,
        "face": 8 * (2 * 1500**2 + 220 * n),
        "rows": 0 if rows_in_place else 8 * n * n_features,
    }
    anew = {
        "vectors": vectors,
        "face": 8 * (2 * 1500**2 + 220 * n),
        "support rows": (1 + n_kernels) * 8 * n * n_features,
        "columns of a block": threads * (16_000_000 + 1024 * n * size // 4),
        "rows": 0 if rows_in_place else 8 * n * n_features // processes,
    }

    def plan(placement: str, items: dict[str, int], bound: int | None) -> Plan:
        return Plan(
            placement=placement,
            processes=1 if placement == "memory" else processes,
            threads=threads,
            base=PROCESS_BASE,
            items={name: count for name, count in items.items() if count},
            disk={},
            limit=bound,
            shape={"n": n, "dtype": np.dtype(dtype).name},
            mend="raise memory_limit, or use dtype='float32'",
        )

    in_memory = plan("memory", held, driver_limit)
    return in_memory if in_memory.fits else plan("recomputed", anew, limit)
