"""`dkl submit`, `status` and `cancel` with batch systems whose commands run the jobs here, as they are written."""

import json
import os
import re
import signal
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import call, factor_bytes, tree
from command_runs import bytes_of
from dask_processes import wait_until
from patience import PATIENCE
from quick_python import quick_python
from repeats import but_for
from run_cases import CASES

import dkl
from dkl.errors import DiskError
from dkl.runs.jobs import kubernetes, verbs
from dkl.runs.jobs.job import Job
from dkl.runs.jobs.settings import job_settings
from dkl.stores.run import RunStore
from dkl.stores.seals import sealed_text, write_json

FAKES = Path(__file__).parent / "fakes"
PAIRS = CASES["pairwise"]
SUBMIT = ("submit", "pairwise", *PAIRS.files, "--rank", "40", "--tol", "0", "--target-gap", "none", "--no-picture")
TWO = ("--workers", "2", "--memory-limit", "2GB")
SYSTEMS = {
    "slurm": "walltime: '08:00:00'\noptions: [--partition=long]\n",
    "ssh": "hosts: [alpha, beta]\n",
    "kubernetes": "image: dkl\nclaim: data\nmount: {folder}\n",
}
FAKED = ["slurm", "kubernetes"]
"""Of machines that ssh reaches there is a real server: test_ssh.py."""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with quick_python(tmp_path_factory.mktemp("python")) as front:
        yield front


