"""kill -9 at random moments: does every run end, or resume, with the bytes of an undisturbed one?

    OMP_NUM_THREADS=1 python -m benchmarks.system.kill                      # 5 trials each of 3 victims in 2 placements
    OMP_NUM_THREADS=1 python -m benchmarks.system.kill --victims scheduler --placements disk --trials 1

A trial is `dkl fit` against a scheduler and two workers (with nannies, as `dask worker` starts them), each a process of
its own on 127.0.0.1. The first of every five victims dies while the graph is built; the others up to half a second after
an iteration that is drawn. A lost worker is the run's own affair. With a lost client, `dkl resume` on the same cluster
has to end the run; with a lost scheduler the client has to end by itself, with exit code 5 and one line, and
`dkl resume` on a new cluster goes on. The status is 1 if any trial went otherwise.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from dkl import Pairs
from dkl.datasets import two_gaussians

VICTIMS, PLACEMENTS = ("worker", "client", "scheduler"), ("memory", "disk")
PATIENCE = 300.0
SCHEDULER_PATIENCE = 60.0
"""Within this a client whose scheduler died has to end."""
LACKS_RESOURCES, NOT_CONVERGED = 5, 3


@contextmanager
def process(log: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """`python -m ...` in a process group of its own, which is ended on leaving."""
    with open(log, "ab") as file:
        started = subprocess.Popen(
            [sys.executable, "-m", *arguments],
            stdout=file,
            stderr=file,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
    try:
        yield started
    finally:
        with suppress(ProcessLookupError):  # all of the group have ended
            os.killpg(started.pid, signal.SIGKILL)
        started.wait()


@dataclass
class Cluster:
    """A scheduler and two workers that somebody else started, as `dkl` sees it."""

    address: str
    scheduler: int
    workers: list[int]


@contextmanager
def cluster(folder: Path) -> Iterator[Cluster]:
    from distributed import Client

    file = Path(tempfile.mkdtemp(dir=folder)) / "scheduler.json"
    log = file.with_name("log")
    local = ("--host", "127.0.0.1", "--no-dashboard")
    serve = ("dask", "scheduler", *local, "--port", "0", "--dashboard-address", ":0", "--scheduler-file", str(file))
    with process(log, *serve) as scheduler:
        address = json.loads(wait_for(file))["address"]
        work = ("--nworkers", "2", "--nthreads", "1", "--death-timeout", "20", "--local-directory", str(file.parent))
        with process(log, "dask", "worker", address, *local, *work):
            with Client(address, timeout=30) as client:
                client.wait_for_workers(2, timeout=60)
                pids = sorted(client.run(os.getpid).values())
            yield Cluster(address, scheduler.pid, pids)


def wait_for(file: Path) -> str:
    """The content of a file, once there is any."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if file.exists() and (text := file.read_text()):
            return text
        time.sleep(0.01)
    raise TimeoutError(f"{file} was never written")


@dataclass(frozen=True)
class Case:
    """A placement, how to ask for it, and how it goes undisturbed."""

    folder: Path
    placement: str
    options: tuple[str, ...]
    graph: float = 0.0
    iterations: int = 0
    digest: str = ""

    def fit(self, run: Path, address: str) -> tuple[str, ...]:
        files = ("--data", f"{self.folder}/X.npz", "--pairs", f"{self.folder}/pairs.npz", "--out", str(run))
        return ("dkl.cli.main", "fit", "pairwise", *files, *self.options, "--scheduler", address)


@dataclass
class Trial:
    """What happened. `faults` is empty where all went as it must."""

    victim: str
    placement: str
    killed_at: int = 0
    commit: int = 0
    repeated: int = 0
    same: bool = False
    outcome: str = ""
    faults: list[str] = field(default_factory=list)

    def line(self) -> str:
        cells = [self.victim, self.placement, self.killed_at, self.commit, self.repeated]
        cells += ["yes" if self.same else "NO", self.outcome + "".join(f"; FAULT: {fault}" for fault in self.faults)]
        return "| " + " | ".join(map(str, cells)) + " |"


