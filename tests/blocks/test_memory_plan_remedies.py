"""What a plan that does not fit advises: each change makes it fit, and what does not help is not named."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dkl.blocks.graph.neighbor_search import plan_graph
from dkl.blocks.kernels.column_plan import RowsHeld, Shape, plan_columns
from dkl.blocks.kernels.stored_kernel import KernelShape, plan_kernel
from dkl.blocks.memory_plan import PROCESS_BASE, Place, Plan
from dkl.blocks.rows.row_sources import row_source
from dkl.blocks.session import Session
from dkl.errors import MemoryBudgetError
from dkl.estimators.pairwise.plan import plan_at
from dkl.estimators.pairwise.settings import PairwiseSettings
from dkl.estimators.regression.columns.candidates import plan_fit
from dkl.estimators.regression.settings import RegressionSettings
from dkl.problems.pairwise.terms import target_matrix

ROWS = np.broadcast_to(np.zeros(()), (100_000, 50))


def columns(
    limit: int, n_columns: int = 1000, threads: int = 16, nu: Any = 1.0, folder: bool = False, holdout: float = 0.1
) -> Any:
    settings = RegressionSettings(memory_limit=limit, n_columns=n_columns, nu=nu, holdout=holdout)
    place = Place(1, threads)
    return plan_fit(row_source(ROWS), n_columns, 1, settings, place, has_folder=folder, refuse=False)


def kernel(limit: int, threads: int = 16, dtype: str = "float64") -> Any:
    shape = KernelShape(40_000, 20, dtype)
    return plan_kernel(shape, processes=1, threads=threads, limit=limit, driver_limit=limit)


def pairwise(limit: int, rank: int = 64, threads: int = 4, dtype: str = "float64", folder: bool = False) -> Any:
    pairs = np.stack([np.arange(0, 19_000, 2), np.arange(1, 19_001, 2)], axis=1)
    settings = PairwiseSettings(memory_limit=limit, dtype=dtype)
    targets = target_matrix(20_000, pairs[::2], pairs[1::2])
    return plan_at(Place(1, threads), rank, 400_000, targets, settings, has_store=folder, refuse=False)


CHANGES: dict[str, str] = {
    r"lower n_columns to (\d+)": "n_columns",
    r"lower rank to (\d+)": "rank",
    r"use (\d+) thread": "threads",
    r"dtype='(float32)'": "dtype",
    r"give (nu) as a number": "nu",
    r"give (holdout)=0": "holdout",
    r"give (work_dir)": "folder",
}


def changes(remedy: str) -> list[dict[str, Any]]:
    found = []
    for pattern, name in CHANGES.items():
        for value in re.findall(pattern, remedy):
            found.append(
                {
                    name: {"nu": 1.0, "work_dir": True, "holdout": 0.0}.get(
                        value, int(value) if value.isdecimal() else value
                    )
                }
            )
    return found


@pytest.mark.parametrize("plan", [columns, kernel, pairwise], ids=lambda plan: plan.__name__)
@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.999])
def test_what_is_advised_helps(plan: Callable[..., Any], share: float) -> None:
    for given in [{}, {"nu": "cv"}] if plan is columns else [{}]:
        limit = int(PROCESS_BASE + share * (plan(2**50, **given).process_bytes - PROCESS_BASE))
        refused = plan(limit, **given)
        if refused.fits:
            continue
        for change in changes(refused.remedy):
            assert plan(limit, **{**given, **change}).fits, (change, refused.remedy)


def test_ten_columns_on_many_threads_ask_for_fewer_threads() -> None:
    limit = PROCESS_BASE + 20_000_000
    remedy = columns(limit, n_columns=10, threads=64, holdout=0.0).remedy
    assert "thread(s)" in remedy and "n_columns" not in remedy


def test_a_limit_below_a_process_itself_leaves_one_way() -> None:
    for plan in (columns, kernel, pairwise):
        assert plan(PROCESS_BASE // 2).remedy == "raise memory_limit"
    shape = Shape(100, 1, 1, "float64", 512)
    held = RowsHeld(1000, 10, 80)
    assert plan_columns(held, shape, Place.of(Session(None, threads=2)), 1000).remedy == "raise memory_limit"


def test_a_graph() -> None:
    with pytest.raises(MemoryBudgetError) as caught:
        plan_graph(100_000, 100, 8, 10, 140_000_000, n_slots=16, n_tasks=16)
    (threads,) = re.findall(r"use (\d+) thread", caught.value.remedy)
    assert plan_graph(100_000, 100, 8, 10, 140_000_000, n_slots=int(threads), n_tasks=16)
    with pytest.raises(MemoryBudgetError, match="raise memory_limit$"):
        plan_graph(100_000, 100, 8, 10, 1000)


WORKERS = Place(2, 1, 2_000_400_000, distributed=True, more_memory="give workers more memory")
SHARE = 1_500_300_000
"""Of such a worker's limit, three quarters: as text it is the same as a limit of 1.5 GB."""


def refused(place: Place, limit: int, memory_limit: int | None) -> MemoryBudgetError:
    plan = Plan("memory", 2, 1, PROCESS_BASE, {"rows": 4_000_000_000}, {}, limit, remedy="raise memory_limit")
    with pytest.raises(MemoryBudgetError) as caught:
        place.checked(plan, memory_limit)
    return caught.value


def test_a_share_of_a_workers_memory_is_told_as_such() -> None:
    assert WORKERS.allowed(None) == SHARE
    for memory_limit in (None, 2_500_000_000):
        error = refused(WORKERS, SHARE, memory_limit)
        assert error.got == "1.5 GB, 75% of a worker's 2 GB"
        assert error.remedy == "give workers more memory"


def test_a_limit_that_reads_like_the_share_is_still_the_one_that_was_given() -> None:
    given = SHARE - 300_000
    for place, limit in ((WORKERS, given), (WORKERS, SHARE + 100_000), (Place(1, 2), given)):
        error = refused(place, limit, given)
        assert (error.got, error.remedy) == ("memory_limit 1.5 GB", "raise memory_limit")
