"""Verbs of jobs: `dkl submit` makes a run, which is worked on where its job runs; `dkl status` and `dkl cancel`."""

from __future__ import annotations

import json
import shlex
import shutil
import time
from collections.abc import Mapping
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dkl.blocks.session import Session
from dkl.errors import DiskError, InputError, ResourceError, printable
from dkl.io.paths import ObjectPath, as_path, is_address
from dkl.resources import parse_bytes
from dkl.runs import driver, registry, report
from dkl.runs.backends import Certificates, Unstarted, address_in, check_address, flag
from dkl.runs.interrupt import echo
from dkl.runs.jobs.job import Job, JobFiles, JobRecord, folder_of, named_folder, recorded, write_private
from dkl.runs.jobs.settings import KINDS, job_settings
from dkl.runs.jobs.system import Inquiry, State, System, system
from dkl.runs.stored import new_run, open_run, settings_of

if TYPE_CHECKING:
    from dkl.stores.seals import Json


POLL_SECONDS = 2.0
"""Seconds between requests to the system."""
CANCEL_SECONDS = 60.0
"""Seconds for a job to commit and end, before it is killed."""
UNKNOWN = "unknown"
"""State of a job whose system gives no answer."""


def wait(run: str, *, follow: bool = False) -> int:
    """Wait until the run's job has ended; return its exit code, or raise ResourceError if it has none.

    A system that gives no answer is asked again for PATIENCE_SECONDS.
    """
    job = _required(run)
    host = system(job.system)
    files, inquiry, shown, why = job.files, Inquiry(host, job), 0, ""
    while True:
        state = inquiry.state()
        if state is State.WAITING and (now := _reason(host, job)) not in ("", why):
            why = now
            echo(f"note: {job.system} {job.id} is waiting: {why}", err=True)
        if follow:
            shown = _follow(files, shown)
        if state is State.ENDED:
            break
        time.sleep(POLL_SECONDS)
    code = files.exit_code()
    # 0 to 6 are codes of `dkl`; others are of a shell or a signal.
    if code is None or code not in range(7):
        remedy = f"see {files.log} and {files.workers_log.name}, then {job.resubmission}"
        got = f"{job.system} {job.id}" + ("" if code is None else f", exit code {code}")
        raise ResourceError("the job ended before its client did", where=run, got=got, remedy=remedy)
    if not follow:
        _follow(files, _last_attempt(files))
    return code


def _reason(host: System, job: JobRecord) -> str:
    """Return why a job waits; "" where the system does not say it."""
    with suppress(ResourceError):
        return host.reason(job)
    return ""


def _follow(files: JobFiles, shown: int) -> int:
    """Print what the log has beyond `shown` bytes; the bytes shown now."""
    try:
        with open(files.log, "rb") as log:
            log.seek(shown)
            more = log.read()
    except FileNotFoundError:
        return shown
    click.echo(more.decode(errors="replace"), nl=False)  # a log, whose lines have been printed before
    return shown + len(more)


def _last_attempt(files: JobFiles) -> int:
    """Return the position in the log at which the last attempt begins."""
    try:
        return max(0, files.log.read_bytes().rfind(b"=== "))
    except FileNotFoundError:
        return 0


def status(path: str, *, as_json: bool) -> None:
    """Print the state of a run, from its store, and that of its job, from the batch system.

    Raises ResourceError, after all that is known without it, if the system gives no answer.
    """
    run = open_run(path)
    with report.damages(run, "run", "."):
        stands = registry.kind(registry.task_of(run)).facts(run).state
    job, unanswered = recorded(run.name), None
    found: Json = {"path": run.name, "state": stands, "job": None}
    if job is not None:
        try:
            found["job"] = _asked(job)
        except ResourceError as error:
            found["job"], unanswered = _described(job, UNKNOWN), error
    if as_json:
        echo(json.dumps(found, indent=1))
    else:
        echo(f"{printable(run.name)}: {stands}")
        echo(report.line("job", _job_line(found["job"])))
        if job is not None:
            echo(report.line("log", str(job.files.log)))
    if unanswered is not None:
        raise unanswered


def _asked(job: JobRecord) -> Json:
    """Return a job as its system sees it. Raises ResourceError."""
    host = system(job.system)
    state = host.state(job)
    why = {"reason": _reason(host, job)} if state is State.WAITING else {}
    return _described(job, state.value) | why


def _described(job: JobRecord, state: str) -> Json:
    return {"system": job.system, "id": job.id, "state": state, "exit_code": job.files.exit_code(), "at": job.at}


def _job_line(job: Json | None) -> str:
    if job is None:
        return "none; submitted runs have one"
    code = "" if job["exit_code"] is None else f", exit code {job['exit_code']}"
    why = f" ({job['reason']})" if job.get("reason") else ""
    return f"{job['system']} {job['id']}: {job['state']}{why}{code}"


def cancel(path: str) -> None:
    """Have a run's job commit and end; kill it after CANCEL_SECONDS. The run can be resumed."""
    run = open_run(path)
    job = _required(run.name)
    host = system(job.system)
    if host.state(job) is State.ENDED:
        echo(f"{printable(run.name)}: its job has ended: {job.system} {job.id}")
        return
    host.cancel(job, now=False)
    if not _ends(host, job):
        host.cancel(job, now=True)
        echo(f"note: it had not ended after {CANCEL_SECONDS:g} s and was killed; what was committed is kept", err=True)
    here = shlex.join(["dkl", "resume", path])
    echo(f"{printable(run.name)}: cancelled; continue it as a job or here:\n  {job.resubmission}\n  {here}")


def _ends(host: System, job: JobRecord) -> bool:
    """Return whether a job ends in CANCEL_SECONDS."""
    end, inquiry = time.monotonic() + CANCEL_SECONDS, Inquiry(host, job)
    while inquiry.state() is not State.ENDED:
        if time.monotonic() >= end:
            return False
        time.sleep(min(POLL_SECONDS, CANCEL_SECONDS))
    return True


def _required(run: str) -> JobRecord:
    job = recorded(run)
    if job is None:
        raise InputError("was not submitted: it has no job", where=run, remedy="`dkl submit resume` makes one")
    return job


Given = Mapping[str, Any]


def submit(task: str, files: Given, out: str, picture: bool, chosen: Given, placing: Given, how: Given) -> int:
    """Check everything as a fit would, make the run, and have it worked on as a job. The exit code.

    how: `on`, `job_folder`, and whether to `wait`, to `follow` what is printed, or only to print what would be submitted
    (`dry_run`).
    """
    settings: Any = registry.declaration(task).settings(**chosen).checked()
    place = new_run(out, writes=not how["dry_run"])
    job = _job(place.name, settings.memory_limit, placing, how)
    # On a cluster that runs, the job's client makes the plan.
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
