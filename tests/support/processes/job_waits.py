"""A job that is waited for beside a test, as by `dkl submit ... --wait`."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dkl.errors import DklError
from dkl.runs.jobs import verbs


class Wait:
    """What has become of it: ends: the exit code or the error, once there is one."""

    def __init__(self, run: Path, capfd: Any) -> None:
        self._run, self._capfd, self._printed = run, capfd, ""
        self.ends: list[int | DklError] = []
        self.thread = threading.Thread(target=self._wait, daemon=True)

    def _wait(self) -> None:
        try:
            self.ends.append(verbs.wait(str(self._run)))
        except DklError as error:
            self.ends.append(error)

    def said(self) -> str:
        """Return all that it has printed beside the job's log."""
        self._printed += self._capfd.readouterr().err
        return self._printed


@contextmanager
def waiting_for(run: Path, capfd: Any) -> Iterator[Wait]:
    """A wait for a run's job; it ends with the block, in which the job is to end."""
    wait = Wait(run, capfd)
    wait.thread.start()
    yield wait
    wait.thread.join()
