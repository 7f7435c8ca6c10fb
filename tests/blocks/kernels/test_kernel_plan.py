"""Where a kernel matrix stands, from shapes alone: against what holding it and multiplying by it allocate."""

import tracemalloc

import numpy as np
import pytest

from dkl.blocks.kernels.kernel_operator import MemoryKernel, RecomputedKernel
from dkl.blocks.kernels.stored_kernel import KernelShape, plan_kernel
from dkl.blocks.memory_plan import PROCESS_BASE
from dkl.blocks.rows.row_sources import row_source
from dkl.blocks.session import Session
from dkl.errors import MemoryBudgetError
from dkl.linalg.kernels.kernel_columns import Kernel

N, D = 2000, 20
PLACE = {"processes": 1, "threads": 1, "limit": None, "driver_limit": None}


def plan(n=N, dtype="float64", place=(), **shape):
    return plan_kernel(KernelShape(n, D, dtype, **shape), **{**PLACE, **dict(place)})


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
    promised = plan(dtype=dtype, place={"threads": threads})
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
    promised = plan(dtype=dtype, place={"threads": threads, "driver_limit": 1})
    assert promised.placement == "recomputed"
    assert peak <= sum(promised.items.values())


def test_the_limit_decides():
    held = plan()
    assert plan(place={"driver_limit": held.process_bytes}).placement == "memory"
    assert plan(place={"driver_limit": held.process_bytes - 1}).placement == "recomputed"
    assert plan(n=50_000, place={"driver_limit": 3 * 10**9, "limit": 3 * 10**9}).validate().placement == "recomputed"
    with pytest.raises(MemoryBudgetError, match="memory_limit"):
        plan(place={"limit": PROCESS_BASE, "driver_limit": PROCESS_BASE}).validate()


def test_what_counts():
    whole, half = plan(n=20_000).items["kernel matrix"], plan(n=20_000, dtype="float32").items["kernel matrix"]
    assert whole == 2 * half and 20_000**2 * 4 < whole < 1.05 * 20_000**2 * 4
    assert plan(largest_machine=N // 2).items["kernel matrix"] > plan().items["kernel matrix"]
    read = plan(rows_in_place=False)
    assert read.items["rows"] == 8 * N * D and "rows" not in plan().items
    shared = plan(rows_in_place=False, place={"driver_limit": 1, "processes": 4})
    assert shared.items["rows"] == 2 * N * D and shared.processes == 4
    assert np.diff([plan(n=n).process_bytes for n in (1000, 2000, 4000)]).min() > 0


def test_what_is_left_is_room_for_a_working_set():
    whole = plan(n=20_000, is_whole=False)
    assert whole.placement == "recomputed"  # though it would fit
    assert whole.shape["working_set_bytes"] == plan(n=20_000).items["kernel matrix"]
    limit = 10**9
    tight = plan(n=20_000, is_whole=False, place={"limit": limit, "driver_limit": limit})
    assert tight.process_bytes == limit and 0 < tight.shape["working_set_bytes"] < 10**9
    none = plan(n=20_000, is_whole=False, place={"driver_limit": 1})
    assert none.shape["working_set_bytes"] == 0
    apart = plan(n=20_000, is_whole=False, place={"limit": limit, "driver_limit": limit, "processes": 2})
    assert "kernel of the working set" not in apart.items  # it is not the workers that hold it
    assert apart.shape["working_set_bytes"] > tight.shape["working_set_bytes"]


def test_a_disk_is_taken_where_it_is_allowed_and_worth_it():
    small = {"driver_limit": 4 * 10**9, "limit": 4 * 10**9}
    stored = plan(n=50_000, place={**small, "may_use_disk": True})
    assert stored.placement == "disk"
    half = 50_000**2 * 4
    assert half < stored.disk["kernel matrix"] < 1.05 * half
    assert stored.disk_bytes == 2 * stored.disk["kernel matrix"]  # a working set that finds no room stands there too
    single = plan(n=50_000, is_whole=False, place={**small, "may_use_disk": True})
    assert single.disk == {"kernel of the working set": stored.disk["kernel matrix"]}
    assert not plan(n=10_000, is_whole=False, place={**small, "may_use_disk": True}).disk
    assert plan(n=50_000, place=small).placement == "recomputed"
    assert plan(n=50_000, is_whole=False, place={**small, "may_use_disk": True}).placement == "recomputed"
