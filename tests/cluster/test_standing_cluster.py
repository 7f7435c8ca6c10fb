"""`dkl` on a cluster that its owner has started behind TLS: `dask scheduler` and `dask worker`, each in its own process."""

import json
from pathlib import Path

import numpy as np
import pytest
from command_line import call, factor_bytes, tree
from dask_processes import Keys, tls_cluster, wait_until
from distributed import Client, Security
from on_workers import patience
from patience import PATIENCE
from preloaded import Forked
from run_cases import CASES

from dkl.blocks.session import Session
from dkl.blocks.workers import worker_checks
from dkl.blocks.workers.worker_checks import RequiredPaths, check_workers
from dkl.cli.main import main
from dkl.errors import DiskError, InputError, MemoryBudgetError
from dkl.resources import machine_memory
from dkl.runs import backends as place
from dkl.runs import driver
from dkl.runs.backends import Cluster
from dkl.stores.run import RunStore

CASE = CASES["pairwise"]
SMALL = ("--rank", "40", "--max-iter", "5")  # slabs enough for two workers
FIT = ("fit", "pairwise", *CASE.files, *CASE.options, *SMALL, "--no-picture", "--out")


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current folder with the inputs alone."""
    folder = tmp_path / "work"
    folder.mkdir()
    CASE.write(folder)
    monkeypatch.chdir(folder)
    return folder


def test_a_fit_there_has_the_bytes_of_one_here(standing, work):
    assert json.loads(standing.file.read_text())["address"].startswith("tls://127.0.0.1:")
    assert call(*FIT, "here.zarr", "--threads", "1").code == 3
    answer = call(*FIT, "there.zarr", *standing.options, "--wait-for", "2")
    assert answer.code == 3, answer.err
    assert factor_bytes(work / "there.zarr") == factor_bytes(work / "here.zarr")
    assert json.loads((work / "there.zarr" / "report.json").read_text())["plan"]["processes"] == 2


@pytest.mark.parametrize("stranger", ["of another authority", "without any"])
def test_who_has_no_certificate_of_the_cluster_is_turned_away(stranger, standing, work, tmp_path, monkeypatch):
    monkeypatch.setattr(place, "CONNECT_SECONDS", 2)
    address = json.loads(standing.file.read_text())["address"]
    before = tree(work)
    if stranger == "without any":
        answer = call(*FIT, "run.zarr", "--scheduler", address.replace("tls", "tcp"))
    else:
        answer = call(*FIT, "run.zarr", "--scheduler", address, *Keys.made(tmp_path).options)
    assert answer.code == 5 and len(answer.err.splitlines()) == 1, answer.err
    assert "no scheduler answers" in answer.err and tree(work) == before


def test_more_workers_are_awaited_than_come(standing, work, monkeypatch):
    monkeypatch.setattr(place, "PATIENT_SECONDS", 0.5)
    answer = call(*FIT, "run.zarr", *standing.options, "--wait-for", "3")
    assert answer.code == 5
    assert "too few workers after 0.5 s; got 2; wanted 3; start workers" in answer.err.splitlines()[-1]
    assert not (work / "run.zarr").exists()


# -- several fits, and workers that come and go -------------------------------------------------------------------------------


def last_iteration(run: Path) -> int:
    if not (run / "events.jsonl").exists():
        return 0
    return max((row["iteration"] for row in RunStore.open(run).events() if row["event"] == "iteration"), default=0)


@pytest.mark.exhaustive
def test_two_fits_at_once_each_have_the_bytes_of_one_alone(standing, work):
    """Each of their workers has a single place: were it held while a fit waits for its other half, both would wait for ever."""
    long = ("--max-iter", "1500", "--seed", "1")
    first = Forked(main, *FIT, "first.zarr", *long, *standing.options, "--wait-for", "2")
    wait_until(lambda: last_iteration(work / "first.zarr") or first.poll() is not None)
    assert call(*FIT, "second.zarr", *standing.options).code == 3
    before = last_iteration(work / "first.zarr")
    first.communicate(PATIENCE)
    assert first.returncode == 3 and before < 1500
    for name, more in (("first", long), ("second", ())):
        assert call(*FIT, f"{name}-alone.zarr", *more, "--threads", "1").code == 3
        assert factor_bytes(work / f"{name}.zarr") == factor_bytes(work / f"{name}-alone.zarr")


@pytest.mark.exhaustive
def test_workers_may_come_and_go(keys, work, tmp_path):
    """As a cluster that adapts has them: one more comes, one of the first two is retired with its part of the state."""
    more = ("--max-iter", "300", "--checkpoint-every", "50")
    with tls_cluster(tmp_path, keys, 2) as cluster:
        options = ("--scheduler-file", str(cluster.file), *keys.options)
        fit = Forked(main, *FIT, "run.zarr", *more, *options, "--wait-for", "2")
        wait_until(lambda: last_iteration(work / "run.zarr") or fit.poll() is not None)
        security = Security(
            tls_ca_file=str(keys.ca),
            tls_client_cert=str(keys.cert),
            tls_client_key=str(keys.key),
            require_encryption=True,
        )
        with Client(scheduler_file=str(cluster.file), security=security, set_as_default=False) as client:
            (leaving, *_) = Session(client).workers()
            cluster.start_worker()
            client.wait_for_workers(3, timeout=PATIENCE)
            client.retire_workers([leaving])
        _, err = fit.communicate(PATIENCE)
    assert fit.returncode == 3, err
    report = RunStore.open(work / "run.zarr").report()
    assert report["restarts"] >= 1
    assert call(*FIT, "alone.zarr", *more, "--threads", "1").code == 3
    assert factor_bytes(work / "run.zarr") == factor_bytes(work / "alone.zarr")


# -- what is asked of workers before a fit begins -----------------------------------------------------------------------------


def refused(answer, code: int, *said: str) -> None:
    assert answer.code == code, answer.err + answer.out
    assert len(answer.err.splitlines()) == 1 and all(text in answer.err for text in said), answer.err


@pytest.mark.parametrize("name", ["python", "dkl", "numpy", "zarr", "numba"])
def test_workers_with_other_versions(name, standing, work, monkeypatch):
    versions = worker_checks._versions
    monkeypatch.setattr(worker_checks, "_versions", lambda: {**versions(), name: "9.9"})
    before = tree(work)
    answer = call(*FIT, "run.zarr", *standing.options)
    refused(answer, 2, "worker tls://127.0.0.1:", "than here; got ", "wanted 9.9; install ")
    assert tree(work) == before


def test_workers_of_another_version_are_heard_though_they_know_no_dkl(session):
    """Dask's own answer is taken, not that of code which they would have to import."""
    found = session.client.get_versions(packages=["no such package"])["workers"]
    assert len(found) == 2 and all(worker["packages"]["no such package"] is None for worker in found.values())


