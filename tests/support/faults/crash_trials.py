"""Trials with commands that die at a call which changes the disk, and are resumed; what tests/support/faults/trials.py runs many of.

Two specs a trial, ("dies", ...) and ("resumed", ...), as the first one takes its process with it. The base folder is that of
`hostile_runs_trials.make_inputs`.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hostile_runs_trials as runs
import small_blocks
from command_line import call
from disturbed_runs import LEFT
from hostile_trials import told

NAMES = ("rename", "replace", "mkdir", "unlink", "remove", "rmdir")
GOLDEN = 0.6180339887498949
STATES = "generations/*", "sums/sums-*", "alphas/alphas-*", "path/path-*", "engine/engine-*"


class Calls(small_blocks.Writes):
    """Also of the calls that change names; each is made or not, nothing of it is half done."""

    def __init__(self, patch: Callable[[Any, str, Any], None], then: Callable[[], None], at: int | None = None) -> None:
        super().__init__(patch, then, at)
        for name in NAMES:
            patch(os, name, self._named(getattr(os, name)))

    def _named(self, real: Any) -> Any:
        def changing(*arguments: Any, **keywords: Any) -> Any:
            self._take()
            return real(*arguments, **keywords)

        return changing


def place_of(seed: int, count: int) -> int:
    """The call, from 1 to count, at which trial `seed` dies: any number of trials in a row lie about evenly."""
    return 1 + int(count * ((0.5 + seed * GOLDEN) % 1))


def calls(spec: tuple[str, str]) -> str:
    """(base, case): an undisturbed run in base/<case>/undisturbed.zarr; how many calls it makes."""
    return _fit(*spec, "undisturbed", None)


def disturbed(spec: tuple[str, str, str, int, int]) -> str:
    """("dies" or "resumed", base, case, seed, calls): died there; or what came of it in the end."""
    what, base, name, seed, count = spec
    if what == "dies":
        return _fit(base, name, str(seed), place_of(seed, count))
    out = Path(base, name, f"{seed}.zarr")
    states = max(len(list(out.glob(pattern))) for pattern in STATES)
    begun = (out / "config.json").exists()
    os.chdir(base)
    answer = call("resume", out, "--threads", "1") if begun else call(*_given(name, base), "--out", out)
    found = told(answer, may=(0, 3))
    left = [path.name for pattern in LEFT for path in out.glob(pattern)]
    if found.endswith("!"):
        print(spec, answer.err, file=sys.stderr)
    elif left:
        found = "left behind!"
    else:
        same = runs.learned(out, name) == runs.learned(Path(base, name, "undisturbed.zarr"), name)
        found = f"{states} states, {'resumed' if begun else 'begun anew'}" if same else "other bytes!"
    shutil.rmtree(out)
    return found


def _given(name: str, base: str) -> list[str]:
    case = runs.CASES[name]
    given = ["fit", *case.given, "--data", case.data, "--no-picture", "--threads", "1"]
    limit = ["--memory-limit", Path(base, name, "limit").read_text()] if name in runs.LIMITED else []
    return given + limit


def _fit(base: str, name: str, out: str, at: int | None) -> str:
    os.chdir(base)
    made = Calls(setattr, (lambda: os.kill(os.getpid(), signal.SIGKILL)) if at else lambda: None, at)
    answer = call(*_given(name, base), "--out", Path(base, name, f"{out}.zarr"))
    assert answer.code in (0, 3), answer.err
    return str(made.count)
