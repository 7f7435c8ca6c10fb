"""What is wrong with a regression's command line or files is told in one line, and nothing is written."""

from pathlib import Path

import numpy as np
import pytest
from command_line import SLOW, call, refused_without, tree
from command_runs import refused
from regression_files import D, N, write_inputs

X = np.random.default_rng(1).standard_normal((N, D))
Y = X[:, 0]


def with_value(values, place, value):
    changed = values.copy()
    changed[place] = value
    return changed


OPTIONS = {
    "unknown kernel": (["--kernel", "magic"], 2),
    "a callable's name": (["--kernel", "os.system"], 2),
    "gamma 0": (["--gamma", "0"], 2),
    "gamma NaN": (["--gamma", "nan"], 2),
    "negative degree": (["--degree", "-1"], 2),
    "coef0 inf": (["--coef0", "inf"], 2),
    "nu 0": (["--nu", "0"], 2),
    "nu in words": (["--nu", "auto"], 2),
    "lam negative": (["--lam", "-1"], 2),
    "no columns": (["--n-columns", "0"], 2),
    "columns 1.5": (["--n-columns", "1.5"], 2),
    "other columns": (["--columns", "kmeans"], 2),
    "other solver": (["--solver", "magic"], 2),
    "the printed algorithm keeps nothing": (["--solver", "paper"], 2),
    "other sampling": (["--sampling", "cyclic"], 2),
    "the paper's rule without coordinates": (["--stopping", "paper"], 2),
    "one fold": (["--cv", "1"], 2),
    "no nus": (["--n-nus", "0"], 2),
    "tol negative": (["--tol", "-1"], 2),
    "no iterations": (["--max-iter", "0"], 2),
    "other dtype": (["--dtype", "float16"], 2),
    "negative seed": (["--seed", "-1"], 2),
    "checkpoint every 0": (["--checkpoint-every", "0"], 2),
    "no size": (["--memory-limit", "lots"], 2),
    "too little memory": (["--memory-limit", "1MB"], 5),
    "no workers": (["--workers", "0"], 2),
    "workers and threads": (["--workers", "2", "--threads", "2"], 2),
    "tcp to another machine": (["--scheduler", "tcp://10.1.2.3:8786"], 2),
    "of the other command": (["--pairs", "X.npz"], 2),
    "precomputed, not square": (["--kernel", "precomputed"], 2),
    "targets missing": (["--targets", "none.csv"], 2),
    "out exists": (["--out", "X.npz"], 2),
    "out in no folder": (["--out", "none/run.zarr"], 2),
}

ARRAYS = {
    "no y": {"X": X},
    "y too short": {"X": X, "y": Y[:-1]},
    "y too long": {"X": X, "y": np.append(Y, 0)},
    "y of no columns": {"X": X, "y": np.empty((N, 0))},
    "y 3-d": {"X": X, "y": np.zeros((N, 1, 1))},
    "y a number": {"X": X, "y": np.float64(1)},
    "y NaN": {"X": X, "y": with_value(Y, 7, np.nan)},
    "y infinite": {"X": X, "y": with_value(Y, 7, np.inf)},
    "y too large to square": {"X": X, "y": with_value(Y, 7, 1e200)},
    "y words": {"X": X, "y": Y.astype(str)},
    "y complex": {"X": X, "y": Y + 1j},
    "one row": {"X": X[:1], "y": Y[:1]},
    "no rows": {"X": X[:0], "y": Y[:0]},
    "X 1-d": {"X": Y, "y": Y},
}
ROWS = {
    "X NaN": {"X": with_value(X, (3, 1), np.nan), "y": Y},
    "X infinite": {"X": with_value(X, (N - 1, 1), -np.inf), "y": Y},
    "X too large": {"X": with_value(X, (0, 0), 1e308), "y": Y},
}


@pytest.fixture
def work(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_inputs(tmp_path)
    return tmp_path


def arguments(*more):
    return ["regression", "--data", "X.npz", *([] if "--out" in more else ["--out", "run.zarr"]), *more]


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


@pytest.mark.parametrize("content", ["", "1,2\n3\n", "one,two\n", "nan\n" * N, "1\n" * (N - 1)])
def test_targets_in_csv(content, work):
    (work / "y.csv").write_text(content)
    before = tree(work)
    refused(call("fit", *arguments("--targets", "y.csv")))
    assert tree(work) == before


def test_rows_without_targets_beside_them(work):
    np.save("X.npy", X)
    answer = call("fit", "regression", "--data", "X.npy", "--out", "run.zarr")
    refused(answer)
    assert "--targets" in answer.err


@pytest.mark.parametrize("place", [0, N - 1])
def test_a_kernel_that_refuses_the_rows_leaves_nothing(place, work):
    """chi2 takes no negative numbers, of which scikit-learn would tell from within, in a late row in the pass alone."""
    np.savez("X.npz", X=with_value(abs(X), (place, 0), -1.0), y=Y)
    before = tree(work)
    said = refused_without(SLOW, "fit", *arguments("--kernel", "chi2", "--n-columns", "5"))
    assert f"kernel='chi2', X[{place}, 0]: the kernel takes no negative numbers; got -1" in said
    assert tree(work) == before


PREDICT = {
    "no data": (["--data", "none.npz", "--out", "p.npy"], "no such file"),
    "other features": (["--data", "wide.npz", "--out", "p.npy"], "features"),
    "NaN": (["--data", "nan.npz", "--out", "p.npy"], "contains NaN"),
    "out exists": (["--data", "new.npz", "--out", "X.npz"], "never overwritten"),
    "another kind of file": (["--data", "new.npz", "--out", "p.txt"], "kind of file"),
    "targets of other rows": (["--data", "new.npz", "--targets", "Y.npy", "--out", "p.npy"], "not targets"),
}


@pytest.fixture
def run(work):
    assert call("fit", *arguments("--n-columns", "5", "--nu", "1", "--no-picture")).code == 0
    return work / "run.zarr"


def test_predict_and_the_other_commands(run, work):
    np.savez("wide.npz", X=np.ones((4, D + 1)))
    np.savez("nan.npz", X=np.full((4, D), np.nan))
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


def test_predict_of_a_run_of_pairs(finished, work):
    answer = call("predict", finished / "run.zarr", "--data", "X.npz", "--out", "p.npy")
    refused(answer)
    assert "dkl transform" in answer.err
    assert not Path("p.npy").exists()


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(content)


@pytest.mark.parametrize("part", ["model/weights", "model/intercepts", "candidates/points", "candidates/scale"])
@pytest.mark.parametrize("damage", [flip, Path.unlink])
def test_a_damaged_model(damage, part, run, work):
    damage(next(path for path in sorted((run / part / "c").rglob("*")) if path.is_file()))
    before = tree(work)
    for command in (["predict", "run.zarr", "--data", "new.npz", "--out", "p.npy"], ["verify", "run.zarr"]):
        refused(call(*command), 6)
    assert tree(work) == before
