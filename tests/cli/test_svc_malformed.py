"""What is wrong with a classifier's command line or files is told in one line, and nothing is written."""

from pathlib import Path

import numpy as np
import pytest
from command_line import SLOW, call, refused_without, tree
from command_runs import arrays, refused
from repeats import but_for, crossed
from resealed import write_config
from svc_files import D, N, write_inputs

from dkl.stores.run import RunStore

X = np.random.default_rng(1).standard_normal((N, D))
Y = np.arange(N) % 2


def with_value(values, place, value):
    changed = values.copy()
    changed[place] = value
    return changed


OPTIONS = {
    "C 0": (["--C", "0"], 2),
    "C negative": (["--C", "-1"], 2),
    "C NaN": (["--C", "nan"], 2),
    "C in words": (["--C", "auto"], 2),
    "rho 0": (["--rho", "0"], 2),
    "rho inf": (["--rho", "inf"], 2),
    "unknown kernel": (["--kernel", "magic"], 2),
    "a callable's name": (["--kernel", "os.system"], 2),
    "one of several unknown": (["--kernel", "rbf", "--kernel", "magic"], 2),
    "precomputed among several": (["--kernel", "rbf", "--kernel", "precomputed"], 2),
    "level of several": (["--kernel", "rbf", "--kernel", "poly", "--solver", "level"], 2),
    "gamma 0": (["--gamma", "0"], 2),
    "gamma in words": (["--gamma", "cv"], 2),
    "negative degree": (["--degree", "-1"], 2),
    "coef0 inf": (["--coef0", "inf"], 2),
    "other solver": (["--solver", "smo"], 2),
    "other scheme": (["--multi-class", "crammer"], 2),
    "other weights": (["--class-weight", "auto"], 2),
    "tol negative": (["--tol", "-1"], 2),
    "no iterations": (["--max-iter", "0"], 2),
    "iterations 1.5": (["--max-iter", "1.5"], 2),
    "other dtype": (["--dtype", "float16"], 2),
    "no size": (["--memory-limit", "lots"], 2),
    "too little memory": (["--memory-limit", "1MB"], 5),
    "no folder to work in": (["--work-dir", "none"], 2),
    "a file to work in": (["--work-dir", "X.npz"], 2),
    "checkpoint every 0": (["--checkpoint-every", "0"], 2),
    "no workers": (["--workers", "0"], 2),
    "workers and threads": (["--workers", "2", "--threads", "2"], 2),
    "tcp to another machine": (["--scheduler", "tcp://10.1.2.3:8786"], 2),
    "no scheduler there": (["--scheduler-file", "none.json"], 2),
    "of the other commands": (["--pairs", "X.npz"], 2),
    "of a regression": (["--nu", "1"], 2),
    "precomputed, not square": (["--kernel", "precomputed"], 2),
    "labels missing": (["--targets", "none.csv"], 2),
    "labels in a folder": (["--targets", "."], 2),
    "labels of a strange kind": (["--targets", "y.txt"], 2),
    "an argument too many": (["more"], 2),
    "out exists": (["--out", "X.npz"], 2),
    "out in no folder": (["--out", "none/run.zarr"], 2),
}

