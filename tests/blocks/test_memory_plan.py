"""The memory plan: against what a run measures, how it grows, and what its refusal says. Run by itself, this file is such a run."""

import json
import subprocess
import sys
import tempfile
import tracemalloc
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

from dkl.blocks.memory_plan import PROCESS_BASE, plan_pairwise
from dkl.blocks.session import Session
from dkl.errors import MemoryBudgetError
from dkl.estimators.pairwise.fit import fit_problem
from dkl.estimators.pairwise.plan import make_plan
from dkl.estimators.pairwise.settings import PairwiseSettings
from dkl.problems.pairwise.problem import PairwiseKernel
from dkl.problems.pairwise.terms import target_matrix
from dkl.stores.run import RunStore

SHAPE = {"laplacian_entries": 80_000, "target_entries": 20_000}
KINDS = {
    "memory": {},
    "memory, two threads": {"threads": 2},
    "memory, single": {"dtype": "float32"},
    "memory, a store": {"store": True},
    "disk": {"store": True, "disk": True},
    "disk, single": {"dtype": "float32", "store": True, "disk": True},
    "disk, two threads": {"store": True, "disk": True, "threads": 2},
}


def plan(n=10_000, rank=256, dtype="float64", **changes):
    return plan_pairwise(n, rank, dtype, **SHAPE | changes)


# -- against a run ----------------------------------------------------------------------------------------------------


