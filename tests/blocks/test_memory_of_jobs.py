"""Workers of several jobs on one node: each has a bound of its own, and all share the machine."""

from typing import Any

import pytest

from dkl.blocks.workers.worker_checks import WorkerAnswer, _check_memory
from dkl.errors import MemoryBudgetError

GB = 10**9
MEMBERS: dict[str, dict[str, Any]] = {"a": {"memory_limit": 4 * GB}, "b": {"memory_limit": 4 * GB}}


def seen(memory: int, **shared: int) -> WorkerAnswer:
    return WorkerAnswer("node", None, "/tmp", GB, memory, shared)


def test_bounds_of_two_jobs_are_not_added_up() -> None:
    """RLIMIT_RSS is of each process, and each job has a control group."""
    _check_memory(MEMBERS, {"a": seen(4 * GB, machine=16 * GB), "b": seen(4 * GB, machine=16 * GB)})
    _check_memory(
        MEMBERS, {"a": seen(4 * GB, machine=16 * GB, job1=4 * GB), "b": seen(4 * GB, machine=16 * GB, job2=4 * GB)}
    )


@pytest.mark.parametrize(
    "shared, most, memory",
    [
        ({"machine": 6 * GB}, "6 GB", 6),
        ({"machine": 16 * GB, "job": 5 * GB}, "5 GB", 5),
        ({"machine": 16 * GB}, "3 GB", 3),
    ],
)
def test_what_is_shared_or_too_small_for_one_is_refused(shared: dict[str, int], most: str, memory: int) -> None:
    both = seen(memory * GB, **shared)
    with pytest.raises(MemoryBudgetError, match=f"at most {most}"):
        _check_memory(MEMBERS, {"a": both, "b": both})
