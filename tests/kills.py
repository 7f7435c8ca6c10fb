"""Kills at random moments, and the table of what came of them: ended or resumed, to the bytes of an undisturbed run.

python tests/kills.py --kind tree --count 300           # the whole process tree of a run by SIGKILL, up to three times a run
python tests/kills.py --kind worker --count 120         # a worker that a nanny starts again
python tests/kills.py --kind bare --count 30            # a worker that nobody starts again: another one comes
python tests/kills.py --kind scheduler --count 20       # the scheduler of a cluster
python tests/kills.py --kind pause --count 30           # a worker by SIGSTOP, for a second

`--seconds` ends it after so long, `--cases` names some of the cases. What is not the same ends it with status 1.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import hostile_runs_trials as runs
import psutil
import small_blocks
from patience import PATIENCE
from preloaded import Forked

from dkl.blocks.column_plan import WORKER_EXTRA

KINDS = ("tree", "worker", "bare", "scheduler", "pause")
DISTURBED = 3
"""Kills of a tree in one run, at most."""
PAUSE = 1.0
"""Seconds."""


# -- a cluster of forked processes --------------------------------------------------------------------------------------


def serve() -> None:
    """sys.argv: "scheduler" and the file for its address; "worker" or "nanny" and the address."""
    asyncio.run(_serve(sys.argv[1], sys.argv[2]))


async def _serve(what: str, where: str) -> None:
    import dask
    from distributed import Nanny, Scheduler, Worker

    dask.config.set({"distributed.worker.daemon": False})
    given: dict[str, Any] = {"host": "127.0.0.1", "dashboard_address": "127.0.0.1:0"}
    if what == "scheduler":
        server: Any = Scheduler(port=0, **given)
    else:
        made: Any = Nanny if what == "nanny" else Worker
        server = made(where, nthreads=1, local_directory=tempfile.mkdtemp(dir=os.getcwd()), **given)
    async with server:
        if what == "scheduler":
            Path(where + ".partial").write_text(server.address)
            Path(where + ".partial").rename(where)
        await server.finished()


@dataclass
class Cluster:
    """A scheduler and two workers, each in a process of its own, or below its nanny."""

    has_nannies: bool
    address: str = ""
    scheduler: Any = None
    workers: list[Any] = field(default_factory=list)

    def start(self) -> None:
        """Those that are not there."""
        if self.scheduler is None or self.scheduler.poll() is not None:
            self.stop()
            file = Path(tempfile.mkdtemp(dir=Path.cwd()), "address")
            self.scheduler = Forked(serve, "scheduler", str(file))
            _wait(file.exists)
            self.address = file.read_text()
        self.workers = [worker for worker in self.workers if worker.poll() is None]
        while len(self.workers) < 2:
            self.workers.append(Forked(serve, "nanny" if self.has_nannies else "worker", self.address))

    def victims(self) -> list[psutil.Process]:
        """The processes that compute."""
        found = []
        for worker in self.workers:
            process = psutil.Process(worker.pid)
            found += (
                [child for child in process.children() if "resource_tracker" not in " ".join(child.cmdline())]
                if self.has_nannies
                else [process]
            )
        return found

    def stop(self) -> None:
        """All of them."""
        for one in [*self.workers, *([] if self.scheduler is None else [self.scheduler])]:
            _kill_tree(one.pid)
            one.communicate(PATIENCE)
        self.workers, self.scheduler = [], None


def _kill_tree(pid: int) -> None:
    """SIGKILL to a process that was started here and to all below it, at once."""
    try:
        top = psutil.Process(pid)
        processes = [top, *top.children(recursive=True)]
    except psutil.NoSuchProcess:
        return
    for process in processes:
        _signal(process, signal.SIGKILL)


def _signal(process: psutil.Process, number: int) -> bool:
    try:
        process.send_signal(number)
    except psutil.NoSuchProcess:
        return False
    return True


def _wait(until: Callable[[], Any], process: Any = None, seconds: float = PATIENCE) -> bool:
    """Whether it came; False where the process ended before."""
    deadline = time.monotonic() + seconds
    while not until():
        if process is not None and process.poll() is not None:
            return False
        if time.monotonic() > deadline:
            raise TimeoutError("it hangs")
        time.sleep(0.005)
    return True


# -- runs ---------------------------------------------------------------------------------------------------------------


@dataclass
class Undisturbed:
    learned: dict[str, bytes]
    seconds: float


class Battery:
    """Runs of one kind of kill. base: where inputs and references are; rng: what is drawn, in order."""

    def __init__(self, kind: str, base: Path, rng: random.Random) -> None:
        self.kind, self.base, self.rng = kind, base, rng
        self.cluster = None if kind == "tree" else Cluster(kind == "worker")
        self.known: dict[str, Undisturbed] = {}
        self.counts: dict[str, Counter[str]] = {}

    def command(self, name: str, out: Path, *, resumes: bool) -> Forked:
        """`dkl fit`, or `dkl resume`, of a case."""
        place = ["--threads", "1"] if self.cluster is None else ["--scheduler", self.cluster.address]
        case = runs.CASES[name]
        given = ["resume", str(out)] if resumes else ["fit", *case.given, "--data", case.data, "--out", str(out)]
        if not resumes:
            given += ["--no-picture", *(["--memory-limit", self.limit(name)] if name in runs.LIMITED else [])]
        return Forked(small_blocks.main, "0", *given, *place)

    def limit(self, name: str) -> str:
        """Too little for the Gram matrix in memory; of workers more, as each takes more before it holds anything."""
        bytes_ = int((self.base / name / "limit").read_text())
        return str(bytes_ if self.cluster is None else bytes_ + WORKER_EXTRA)

    def reference(self, name: str) -> Undisturbed:
        """An undisturbed run of the case, in the same place."""
        if name not in self.known:
            out = self.base / f"reference {self.kind} {name}.zarr"
            for _ in range(2):  # the first one loads what is compiled
                shutil.rmtree(out, ignore_errors=True)
                start = time.monotonic()
                process = self.command(name, out, resumes=False)
                _, err = process.communicate(PATIENCE)
                assert process.returncode in (0, 3), err
            self.known[name] = Undisturbed(runs.learned(out, name), time.monotonic() - start)
        return self.known[name]

    def run(self, name: str) -> None:
        """One run, disturbed, to its end; counted."""
        if self.cluster is not None:
            self.cluster.start()
        reference, counts = self.reference(name), self.counts.setdefault(name, Counter())
        out = Path(tempfile.mkdtemp(dir=self.base), "run.zarr")
        process, resumed = self.command(name, out, resumes=False), 0
        for attempt in range(20):
            if attempt < (DISTURBED if self.kind == "tree" else 1):
                is_gone = not _wait(_after(self.rng.uniform(0, reference.seconds)), process)
                counts["kills"] += not is_gone and self.disturb(process)
            try:
                _, err = process.communicate(PATIENCE)
            except Exception:
                _kill_tree(process.pid)
                counts["hung"] += 1
                return
            if process.returncode in (0, 3):
                break
            if process.returncode not in (-signal.SIGKILL, 4, 5):
                print(name, process.returncode, err[-400:], file=sys.stderr)
                counts["failed"] += 1
                return
            resumed += 1
            if self.cluster is not None:
                self.cluster.start()
            process = self.command(name, out, resumes=(out / "config.json").exists())
        same = out.exists() and runs.learned(out, name) == reference.learned
        counts["resumed" if resumed else "ended"] += 1
        counts["same bytes" if same else "other bytes"] += 1
        shutil.rmtree(out.parent)

    def disturb(self, process: Forked) -> bool:
        """Whether anything was hit."""
        if self.cluster is None:
            _kill_tree(process.pid)
            return True
        if self.kind == "scheduler":
            return _signal(psutil.Process(self.cluster.scheduler.pid), signal.SIGKILL)
        victims = self.cluster.victims()
        if not victims:
            return False
        victim = self.rng.choice(victims)
        if self.kind != "pause":
            hit = _signal(victim, signal.SIGKILL)
            if self.kind == "bare":
                _wait(lambda: not psutil.pid_exists(victim.pid) or victim.status() == psutil.STATUS_ZOMBIE)
                self.cluster.start()
            return hit
        hit = _signal(victim, signal.SIGSTOP)
        time.sleep(PAUSE)
        return _signal(victim, signal.SIGCONT) and hit

    def table(self) -> str:
        columns = ("kills", "ended", "resumed", "same bytes", "other bytes", "hung", "failed")
        total: Counter[str] = Counter()
        for counts in self.counts.values():
            total.update(counts)
        lines = [f"{self.kind:<24}" + "".join(f"{name:>13}" for name in columns)]
        for name, counts in [*sorted(self.counts.items()), ("all", total)]:
            lines.append(f"{name:<24}" + "".join(f"{counts[column]:>13}" for column in columns))
        return "\n".join(lines)

    @property
    def kills(self) -> int:
        return sum(counts["kills"] for counts in self.counts.values())

    @property
    def is_good(self) -> bool:
        return not any(counts[name] for counts in self.counts.values() for name in ("other bytes", "hung", "failed"))


def _after(seconds: float) -> Callable[[], bool]:
    then = time.monotonic() + seconds
    return lambda: time.monotonic() >= then


@contextmanager
def battery(kind: str, seed: int, cases: list[str]) -> Iterator[Battery]:
    """In a folder of its own, with the inputs; its cluster ends with it."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory(prefix="dkl-kills-") as folder:
        os.chdir(folder)
        runs.make_inputs(Path(folder), cases)
        made = Battery(kind, Path(folder), random.Random(seed))
        try:
            yield made
        finally:
            if made.cluster is not None:
                made.cluster.stop()
            os.chdir(before)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kind", choices=KINDS, default="tree")
    parser.add_argument("--count", type=int, default=30, help="kills")
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cases", nargs="*", choices=list(runs.CASES), default=list(runs.CASES))
    chosen = parser.parse_args()
    is_late = _after(min(chosen.seconds, 1e9))
    with battery(chosen.kind, chosen.seed, chosen.cases) as made:
        number = 0
        while made.kills < chosen.count and not is_late():
            made.run(chosen.cases[number % len(chosen.cases)])
            number += 1
        print(made.table(), flush=True)
    sys.exit(0 if made.is_good else 1)


if __name__ == "__main__":
    main()
