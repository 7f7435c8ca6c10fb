"""Names of columns go with a run: rows of tables are matched with them by name, and `dkl.load` has them."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from command_line import Answer, call
from command_runs import bytes_of, refused
from numpy.testing import assert_array_equal
from resealed import write_config

import dkl
from dkl.errors import InputError
from dkl.stores.seals import read_json

N, NAMES = 40, ["age", "spent", "visits"]
RNG = np.random.default_rng(5)
KIND = np.arange(N) % 2
POINTS = (RNG.standard_normal((N, 3)) * [1, 2, 3] + 4 * KIND[:, None]).round(3)
NEW = (RNG.standard_normal((12, 3)) * [1, 2, 3] + 2).round(3)
PAIRS = "".join(f"{i},{i + 2},must\n{i},{i + 1},cannot\n" for i in range(20))
TASKS = {
    "svc": ("predict", "--targets", "kind.npy"),
    "regression": ("predict", "--targets", "y.npy", "--n-columns", "10", "--nu", "0.1"),
    "pairwise": ("transform", "--pairs", "pairs.csv"),
    "logdet": ("transform", "--targets", "kind.npy", "--gamma", "1"),
    "metric": ("transform", "--targets", "kind.npy", "--gamma", "1"),
    "laplacian": ("transform", "--pairs", "pairs.csv", "--n-neighbors", "6"),
    "mvu": ("transform", "--n-neighbors", "8"),
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run of each learner, of a table with names, and of the same table without."""
    folder = tmp_path_factory.mktemp("names")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        write("X.csv", POINTS, NAMES)
        write("plain.csv", POINTS, None)
        np.save("kind.npy", KIND)
        np.save("y.npy", POINTS @ [1.0, -2.0, 0.5])
        Path("pairs.csv").write_text(PAIRS)
        for task, (_, *options) in TASKS.items():
            for data, out in (("X.csv", task), ("plain.csv", f"{task}-plain")):
                answer = call(
                    "fit", task, "--data", data, *options, "--out", f"{out}.zarr", "--no-picture", "--standardize"
                )
                assert answer.code == 0, answer.err
    return folder


