"""Workers of our own: what other accounts of the machine could reach is closed to them."""

import gc
import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from ssl import SSLContext
from typing import Any
from unittest.mock import AsyncMock

import dask
import numpy as np
import psutil
import pytest
from dask_processes import wait_until
from on_workers import imported_from

from dkl.blocks.session import Session
from dkl.errors import ResourceError
from dkl.runs.backends import Cluster
from dkl.runs.own_workers import FORKED, KEPT, _private_folder

STRANGER = Path(__file__).parents[1] / "support" / "processes" / "stranger.py"
PAGES = ["info/main/workers.html", "json/counts.json", "metrics"]


@pytest.fixture(scope="module")
def key_files() -> list[tuple[Path, int]]:
    """Files of keys that this process has loaded, with the mode of their folder then."""
    return []


@pytest.fixture(scope="module")
def temporary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder for temporary files that the user has told Dask of."""
    return tmp_path_factory.mktemp("temporary")


@pytest.fixture(scope="module")
def own(cluster: Any, key_files: list[tuple[Path, int]], temporary: Path) -> Iterator[Any]:
    """A Client of ours. The tests' own cluster is there before: not to be started with the configuration for this one."""
    load = SSLContext.load_cert_chain

    def seen(self: SSLContext, certificate: Any, key: Any = None, *more: Any) -> None:
        key_files.append((Path(key), stat.S_IMODE(os.stat(Path(key).parent).st_mode)))
        load(self, certificate, key, *more)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(SSLContext, "load_cert_chain", seen)
        with dask.config.set({"temporary-directory": str(temporary)}), Cluster(workers=1).session() as session:
            yield session.client


def told(client: Any) -> dict[str, list[str]]:
    """What a stranger is told by scheduler, nannies and workers, and by their pages."""
    info = client.sync(client.scheduler.identity, n_workers=-1)
    addresses = [info["address"], f"http://127.0.0.1:{info['services']['dashboard']}"]
    for address, worker in info["workers"].items():
        addresses += [address, worker["nanny"], f"http://127.0.0.1:{worker['services']['dashboard']}"]
    command = [sys.executable, str(STRANGER), *addresses]
    answers = json.loads(subprocess.run(command, capture_output=True, check=True, timeout=120).stdout)
    return {address: answers[address] for address in addresses}


def test_a_stranger_is_told_nothing(own: Any) -> None:
    answers = told(own)
    assert len(answers) == 5 and not any(answers.values()), answers


@pytest.mark.exhaustive
def test_workers_begin_with_what_their_tasks_import() -> None:
    """Or each worker would import it anew, for seconds, and again when one was lost."""
    wanted = {"numba", "zarr", "sklearn.metrics.pairwise"}
    program = f"import importlib, sys\nfor name in {FORKED}: importlib.import_module(name)\nprint({wanted} - sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout == "set()\n"


@pytest.mark.exhaustive
def test_the_stranger_is_told_everything_where_a_cluster_is_open(client: Any) -> None:
    """Or the test above could not fail."""
    scheduler, pages, *workers = told(client).values()
    assert "pickle-protocol" in scheduler and pages == PAGES
    assert len(workers) == 6 and workers == [scheduler, scheduler, ["metrics"]] * 2


def test_the_key_is_where_its_owner_alone_can_read(own: Any, key_files: list[tuple[Path, int]]) -> None:
    assert key_files and all(mode == 0o700 and not file.exists() for file, mode in key_files)
    worker = psutil.Process(own.run(os.getpid).popitem()[1])
    # Command lines can be read by all.
    assert not any("PRIVATE KEY" in part for part in worker.cmdline() + list(worker.environ().values()))
    assert "PRIVATE KEY" in own.security.tls_client_key


