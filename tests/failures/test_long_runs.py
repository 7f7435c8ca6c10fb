"""Fits of thousands of steps, what they take as they go on, and what keeping their state costs.

pytest -m slow -n0 tests/failures -k R25 --trials 5 makes 10,000 steps in each place, of which the first 1,000 are not counted;
-k R26 measures commits, -k R24 compares bytes.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import hostile_runs_trials as runs
import numpy as np
import pytest
from command_line import call
from disturbed_runs import DONE, Runs
from memory_points import write_rows
from patience import PATIENCE
from soak import soak

from dkl.stores import checkpoints
from dkl.stores.checkpoints import CheckpointFolder
from dkl.stores.registry import Arrays, StoredArray
from dkl.stores.run import RunStore

pytestmark = pytest.mark.slow
STEPS = 2000
"""Of a trial."""


@pytest.mark.parametrize("place", ["threads", "own"])
def test_R25_a_long_fit_takes_no_more_as_it_goes_on(place, tmp_path, monkeypatch, seeds, told):
    """Growth of who works is judged. The pace is told, as other programs share in it, and the growth of a process that has
    client and scheduler: benchmarks/system/failures.md."""
    monkeypatch.chdir(tmp_path)
    runs.write_inputs(tmp_path)
    steps, out = STEPS * len(seeds), tmp_path / "run.zarr"
    pairs = [word for word in runs.PAIRS if word not in runs.EACH]
    given = ["fit", *pairs, "--data", "X.npz", "--max-iter", str(steps), "--tol", "0", "--target-gap", "none"]
    where = ("--threads", "1") if place == "threads" else ("--workers", "2")
    found = soak([*given, "--checkpoint-every", "5", "--no-picture", "--out", str(out), *where], out)
    slopes, (files, threads) = found.slopes(), found.grown()
    working = [slope for pid, slope in slopes.items() if place == "threads" or pid != found.pid]
    counts = {
        "steps": int(found.at[-1][0]),
        "processes": len(slopes),
        "MiB/1000 worst": round(max(working), 3),
        "client's worst": round(slopes[found.pid], 3),
        "files worst": files,
        "threads worst": threads,
        "states worst": found.states,
        "pace mean": round(found.pace(), 3),
    }
    told("R25: a long fit", place, counts)
    assert found.at[-1][0] > 0.9 * steps and len(slopes) >= (1 if place == "threads" else 3)
    assert max(working) <= 1.0 and max(files, threads) <= 2 and found.states <= 3


PLACES = {
    **{f"again {number}": ("threads", "--threads", "1") for number in (1, 2)},
    "2 threads": ("threads", "--threads", "2"),
    **{f"{count} workers": ("own", "--workers", str(count)) for count in (1, 2, 3)},
}


@pytest.mark.parametrize("name", runs.CASES)
def test_R24_the_same_bytes_again_and_on_any_number_of_workers(name, inputs, monkeypatch, tmp_path, told):
    """Each against a first run of one thread; where workers need a limit of their own, and so another plan, against the first of
    theirs. Killed and resumed runs: R3; clusters of one's own: tests/cluster."""
    monkeypatch.chdir(inputs)
    known, came = {}, {}
    for place, (kind, *words) in {"first": ("threads", "--threads", "1"), **PLACES}.items():
        at, out = Runs(inputs, kind), tmp_path / f"{place}.zarr"
        monkeypatch.setattr(at, "options", lambda words=words: tuple(words))
        process = at.command(name, out, resumes=False)
        _, err = process.communicate(PATIENCE)
        assert process.returncode in DONE, err
        found = runs.learned(out, name)
        came[place] = int(found == known.setdefault(kind if name in runs.LIMITED else "any", found))
    told("R24: same bytes as at first", name, {"runs": len(came), **came})
    assert all(came.values())


SIZES = {
    "pairwise": (
        2000,
        ("--pairs", "pairs.csv", "--rank", "64", "--max-iter", "300", "--tol", "0", "--target-gap", "none"),
    ),
    "mvu": (2000, ("--n-neighbors", "8", "--n-basis", "128", "--max-iter", "60", "--tol", "1e-12")),
}


@pytest.mark.parametrize("task", SIZES)
def test_R26_what_commits_cost(task, tmp_path, monkeypatch, told):
    """By the default rule, which would not commit at all in so short a run: here as soon as it may, twentyfold what one takes."""
    monkeypatch.setattr(checkpoints, "COMMIT_SECONDS", 0.0)
    monkeypatch.chdir(tmp_path)
    n, words = SIZES[task]
    write_rows(tmp_path, n, 0)
    start = time.perf_counter()
    answer = call("fit", task, "--data", "X.npy", *words, "--no-picture", "--threads", "1", "--out", "run.zarr")
    seconds = time.perf_counter() - start
    assert answer.code in (0, 3), answer.err
    costs = [event["cost"] for event in RunStore.open("run.zarr").events() if event["event"] == "commit"]
    share = sum(costs) / seconds
    told(
        "R26: commits",
        task,
        {"commits": len(costs), "% of the run worst": round(100 * share, 2), "run s": round(seconds, 1)},
    )
    assert costs and share <= 0.05


def test_R26_what_is_read_back_takes_little_more_than_reading(tmp_path, told):
    """Seconds of the processor, the least of five: checked and decoded, against the files as they are; told and not judged."""
    declared = Arrays(StoredArray("kept/state-*/V", ("row", "column"), ("float64",), "Values."))
    states = CheckpointFolder(tmp_path / "kept", declared)
    kept = np.random.default_rng(0).standard_normal((4000, 2000))
    states.write(1, {"V": kept}, {})
    files = [path for path in states.root.rglob("*") if path.is_file()]
    restored = min(_seconds(states.read) for _ in range(5))
    plain = min(_seconds(lambda: [path.read_bytes() for path in files]) for _ in range(5))
    ratio = restored / plain
    told(
        "R26: reading back", "a state of 64 MB", {"of a plain read mean": round(ratio, 2), "read s": round(restored, 3)}
    )
    assert np.array_equal(states.read()[1]["V"], kept)


def _seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start
