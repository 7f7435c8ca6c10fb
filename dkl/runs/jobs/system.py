"""What a batch system does for a job, and how its commands are called."""

from __future__ import annotations

import importlib
import subprocess
from collections.abc import Sequence
from enum import Enum
from typing import Any, Protocol

from dkl.errors import ResourceError
from dkl.runs.jobs.job import Job, Recorded

COMMAND_SECONDS = 120
"""For a command of the system to answer."""


class State(Enum):
    """Where a job stands, as its system sees it."""

    WAITING = "waiting"
    RUNNING = "running"
    ENDED = "ended"


class System(Protocol):
    """A module a system: `write`, `submit`, `state` and `cancel`. Each raises ResourceError where the system refuses."""

    def write(self, job: Job) -> dict[str, str]:
        """What the job's folder holds for the system, by file name; InputError for what it cannot run."""

    def submit(self, job: Job) -> str:
        """Hand over what was written; what the system calls the job."""

    def state(self, job: Recorded) -> State:
        """Where the job stands."""

    def cancel(self, job: Recorded, *, now: bool) -> None:
        """Ask a job to commit and end, or (now) end it; nothing where it has ended."""


def system(name: str) -> System:
    """The module of a system."""
    found: Any = importlib.import_module(f"dkl.runs.jobs.{name}")
    module: System = found
    return module


def answer(command: Sequence[str], *, accept: tuple[int, ...] = (0,)) -> subprocess.CompletedProcess[str]:
    """A command of the system, ended. Raises ResourceError where it is not there, or ends with another code."""
    name = command[0]
    try:
        done = subprocess.run(
            list(command),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS,
            check=False,
        )
    except FileNotFoundError as error:
        remedy = "submit where the batch system's commands are"
        raise ResourceError("not found", where=name, wanted="a command", remedy=remedy) from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ResourceError("gave no answer", where=name, got=error) from error
    if done.returncode not in accept:
        raise ResourceError("refused", where=name, got=(done.stderr or done.stdout).strip()[:300] or done.returncode)
    return done
