"""Lost workers, a lost scheduler, a full disk: a clear error at most, and in the end the bytes of an undisturbed run."""

import builtins
import errno
import io
import json
import os
import random
import resource
import signal
import subprocess
import sys
import warnings
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import distributed
import numpy as np
import psutil
import pytest
from command_line import FIT, call, factor_bytes, write_inputs
from pairwise_cases import random_problem
from patience import PATIENCE
from repeats import but_for

import dkl
from dkl.blocks import session
from dkl.blocks.graph import neighbor_search
from dkl.blocks.graph.distributed_products import WorkerMatrix
from dkl.blocks.graph.neighbor_graph import build_graph, graph_of
from dkl.blocks.session import Session
from dkl.blocks.slabs.placement import LocalPlacement
from dkl.errors import ConvergenceWarning, DiskError, StateLost, WorkersLostError
from dkl.estimators.pairwise.fit import fit_problem, make_problem
from dkl.estimators.pairwise.settings import PairwiseSettings
from dkl.estimators.pairwise.store import store_problem
from dkl.side_information.pairs import Pairs
from dkl.solvers.watch import Watch
from dkl.stores.run import RunStore
from dkl.stores.slab_arrays import SlabArray

SETTINGS = PairwiseSettings(rank=40, max_iter=60, tol=0.0, target_gap=None, checkpoint_every=7)
pytestmark = pytest.mark.filterwarnings("ignore::dkl.errors.ConvergenceWarning")


# -- processes that die ---------------------------------------------------------------------------------------------------


@pytest.fixture
def question(rng):
    laplacian, must_link, cannot_link = random_problem(rng, 50)
    return make_problem(laplacian, Pairs(must_link, cannot_link), 100.0), Pairs(must_link, cannot_link)


def new_run(path, question):
    run = RunStore.create(path, {"settings": SETTINGS.as_dict()})
    store_problem(run, replace(graph_of(np.ones((50, 50))), laplacian=question[0].laplacian), question[1])
    return run


def factor_of(run):
    return np.asarray(run.factor()[:]).tobytes()


@pytest.fixture
def undisturbed(question, tmp_path):
    run = new_run(tmp_path / "undisturbed.zarr", question)
    fit_problem(question[0], SETTINGS, Session(None, threads=1), run=run)
    run.close()
    return factor_of(run)


def killer(iteration, pid):
    """A callback that kills once, after an iteration."""
    pids = [pid]

    def call(row):
        if row["iteration"] >= iteration and pids:
            os.kill(pids.pop(), signal.SIGKILL)

    return call


def rollbacks(run):
    """(last iteration done, the one gone back to, last commit before) of each time that a run went back."""
    found, done, commit = [], 0, 0
    for event in run.events():
        if event["event"] == "commit":
            commit = event["iteration"]
        elif event["event"] == "iteration":
            if event["iteration"] <= done:
                found.append((done, event["iteration"] - 1, commit))
            done = event["iteration"]
    return found


@contextmanager
def dask_cluster(folder):
    """(address, pid of the scheduler): a scheduler and two workers, each a process of its own."""
    started = []

    def start(*arguments):
        command = [sys.executable, "-m", "dask", *arguments, "--host", "127.0.0.1", "--no-dashboard"]
        started.append(
            subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        )
        return started[-1].pid

    file = folder / "scheduler.json"
    try:
        pid = start("scheduler", "--port", "0", "--dashboard-address", ":0", "--scheduler-file", str(file))
        work = ("--scheduler-file", str(file), "--nthreads", "1", "--local-directory", str(folder))
        start("worker", *work, "--nworkers", "2")
        yield file, pid
    finally:
        for process in started:
            family = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
            process.kill()
            for child in family:
                child.kill()
            process.wait()
            psutil.wait_procs(family, timeout=PATIENCE)


