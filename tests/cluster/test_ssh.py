"""`dkl submit ... --on ssh.yaml` by the system's own openssh-server: machines of three names, all of them this one."""

import os
import re
import shlex
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from command_line import call, factor_bytes, tree
from dask_processes import wait_until
from job_waits import waiting_for
from quick_python import quick_python
from run_cases import CASES
from s3_server import Bucket
from ssh_server import SshServer, ssh_server

import dkl
from dkl.errors import ResourceError
from dkl.runs.jobs import ssh, verbs
from dkl.runs.jobs.job import JobFiles
from dkl.stores.run import RunStore

PAIRS = CASES["pairwise"]
SUBMIT = ("submit", "pairwise", *PAIRS.files, "--rank", "40", "--tol", "0", "--target-gap", "none", "--no-picture")
TWO = ("--workers", "2", "--memory-limit", "2GB")
FOREVER = ("--max-iter", "1000000", "--out", "run.zarr")


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with quick_python(tmp_path_factory.mktemp("python")) as front:
        yield front


def passed_on() -> dict[str, str]:
    """Return what sessions have of this process' environment."""
    return {name: os.environ[name] for name in ("OMP_NUM_THREADS", "DASK_DKL__WORKERS", "TMPDIR")}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshServer]:
    with ssh_server(tmp_path_factory.mktemp("ssh"), passed_on()) as running:
        (running.home / ".bashrc").write_text("echo Welcome to this machine: job.sh 1\nprintf 'no newline '\n")
        yield running


