"""fit, info, verify, predict, resume and plan of a kernel regression do what their help says."""

import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
import small_blocks
import zarr
from command_line import LARGE, call, refused_without, tree
from command_runs import arrays, copied, read
from regression_files import FIT, SMALL, D, N, model_bytes, write_inputs
from repeats import but_for
from run_cases import change
from sklearn.linear_model import Lasso
from sklearn.metrics import r2_score
from sklearn.metrics.pairwise import pairwise_kernels

from dkl.stores.run import RunStore


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fitted")
    write_inputs(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        answer = call(*FIT, *SMALL, "--refit", "best")  # which is the ridge on all columns
    assert answer.code == 0, answer.err
    return folder, answer


@pytest.fixture
def work(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_inputs(tmp_path)
    return tmp_path


@pytest.fixture
def run(fitted, work):
    """A finished run that names the data of this folder."""
    return copied(fitted[0], work)


def columns(X, run):
    """C (n, M) by scikit-learn."""
    points = RunStore.open(run).read_arrays("candidates")["points"]
    return pairwise_kernels(X, points, metric="rbf", gamma=1 / (D * arrays("X.npz")["X"].var()))


def test_help():
    for command in (["fit", "regression"], ["plan", "regression"], ["predict"]):
        answer = call(*command, "--help")
        assert (answer.code, answer.err) == (0, "")
        assert "Usage" in answer.out


def test_nothing_large_is_imported_for_a_wrong_option():
    refused_without(LARGE, "fit", "regression", "--kernel", "magic")


def test_fit_says_what_it_came_to(fitted):
    folder, answer = fitted
    for words in ("solved", "by cross-validation", "of which active", "objective", "relative gap", "seconds", "peak"):
        assert words in answer.out
    config, report = RunStore.open(folder / "run.zarr").config, RunStore.open(folder / "run.zarr").report()
    assert (config["task"], config["command"]) == ("regression", "fit regression")
    assert config["inputs"]["data"]["shape"] == [N, D] and config["inputs"]["targets"]["shape"] == [N]
    assert report["outputs"][0]["relative_gap"] <= 1e-6
    assert not (folder / "run.zarr" / "sums").exists()


def test_fit_at_a_given_nu_is_scikit_learns_lasso(work):
    assert call(*FIT, *SMALL, "--nu", "2", "--lam", "3", "--tol", "1e-12").code == 0
    files = arrays("X.npz")
    C = columns(files["X"], "run.zarr")
    lasso = Lasso(alpha=np.sqrt(6) / N, tol=1e-13, max_iter=500_000).fit(C, files["y"])
    assert np.allclose(read("run.zarr", "weights")[0], lasso.coef_, atol=1e-4 * abs(lasso.coef_).max())
    assert np.allclose(read("run.zarr", "intercepts"), lasso.intercept_, rtol=1e-5)


def test_info_of_every_state(run):
    before = tree(run)
    shown = call("info", "run.zarr")
    for words in ("complete, solved", "X.npz", "active", "rows held out", "chosen", "plan"):
        assert words in shown.out
    facts = json.loads(call("info", "run.zarr", "--json").out)
    assert sum(row["chosen"] for row in facts["cv"]) == 1
    best = min(facts["cv"], key=lambda row: row["error"])
    assert facts["report"]["nu"] >= best["nu"]
    assert tree(run) == before
    (run / "report.json").unlink()
    assert "not started; the columns are chosen" in call("info", "run.zarr").out


def test_verify_agrees(run):
    answer = call("verify", "run.zarr")
    assert answer.code == 0, answer.err
    assert "they agree" in answer.out


def rewritten(run, change, folder="model"):
    store = RunStore.open(run)
    held = store.read_arrays(folder)
    change(held)
    store.write_arrays(folder, held)
    store.write_report(store.report())  # of these arrays now: what is to be seen is in the numbers


def weight(held):
    lasso = held["lasso_weights"]
    k = np.flatnonzero(lasso[0])[0]
    lasso[0, k] *= 1 + 1e-4
    held["kernel_weights"][0, k] *= 1 + 1e-4


def weight_of_refit(held):
    held["weights"][0, 0] *= 1 + 1e-3


TAMPERED = {
    "a weight": (weight, "model", "gap"),
    "a weight of the refit": (weight_of_refit, "model", "refit: gap"),
    "the lasso's intercept": (lambda held: held["lasso_intercepts"].__iadd__(1e-3), "model", "sum of residuals"),
    "mu": (lambda held: held["kernel_weights"].__imul__(1.01), "model", "kernel_weights"),
    "the intercept": (lambda held: held["intercepts"].__iadd__(1e-3), "model", "sum of residuals"),
    "a point": (lambda held: held["points"].__iadd__(1e-9), "candidates", "not that row"),
    "a gamma": (lambda held: held["gamma"].__imul__(1.1), "candidates", "gamma is not that of the rows"),
    "a scale": (lambda held: held["scale"].__imul__(1.1), "candidates", "scale"),
}


@pytest.mark.parametrize("case", TAMPERED)
def test_verify_sees_what_was_altered(case, run):
    assert RunStore.open(run).report()["refit"]["columns"] == "all"
    change, folder, words = TAMPERED[case]
    rewritten(run, change, folder)
    answer = call("verify", "run.zarr")
    assert (answer.code, len(answer.err.splitlines())) == (6, 1)
    assert words in answer.err


@pytest.mark.parametrize("change", ["changed", "gone"])
def test_verify_and_resume_say_that_the_data_is_not_what_it_was(change, run, work):
    (work / "X.npz").unlink()
    if change == "changed":
        np.savez(work / "X.npz", X=np.zeros((N, D)), y=np.zeros(N))
    answer = call("verify", "run.zarr")
    assert (answer.code, len(answer.err.splitlines())) == (2, 1)
    assert change in answer.err and str(work / "X.npz") in answer.err
    (run / "report.json").unlink()
    assert call("resume", "run.zarr").code == 2


@pytest.mark.parametrize("suffix", ["npy", "npz", "csv"])
def test_predict(suffix, run):
    answer = call("predict", "run.zarr", "--data", "new.npz", "--out", f"p.{suffix}")
    assert answer.code == 0, answer.err
    files = arrays("new.npz")
    wanted = columns(files["X"], run) @ read(run, "weights")[0] + read(run, "intercepts")[0]
    read_file = {"csv": np.loadtxt, "npy": np.load, "npz": lambda name: arrays(name)["y"]}[suffix]
    found = read_file(f"p.{suffix}")
    assert found.shape == (50,)
    assert np.allclose(found, wanted, rtol=1e-10)
    told = float(re.search(r"R2 ([\d.]+)", answer.out)[1])
    assert told == pytest.approx(r2_score(files["y"], wanted), rel=1e-5)


def test_a_single_number_is_predicted_of(work):
    """In an archive, of which only the shape is read first."""
    np.save("x.npy", arrays("X.npz")["X"][:, :1])
    files = ["--data", "x.npy", "--targets", "Y.npy", "--out", "x.zarr"]
    assert call("fit", "regression", *files, *SMALL, "--nu", "1").code == 0
    np.savez("one.npz", X=np.array([[2.0]]))
    np.save("one.npy", np.array([[2.0]]))
    for suffix in ("npy", "npz"):
        assert call("predict", "x.zarr", "--data", f"one.{suffix}", "--out", f"of_{suffix}.npy").code == 0
    assert np.array_equal(np.load("of_npz.npy"), np.load("of_npy.npy"))


def test_predict_in_many_blocks_keeps_the_order(run, monkeypatch):
    monkeypatch.setattr("dkl.blocks.rows.row_blocks.SMALLEST_BLOCK", 1000)
    assert call("predict", "run.zarr", "--data", "X.npz", "--out", "p.npy", "--threads", "1").code == 0
    wanted = columns(arrays("X.npz")["X"], run) @ read(run, "weights")[0] + read(run, "intercepts")[0]
    assert np.allclose(np.load("p.npy"), wanted, rtol=1e-10)


def test_several_targets_from_zarr_rows_on_workers(work, cluster):
    X = arrays("X.npz")["X"]
    zarr.create_array("X.zarr", shape=X.shape, chunks=(70, D), dtype=X.dtype)[...] = X
    data = ["--data", "X.zarr", "--targets", "Y.npy", "--out", "run.zarr", *SMALL, "--nu", "1", "--no-picture"]
    assert call("fit", "regression", *data, "--scheduler", cluster.scheduler_address).code == 0
    data[data.index("run.zarr")] = "threads.zarr"
    assert call("fit", "regression", *data, "--threads", "2").code == 0
    assert model_bytes(work / "run.zarr") == model_bytes(work / "threads.zarr")
    assert call("verify", "run.zarr").code == 0
    answer = call("predict", "run.zarr", "--data", "X.zarr", "--targets", "Y.npy", "--out", "p.npy")
    assert "target 1: R2" in answer.out
    assert np.load("p.npy").shape == (N, 2)


@pytest.mark.parametrize("kernel", ["precomputed", "poly", "laplacian", "cosine"])
def test_other_kernels_verify_and_predict(kernel, work):
    if kernel == "precomputed":
        files = arrays("X.npz")
        np.savez("X.npz", X=pairwise_kernels(files["X"], metric="rbf"), y=files["y"])
    assert call(*FIT, *SMALL, "--kernel", kernel, "--nu", "1", "--columns", "rpcholesky").code == 0
    verified = call("verify", "run.zarr")
    assert verified.code == 0, verified.out + verified.err
    assert call("predict", "run.zarr", "--data", "X.npz", "--out", "p.npy").code == 0


def test_a_gap_that_only_rounding_hides_is_not_solved(work):
    # Columns of 1 - 1e-13: about their means they are a few of their own last digits.
    files = arrays("X.npz")
    np.savez("X.npz", X=files["X"], y=files["y"] + 10)
    assert call(*FIT, *SMALL, "--gamma", "1e-12", "--nu", "1e-25", "--holdout", "0").code == 3
    assert call("verify", "run.zarr").code == 0
    report = RunStore.open(Path("run.zarr")).report()
    assert report["outcome"] == "stalled" and report["outputs"][0]["relative_gap"] > 1e-5


def test_a_changed_weight_of_a_ridge_in_single_precision_is_seen(work):
    # Weights that cancel: what rounds them moves objective and gap by more than one of them that is off by 1e-3.
    files = arrays("X.npz")
    np.savez("X.npz", X=files["X"], y=files["y"] + 1e3)
    options = ["--gamma", "0.05", "--dtype", "float32", "--no-intercept", "--cv", "3", "--refit", "all"]
    assert call(*FIT, *SMALL, *options).code == 3
    assert read("run.zarr", "intercepts") == 0
    assert call("verify", "run.zarr").code == 0
    change(Path("run.zarr"), "model/weights")
    verified = call("verify", "run.zarr")
    assert verified.code == 6
    assert verified.err.strip().endswith("got other refit: gradient"), verified.err


def test_kept_columns_are_the_kernel(work):
    assert call(*FIT, *SMALL, "--nu", "1", "--store-columns").code == 0
    kept = np.asarray(zarr.open_array("run.zarr/columns", mode="r")[...])
    assert np.allclose(kept, columns(arrays("X.npz")["X"], "run.zarr"), rtol=1e-10)


def test_kept_columns_in_each_others_place_are_seen(work, monkeypatch):
    small_blocks.make_small(monkeypatch.setattr)
    assert call(*FIT, *SMALL, "--nu", "1", "--store-columns").code == 0
    assert call("verify", "run.zarr").code == 0
    first, second = sorted((work / "run.zarr/columns/c").iterdir())[:2]
    first.rename(work / "aside")
    second.rename(first)
    (work / "aside").rename(second)
    assert call("verify", "run.zarr").code == call("info", "run.zarr").code == 6
    answer = call("resume", "run.zarr")
    assert answer.code == 0 and "damaged" in answer.err
    assert call("verify", "run.zarr").code == 0


def test_not_converged_is_written_and_goes_further(work):
    arguments = (*SMALL, "--nu", "0.01", "--tol", "1e-9")
    answer = call(*FIT, *arguments, "--max-iter", "2")
    assert answer.code == 3
    assert answer.err.splitlines()[-1].startswith("dkl: not converged: iteration_limit")
    assert call("verify", "run.zarr").code == 0
    again = call("resume", "run.zarr")
    assert again.code == 3 and "complete, nothing to do" in again.out
    assert again.err.startswith("dkl: not converged: iteration_limit (relative gap ") and "--max-iter" in again.err
    assert call("resume", "run.zarr", "--max-iter", "10000").code == 0
    assert call(*[word if word != "run.zarr" else "whole.zarr" for word in FIT], *arguments).code == 0
    assert model_bytes(work / "run.zarr") == model_bytes(work / "whole.zarr")


def test_a_complete_run_is_left_alone(run):
    before = tree(run)
    answer = call("resume", "run.zarr", "--max-iter", "99999")
    assert (answer.code, answer.err) == (0, "")
    assert tree(run) == before


def test_plan_says_and_writes_nothing(work):
    np.savez("X.npz", X=np.full((N, D), np.nan), y=np.ones(N))  # and reads no rows
    before = tree(work)
    for more in ([], ["--columns", "rpcholesky"], ["--workers", "2"], ["--kernel", "chi2", "--dtype", "float32"]):
        answer = call("plan", "regression", "--data", "X.npz", "--out", "run.zarr", *SMALL, *more)
        assert (answer.code, answer.err) == (0, ""), answer.err
        for words in ("a process, at most", "disk, at most", "pass(es) over the rows", "30 columns, 5 folds"):
            assert words in answer.out
    assert tree(work) == before


DRAWN = {"several": ["--targets", "Y.npy"], "one": [], "given": ["--nu", "1"]}


@pytest.mark.parametrize("targets", but_for(["several", "given"], DRAWN))
def test_the_picture(targets, work):
    pytest.importorskip("matplotlib")
    out = f"{targets}.zarr"
    answer = call("fit", "regression", "--data", "X.npz", "--out", out, "--picture", *SMALL, *DRAWN[targets])
    assert answer.code == 0, answer.err
    assert f"{out}/report.png" in answer.out and "draw it with" not in answer.out
    assert (work / out / "report.png").read_bytes()[:4] == b"\x89PNG"


def test_the_command_that_draws_a_run_is_printed(work):
    pytest.importorskip("matplotlib")
    answer = call("fit", "regression", "--data", "X.npz", "--out", "a run.zarr", "--nu", "1", *SMALL)
    assert answer.code == 0 and not (work / "a run.zarr/report.png").exists()
    (words,) = re.findall("draw it with: dkl (.*) FILE", answer.out)
    assert call(*shlex.split(words), "a.png").code == 0
    assert (work / "a.png").read_bytes()[:4] == b"\x89PNG"