@pytest.fixture
def own_client(tmp_path):
    """(client, pid of its scheduler) of a cluster that is there to be killed."""
    from distributed import Client

    with dask_cluster(tmp_path) as (file, pid), Client(scheduler_file=str(file), timeout=PATIENCE) as client:
        client.wait_for_workers(2, timeout=PATIENCE)
        yield client, pid


@contextmanager
def no_longer_than(seconds):
    def end(number, frame):
        raise TimeoutError(f"still there after {seconds} s")

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.exhaustive
def test_a_run_outlives_its_workers(question, undisturbed, own_client, tmp_path, seed, monkeypatch):
    """One dies at a random iteration, later one whose results are done and not yet fetched."""
    client, _ = own_client
    draw = random.Random(seed)
    first_to_die = draw.choice(sorted(client.run(os.getpid).values()))
    killed, done = [], []

    def die(pid):
        killed.append(pid)
        os.kill(pid, signal.SIGKILL)

    def wait_and_kill(*arguments, really=distributed.wait, **keywords):
        answer = really(*arguments, **keywords)
        if done and done[-1] >= 40 and len(killed) == 1:
            holder = Session(client).workers()[0]  # the iterations' rows are its
            die(client.run(os.getpid, workers=[holder])[holder])
        return answer

    def first(row):
        done.append(row["iteration"])
        if row["iteration"] == iteration and not killed:
            die(first_to_die)

    iteration = draw.randint(5, 30)
    monkeypatch.setattr(distributed, "wait", wait_and_kill)
    run = new_run(tmp_path / "run.zarr", question)
    try:
        with no_longer_than(1000):
            fitted = fit_problem(question[0], SETTINGS, Session(client), run=run, watch=Watch([first]))
    finally:
        run.close()
    assert len(killed) == 2
    assert fitted.result.restarts >= 2
    assert [row["iteration"] for row in fitted.result.history] == list(range(1, 61))
    assert factor_of(run) == undisturbed
    assert all(to >= commit for _, to, commit in rollbacks(run)), rollbacks(run)


@pytest.mark.exhaustive
def test_a_lost_scheduler_is_told_and_the_run_goes_on_elsewhere(
    question, undisturbed, own_client, tmp_path, seed, monkeypatch
):
    monkeypatch.setattr(session, "RECONNECT_SECONDS", 0.5)
    client, pid = own_client
    path = tmp_path / "run.zarr"
    run = new_run(path, question)
    try:
        kill = killer(random.Random(seed).randint(10, 50), pid)
        with pytest.raises(WorkersLostError, match="scheduler is gone.*dkl resume") as caught:
            fit_problem(question[0], SETTINGS, Session(client), run=run, watch=Watch([kill]))
    finally:
        run.close()
    assert caught.value.exit_status == 5
    commit = max(event["iteration"] for event in run.events() if event["event"] == "commit")
    monkeypatch.setattr(
        Session, "find", lambda client=None, threads=None, **how: Session(None, threads=threads)
    )  # that one is dead
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        dkl.resume(path, n_jobs=2)
    done = RunStore.open(path)
    assert factor_of(done) == undisturbed
    assert all(to == commit for _, to, _ in rollbacks(done)), rollbacks(done)
    assert [row["iteration"] for row in done.events() if row["event"] == "iteration"][-1] == 60


@pytest.mark.parametrize("where", but_for(["collect"], ["start", "sums", "collect"]))
def test_workers_lost_at_either_end_of_a_run(where, question, undisturbed, tmp_path, monkeypatch):
    really, lost = getattr(LocalPlacement, where), []

    def once(self, *arguments):
        if not lost:
            lost.append(where)
            raise StateLost("gone")
        return really(self, *arguments)

    monkeypatch.setattr(LocalPlacement, where, once)
    run = new_run(tmp_path / "run.zarr", question)
    fitted = fit_problem(question[0], SETTINGS, Session(None, threads=1), run=run)
    run.close()
    assert (lost, fitted.result.restarts) == ([where], 1)
    assert factor_of(run) == undisturbed


