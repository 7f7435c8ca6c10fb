"""`dkl submit`: a run is made here and worked on where its job runs."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from dkl.blocks.session import Session
from dkl.errors import DiskError, InputError
from dkl.io.object_paths import ObjectPath, is_address
from dkl.io.paths import as_path
from dkl.resources import parse_bytes
from dkl.runs import driver, registry
from dkl.runs.backend.backends import Unstarted
from dkl.runs.backend.scheduler_address import Certificates, address_in, check_address, flag
from dkl.runs.echo import echo
from dkl.runs.jobs.job import Job, JobRecord, folder_of, named_folder, recorded, write_private
from dkl.runs.jobs.outcome import wait
from dkl.runs.jobs.settings import KINDS, job_settings
from dkl.runs.jobs.system import State, system
from dkl.runs.places import new_run
from dkl.runs.stored import open_run, settings_of

Given = Mapping[str, Any]


def submit(task: str, files: Given, out: str, picture: bool, chosen: Given, placing: Given, how: Given) -> int:
    """Check everything as a fit would, make the run, and have it worked on as a job. The exit code.

    how: `on`, `job_folder`, and whether to `wait`, to `follow` what is printed, or only to print what would be submitted
    (`dry_run`).
    """
    settings: Any = registry.declaration(task).settings(**chosen).checked()
    place = new_run(out, writes=not how["dry_run"])
    job = _job(place.name, settings.memory_limit, placing, how)
    planned = None if job.cluster else nullcontext(_unstarted(job))
    where = job.folder.parent if job.works_in_folder else place.parent
    kind, inputs, settings = driver.ready(task, files, settings, planned, where)
    if how["dry_run"]:
        return _show(job)
    written = system(job.system).write(job)  # an error of its comes before anything is made
    run = place.create(driver.config_of(kind, inputs, settings, picture))
    try:
        run.publish()
        run.close()  # the job may begin at once
        _start(job, written)
    except BaseException:
        run.remove()  # made just now, by us
        run.close()
        raise
    return _after(job, how)


def resubmit(path: str, changes: Given, placing: Given, how: Given) -> int:
    """Resume an existing run by another job; return the exit code."""
    run = open_run(path)
    settings = settings_of(run, changes)
    before = recorded(run.name)
    if before is not None and (state := system(before.system).state(before)) is not State.ENDED:
        got = f"{before.system} {before.id}, {state.value}"
        raise InputError(
            "a job of this run is there", where=run.name, got=got, remedy=f"{shlex.join(['dkl', 'cancel', path])} first"
        )
    job = _job(run.name, settings.memory_limit, placing, how)
    words = [word for name, value in changes.items() for word in (flag(name), str(value))]
    job = replace(job, changes=tuple(words))
    if how["dry_run"]:
        return _show(job)
    _start(job, system(job.system).write(job))
    return _after(job, how)


def _job(run: str, memory_limit: int | float | str | None, placing: Given, how: Given) -> Job:
    """Return the job of the options as typed.
    Raises InputError for workers without a memory limit, or an invalid cluster."""
    name, settings = job_settings(how["on"])
    folder = _folder(run, how["job_folder"])
    memory = parse_bytes(memory_limit)
    workers = placing["workers"]
    if workers is not None and memory is None:
        raise InputError(
            "of workers on other machines it must be said", where="--memory-limit", wanted="a size a worker"
        )
    cluster = _cluster_words(placing)
    return Job(run, folder, name, settings, workers, memory, placing["threads"], cluster, on=_on(how["on"]))


def _on(named: str) -> str:
    """Return what --on names, a file by its absolute path: it is typed again elsewhere."""
    return named if named in KINDS else str(as_path(named, "--on").absolute())


def _folder(run: str, named: str | None) -> Path:
    """Return the folder of the job's files.
    Raises InputError if it is not named for a run in an object store, or is named for one in a folder."""
    if not is_address(run):
        if named is not None:
            wanted = "none: a run's folder has its job's files too"
            raise InputError("is for runs in an object store", where="--job-folder", got=named, wanted=wanted)
        return folder_of(run)
    if ObjectPath.of(run).is_of_this_process:
        raise InputError("seen by no other process", where=run, wanted="s3://, gs:// or a folder")
    if named is None:
        wanted = "a folder that all machines of the job see"
        raise InputError("not given, for a run in an object store", where="--job-folder", wanted=wanted)
    return named_folder(run, as_path(named, "--job-folder").absolute())


def _cluster_words(placing: Given) -> tuple[str, ...]:
    """Return options of `dkl resume` for a running cluster; paths are absolute: the job runs elsewhere."""
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
    """Return the session that the job's client will have, as plans see it."""
    if job.workers is not None and job.memory is not None:
        return Unstarted(job.workers, job.memory)
    return Session(None, threads=job.client_threads)


def _show(job: Job) -> int:
    """Print what would be submitted."""
    for name, content in system(job.system).write(job).items():
        echo(f"# {job.files.folder / name}\n{content}")
    return 0


def _start(job: Job, written: Mapping[str, str]) -> None:
    """Write the job's files and submit it; remove job and new folder on ResourceError or DiskError."""
    files, is_new, number = job.files, not job.folder.exists(), ""
    try:
        files.folder.mkdir(mode=0o700, exist_ok=True)
        files.ended.unlink(missing_ok=True)
    except OSError as error:
        raise DiskError("could not be made", where=str(files.folder), got=error.strerror) from error
    try:
        job.make_keys()
        for name, content in written.items():
            write_private(files.folder / name, content)
        number = system(job.system).submit(job)
        job.record(number)
    except BaseException:
        if number:  # without a record it could not be found
            system(job.system).cancel(JobRecord(job.system, number, 0.0, job.settings, files), now=True)
        if is_new:
            shutil.rmtree(files.folder, ignore_errors=True)
        raise
    echo(f"{job.run}: submitted to {job.system} as {number}")


def _after(job: Job, how: Given) -> int:
    """Return 0 at once, or the exit code of the job if it is waited for."""
    run = job.run
    if not (how["wait"] or how["follow"]):
        status, ending = (shlex.join(["dkl", verb, run]) for verb in ("status", "cancel"))
        echo(f"{status}   says where it stands, {ending} ends it")
        return 0
    try:
        return wait(run, follow=how["follow"])
    except KeyboardInterrupt as stopped:
        raise KeyboardInterrupt(
            f"no longer waiting; the job continues: {shlex.join(['dkl', 'status', run])}"
        ) from stopped
