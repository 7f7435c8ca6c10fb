"""Trials with disks that are full from a write on that is drawn at random; what tests/support/faults/trials.py runs many of.

The base folder is that of `hostile_runs_trials.make_runs`.
"""

from __future__ import annotations

import errno
import os
import random
import shutil
import sys
from pathlib import Path

import hostile_runs_trials as runs
import pytest
import small_blocks
from command_line import Answer, call
from hostile_trials import aside, told


def filled(spec: tuple[str, str, int]) -> str:
    """(base, case, seed): exit 5 and one line, and once there is room resumed to the same bytes; or what was wrong."""
    base, name, seed = spec
    case, count = runs.CASES[name], int(Path(base, name, "writes").read_text())
    at = random.Random(f"{name} {seed}").randint(1, count)
    with aside(base) as work:
        for path in Path(base).glob("*.*"):
            shutil.copy(path, work)
        given = ["fit", *case.given, "--data", case.data, "--no-picture", "--threads", "1", "--out", "run.zarr"]
        if name in runs.LIMITED:
            given += ["--memory-limit", Path(base, name, "limit").read_text()]
        answer = _without_room(given, at)
        wrong = _wrong(answer)
        begun = Path("run.zarr", "config.json").exists()
        again = (
            answer if answer.code in (0, 3) else call("resume", "run.zarr", "--threads", "1") if begun else call(*given)
        )
        if not wrong and again.code not in (0, 3):
            wrong = "not resumed!"
        if not wrong and runs.learned(Path("run.zarr"), name) != runs.learned(Path(base, name, "complete.zarr"), name):
            wrong = "other bytes!"
    if wrong:
        print(spec, at, wrong, answer.err[-500:], again.code, again.err[-500:], file=sys.stderr)
    return wrong or (
        "needed no more" if answer.code in (0, 3) else "exit 5, resumed" if begun else "exit 5, begun anew"
    )


def _without_room(given: list[str], at: int) -> Answer:
    """The command's answer where the disk takes nothing from write `at` on."""
    with pytest.MonkeyPatch.context() as patch:
        small_blocks.Writes(patch.setattr, _full, at)
        return call(*given)


def _full() -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _wrong(answer: Answer) -> str:
    found = told(answer, may=(0, 3, 5))
    if found.endswith("!"):
        return found
    return "no reason!" if answer.code == 5 and "No space left on device" not in answer.err else ""