HEADER = (
    "| victim | placement | iteration at kill | last commit | repeated | same bytes | outcome |\n"
    "|---|---|---|---|---|---|---|"
)


def digest(run: Path) -> str:
    """sha256 of the factor's chunks, or nothing where there is no complete run."""
    if not (run / "report.json").is_file():
        return ""
    chunks = sorted(path for path in (run / "factor" / "c").rglob("*") if path.is_file())
    return hashlib.sha256(b"".join(path.read_bytes() for path in chunks)).hexdigest()


def events(run: Path) -> list[dict[str, Any]]:
    """The run's log; a line that a crash cut short is left out."""
    rows = []
    for line in (run / "events.jsonl").read_text().splitlines() if (run / "events.jsonl").exists() else []:
        try:
            rows.append(json.loads(line))
        except ValueError:
            continue
    return [row for row in rows if row.get("event") in ("iteration", "commit")]


def undisturbed(case: Case) -> Case:
    """The same case with what is known of a run that nobody disturbs."""
    run = case.folder / f"undisturbed-{case.placement}.zarr"
    with cluster(case.folder) as there, process(case.folder / "log", *case.fit(run, there.address)) as client:
        code = client.wait(PATIENCE)
    assert code == NOT_CONVERGED, (case.folder / "log").read_text()
    report = json.loads((run / "report.json").read_text())
    assert report["plan"]["placement"] == case.placement, report["plan"]
    return replace(case, graph=report["seconds"]["graph"], iterations=report["n_iter"], digest=digest(run))


def moment(run: Path, client: subprocess.Popen[bytes], case: Case, draw: random.Random, *, early: bool) -> None:
    """Wait for a random moment in a run, or for its end."""
    wait_for(run / "config.json")
    if early:
        time.sleep(draw.uniform(0, case.graph))
        return
    iteration, pause = draw.randrange(case.iterations), draw.uniform(0, 0.5)
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline and client.poll() is None and last_iteration(run) < iteration:
        time.sleep(0.005)
    time.sleep(pause)


def last_iteration(run: Path) -> int:
    return max((row["iteration"] for row in events(run)), default=0)


def attempt(case: Case, victim: str, draw: random.Random, name: str, *, early: bool) -> Trial | None:
    """One trial, or None where the run had ended before the moment came."""
    trial = Trial(victim, case.placement)
    run, log = case.folder / f"{name}.zarr", case.folder / f"{name}.log"
    with cluster(case.folder) as there:
        with process(log, *case.fit(run, there.address)) as client:
            moment(run, client, case, draw, early=early)
            if client.poll() is not None:
                assert client.returncode == NOT_CONVERGED, log.read_text()
                return None
            os.kill({"client": client.pid, "scheduler": there.scheduler}.get(victim, draw.choice(there.workers)), 9)
            killed = time.monotonic()
            trial.killed_at = last_iteration(run)
            code = wait(client)
            seconds = time.monotonic() - killed
        trial.outcome = f"exit {code}"
        if victim == "client":
            resume(run, there, log, trial)
    if victim == "scheduler":
        trial.outcome += f" after {seconds:.0f} s"
        answer = log.read_text().splitlines()
        # A client with nothing more to ask of the cluster ends as ever.
        if code == LACKS_RESOURCES:
            if seconds > SCHEDULER_PATIENCE or not answer[-1].startswith("dkl: ") or "Traceback" in log.read_text():
                trial.faults.append(f"{seconds:.0f} s, {answer[-1]}")
        elif code != NOT_CONVERGED:
            trial.faults.append(f"the client: {answer[-1:]}")
        with cluster(case.folder) as there:
            resume(run, there, log, trial)
    elif victim == "worker" and code != NOT_CONVERGED:
        trial.faults.append(log.read_text().splitlines()[-1])
    judge(trial, run, case)
    return trial


def wait(client: subprocess.Popen[bytes]) -> int | str:
    try:
        return client.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        return f"none within {PATIENCE:.0f} s"


