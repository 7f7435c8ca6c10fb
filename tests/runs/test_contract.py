"""What holds for every learner that is registered: whoever adds one gets this whole battery by a case in run_cases.py."""

import contextlib
import functools
import itertools
import json
import os
import random
import re
import shutil
import signal
from pathlib import Path

import click
import dask.array
import numpy as np
import pytest
import ridge_kind
import small_blocks
import zarr
from clock_checks import check_seconds
from command_line import SLOW, answered_without, call, refused_without, tree
from command_runs import bytes_of, start
from patience import PATIENCE
from repeats import but_for
from run_cases import CASES, FORMS

import dkl
from dkl.blocks.session import Session
from dkl.cli.commands import COMMANDS
from dkl.errors import InterruptedRunError, StoreError
from dkl.estimators.base.settings import declared
from dkl.runs import registry
from dkl.runs.inputs.files import Files
from dkl.solvers.watch import Outcome
from dkl.stores.run import RunStore

pytestmark = pytest.mark.filterwarnings("ignore::dkl.errors.ConvergenceWarning")
ALL = {**CASES, **FORMS, "ridge": ridge_kind.CASE}
TASKS = [*registry.TASKS, "ridge"]


@pytest.fixture(scope="module", autouse=True)
def ridge():
    """A learner that the package does not know, from a file of the tests."""
    with registry.registered("ridge", "ridge_kind"):
        yield


def learner(name):
    """The learner of a case."""
    return ALL[name].task or name


def options(task):
    case = ALL[task]
    return ["fit", learner(task), *case.files, *case.options, "--threads", "1", "--out", "run.zarr"]


FURTHER = ["regression", "svc", "logdet", "metric", "mvu", "laplacian", *FORMS]


