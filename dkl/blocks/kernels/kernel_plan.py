"""Plans of a kernel matrix: held, kept on disk or recomputed when needed; bytes from shapes alone."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from dkl.blocks.memory_plan import PROCESS_BASE, Plan, fewer, what_helps
from dkl.linalg.kernels.kernel_columns import POINTS_AT_A_TIME
from dkl.linalg.kernels.packed_symmetric import PARTS, packed_bytes
from dkl.stores.kernels import STORED_TILE, stored_bytes

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

VECTORS = 24
"""Vectors of n numbers that a solver holds at a time."""


COMMON = ("X, read from its file", "machines", "vectors", "face")
"""Items of the process that solves, wherever K is."""


@dataclass(frozen=True)
class KernelShape:
    """Shape and use of the kernel matrices of a plan: n_kernels of n rows, in `dtype`.

    largest_machine: rows of the largest pair of classes, where its part of the kernel is copied out. is_whole: whether
    many products with all of K are to come, so that holding it pays; else parts of it, at the support, will do.
    rows_in_place: the rows are in this process' memory already, outside the plan. own_bytes: of X in this process,
    where it was read for this fit. machines: bytes of all machines' states, which are held wherever K is.
    is_precomputed: the rows are K's own.
    """

    n: int
    n_features: int
    dtype: DTypeLike
    n_kernels: int = 1
    largest_machine: int | None = None
    is_whole: bool = True
    rows_in_place: bool = True
    own_bytes: int = 0
    machines: int = 0
    is_precomputed: bool = False

    def held(self) -> dict[str, int]:
        """Return bytes by name with K in memory: packed tiles, and a copy of the largest machine's part."""
        copied = 0 if self.largest_machine is None else packed_bytes(self.largest_machine, self.dtype)
        one, width = self.n_kernels == 1, self.n_features + 2
        # Prepared for products, a part of them in double precision next to its multiple.
        points = width * (np.dtype(self.dtype).itemsize * self.n + 2 * 8 * min(self.n, POINTS_AT_A_TIME))
        if np.dtype(self.dtype) != np.float64 and not self.is_precomputed:
            # Then again in double, which gaps are computed by: for each kernel a machine's rows, its points, and these prepared.
            copies = 2 * self.n_kernels + 1 + (0 if self.largest_machine is None else self.n_kernels)
            points = max(points, copies * 8 * width * (self.largest_machine or self.n))
        return {
            "kernel matrix" if one else "kernel matrices": self.n_kernels * (packed_bytes(self.n, self.dtype) + copied),
            "rows": 0 if self.rows_in_place else 8 * self.n * self.n_features,
            "points of the kernel": points,
        }

    def recomputed(self, processes: int, threads: int) -> dict[str, int]:
        """Return bytes by name in each process that recomputes K: rows with a coefficient, a block's columns."""
        size = np.dtype(self.dtype).itemsize
        return {
            "support rows": (1 + self.n_kernels) * 8 * self.n * self.n_features,
            # COLUMNS_BYTES of a product's columns, and ROWS_AT_A_TIME rows of them (blocks/kernels/kernel_operator.py).
            "columns of a block": threads * (16_000_000 + 1024 * self.n * size // 4),
            "rows": 0 if self.rows_in_place else 8 * self.n * self.n_features // processes,
        }

    def on_disk(self, processes: int, threads: int) -> dict[str, int]:
        """Return bytes by name in each process with K on disk: those to compute it, and tiles being read."""
        size = np.dtype(self.dtype).itemsize
        return {
            **self.recomputed(processes, threads),
            "a row of tiles": 3 * STORED_TILE * self.n * size,
            "tiles read": threads * 3 * STORED_TILE**2 * size,
            # SHARES partial products of n doubles (blocks/kernels/stored_kernel.py).
            "sums of products": 32 * 8 * self.n,
        }


def plan_kernel(
    shape: KernelShape,
    *,
    processes: int,
    threads: int,
    limit: int | None,
    driver_limit: int | None,
    may_use_disk: bool = False,
    may_be_single: bool = True,
) -> Plan:
    """Plan an SVM's kernel: held, on disk or recomputed.

    K is whole in this process' memory, where many products will use it and it fits `driver_limit`; else on disk, if
    `may_use_disk`; else recomputed by the processes within `limit`.
    What is left of `driver_limit` is the memory for K of a working set ("working_set_bytes" of the plan's shape). Without a
    client this process is the one that works, and all is counted in it. `Plan.validate` raises where nothing fits, and
    advises what helps. may_be_single: whether single precision is to be had.
    """

    def placed(threads: int, shape: KernelShape = shape) -> Plan:
        return _placed(shape, processes, threads, limit, driver_limit, may_use_disk)

    found = placed(threads)
    if found.fits:
        return found
    single = replace(shape, dtype="float32")
    ways = fewer("use {} thread(s)", lambda count: placed(count).fits, threads) if processes == 1 else []
    if may_be_single and np.dtype(shape.dtype).itemsize == 8:
        ways.append(("use dtype='float32'", lambda: placed(threads, single).fits))
    return replace(found, remedy=what_helps(ways))


def _placed(
    shape: KernelShape, processes: int, threads: int, limit: int | None, driver_limit: int | None, may_use_disk: bool
) -> Plan:
    """Return the plan of `plan_kernel` for these limits, without its remedies."""
    n = shape.n
    common = {
        "X, read from its file": shape.own_bytes,
        "machines": shape.machines,
        "vectors": (VECTORS + PARTS) * 8 * n,
        # Two matrices of DENSE rows, and (n, SKETCH) with some vectors (the Newton steps of solvers/svm/interior.py).
        "face": 8 * (2 * 1500**2 + 220 * n),
    }

    def plan(placement: str, items: dict[str, int], bound: int | None, **disk: int) -> Plan:
        items = {**common, **items}
        return Plan(
            placement=placement,
            processes=1 if placement == "memory" else processes,
            threads=threads,
            base=PROCESS_BASE,
            items={name: count for name, count in items.items() if count},
            disk={name.replace("_", " "): count for name, count in disk.items()},
            limit=bound,
            shape={"n": n, "dtype": np.dtype(shape.dtype).name, "working_set_bytes": 0},
        )

    # In order of speed: memory, then the disk, which is read once a product, then recomputing.
    in_memory = plan("memory", shape.held(), driver_limit)
    if shape.is_whole and in_memory.fits:
        return in_memory
    stored = plan(
        "disk", shape.on_disk(processes, threads), limit, kernel_matrix=shape.n_kernels * stored_bytes(n, shape.dtype)
    )
    if not (shape.is_whole and may_use_disk and stored.fits):
        stored = plan("recomputed", shape.recomputed(processes, threads), limit)
    return _with_working_set(stored, shape, driver_limit, may_use_disk)


def _with_working_set(plan: Plan, shape: KernelShape, driver_limit: int | None, may_use_disk: bool) -> Plan:
    """Return the plan with the memory that is left in this process for K of a working set.

    This process may be the one that works. A larger working set goes to the disk, if `may_use_disk`.
    """
    # On a cluster the working set is solved by this process, which holds little else; alone, with all that the plan
    # counts.
    processes = plan.processes
    wanted = packed_bytes(shape.n, shape.dtype)
    used = plan.process_bytes if processes == 1 else plan.base + sum(plan.items.get(name, 0) for name in COMMON)
    working_set = wanted if driver_limit is None else min(wanted, max(0, driver_limit - used))
    items = {**plan.items, "kernel of the working set": working_set} if processes == 1 and working_set else plan.items
    on_disk = (
        {"kernel of the working set": stored_bytes(shape.n, shape.dtype)}
        if may_use_disk and working_set < wanted
        else {}
    )
    return replace(plan, items=items, disk=plan.disk | on_disk, shape={**plan.shape, "working_set_bytes": working_set})