def random_problem(n):
    """A ring with chords, every pattern in one pair."""
    rng = np.random.default_rng(0)
    rows, columns = np.tile(np.arange(n), 4), np.concatenate([np.roll(np.arange(n), 1), rng.permutation(3 * n) % n])
    weights = sparse.csr_array((np.ones(4 * n), (rows, columns)), shape=(n, n))
    weights = sparse.csr_array(weights + weights.T)
    laplacian = sparse.csr_array(sparse.diags_array(weights.sum(axis=1)) - weights)
    pairs = rng.permutation(n).reshape(-1, 2)
    return PairwiseKernel(laplacian, target_matrix(n, pairs[: n // 4], pairs[n // 4 :]), 100.0)


def measure(n, rank, folder, *, threads=1, dtype="float64", store=False, disk=False):
    """(bytes of arrays at the peak of a fit, the bytes planned, where the state was)."""
    session = Session(threads=threads)
    settings = PairwiseSettings(rank=rank, max_iter=3, tol=0.0, target_gap=None, dtype=dtype)
    run = RunStore.create(folder, {}) if store else None
    tracemalloc.start()
    try:
        problem = random_problem(n)
        tracemalloc.reset_peak()  # making the problem is not the run's
        if disk:
            limit = make_plan(problem, settings, session, has_store=True).process_bytes - 1
            settings = replace(settings, memory_limit=limit)
        chosen = make_plan(problem, settings, session, has_store=store)
        fit_problem(problem, settings, session, run=run)
        return tracemalloc.get_traced_memory()[1], chosen.process_bytes - chosen.base, chosen.placement
    finally:
        tracemalloc.stop()
        if run is not None:
            run.close()


def main():
    warnings.simplefilter("ignore")  # three iterations do not converge
    with tempfile.TemporaryDirectory() as folder:
        figures = {}
        for position, kind in enumerate(sys.argv[1:]):
            choices = KINDS[kind]
            measure(60, 40, Path(folder, f"warm-{position}"), **choices | {"disk": False})  # compiles
            figures[kind] = measure(5000, 256, Path(folder, f"run-{position}"), **choices)
    print(json.dumps(figures))


@pytest.fixture(scope="module")
def figures():
    """By kind, of a process of its own, in which nothing else allocates."""
    answer = subprocess.run([sys.executable, __file__, *KINDS], capture_output=True, text=True, check=True)
    return json.loads(answer.stdout.splitlines()[-1])


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", KINDS)
def test_a_run_stays_within_its_plan_and_the_plan_near_the_run(figures, kind):
    measured, planned, placement = figures[kind]
    assert placement == ("disk" if "disk" in kind else "memory")
    assert measured <= planned
    assert planned <= 3 * measured


@pytest.mark.exhaustive
def test_the_state_on_disk_is_not_in_memory(figures):
    assert figures["disk"][0] < 0.5 * figures["memory"][0]


# -- how it grows -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("on_disk", [False, True])
@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("n", [1, 100, 1000, 10_000, 10**6, 10**8]),
        ("rank", [1, 4, 5, 16, 17, 100, 256, 1000]),
        ("threads", [1, 2, 4, 8]),
        ("ahead", [0, 1, 2, 4]),
        ("laplacian_entries", [0, 10**4, 10**6, 10**9]),
        ("target_entries", [0, 10**4, 10**6, 10**9]),
        ("dot_products", [0, 10**4, 10**6]),
        ("gathered_rows", [0, 10, 1000]),
    ],
)
def test_more_of_anything_takes_no_less(name, values, on_disk):
    for driver_shares in (False, True):
        plans = [plan(on_disk=on_disk, driver_shares=driver_shares, **{name: value}) for value in values]
        for sizes in ([p.process_bytes for p in plans], [p.disk_bytes for p in plans]):
            assert sizes == sorted(sizes)
        if name not in ("threads", "ahead") or on_disk:
            assert plans[-1].process_bytes > plans[0].process_bytes


@pytest.mark.parametrize("n", [1000, 100_000])
@pytest.mark.parametrize("rank", [256, 820])
def test_on_disk_it_is_less_in_memory_and_more_on_disk(n, rank):
    memory, disk = plan(n=n, rank=rank), plan(n=n, rank=rank, on_disk=True)
    factors = 3 * n * rank * 8
    assert memory.items["factors (3) and linear term"] >= factors > disk.items["factors (3) and linear term"]
    if n == 100_000:
        assert disk.process_bytes < memory.process_bytes
    assert memory.disk_bytes == 0 and disk.disk_bytes >= factors


def test_single_precision_halves_what_is_of_that_precision():
    double, single = plan(), plan(dtype="float32")
    name = "factors (3) and linear term"
    assert single.items[name] == double.items[name] / 2


def test_more_processes_hold_less_each_and_no_more_than_there_are_groups():
    sizes = [plan(n=10**6, processes=processes).items["factors (3) and linear term"] for processes in (1, 2, 4, 8)]
    assert all(b <= 0.6 * a for a, b in zip(sizes, sizes[1:], strict=False))
    assert plan(rank=16, processes=8).processes == 1  # one slab cannot be shared
    assert plan(rank=256, processes=500).processes == 16
    alone, shared = plan(), plan(processes=2)
    assert alone.exchanged_per_iteration == alone.tasks_per_iteration == 0
    assert shared.exchanged_per_iteration > 0 and shared.tasks_per_iteration > 0


def test_checkpoints_take_disk_for_three():
    assert plan(checkpoints=True).disk_bytes >= 3 * 3 * 10_000 * 256 * 8
    assert plan(checkpoints=True, on_disk=True).disk_bytes > plan(on_disk=True).disk_bytes


# -- refusal ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("on_disk", "remedy"), [(False, "raise memory_limit, or give work_dir"), (True, "raise memory_limit, lower rank")]
)
def test_a_refusal_names_what_was_got_and_wanted_and_mends_it(on_disk, remedy):
    free = plan(n=10**6, on_disk=on_disk)
    wanted = free.process_bytes
    exact = plan(n=10**6, on_disk=on_disk, memory_limit=wanted)
    assert free.fits and exact.fits and exact.validate() is exact
    refused = plan(n=10**6, on_disk=on_disk, memory_limit=wanted - 1)
    assert not refused.fits
    with pytest.raises(MemoryBudgetError) as caught:
        refused.validate()
    error, text = caught.value, str(caught.value)
    assert error.where == "memory plan" and error.got.startswith("memory_limit ") and error.remedy.startswith(remedy)
    assert error.wanted.startswith("at least ")
    worst = max(refused.items, key=refused.items.get)
    assert f"the plan does not fit: {worst} takes " in text and "\n" not in text
    for part in (error.got, error.wanted, error.remedy):
        assert part in text
    assert error.exit_status == 5


def test_what_is_refused_says_a_limit_that_is_enough():
    """Who follows the advice is not refused again."""
    for n in (1000, 54_321, 10**6):
        with pytest.raises(MemoryBudgetError) as caught:
            plan(n=n, memory_limit=1000).validate()
        number, unit = caught.value.wanted.removeprefix("at least ").split()
        enough = float(number) * {"MB": 1e6, "GB": 1e9}[unit]
        # Three digits are told: half a unit in the last may be missing.
        assert plan(n=n, memory_limit=int(1.005 * enough) + 1).validate().fits


@pytest.mark.parametrize("on_disk", [False, True])
def test_the_table_and_the_report_tell_every_item(on_disk):
    made = plan(on_disk=on_disk, checkpoints=True, driver_shares=True, processes=2, memory_limit=10**10)
    table, report = made.describe(), made.as_dict()
    for name in [*made.items, *made.disk]:
        assert name in table
    assert "exchanged an iteration" in table and "limit 10 GB" in table
    assert json.loads(json.dumps(report)) == report
    assert report["process_bytes"] == PROCESS_BASE + sum(made.items.values()) == made.process_bytes
    assert report["n"] == 10_000 and report["rank"] == 256 and report["slabs"] * report["width"] == 256


if __name__ == "__main__":
    main()
