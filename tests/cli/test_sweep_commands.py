"""`dkl sweep` and `dkl sweep compare` as they are typed: what they refuse, and a sweep that is interrupted and continued."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import click
import forked_points
import numpy as np
import pytest
from command_line import call, tree
from command_runs import refused
from dask_processes import wait_until
from patience import PATIENCE
from preloaded import Forked

from dkl.cli.commands import COMMANDS
from dkl.cli.main import main
from dkl.errors import InputError
from dkl.estimators.base.rules import Flag
from dkl.estimators.base.settings import declared
from dkl.runs import registry
from dkl.runs.sweep import results
from dkl.runs.sweep.request import words_of
from dkl.stores.run import RunStore

TINY = ("sweep", "regression", "--n", "60", "--n-columns", "8", "--out", "sweep")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("regression", "--n", "60,1.5"), "'1.5' is not an integer >= 2"),
        (("regression", "--n", "60,6e1"), "--n: a value that is there twice; got 60"),
        (("regression", "--n", "60,1"), "'1' is not an integer >= 2"),
        (("regression", "--n", "60", "--n-columns", "8,8"), "--n-columns: a value that is there twice"),
        (("regression", "--n", "60", "--rank", "4"), "No such option"),
        (("regression", "--n", "60", "--solver", "exact,slow"), "'slow' is not one of"),
        (("regression", "--n", "60", "--n-constraints", "9"), "--n-constraints: nothing is drawn for regression"),
        (("regression", "--n", "60", "--shuffled"), "--shuffled: for rows of --data alone"),
        (("regression", "--n", "60", "--targets", "y.npy"), "--targets: for rows of --data alone"),
        (("regression", "--n", "60", "--data", "none.npz"), "none.npz: no such file"),
        (("regression", "--n", "60", "--workers", "1,2", "--threads", "1"), "workers have one thread each"),
        (("pairwise", "--n", "60,500", "--rank", "9,100"), "n 60, rank 100: --rank: a rank beyond the number"),
        (("svc", "--n", "60", "--out", "no/sweep"), "its folder does not exist"),
        (("sweep", "--n", "60"), "No such command 'sweep'"),
        (("compare", "one", "other"), "no sweep"),
    ],
    ids=lambda value: "_".join(value) if isinstance(value, tuple) else "",
)
def test_bad_input_is_one_line_before_any_work(here: Path, words: tuple[str, ...], told: str) -> None:
    out = () if "--out" in words or words[0] == "compare" else ("--out", "sweep")
    answer = call("sweep", *words, *out)
    refused(answer)
    assert told in answer.err
    assert not tree(here)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("regression", "--n", "60,1e13"), "n 10,000,000,000,000: does not fit here: the data"),
        (("svc", "--n", "60,300000", "--memory-limit", "400 MB"), "n 60 and 1 more: does not fit here: memory plan"),
    ],
)
def test_points_that_do_not_fit_are_refused_by_name(here: Path, words: tuple[str, ...], told: str) -> None:
    answer = call("sweep", *words, "--out", "sweep")
    refused(answer, 5)
    assert told in answer.err and "--skip-what-does-not-fit" in answer.err
    assert not tree(here)


def test_a_refused_sweep_leaves_an_empty_folder_of_the_users_as_it_was(here: Path) -> None:
    (here / "sweep").mkdir(mode=0o755)
    before = (here / "sweep").stat()
    refused(call("sweep", "regression", "--n", "60,1e13", "--out", "sweep"), 5)
    assert list(tree(here)) == ["sweep"]
    after = (here / "sweep").stat()
    assert (after.st_ino, after.st_mode) == (before.st_ino, before.st_mode)


@pytest.mark.parametrize("task", list(registry.TASKS))
def test_options_of_a_point_are_those_of_its_fit(task: str) -> None:
    """Each setting, as the sweep has parsed it, comes back from the words that the point's fit is given."""
    declaration = registry.declaration(task)
    sweep, fit = (COMMANDS[verb].get_command(click.Context(COMMANDS[verb]), task) for verb in ("sweep", "fit"))
    for known in declared(declaration.settings).values():
        if not known.has_option:
            continue
        option = next(param for param in sweep.params if param.name == known.name)
        if isinstance(known.rule, Flag) or option.secondary_opts:  # --standardize/--no-standardize
            given = [known.off.option if known.off else known.flag]
        else:
            given = [known.flag, _text(option, known.default)]
        parsed = _parsed(sweep, ["--n", "60", "--out", "x", *given])[known.name]
        values = parsed if isinstance(parsed, list) and not option.multiple else [parsed]
        for value in values:
            words = words_of(declaration, {known.name: value})
            required = [word for file in declaration.files for word in (f"--{file.name}", "f") if file.required]
            assert _parsed(fit, [*required, "--out", "x", *words])[known.name] == value


