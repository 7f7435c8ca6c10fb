"""Many hostile trials in few processes: each with an end to its memory and time, and a table of what came of them.

A trial is a function of a spec, which is small and says all (names and seeds), so that a failure can be replayed by itself.
Trials run in processes forked from a preloaded one, many in each; the one that dies or hangs costs its process alone.
"""

from __future__ import annotations

import json
import resource
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import small_blocks
from preloaded import FORKS, begin_server

MUCH = 700_000_000
"""Bytes that no trial may add to its process."""
NET = 3_000_000_000
"""Bytes of addresses beyond which the system refuses: for the machine's sake."""
CPU_SECONDS, WALL_SECONDS = 60.0, 300
"""After which a trial is taken to hang: by its own work, or by waiting."""
BATCH = 100
"""Trials in a process."""

Spec = tuple[Any, ...]
Trial = Callable[[Spec], str]


@dataclass(frozen=True)
class Outcome:
    """told: what the trial returned, or how its process ended; bytes: what it added to its process, at most."""

    spec: Spec
    told: str
    bytes: int = 0

    @property
    def is_bad(self) -> bool:
        """A trial ends what should not be in "!"; the rest is of the process, or an exception."""
        return self.told.endswith(("!", "Error", "hang")) or self.told.startswith("died")

    @property
    def is_large(self) -> bool:
        return self.bytes > MUCH


def run(trial: str, specs: Sequence[Spec], batch: int = BATCH) -> list[Outcome]:
    """The outcomes of `module.function` at all specs, in their order."""
    found: list[Outcome] = []
    while len(found) < len(specs):
        found += _batch(trial, specs[len(found) : len(found) + batch])
    return found


def table(outcomes: Iterable[Outcome], group: Callable[[Spec], str]) -> str:
    """Groups by outcomes, with sums."""
    counts: dict[str, Counter[str]] = {}
    for outcome in outcomes:
        for name in (group(outcome.spec), "all"):
            counts.setdefault(name, Counter())[outcome.told] += 1
    columns = sorted(counts.get("all", ()))
    width = max([9, *map(len, columns)]) + 2
    lines = [f"{'':<24}" + "".join(f"{name:>{width}}" for name in [*columns, "all"])]
    for name in [*sorted(counts.keys() - {"all"}), "all"]:
        cells = [counts[name][column] for column in columns]
        lines.append(f"{name:<24}" + "".join(f"{count:>{width}}" for count in [*cells, sum(cells)]))
    return "\n".join(lines)


def _batch(trial: str, specs: Sequence[Spec]) -> list[Outcome]:
    """Those of one process, up to the one that ended it."""
    with tempfile.NamedTemporaryFile("r", prefix="dkl-trials-") as results:
        begin_server()
        process = FORKS.Process(target=_work, args=(trial, list(specs), results.name))
        process.start()
        try:
            process.join()
        finally:
            process.kill()
        lines = [json.loads(line) for line in results]
    found = [Outcome(spec, told, added) for spec, (told, added) in zip(specs, lines, strict=False)]
    if len(found) < len(specs):
        signalled = -(process.exitcode or 0) in (signal.SIGPROF, signal.SIGALRM)
        told = "hang" if signalled else f"died of {process.exitcode}"
        found.append(Outcome(specs[len(found)], told))
    return found


def _work(trial: str, specs: list[Spec], results: str) -> None:
    module, _, name = trial.rpartition(".")
    function: Trial = getattr(import_module(module), name)
    small_blocks.make_small(small_blocks.set_by_name)
    resource.setrlimit(resource.RLIMIT_AS, (_status("VmSize") + NET, -1))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with open(results, "a", encoding="utf-8") as file:
        for spec in specs:
            signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
            signal.alarm(WALL_SECONDS)
            Path("/proc/self/clear_refs").write_text("5")  # the peak is of this trial
            before = _status("VmRSS")
            try:
                told = function(spec)
            except Exception as error:
                told = f"{type(error).__name__}"
                print(spec, error, file=sys.stderr)
            file.write(json.dumps([told, max(0, _status("VmHWM") - before)]) + "\n")
            file.flush()


def _status(name: str) -> int:
    """Bytes, of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))