def resume(run: Path, there: Cluster, log: Path, trial: Trial) -> None:
    with process(log, "dkl.cli.main", "resume", str(run), "--scheduler", there.address) as client:
        code = wait(client)
    trial.outcome += f", resumed: exit {code}"
    if code not in (0, NOT_CONVERGED):  # 0: it was complete
        trial.faults.append(log.read_text().splitlines()[-1])


def judge(trial: Trial, run: Path, case: Case) -> None:
    """Compare the factor; read from the log where the run went back to, and from where."""
    trial.same = digest(run) == case.digest
    if not trial.same:
        trial.faults.append("another factor")
    done = commit = 0
    for row in events(run):
        if row["event"] == "commit":
            commit = row["iteration"]
            continue
        if row["iteration"] <= done:
            trial.repeated += done - row["iteration"] + 1
            if row["iteration"] <= commit:
                trial.faults.append(f"went back to {row['iteration'] - 1}, behind the commit of {commit}")
        elif row["iteration"] != done + 1:
            trial.faults.append(f"iteration {row['iteration']} after {done}")
        done = row["iteration"]
        if commit <= trial.killed_at:
            trial.commit = commit
    left = [path.name for name in ("scratch-*", "generations/tmp-*", "generations/del-*") for path in run.glob(name)]
    if left:
        trial.faults.append(f"left behind: {', '.join(left)}")


def cases(folder: Path, options: argparse.Namespace) -> Iterator[Case]:
    """The wanted placements, with an undisturbed run each. What memory takes, less a byte, calls for the disk."""
    data = two_gaussians(options.n, 10, random_state=options.seed)
    pairs = Pairs.from_labels(data.y, random_state=options.seed)
    np.savez(folder / "X.npz", X=data.X)
    np.savez(folder / "pairs.npz", must_link=pairs.must_link, cannot_link=pairs.cannot_link)
    size = ("--solver", "admm", "--rank", str(options.rank), "--max-iter", str(options.max_iter), "--tol", "0")
    size += ("--target-gap", "none")  # or a solver that finishes to it: all iterations are ADMM's, and none converges
    chosen = (*size, "--checkpoint-every", str(options.checkpoint_every))
    memory = undisturbed(Case(folder, "memory", chosen))
    if "memory" in options.placements:
        yield memory
    if "disk" in options.placements:
        plan = json.loads((folder / "undisturbed-memory.zarr" / "report.json").read_text())["plan"]
        disk = undisturbed(Case(folder, "disk", (*chosen, "--memory-limit", str(plan["process_bytes"] - 1))))
        assert disk.digest == memory.digest, "out of core and in memory differ"
        yield disk


def main() -> int:
    os.environ["DASK_DKL__WORKERS"] = "always"  # however small the fits
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=5)
    parser.add_argument("--victims", nargs="+", choices=VICTIMS, default=VICTIMS)
    parser.add_argument("--placements", nargs="+", choices=PLACEMENTS, default=PLACEMENTS)
    parser.add_argument("--n", type=int, default=4000)
    parser.add_argument("--rank", type=int, default=240)
    parser.add_argument("--max-iter", type=int, default=100)
    parser.add_argument("--checkpoint-every", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # so that all processes are ended
    faults = 0
    with tempfile.TemporaryDirectory(prefix="dkl-kill-", ignore_cleanup_errors=True) as folder:
        print(HEADER, flush=True)
        for case in cases(Path(folder), options):
            print(f"| none | {case.placement} | | | | | exit {NOT_CONVERGED} |", flush=True)
            for victim in options.victims:
                draw = random.Random(f"{options.seed} {victim} {case.placement}")
                done = drawn = 0
                while done < options.trials:
                    drawn += 1
                    trial = attempt(case, victim, draw, f"{victim}-{case.placement}-{drawn}", early=done % 5 == 0)
                    if trial is None:
                        continue
                    done += 1
                    faults += bool(trial.faults)
                    print(trial.line(), flush=True)
    print(f"{faults} trials with faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
