"""Machines that ssh reaches without asking: the client on the first, workers in turn on all of them."""

from __future__ import annotations

import shlex
from typing import cast

from dkl.errors import ResourceError
from dkl.runs.jobs.job import Job, Recorded
from dkl.runs.jobs.script import script
from dkl.runs.jobs.settings import SshSettings
from dkl.runs.jobs.system import State, answer

SSH = ["ssh", "-o", "BatchMode=yes"]
NOT_THERE = 255
"""The code of ssh itself, where it does not reach the machine."""


def write(job: Job) -> dict[str, str]:
    """The script: the client starts the workers by ssh; they end when its scheduler ends."""
    hosts = cast(SshSettings, job.settings).hosts
    called = shlex.quote(shlex.join(["bash", str(job.files.script), "worker"]))
    turns = [hosts[k % len(hosts)] for k in range(job.workers or 0)]
    launch = "\n".join(f'{shlex.join([*SSH, host])} {called} </dev/null >>"$job/workers.log" 2>&1 &' for host in turns)
    return {job.files.script.name: script(job, launch=launch, tries=1)}


def submit(job: Job) -> str:
    """Start the client in the background; host:pid."""
    host = cast(SshSettings, job.settings).hosts[0]
    started = f"nohup bash {shlex.quote(str(job.files.script))} </dev/null >/dev/null 2>&1 & echo $!"
    number = answer([*SSH, host, started]).stdout.strip()
    if not number.isdigit():
        raise ResourceError("gave no number of a process", where=f"ssh {host}", got=repr(number[:100]))
    return f"{host}:{number}"


def state(job: Recorded) -> State:
    """Whether the client's process is there. Another may have its number since: it must be a job's script."""
    host, _, number = job.id.rpartition(":")
    done = answer([*SSH, host, f"ps -ww -o args= -p {int(number)}"], accept=(0, 1))
    return State.RUNNING if "job.sh" in done.stdout else State.ENDED


def cancel(job: Recorded, *, now: bool) -> None:
    """kill."""
    if state(job) is State.RUNNING:
        host, _, number = job.id.rpartition(":")
        answer([*SSH, host, f"kill -{'KILL' if now else 'TERM'} {int(number)}"], accept=(0, 1))