ARRAYS = {
    "no y": {"X": X},
    "no X": {"Z": X, "y": Y},
    "y too short": {"X": X, "y": Y[:-1]},
    "y too long": {"X": X, "y": np.append(Y, 0)},
    "y of two columns": {"X": X, "y": np.stack([Y, Y], axis=1)},
    "y a number": {"X": X, "y": np.float64(1)},
    "y NaN": {"X": X, "y": with_value(Y.astype(float), 7, np.nan)},
    "y infinite": {"X": X, "y": with_value(Y.astype(float), 7, np.inf)},
    "y continuous": {"X": X, "y": X[:, 0]},
    "y complex": {"X": X, "y": Y + 1j},
    "y bytes": {"X": X, "y": Y.astype("S")},
    "y dates": {"X": X, "y": Y.astype("datetime64[D]")},
    "one class": {"X": X, "y": np.ones(N, int)},
    "one class by name": {"X": X, "y": np.full(N, "red")},
    "one row": {"X": X[:1], "y": Y[:1]},
    "no rows": {"X": X[:0], "y": Y[:0]},
    "X 1-d": {"X": X[:, 0], "y": Y},
    "X complex": {"X": X + 1j, "y": Y},
    "X words": {"X": X.astype(str), "y": Y},
}
ROWS = {
    "X NaN": {"X": with_value(X, (3, 1), np.nan), "y": Y},
    "X infinite": {"X": with_value(X, (N - 1, 1), -np.inf), "y": Y},
    "X too large": {"X": with_value(X, (0, 0), 1e308), "y": Y},
}
SQUARE = X @ X.T
MATRICES = {
    "not symmetric": (with_value(SQUARE, (3, 5), 9.0), "symmetric"),
    "indefinite": (SQUARE - 3 * np.eye(N), "eigenvalue"),
    "NaN": (with_value(SQUARE, (3, 5), np.nan), "contains NaN"),
}


