"""Runs of every learner's command, disturbed, resumed where they ended, and compared with undisturbed ones, byte by byte."""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import hostile_runs_trials as runs
import psutil
import small_blocks
from disturbances import Running
from network_hosts import enter
from patience import PATIENCE
from preloaded import Forked
from separate_cluster import Cluster, family, strike

from dkl.blocks.kernels.column_plan import WORKER_EXTRA
from dkl.blocks.memory_plan import WORKER_SHARE

DONE = (0, 3)
RESUMES = 20
GONE_SECONDS = 15.0
"""Within this what a command has started is gone once it has ended."""
LEFT = ("scratch-*", "*.partial", "*/tmp-*", "*/del-*")
"""What no run that is complete may have."""


@dataclass(frozen=True)
class Undisturbed:
    learned: dict[str, bytes]
    seconds: float


@dataclass
class Trial:
    """told: what came of it. codes: of each command. answer: seconds from the last hit to the end of the command that it met."""

    name: str
    seed: int
    told: str = ""
    hits: int = 0
    codes: list[int | None] = field(default_factory=list)
    seconds: float = 0.0
    quiet: float = 0.0
    answer: float = 0.0

    @property
    def is_good(self) -> bool:
        return self.told == "same bytes"


def within() -> None:
    """`dkl` in small blocks on a host: sys.argv as of `small_blocks.main`, before it the host's process."""
    enter(int(sys.argv.pop(1)))
    small_blocks.main()


class Runs:
    """place: "threads", "own" workers, or "cluster". base: where inputs are, and the current folder."""

    def __init__(self, base: Path, place: str, cluster: Cluster | None = None) -> None:
        self.base, self.place, self.cluster = base, place, cluster
        self.known: dict[str, Undisturbed] = {}

    def options(self) -> tuple[str, ...]:
        if self.cluster is not None:
            return self.cluster.options
        return ("--threads", "1") if self.place == "threads" else ("--workers", "2")

    def command(self, name: str, out: Path, *, resumes: bool) -> Forked:
        """`dkl fit`, or `dkl resume`, of a case."""
        case = runs.EVERY[name]
        given = ["resume", str(out)] if resumes else ["fit", *case.given, "--data", case.data, "--out", str(out)]
        if not resumes:
            given += ["--no-picture", *(["--memory-limit", self._limit(name)] if name in runs.LIMITED else [])]
        host = self.cluster.hosts.pids[0] if self.cluster is not None and self.cluster.hosts is not None else 0
        return Forked(within, str(host), "0", *given, *self.options())

    def _limit(self, name: str) -> str:
        """Too little for the Gram matrix in memory; of workers more, as each takes more before it holds anything, and of a limit
        of its own only a part."""
        bytes_ = int((self.base / name / "limit").read_text())
        if self.place == "threads":
            return str(bytes_)
        return str(int((bytes_ + WORKER_EXTRA) / (WORKER_SHARE if self.place == "own" else 1.0)))

    def undisturbed(self, name: str) -> Undisturbed:
        """A run of the case in the same place."""
        if name not in self.known:
            out = self.base / f"{self.place} {name}.zarr"
            for _ in range(2):  # the first one loads what is compiled
                shutil.rmtree(out, ignore_errors=True)
                start = time.monotonic()
                process = self.command(name, out, resumes=False)
                _, err = process.communicate(PATIENCE)
                assert process.returncode in DONE, err
            self.known[name] = Undisturbed(runs.learned(out, name), time.monotonic() - start)
        return self.known[name]

    def trial(
        self, name: str, seed: int, disturb: Callable[[Running], None], *, times: int, told: Sequence[int]
    ) -> Trial:
        """One run, its first `times` commands disturbed, resumed until it has ended; told: what one that was hit may exit with."""
        if self.cluster is not None:
            self.cluster.start()
        quiet = self.undisturbed(name)
        rng, trial = random.Random(f"{disturb.__name__} {self.place} {name} {seed}"), Trial(name, seed)
        out, start = Path(tempfile.mkdtemp(dir=self.base), "run.zarr"), time.monotonic()
        while not trial.told and len(trial.codes) < RESUMES:
            process = self.command(name, out, resumes=(out / "config.json").exists())
            running = Running(process, out, self.cluster, rng, quiet.seconds)
            if len(trial.codes) < times:
                disturb(running)
            trial.told = self._ended(running, trial, told)
            if self.cluster is not None:
                self.cluster.start()
        trial.seconds, trial.quiet = time.monotonic() - start, quiet.seconds
        if trial.told == "ended":
            trial.told = self._compared(name, out, quiet)
        shutil.rmtree(out.parent)
        return trial

    def _ended(self, running: Running, trial: Trial, told: Sequence[int]) -> str:
        """ "ended", what was wrong, or nothing where the run has to be resumed."""
        process, err = running.process, ""
        trial.hits += running.hits
        try:
            _, err = process.communicate(PATIENCE)
        except subprocess.TimeoutExpired:
            strike(family(process.pid), signal.SIGKILL)
            with suppress(subprocess.TimeoutExpired):
                process.communicate(PATIENCE)
            return "hung"
        trial.codes.append(process.returncode)
        if running.at is not None:
            trial.answer = max(trial.answer, time.monotonic() - running.at)
        _, left = psutil.wait_procs(running.kin, timeout=GONE_SECONDS)
        if left:
            strike(left, signal.SIGKILL)
            return "orphans"
        if process.returncode in DONE:
            return "ended"
        if "Traceback" in err or not running.hits or process.returncode not in told:
            print(f"{trial.name}, seed {trial.seed}: exit {process.returncode}\n{err[-2000:]}", file=sys.stderr)
            return "failed"
        return ""

    def _compared(self, name: str, out: Path, quiet: Undisturbed) -> str:
        left = [path.name for pattern in LEFT for path in out.glob(pattern)]
        if left:
            print(f"{name}: {left}", file=sys.stderr)
            return "left behind"
        return "same bytes" if runs.learned(out, name) == quiet.learned else "other bytes"