def _text(option: Any, default: Any) -> str:
    """A value that the option takes."""
    kind = getattr(option.type, "each", option.type)
    if isinstance(kind, click.Choice):
        return kind.choices[-1]
    for text in (str(default), "3", "0.5", "rbf"):
        try:
            kind.convert(text, None, None)
        except click.BadParameter:
            continue
        return text
    raise AssertionError(option.name)


def _parsed(command: Any, words: list[str]) -> dict[str, Any]:
    return command.make_context("dkl", words).params


LONG = ("sweep", "pairwise", "--n", "60,80", "--rank", "9", "--n-neighbors", "5", "--tol", "0", "--target-gap", "none",
        "--max-iter", "400", "--no-picture", "--threads", "1", "--checkpoint-every", "20", "--out", "sweep")  # fmt: skip


def test_a_sweep_that_was_interrupted_is_continued(here: Path) -> None:
    process = Forked(forked_points.main, *LONG)
    try:
        events = here / "sweep/points/n80_repeat1/run.zarr/events.jsonl"
        deadline = time.monotonic() + PATIENCE
        while not (events.exists() and events.read_bytes().count(b'"commit"') > 2):
            assert process.poll() is None and time.monotonic() < deadline, process.errors()
            time.sleep(0.002)
        answer = call(*LONG)
        refused(answer)
        assert "another process works on this sweep" in answer.err
        os.kill(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
    assert process.returncode == 4, err
    assert "continue with: dkl sweep pairwise --n 60,80 --rank 9" in err.splitlines()[-1]
    before = (here / "sweep/results.jsonl").read_text()
    assert [json.loads(line)["n"] for line in before.splitlines()] == [60]
    refused(call(*LONG[:3], "60,90", *LONG[4:]))  # another sweep

    again = Forked(forked_points.main, *LONG)
    out, err = again.communicate(timeout=PATIENCE)
    assert again.returncode == 3, err  # the limit of iterations, as asked for
    assert (here / "sweep/results.jsonl").read_text().startswith(before)
    first, second = results.read(here / "sweep").values()
    assert (first["attempts"], second["attempts"]) == (1, 2)
    assert first["status"] == second["status"] == 3 and second["n_iter"] == 400
    assert second["relative_gap"] > 0 and second["cpu_seconds"] > 0 and second["disk_bytes"] > 0
    assert sum(event["event"] == "iteration" for event in RunStore.open(events.parent).events()) < 2 * 400
    rows = out.splitlines()
    assert [row.split()[0] for row in rows[:3]] == ["n", "60", "80"] and "grow as n to the power of: seconds" in out
    assert call("sweep", "compare", "sweep", "sweep").code == 0


def test_a_sweep_that_is_killed_leaves_no_fit_behind(here: Path) -> None:
    words = [*LONG]
    words[words.index("60,80")], words[words.index("400")] = "60", "1000000"
    process = Forked(main, *words)  # its point is a process of its own, as users have it
    try:
        run = here / "sweep/points/n60_repeat1/run.zarr"
        wait_until(lambda: (run / "generations").is_dir() and any(run.glob("generations/gen-*")))
    finally:
        process.kill()
    wait_until(lambda: "interrupted by SIGTERM" in (run.parent / "log").read_text())
    store = RunStore.open(run)
    wait_until(lambda: _is_free(store))
    committed = next(iter(store.generations().newest_first()))
    assert committed.iteration == max(event["iteration"] for event in store.events() if event["event"] == "iteration")


def _is_free(run: RunStore) -> bool:
    try:
        run.lock()
    except InputError:
        return False
    run.close()
    return True


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_while_it_plans_leaves_nothing(here: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    monkeypatch.setattr("dkl.runs.sweep.sweep.misfits", lambda *given: os.kill(os.getpid(), number))
    answer = call(*TINY)
    refused(answer, 4)
    assert f"interrupted by {signal.Signals(number).name}" in answer.err
    assert "continue with: dkl sweep regression --n 60" in answer.err and not tree(here)


def test_a_crash_costs_a_point_and_is_tried_again(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scripts = iter(["kill -KILL $$", "echo dkl: out of luck >&2; exit 6", "exit 1", "exit 5"])
    asked = []

    def start(words: Any, output: Any, alive: int) -> subprocess.Popen:
        asked.append(words)
        return subprocess.Popen(["/bin/sh", "-c", next(scripts)], stdout=output, stderr=output)

    monkeypatch.setattr("dkl.runs.sweep.points.start", start)
    words = ("sweep", "svc", "--n", "60,70", "--C", "2", "--out", "sweep")
    answer = call(*words)
    assert answer.code == 6 and "killed (9)" in answer.out and "dkl: out of luck" in answer.out
    assert [line["status"] for line in results.read(here / "sweep").values()] == [-9, 6]
    assert call(*words).code == 1
    assert [line["status"] for line in results.read(here / "sweep").values()] == [1, 5]
    assert [line["attempts"] for line in results.read(here / "sweep").values()] == [2, 2]
    place = here / "sweep"
    data = ["--data", f"{place}/data/n60/X.npy", "--targets", f"{place}/data/n60/y.npy"]
    run = ["--out", f"{place}/points/n60_repeat1/run.zarr", "--C", "2.0"]
    assert asked[0] == asked[2] == ["fit", "svc", "--no-picture", *data, *run]


def test_a_hard_form_is_swept_with_the_pairs_drawn_for_its_learner(here: Path) -> None:
    words = ("sweep", "laplacian", "--n", "60", "--constraints", "hard", "--n-constraints", "20", "--holdout", "0",
             "--threads", "1", "--out", "sweep")  # fmt: skip
    out, err = (process := Forked(forked_points.main, *words)).communicate(timeout=PATIENCE)
    assert process.returncode == 0, err
    (line,) = results.read(here / "sweep").values()
    assert line["outcome"] == "solved" and line["asked"]["constraints"] == "hard"
    report = RunStore.open(here / "sweep/points/n60_repeat1/run.zarr").report()
    assert report["n_must"] == report["n_cannot"] == 10
    assert line["relative_gap"] == report["certificate"]["relative_gap"] < 1e-6
    assert report["certificate"]["infeasibility"] < 1e-6 and f"{line['relative_gap']:.2g}" in out


@pytest.mark.exhaustive
def test_points_are_processes_of_their_own_and_a_picture_is_drawn(here: Path) -> None:
    words = ("sweep", "regression", "--n", "60,90", "--n-columns", "8", "--threads", "1", "--out", "sweep")
    answer = call(*words)
    assert answer.code == 0, answer.err
    for line in results.read(here / "sweep").values():
        parts = [line["split"][part] for part in ("compute", "disk", "other")]
        assert sum(parts) == pytest.approx(line["seconds"], rel=1e-9) and line["split"]["communication"] is None
        assert line["process_seconds"] > line["seconds"] > 0 and line["peak_bytes"] > 5e7
    assert (here / "sweep/scaling.png").stat().st_size > 10_000


@pytest.mark.exhaustive
def test_given_rows_and_a_point_that_fails(here: Path) -> None:
    """Points are real processes here; rows of a file are taken with what is known of them, and a NaN costs its point alone."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((90, 3))
    y = X[:, 0] + X[:, 1] ** 2
    X[70] = np.nan
    np.savez(here / "X.npz", X=X, y=y)
    words = ("sweep", "regression", "--n", "40,90", "--data", "X.npz", "--n-columns", "8", "--out", "sweep")
    answer = call(*words)
    assert answer.code == 2, answer.err
    small, large = results.read(here / "sweep").values()
    assert np.array_equal(np.load("sweep/data/n40/X.npy"), X[:40]) and small["status"] == 0
    assert large["status"] == 2 and "X[70, 0]" in large["error"] and large["error"] in answer.out
    X[70] = 0.0
    np.savez(here / "X.npz", X=X, y=y)
    refused(call(*words))  # the rows have changed
