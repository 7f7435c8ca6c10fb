"""What this process may use: the machine, less what control groups keep back, of both versions and nested."""

from pathlib import Path

import pytest

from dkl import resources
from dkl.resources import cgroup_cpus, cgroup_memory

GB = 10**9


def groups(root: Path, own: str, files: dict[str, str]) -> tuple[Path, Path]:
    """A tree of groups as the system mounts it, and the list of a process' own."""
    (root / "own").write_text(own)
    for name, content in files.items():
        (root / "cgroup" / name).parent.mkdir(parents=True, exist_ok=True)
        (root / "cgroup" / name).write_text(content + "\n")
    return root / "cgroup", root / "own"


SECOND = "0::/slice/job\n"
FIRST = "4:memory:/docker/1a\n1:cpu,cpuacct:/docker/1a\n0::/\n"
MEMORY = {
    "nothing": ("", {}, None),
    "no limit": (SECOND, {"slice/job/memory.max": "max"}, None),
    "its own": (SECOND, {"slice/job/memory.max": f"{3 * GB}"}, 3 * GB),
    "the one around it": (SECOND, {"slice/memory.max": f"{2 * GB}", "slice/job/memory.max": f"{3 * GB}"}, 2 * GB),
    "a container's root": (SECOND, {"memory.max": f"{5 * GB}"}, 5 * GB),
    "first version": (FIRST, {"memory/docker/1a/memory.limit_in_bytes": f"{GB}"}, GB),
    "first version in a container": (FIRST, {"memory/memory.limit_in_bytes": f"{4 * GB}"}, 4 * GB),
    "of another controller": (FIRST, {"cpu,cpuacct/docker/1a/memory.limit_in_bytes": f"{GB}"}, None),
    "no number": (SECOND, {"slice/job/memory.max": "lots"}, None),
}
CPUS = {
    "nothing": ("", {}, None),
    "no limit": (SECOND, {"slice/job/cpu.max": "max 100000"}, None),
    "one and a half": (SECOND, {"slice/job/cpu.max": "150000 100000"}, 2),
    "the one around it": (SECOND, {"slice/cpu.max": "100000 100000", "slice/job/cpu.max": "400000 100000"}, 1),
    "first version": (
        FIRST,
        {"cpu,cpuacct/docker/1a/cpu.cfs_quota_us": "300000", "cpu,cpuacct/docker/1a/cpu.cfs_period_us": "100000"},
        3,
    ),
    "first version without": (FIRST, {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, None),
}


@pytest.mark.parametrize("case", MEMORY)
def test_memory_of_a_control_group(case: str, tmp_path: Path) -> None:
    own, files, wanted = MEMORY[case]
    assert cgroup_memory(*groups(tmp_path, own, files)) == wanted


@pytest.mark.parametrize("case", CPUS)
def test_processors_of_a_control_group(case: str, tmp_path: Path) -> None:
    own, files, wanted = CPUS[case]
    assert cgroup_cpus(*groups(tmp_path, own, files)) == wanted


def test_plans_and_threads_know_the_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources, "cgroup_memory", lambda: GB)
    monkeypatch.setattr(resources, "cgroup_cpus", lambda: 1)
    assert resources.machine_memory() == GB
    assert resources.n_cpus() == 1


def test_never_more_than_dask_finds() -> None:
    from dask.system import cpu_count
    from distributed.system import memory_limit

    assert 1 <= resources.n_cpus() <= cpu_count()
    assert 0 < resources.machine_memory() <= memory_limit()


def test_limits_are_looked_up_every_few_seconds(monkeypatch):
    """Not at every call, as a prediction of one row asks for them; and again, as they may change."""
    clock, files = [100.0], []
    monkeypatch.setattr(resources.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(resources, "_text", lambda path: files.append(path) or "")
    clock[0] += 1e6  # what was read before is old
    for _ in range(3):
        cgroup_memory(), cgroup_cpus()
    count = len(files)
    assert count
    clock[0] += 2 * resources.KEPT_SECONDS
    cgroup_memory(), cgroup_cpus()
    assert len(files) == 2 * count