@pytest.fixture
def folder(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a fresh folder next to these runs."""
    monkeypatch.chdir(tmp_path)
    return runs


def write(file: str, rows: Any, names: list[str] | None, order: list[str] | None = None) -> None:
    """A table of the rows, with columns in another order."""
    columns = [NAMES.index(name) for name in order] if order else list(range(rows.shape[1]))
    lines = [",".join(f"{value:.3f}" for value in row) for row in rows[:, columns]]
    head = [",".join(order or names)] if names else []
    Path(file).write_text("\n".join(head + lines) + "\n")


def apply(run: Path, verb: str, data: str, out: str) -> tuple[Answer, Any]:
    answer = call(verb, str(run), "--data", data, "--out", out)
    return answer, np.load(out) if answer.code == 0 else None


@pytest.mark.parametrize("task", TASKS)
def test_columns_are_matched_by_name(folder: Path, task: str) -> None:
    verb, run = TASKS[task][0], folder / f"{task}.zarr"
    for rows, kind in ((NEW, "new"), (POINTS, "known")):
        write(f"{kind}.csv", rows, NAMES)
        write(f"{kind}-moved.csv", rows, NAMES, ["visits", "age", "spent"])
        answer, wanted = apply(run, verb, f"{kind}.csv", f"{kind}.npy")
        assert answer.code == 0 and "matched" not in answer.err, answer.err
        answer, found = apply(run, verb, f"{kind}-moved.csv", f"{kind}-moved.npy")
        assert f"note: {kind}-moved.csv: columns matched with those learned from by their names\n" in answer.err
        assert_array_equal(found, wanted)


@pytest.mark.parametrize("task", TASKS)
def test_other_names_are_refused(folder: Path, task: str) -> None:
    verb, run = TASKS[task][0], folder / f"{task}.zarr"
    write("other.csv", NEW, ["age", "spent", "height"])
    write("more.csv", np.c_[NEW, NEW[:, 0]], [*NAMES, "height"])
    write("fewer.csv", NEW[:, :2], NAMES[:2])
    for file, got, remedy in (
        ("other.csv", "missing 'visits', extra 'height'", "rename the columns"),
        ("more.csv", "extra 'height'", "leave the others out: --drop height"),
        ("fewer.csv", "missing 'visits'", "rename the columns"),
    ):
        answer, _ = apply(run, verb, file, "never.npy")
        refused(answer)
        wanted = f"got {got}; wanted age, spent, visits; {remedy}"
        assert f"{file}: other columns than were learned from; {wanted}" in answer.err
        assert not Path("never.npy").exists()
    answer = call(verb, str(run), "--data", "more.csv", "--drop", "height", "--out", "dropped.npy")
    assert answer.code == 0, answer.err


@pytest.mark.parametrize("task", TASKS)
def test_without_names_on_one_side_columns_stay(folder: Path, task: str) -> None:
    verb = TASKS[task][0]
    write("named.csv", NEW, NAMES)
    write("moved.csv", NEW, NAMES, ["visits", "age", "spent"])
    write("bare.csv", NEW, None)
    np.save("X.npy", NEW)
    _, wanted = apply(folder / f"{task}.zarr", verb, "named.csv", "a.npy")
    answer, found = apply(folder / f"{task}.zarr", verb, "bare.csv", "b.npy")
    assert "note: bare.csv: it has no names of columns: its columns are taken in their order\n" in answer.err
    assert_array_equal(found, wanted)
    answer, found = apply(folder / f"{task}.zarr", verb, "X.npy", "c.npy")
    assert answer.err == "" and np.allclose(found, wanted)
    answer, found = apply(folder / f"{task}-plain.zarr", verb, "named.csv", "d.npy")
    assert "note: named.csv: the run has no names of columns: its columns are taken in their order\n" in answer.err
    assert_array_equal(found, wanted)


@pytest.mark.parametrize("task", TASKS)
def test_names_change_nothing_that_is_learned(folder: Path, task: str) -> None:
    """All arrays have the same bytes; `verify` and `resume` go by the run as before; runs without names have no word of them."""
    named, plain = folder / f"{task}.zarr", folder / f"{task}-plain.zarr"
    parts = [path.name for path in named.iterdir() if path.is_dir() and path.name != "FOLDER"]
    arrays = [part for part in parts if any((named / part).rglob("zarr.json"))]

    def numbers(run: Path) -> dict[str, bytes]:
        return {name: held for name, held in bytes_of(run, *arrays).items() if "/c/" in name}

    assert numbers(named) == numbers(plain) != {}
    assert json.loads((named / "config.json").read_text())["feature_names"] == NAMES
    assert "feature_names" not in json.loads((plain / "config.json").read_text())
    answer = call("verify", str(named))
    assert answer.code == 0, answer.err
    assert call("resume", str(named)).code == 0


@pytest.mark.parametrize("task", TASKS)
def test_loaded_learners_have_names(folder: Path, task: str) -> None:
    model = dkl.load(folder / f"{task}.zarr")
    assert model.feature_names_in_.tolist() == NAMES
    assert not hasattr(dkl.load(folder / f"{task}-plain.zarr"), "feature_names_in_")
    verb = getattr(model, TASKS[task][0])
    frame = pd.DataFrame(NEW, columns=NAMES)
    write("new.csv", NEW, NAMES)
    _, wanted = apply(folder / f"{task}.zarr", TASKS[task][0], "new.csv", "new.npy")
    found = np.asarray(verb(frame))
    if found.dtype.kind == "f":
        np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-9)
    else:
        assert_array_equal(found, wanted)
    with pytest.raises(
        InputError, match="same order"
    ):  # scikit-learn's rule, as of a learner that was fitted in Python
        verb(frame[NAMES[::-1]])


def test_options_of_tables_go_with_names(folder: Path) -> None:
    """The run's names are those that were used; drop and ids apply to the new file, in whatever order."""
    frame = pd.DataFrame(POINTS, columns=NAMES)
    frame.insert(1, "client", [f"c{i}" for i in range(N)])
    frame["kind"] = np.where(KIND, "gold", "basic")
    frame.to_csv("all.csv", index=False)
    answer = call("fit", "svc", "--data", "all.csv", "--id-column", "client", "--target-column", "kind", "--drop", "spent",
                  "--out", "run.zarr", "--no-picture")  # fmt: skip
    assert answer.code == 0, answer.err
    assert dkl.load("run.zarr").feature_names_in_.tolist() == ["age", "visits"]
    frame[["visits", "kind", "spent", "client", "age"]].to_csv("moved.csv", index=False)
    one, two = (apply(Path("run.zarr"), "predict", f"{name}.csv", f"{name}.npy") for name in ("all", "moved"))
    assert "matched with those learned from" in two[0].err
    assert_array_equal(one[1], two[1])
    assert "accuracy" in two[0].out


def test_runs_of_frames_in_python_have_names(tmp_path: Path) -> None:
    frame = pd.DataFrame(POINTS, columns=NAMES)
    for model, given in (
        (dkl.LowRankKernelRegressor(n_columns=10, nu=0.1, work_dir=tmp_path), {"y": POINTS[:, 0]}),
        (dkl.PairwiseKernelLearner(work_dir=tmp_path), {"y": KIND}),
    ):
        model.fit(frame, **given)
        loaded = dkl.load(model.run_path_)
        assert loaded.feature_names_in_.tolist() == NAMES
        model.fit(POINTS, **given)
        assert not hasattr(dkl.load(model.run_path_), "feature_names_in_")


@pytest.mark.parametrize("names", [["age"], [], "age", [1, 2, 3], {"a": 1}])
def test_damaged_names_are_told(folder: Path, names: Any) -> None:
    shutil.copytree(folder / "svc.zarr", "run.zarr")
    write_config(Path("run.zarr"), read_json(Path("run.zarr/config.json")) | {"feature_names": names})
    write("new.csv", NEW, NAMES)
    answer, _ = apply(Path("run.zarr"), "predict", "new.csv", "never.npy")
    refused(answer, 6)
    assert "damaged names of the columns" in answer.err
