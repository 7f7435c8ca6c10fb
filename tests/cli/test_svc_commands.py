"""fit, info, verify, predict, resume and plan of a classifier do what their help says."""

import csv
import json
import re
import shutil
import warnings
from pathlib import Path

import numpy as np
import pytest
import zarr
from command_line import LARGE, call, refused_without, tree
from command_runs import arrays, bytes_of, copied, read
from repeats import but_for
from run_cases import change
from sklearn.metrics.pairwise import pairwise_kernels
from sklearn.svm import SVC
from svc_files import CLASSES, FIT, D, N, rows_and_labels, write_inputs
from svm_cases import by_libsvm, problem

from dkl import load
from dkl.estimators.base import classes
from dkl.runs import recomputed
from dkl.stores.run import RunStore

TWO = [word if word != "X.npz" else "two.npz" for word in FIT]
FAR = ("--rho", "1e9")  # where the machine is SVC's


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fitted")
    write_inputs(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        answer = call(*FIT, "--rho", "2")
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


def width(X):
    return 1 / (X.shape[1] * X.var())


def test_help():
    for command in (["fit", "svc"], ["plan", "svc"], ["predict"]):
        answer = call(*command, "--help")
        assert (answer.code, answer.err) == (0, "")
        assert "Usage" in answer.out


def test_nothing_large_is_imported_for_a_wrong_option():
    refused_without(LARGE, "fit", "svc", "--kernel", "magic")


def test_fit_says_what_it_came_to(fitted):
    folder, answer = fitted
    for words in ("solved", "support vectors", "machines", "relative gap", "seconds", "peak memory"):
        assert words in answer.out
    assert "machine 1 of 6" in answer.err  # progress
    config, report = RunStore.open(folder / "run.zarr").config, RunStore.open(folder / "run.zarr").report()
    assert (config["task"], config["command"]) == ("svc", "fit svc")
    assert config["classes"]["values"] == CLASSES.tolist()
    assert config["inputs"]["data"]["shape"] == [N, D] and config["inputs"]["targets"]["shape"] == [N]
    between = [tuple(output["between"]) for output in report["outputs"]]
    assert between == [(a, b) for k, a in enumerate(CLASSES) for b in CLASSES[k + 1 :]]
    assert max(output["relative_gap"] for output in report["outputs"]) <= 1e-6
    assert not (folder / "run.zarr" / "alphas").exists()


def test_a_warning_is_one_line(work, monkeypatch):
    """As scikit-learn's newer versions warn of many classes, while the files are read."""

    def check(given):
        warnings.warn("as many classes\nas rows", UserWarning, stacklevel=1)

    monkeypatch.setattr(classes, "_is_plain", lambda y: False)
    monkeypatch.setattr("sklearn.utils.multiclass.check_classification_targets", check)
    answer = call(*TWO)
    assert answer.code == 0, answer.err
    warned = [line for line in answer.err.splitlines() if "classes" in line]
    assert warned == ["note: as many classes as rows"] and "Warning" not in answer.err


def test_two_classes_are_the_machine_that_libsvm_finds(work):
    assert call(*TWO, "--C", "2", "--rho", "1", "--tol", "1e-10").code == 0
    files = arrays("two.npz")
    K = pairwise_kernels(files["X"], metric="rbf", gamma=width(files["X"]))
    y = files["y"].astype(float)
    alpha, b = by_libsvm(problem(K, y, 2.0, 1.0))[:2]
    found = np.zeros(N)
    found[read("run.zarr", "support")] = read("run.zarr", "coefficients")[0]
    assert np.allclose(found, y * alpha, atol=1e-5)
    assert read("run.zarr", "intercepts") == pytest.approx([b], abs=1e-4)
    assert call("predict", "run.zarr", "--data", "new.npz", "--decision", "--out", "d.npy").code == 0
    new = pairwise_kernels(arrays("new.npz")["X"], files["X"], metric="rbf", gamma=width(files["X"]))
    assert np.allclose(np.load("d.npy"), new @ (y * alpha) + b, atol=1e-4)


@pytest.mark.parametrize("scheme", ["ovo", "ovr"])
def test_far_from_any_neighbourhood_it_is_svc(scheme, work):
    assert call(*FIT, *FAR, "--multi-class", scheme, "--tol", "1e-9", "--class-weight", "balanced").code == 0
    files, new = arrays("X.npz"), arrays("new.npz")
    assert call("verify", "run.zarr").code == 0
    assert call("predict", "run.zarr", "--data", "new.npz", "--out", "p.npy").code == 0
    assert call("predict", "run.zarr", "--data", "new.npz", "--out", "d.npy", "--decision").code == 0
    labels, decisions = np.load("p.npy"), np.load("d.npy")
    if scheme == "ovo":
        svc = SVC(tol=1e-8, class_weight="balanced").fit(files["X"], files["y"])
        assert (labels == svc.predict(new["X"])).all()
        assert np.allclose(decisions, svc.decision_function(new["X"]), atol=1e-4)
        return
    weights = {name: N / (len(CLASSES) * np.count_nonzero(files["y"] == name)) for name in CLASSES}
    bounds = np.array([weights[name] for name in files["y"]])
    rest = [SVC(tol=1e-8).fit(files["X"], files["y"] == name, sample_weight=bounds) for name in CLASSES]
    wanted = np.stack([svc.decision_function(new["X"]) for svc in rest], axis=1)
    assert np.allclose(decisions, wanted, atol=1e-4)
    assert (labels == CLASSES[wanted.argmax(axis=1)]).all()


def test_info_of_every_state(run):
    before = tree(run)
    shown = call("info", "run.zarr")
    for words in ("complete, solved", "X.npz", "blue against green", "très", "support", "plan"):
        assert words in shown.out
    facts = json.loads(call("info", "run.zarr", "--json").out)
    assert facts["classes"] == CLASSES.tolist()
    last = {row["machine"]: row["relative_gap"] for row in facts["history"]}
    assert len(last) == 6 and max(last.values()) <= 1e-6
    assert tree(run) == before
    (run / "report.json").unlink()
    assert "not started" in call("info", "run.zarr").out


def test_verify_agrees(run):
    answer = call("verify", "run.zarr")
    assert answer.code == 0, answer.err
    assert "they agree" in answer.out and "objective of machine 6" in answer.out


def test_the_least_charge_is_least(rng):
    """Over b, of sum C_i max(0, -g_i - 2 b y_i): against a fine grid, with ties and bounds far apart."""
    for _ in range(20):
        g, y, C = np.round(rng.normal(size=30), 1), rng.choice([-1.0, 1.0], 30), 10.0 ** rng.integers(-3, 3, 30)
        y[:2] = -1, 1
        grid = np.concatenate([-g * y / 2, np.linspace(-3, 3, 2000)])
        charges = [float(C @ np.maximum(0, -g - 2 * b * y)) for b in grid]
        assert recomputed.least_charge(g, y, C) == pytest.approx(min(charges), rel=1e-10, abs=1e-10)


def rewritten(run, change):
    store = RunStore.open(run)
    held = store.read_arrays("model")
    change(held)
    store.write_arrays("model", held)
    store.write_report(store.report())  # of these arrays now: what is to be seen is in the numbers


def coefficient(held):
    k = np.flatnonzero(held["coefficients"][0])[0]
    held["coefficients"][0, k] *= 1 + 1e-4


def beyond_the_box(held):
    k = np.argmax(np.abs(held["coefficients"][0]))
    held["coefficients"][0, k] = np.copysign(1 + 1e-6, held["coefficients"][0, k])


def of_no_class(held):
    """A support vector of the third class in the machine of the first two."""
    k = np.flatnonzero((held["coefficients"][0] == 0) & (held["coefficients"][1] != 0) & (held["coefficients"][3] != 0))
    held["coefficients"][0, k[0]] = 0.5


def swapped(held):
    """Two support vectors that count in the same machines."""
    counts = held["coefficients"] != 0
    first, other = next(
        (i, j) for i in range(counts.shape[1]) for j in range(i) if (counts[:, i] == counts[:, j]).all()
    )
    held["support"][[first, other]] = held["support"][[other, first]]


TAMPERED = {
    "a coefficient": (coefficient, "objective of machine 1"),
    "a bound": (beyond_the_box, "outside of [0, C] of machine 1"),
    "an intercept": (lambda held: held["intercepts"].__iadd__(1e-2), "gap at the intercept of machine 1"),
    "a point": (lambda held: held["points"].__iadd__(1e-9), "not that row"),
    "two rows": (swapped, "not that row"),
    "the width": (lambda held: held["gammas"].__imul__(1.001), "objective"),
    "rows of another class": (of_no_class, "neither class"),
    "a row twice": (lambda held: held["support"].__setitem__(1, held["support"][0]), "no rows of the data"),
}


@pytest.mark.parametrize("case", TAMPERED)
def test_verify_sees_what_was_altered(case, run):
    change, words = TAMPERED[case]
    rewritten(run, change)
    answer = call("verify", "run.zarr")
    assert (answer.code, len(answer.err.splitlines())) == (6, 1), answer.out
    assert words in answer.err


@pytest.mark.parametrize("change", ["changed", "gone"])
def test_verify_and_resume_say_that_the_data_is_not_what_it_was(change, run, work):
    (work / "X.npz").unlink()
    if change == "changed":
        np.savez(work / "X.npz", X=np.zeros((N, D)), y=np.arange(N) % 2)
    answer = call("verify", "run.zarr")
    assert (answer.code, len(answer.err.splitlines())) == (2, 1)
    assert change in answer.err and str(work / "X.npz") in answer.err
    (run / "report.json").unlink()
    assert call("resume", "run.zarr").code == 2


def read_labels(name):
    if name.endswith(".csv"):
        with open(name, encoding="utf-8", newline="") as text:
            return np.array([cell for (cell,) in csv.reader(text)])
    return np.load(name) if name.endswith(".npy") else arrays(name)["y"]


@pytest.mark.parametrize("suffix", ["npy", "npz", "csv"])
def test_predict_keeps_the_names_and_needs_no_training_data(suffix, run, work):
    (work / "X.npz").unlink()
    answer = call("predict", "run.zarr", "--data", "new.npz", "--out", f"p.{suffix}")
    assert answer.code == 0, answer.err
    found, new = read_labels(f"p.{suffix}"), arrays("new.npz")
    model = load("run.zarr")
    assert (found == model.predict(new["X"])).all()
    assert set(found) <= set(CLASSES) and len(set(found)) > 2
    told = float(re.search(r"accuracy ([\d.]+)", answer.out)[1])
    assert told == pytest.approx(np.mean(found == new["y"]), rel=1e-5)
    assert model.score(new["X"], new["y"]) == pytest.approx(told, rel=1e-5)


def test_decision_values_in_many_blocks_keep_the_order(run, monkeypatch):
    whole = load("run.zarr").decision_function(arrays("X.npz")["X"])
    monkeypatch.setattr("dkl.blocks.rows.row_blocks.SMALLEST_BLOCK", 500)
    for out in ("p.npy", "p.csv"):
        answer = call("predict", "run.zarr", "--data", "X.npz", "--out", out, "--threads", "1", "--decision")
        assert answer.code == 0, answer.err
        share = np.mean(CLASSES[whole.argmax(axis=1)] == arrays("X.npz")["y"])
        assert f"accuracy {share:.6g}," in answer.out
    assert np.load("p.npy").shape == (N, len(CLASSES))
    assert np.allclose(np.load("p.npy"), whole, rtol=1e-9, atol=1e-12)
    assert np.array_equal(np.loadtxt("p.csv", delimiter=","), np.load("p.npy"))


def test_the_loaded_classifier_is_the_fitted_one(run):
    from dkl import OptimalNeighborhoodSVC

    files, new = arrays("X.npz"), arrays("new.npz")
    model, own = load(run), OptimalNeighborhoodSVC(rho=2.0, n_jobs=1).fit(files["X"], files["y"])
    for name in ("support_", "dual_coef_", "intercept_", "support_vectors_", "classes_", "objective_", "duality_gap_"):
        assert np.array_equal(getattr(model, name), getattr(own, name)), name
    assert model.get_params()["rho"] == 2.0 and model.n_features_in_ == D
    assert np.array_equal(model.decision_function(new["X"]), own.decision_function(new["X"]))


def test_labels_from_a_file_give_the_same_machines(run, work):
    words = [word if word != "run.zarr" else "other.zarr" for word in FIT]
    words[words.index("X.npz")] = "X.npy"
    assert call(*words, "--rho", "2", "--targets", "y.csv").code == 0
    for name in ("support", "coefficients", "intercepts", "points"):  # the width is summed in another order
        assert np.allclose(read("other.zarr", name), read(run, name), rtol=1e-6, atol=1e-9)
    answer = call("predict", "other.zarr", "--data", "X.npy", "--targets", "y.csv", "--out", "p.npy")
    assert "accuracy" in answer.out
    assert call("verify", "other.zarr").code == 0


def test_zarr_rows_on_workers(run, cluster):
    X = arrays("X.npz")["X"]
    zarr.create_array("X.zarr", shape=X.shape, chunks=(70, D), dtype=X.dtype)[...] = X
    data = ["--data", "X.zarr", "--targets", "y.csv", "--rho", "2", "--out", "there.zarr"]
    assert call("fit", "svc", *data, "--scheduler", cluster.scheduler_address).code == 0
    assert call("verify", "there.zarr").code == 0
    for name in ("run.zarr", "there.zarr"):
        place = ["--scheduler", cluster.scheduler_address] if name == "there.zarr" else []
        assert call("predict", name, "--data", "X.zarr", "--decision", "--out", f"{name}.npy", *place).code == 0
    assert np.allclose(np.load("there.zarr.npy"), np.load("run.zarr.npy"), atol=1e-5)


OPTIONS = {
    "precomputed": ["--kernel", "precomputed"],
    "poly": ["--kernel", "poly", "--gamma", "auto", "--degree", "2", "--coef0", "2"],
    "cosine": ["--kernel", "cosine"],
    "two kernels": ["--kernel", "rbf", "--kernel", "laplacian"],
    "single precision": ["--dtype", "float32"],
    "two in single precision": ["--dtype", "float32", "--kernel", "rbf", "--kernel", "poly", "--multi-class", "ovr"],
    "gradient": ["--solver", "gradient", "--tol", "1e-3"],
    "level": ["--solver", "level", "--tol", "1e-2"],
}


@pytest.mark.parametrize("case", but_for(OPTIONS.keys() - {"precomputed", "two in single precision"}, OPTIONS))
def test_other_options_verify_and_predict(case, work):
    files = arrays("X.npz")
    if case == "precomputed":
        np.savez("X.npz", X=pairwise_kernels(files["X"], metric="rbf"), y=files["y"])
    assert call(*FIT, *OPTIONS[case]).code == 0
    verified = call("verify", "run.zarr")
    assert verified.code == 0, verified.out + verified.err
    answer = call("predict", "run.zarr", "--data", "X.npz", "--out", "p.npy")
    assert answer.code == 0, answer.err
    X, model = arrays("X.npz")["X"], load("run.zarr")
    assert (np.load("p.npy") == model.predict(X)).all()
    if case == "poly":
        K = pairwise_kernels(X, model.support_vectors_, metric="poly", gamma=1 / D, degree=2, coef0=2)
        model.decision_function_shape = "ovo"
        assert np.allclose(model.decision_function(X), K @ model.dual_coef_.T + model.intercept_, rtol=1e-9, atol=1e-9)


def test_the_bound_of_the_level_method_is_verified(work):
    """By the stored means over its cuts: alpha's own gap is far larger, and says nothing of it."""
    assert call(*TWO, "--solver", "level", "--tol", "1e-2", "--holdout", "0.3").code == 0
    run = RunStore.open("run.zarr")
    (machine,), proof = run.report()["outputs"], run.read_arrays("bound")
    verified = call("verify", "run.zarr")
    assert verified.code == 0, verified.out + verified.err
    found = next(line.split() for line in verified.out.splitlines() if line.split()[0] == "gap")
    assert float(found[2]) == pytest.approx(machine["gap"], rel=1e-6) and float(found[4]) < 1e-3 * machine["gap"]
    for name in ("alpha", "cubic"):
        change(Path("run.zarr"), f"bound/{name}", 1e-2)
        assert call("verify", "run.zarr").err.strip().endswith("got other gap")
        run.write_arrays("bound", proof)
        run.write_report(run.report())
    run.write_arrays("bound", {name: values[1:] for name, values in proof.items()})
    run.write_report(run.report())
    verified = call("verify", "run.zarr")
    assert verified.code == 6 and "not a number for each row of each machine" in verified.err, verified.err


def test_the_gap_of_several_kernels_is_that_of_their_weights_too(work):
    """Stopped early, so that it is no mere rounding: told and recomputed to six digits."""
    assert call(*TWO, "--kernel", "rbf", "--kernel", "linear", "--tol", "0.05").code == 0
    lines = [line for line in call("verify", "run.zarr").out.splitlines() if line.startswith("  gap  ")]
    (told, found), report = map(float, lines[0].split()[1:3]), RunStore.open("run.zarr").report()
    assert found == pytest.approx(told, rel=1e-6)
    shares = report["outputs"][0]["kernel_weights"]
    assert min(shares) > 0 and told > 1e-4 * abs(report["outputs"][0]["objective"])


def test_sparse_rows(work):
    from sklearn.datasets import dump_svmlight_file

    X, numbers = rows_and_labels(N, 3)
    X[X < 0.5] = 0
    dump_svmlight_file(X, numbers, "X.svmlight")
    assert call("fit", "svc", "--data", "X.svmlight", "--out", "run.zarr").code == 0
    assert call("verify", "run.zarr").code == 0
    answer = call("predict", "run.zarr", "--data", "X.svmlight", "--out", "p.csv")
    found = np.loadtxt("p.csv")
    assert f"{np.mean(found == numbers):.6g}" in answer.out
    assert np.mean(found == numbers) > 0.6


@pytest.mark.exhaustive
def test_a_kernel_matrix_on_disk_goes_again(work, monkeypatch):
    from dkl.estimators.svm import plan as svc_plan

    plan, made = svc_plan.plan_kernel, []
    monkeypatch.setattr(svc_plan, "plan_kernel", lambda *a, **k: plan(*a, **{**k, "driver_limit": 1}))
    mkdir = Path.mkdir

    def watched(path, *arguments, **keywords):
        if path.parent.name == "room" and not keywords.get("parents"):
            made.append(path)
        mkdir(path, *arguments, **keywords)

    monkeypatch.setattr(Path, "mkdir", watched)
    (work / "room").mkdir()
    assert call(*FIT, "--work-dir", "room", "--multi-class", "ovr").code == 0
    assert RunStore.open("run.zarr").report()["plan"]["placement"] == "disk"
    assert len(made) == 1 and list((work / "room").iterdir()) == []
    assert call("verify", "run.zarr").code == 0
    shutil.rmtree("run.zarr")
    (made[0] / "kernel-001.zarr").mkdir(parents=True)  # as a killed attempt leaves it
    assert call(*FIT, "--work-dir", "room", "--multi-class", "ovr").code == 0
    assert list((work / "room").iterdir()) == []


def test_not_converged_is_written_and_goes_further(work):
    arguments = ("--solver", "gradient", "--tol", "1e-4")
    answer = call(*TWO, *arguments, "--max-iter", "20")
    assert answer.code == 3
    assert answer.err.splitlines()[-1].startswith("dkl: not converged: iteration_limit")
    assert call("verify", "run.zarr").code == 0
    first = RunStore.open("run.zarr").report()["outputs"][0]
    again = call("resume", "run.zarr")
    assert again.code == 3 and "complete, nothing to do" in again.out
    assert again.err.startswith("dkl: not converged: iteration_limit (relative gap ") and "--max-iter" in again.err
    assert call("resume", "run.zarr", "--max-iter", "10000").code == 0
    last = RunStore.open("run.zarr").report()["outputs"][0]
    assert last["relative_gap"] <= 1e-4 < first["relative_gap"]
    assert call("verify", "run.zarr").code == 0
    assert call(*(word if word != "run.zarr" else "whole.zarr" for word in TWO), *arguments).code == 0
    # Begun where the first had ended, all of whose steps count.
    assert bytes_of(Path("run.zarr"), "model", "history") == bytes_of(Path("whole.zarr"), "model", "history")


def test_a_complete_run_is_left_alone(run):
    before = tree(run)
    answer = call("resume", "run.zarr", "--max-iter", "99999")
    assert (answer.code, answer.err) == (0, "")
    assert tree(run) == before


def test_plan_says_and_writes_nothing(work):
    np.savez("X.npz", X=np.full((N, D), np.nan), y=arrays("X.npz")["y"])  # and reads no rows
    before = tree(work)
    for more in ([], ["--kernel", "rbf", "--kernel", "poly"], ["--workers", "2"], ["--dtype", "float32"]):
        answer = call("plan", "svc", "--data", "X.npz", "--out", "run.zarr", *more)
        assert (answer.code, answer.err) == (0, ""), answer.err
        for words in (
            "a process, at most",
            "disk, at most",
            "to make the whole kernel matrix",
            "4 classes, 6 machine(s)",
        ):
            assert words in answer.out
    assert tree(work) == before


def test_a_plan_for_workers_is_that_of_workers(work):
    """As they report themselves once they are started."""
    from distributed import Client

    from dkl.blocks.memory_plan import Place
    from dkl.runs.backends import Cluster

    asked = Cluster(workers=2, memory_limit=300_000_000)
    with asked.session() as session:
        assert Client.current() is session.client
        assert Place.of(session) == asked.place()
