"""Interface to a batch system for jobs, and calls of its commands."""

from __future__ import annotations

import importlib
import subprocess
import time
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, Protocol

from dkl.errors import ResourceError
from dkl.runs.echo import echo
from dkl.runs.jobs.job import Job, JobRecord

COMMAND_SECONDS = 120
"""Seconds for a command of the system to answer."""


PATIENCE_SECONDS = 600.0
"""Seconds for which a system without an answer is asked again about a job that is waited for.
The job itself needs no answer."""


class State(Enum):
    """State of a job, as its system reports it."""

    WAITING = "waiting"
    RUNNING = "running"
    ENDED = "ended"


class System(Protocol):
    """Interface of a system's module: `write`, `submit`, `state`, `reason` and `cancel`.
    Each raises ResourceError where the system refuses."""

    def write(self, job: Job) -> dict[str, str]:
        """Return the files that the system needs in the job's folder; InputError for a job that it cannot run."""

    def submit(self, job: Job) -> str:
        """Submit what was written; return the system's id of the job."""

    def state(self, job: JobRecord) -> State:
        """Return the state of the job."""

    def reason(self, job: JobRecord) -> str:
        """Return why a job waits, in the system's words; "" where it says nothing."""

    def cancel(self, job: JobRecord, *, now: bool) -> None:
        """Ask a job to commit and end, or kill it if `now`; do nothing if it has ended."""


def system(name: str) -> System:
    """Import and return the module of a system."""
    found: Any = importlib.import_module(f"dkl.runs.jobs.{name}")
    module: System = found
    return module


class Inquiry:
    """Repeated requests about one job, some of which may fail: a controller restarts, a network is down."""

    def __init__(self, host: System, job: JobRecord) -> None:
        self._host, self._job = host, job
        self._unanswered_since: float | None = None

    def state(self) -> State | None:
        """Return the state of the job; None if the system gives no answer now, which is said once.

        Raises ResourceError if it has given none for PATIENCE_SECONDS.
        """
        try:
            found = self._host.state(self._job)
        except ResourceError as error:
            if isinstance(error.__cause__, FileNotFoundError):  # no such command: asking again is of no use
                raise
            self._bear(error)
            return None
        if self._unanswered_since is not None:
            echo(f"note: {self._job.system} answers again", err=True)
        self._unanswered_since = None
        return found

    def _bear(self, error: ResourceError) -> None:
        limit = f"{PATIENCE_SECONDS:g} s"
        if self._unanswered_since is None:
            self._unanswered_since = time.monotonic()
            echo(f"note: {error}; the job may go on, asking again for up to {limit}", err=True)
        elif time.monotonic() - self._unanswered_since >= PATIENCE_SECONDS:
            name = f"{self._job.system} {self._job.id}"
            remedy = "the job may go on: `dkl status` asks for it, once the system answers"
            raise ResourceError(f"no answer for {limit}", where=name, got=str(error), remedy=remedy) from error


def answer(
    command: Sequence[str], *, accept: tuple[int, ...] = (0,), environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command of the system; raise ResourceError if it is missing or ends with another code."""
    name = command[0]
    try:
        done = subprocess.run(
            list(command),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS,
            check=False,
            env=environment,
        )
    except FileNotFoundError as error:
        remedy = "submit where the batch system's commands are"
        raise ResourceError("not found", where=name, wanted="a command", remedy=remedy) from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ResourceError("gave no answer", where=name, got=error) from error
    if done.returncode not in accept:
        raise ResourceError("refused", where=name, got=(done.stderr or done.stdout).strip()[:300] or done.returncode)
    return done
