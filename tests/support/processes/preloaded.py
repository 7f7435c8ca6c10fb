"""Processes that need not import anything, forked from one that has imported it all: the `dkl` command, and workers.

A new Python spends two to three seconds on imports, longer than most runs that tests disturb. What is tested is the same:
a process, in a session of its own, with the default answers to signals, that can be killed at any moment. Workers that a
command starts are started as its users' are.
"""

from __future__ import annotations

import os
import runpy
import shutil
import signal
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Callable
from multiprocessing import forkserver
from pathlib import Path
from unittest.mock import patch

import dask
from distributed.utils import get_mp_context

dask.config.set(
    {
        # Dask then starts the workers of every LocalCluster of a test so, and once sets what is imported: before we do.
        "distributed.worker.multiprocessing-method": "forkserver",
        # A cluster that waits beside other tests looks at itself 50 times a second, and takes an eighth of a processor so.
        "distributed.admin.tick.interval": "1 s",
        "distributed.admin.system-monitor.interval": "10 s",
        "distributed.worker.memory.monitor-interval": "1 s",
        "distributed.worker.profile.enabled": False,
    }
)
FORKS = get_mp_context()
FORKS.set_forkserver_preload(
    [
        "distributed",
        "dkl.cli.main",
        "dkl.runs.pairwise.fit",
        "dkl.runs.pairwise.kind",
        "dkl.runs.regression.kind",
        "dkl.estimators.regression.store",
        "dkl.runs.svm.kind",
        "dkl.estimators.svm.store",
        "sklearn.metrics.pairwise",
        "begun",
    ]
)


def begin_server() -> None:
    """Start the process that others are forked from, unless it runs.

    It imports by PYTHONPATH: not every version of Python heeds the `sys.path` that multiprocessing tells it, to find `begun`.
    """
    folders = [str(folder) for folder in Path(__file__).parents[1].iterdir()]
    places = [*folders, os.environ.get("PYTHONPATH", "")]
    with patch.dict(os.environ, {"PYTHONPATH": os.pathsep.join(filter(None, places))}):
        forkserver.ensure_running()


class Forked:
    """A function with `sys.argv` in a process of its own; as far as tests need it, as `subprocess.Popen` of text."""

    def __init__(self, program: Callable[[], None], *arguments: str) -> None:
        folder = tempfile.mkdtemp(prefix="forked-")
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        self._streams = [str(Path(folder, name)) for name in ("out", "err")]
        for name in self._streams:
            Path(name).touch()
        given = (program, arguments, str(Path.cwd()), dict(os.environ), self._streams)
        begin_server()
        self._process = FORKS.Process(target=_run, args=given)
        self._process.start()
        assert self._process.pid is not None
        self.pid: int = self._process.pid

    @property
    def returncode(self) -> int | None:
        """As Popen's: negative where a signal ended it, None while it runs."""
        return self._process.exitcode

    def poll(self) -> int | None:
        return self.returncode

    def kill(self) -> None:
        self._process.kill()

    def errors(self) -> str:
        """What it has written to stderr so far."""
        return Path(self._streams[1]).read_text()

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """(stdout, stderr) once it has ended; TimeoutExpired if it does not."""
        self._process.join(timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired(" ".join(sys.argv), timeout)
        out, err = (Path(name).read_text() for name in self._streams)
        return out, err


def python() -> None:
    """What a `Forked` runs that is given the path of a script."""
    runpy.run_path(sys.argv[1], run_name="__main__")


def _run(
    program: Callable[[], None],
    arguments: tuple[str, ...],
    folder: str,
    environment: dict[str, str],
    streams: list[str],
) -> None:
    os.setsid()
    # The server of a process whose first use of it was by workers of its own, which never see these, blocks them.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGTERM})
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    for number, name in enumerate(streams, start=1):
        descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(descriptor, number)
        os.close(descriptor)
    sys.argv = ["dkl", *arguments]
    program()