def test_what_is_sent_goes_straight_to_the_worker(own: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """By way of the scheduler it would be encrypted twice, and held twice by the process that has both."""
    through = AsyncMock(side_effect=AssertionError("by way of the scheduler"))
    for name in ("scatter", "gather"):
        monkeypatch.setattr(own.scheduler, name, through, raising=False)
    sent = Session(own, own=True).send(np.arange(1000.0))
    assert own.gather(own.submit(np.sum, sent)) == 499_500.0 and not through.called


def test_a_task_that_is_over_leaves_nothing(own: Any) -> None:
    """A fit of a day asks for millions of tasks, of each of which Dask would keep some kB, and logs of thousands of entries."""
    from distributed.scheduler import TaskGroup

    def kept() -> int:
        gc.collect()
        return sum(type(one) is TaskGroup for one in gc.get_objects())

    before = kept()
    for _ in range(20):
        own.submit(abs, -1, pure=False).result()
        wait_until(lambda: not own.cluster.scheduler.tasks)  # each is let go of before the next comes, as of a fit
    assert kept() <= before + 1  # the last one's
    assert set(own.run(dask.config.get, "distributed.admin.low-level-log-length").values()) == {KEPT}


def test_a_worker_that_hangs_is_given_up_within_a_minute(own: Any) -> None:
    """The scheduler looks as often as it has patience, so at worst after twice that."""
    assert 2 * own.cluster.scheduler.worker_ttl <= 50


def test_nothing_is_imported_from_a_folder_that_others_can_write_to(own: Any, temporary: Path) -> None:
    """Dask's servers have their scratch folder on sys.path; by default one in /tmp, whoever made it there."""
    (ours,) = temporary.iterdir()
    assert stat.S_IMODE(ours.stat().st_mode) == 0o700
    before = set(sys.path) - {path for path in imported_from() if Path(path).is_relative_to(ours)}
    for process in (imported_from(), own.run(imported_from).popitem()[1]):
        found = set(process) - before  # those of the tests' own cluster
        assert found and all(Path(path).is_relative_to(ours) for path in found)


def test_nothing_is_imported_from_the_folder_once_it_is_gone(tmp_path: Path) -> None:
    """Another could make one of that name."""
    place, before = tmp_path / "none yet", list(sys.path)
    with _private_folder(str(place)) as folder:
        sys.path.insert(0, f"{folder}/dask-scratch-space")
    assert sys.path == before and not list(place.iterdir())


def test_what_a_killed_command_has_left_goes_with_the_next(tmp_path: Path) -> None:
    with _private_folder(str(tmp_path)) as alive:
        other = Path(alive).with_name(Path(alive).name[:-8] + "killed")
        other.mkdir()
        (other / "LOCK").touch()
        (other / "spilled").write_bytes(bytes(1000))
        with _private_folder(str(tmp_path)) as folder:
            assert {path.name for path in tmp_path.iterdir()} == {Path(alive).name, Path(folder).name}
            assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700
    assert not list(tmp_path.iterdir())


def test_the_configuration_afterwards_is_that_from_before() -> None:
    """Also where Dask's own had not been read yet: taken back before them, our changes would take them along."""
    source = """
from dkl.errors import ResourceError
from dkl.runs.backends import Cluster
import dask
dask.config.set({"temporary-directory": "/dev/null"})  # nothing is started
try:
    with Cluster(workers=1).session():
        pass
except ResourceError:
    print(dask.config.get("distributed.scheduler.worker-ttl"), dask.config.get("distributed.worker.http.routes"))
"""
    said = subprocess.run([sys.executable, "-c", source], capture_output=True, check=True, text=True).stdout
    assert said.startswith("5 minutes ['distributed.http")


KERNELS = """
import sys
import numpy as np
import dkl
from dkl.estimators.pairwise import plan
from dkl.linalg.late_functions import LateFunction
from dkl.runs.own_workers import own_workers

def loaded():
    modules = [module for name, module in sys.modules.items() if name.startswith(("dkl.linalg.s", "dkl.problems"))]
    found = ((what, one) for m in modules for what, one in vars(m).items() if isinstance(one, LateFunction))
    names = {(id(one), what): len(one.func.signatures) for what, one in found if hasattr(one.func, "signatures")}
    return sorted((what, count) for (_, what), count in names.items())

if __name__ == "__main__":
    X, plan.WORTHWHILE = np.random.default_rng(0).standard_normal((300, 3)), 0
    pairs = {"must_link": [[0, 1], [2, 3]], "cannot_link": [[0, 4], [1, 5]]}
    with own_workers(2, 10**9) as client:
        before = client.run(loaded)
        for how in ({"solver": "admm", "rank": 32, "target_gap": None}, {"solver": "factored"}):
            dkl.PairwiseKernelLearner(max_iter=5, client=client, **how).fit(X, **pairs)
        after = client.run(loaded)
    counts = [sum(count for _, count in kernels) for kernels in before.values()]
    print(min(counts) >= 15, list(before.values()) == list(after.values()))
"""


@pytest.mark.exhaustive
def test_a_worker_begins_with_the_kernels_that_it_runs(tmp_path: Path) -> None:
    """None is read from Numba's cache, or compiled, in a fit of pairs."""
    (tmp_path / "fit.py").write_text(KERNELS)
    command = [sys.executable, "-W", "ignore", str(tmp_path / "fit.py")]
    assert subprocess.run(command, capture_output=True, check=True, text=True).stdout == "True True\n"


def test_no_place_for_the_workers_files(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with (
        dask.config.set({"temporary-directory": str(tmp_path / "file")}),
        pytest.raises(ResourceError, match="did not start"),
        Cluster(workers=1).session(),
    ):
        pass


def test_a_worker_that_hangs_while_it_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dkl.runs.own_workers.START_SECONDS", 0.2)
    (tmp_path / "hangs.py").write_text("import time; time.sleep(3600)")
    with (
        dask.config.set({"distributed.worker.preload": [str(tmp_path / "hangs.py")]}),
        pytest.raises(ResourceError, match="did not start"),
        Cluster(workers=1).session(),
    ):
        pass