def test_a_graph_whose_shared_rows_are_lost(client, rng, monkeypatch):
    """They are gone when all workers that hold them die; then tasks that need them are cancelled."""
    X = rng.standard_normal((80, 5))
    wanted = build_graph(X, session=Session(None, threads=1)).laplacian
    really, times = neighbor_search.share, []

    def share(where, item):
        copy = really(where, item)
        times.append(0)
        if len(times) == 1:
            client.cancel(copy, force=True)
        return copy

    monkeypatch.setattr(neighbor_search, "share", share)
    assert (build_graph(X, session=Session(client)).laplacian != wanted).nnz == 0
    assert len(times) >= 2


@pytest.mark.parametrize("place", ["placement", "neighbors", "products"])
def test_a_transfer_that_fails_is_made_again(place, question, client, rng, monkeypatch):
    """As the scheduler tells of a worker that died while rows were copied to it: by a KeyError."""
    scatter, sent = client.scatter, []

    def broken(item, **how):
        sent.append(item)
        if len(sent) == 1:
            raise KeyError("tcp://127.0.0.1:1")
        return scatter(item, **how)

    monkeypatch.setattr(client, "scatter", broken)
    X = rng.standard_normal((80, 5))
    if place == "placement":
        fitted = fit_problem(question[0], SETTINGS.changed(max_iter=3), Session(client))
        assert (fitted.result.restarts, fitted.result.n_iter) == (1, 3)
    elif place == "neighbors":
        wanted = build_graph(X, session=Session(None, threads=1)).laplacian
        assert (build_graph(X, session=Session(client)).laplacian != wanted).nnz == 0
    else:  # the driver, which has the matrix, multiplies
        matrix, x = question[0].laplacian, rng.standard_normal(question[0].laplacian.shape[0])
        assert np.array_equal(WorkerMatrix(matrix, Session(client)).product(x), matrix @ x)
    assert sent


# -- a full disk ----------------------------------------------------------------------------------------------------------

OPTIONS = (
    "--tol",
    "0",
    "--target-gap",
    "none",
    "--max-iter",
    "8",
    "--rank",
    "250",
    "--threads",
    "1",
    "--checkpoint-every",
    "2",
)


class FullDisk:
    """Counts what is written; from call `at` on there is no space left."""

    def __init__(self, patch, at=None):
        self.at, self.count = at, 0
        for name in ("write", "pwrite"):
            patch.setattr(os, name, self._instead(getattr(os, name)))
        patch.setattr(io, "open", self._opening(io.open))  # pathlib's, and so zarr's
        patch.setattr(builtins, "open", self._opening(builtins.open))

    def _instead(self, real):
        def write(descriptor, *arguments):
            if descriptor > 2:
                self._take()
            return real(descriptor, *arguments)

        return write

    def _opening(self, real):
        def opening(file, mode="r", *arguments, **keywords):
            if set(mode) & set("wax+") and not isinstance(file, int):
                self._take()
            return real(file, mode, *arguments, **keywords)

        return opening

    def _take(self):
        self.count += 1
        if self.at is not None and self.count >= self.at:
            full()


@pytest.fixture
def inputs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_inputs(tmp_path, 400)  # whose state at this rank takes more than the search for neighbors


def fit_on_disk(run, limit):
    return call(*(run if word == "run.zarr" else word for word in FIT), *OPTIONS, "--memory-limit", limit)


@pytest.fixture
def whole(inputs):
    """(memory limit that calls for the disk, the factor's bytes, number of writes) of a run that has room."""
    in_memory = [word if word != "run.zarr" else "memory.zarr" for word in FIT]
    assert call(*in_memory, *OPTIONS).code == 3
    limit = json.loads(Path("memory.zarr/report.json").read_text())["plan"]["process_bytes"] - 1
    with pytest.MonkeyPatch.context() as patch:
        disk = FullDisk(patch)
        assert fit_on_disk("whole.zarr", limit).code == 3
    assert json.loads(Path("whole.zarr/report.json").read_text())["plan"]["placement"] == "disk"
    assert factor_bytes(Path("whole.zarr")) == factor_bytes(Path("memory.zarr"))
    return limit, factor_bytes(Path("whole.zarr")), disk.count


