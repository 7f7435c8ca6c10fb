"""`dkl submit ... --on slurm.yaml` and cluster/slurm by Debian's own SLURM: two nodes, both of them this machine."""

import getpass
import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from command_line import call, factor_bytes
from dask_processes import Keys, wait_until
from job_waits import waiting_for
from patience import PATIENCE
from quick_python import quick_python
from run_cases import CASES
from slurm_cluster import Slurm, slurm

from dkl.errors import ResourceError
from dkl.runs.jobs import system, verbs
from dkl.stores.run import RunStore

RECIPES = Path(__file__).parents[2] / "cluster" / "slurm"
PAIRS = CASES["pairwise"]
FIT = ("pairwise", *PAIRS.files, "--rank", "40", "--tol", "0", "--target-gap", "none", "--no-picture")
FOREVER = ("--max-iter", "1000000")
TWO = ("--workers", "2", "--memory-limit", "1GB")


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with quick_python(tmp_path_factory.mktemp("python")) as front:
        yield front


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    with slurm(tmp_path_factory.mktemp("slurm")) as running:
        yield running


@pytest.fixture
def work(tmp_path: Path, machines: Slurm, python: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A current folder with inputs and the shipped submit.yaml, for the python and the network of these tests.

    Jobs that a failed test leaves are cancelled: the next ones would wait behind them.
    """
    for name, value in machines.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(verbs, "POLL_SECONDS", 0.2)
    monkeypatch.chdir(tmp_path)
    PAIRS.write(tmp_path)
    settle(tmp_path, python)
    yield tmp_path
    if machines.asked("squeue", "--noheader"):
        machines.asked("scancel", "--state=PENDING", "--user", getpass.getuser())
        machines.asked("scancel", "--user", getpass.getuser())
        wait_until(lambda: not machines.asked("squeue", "--noheader"))


def settle(folder: Path, python: object, **more: object) -> None:
    """Write submit.yaml as it is shipped, with other settings."""
    shipped = yaml.safe_load((RECIPES / "submit.yaml").read_text())
    shipped |= {"python": str(python), "interface": "lo"} | more
    (folder / "submit.yaml").write_text(yaml.safe_dump(shipped))


def submit(*options: str) -> list[str]:
    return ["submit", *FIT, "--out", "run.zarr", "--on", "submit.yaml", *options]


def log(work: Path) -> str:
    return "\n".join(path.read_text() for path in (work / "run.zarr" / "job").glob("*log"))


def test_the_recipe_as_it_is_shipped_ends_with_what_the_fit_ends_with(work: Path, machines: Slurm) -> None:
    """Five attempts on workers on both nodes, from inside an allocation: not converged is 3, and no attempt is left."""
    for name, value in {"NTASKS": "1", "MEM_PER_NODE": "100", "JOB_ID": "77", "NNODES": "1"}.items():
        os.environ[f"SLURM_{name}"] = value
    try:
        answer = call(*submit(*TWO, "--max-iter", "3", "--wait"))
    finally:
        for name in ("NTASKS", "MEM_PER_NODE", "JOB_ID", "NNODES"):
            del os.environ[f"SLURM_{name}"]
    assert answer.code == 3 and "iteration_limit" in answer.out, answer.err + log(work) + machines.logs()
    assert machines.asked("squeue", "--noheader") == ""
    assert (work / "run.zarr" / "job" / "log").read_text().count("=== ") == 1
    assert RunStore.open("run.zarr").report()["plan"]["processes"] == 2
    here = call("fit", *FIT, "--threads", "1", "--max-iter", "3", "--out", "here.zarr")
    assert here.code == 3 and factor_bytes(work / "run.zarr") == factor_bytes(work / "here.zarr")
    assert "ended, exit code 3" in call("status", "run.zarr").out


def test_an_attempt_that_is_left_ends_at_once(work: Path, machines: Slurm) -> None:
    """As it is started where the rest of the array could not be taken back: the code stays, and nothing is printed."""
    assert call(*submit("--threads", "1", "--max-iter", "2", "--wait")).code == 3
    job = work / "run.zarr" / "job"
    before = (job / "log").read_text()
    again = subprocess.run(["bash", job / "job.sh"], check=False)
    assert again.returncode == 3 and (job / "log").read_text() == before


@pytest.mark.parametrize(
    "option, reason",
    [
        ("--partition=short", "PartitionTimeLimit"),
        ("--begin=now+1hour", "BeginTime"),
    ],
)
def test_why_a_job_waits_and_the_command_that_submits_it_again(
    option: str, reason: str, work: Path, python: Path
) -> None:
    settle(work, python, options=[option])
    assert call(*submit("--threads", "1", "--max-iter", "3")).code == 0
    wait_until(lambda: re.search(rf"waiting \({reason}\)", call("status", "run.zarr").out))
    answer = call("cancel", "run.zarr")
    assert answer.code == 0 and not answer.err, answer.err
    command = answer.out.splitlines()[1].strip()
    assert command.startswith("dkl submit resume ") and command.endswith(f"--on {work}/submit.yaml --threads 1")
    settle(work, python, options=["--partition=short"], walltime="00:05:00")
    answer = call(*command.split()[1:], "--wait")
    assert answer.code == 3, answer.err + log(work)


@pytest.mark.parametrize("line, code", [("false # no module", 1), ("module load nothing_at_all", 127)])
def test_a_line_of_setup_that_fails_ends_the_job(line: str, code: int, work: Path, python: Path) -> None:
    settle(work, python, setup=["PS1=$UNSET_NAME-; export PS1", line])
    answer = call(*submit("--threads", "1", "--max-iter", "3", "--wait"))
    assert answer.code == 5 and f"dkl: setup: a line ended with {code} on " in answer.out, answer.err + log(work)
    assert line in answer.out


def test_a_line_of_setup_that_is_no_command_is_refused(work: Path, python: Path) -> None:
    settle(work, python, setup=["if true; then"])
    answer = call(*submit("--threads", "1"))
    assert answer.code == 2 and "setup: not a command of shell; got 'if true; then'" in answer.err
    assert not (work / "run.zarr").exists()


def iterations(work: Path) -> int:
    return sum(event["event"] == "iteration" for event in RunStore.open(work / "run.zarr").events())


def under_way(work: Path, machines: Slurm, more: int = 3) -> None:
    """Wait until so many iterations more are done."""
    last = iterations(work) + more
    wait_until(lambda: iterations(work) >= last or (work / "run.zarr" / "job" / "ended").exists())
    assert iterations(work) >= last, log(work) + machines.logs()


@pytest.mark.exhaustive  # some 15 s on a quiet machine
def test_a_job_at_its_walltime_s_notice_is_continued_by_the_next_attempt(work: Path, machines: Slurm) -> None:
    """SIGTERM as SLURM sends it, to the script alone; the second attempt resumes; `dkl cancel` ends all of them."""
    assert call(*submit(*TWO, *FOREVER)).code == 0
    under_way(work, machines)
    number = re.search(r"slurm (\d+): running", call("status", "run.zarr").out)
    assert number is not None, log(work) + machines.logs()
    machines.asked("scancel", "--batch", "--signal=TERM", f"{number[1]}_1")
    printed = work / "run.zarr" / "job" / "log"
    wait_until(lambda: printed.read_text().count("=== ") == 2)
    first, _ = re.findall(r"^=== .*\n((?:(?!===).*\n)*)", printed.read_text(), re.MULTILINE)
    committed = re.search(r"interrupted by SIGTERM; stopped at iteration (\d+), which is committed", first)
    assert committed is not None and "resum" in printed.read_text().rpartition("=== ")[2], printed.read_text()
    under_way(work, machines)
    answer = call("cancel", "run.zarr")
    assert answer.code == 0 and not answer.err, answer.err
    assert machines.asked("squeue", "--noheader") == ""
    assert "exit code 4" in call("status", "run.zarr").out
    done = [event["iteration"] for event in RunStore.open("run.zarr").events() if event["event"] == "iteration"]
    assert done == list(range(1, len(done) + 1)) and len(done) > int(committed[1])


@pytest.mark.exhaustive  # some 40 s: SLURM's commands try for ten seconds to reach it
def test_a_controller_that_is_away_for_a_while_does_not_end_the_wait(
    work: Path, machines: Slurm, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    """The job, which needs no controller, goes on meanwhile; past the patience the wait ends, and says that it does."""
    assert call(*submit("--threads", "1", *FOREVER)).code == 0
    under_way(work, machines)
    with waiting_for(work / "run.zarr", capfd) as wait:
        machines.stop_controller()
        try:
            wait_until(lambda: "the job may go on, asking again for up to 600 s" in wait.said())
            under_way(work, machines)
            answer = call("status", "run.zarr")
            assert answer.code == 5 and re.search(r"job +slurm \d+: unknown\n", answer.out), answer.out
            assert re.match("dkl: squeue: refused; got .*[Uu]nable to contact slurm controller", answer.err), answer.err
            found = json.loads(call("status", "run.zarr", "--json").out)["job"]
            assert found["state"] == "unknown" and found["exit_code"] is None
        finally:
            machines.start_controller()
        wait_until(lambda: "note: slurm answers again" in wait.said())
        assert not wait.ends and wait.said().count("note: slurm answers again") == 1
        under_way(work, machines)
        assert call("cancel", "run.zarr").code == 0
    assert wait.ends == [4]
    monkeypatch.setattr(system, "PATIENCE_SECONDS", 0.0)
    machines.stop_controller()
    try:
        with pytest.raises(ResourceError, match=r"slurm \d+: no answer for 0 s; .*the job may go on: `dkl status`"):
            verbs.wait(str(work / "run.zarr"))
    finally:
        machines.start_controller()


@pytest.mark.exhaustive
def test_a_wait_says_why_the_job_does_not_start(work: Path, machines: Slurm, python: Path, capfd: Any) -> None:
    """Once each, as the reason changes; the exit code is that of the fit."""
    filling = machines.asked(
        "sbatch", "--parsable", "--nodes=2", "--exclusive", "--wrap=sleep 600", "--output=/dev/null"
    )
    settle(work, python, options=["--partition=short"])
    assert call(*submit("--threads", "1", "--max-iter", "3")).code == 0
    with waiting_for(work / "run.zarr", capfd) as wait:
        number = re.search(r"slurm (\d+):", call("status", "run.zarr").out)
        assert number is not None
        for change, reason in {"TimeLimit=5": "PartitionTimeLimit", "Comment=": "Resources"}.items():
            wait_until(lambda reason=reason: f"note: slurm {number[1]} is waiting: {reason}\n" in wait.said())
            machines.asked("scontrol", "update", f"JobId={number[1]}", change)
        machines.asked("scancel", filling.strip())
    assert wait.ends == [3], log(work) + machines.logs()
    assert all(wait.said().count(reason) == 1 for reason in ("PartitionTimeLimit", "Resources")), wait.said()


@pytest.mark.exhaustive
def test_the_client_s_job_with_workers_of_dask_jobqueue(
    work: Path, machines: Slurm, keys: Keys, python: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """fit.sh, workers.py and jobqueue.yaml, `~` in it: two one-core workers on a node; submitted again, it resumes."""
    pytest.importorskip("dask_jobqueue", reason="dask-jobqueue is not installed")
    home = work / "home"
    dask = home / ".config" / "dask"
    dask.mkdir(parents=True)
    for name, file in {"ca.pem": keys.ca, "cert.pem": keys.cert, "key.pem": keys.key}.items():
        (dask / name).write_bytes(Path(file).read_bytes())
    settings = yaml.safe_load((RECIPES / "jobqueue.yaml").read_text())
    settings["jobqueue"]["slurm"] |= {"python": str(python), "interface": "lo", "memory": "1GB", "job-mem": "1200M"}
    (dask / "jobqueue.yaml").write_text(yaml.safe_dump(settings))
    for name, value in {"HOME": home, "DASK_CONFIG": dask, "PYTHON": python, "WORKERS": 2}.items():
        monkeypatch.setenv(name, str(value))
    fit = [str(RECIPES / "fit.sh"), str(work / "run.zarr"), *FIT, "--max-iter", "3"]
    for said in ("iteration_limit", "complete, nothing to do"):
        command = ["sbatch", "--wait", "--mem=1G", f"--chdir={work}", f"--output={work}/client.log", *fit]
        done = subprocess.run(command, cwd=RECIPES, check=False, capture_output=True, timeout=PATIENCE)
        told = (work / "client.log").read_text()
        assert done.returncode == 3 and said in told, told + machines.logs()
    assert RunStore.open("run.zarr").report()["plan"]["processes"] == 2
    assert machines.asked("squeue", "--noheader") == ""  # its workers' jobs have ended with it
    here = call("fit", *FIT, "--threads", "1", "--max-iter", "3", "--out", "here.zarr")
    assert here.code == 3 and factor_bytes(work / "run.zarr") == factor_bytes(work / "here.zarr")


@pytest.mark.exhaustive
def test_no_job_outlives_a_cluster_whose_controller_is_away(tmp_path: Path) -> None:
    """As where a test fails between `stop_controller` and `start_controller`."""
    number = tmp_path / "number"
    with slurm(tmp_path) as own:
        own.asked(
            "sbatch", f"--chdir={tmp_path}", "--wrap", f"echo $$ > {number}.part; mv {number}.part {number}; sleep 600"
        )
        wait_until(number.exists)
        own.stop_controller()
        assert psutil.pid_exists(int(number.read_text()))
    assert not psutil.pid_exists(int(number.read_text()))