@pytest.fixture
def work(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_inputs(tmp_path)
    (tmp_path / "y.txt").write_text("red\n" * N)
    return tmp_path


def arguments(*more):
    return ["svc", "--data", "X.npz", *([] if "--out" in more else ["--out", "run.zarr"]), *more]


@pytest.mark.parametrize("command", ["fit", "plan"])
@pytest.mark.parametrize("case", OPTIONS)
def test_options(case, command, work):
    more, code = OPTIONS[case]
    before = tree(work)
    refused(call(command, *arguments(*more)), code)
    assert tree(work) == before


@pytest.mark.parametrize("command", ["fit", "plan"])
@pytest.mark.parametrize("case", ARRAYS | ROWS)
def test_arrays(case, command, work):
    if command == "plan" and case in ROWS:
        pytest.skip("a plan reads no rows")
    np.savez("X.npz", **(ARRAYS | ROWS)[case])
    before = tree(work)
    refused(call(command, *arguments()))
    assert tree(work) == before


@pytest.mark.parametrize("case", MATRICES)
def test_what_is_no_kernel_matrix_leaves_nothing(case, work):
    matrix, words = MATRICES[case]
    np.savez("X.npz", X=matrix, y=Y)
    before = tree(work)
    assert words in refused_without(SLOW, "fit", *arguments("--kernel", "precomputed"))
    assert tree(work) == before


@pytest.mark.parametrize(
    "content", ["", "red\n", "red,blue\n" * N, "red\n" * (N + 2), "red\n" * N, "\xff\n" * N, "red\n" * (N - 1)]
)
def test_labels_in_csv(content, work):
    (work / "y.csv").write_bytes(content.encode("latin-1"))
    before = tree(work)
    refused(call("fit", *arguments("--targets", "y.csv")))
    assert tree(work) == before


def test_pickled_labels_are_not_read(work):
    np.save("y.npy", np.array(["red", None] * (N // 2), object))
    answer = call("fit", *arguments("--targets", "y.npy"))
    refused(answer)
    assert "never read" in answer.err


def test_rows_without_labels_beside_them(work):
    answer = call("fit", "svc", "--data", "X.npy", "--out", "run.zarr")
    refused(answer)
    assert "--targets" in answer.err


@pytest.mark.parametrize("place", [0, N - 1])
def test_a_kernel_that_refuses_the_rows_leaves_nothing(place, work):
    """chi2 takes no negative numbers, of which scikit-learn would tell from within, in a late row in the fit alone."""
    np.savez("X.npz", X=with_value(abs(X), (place, 0), -1.0), y=Y)
    before = tree(work)
    said = refused_without(SLOW, "fit", *arguments("--kernel", "chi2"))
    assert f"kernel='chi2', X[{place}, 0]: the kernel takes no negative numbers; got -1" in said
    assert tree(work) == before


def test_the_level_method_is_for_few_rows(work):
    np.savez("X.npz", X=np.zeros((20_000, 1)), y=np.arange(20_000) % 2)
    for command in ("fit", "plan"):
        answer = call(command, *arguments("--solver", "level"))
        refused(answer)
        assert "too many rows" in answer.err


PREDICT = {
    "no data": (["--data", "none.npz", "--out", "p.npy"], "no such file"),
    "other features": (["--data", "wide.npz", "--out", "p.npy"], "features"),
    "NaN": (["--data", "nan.npz", "--out", "p.npy"], "contains NaN"),
    "out exists": (["--data", "new.npz", "--out", "X.npz"], "never overwritten"),
    "another kind of file": (["--data", "new.npz", "--out", "p.txt"], "kind of file"),
    "labels of other rows": (["--data", "new.npz", "--targets", "y.csv", "--out", "p.npy"], "not labels of these"),
    "numbers for names": (["--data", "new.npz", "--targets", "numbers.npy", "--out", "p.npy"], "another kind"),
}


@pytest.fixture
def run(work):
    assert call("fit", *arguments("--no-picture")).code == 0
    return work / "run.zarr"


def test_predict_and_the_other_commands(run, work):
    np.savez("wide.npz", X=np.ones((4, D + 1)))
    np.savez("nan.npz", X=np.full((4, D), np.nan))
    np.save("numbers.npy", np.arange(len(arrays("new.npz")["y"])))
    before = tree(work)
    for more, words in PREDICT.values():
        answer = call("predict", "run.zarr", *more)
        refused(answer)
        assert words in answer.err
    answer = call("transform", "run.zarr", "--data", "new.npz", "--out", "f.npz")
    refused(answer)
    assert "dkl predict" in answer.err
    refused(call("resume", "run.zarr", "--target-gap", "0.1"))
    assert tree(work) == before


def test_decision_values_of_a_regression(work):
    np.savez("Y.npz", X=X, y=X[:, 0])
    fit = ["regression", "--data", "Y.npz", "--out", "r.zarr", "--nu", "1", "--n-columns", "5", "--no-picture"]
    assert call("fit", *fit).code == 0
    answer = call("predict", "r.zarr", "--data", "Y.npz", "--out", "p.npy", "--decision")
    refused(answer)
    assert not Path("p.npy").exists()


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(content)


PARTS = ["support", "coefficients", "intercepts", "kernel_weights", "gammas", "points"]


@pytest.mark.parametrize(("part", "damage"), crossed(PARTS, [flip, Path.unlink]))
def test_a_damaged_model(damage, part, run, work):
    damage(next(path for path in sorted((run / "model" / part / "c").rglob("*")) if path.is_file()))
    before = tree(work)
    for command in (["predict", "run.zarr", "--data", "new.npz", "--out", "p.npy"], ["verify", "run.zarr"]):
        refused(call(*command), 6)
    assert tree(work) == before


def rewritten(run, change):
    config = RunStore.open(run).config
    change(config)
    write_config(run, config)


CONFIGS = {
    "no classes": lambda config: config.pop("classes"),
    "one class": lambda config: config["classes"].update(values=["red"]),
    "a class twice": lambda config: config["classes"].update(values=["red", "red", "blue", "green"]),
    "classes of objects": lambda config: config["classes"].update(dtype="|O"),
    "classes of another number": lambda config: config["classes"]["values"].pop(),
    "a kernel that is none": lambda config: config["settings"].update(kernel="magic"),
    "kernels as dictionaries": lambda config: config["settings"].update(kernel=[{"kernel": "rbf"}, "rbf"]),
    "another setting": lambda config: config["settings"].update(magic=1),
    "a damaged setting": lambda config: config["settings"].update(C=-1.0),
    "settings gone": lambda config: config.pop("settings"),
    "shape gone": lambda config: config["inputs"]["data"].pop("shape"),
    "another task": lambda config: config.update(task="magic"),
}


@pytest.mark.parametrize("case", but_for(list(CONFIGS)[1::2], CONFIGS))
def test_a_strange_configuration(case, run, work):
    rewritten(run, CONFIGS[case])
    before = tree(work)
    refused(call("predict", "run.zarr", "--data", "new.npz", "--out", "p.npy"), 6)
    if case != "shape gone":
        refused(call("verify", "run.zarr"), 6)
    assert tree(work) == before