@pytest.fixture
def work(tmp_path: Path, server: SshServer, python: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current folder with inputs and files that name machines, and `ssh` on PATH."""
    monkeypatch.setenv("PATH", f"{server.ssh}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(verbs, "POLL_SECONDS", 0.05)
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    PAIRS.write(folder)
    for name, hosts in {"ssh": "alpha, beta", "away": "alpha, away", "stranger": "stranger", "alone": "away"}.items():
        write_settings(folder / f"{name}.yaml", hosts, python)
    return folder


def write_settings(path: Path, hosts: str, python: object) -> None:
    common = f"system: ssh\npython: {python}\ninterface: lo\nlocal-directory: '{path.parent}'\n"
    path.write_text(f"{common}hosts: [{hosts}]\n")


def state() -> Any:
    return re.search(r"job +ssh \w+:\d+: (.*)", call("status", "run.zarr").out)[1]


def iterations(run: Path) -> int:
    return sum(event["event"] == "iteration" for event in RunStore.open(run).events())


def under_way(run: Path) -> None:
    """Until some iterations are done."""
    wait_until(lambda: iterations(run) > 3 or (run / "job" / "ended").exists())
    assert iterations(run) > 3, (run / "job" / "log").read_text()


def test_a_job_is_submitted_cancelled_and_submitted_again(work: Path, server: SshServer) -> None:
    """By shells whose start-up file prints lines, then by some that say nothing; with the bytes of a run that nothing has disturbed."""
    run = work / "run.zarr"
    answer = call(*SUBMIT, *TWO, *FOREVER, "--on", "ssh.yaml")
    assert answer.code == 0 and re.search(r"submitted to ssh as alpha:\d+$", answer.out, re.MULTILINE), answer.err
    under_way(run)
    assert state() == "running"
    answer = call("cancel", "run.zarr")
    assert answer.code == 0 and not answer.err, answer.err
    assert state() == "ended, exit code 4", (run / "job" / "log").read_text()
    (server.home / ".bashrc").unlink()
    last = str(iterations(run) + 5)
    answer = call("submit", "resume", "run.zarr", "--max-iter", last, *TWO, "--on", "ssh.yaml", "--follow")
    assert answer.code == 3 and "iteration_limit" in answer.out, answer.err + answer.out
    assert RunStore.open(run).report()["plan"]["processes"] == 2
    here = call("fit", *SUBMIT[1:], "--threads", "1", "--max-iter", last, "--out", "here.zarr")
    assert here.code == 3 and factor_bytes(run) == factor_bytes(work / "here.zarr")


def test_a_machine_that_cannot_do_its_part_is_named_at_once(work: Path, python: Path) -> None:
    """Nothing is made, and each says what to do."""
    write_settings(work / "python.yaml", "alpha", work / "no-python")
    let_in = r"have {0} let {1} in without a password \(ssh-copy-id\), or leave it out of `hosts`\n"
    cases = {
        "away.yaml": r"ssh away: cannot be reached from alpha; got .*[Cc]onnection refused; "
        + let_in.format("away", "alpha"),
        "alone.yaml": r"ssh away: cannot be reached from this machine; got .*[Cc]onnection refused; "
        + let_in.format("away", "this machine"),
        "stranger.yaml": r"ssh stranger: cannot be reached from this machine; got .*Permission denied \(publickey\)\.; "
        + let_in.format("stranger", "this machine"),
        "python.yaml": r"ssh alpha: has no such Python; got .*/no-python; see `python:`, `setup:`\n",
    }
    before = tree(work)
    for file, said in cases.items():
        answer = call(*SUBMIT, *TWO, *FOREVER, "--on", file)
        assert answer.code == 5 and re.fullmatch(f"dkl: {said}", answer.err), answer.err
    assert tree(work) == before


def test_a_folder_that_a_machine_sees_late_is_waited_for(
    tmp_path: Path, server: SshServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a shared file system shows what was written seconds later; one that it never shows is refused."""
    monkeypatch.setenv("PATH", f"{server.ssh}{os.pathsep}{os.environ['PATH']}")
    files, settings = JobFiles(tmp_path), SimpleNamespace(setup=[], python="sh")
    job: Any = SimpleNamespace(files=files, settings=settings)
    appears = threading.Timer(0.7, files.script.touch)
    appears.start()
    ssh._try_machines("alpha", ["beta"], job)
    appears.join()
    monkeypatch.setattr(ssh, "LATE_SECONDS", 0)
    files.script.unlink()
    with pytest.raises(ResourceError, match="ssh alpha: does not see the job's folder"):
        ssh._try_machines("alpha", ["beta"], job)


@pytest.mark.exhaustive
def test_a_server_that_is_away_for_a_while_does_not_end_the_wait(
    work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    (tmp_path / "ssh").mkdir()
    with ssh_server(tmp_path / "ssh", passed_on()) as server:  # one that no other test needs
        monkeypatch.setenv("PATH", f"{server.ssh}{os.pathsep}{os.environ['PATH']}")
        wait_while_away(work, server, capfd)


def wait_while_away(work: Path, server: SshServer, capfd: Any) -> None:
    """Wait for a job by a server that ends and comes back; the job goes on meanwhile."""
    run = work / "run.zarr"
    assert call(*SUBMIT, "--threads", "1", *FOREVER, "--on", "ssh.yaml").code == 0
    under_way(run)
    with waiting_for(run, capfd) as wait:
        server.stop()
        try:
            wait_until(lambda: "the job may go on, asking again for up to 600 s" in wait.said())
            answer = call("status", "run.zarr")
            assert answer.code == 5 and re.search(r"job +ssh \w+:\d+: unknown\n", answer.out), answer.out
        finally:
            server.start()
        wait_until(lambda: "note: ssh answers again" in wait.said())
        assert not wait.ends and "note: ssh: refused; got ssh: connect to host 127.0.0.1" in wait.said()
        assert call("cancel", "run.zarr").code == 0
    assert wait.ends == [4]


@pytest.mark.exhaustive
def test_what_the_page_says_to_type(work: Path) -> None:
    """As it is written, but for the folder, the number and size of the workers, and the network, which is that of one machine."""
    page = Path(__file__).parents[2] / "cluster" / "ssh"
    (command,) = re.findall(r"^    dkl (submit .*)$", (page / "README.md").read_text(), flags=re.MULTILINE)
    (work / "submit.yaml").write_text((page / "submit.yaml").read_text() + "interface: lo\n")
    CASES["svc"].write(work)
    # The folder last: pytest's may have these numbers in its name.
    for written, here in {"workers 16": "workers 3", "4GB": "500MB", "/data/": f"{work}/"}.items():
        command = command.replace(written, here)
    answer = call(*shlex.split(command), "--wait")
    assert answer.code == 0, answer.err + answer.out
    assert call("verify", "run.zarr").code == 0
    wait_until(lambda: not sessions())


def sessions() -> list[str]:
    """Return the command lines of the server's sessions, and of what they run, which end a moment after the job."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            found.append(" ".join(process.cmdline()))
    return [line for line in found if "notty" in line or "job.sh" in line]


@pytest.mark.exhaustive
def test_a_run_in_an_object_store(work: Path, seaweed_bucket: Bucket) -> None:
    """In SeaweedFS, whose credentials a line of `setup` reads from a file; worked on in the folder that is named."""
    lines = [f"export {name}={value}" for name, value in seaweed_bucket.environment.items()]
    (work / "credentials").write_text("\n".join(lines))
    with (work / "ssh.yaml").open("a") as settings:
        settings.write(f"setup: ['. {work}/credentials']\n")
    given = [seaweed_bucket / word if (work / word).is_file() else word for word in SUBMIT]
    seaweed_bucket.upload(*(work / word for word in PAIRS.files if (work / word).is_file()))
    run, on = seaweed_bucket / "run", ("--on", "ssh.yaml", "--job-folder", str(work / "job"))
    answer = call(*given, *TWO, "--max-iter", "5", "--out", run, *on, "--wait")
    assert answer.code == 3 and "iteration_limit" in answer.out, answer.err + answer.out
    assert "ended, exit code 3" in call("status", run).out and call("verify", run).code == 0
    again = call("submit", "resume", run, "--max-iter", "8", *TWO, *on, "--wait")
    assert again.code == 3, again.err + again.out
    here = call("fit", *SUBMIT[1:], "--threads", "1", "--max-iter", "8", "--out", "here.zarr")
    assert here.code == 3 and factor_bytes(dkl.open_run(run).path) == factor_bytes(work / "here.zarr")
    secret = seaweed_bucket.environment["AWS_SECRET_ACCESS_KEY"].encode()
    assert not any(secret in path.read_bytes() for path in (work / "job").rglob("*") if path.is_file())
