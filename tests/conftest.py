"""What a test may ask for: a seeded generator, the papers' data, a small cluster; and a watch over child processes."""

import os

# One BLAS thread a process, or the same sums round differently; read once, when numpy loads its BLAS.
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"
# Small fits are for workers, too, in all processes that tests start; read once, when dask is imported.
os.environ["DASK_DKL__WORKERS"] = "always"

import gc
import shutil
import signal
import sys
import tempfile
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any

import numpy as np
import preloaded
import psutil
import pytest
import quick_disk
import s3_server
import seaweed_server
from hypothesis import given, settings
from hypothesis import strategies as st
from threadpoolctl import threadpool_limits

threadpool_limits(
    1, user_api="blas"
)  # zarr's plugin has loaded NumPy before this file, where no other process has set the above

os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())  # of tmp_path: pytest keeps the last three
# What this process and those that it starts leave in the system's temporary folder is seen after each test.
tempfile.tempdir = os.environ["TMPDIR"] = tempfile.mkdtemp(prefix="dkl-tests-")
# After what Python's own processes had there, which removes its files at -100.
Finalize(None, shutil.rmtree, args=(tempfile.tempdir,), kwargs={"ignore_errors": True}, exitpriority=-200)

# Examples follow from the test alone, and a slow machine is no failure: a red test stays red when run again.
settings.register_profile("dkl", derandomize=True, deadline=None, database=None)
settings.load_profile("dkl")

quick_disk.install()


PATIENCE = 3.0
"""Seconds for what a test has started to end after it."""
OF_OTHERS = ("pymp-", "dask-scratch-space", "forked-", "sklearn_testing_")
"""Of Python's own processes, from which Dask starts its workers; the folder in which each of these has one; of a process that a test
may still look at; of scikit-learn's checks."""
LONGEST = [
    "runs/test_contract",
    "estimators/regression/test_regression",
    "solvers/svm/test_level",
    "estimators/kmeans/test_kernel_kmeans",
    "cli/test_logdet_commands",
    "cli/test_hostile_runs",
    "estimators/svm/test_svc_places",
    "runs/test_memory",
    "estimators/pairwise/test_pairwise",
    "cli/test_commands",
    "cluster/test_ssh",
    "cli/test_seaweed_stores",
    "blocks/test_recovery",
    "cli/test_svc_commands",
    "cli/test_object_stores",
    "estimators/test_pictures",
    "estimators/regression/test_regression_on_workers",
    "estimators/pairwise/test_pairwise_outcomes",
    "estimators/logdet/test_logdet",
    "cli/test_regression_commands",
    "cli/test_regression_interruptions",
    "blocks/rows/test_row_blocks",
    "test_layers",
    "estimators/svm/test_svc",
    "stores/test_generations",
    "cli/test_svc_interruptions",
    "test_dependencies",
    "estimators/test_callbacks",
    "problems/pairwise/test_certificate",
    "estimators/svm/test_svc_resuming",
    "problems/pairwise/test_admm",
    "blocks/graph/test_graph",
    "solvers/pairwise/test_low_rank",
    "estimators/pairwise/test_pair_gamma",
    "estimators/regression/test_regression_inputs",
    "cluster/test_jobs",
    "estimators/test_malformed_input",
    "cli/test_svc_malformed",
    "cluster/test_standing_cluster",
    "solvers/test_every_solver",
    "linalg/slabs/test_slab_ops",
    "solvers/logdet/test_logdet",
    "estimators/qsdp/test_laplacian",
    "cli/test_hostile_input",
]
"""Files that take more than ten seconds, the longest first: begun last, one would keep a process busy when the others have
ended. Before them one of each learner, and those of pairs one after the other: what three processes begin with at once is
compiled in each of them."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--part", default="1/1", metavar="K/N", help="of the cases of each test every N-th, from the K-th on"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Of the processes that collect all tests each begins a third further on, and loads what the others have compiled."""
    process = os.environ.get("PYTEST_XDIST_WORKER", "").removeprefix("gw")
    tests = Path(__file__).parent
    if process and [(config.rootpath / place).resolve() for place in config.args] == [tests]:
        files = sorted(tests.rglob("test_*.py"))
        first = int(process) * len(files) // 3 % len(files)
        config.args[:] = map(str, files[first:] + files[:first])


