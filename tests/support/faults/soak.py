"""A fit of very many steps, watched from outside: memory, threads and open files of its processes, and what it has on disk."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import psutil
from patience import PATIENCE
from preloaded import Forked
from separate_cluster import servers_in

WARM = 1000
"""Steps in which a process still loads, compiles and fills what it keeps."""
Samples = dict[int, list[tuple[float, float, int, int]]]


def command() -> None:
    """`dkl` with `sys.argv`."""
    from dkl.cli.main import main

    main()


@dataclass
class Soak:
    """pid: of the command. samples: by process, (steps done, MiB of its own, open files, threads). at: (steps done, seconds).
    states: the most on disk."""

    pid: int
    samples: Samples = field(default_factory=dict)
    at: list[tuple[float, float]] = field(default_factory=list)
    states: int = 0

    def slopes(self) -> dict[int, float]:
        """MiB by a thousand steps, of each process that was there throughout, by least squares after the warm-up."""
        return {pid: 1000 * float(np.polyfit(rows[:, 0], rows[:, 1], 1)[0]) for pid, rows in self._warm().items()}

    def grown(self) -> tuple[int, int]:
        """(open files, threads): the most by which a process's means of the first and the last fifth differ."""
        grown = [(0.0, 0.0)]
        for rows in self._warm().values():
            fifth = max(1, len(rows) // 5)
            first, last = rows[:fifth].mean(axis=0), rows[-fifth:].mean(axis=0)
            grown.append((last[2] - first[2], last[3] - first[3]))
        return round(max(files for files, _ in grown)), round(max(threads for _, threads in grown))

    def pace(self) -> float:
        """Seconds a step in the second half after the warm-up over those in the first."""
        steps, seconds = np.array(self.at).T
        start, half, end = np.interp([WARM, (WARM + steps[-1]) / 2, steps[-1]], steps, seconds)
        return float((end - half) / (half - start))

    def _warm(self) -> dict[int, np.ndarray]:
        last = self.at[-1][0]
        found = {}
        for pid, rows in self.samples.items():
            kept = np.array([row for row in rows if row[0] >= WARM], dtype=float)
            if len(kept) >= 10 and kept[-1, 0] > 0.9 * last:  # not of a child that came and went
                found[pid] = kept
        return found


def soak(given: list[str], out: Path, every: float = 0.25) -> Soak:
    """A command watched until it ends, which commits as it goes to `out`."""
    process = Forked(command, *given)
    found = Soak(process.pid)
    start = time.monotonic()
    while process.poll() is None:
        assert time.monotonic() - start < 20 * PATIENCE
        time.sleep(every)
        steps = _newest(out)
        if steps is None:
            continue
        found.at.append((steps, time.monotonic() - start))
        found.states = max(found.states, len(list(out.glob("generations/*"))))
        for one in {psutil.Process(process.pid), *servers_in(process.pid)} if process.poll() is None else ():
            _sample(one, steps, found.samples)
    _, err = process.communicate(PATIENCE)
    assert process.returncode in (0, 3), err
    return found


def _sample(process: psutil.Process, steps: float, samples: Samples) -> None:
    """Resident memory of its own (RssAnon): pages of files, as of libraries, come and go by what the system thinks of them."""
    try:
        with process.oneshot():
            memory = process.memory_info()
            row = (steps, (memory.rss - memory.shared) / 2**20, process.num_fds(), process.num_threads())
    except (psutil.Error, OSError):  # it has ended
        print(f"{process.pid} has gone", file=sys.stderr)
        return
    samples.setdefault(process.pid, []).append(row)


def _newest(out: Path) -> float | None:
    """The step of the newest commit; None before the first, and where it is replaced at this moment."""
    numbers = [int(path.name[4:]) for path in out.glob("generations/gen-*") if path.name[4:].isdigit()]
    return float(max(numbers)) if numbers else None
