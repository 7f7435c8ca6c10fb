"""State and end of a run's job: `dkl status`, `dkl cancel`, and waiting for it."""

from __future__ import annotations

import json
import shlex
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from dkl.errors import InputError, ResourceError
from dkl.printable import printable
from dkl.runs import registry, report
from dkl.runs.echo import echo
from dkl.runs.jobs.job import JobFiles, JobRecord, recorded
from dkl.runs.jobs.system import Inquiry, State, System, system
from dkl.runs.stored import open_run

if TYPE_CHECKING:
    from dkl.stores.sealed_json import Json

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