@pytest.fixture
def work(tmp_path: Path, python: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current folder with inputs, a file for each system, and their commands on PATH."""
    folder, fakes = tmp_path / "work", tmp_path / "fakes"
    folder.mkdir()
    fakes.mkdir()
    for name in ("sbatch", "squeue", "scancel", "srun"):
        (fakes / name).symlink_to(FAKES / "system")
    (fakes / "kubectl").symlink_to(FAKES / "kubectl")
    monkeypatch.setenv("PATH", f"{fakes}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("FAKES", str(fakes))
    monkeypatch.setattr(verbs, "POLL_SECONDS", 0.05)
    monkeypatch.setattr(kubernetes, "_user", lambda: (1000, 1000))  # whoever runs the tests
    for name, more in SYSTEMS.items():
        common = f"system: {name}\npython: {python}\ninterface: lo\nlocal-directory: '{tmp_path}'\n"
        (folder / f"{name}.yaml").write_text(common + more.format(folder=folder))
    PAIRS.write(folder)
    monkeypatch.chdir(folder)
    return folder


def calls(work: Path) -> str:
    return (work.parent / "fakes" / "calls").read_text()


def job_of(run: str) -> dict[str, object]:
    return json.loads(call("status", run, "--json").out)["job"]


def iterations(run: Path) -> int:
    return sum(event["event"] == "iteration" for event in RunStore.open(run).events())


def under_way(run: Path) -> None:
    """Until some iterations are done."""
    wait_until(lambda: iterations(run) > 3 or (run / "job" / "ended").exists())
    assert iterations(run) > 3, (run / "job" / "log").read_text()


@pytest.mark.parametrize("task", but_for(CASES.keys() - {"pairwise"}, CASES))
def test_every_learner_as_a_job_has_the_bytes_of_a_fit(task: str, work: Path) -> None:
    case = CASES[task]
    case.write(work)
    given = (task, *case.files, *case.options, "--threads", "1", "--no-picture", "--out")
    here = call("fit", *given, "here.zarr")
    there = call("submit", *given, "there.zarr", "--on", "slurm.yaml", "--wait")
    assert there.code == here.code, there.err
    assert f"there.zarr: {case.ends}" in there.out
    assert bytes_of(work / "there.zarr", *case.result) == bytes_of(work / "here.zarr", *case.result)
    assert call("verify", "there.zarr").code == 0


@pytest.mark.exhaustive
@pytest.mark.parametrize("system", FAKED)
def test_a_job_is_cancelled_and_submitted_again(system: str, work: Path) -> None:
    """With two workers, and in the end the bytes of a run that nothing has disturbed."""
    run = work / "run.zarr"
    answer = call(*SUBMIT, *TWO, "--max-iter", "1000000", "--out", "run.zarr", "--on", f"{system}.yaml")
    assert answer.code == 0 and f"submitted to {system} as " in answer.out, answer.err
    under_way(run)
    assert job_of("run.zarr") | {"at": 0, "id": ""} == {
        "system": system, "id": "", "state": "running", "exit_code": None, "at": 0
    }  # fmt: skip
    again = call("submit", "resume", "run.zarr", "--on", f"{system}.yaml", *TWO)
    assert again.code == 2 and "a job of this run is there" in again.err and "dkl cancel" in again.err
    answer = call("cancel", "run.zarr")
    assert answer.code == 0 and not answer.err, answer.err
    said = call("status", "run.zarr").out
    assert "resumable at iteration" in said and "ended, exit code 4" in said, (run / "job" / "log").read_text()
    assert "interrupted by SIGTERM; stopped at iteration" in (run / "job" / "log").read_text()
    if system != "kubernetes":  # which keeps what pods print
        assert (run / "job" / "workers.log").is_file()
    last = str(iterations(run) + 5)
    answer = call("submit", "resume", "run.zarr", "--max-iter", last, *TWO, "--on", f"{system}.yaml", "--follow")
    assert answer.code == 3 and "iteration_limit" in answer.out, answer.err + answer.out
    assert RunStore.open(run).report()["plan"]["processes"] == 2
    here = call("fit", *SUBMIT[1:], "--threads", "1", "--max-iter", last, "--out", "here.zarr")
    assert here.code == 3 and factor_bytes(run) == factor_bytes(work / "here.zarr")
    # Dask's workers part from a scheduler that ends with tracebacks.
    assert "Traceback" not in (run / "job" / "log").read_text()
    assert {stat.S_IMODE(file.stat().st_mode) for file in (run / "job").glob("*.pem")} == {0o600}


def test_what_a_job_may_not_be_is_told_before_anything_is_made(work: Path) -> None:
    (work / "bad.yaml").write_text("system: slurm\nwalltime: soon\n")
    (work / "unknown.yaml").write_text("system: slurm\nwall: 1\n")
    (work / "list.yaml").write_text("- system\n")
    (work / "broken.yaml").write_text("system: [slurm\n")
    (work / "none.yaml").write_text("system: pbs\n")
    (work / "empty.yaml").write_text("")
    (work / "elsewhere.yaml").write_text("system: kubernetes\nclaim: data\nmount: /data\n")
    (work / "nobody.yaml").write_text("system: ssh\n")
    pods = f"system: kubernetes\nclaim: data\nmount: {work}\npod: "
    (work / "pod.yaml").write_text(pods + "{spec: {containers: [{name: dkl, image: other}]}}\n")
    (work / "pods.yaml").write_text(pods + "[a]\n")
    cases = {
        "walltime: not a value for it; got 'soon'": ("bad.yaml",),
        "no such setting; got wall": ("unknown.yaml",),
        "list.yaml": ("list.yaml",),
        "cannot be read as YAML": ("broken.yaml",),
        "not a batch system; got 'pbs'": ("none.yaml",),
        "empty.yaml: system: not a batch system; got None": ("empty.yaml",),
        "not a batch system; got 'pbs.json'": ("pbs.json",),
        "no such file": ("absent.yaml",),
        "not on the volume": ("elsewhere.yaml",),
        "pod.spec.containers[dkl].image: is set by dkl; got 'other'; wanted 'dkl:latest'": ("pod.yaml",),
        "pods.yaml: pod: not a value for it; got ['a']; wanted a mapping": ("pods.yaml",),
        "no machines": ("nobody.yaml",),
        "hosts: no machines": ("ssh",),
        "wanted a size a worker": ("slurm.yaml", "--workers", "2"),
        "exclude each other": ("slurm.yaml", *TWO, "--scheduler", "tcp://127.0.0.1:1"),
        "plain tcp:// to another machine": ("slurm.yaml", "--scheduler", "tcp://10.1.2.3:1"),
        "not a value for it; got -1": ("slurm.yaml", "--rank", "-1"),
    }
    before = tree(work)
    for said, options in cases.items():
        answer = call(*SUBMIT, "--out", "run.zarr", "--on", *options)
        assert answer.code == 2 and len(answer.err.splitlines()) == 1, (said, answer.err)
        assert said.replace("not a value for it; got -1", "rank") in answer.err, answer.err
    small = call(*SUBMIT, "--out", "run.zarr", "--on", "slurm.yaml", "--workers", "2", "--memory-limit", "100MB")
    assert small.code == 5 and "got memory_limit 100 MB" in small.err
    assert tree(work) == before


# -- runs in an object store --------------------------------------------------------------------------------------------


def in_store(bucket: Any, work: Path) -> tuple[str, ...]:
    """What `dkl submit` and `dkl fit` are called with, the inputs being objects."""
    bucket.upload(*(work / word for word in PAIRS.files if (work / word).is_file()))
    named = [bucket / word if (work / word).is_file() else word for word in PAIRS.files]
    return ("pairwise", *named, *SUBMIT[2 + len(PAIRS.files) :])


def has_state(bucket: Any) -> bool:
    """Whether the run there has committed an iteration."""
    return any("/generations/" in name for name in bucket.files.find(f"{bucket.name}/run"))


@pytest.mark.exhaustive
@pytest.mark.parametrize("system", FAKED)
def test_a_run_in_an_object_store_as_a_job(system: str, work: Path, bucket: Any) -> None:
    """With two workers, which see the folder that is named: cancelled, submitted again, with the bytes of one in a folder."""
    given, run, on = (
        in_store(bucket, work),
        bucket / "run",
        ("--on", f"{system}.yaml", "--job-folder", str(work / "job")),
    )
    answer = call("submit", *given, *TWO, "--max-iter", "1000000", "--checkpoint-every", "3", "--out", run, *on)
    assert answer.code == 0 and f"{run}: submitted to {system} as " in answer.out, answer.err
    wait_until(lambda: has_state(bucket) or (work / "job" / "ended").exists())
    assert has_state(bucket), (work / "job" / "log").read_text()
    assert job_of(run)["state"] == "running"
    again = call("submit", "resume", run, *TWO, *on)
    assert again.code == 2 and "a job of this run is there" in again.err
    answer = call("cancel", run)
    assert answer.code == 0 and not answer.err, answer.err
    said = call("status", run).out
    log = (work / "job" / "log").read_text()
    assert "resumable at iteration" in said and "ended, exit code 4" in said and str(work / "job" / "log") in said, log
    last = re.search(r"stopped at iteration (\d+)", log)
    assert last is not None, log
    most = str(int(last[1]) + 5)
    answer = call("submit", "resume", run, "--max-iter", most, *TWO, *on, "--wait")
    assert answer.code == 3 and "iteration_limit" in answer.out, answer.err + answer.out
    assert call("verify", run).code == 0
    here = call("fit", *SUBMIT[1:], "--threads", "1", "--max-iter", most, "--out", "here.zarr")
    assert here.code == 3
    np.testing.assert_array_equal(dkl.load(run).factor_, dkl.load("here.zarr").factor_)


def test_a_run_in_an_object_store_needs_a_folder_for_its_job(work: Path, bucket: Any) -> None:
    """One that is named, new or of the same run, and on the pods' volume; nothing is made before, or left."""
    given, run, folder = in_store(bucket, work), bucket / "run", work / "job"
    (work / "elsewhere.yaml").write_text("system: kubernetes\nclaim: data\nmount: /data\n")
    (work / "taken").mkdir()
    (work / "taken" / "letter").touch()
    (work / "other").mkdir()
    write_json(work / "other" / "job.json", {"run": bucket / "other"})
    cases = {
        "--job-folder: not given, for a run in an object store; wanted a folder that all machines of the job see": (
            run,
            "slurm.yaml",
        ),
        "--job-folder: is for runs in an object store": ("run.zarr", "slurm.yaml", "--job-folder", "job"),
        "exists already": (run, "slurm.yaml", "--job-folder", "taken"),
        "--job-folder: has the job of another run": (run, "slurm.yaml", "--job-folder", "other"),
        "--job-folder: not on the volume": (run, "elsewhere.yaml", "--job-folder", "job"),
        "seen by no other process": ("memory://run", "slurm.yaml", "--job-folder", "job"),
    }
    before, objects = tree(work), bucket.files.find(bucket.name)
    for said, (out, *on) in cases.items():
        answer = call("submit", *given, "--out", out, "--on", *on)
        assert answer.code == 2 and len(answer.err.splitlines()) == 1 and said in answer.err, (said, answer.err)
    assert call("submit", *given, "--out", run, "--on", "slurm.yaml", "--job-folder", "job", "--dry-run").code == 0
    (work.parent / "fakes" / "full").touch()
    answer = call("submit", *given, "--out", run, "--on", "slurm.yaml", "--job-folder", "job")
    assert answer.code == 5 and "sbatch: refused" in answer.err
    assert tree(work) == before and bucket.files.find(bucket.name) == objects and not folder.exists()


def test_a_stranger_s_record_in_a_store_calls_nothing(work: Path, bucket: Any) -> None:
    given, run = in_store(bucket, work), bucket / "run"
    assert call("fit", *given, "--max-iter", "1", "--out", run).code in (0, 3)
    settings = job_settings("slurm.yaml")[1].as_dict()
    for record in (
        {"system": "slurm", "id": "-f", "at": 0.0, "settings": settings, "run": run, "folder": str(work)},
        {"system": "slurm", "id": "7", "at": 0.0, "settings": settings, "run": run, "folder": "../work"},
        {"system": "slurm", "id": "7", "at": 0.0, "settings": settings, "run": run},
    ):
        bucket.files.pipe_file(f"{bucket.name}/run/job.json", sealed_text(record).encode())
        for verb in ("status", "cancel"):
            answer = call(verb, run)
            assert answer.code == 6 and "a damaged record of a job" in answer.err, answer.err
    assert not (work.parent / "fakes" / "calls").exists()


def test_a_system_that_refuses_leaves_nothing(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (work.parent / "fakes" / "full").touch()
    answer = call(*SUBMIT, "--out", "run.zarr", "--on", "slurm.yaml")
    assert answer.code == 5 and "sbatch: refused; got sbatch: error: Batch job submission failed" in answer.err
    monkeypatch.setenv("PATH", str(work))
    answer = call(*SUBMIT, "--out", "run.zarr", "--on", "slurm.yaml")
    assert answer.code == 5 and answer.err == (
        "dkl: sbatch: not found; wanted a command; submit where the batch system's commands are\n"
    )
    assert not (work / "run.zarr").exists()


def test_a_job_that_cannot_be_recorded_is_ended(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(job: Job, number: str) -> None:
        raise DiskError("no space")

    monkeypatch.setattr(Job, "record", full)
    answer = call(*SUBMIT, "--max-iter", "1000000", "--out", "run.zarr", "--on", "slurm.yaml")
    assert answer.code == 5 and "no space" in answer.err
    assert "scancel 1000" in calls(work) and not (work / "run.zarr").exists()


@pytest.mark.exhaustive
def test_a_client_that_is_killed_is_told_and_resumed(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = call(*SUBMIT, "--max-iter", "1000000", "--threads", "1", "--out", "run.zarr", "--on", "slurm.yaml")
    under_way(work / "run.zarr")
    job = int((work.parent / "fakes" / "jobs" / "1000").read_text())
    os.killpg(job, signal.SIGSTOP)  # it cannot commit, however long this process waits for the system's commands
    monkeypatch.setattr(verbs, "CANCEL_SECONDS", 0.0)
    answer = call("cancel", "run.zarr")
    assert answer.code == 0 and "was killed" in answer.err
    assert "ended" in call("status", "run.zarr").out
    monkeypatch.setattr(verbs, "CANCEL_SECONDS", PATIENCE)
    assert call("cancel", "run.zarr").out.endswith("its job has ended: slurm 1000\n")
    again = call("submit", "resume", "run.zarr", "--max-iter", "5", "--threads", "1", "--on", "slurm.yaml", "--wait")
    assert again.code == 3, again.err


def test_runs_without_a_job(work: Path) -> None:
    assert call("fit", *SUBMIT[1:], "--max-iter", "3", "--threads", "1", "--out", "run.zarr").code == 3
    assert "none; submitted runs have one" in call("status", "run.zarr").out
    answer = call("cancel", "run.zarr")
    assert answer.code == 2 and "it has no job" in answer.err
    (work / "run.zarr" / "job").mkdir()
    (work / "run.zarr" / "job" / "job.json").write_text('{"system": "slurm"}')
    assert call("status", "run.zarr").code == 6


@pytest.mark.parametrize(
    "system, number",
    [("ssh", "-oProxyCommand=touch stolen:1"), ("ssh", "gamma:1"), ("kubernetes", "--kubeconfig=x"), ("slurm", "-f")],
)
def test_a_stranger_s_record_of_a_job_calls_nothing(system: str, number: str, work: Path) -> None:
    """Its seal says that it is whole, not that it is harmless."""
    assert call("fit", *SUBMIT[1:], "--max-iter", "1", "--out", "run.zarr").code in (0, 3)
    settings = job_settings(f"{system}.yaml")[1]
    (work / "run.zarr" / "job").mkdir()
    record = {"system": system, "id": number, "at": 0.0, "settings": settings.as_dict()}
    write_json(work / "run.zarr" / "job" / "job.json", record)
    for verb in ("status", "cancel"):
        answer = call(verb, "run.zarr")
        assert answer.code == 6 and "a damaged record of a job" in answer.err, answer.err
    assert not (work.parent / "fakes" / "calls").exists()


def test_a_dry_run_prints_and_makes_nothing(work: Path) -> None:
    before = tree(work)
    answer = call(*SUBMIT, *TWO, "--out", "run.zarr", "--on", "slurm.yaml", "--dry-run")
    assert answer.code == 0 and tree(work) == before
    head = [line for line in answer.out.splitlines() if line.startswith("#SBATCH")]
    wanted = [
        "--ntasks=3",
        "--mem-per-cpu=2099M",
        "--signal=B:TERM@120",
        "--time=08:00:00",
        "--partition=long",
        "--requeue",
    ]
    assert {f"#SBATCH {option}" for option in wanted} <= set(head)
