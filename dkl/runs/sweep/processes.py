"""Processes of points' fits: seconds, processor seconds, exit codes; and signals, which are passed on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import IO, Any, Self

from dkl.stores.private_files import MODE


@dataclass(frozen=True)
class ProcessExit:
    """Exit of a process. code: its exit code, negative for a signal. cpu_seconds: with its workers'."""

    code: int
    seconds: float
    cpu_seconds: float


def start(words: Sequence[str], output: IO[bytes], alive: int) -> subprocess.Popen[bytes]:
    """Start `dkl` with `words` in a new session, so that a terminal's Ctrl-C does not reach it twice.

    alive: the end to read from of a pipe that ends with this process; see dkl/cli/point_process.py.
    """
    command = [sys.executable, "-P", "-m", "dkl.cli.point_process", *words]
    return subprocess.Popen(command, stdin=alive, stdout=output, stderr=output, start_new_session=True)


@contextmanager
def pipe() -> Iterator[tuple[int, int]]:
    """Yield a pipe (end to read from, end to write to), closed at the end, or with this process."""
    ends = os.pipe()
    try:
        yield ends
    finally:
        for end in ends:
            os.close(end)


class Processes:
    """Starts `dkl` one after the other. While it is entered, Ctrl-C and SIGTERM go to the one that runs, which commits what it
    has done; then, or where none runs, KeyboardInterrupt is raised. A second signal is handed on too, and ends it at once.
    """

    def __init__(self) -> None:
        self.signal = ""
        self._is_starting = False
        self._running: int | None = None
        self._before: dict[int, Any] = {}

    def run(self, words: Sequence[str], log: Path) -> ProcessExit:
        """Run `dkl` with these words until it ends; what it prints is appended to `log`."""
        descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, MODE)
        with os.fdopen(descriptor, "ab") as output, pipe() as (alive, _):
            began = time.perf_counter()
            self._is_starting = True
            try:
                process = start(words, output, alive)
                self._running, self._is_starting = process.pid, False
                if self.signal:  # it came before there was a process to hand it to
                    self._send(signal.Signals[self.signal])
                # Not process.wait(), which keeps to itself what the process has used.
                _, status, used = os.wait4(process.pid, 0)
            finally:
                self._running, self._is_starting = None, False
            process.returncode = os.waitstatus_to_exitcode(status)
            return ProcessExit(process.returncode, time.perf_counter() - began, used.ru_utime + used.ru_stime)

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._asked) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _asked(self, number: int, frame: FrameType | None) -> None:
        self.signal = signal.Signals(number).name
        if self._running is not None:
            self._send(number)
        elif not self._is_starting:
            raise KeyboardInterrupt

    def _send(self, number: int) -> None:
        if self._running is not None:
            with suppress(ProcessLookupError):  # it has just ended
                os.kill(self._running, number)