@pytest.fixture(scope="module", params=but_for(FURTHER, [*TASKS, *FORMS]))
def finished(request, ridge, tmp_path_factory):
    """(task, folder with inputs and a complete run, what the command answered)."""
    folder = tmp_path_factory.mktemp(request.param)
    ALL[request.param].write(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        small_blocks.make_small(patch.setattr)
        answer = call(*options(request.param), "--picture")
    assert answer.code == (0 if ALL[request.param].ends == "solved" else 3), answer.err
    return request.param, folder, answer


@pytest.fixture
def run(finished, tmp_path, monkeypatch):
    """A copy of the complete run, alone in a folder: its inputs stand where it was made."""
    monkeypatch.chdir(tmp_path)
    return Path(shutil.copytree(finished[1] / "run.zarr", tmp_path / "run.zarr"))


def learned(task, run):
    return bytes_of(run, *ALL[task].result)


def equal(one, other):
    one, other = (np.asarray(value.toarray() if hasattr(value, "toarray") else value) for value in (one, other))
    return one.dtype == other.dtype and np.array_equal(one, other)


def test_every_learner_has_a_case():
    assert CASES.keys() == registry.TASKS.keys() - {"ridge"}


def test_the_command_is_the_estimator_to_the_byte(finished, monkeypatch):
    task, folder, _ = finished
    small_blocks.make_small(monkeypatch.setattr)
    own, loaded = ALL[task].fit(folder, {}), dkl.load(folder / "run.zarr")
    assert type(own) is type(loaded)
    for name in ALL[task].attributes:
        assert equal(getattr(own, name), getattr(loaded, name)), name
    assert own.n_iter_ == loaded.n_iter_
    assert loaded.result_.outcome is own.result_.outcome is Outcome(ALL[task].ends)


def test_callbacks_see_the_history_and_stop(finished, monkeypatch):
    """Each row once and in order; True ends the fit, and the result so far is returned as stopped."""
    task, folder, _ = finished
    small_blocks.make_small(monkeypatch.setattr)
    seen = []
    fitted = ALL[task].fit(folder, {"callbacks": lambda row: seen.append(row)})
    assert seen == fitted.result_.history and len(seen) >= 1
    assert all("iteration" in row and "seconds" in row for row in seen)
    check_seconds(fitted.result_.seconds, seen)
    for last in sorted({1, (len(seen) + 1) // 2}):
        taken = []
        stopped = ALL[task].fit(folder, {"callbacks": [lambda row, to=taken: to.append(row) or len(to) == last]})  # noqa: B023
        assert len(taken) == last and stopped.result_.history[:last] == taken
        check_seconds(stopped.result_.seconds, stopped.result_.history)
        if last < len(seen):
            assert stopped.result_.outcome is Outcome.STOPPED


def test_seconds_of_a_run_are_by_one_clock_and_its_split_adds_up(finished):
    opened = dkl.open_run(finished[1] / "run.zarr")
    check_seconds(opened.report["seconds"], opened.history)
    spent = opened.report["spent"]
    assert spent["seconds"] == opened.report["seconds"]["total"]
    parts = sum(spent[part] or 0.0 for part in ("compute", "communication", "disk", "other"))
    assert parts == pytest.approx(spent["seconds"], rel=1e-9)


def test_verbose_shows_progress(finished, capsys):
    task, folder, _ = finished
    ALL[task].fit(folder, {"verbose": 1})
    assert capsys.readouterr().err.strip()


def test_the_plan_is_what_is_used(finished):
    task, folder, _ = finished
    kind, run = registry.kind(learner(task)), RunStore.open(folder / "run.zarr")
    settings = kind.declaration.settings(**run.config["settings"])
    inputs = kind.read(Files.again(run, kind.declaration.files), settings, values=False)
    planned, used = kind.plan(inputs, settings, Session(threads=1)).as_dict(), run.report()["plan"]
    assert planned["placement"] == used["placement"] and planned["processes"] == used["processes"]
    # Of a graph that is not built yet the most entries are planned.
    assert planned["process_bytes"] >= used["process_bytes"] > 0


@pytest.mark.parametrize("task", but_for(["laplacian", "logdet", "metric", "mvu", "regression", "svc"], registry.TASKS))
def test_a_file_that_is_none_is_refused_before_what_a_fit_imports(task, tmp_path):
    (tmp_path / "X.npz").write_bytes(b"PK\3\4 no archive")
    words = [
        word
        for file in registry.declaration(learner(task)).files
        if file.required
        for word in (f"--{file.name}", "X.npz")
    ]
    assert "X.npz" in refused_without(SLOW, "fit", task, *words, "--out", "run.zarr", folder=tmp_path)


@pytest.mark.parametrize("task", but_for(["laplacian", "metric", "mvu", "regression", "svc"], registry.TASKS))
def test_what_does_not_fit_is_refused_before_what_a_fit_imports(task, tmp_path):
    CASES[task].write(tmp_path)
    words = "fit", task, *CASES[task].files, "--out", "run.zarr", "--memory-limit", "1 MB"
    assert "memory_limit" in refused_without(SLOW, *words, folder=tmp_path, code=5)


@pytest.mark.parametrize("task", but_for(["laplacian", "metric", "mvu", "pairwise", "logdet"], registry.TASKS))
def test_a_value_that_is_none_is_refused_before_what_a_fit_imports(task, tmp_path):
    CASES[task].write(tmp_path)
    with np.load(tmp_path / "X.npz") as held:
        arrays = dict(held)
    arrays["X"][3, 1] = np.nan
    np.savez(tmp_path / "X.npz", **arrays)
    said = refused_without(SLOW, "fit", task, *CASES[task].files, "--out", "run.zarr", folder=tmp_path)
    assert "X[3, 1]" in said and not (tmp_path / "run.zarr").exists()


def apart(finished):
    """The task; a test is skipped of the learner that the tests register, which imports what it needs at once."""
    if finished[0] == "ridge":
        pytest.skip("the tests import what they need")
    return finished[0]


def test_rows_that_a_run_is_not_for_are_refused_before_what_applying_it_imports(run, finished, tmp_path):
    verb, out = registry.declaration(learner(apart(finished))).verb, "--out"
    assert "none.npz: no such file" in refused_without(SLOW, verb, str(run), "--data", "none.npz", out, "p.npy")
    np.save("wide.npy", np.ones((5, 99)))
    said = refused_without(SLOW, verb, str(run), "--data", "wide.npy", out, "p.npy")
    assert "another number of features; got 99" in said and not Path("p.npy").exists()
    with np.load(finished[1] / "X.npz") as held:
        np.save("nan.npy", np.where(np.arange(held["X"].shape[1]) == 1, np.nan, held["X"][:5]))
    assert "X[0, 1]" in refused_without(SLOW, verb, str(run), "--data", "nan.npy", out, "p.npy")


def test_what_a_run_holds_is_shown_without_what_a_fit_imports(run, finished):
    apart(finished)
    answer = answered_without(SLOW, "info", str(run))
    assert (answer.code, answer.err) == (0, "") and "proven relative gap" in answer.out


def test_a_model_that_cannot_be_applied_is_refused_before_what_applying_it_imports(run, finished):
    """Too little memory, targets of other rows, and an array in it that is not what was written."""
    task = apart(finished)
    verb, rows = registry.declaration(learner(task)).verb, ("--data", "new.npy", "--out", "p.npy")
    with np.load(finished[1] / "X.npz") as held:
        np.save("new.npy", held["X"][:5] + 0.25)
    assert "memory_limit" in refused_without(SLOW, verb, str(run), *rows, "--memory-limit", "1 MB", code=5)
    if verb == "predict":
        Path("two.csv").write_text("1\n2\n")
        assert "two.csv" in refused_without(SLOW, verb, str(run), *rows, "--targets", "two.csv")
    part = "factor" if task == "pairwise" else "model"
    chunk = min(path for path in (run / part).rglob("*") if path.is_file() and "c" in path.parts)
    data = bytearray(chunk.read_bytes())
    data[len(data) // 2] ^= 1
    chunk.write_bytes(data)
    assert part in refused_without(SLOW, verb, str(run), *rows, code=6) and not Path("p.npy").exists()


def test_plan_prints_and_writes_nothing(finished, monkeypatch):
    task, folder, _ = finished
    monkeypatch.chdir(folder)
    before = tree(folder)
    words = ["plan" if word == "fit" else word for word in options(task)]
    words[words.index("run.zarr")] = "other.zarr"
    answer = call(*words)
    assert (answer.code, answer.err) == (0, "") and "a process, at most" in answer.out
    assert tree(folder) == before


@functools.cache
def writes_of(task):
    """How many writes a run of the inputs in the current folder, in small blocks, takes."""
    with pytest.MonkeyPatch.context() as counting:
        writes = small_blocks.Writes(counting.setattr, lambda: None)
        call(*options(task))
    shutil.rmtree("run.zarr")
    return writes.count


@pytest.mark.parametrize("round", but_for([1], range(2)))
def test_a_killed_run_is_resumed_to_the_same_bytes(round, finished, tmp_path, monkeypatch, seed):
    task, folder, _ = finished
    monkeypatch.chdir(tmp_path)
    ALL[task].write(tmp_path)
    for name in os.listdir(tmp_path):  # archives hold the time they were made at
        shutil.copy(folder / name, tmp_path)
    small_blocks.make_small(monkeypatch.setattr)
    count = writes_of(task)
    extra = (
        ["--checkpoint-every", "1"]
        if "checkpoint_every" in declared(registry.declaration(learner(task)).settings)
        else []
    )
    process = start(random.Random(seed).randint(count // 2, count), *options(task), *extra)
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode in (-signal.SIGKILL, 0, 3), err
    if not Path("run.zarr/config.json").exists():
        shutil.rmtree("run.zarr", ignore_errors=True)
        assert call(*options(task)).code in (0, 3)
    else:
        assert call("resume", "run.zarr").code in (0, 3)
    ended = dkl.open_run("run.zarr")
    check_seconds(ended.report["seconds"], ended.history)
    assert learned(task, Path("run.zarr")) == learned(task, folder / "run.zarr")
    one, other = (RunStore.open(path).report().get("quality") for path in ("run.zarr", folder / "run.zarr"))
    assert one == other


def test_resume_in_python_is_the_commands(finished, run, monkeypatch):
    task, folder, _ = finished
    small_blocks.make_small(monkeypatch.setattr)
    whole = dkl.load(run)
    assert equal(getattr(dkl.resume(run), ALL[task].attributes[0]), getattr(whole, ALL[task].attributes[0]))
    (run / "report.json").unlink()
    seen = []
    again = dkl.resume(run, n_jobs=1, callbacks=lambda row: seen.append(row))
    check_seconds(again.result_.seconds, seen)
    for name in ALL[task].attributes:
        assert equal(getattr(again, name), getattr(whole, name)), name


def test_verify_agrees_and_sees_a_changed_number(finished, run):
    task = finished[0]
    answer = call("verify", "run.zarr")
    assert answer.code == 0 and "they agree" in answer.out, answer.err
    assert all(one.agrees for one in dkl.open_run(run).verify())
    ALL[task].tamper(run)
    answer = call("verify", "run.zarr")
    assert (answer.code, len(answer.err.splitlines())) == (6, 1), answer.out


def test_zarr_lists_the_arrays_of_a_run_and_dask_opens_them(run):
    """All but those of its checkpoints, without a warning, which would be an error here."""
    members = dict(zarr.open_group(run, mode="r").members(max_depth=None))
    listed = {name for name, found in members.items() if isinstance(found, zarr.Array)}
    files = [path for path in run.glob("*/**/zarr.json") if '"node_type": "array"' in path.read_text()]
    assert listed == {str(path.parent.relative_to(run)) for path in files if "generations" not in path.parts}
    for name in listed:
        one, other = zarr.open_array(run / name, mode="r"), dask.array.from_zarr(run / name)
        assert other.chunksize == one.chunks == members[name].chunks and one.shape == other.shape


def numbers_in(run):
    """Names of the arrays that hold numbers of rows. The graph's blocks have checksums of their own; others count columns."""
    folders = [path.parent for path in sorted(run.rglob("zarr.json")) if path.parts[1] not in ("graph", "history")]
    arrays = {str(folder.relative_to(run)): zarr.open(str(folder), mode="r") for folder in folders}
    whole = [name for name, array in arrays.items() if isinstance(array, zarr.Array) and array.dtype.kind in "iu"]
    return [name for name in whole if name != "model/cv_active" and arrays[name].size]


@pytest.mark.parametrize("wrong", [-1, 10**9])
def test_numbers_of_rows_that_there_are_not_are_refused(wrong, finished, run):
    """Even with all checksums that fit: NumPy takes -1 for the last row, and compiled code anything."""
    if finished[0] == "ridge":
        pytest.skip("the integers of the tests' own learner are no rows")
    sound = {}
    for name in numbers_in(Path("run.zarr")):
        store, (part, _, key) = RunStore.open("run.zarr"), name.partition("/")
        held = sound.setdefault(part, store.read_arrays(part))
        changed = held[key].copy()
        changed.flat[0 if wrong < 0 else -1] = wrong - 1 if name == "candidates/indices" and wrong < 0 else wrong
        store.write_arrays(part, held | {key: changed})
        store.write_report(store.report())
        with pytest.raises(StoreError):
            dkl.load("run.zarr")
        store.write_arrays(part, held)
        store.write_report(store.report())
    dkl.load("run.zarr")


def result_files(task, run):
    return sorted(path for part in ALL[task].result for path in (run / part).rglob("*") if path.is_file())


def test_a_complete_run_is_one_whose_result_is_there(finished, run):
    """Every file of the result, one at a time gone and cut short: nothing calls the run complete then."""
    task = finished[0]
    shutil.copy(finished[1] / "X.npz", "X.npz")
    verb = registry.declaration(learner(task)).verb
    for file in result_files(task, run):
        content = file.read_bytes()
        for damage in (file.unlink, lambda: file.write_bytes(content[: len(content) // 2])):  # noqa: B023
            damage()
            answer = call("info", "run.zarr")
            assert (answer.code, len(answer.err.splitlines())) == (6, 1) and "complete" not in answer.out, file
            assert not dkl.open_run(run).is_complete and "damaged" in dkl.open_run(run).state
        assert call("verify", "run.zarr").code == 6
        assert call(verb, "run.zarr", "--data", "X.npz", "--out", "out.npy").code == 6
        with pytest.raises(dkl.errors.StoreError):
            dkl.load(run)
        file.write_bytes(content)
    assert call("info", "run.zarr").code == 0


def test_files_of_a_result_in_each_others_place_are_seen(finished, run):
    """Each is whole by itself: its own checksum is right. Those of one size; where none are, the first two that differ."""
    files = result_files(finished[0], run)
    pairs = [(one, other) for one, other in itertools.combinations(files, 2) if one.read_bytes() != other.read_bytes()]
    assert pairs or len(files) < 2
    for one, other in [pair for pair in pairs if len({file.stat().st_size for file in pair}) == 1] or pairs[:1]:
        contents = one.read_bytes(), other.read_bytes()
        one.write_bytes(contents[1]), other.write_bytes(contents[0])
        assert call("info", "run.zarr").code == call("verify", "run.zarr").code == 6
        one.write_bytes(contents[0]), other.write_bytes(contents[1])


def test_resume_makes_a_destroyed_result_again(finished, run, monkeypatch):
    """A flipped bit in its largest file: to the same bytes."""
    task, folder, _ = finished
    given = registry.kind(learner(task)).made_from
    small_blocks.make_small(monkeypatch.setattr)
    files = [path for path in result_files(task, run) if path.relative_to(run).parts[0] not in given]
    file = max(files, key=lambda path: path.stat().st_size * (path.suffix == ""))
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 8
    file.write_bytes(content)
    assert call("verify", "run.zarr").code == 6
    with pytest.raises(dkl.errors.StoreError):
        dkl.load(run)
    answer = call("resume", "run.zarr", "--threads", "1")
    assert answer.code == (0 if ALL[task].ends == "solved" else 3), answer.err
    assert "damaged" in answer.err and "nothing to do" not in answer.out
    assert learned(task, run) == learned(task, folder / "run.zarr")
    again = call("resume", "run.zarr")
    assert again.code == answer.code and "nothing to do" in again.out


def test_a_run_without_a_report_is_not_applied(finished, run):
    """What stands there may be of an earlier stage than the result."""
    shutil.copy(finished[1] / "X.npz", "X.npz")
    (run / "report.json").unlink()
    answer = call(registry.declaration(learner(finished[0])).verb, "run.zarr", "--data", "X.npz", "--out", "out.npy")
    assert answer.code == 6 and "`dkl resume`" in answer.err and not Path("out.npy").exists()


def test_info_as_text_and_json(finished, run):
    task = finished[0]
    before = tree(run)
    text, held = call("info", "run.zarr"), json.loads(call("info", "run.zarr", "--json").out)
    assert (text.code, text.err) == (0, "")
    assert f"complete, {ALL[task].ends}" in text.out and "peak memory" in text.out and "settings" in text.out
    assert held["state"] == f"complete, {ALL[task].ends}" and held["config"]["task"] == learner(task)
    opened = dkl.open_run(run)
    assert (opened.task, opened.state, opened.is_complete) == (learner(task), held["state"], True)
    assert opened.report == held["report"] and opened.history == held["history"] and opened.history
    assert opened.settings == held["config"]["settings"]
    assert tree(run) == before
    (run / "report.json").unlink()
    assert "complete" not in call("info", "run.zarr").out.splitlines()[0]


def test_loaded_and_applied_without_training_data(finished, run):
    """The training data is gone; only rows to apply it to are there."""
    task, folder, _ = finished
    held = RunStore.open(run)
    rows = Path(held.config["inputs"]["data"]["path"])
    shutil.copy(rows, "rows.npz")
    away = folder / "away"
    away.mkdir()
    moved = [path for path in folder.iterdir() if path.is_file()]
    for path in moved:
        path.rename(away / path.name)
    try:
        verb = registry.declaration(learner(task)).verb
        answer = call(verb, "run.zarr", "--data", "rows.npz", "--out", "out.npy")
        assert answer.code == 0, answer.err
        model, found = dkl.load(run), np.load("out.npy")
        X = np.load("rows.npz")["X"]
        wanted = model.factor_ if hasattr(model, "factor_") else getattr(model, verb)(X)
        assert found.dtype.kind == np.asarray(wanted).dtype.kind and len(found) == len(X)
        assert np.array_equal(found, np.asarray(wanted)) or np.allclose(found, wanted, rtol=1e-12)
    finally:
        for path in moved:
            (away / path.name).rename(path)
        away.rmdir()


def test_its_rows_are_clustered_or_it_is_named(finished, run):
    """Kernel k-means of what the command's transform gives for the rows learned from; of what has no coordinates none."""
    task, folder, _ = finished
    answer = call("cluster", "run.zarr", "--k", "3", "--out", "labels.npy", "--out", "clusters.npz")
    if registry.declaration(learner(task)).verb == "predict":
        assert (answer.code, len(answer.err.splitlines())) == (2, 1) and "use `dkl predict` for it" in answer.err
        return
    assert answer.code == 0, answer.err
    assert call("transform", "run.zarr", "--data", str(folder / "X.npz"), "--out", "rows.npy").code == 0
    own = dkl.KernelKMeans(3, random_state=0).fit(np.load("rows.npy"))
    loaded = dkl.load("clusters.npz")
    assert np.array_equal(np.load("labels.npy"), own.labels_) and np.array_equal(loaded.labels_, own.labels_)
    assert np.isclose(loaded.inertia_, own.inertia_, rtol=1e-10)
    assert loaded.plot().axes


def not_blank(path):
    from matplotlib.image import imread

    pixels = np.asarray(imread(path))[..., :3]
    return min(pixels.shape[:2]) > 200 and pixels.std() > 0.02


def test_pictures_are_drawn(finished, run):
    task, _, answer = finished
    assert "picture: " in answer.out and not_blank(run / "report.png")
    assert call("info", "run.zarr", "--picture", "again.png").code == 0
    assert Path("again.png").read_bytes() == (run / "report.png").read_bytes()
    assert call("info", "run.zarr", "--picture", "again.png").code == 2  # never overwritten
    assert task != "ridge" or not_blank(dkl.open_run(run).picture("mine.png"))
    assert dkl.load(run).plot().axes


def flags(command):
    return {flag for option in command.params for flag in (*option.opts, *option.secondary_opts) if flag[:2] == "--"}


@pytest.mark.parametrize("task", TASKS)
def test_help_and_remedies_name_only_what_there_is(task):
    context = click.Context(click.Command("dkl"))
    fit, resume = COMMANDS["fit"].get_command(context, task), COMMANDS["resume"]
    known = flags(fit) | {flag for option in resume.get_params(context) for flag in option.opts} | {"--help"}
    texts = [fit.get_help(context), *registry.declaration(learner(task)).remedies.values()]
    for text in texts:
        assert set(re.findall(r"--[a-z][\w-]+", text)) <= known
    resumable = {one.flag for one in declared(registry.declaration(learner(task)).settings).values() if one.resumable}
    assert resumable <= {flag for option in resume.get_params(context) for flag in option.opts}


def test_a_change_that_resuming_cannot_make_is_refused(finished, run):
    task = finished[0]
    fixed = next(one for one in declared(registry.declaration(learner(task)).settings).values() if not one.resumable)
    with pytest.raises(dkl.errors.InputError, match=fixed.flag):
        dkl.resume(run, **{fixed.name: fixed.default})


def test_who_means_to_resume_gets_an_interrupted_run(finished, tmp_path, monkeypatch):
    """A callback with `comes_back` ends a run in its folder by an error; it is resumed to the same bytes."""
    task, folder, _ = finished
    kind = registry.kind(learner(task))
    if "checkpoint_every" not in declared(kind.declaration.settings):
        pytest.skip("fits in one piece")
    small_blocks.make_small(monkeypatch.setattr)
    run = Path(shutil.copytree(folder / "run.zarr", tmp_path / "run.zarr"))
    for part in (*ALL[task].result, "generations"):
        shutil.rmtree(run / part, ignore_errors=True)
    (run / "report.json").unlink()

    class Away:
        comes_back = True

        def __call__(self, row):
            return True

    with contextlib.suppress(InterruptedRunError):
        dkl.resume(run, n_jobs=1, callbacks=Away())
        pytest.fail("it went to its end")
    dkl.resume(run, n_jobs=1)
    assert learned(task, run) == learned(task, folder / "run.zarr")
