"""Trials with configurations and manifests of runs that are changed at random; what tests/support/faults/trials.py runs many of.

The base folder is that of `hostile_runs_trials.make_runs`.
"""

from __future__ import annotations

import random
import sys
import time
from pathlib import Path

import hostile_runs_trials as runs
import mutations
from command_line import call
from hostile_trials import aside, told

SLOW = 5.0
"""Seconds of the processor after which an answer is taken to hang."""


def configured(spec: tuple[str, str, str, int]) -> str:
    """(base, case, state, seed): config.json in other bytes, or of another value and well sealed; `info` in both forms."""
    base, name, state, seed = spec
    rng = random.Random(f"config {name} {state} {seed}")
    with aside(base) as work:
        run = runs.copied(base, name, state, work)
        return _asked(run, run / "config.json", rng, ("info", run), ("info", "--json", run))


def described(spec: tuple[str, str, str, int]) -> str:
    """(base, case, state, seed): any manifest or metadata of the run in other bytes; `info`, and use of what was learned."""
    base, name, state, seed = spec
    rng = random.Random(f"manifest {name} {state} {seed}")
    with aside(base) as work:
        run = runs.copied(base, name, state, work)
        named = ("MANIFEST.json", "zarr.json", "report.json", "done.json")
        file = rng.choice([path for path in mutations.files_in(run) if path.name in named])
        use = (runs.CASES[name].verb, run, "--data", Path(base, "X.npz"), "--out", work / "applied.npy")
        return _asked(run, file, rng, ("info", run), use, ("resume", run, "--threads", "1"))


def _asked(run: Path, file: Path, rng: random.Random, *commands: tuple[object, ...]) -> str:
    """The worst of what the commands answer to the changed file."""
    if rng.random() < 0.5:
        change = mutations.reworded_json(file, rng, sealed=file.name != "zarr.json")
    else:
        change = "bytes"
        file.write_bytes(mutations.mutate_bytes(file.read_bytes(), rng))
    found = []
    for command in commands:
        start = time.process_time()
        answer = call(*command)
        came = told(answer, may=runs.MAY)
        found.append("slow!" if time.process_time() - start > SLOW else came)
        if found[-1].endswith("!"):
            print(file.relative_to(run), change, command, answer.err[-500:], file=sys.stderr)
            return found[-1]
    return "refused" if any(one not in ("exit 0", "exit 3") for one in found) else "read"
