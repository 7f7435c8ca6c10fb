"""What becomes of a run's job: `dkl status`, `dkl cancel`, and waiting for it."""

from __future__ import annotations

import json
import time
from typing import Any

import click

from dkl.errors import InputError, ResourceError
from dkl.runs import registry, report
from dkl.runs.jobs.job import JobFiles, Recorded, recorded
from dkl.runs.jobs.system import Inquiry, State, System, system
from dkl.runs.stored import open_run

POLL_SECONDS = 2.0
"""Between questions to the system."""
CANCEL_SECONDS = 60.0
"""For a job to commit and end, before it is ended where it stands."""


def wait(run: str, *, follow: bool = False) -> int:
    """Wait until the run's job has ended; return its exit code. Raises ResourceError if it ended without one.

    A system that gives no answer is asked again for PATIENCE_SECONDS.
    """
    job = _required(run)
    files, inquiry, shown = job.files, Inquiry(system(job.system), job), 0
    while True:
        state = inquiry.state()
        if follow:
            shown = _follow(files, shown)
        if state is State.ENDED:
            break
        time.sleep(POLL_SECONDS)
    code = files.exit_code()
    if code is None or code not in range(7):
        remedy = f"see {files.log} and {files.workers_log.name}, then `dkl submit resume {run}`"
        got = f"{job.system} {job.id}" + ("" if code is None else f", exit code {code}")
        raise ResourceError("the job ended before its client did", where=run, got=got, remedy=remedy)
    if not follow:
        _follow(files, _last_attempt(files))
    return code


def _follow(files: JobFiles, shown: int) -> int:
    """Print what the log has beyond `shown` bytes; the bytes shown now."""
    try:
        with open(files.log, "rb") as log:
            log.seek(shown)
            more = log.read()
    except FileNotFoundError:
        return shown
    click.echo(more.decode(errors="replace"), nl=False)
    return shown + len(more)


def _last_attempt(files: JobFiles) -> int:
    """Where the log of the last attempt begins."""
    try:
        return max(0, files.log.read_bytes().rfind(b"=== "))
    except FileNotFoundError:
        return 0


def status(path: str, *, as_json: bool) -> None:
    """Print where a run stands, by what it holds, and where its job does, by the system."""
    run = open_run(path)
    with report.damages(run, "run", "."):
        stands = registry.kind(registry.task_of(run)).facts(run).state
    job = recorded(run.name)
    found: dict[str, Any] = {"path": run.name, "state": stands, "job": None}
    if job is not None:
        state, code = system(job.system).state(job), job.files.exit_code()
        found["job"] = {"system": job.system, "id": job.id, "state": state.value, "exit_code": code, "at": job.at}
    if as_json:
        click.echo(json.dumps(found, indent=1))
        return
    click.echo(f"{run.name}: {stands}")
    click.echo(report.line("job", _job_line(found["job"])))
    if job is not None:
        click.echo(report.line("log", str(job.files.log)))


def _job_line(job: dict[str, Any] | None) -> str:
    if job is None:
        return "none; submitted runs have one"
    code = "" if job["exit_code"] is None else f", exit code {job['exit_code']}"
    return f"{job['system']} {job['id']}: {job['state']}{code}"


def cancel(path: str) -> None:
    """Have a run's job commit and end; end it where it stands if it has not in CANCEL_SECONDS. The run can be resumed."""
    run = open_run(path)
    job = _required(run.name)
    host = system(job.system)
    if host.state(job) is State.ENDED:
        click.echo(f"{run.name}: its job has ended: {job.system} {job.id}")
        return
    host.cancel(job, now=False)
    if not _ends(host, job):
        host.cancel(job, now=True)
        click.echo(
            f"note: it had not ended after {CANCEL_SECONDS:g} s and was killed; what was committed stands", err=True
        )
    click.echo(f"{run.name}: cancelled; `dkl submit resume {path} --on {job.system}`, or `dkl resume`, continues it")


def _ends(host: System, job: Recorded) -> bool:
    """Return whether a job ends in CANCEL_SECONDS."""
    end, inquiry = time.monotonic() + CANCEL_SECONDS, Inquiry(host, job)
    while inquiry.state() is not State.ENDED:
        if time.monotonic() >= end:
            return False
        time.sleep(min(POLL_SECONDS, CANCEL_SECONDS))
    return True


def _required(run: str) -> Recorded:
    job = recorded(run)
    if job is None:
        raise InputError("was not submitted: it has no job", where=run, remedy="`dkl submit resume` makes one")
    return job
