"""Disks that are full, files that are damaged, folders that two want: an error of one line, or the bytes of an undisturbed run.

pytest -m slow -n0 tests/failures -k R11 --trials 40 prints what came of 40 damages of each learner's complete and killed runs.
"""

from __future__ import annotations

import signal
import time
from collections import Counter
from pathlib import Path

import hostile_runs_trials as runs
import pytest
import trials
from patience import PATIENCE
from separate_cluster import family, strike, wait

pytestmark = pytest.mark.slow
every_case = pytest.mark.parametrize("name", runs.CASES)


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    """Of every case a complete run and one that was killed."""
    folder = tmp_path_factory.mktemp("made")
    runs.make_runs(folder)
    return folder


def check(found, figure, case, told):
    told(figure, case, {"trials": len(found), **Counter(outcome.told for outcome in found)})
    assert not [outcome for outcome in found if outcome.is_bad or outcome.is_large]


@every_case
def test_R8_a_disk_that_is_full_from_a_write_on(name, made, seeds, told):
    found = trials.run("full_disk_trials.filled", [(str(made), name, seed) for seed in seeds])
    check(found, "R8: no space from a write on", name, told)


@every_case
@pytest.mark.parametrize("state", runs.STATES)
@pytest.mark.parametrize("swaps", [False, True], ids=["one file", "two swapped"])
def test_R11_damage(name, state, swaps, made, seeds, told):
    """Bits, bytes, zeros, lengths; files gone, or folders; files in each other's place."""
    found = trials.run("hostile_runs_trials.damaged", [(str(made), name, state, seed, swaps) for seed in seeds])
    check(found, "R11: damaged files", f"{name}, {state}, {'swaps' if swaps else 'files'}", told)


@every_case
def test_R13_two_for_one_folder(name, runs_at, seeds, told, tmp_path):
    """At once, by `fit` and, of a run whose first command was killed, by `resume`: one ends with the same bytes, the other
    with exit 2, because the folder is there, or because of the first one, whose id it names."""
    at, came, seconds, same = runs_at("threads"), [], [], []
    quiet = at.undisturbed(name)
    for seed in seeds:
        once, again = tmp_path / f"{seed}.zarr", tmp_path / f"{seed} again.zarr"
        first = at.command(name, again, resumes=False)
        wait(lambda: (again / "config.json").exists() or first.poll() is not None)  # noqa: B023
        strike(family(first.pid), signal.SIGKILL)
        first.communicate(PATIENCE)
        for out in (once, again):
            what, after = pair_of(at, name, out, resumes=out == again)
            came.append(what)
            seconds.append(after)
            same.append(runs.learned(out, name) == quiet.learned)
    counts = {"trials": len(same), **Counter(came), "same bytes": sum(same), "answer s": round(max(seconds), 1)}
    told("R13: two commands for one folder", name, counts)
    assert all(same) and not {"both", "neither", "unclear"} & set(came)


def pair_of(at, name: str, out: Path, *, resumes: bool) -> tuple[str, float]:
    """What came of two commands that were started together, and when the first of them had ended."""
    start = time.monotonic()
    both = [at.command(name, out, resumes=resumes) for _ in range(2)]
    wait(lambda: any(process.poll() is not None for process in both))
    seconds = time.monotonic() - start
    errors = [process.communicate(PATIENCE)[1] for process in both]
    codes = [process.returncode for process in both]
    if codes == [2, 2]:
        return "neither", seconds
    if 2 not in codes:  # one came when the other had ended: a complete run is resumed at once
        return ("one after the other" if resumes else "both"), seconds
    late = codes.index(2)
    reasons = (f"pid {both[1 - late].pid} ", *(() if resumes else ("exists already",)))
    return ("one refused" if any(reason in errors[late] for reason in reasons) else "unclear"), seconds