@pytest.hookimpl(tryfirst=True)  # before those that are not asked for are left out
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The longest files first, all others by their paths. A slow test is no exhaustive one, whatever its fixtures' cases are."""
    for item in items:
        if item.get_closest_marker("slow"):
            item.own_markers[:] = [mark for mark in item.own_markers if mark.name != "exhaustive"]
    tests = Path(__file__).parent
    places = {tests / f"{name}.py": place for place, name in enumerate(LONGEST)}
    # By their paths all others, since processes begin to collect at different ones.
    items.sort(key=lambda item: (places.get(item.path, len(places)), item.path))
    leave_out(config, items)


def leave_out(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of the exhaustive cases of each test every N-th stays, from the K-th on; all of a test that has one case alone."""
    part, parts = map(int, config.getoption("--part").split("/"))
    of_test: dict[str, list[pytest.Item]] = {}
    for item in items:
        of_test.setdefault(item.nodeid.split("[")[0], []).append(item)
    left: set[pytest.Item] = set()
    for name, cases in of_test.items():
        further = [item for item in cases if item.get_closest_marker("exhaustive")]
        if len(cases) > 1:  # tests of few cases begin at different ones
            left.update(item for i, item in enumerate(further, zlib.crc32(name.encode())) if (i - part) % parts)
    if left:
        config.hook.pytest_deselected(items=list(left))
        items[:] = [item for item in items if item not in left]


@given(st.none())
def draw_once(nothing: None) -> None:
    """Hypothesis takes hold of NumPy's generator at its first example, which older versions do not find among frozen objects."""


def pytest_collection_finish() -> None:
    """What is imported stays until the end: the collector need not look through it again and again."""
    draw_once()
    gc.collect()
    gc.freeze()


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """A seed of the test's own, the same in every run and whatever other tests run."""
    return zlib.crc32(request.node.name.encode())


@pytest.fixture
def rng(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.fixture(scope="session")
def data() -> Callable[[str], dict[str, np.ndarray]]:
    """data("usps"): the arrays of `usps.npz` in the folder that DKL_DATA names; a skip where it is missing."""

    def load(name: str) -> dict[str, np.ndarray]:
        folder = os.environ.get("DKL_DATA")
        path = Path(folder or "", f"{name}.npz")
        if not folder or not path.is_file():
            pytest.skip(f"data set {name!r}: no {name}.npz in the folder DKL_DATA ({folder or 'not set'})")
        with np.load(path, allow_pickle=False) as arrays:
            return dict(arrays)

    return load


@pytest.fixture(scope="session")
def cluster() -> Iterator[Any]:
    """A LocalCluster for the whole session: two worker processes, one thread each. A test that kills needs its own."""
    from distributed import LocalCluster

    before = _children()
    preloaded.begin_server()
    with LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        processes=True,
        host="127.0.0.1",
        dashboard_address=None,
        scheduler_kwargs={"dashboard_address": "127.0.0.1:0"},  # no dashboard, yet a port: the default one may be taken
    ) as local:
        yield local
    left = _remains(_children() - before)
    assert not left, f"the cluster left processes behind: {left}"


@pytest.fixture
def client(cluster: Any) -> Iterator[Any]:
    """A Client of the cluster. It is the current one for this test alone, so that others do not find it unasked."""
    from distributed import Client

    with Client(cluster) as current:
        yield current


@pytest.fixture
def interrupts() -> Iterator[None]:
    """Ctrl-C raises KeyboardInterrupt, also where the tests run in the background of a shell, which ignores it there."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="session")
def seaweed_environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """What reaching SeaweedFS on 127.0.0.1 takes; it runs for the whole session."""
    with seaweed_server.seaweed(tmp_path_factory.mktemp("seaweed")) as server:
        yield server.environment


@pytest.fixture(scope="session", params=["moto", pytest.param("seaweedfs", marks=pytest.mark.exhaustive)])
def s3_environment(request: pytest.FixtureRequest) -> Iterator[dict[str, str]]:
    """What reaching a server of S3 on 127.0.0.1 takes; it runs for the whole session."""
    if request.param == "seaweedfs":
        yield request.getfixturevalue("seaweed_environment")
        return
    with s3_server.s3_server() as environment:
        yield environment


@pytest.fixture
def bucket(s3_environment: dict[str, str], monkeypatch: pytest.MonkeyPatch, seed: int) -> s3_server.Bucket:
    """A new bucket there, which this process can reach for this test."""
    return s3_server.new_bucket(f"test-{seed:010d}", s3_environment, monkeypatch)


@pytest.fixture
def seaweed_bucket(seaweed_environment: dict[str, str], monkeypatch: pytest.MonkeyPatch, seed: int) -> s3_server.Bucket:
    """A new bucket of SeaweedFS, which this process can reach for this test."""
    return s3_server.new_bucket(f"test-{seed:010d}", seaweed_environment, monkeypatch)


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """Fails a test after which this process listens where it did not before, has threads more that keep it from ending, or
    there are temporary files more."""
    sockets, threads, files = _sockets(), set(threading.enumerate()), _temporary_files()
    yield
    if places := sys.modules.get("dkl.runs.stored"):  # copies of runs in stores, which a process keeps until its end
        places._copies.clear()
        places._held.close()
    end = time.monotonic() + PATIENCE
    while True:
        more = _sockets() - sockets
        left = [address for inode, address in (_listening() if more else {}).items() if inode in more]
        others = threads | _threads_of_dask()
        left += [thread.name for thread in set(threading.enumerate()) - others if not thread.daemon]
        left += sorted(_temporary_files() - files)
        if not left:
            return
        if time.monotonic() > end:
            pytest.fail(f"left sockets, threads or temporary files behind: {left}")
        time.sleep(0.05)


def _temporary_files() -> set[str]:
    """Names in the system's temporary folder, but those that others keep there until a process ends."""
    return {name for name in os.listdir(tempfile.gettempdir()) if not name.startswith(OF_OTHERS)}


def _threads_of_dask() -> set[threading.Thread]:
    """Those that compute Dask's arrays, once there have been any; it keeps them."""
    module: Any = sys.modules.get("dask.threaded")
    if module is None:
        return set()
    pools = [module.default_pool, *(pool for by_size in module.pools.values() for pool in by_size.values())]
    return {thread for pool in pools for thread in getattr(pool, "_threads", ())}


def _sockets() -> set[str]:
    """Inodes of those that this process has open, as Linux lists them."""
    found = set()
    with suppress(OSError):
        for name in os.listdir("/proc/self/fd"):
            with suppress(OSError):
                target = os.readlink(f"/proc/self/fd/{name}")
                if target.startswith("socket:["):
                    found.add(target[8:-1])
    return found


def _listening() -> dict[str, str]:
    """Addresses that are listened at on this machine, in the system's own writing, by inode."""
    found = {}
    for table in ("tcp", "tcp6"):
        with suppress(OSError):
            for line in Path(f"/proc/self/net/{table}").read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == "0A":
                    found[fields[9]] = fields[1]
    return found


@pytest.fixture(autouse=True)
def no_orphans(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fails a test that leaves child processes behind, and ends them."""
    before = _children()
    yield
    new = _children() - before
    if new and "cluster" in request.fixturenames:
        # The shared cluster may have replaced a worker; it lives on by design.
        workers = {nanny.pid for nanny in request.getfixturevalue("cluster").workers.values()}
        new = {process for process in new if process.pid not in workers}
    if new and "machines" in request.fixturenames:
        new -= request.getfixturevalue("machines").processes()  # a controller that was away for a while
    left = _remains(new)
    if left:
        pytest.fail(f"left child processes behind: {left}")


def _children() -> set[psutil.Process]:
    """All processes below this one. By the kernel's own lists where it keeps them: looking through all processes of the
    machine, twice a test, took longer than most tests."""
    if not Path("/proc/self/task", str(os.getpid()), "children").is_file():
        return set(psutil.Process().children(recursive=True))
    found, open_ends = set(), [os.getpid()]
    while open_ends:
        for below in _children_of(open_ends.pop()):
            open_ends.append(below)
            with suppress(psutil.NoSuchProcess):
                found.add(psutil.Process(below))
    return found


def _children_of(pid: int) -> list[int]:
    """Started by any of its threads, as Linux lists them; none of a process that has ended."""
    numbers: list[int] = []
    with suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            numbers += map(int, Path(f"/proc/{pid}/task/{thread}/children").read_text().split())
    return numbers


def _remains(processes: set[psutil.Process], patience: float = PATIENCE) -> list[str]:
    """The command lines of those `processes` that are still there after `patience` seconds; these are killed."""
    # Python's own resource trackers and fork servers live as long as the process that they serve.
    own = ("resource_tracker", "multiprocessing.forkserver")
    suspects = [process for process in processes if not any(name in _command(process) for name in own)]
    _, alive = psutil.wait_procs(suspects, timeout=patience)
    commands = [f"{process.pid} {_command(process)}" for process in alive]
    for process in alive:
        process.kill()
    psutil.wait_procs(alive, timeout=patience)
    return commands


def _command(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return "(ended)"
