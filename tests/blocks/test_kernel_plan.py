"""Where a kernel matrix stands, from shapes alone: against what holding it and multiplying by it allocate."""

import tracemalloc

import numpy as np
import pytest

from dkl.blocks.kernel_operator import MemoryKernel, RecomputedKernel
from dkl.blocks.kernel_plan import plan_kernel
from dkl.blocks.plan import PROCESS_BASE
from dkl.blocks.row_sources import row_source
from dkl.blocks.session import Session
from dkl.errors import MemoryBudgetError
from dkl.linalg.kernel_columns import Kernel

N, D = 2000, 20
PLACE = {"processes": 1, "threads": 1, "limit": None, "driver_limit": None, "rows_in_place": True}


def plan(n=N, dtype="float64", **place):
    return plan_kernel(n, D, dtype, **{**PLACE, **place})


def measured(work):
    tracemalloc.start()
    try:
        kept = work()
        return tracemalloc.get_traced_memory()[1], kept
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_matrix_in_memory(dtype, threads, rng):
    X = rng.standard_normal((N, D))

    def work():
        kernel = MemoryKernel.of(Kernel("rbf", 0.1), row_source(X), dtype, threads)
        kernel.times(rng.standard_normal(N))
        return kernel

    work()  # what is compiled does not count
    peak, _ = measured(work)
    promised = plan(dtype=dtype, threads=threads)
    assert promised.placement == "memory"
    assert promised.items["kernel matrix"] <= peak <= sum(promised.items.values())


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_matrix_made_anew(dtype, threads, rng):
    X = rng.standard_normal((N, D))

    def work():
        kernel = RecomputedKernel(Kernel("rbf", 0.1), X, Session(None, threads=threads), dtype=dtype)
        kernel.times(rng.standard_normal(N))
        return kernel

    work()
    peak, _ = measured(work)
    promised = plan(dtype=dtype, threads=threads, driver_limit=1)
    assert promised.placement == "recomputed"
    assert peak <= sum(promised.items.values())


def test_the_limit_decides():
    held = plan()
    assert plan(driver_limit=held.process_bytes).placement == "memory"
    assert plan(driver_limit=held.process_bytes - 1).placement == "recomputed"
    assert plan(n=50_000, driver_limit=3 * 10**9, limit=3 * 10**9).validate().placement == "recomputed"
    with pytest.raises(MemoryBudgetError, match="memory_limit"):
        plan(limit=PROCESS_BASE, driver_limit=PROCESS_BASE).validate()


def test_what_counts():
    whole, half = plan(n=20_000).items["kernel matrix"], plan(n=20_000, dtype="float32").items["kernel matrix"]
    assert whole == 2 * half and 20_000**2 * 4 < whole < 1.05 * 20_000**2 * 4
    assert plan(largest_machine=N // 2).items["kernel matrix"] > plan().items["kernel matrix"]
    read = plan(rows_in_place=False)
    assert read.items["rows"] == 8 * N * D and "rows" not in plan().items
    shared = plan(rows_in_place=False, driver_limit=1, processes=4)
    assert shared.items["rows"] == 2 * N * D and shared.processes == 4
    assert np.diff([plan(n=n).process_bytes for n in (1000, 2000, 4000)]).min() > 0
