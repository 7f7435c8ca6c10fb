"""Machines that ssh reaches without a password: the client on the first, workers in turn on all.

What a shell's start-up files print comes before the answer of a command, and is not taken for it.
"""

from __future__ import annotations

import re
import shlex
from concurrent.futures import ThreadPoolExecutor
from typing import cast

from dkl.blocks.workers.worker_checks import LATE_SECONDS
from dkl.errors import ResourceError
from dkl.runs.jobs.job import Job, JobRecord
from dkl.runs.jobs.settings import SshSettings
from dkl.runs.jobs.system import State, answer, script

CONNECT_SECONDS = 10
"""Seconds that a machine has to let ssh in."""
SSH = ["ssh", "-o", "BatchMode=yes", "-o", f"ConnectTimeout={CONNECT_SECONDS}"]
NOT_THERE, UNSEEN, NO_PYTHON = 255, 91, 92
"""Exit codes: of ssh itself if it does not reach the machine, and of a machine that lacks the job's folder or its Python."""
TRIED_AT_ONCE = 32
"""Number of machines that are tried at a time."""


def write(job: Job) -> dict[str, str]:
    """Return the script: the client starts the workers by ssh; they end when its scheduler ends."""
    called = shlex.quote(shlex.join(["bash", str(job.files.script), "worker"]))
    launch = "\n".join(
        f'{shlex.join([*SSH, host])} {called} </dev/null >>"$job/workers.log" 2>&1 &' for host in _turns(job)
    )
    return {job.files.script.name: script(job, launch=launch, tries=1)}


def _turns(job: Job) -> list[str]:
    """Return the machine of each worker."""
    hosts = cast(SshSettings, job.settings).hosts
    return [hosts[k % len(hosts)] for k in range(job.workers or 0)]


def submit(job: Job) -> str:
    """Try every machine and start the client in the background; return host:pid."""
    host = cast(SshSettings, job.settings).hosts[0]
    _try_machines(host, list(dict.fromkeys(_turns(job))), job)
    # Marked, as the start files of a shell may print something too.
    started = f"nohup bash {shlex.quote(str(job.files.script))} </dev/null >/dev/null 2>&1 & echo dkl-job=$!"
    said = answer([*SSH, host, started]).stdout
    numbers = re.findall(r"dkl-job=(\d+)\s*$", said, flags=re.MULTILINE)
    if not numbers:
        raise ResourceError("gave no number of a process", where=f"ssh {host}", got=repr(said.strip()[-100:]))
    return f"{host}:{numbers[-1]}"


def _try_machines(first: str, others: list[str], job: Job) -> None:
    """Raise ResourceError for a machine that cannot do its part, reached as the job will reach it."""
    # On a shared file system what has just been written may be seen a moment later.
    look = f"until test -r {shlex.quote(str(job.files.script))}"
    check = f"n=0; {look}; do [ $n -lt {int(LATE_SECONDS)} ] || exit {UNSEEN}; n=$((n+1)); sleep 1; done"
    if not job.settings.setup:  # else its lines may bring it
        check += f"; command -v {shlex.quote(job.settings.python)} >/dev/null || exit {NO_PYTHON}"
    check = shlex.join(["sh", "-c", check])
    _try(first, "this machine", [*SSH, first, check], job)
    with ThreadPoolExecutor(TRIED_AT_ONCE) as pool:
        list(pool.map(lambda one: _try(one, first, [*SSH, first, shlex.join([*SSH, one, check])], job), others))


def _try(host: str, source: str, command: list[str], job: Job) -> None:
    done = answer(command, accept=(0, NOT_THERE, UNSEEN, NO_PYTHON))
    where, said = f"ssh {host}", done.stderr.strip()[-300:]
    if done.returncode == NOT_THERE:
        remedy = f"have {host} let {source} in without a password (ssh-copy-id), or leave it out of `hosts`"
        raise ResourceError(f"cannot be reached from {source}", where=where, got=said or None, remedy=remedy)
    if done.returncode == UNSEEN:
        remedy = f"mount its file system at the same path there, or leave {host} out of `hosts`"
        raise ResourceError("does not see the job's folder", where=where, wanted=job.files.folder, remedy=remedy)
    if done.returncode == NO_PYTHON:
        raise ResourceError(
            "has no such Python", where=where, got=job.settings.python, remedy="see `python:`, `setup:`"
        )


def state(job: JobRecord) -> State:
    """Return RUNNING if the client's process exists and is a job's script, as its id may be reused."""
    host, _, number = job.id.rpartition(":")
    done = answer([*SSH, host, f"ps -ww -o args= -p {int(number)}"], accept=(0, 1))
    runs = re.search(rf"bash .*/{re.escape(job.files.script.name)}$", done.stdout.rstrip())
    return State.RUNNING if runs else State.ENDED


def reason(job: JobRecord) -> str:
    """Return nothing: here no job waits."""
    return ""


def cancel(job: JobRecord, *, now: bool) -> None:
    """Kill the client's process: by SIGTERM, or by SIGKILL if `now`."""
    if state(job) is State.RUNNING:
        host, _, number = job.id.rpartition(":")
        answer([*SSH, host, f"kill -{'KILL' if now else 'TERM'} {int(number)}"], accept=(0, 1))
