"""`dkl submit`: a run is begun here and worked on where its job runs."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from dkl._paths import as_path
from dkl.blocks.session import Session
from dkl.errors import DiskError, InputError
from dkl.resources import parse_bytes
from dkl.runs import driver, registry
from dkl.runs.cluster import Unstarted
from dkl.runs.files import check_new
from dkl.runs.jobs.job import Job, recorded, write_private
from dkl.runs.jobs.outcome import wait
from dkl.runs.jobs.settings import job_settings
from dkl.runs.jobs.system import State, system
from dkl.runs.scheduler_address import Certificates, address_in, check_address, flag
from dkl.runs.stored import open_run, settings_of
from dkl.stores.run import RunStore

Given = Mapping[str, Any]


def submit(task: str, files: Given, out: str, picture: bool | None, chosen: Given, placing: Given, how: Given) -> int:
    """Check everything as a fit would, make the run, and have it worked on as a job. The exit code.

    how: `on`, and whether to `wait`, to `follow` what is printed, or only to print what would be submitted (`dry_run`).
    """
    kind = registry.kind(task)
    settings: Any = kind.declaration.settings(**chosen).checked()
    path = check_new(out, may_be_empty_folder=True)
    job = _job(path, settings.memory_limit, placing, how["on"])
    planned = None if job.cluster else nullcontext(_unstarted(job))
    inputs, settings = driver.ready(kind, files, settings, planned, path.parent)
    if how["dry_run"]:
        return _show(job)
    written = system(job.system).write(job)  # an error of its comes before anything is made
    run = RunStore.create(path, driver.config_of(kind, inputs, settings, picture is not False))
    run.close()
    try:
        _start(job, written)
    except BaseException:
        shutil.rmtree(path)  # made just now, by us
        raise
    return _after(job.run, how)


def resubmit(path: str, changes: Given, placing: Given, how: Given) -> int:
    """A run that stands is resumed by another job. The exit code."""
    run = open_run(as_path(path, "run"))
    settings = settings_of(run, changes)
    before = recorded(run.path)
    if before is not None and (state := system(before.system).state(before)) is not State.ENDED:
        got = f"{before.system} {before.id}, {state.value}"
        raise InputError(
            "a job of this run is there", where=str(run.path), got=got, remedy=f"`dkl cancel {path}` first"
        )
    job = _job(run.path, settings.memory_limit, placing, how["on"])
    words = [word for name, value in changes.items() for word in (flag(name), str(value))]
    job = replace(job, changes=tuple(words))
    if how["dry_run"]:
        return _show(job)
    _start(job, system(job.system).write(job))
    return _after(job.run, how)


def _job(run: Path, memory_limit: Any, placing: Given, on: str) -> Job:
    """From what was typed. InputError for workers of which nobody says how large they are, or a cluster that is none."""
    name, settings = job_settings(on)
    memory = parse_bytes(memory_limit)
    workers = placing["workers"]
    if workers is not None and memory is None:
        raise InputError(
            "of workers on other machines it must be said", where="--memory-limit", wanted="a size a worker"
        )
    cluster = _cluster_words(placing)
    return Job(run, name, settings, workers, memory, placing["threads"], cluster)


def _cluster_words(placing: Given) -> tuple[str, ...]:
    """Options of `dkl resume` for a cluster that runs: with absolute paths, as the job stands elsewhere."""
    certificates = Certificates.of({name: placing[name] for name in ("tls_ca", "tls_cert", "tls_key")})
    words = ["--insecure"] if placing["insecure"] else []
    if placing["wait_for"] is not None:
        words += ["--wait-for", str(placing["wait_for"])]
    if placing["scheduler_file"] is not None:
        file = as_path(placing["scheduler_file"], "--scheduler-file").absolute()
        check_address(address_in(file), placing["insecure"], f"--scheduler-file {file}", certificates)
        words += ["--scheduler-file", str(file)]
    elif placing["scheduler"] is not None:
        check_address(placing["scheduler"], placing["insecure"], "--scheduler", certificates)
        words += ["--scheduler", placing["scheduler"]]
    else:
        return ()
    if certificates is not None:
        words += certificates.options()
    return tuple(words)


def _unstarted(job: Job) -> Session:
    """The session that the job's client will have, as plans see it."""
    if job.workers is not None and job.memory is not None:
        return Unstarted(job.workers, job.memory)
    return Session(None, threads=job.client_threads)


def _show(job: Job) -> int:
    """Print what would be submitted."""
    for name, content in system(job.system).write(job).items():
        click.echo(f"# {job.files.folder / name}\n{content}")
    return 0


def _start(job: Job, written: Mapping[str, str]) -> None:
    """Write the job's files and hand it to the system. Raises ResourceError, DiskError."""
    files = job.files
    try:
        files.folder.mkdir(mode=0o700, exist_ok=True)
        files.ended.unlink(missing_ok=True)
    except OSError as error:
        raise DiskError("could not be made", where=str(files.folder), got=error.strerror) from error
    job.make_keys()
    for name, content in written.items():
        write_private(files.folder / name, content)
    number = system(job.system).submit(job)
    job.record(number)
    click.echo(f"{job.run}: submitted to {job.system} as {number}")


def _after(run: Path, how: Given) -> int:
    """0 at once; where it is waited for, the exit code of the job."""
    if not (how["wait"] or how["follow"]):
        click.echo(f"dkl status {run}   says where it stands, dkl cancel {run} ends it")
        return 0
    try:
        return wait(run, follow=how["follow"])
    except KeyboardInterrupt as stopped:
        raise KeyboardInterrupt(f"no longer waiting; the job goes on: dkl status {run}") from stopped