def keys_of(standing):
    return {"tls_ca": str(standing.keys.ca), "tls_cert": str(standing.keys.cert), "tls_key": str(standing.keys.key)}


@pytest.fixture
def session(standing):
    with Cluster.of(scheduler_file=str(standing.file), **keys_of(standing)).session() as session:
        yield session


def test_workers_that_do_not_see_what_they_need(session, work):
    (work / "LOCK").write_text("pid 1 on here, attempt 0123abcd")
    size, here = (work / "X.npz").stat().st_size, str(work)
    good = RequiredPaths({str(work / "X.npz"): size}, [here], "attempt 0123abcd")
    session.client.run(patience, 0.0)
    check_workers(session, good)
    cases = {
        "none.npz is not to be read there; got No such file": RequiredPaths({str(work / "none.npz"): size}),
        "is another file there; got": RequiredPaths({str(work / "X.npz"): size + 1}),
        "is another folder there; got another LOCK": RequiredPaths({}, [here], "attempt 4567cdef"),
        "none is not to be written to there; got No such file": RequiredPaths({}, [here, str(work / "none")]),
    }
    for said, needed in cases.items():
        with pytest.raises(
            InputError, match=r"^worker tls://127.0.0.1:\d+ on .*mount it there under the same path"
        ) as told:
            check_workers(session, needed)
        assert said in str(told.value)
    check_workers(Session(session.client, own=True), cases.popitem()[1])  # our own are not asked
    session.client.run(patience, 5.0)


def test_workers_without_disk_or_memory(session, monkeypatch):
    check_workers(session, RequiredPaths({}))
    monkeypatch.setattr(worker_checks, "LEAST_FREE", 10**18)
    with pytest.raises(
        DiskError, match=r"^worker tls://.*local disk is full; got .* free; .*another --local-directory"
    ):
        check_workers(session, RequiredPaths({}))
    monkeypatch.setattr(worker_checks, "LEAST_FREE", 0)
    members = {
        address: {**known, "memory_limit": int(0.6 * machine_memory())} for address, known in session.members().items()
    }
    monkeypatch.setattr(session, "members", lambda: members)
    with pytest.raises(MemoryBudgetError, match=r"got .* for 2 worker\(s\); wanted at most .*lower --memory-limit"):
        check_workers(session, RequiredPaths({}))


def test_a_fit_asks_for_what_its_workers_read_and_write(standing, work, monkeypatch):
    """Pairs: patterns that workers read from the file, and the folder of the run."""
    asked = []
    monkeypatch.setattr(driver, "check_workers", lambda session, needed: asked.append(needed))
    np.save("X.npy", np.load("X.npz")["X"])
    answer = call(*FIT[:2], "--data", "X.npy", *FIT[4:], "run.zarr", *standing.options)
    assert answer.code == 3, answer.err
    assert call("resume", "run.zarr", "--max-iter", "7", *standing.options).code == 3
    (begun, resumed) = asked
    assert begun.files == {str(work / "X.npy"): (work / "X.npy").stat().st_size} and not resumed.files
    assert begun.folders == resumed.folders == [str(work / "run.zarr")]
    assert begun.token != resumed.token and "attempt " in begun.token


def test_certificates_that_do_not_fit(keys, work):
    tls = "tls://127.0.0.1:9"
    cases = {
        "go together": ("--scheduler", tls, "--tls-ca", keys.ca),
        "no such file": ("--scheduler", tls, *keys.options[:4], "--tls-key", "none.pem"),
        "cannot be read": ("--scheduler", tls, *keys.options[:4], "--tls-key", "X.npz"),
        "wanted tls://": ("--scheduler", "tcp://127.0.0.1:9", *keys.options),
        "is for a cluster that runs": ("--workers", "2", *keys.options),
    }
    before = tree(work)
    for said, options in cases.items():
        answer = call(*FIT, "run.zarr", *options)
        assert answer.code == 2 and said in answer.err and len(answer.err.splitlines()) == 1, answer.err
    assert tree(work) == before
