"""Fits of a sweep's points, started or resumed as processes, and the line of each one's costs."""

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
from typing import IO, TYPE_CHECKING, Any, Self

from dkl.errors import DklError, StoreError
from dkl.runs import registry
from dkl.runs.stored import open_run
from dkl.runs.sweep import results
from dkl.runs.sweep.data import Data
from dkl.runs.sweep.request import CONSTRAINTS, SweepPoint, SweepRequest, place_words, words_of
from dkl.stores.folders import MODE, disk_errors, is_unbegun
from dkl.stores.seals import read_json, write_json

if TYPE_CHECKING:
    from dkl.stores.seals import Json


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
    # -P: no module of the present folder in the place of ours.
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
        # Appended to: what an interrupted attempt printed is kept above. O_NOFOLLOW, as the folder may be open to others.
        descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, MODE)
        # The pipe's end in this process is what the point lives by (cli/point_process.py).
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


INTERRUPTED = 4
TAIL_BYTES = 2000
"""Bytes at the end of a log, in which its last line is looked for."""


def work(point: SweepPoint, request: SweepRequest, data: Data, folder: Path, processes: Processes) -> results.Line:
    """Fit or resume a point in its own process; return the line for the results.

    KeyboardInterrupt where the process was interrupted: its run can be resumed. InputError where another process works on it.
    """
    place = folder / "points" / point.name
    with disk_errors("could not be made", place):
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
    run, attempts = place / "run.zarr", _Attempts(place / "attempts.json")
    words = _words(point, request, data, run)
    attempts.begin()
    # Before the fit: its own threads would count as load after it.
    load, began = os.getloadavg()[0], time.time()
    ended = processes.run(words, place / "log")
    attempts.end(ended)
    if ended.code == INTERRUPTED:
        raise KeyboardInterrupt
    report, broken = _report(run)
    line = {
        "point": point.name,
        "task": request.task,
        "n": point.n,
        "varied": dict(point.varied),
        "repeat": point.repeat,
        "status": _status(ended, report),
        "error": None if report else broken or _last_line(place / "log"),
        **results.of_report(report),
        CONSTRAINTS: request.n_constraints_of(point),
        "asked": request.chosen(point),
        "place": request.placing(point),
        "data": {"made_up": not request.files, "seed": request.data_seed, "files": request.files},
        "disk_bytes": results.folder_bytes(run) if run.is_dir() else None,
        **attempts.costs(),
        "began": round(began, 3),
        "load": load,
        "environment": results.environment(),
    }
    return line


def _words(point: SweepPoint, request: SweepRequest, data: Data, run: Path) -> list[str]:
    """Return the words of `dkl fit`, or of `dkl resume` for an existing run."""
    placing = place_words(request.placing(point))
    if run.exists() and not is_unbegun(run):
        with suppress(StoreError):  # a damaged run says so itself
            # Where another process has the run, this one must say so: the point's own would only leave a result with an error.
            found = open_run(run)
            found.lock()
            found.close()
        return ["resume", str(run), *placing]
    declaration = registry.declaration(request.task)
    files = data.files(point.n, request.n_constraints_of(point))
    named = [word for name, path in files.items() for word in (f"--{name}", path)]
    settings = words_of(declaration, request.chosen(point))
    return ["fit", request.task, "--no-picture", *named, "--out", str(run), *settings, *placing]


def _report(run: Path) -> tuple[Json, str | None]:
    """Return (the run's report or {}, the error in reading it or None)."""
    if not run.exists() or is_unbegun(run):
        return {}, None
    try:
        return open_run(run).report(), None
    except DklError as error:
        return {}, str(error)


def _status(ended: ProcessExit, report: Json) -> int:
    """Return the exit code; that of a damaged store if a process ended well without a report."""
    return ended.code if report else ended.code or StoreError.exit_status


def _last_line(log: Path) -> str | None:
    """Return the last line that a process has printed: its error. None without."""
    try:
        with open(log, "rb") as file:
            # From the end: a log of a long fit has megabytes of progress.
            file.seek(max(0, log.stat().st_size - TAIL_BYTES))
            lines = file.read().decode(errors="replace").split("\n")
    except OSError:
        return None
    return next((line.strip() for line in reversed(lines) if line.strip()), None)


class _Attempts:
    """Costs of the processes of a point, one after the other; None of one whose sweep was killed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.known: list[dict[str, float | None]] = []
        if path.exists():
            with suppress(StoreError, KeyError):
                self.known = list(read_json(path, sealed=True)["attempts"])

    def begin(self) -> None:
        """Record that an attempt begins."""
        self.known.append({"seconds": None, "cpu_seconds": None})
        write_json(self.path, {"attempts": self.known})

    def end(self, ended: ProcessExit) -> None:
        """Record the end of the attempt."""
        self.known[-1] = {"seconds": ended.seconds, "cpu_seconds": ended.cpu_seconds}
        write_json(self.path, {"attempts": self.known})

    def costs(self) -> Json:
        """Return the number of attempts and the sums of their costs; None for a sum of unknown ones."""
        found: Json = {"attempts": len(self.known)}
        for name, key in (("seconds", "process_seconds"), ("cpu_seconds", "cpu_seconds")):
            values = [attempt[name] for attempt in self.known]
            found[key] = None if None in values else sum(value for value in values if value is not None)
        return found
