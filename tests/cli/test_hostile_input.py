"""Files that claim too much or have no end, and options that ask for it: one line, at once, and nothing is written.

A test that comes to the end of such a file takes gigabytes or never ends; pytest's own time limit is the net.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hostile_files
import numpy as np
import pytest
from command_line import call, tree, write_inputs
from command_runs import refused
from repeats import crossed

from dkl.resources import current_rss
from dkl.stores.folders import is_unbegun
from dkl.stores.run import RunStore

MUCH = 700_000_000
"""Bytes that none of these may add to the process."""
OTHERS = {"pairwise": ["--pairs", "pairs.csv"], "regression": ["--targets", "y.csv"], "svc": ["--targets", "y.csv"]}


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_inputs(tmp_path)
    (tmp_path / "y.csv").write_text("".join(f"{i % 2}\n" for i in range(hostile_files.N)))
    return tmp_path


@pytest.fixture(autouse=True)
def little_memory() -> Iterator[None]:
    before = current_rss()
    yield
    assert current_rss() - before < MUCH


def arguments(task: str, **given: str) -> list[str]:
    named = {"data": "X.npz", "out": "run.zarr", **given}
    others = [] if given.keys() & {"pairs", "targets"} else OTHERS[task]
    return [task, "--no-picture", *others, *(word for name, value in named.items() for word in (f"--{name}", value))]


def refused_untouched(work: Path, *command: Any, code: int = 2) -> str:
    before = tree(work)
    answer = call(*command)
    refused(answer, code)
    assert tree(work) == before
    return answer.err


def made(work: Path, case: tuple[str, hostile_files.Make]) -> str:
    name, make = case
    make(work / name)
    return name


@pytest.mark.parametrize(("case", "task"), crossed(list(hostile_files.ROWS), list(OTHERS)))
def test_rows(case: str, task: str, work: Path) -> None:
    name = made(work, hostile_files.ROWS[case])
    for verb in ("fit", "plan"):
        refused_untouched(work, verb, *arguments(task, data=name))


@pytest.mark.parametrize("task", OTHERS)
@pytest.mark.parametrize("case", hostile_files.CHUNKS)
def test_a_chunk_of_the_users_own_array(case: str, task: str, work: Path) -> None:
    name = made(work, hostile_files.CHUNKS[case])
    assert name in refused_untouched(work, "fit", *arguments(task, data=name))


@pytest.mark.parametrize("task", ["regression", "svc"])
@pytest.mark.parametrize("case", hostile_files.TARGETS)
def test_targets(case: str, task: str, work: Path) -> None:
    name = made(work, hostile_files.TARGETS[case])
    for verb in ("fit", "plan"):
        refused_untouched(work, verb, *arguments(task, targets=name))


@pytest.mark.parametrize("case", hostile_files.PAIRS)
def test_pairs(case: str, work: Path) -> None:
    name = made(work, hostile_files.PAIRS[case])
    for verb in ("fit", "plan"):
        refused_untouched(work, verb, *arguments("pairwise", pairs=name))


OPTIONS = {
    "threads": ["--threads", "100000"],
    "workers": ["--workers", "100000"],
    "workers within a limit": ["--workers", "100000", "--memory-limit", "1GB"],
    "a pipe for the scheduler": ["--scheduler-file", "pipe"],
    "no end of the scheduler": ["--scheduler-file", "/dev/zero"],
    "a long name of the scheduler": ["--scheduler-file", "s" * 300],
    "a long name to write": ["--out", "o" * 300],
    "a long path to write": ["--out", "o/" * 3000 + "x"],
}


@pytest.mark.parametrize("task", OTHERS)
@pytest.mark.parametrize("case", OPTIONS)
def test_options(case: str, task: str, work: Path) -> None:
    os.mkfifo(work / "pipe")
    for verb in ("fit", "plan"):
        refused_untouched(work, verb, *arguments(task), *OPTIONS[case])


LONG = "n" * 300
ON_RUNS = {
    "info": ["info", LONG],
    "resume": ["resume", LONG],
    "verify": ["verify", LONG],
    "predict": ["predict", LONG, "--data", "X.npz", "--out", "y.csv"],
    "work folder": ["fit", *arguments("svc"), "--work-dir", LONG],
}


@pytest.mark.parametrize("case", ON_RUNS)
def test_long_names_of_folders(case: str, work: Path) -> None:
    refused_untouched(work, *ON_RUNS[case])


@pytest.mark.parametrize("length", [255, 256])
def test_the_longest_name_that_can_be_written_is_written(length: int, work: Path) -> None:
    assert call("fit", *arguments("svc")).code == 0
    answer = call("predict", "run.zarr", "--data", "X.npz", "--out", "y" * (length - 4) + ".csv")
    assert answer.code == (0 if length == 255 else 2), answer.err


BEGINNINGS = {
    "the folder alone": [],
    "an empty lock": ["LOCK"],
    "a group": ["LOCK", "zarr.json"],
    "half a group": ["LOCK", "zarr.0123456789abcdef.partial"],
    "half a configuration": ["LOCK", "zarr.json", "config.json.partial"],
}


@pytest.mark.parametrize("case", BEGINNINGS)
def test_a_run_that_was_killed_before_its_configuration_is_begun_again(case: str, work: Path) -> None:
    (work / "run.zarr").mkdir()
    for name in BEGINNINGS[case]:
        (work / "run.zarr" / name).write_text("pid 1 on here, attempt 0" if name == "LOCK" and len(case) > 14 else "")
    answer = call("resume", "run.zarr")
    refused(answer, 6)
    assert "dkl fit" in answer.err
    assert call("fit", *arguments("svc")).code == 0
    assert call("verify", "run.zarr").code == 0


@pytest.mark.parametrize("names", [["zarr.json"], ["LOCK", "mine.txt"], ["LOCK", "config.json"]])
def test_what_may_be_somebodys_is_not_begun_again(names: list[str], work: Path) -> None:
    (work / "run.zarr").mkdir()
    for name in names:
        (work / "run.zarr" / name).write_text("pid 1")
    assert not is_unbegun(work / "run.zarr")
    refused_untouched(work, "fit", *arguments("svc"))


def test_a_lock_of_another_program_is_not_ours(work: Path) -> None:
    (work / "run.zarr").mkdir()
    (work / "run.zarr" / "LOCK").write_text(json.dumps({"pid": 1}))
    refused_untouched(work, "fit", *arguments("svc"))


def test_two_do_not_begin_the_same_run_again(work: Path) -> None:
    first = RunStore.create(work / "run.zarr", {"task": "svc"})
    (work / "run.zarr" / "config.json").unlink()  # the first is about to write it
    try:
        assert "another process" in refused_untouched(work, "fit", *arguments("svc"))
    finally:
        first.close()


def test_a_hostile_archive_of_labels_is_not_read_whole(work: Path) -> None:
    hostile_files.archive(work / "bad.npz", X=hostile_files.saved(hostile_files.X), y=hostile_files.npy("(600000000,)"))
    for task in ("svc", "regression"):
        refused_untouched(work, "fit", task, "--data", "bad.npz", "--out", "run.zarr")
    np.savez(work / "good.npz", X=hostile_files.X, y=np.arange(hostile_files.N) % 2)
    assert call("plan", "svc", "--data", "good.npz", "--out", "run.zarr").code == 0