def check_commit(path):
    """The newest generation has every slab as its manifest says, and is no older than the log's last commit."""
    run = RunStore.open(path)
    logged = max((event["iteration"] for event in run.events() if event["event"] == "commit"), default=0)
    newest = next(run.generations().newest_first(), None) if (run.path / "generations").is_dir() else None
    assert (newest.iteration if newest else 0) >= logged
    for name in {Path(file).parts[0] for file in newest.files} if newest else ():
        array = SlabArray.open(newest.folder / name)
        out = np.empty((array.n, array.width), array.dtype)
        for slab in range(array.n_slabs):
            file = str(array.chunk(slab).relative_to(newest.folder))
            assert array.read(slab, out) == newest.files[file][1]
    return logged


def check_full_disk(at, whole):
    """No room from write `at` on. The last commit there, or None where the run had not even been begun."""
    limit, wanted, _ = whole
    path = Path(f"run-{at}.zarr")
    with pytest.MonkeyPatch.context() as patch:
        FullDisk(patch, at)
        answer = fit_on_disk(str(path), limit)
    assert answer.code == 5, (at, answer.err)
    told = answer.err.splitlines()[-1]
    assert "No space left on device" in told and path.name in told, (at, told)
    if not (path / "config.json").exists():
        return None
    assert "free space on that disk" in told, (at, told)
    commit = check_commit(path)
    assert call("resume", path).code == 3, at
    assert factor_bytes(path) == wanted, at
    return commit


@pytest.mark.parametrize(("places", "stages"), but_for([(10, 4)], [(4, 2), (10, 4)]))
def test_a_disk_that_fills_up_at_a_random_write(places, stages, whole, seed):
    count = whole[2]
    draw = random.Random(seed)
    writes = [draw.randint(k * count // places + 1, (k + 1) * count // places) for k in range(places)]
    commits = [check_full_disk(at, whole) for at in writes]
    assert len(set(commits)) >= stages, "too few stages were met"


@pytest.mark.slow
def test_a_disk_that_fills_up_at_every_write(whole):
    commits = {check_full_disk(at, whole) for at in range(1, whole[2] + 1)}
    assert commits == {None, 0, 2, 4, 6, 8}


def test_a_log_line_of_which_a_part_was_taken(tmp_path, monkeypatch):
    run = RunStore.create(tmp_path / "run.zarr", {})
    run.log(event="first")
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda file, data, real=os.write: real(file, data[:9]) if len(data) > 60 else full())
        with pytest.raises(DiskError, match=r"events\.jsonl.*No space left.*free space on that disk"):
            run.log(event="second")
    run.log(event="third")
    run.close()
    assert [event["event"] for event in run.events()] == ["first", "third"]


def full():
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.exhaustive
def test_files_that_may_not_grow(whole):
    """The system's own refusal, of a slab of which only a part was taken."""
    limit, wanted, _ = whole
    short = [*FIT, *OPTIONS, "--memory-limit", str(limit), "--max-iter", "4"]
    assert call(*short).code == 3
    slab = 60 * 16 * 8
    again = ("resume", "run.zarr", "--max-iter", "8")
    limited = subprocess.run(
        [sys.executable, "-m", "dkl.cli.main", *again],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (slab - 100, slab - 100)),
    )
    assert limited.returncode == 5, limited.stderr
    told = limited.stderr.splitlines()[-1]
    assert "File too large" in told and "run.zarr" in told and "free space on that disk" in told
    assert check_commit("run.zarr") == 4
    assert call(*again).code == 3
    assert factor_bytes(Path("run.zarr")) == wanted


# -- at full length -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_five_kills_of_each():
    script = Path(__file__).parents[2] / "benchmarks" / "system" / "kill.py"
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
