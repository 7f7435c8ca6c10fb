"""`dkl fit logdet` and the verbs after it: what it takes, what it refuses, paths that are interrupted, workers."""

import json
import os
import signal
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
import zarr
from command_line import call, tree
from command_runs import bytes_of, refused
from numpy.testing import assert_allclose
from repeats import but_for
from run_cases import GAMMAS, change
from sklearn.datasets import dump_svmlight_file
from sklearn.metrics.pairwise import rbf_kernel

import dkl
from dkl.blocks.memory_plan import PROCESS_BASE
from dkl.errors import InterruptedRunError
from dkl.estimators.base.rules import PAIR_LOSSES, TRIPLET_LOSSES
from dkl.estimators.logdet import store
from dkl.estimators.logdet.settings import LogDetRunSettings
from dkl.runs.logdet.verify import _changes
from dkl.runs.logdet.verify_proof import apart_under, inner_of, of_inner, root_of, terms_of
from dkl.stores.run import RunStore

N, D = 24, 3
SMALL = ("--kernel", "laplacian", "--n-in", "2", "--n-out", "2", "--n-neighbors", "5", "--n-components", "3")
FIT = ("fit", "logdet", "--out", "run.zarr", "--no-picture", "--threads", "1", *SMALL)
PATH = [f"--gamma={gamma}" for gamma in GAMMAS]
LEARNER = {"kernel": "laplacian", "n_in": 2, "n_out": 2, "n_neighbors": 5, "n_components": 3, "n_jobs": 1}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """The same rows in several kinds of files, with labels by number and name, triplets and pairs."""
    folder = tmp_path_factory.mktemp("logdet")
    rng = np.random.default_rng(0)
    numbers = np.arange(N) % 2
    X = rng.standard_normal((N, D)) + 1.2 * np.eye(D)[numbers]
    y = np.where(np.arange(N) % 4 == 3, -1, numbers)
    triplets = dkl.Triplets.from_labels(X, y, 2, 2).triplets
    names = np.array(["red", "blue", "-1"])[y]
    np.savez(folder / "X.npz", X=X, y=y)
    np.save(folder / "X.npy", X)
    np.save(folder / "K.npy", rbf_kernel(X, gamma=0.3))
    np.savez(folder / "new.npz", X=X[:7] + 0.1)
    zarr.create_array(str(folder / "X.zarr"), data=X, chunks=(5, D))
    dump_svmlight_file(sp.csr_array(X), y, str(folder / "X.svmlight"), zero_based=True)
    (folder / "names.csv").write_text("\n".join(["colour", *names]) + "\n")
    np.save(folder / "t.npy", triplets)
    np.savez(folder / "t.npz", triplets=triplets)
    lines = [",".join(map(str, row)) for row in triplets.tolist()]
    (folder / "t.csv").write_text("\n".join(["anchor,similar,dissimilar", *lines]) + "\n")
    same = [f"{i},{j},{'must' if numbers[i] == numbers[j] else 'cannot'}" for i, j in rng.permutation(N).reshape(-1, 2)]
    (folder / "pairs.csv").write_text("\n".join(["i,j,label", *same]) + "\n")
    entries = entries_of(triplets)
    np.save(folder / "c.npy", entries)
    np.savez(folder / "c.npz", **dict(zip(("constraint", "i", "j", "value"), entries.T, strict=True)))
    text = [f"{t:.0f},{i:.0f},{j:.0f},{value!r}" for t, i, j, value in rng.permutation(entries).tolist()]
    (folder / "c.csv").write_text("\n".join(["constraint,i,j,value", *text]) + "\n")
    (folder / "c.tsv").write_text("\n".join(["t;row;column;A", *text]).replace(",", ";").replace(".", ",") + "\n")
    return folder


def entries_of(triplets):
    """Entries t, i, j, value of the matrices of triplets, both halves."""
    parts = []
    for i, j, value in ((0, 1, 1.0), (1, 0, 1.0), (0, 2, -1.0), (2, 0, -1.0), (1, 1, -1.0), (2, 2, 1.0)):
        ones = np.ones(len(triplets))
        parts.append(np.stack([np.arange(len(triplets)), triplets[:, i], triplets[:, j], value * ones], axis=1))
    return np.concatenate(parts)


@pytest.fixture
def work(files, tmp_path, monkeypatch):
    """A folder beside the files, which commands name by `files`."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def given(files, *words):
    """The words, those that are names of files with their folder."""
    return [str(files / word) if (files / word).exists() else word for word in words]


def fitted(files, *words):
    answer = call(*FIT, *given(files, *words))
    assert answer.code == 0, answer.err
    return dkl.load("run.zarr")


# -- what it takes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "data"),
    [
        (("--data", "X.npz"), "y"),
        pytest.param(("--data", "X.npy", "--targets", "names.csv"), "y", marks=pytest.mark.exhaustive),
        (("--data", "X.zarr", "--triplets", "t.npz"), "triplets"),
        pytest.param(("--data", "X.npy", "--triplets", "t.csv"), "triplets", marks=pytest.mark.exhaustive),
        pytest.param(
            ("--data", "X.npz", "--triplets", "t.npy", "--solver", "pcg"), "triplets", marks=pytest.mark.exhaustive
        ),
        (("--data", "X.npy", "--pairs", "pairs.csv", "--loss", "itml"), "pairs"),
        (("--data", "X.npz", "--constraints", "c.csv"), "constraints"),
        pytest.param(("--data", "X.npz", "--constraints", "c.tsv"), "constraints", marks=pytest.mark.exhaustive),
        pytest.param(("--data", "X.npz", "--constraints", "c.npz"), "constraints", marks=pytest.mark.exhaustive),
        pytest.param(("--data", "X.svmlight"), "sparse", marks=pytest.mark.exhaustive),
    ],
    ids=["beside", "names", "zarr", "csv", "npy", "pairs", "matrices", "matrices tsv", "matrices npz", "svmlight"],
)
def test_the_same_from_any_file(words, data, files, work):
    """To the bytes of the estimator on the same data, and verified; new rows are what the estimator makes of them."""
    found = fitted(files, *words, "--gamma", "4")
    with np.load(files / "X.npz") as held:
        X, y = held["X"], held["y"]
    options = {"loss": "itml"} if data == "pairs" else {"solver": "pcg"} if "pcg" in words else {}
    learner = dkl.LogDetKernelLearner(4.0, **LEARNER, **options)
    if data == "pairs":
        known = dkl.load_pairs(files / "pairs.csv")
        learner.fit(X, must_link=known.must_link, cannot_link=known.cannot_link)
    elif data in ("triplets", "constraints"):  # the same ones
        learner.fit(X, triplets=np.load(files / "t.npy"))
    else:
        learner.fit(sp.csr_array(X) if data == "sparse" else X, y)
    if data == "y":
        assert np.array_equal(found.M_, learner.M_) and np.array_equal(found.transform(X), learner.transform(X))
    assert_allclose(found.M_, learner.M_, rtol=1e-6, atol=1e-7 * np.abs(learner.M_).max())
    assert found.points_.tolist() == learner.points_.tolist()
    answer = call("verify", "run.zarr")
    assert answer.code == 0, answer.err
    rows = given(files, "X.svmlight" if data == "sparse" else "new.npz")
    assert call("transform", "run.zarr", "--data", *rows, "--out", "out.npy").code == 0
    new = np.load(files / "new.npz")["X"] if data != "sparse" else dkl.datasets.read_array(files / "X.svmlight")
    assert_allclose(np.load("out.npy"), found.transform(new), atol=1e-8)
    assert len(dkl.open_run("run.zarr").history) == found.result_.n_iter + 1


@pytest.mark.parametrize(
    "words",
    [
        ("--kernel", "rbf", "--kernel-gamma", "0.3", "--loss", "lmnn", "--t", "0.5"),
        pytest.param(("--kernel", "rbf", "--loss", "log"), marks=pytest.mark.exhaustive),
        pytest.param(
            ("--kernel", "poly", "--degree", "2", "--coef0", "1", "--loss", "hoi"), marks=pytest.mark.exhaustive
        ),
        ("--kernel", "linear", "--loss", "itml", "--upper", "1", "--lower", "3", "--not-centered"),
        ("--kernel", "laplacian", "--laplacian", "unnormalized", "--sigma", "0.7", "--whole-gamma", "--gamma", "0.01"),
        pytest.param(("--kernel", "rbf", "--loss", "linear", "--gamma", "0.01"), marks=pytest.mark.exhaustive),
        pytest.param(("--kernel", "rbf", "--loss", "hinge"), marks=pytest.mark.exhaustive),
    ],
    ids=["rbf", "scale", "poly", "linear", "graph", "linear loss", "hinge"],
)
def test_kernels_losses_and_their_parameters(words, files, work):
    """Each is verified by other means, and comes back from the run."""
    path = () if "--gamma" in words else ("--gamma", "1", "--gamma", "4")
    found = fitted(files, "--data", "X.npz", *words, *path)
    answer = call("verify", "run.zarr")
    assert answer.code == 0 and "they agree" in answer.out, answer.err
    known = {"gamma": "--kernel-gamma", "sigma": "--sigma", "degree": "--degree"}
    for name, flag in known.items():
        if flag in words:
            assert found.kernel_params[name] == float(words[words.index(flag) + 1])
    with np.load(files / "new.npz") as held:
        new = held["X"]
    assert call("transform", "run.zarr", *given(files, "--data", "new.npz"), "--out", "out.npz").code == 0
    assert_allclose(np.load("out.npz")["factor"], found.transform(new), atol=1e-7)
    K = found.kernel_matrix(new)
    assert np.linalg.eigvalsh(K)[0] > -1e-8 * np.abs(K).max()


def test_a_kernel_matrix(files, work):
    """It is kept with the run: the columns of new rows are all that is needed."""
    found = fitted(files, "--data", "K.npy", "--kernel", "precomputed", "--triplets", "t.npy", "--gamma", "4")
    K0 = np.load(files / "K.npy")
    learner = dkl.LogDetKernelLearner(4.0, **LEARNER | {"kernel": "precomputed"}).fit(
        K0, triplets=np.load(files / "t.npy")
    )
    assert np.array_equal(found.M_, learner.M_)
    assert np.array_equal(found.kernel_matrix(K0), learner.kernel_matrix(K0))
    assert call("verify", "run.zarr").code == 0
    assert call("transform", "run.zarr", *given(files, "--data", "K.npy"), "--out", "out.npy").code == 0
    assert_allclose(np.load("out.npy"), learner.transform(K0), atol=1e-8)


def test_more_rows_than_are_decomposed(files, work, monkeypatch):
    """Components are those of the touched rows then, and of other rows nothing is kept."""
    for module in ("dkl.estimators.base.learned_kernel", "dkl.estimators.logdet.plan"):
        monkeypatch.setattr(f"{module}.MOST_ROWS", 10)
    found = fitted(files, "--data", "X.npz", "--kernel", "rbf", "--gamma", "4")
    kept = RunStore.open("run.zarr").read_arrays("model")
    assert kept["basis"].tolist() == found.points_.tolist() and len(kept["points"]) == len(found.points_) < N
    with np.load(files / "X.npz") as held:
        X, y = held["X"], held["y"]
    learner = dkl.LogDetKernelLearner(4.0, **LEARNER | {"kernel": "rbf"}).fit(X, y)
    assert np.array_equal(found.transform(X), learner.transform(X))
    assert np.array_equal(found.kernel_matrix(X), learner.kernel_matrix(X))
    assert call("verify", "run.zarr").code == 0
    found.plot()


def test_a_path_is_told_gamma_by_gamma(files, work):
    found = fitted(files, "--data", "X.npz", *PATH)
    with np.load(files / "X.npz") as held:
        path = dkl.LogDetKernelLearner(**LEARNER).path(held["X"], held["y"], GAMMAS)
    report = dkl.open_run("run.zarr").report
    assert [one["gamma"] for one in report["outputs"]] == GAMMAS and found.gamma == GAMMAS[-1]
    assert [one["objective"] for one in report["outputs"]] == path.objectives.tolist()
    assert [one["n_iter"] for one in report["outputs"]] == path.n_iter.tolist()
    assert [one["method"] for one in report["outputs"]] == list(path.methods) == ["dual"] * len(GAMMAS)
    assert [one["solver"] for one in report["outputs"]] == list(path.solvers)
    assert (found.method_, found.solver_) == (path.methods[-1], path.solvers[-1])
    assert all(0 <= one["error"] <= 1 and one["outcome"] == "solved" for one in report["outputs"])
    assert report["outputs"][-1]["error"] <= report["prior_error"]
    text = call("info", "run.zarr").out
    assert "outcome" in text and all(f"{gamma:.6g}" in text for gamma in GAMMAS) and "triplets" not in text
    ways = {"pcg": "conjugate gradients", "direct": "factorization", "auto": "both ways"}
    assert all(f"solved              dual, {ways[solver]}" in text for solver in path.solvers), text


# -- what it refuses ------------------------------------------------------------------------------------------------------


def bad_files(folder):
    with np.load(folder / "X.npz") as held:
        X, y = held["X"], held["y"]
    np.save(folder / "out_of_range.npy", [[0, 1, N]])
    np.save(folder / "twice.npy", [[0, 1, 1]])
    np.save(folder / "reverse.npy", [[0, 1, 2], [0, 2, 1]])
    np.save(folder / "two.npy", [[0, 1]])
    (folder / "half.csv").write_text("i,j,k\n0,1,2\n0,1.5,3\n")
    (folder / "upper.csv").write_text("constraint,i,j,value\n0,0,1,2\n")
    (folder / "order.csv").write_text("i,j,constraint,value\n0,0,0,2\n")
    np.save(folder / "far.npy", [[0.0, 1.0, N, 1.0]])
    np.save(folder / "cancel.npy", [[0, 1, 1, 1], [0, 1, 1, -1]])
    np.save(folder / "one_class.npy", np.where(y < 0, -1, 0))
    np.save(folder / "alone.npy", np.where(np.arange(N) < 2, np.arange(N), -1))
    np.save(folder / "not_psd.npy", np.load(folder / "K.npy") - np.eye(N))
    np.savez(folder / "nan.npz", X=np.where(np.arange(N)[:, None] == 3, np.nan, X), y=y)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--data", "X.npy", "--triplets", "out_of_range.npy"), "row numbers out of range"),
        (("--data", "X.npy", "--triplets", "twice.npy"), "a row twice in a triplet"),
        (
            ("--data", "X.npy", "--triplets", "reverse.npy", "--contradictions", "raise"),
            "of which the reverse is there too",
        ),
        (("--data", "X.npy", "--triplets", "two.npy"), "(m, 3): anchor, similar, dissimilar"),
        (("--data", "X.npy", "--triplets", "half.csv"), "triplet 1: not a row number; got 1.5"),
        (("--data", "X.npy", "--triplets", "t.txt"), "not a file of triplets"),
        (("--data", "X.npy", "--triplets", "missing.npy"), "no such file"),
        (("--data", "X.npz", "--constraints", "c.npy", "--triplets", "t.npy"), "two kinds of side information"),
        (("--data", "X.npz", "--constraints", "c.npy", "--loss", "itml"), "not a loss of constraints"),
        (("--data", "X.npz", "--constraints", "c.txt"), "not a file of constraints"),
        (("--data", "X.npz", "--constraints", "t.npy"), "(m, 4): constraint, i, j, value"),
        (("--data", "X.npz", "--constraints", "upper.csv"), "upper.csv: not symmetric; got A[0, 1] = 2, A[1, 0] = 0"),
        (("--data", "X.npz", "--constraints", "order.csv"), "line 1: columns in another order"),
        (("--data", "X.npz", "--constraints", "far.npy"), "row 0, j of"),
        (("--data", "X.npz", "--constraints", "cancel.npy"), "a matrix of zeros"),
        (("--data", "X.npy"), "nothing to learn from"),
        (("--data", "X.npy", "--targets", "one_class.npy"), "one label"),
        (("--data", "X.npy", "--targets", "alone.npy"), "no two rows of one class"),
        (("--data", "X.npz", "--triplets", "t.npy", "--pairs", "pairs.csv"), "two kinds of side information"),
        (("--data", "X.npz", "--triplets", "t.npy", "--loss", "itml"), "not a loss of triplets"),
        (("--data", "X.npz", "--pairs", "pairs.csv"), "not a loss of pairs"),
        (("--data", "not_psd.npy", "--kernel", "precomputed", "--triplets", "t.npy"), "not positive semidefinite"),
        (("--data", "X.npy", "--kernel", "precomputed", "--triplets", "t.npy"), "must be square"),
        (
            (
                "--data",
                "nan.npz",
            ),
            "NaN",
        ),
        (("--data", "X.npz", "--sigma", "1", "--kernel", "rbf"), "--sigma: a parameter that this kernel does not have"),
        (("--data", "X.npz", "--t", "0.5"), "--t: a parameter that this loss does not have"),
        (("--data", "X.npz", "--loss", "lmnn", "--t", "1"), "'1' is not a finite number > -3 and < 1"),
        (("--data", "X.npz", "--kernel", "sigmoid"), "an eigenvalue of -"),
        (("--data", "X.npz", "--kernel", "poly", "--degree", "200"), "a value is so large that distances overflow"),
        (("--data", "X.npz", "--loss", "linear", "--gamma", "1e6"), "no minimum under a linear loss"),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_what_cannot_be_learned_from(words, told, files, work):
    if not (files / "twice.npy").exists():
        bad_files(files)
    answer = call(*FIT, *given(files, *words))
    refused(answer)
    assert told in answer.err and not Path("run.zarr").exists(), answer.err


@pytest.mark.parametrize("gamma", ["0", "-1", "nan", "x"])
def test_a_gamma_that_is_none(gamma, files, work):
    answer = call(*FIT, *given(files, "--data", "X.npz"), "--gamma", "1", f"--gamma={gamma}")
    assert answer.code == 2 and "--gamma" in answer.err and not Path("run.zarr").exists()


def test_what_is_too_large_is_refused_before_it_is_read(work, monkeypatch):
    """By its shape and labels: the whole graph's kernel, or the block at the labeled rows, which is named."""
    n = 20_000
    np.save("X.npy", np.zeros((n, 2), np.float32))
    np.save("few.npy", np.where(np.arange(n) < 100, np.arange(n) % 2, -1))
    np.save("many.npy", np.arange(n) % 2)
    monkeypatch.setattr("dkl.runs.logdet.kind.check_values", lambda rows: pytest.fail("it was read"))
    limit = ("--memory-limit", "1 GB", "--data", "X.npy", "--out", "run.zarr")
    for verb in ("plan", "fit"):
        answer = call(verb, "logdet", "--targets", "few.npy", "--kernel", "laplacian", *limit)
        refused(answer, 5)
        assert "the kernel matrix of all 20,000 rows" in answer.err and 'a kernel of rows such as "rbf"' in answer.err
        answer = call(verb, "logdet", "--targets", "many.npy", *limit)
        refused(answer, 5)
        assert "constraints on 20,000 rows" in answer.err and "label fewer rows" in answer.err
    assert call("plan", "logdet", "--targets", "few.npy", *limit).code == 0
    assert not Path("run.zarr").exists()


# -- paths that are interrupted, and what goes further ----------------------------------------------------------------------


class Away:
    """Ends a run at a row, to be resumed."""

    comes_back = True

    def __init__(self, gamma):
        self.gamma = gamma

    def __call__(self, row):
        return row["gamma"] == self.gamma


def unfinished(run):
    """The complete run, as it was when it was begun."""
    for part in ("model", "history"):
        for file in sorted((run / part).rglob("*"), reverse=True):
            file.unlink() if file.is_file() else file.rmdir()
    (run / "report.json").unlink()


def test_an_interrupted_path_goes_on_at_its_next_gamma(files, work, monkeypatch):
    """What was solved is not solved again, and the bytes are those of a run that nothing disturbed."""
    fitted(files, "--data", "X.npz", *PATH)
    run = work / "run.zarr"
    wanted = bytes_of(run, "model", "history")
    for gamma, kept in ((GAMMAS[1], 1), (GAMMAS[2], 2)):
        unfinished(run)
        with pytest.raises(InterruptedRunError):
            dkl.resume(run, n_jobs=1, callbacks=Away(gamma))
        assert f"{kept} of 3 gammas solved" in call("info", run).out
        solved, solve = [], store._solve
        monkeypatch.setattr(store, "_solve", lambda posed, *more: solved.append(more[0]) or solve(posed, *more))  # noqa: B023
        dkl.resume(run, n_jobs=1)
        monkeypatch.undo()
        assert solved == GAMMAS[kept:]
        assert bytes_of(run, "model", "history") == wanted


def test_ctrl_c_costs_the_gamma_under_way(files, work, monkeypatch):
    fitted(files, "--data", "X.npz", *PATH)
    wanted, solve = bytes_of(work / "run.zarr", "model", "history"), store._solve

    def interrupted(posed, gamma, *more):
        if gamma == GAMMAS[1]:
            os.kill(os.getpid(), signal.SIGINT)
        return solve(posed, gamma, *more)

    words = ["cut.zarr" if word == "run.zarr" else word for word in FIT]
    with monkeypatch.context() as patch:
        patch.setattr(store, "_solve", interrupted)
        answer = call(*words, *given(files, "--data", "X.npz"), *PATH)
    assert answer.code == 4 and "interrupted by SIGINT" in answer.err and "dkl resume" in answer.err, answer.err
    assert "1 of 3 gammas solved" in call("info", "cut.zarr").out
    assert call("resume", "cut.zarr", "--threads", "1").code == 0
    assert bytes_of(work / "cut.zarr", "model", "history") == wanted


def test_a_higher_limit_goes_further(files, work):
    """A gamma that ended at its limit is solved again: to the bytes of a run that had the limit from the start."""
    wanted = fitted(files, "--data", "X.npz", *PATH)
    bytes_ = bytes_of(work / "run.zarr", "model", "history")
    words = list(FIT)
    words[words.index("run.zarr")] = "short.zarr"
    answer = call(*words, *given(files, "--data", "X.npz"), *PATH, "--max-iter", "1")
    assert answer.code == 3 and "--max-iter" in answer.err
    again = call("resume", "short.zarr")
    assert again.code == 3 and "nothing to do" in again.out and "--max-iter" in again.err
    assert call("resume", "short.zarr", "--max-iter", "200", "--threads", "1").code == 0
    assert bytes_of(work / "short.zarr", "model", "history") == bytes_
    assert np.array_equal(dkl.load("short.zarr").M_, wanted.M_)


STORED = [f"model/{name}" for name in ("multipliers", "points", "laplacian", "weights", "coordinates")]


@pytest.mark.parametrize("name", but_for(["model/points", "model/weights"], STORED))
def test_verify_sees_other_numbers(name, files, work):
    fitted(files, "--data", "X.npz", *PATH)
    change(work / "run.zarr", name)
    refused(call("verify", "run.zarr"), 6)


# -- one place for dense work -----------------------------------------------------------------------------------------------


def test_a_worker_solves_to_the_same_bytes(cluster, files, work):
    """Two workers of one thread: the report says which has done it, and that is whose memory is planned."""
    fitted(files, "--data", "X.npz", *PATH)
    wanted = bytes_of(work / "run.zarr", "model", "history")
    words = ["run2.zarr" if word == "run.zarr" else word for word in FIT if word not in ("--threads", "1")]
    answer = call(*words, *given(files, "--data", "X.npz"), *PATH, "--scheduler", cluster.scheduler_address)
    assert answer.code == 0, answer.err
    assert bytes_of(work / "run2.zarr", "model", "history") == wanted
    plan = json.loads((work / "run2.zarr" / "report.json").read_text())["plan"]
    assert plan["own_bytes"] > PROCESS_BASE and plan["blas_threads"] == 1


def test_a_worker_s_path_stops_where_it_is_told(client, files, work):
    """A worker waits for the answer to each row: a callback ends the fit at its first, and the rest of the path where it begins."""
    fitted(files, "--data", "X.npz", *PATH)
    unfinished(work / "run.zarr")
    rows = []
    found = dkl.resume(work / "run.zarr", client=client, callbacks=lambda row: rows.append(row) or True)
    outputs = dkl.open_run(work / "run.zarr").report["outputs"]
    assert [one["outcome"] for one in outputs] == ["stopped_by_callback"] * 3
    assert found.result_.outcome.value == "stopped_by_callback" and len(rows) == 1
    assert [one["n_iter"] for one in outputs] == [0, 0, 0] and call("verify", "run.zarr").code == 0


def test_a_plan_on_workers_that_are_too_small_names_the_block(work):
    n = 6000
    np.save("X.npy", np.zeros((n, 2), np.float32))
    np.save("y.npy", np.arange(n) % 2)
    words = ("plan", "logdet", "--data", "X.npy", "--targets", "y.npy", "--kernel", "rbf", "--out", "run.zarr")
    answer = call(*words, "--workers", "2", "--memory-limit", "1 GB")
    refused(answer, 5)
    assert "constraints on 6,000 rows" in answer.err and "wanted at least" in answer.err


# -- by other means -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", [*TRIPLET_LOSSES, *PAIR_LOSSES])
def test_verify_has_losses_and_constraints_of_its_own(loss, rng):
    """Slopes are those of the values, by differences; margins and the matrix of weights are adjoint."""
    from dkl.estimators.base.side_information import SideInformation

    X, y = rng.normal(size=(9, 2)), np.arange(9) % 2
    made = dkl.Triplets.from_labels(X, y, 2, 2)
    side = SideInformation(9, made, made.to_pairs().check(9), 9)
    K = rbf_kernel(X)
    terms = terms_of(side, np.arange(9), apart_under(K), LogDetRunSettings(loss=loss))
    weights = rng.normal(size=terms.count)
    assert float(weights @ terms.margins(K)) == pytest.approx(float((terms.matrix(weights) * K).sum()))
    a, step = rng.uniform(0.05, 2.5, size=terms.count), 1e-6
    slope = (terms.loss(a + step)[0] - terms.loss(a - step)[0]) / (2 * step)
    assert_allclose(terms.loss(a)[1], slope, atol=1e-4)
    y, free = terms.dual_point(a, rng.uniform(-1.5, 0.5, size=terms.count))
    at = rng.uniform(0.05, 2.5, size=(100, 1)) + np.zeros(terms.count)
    assert (
        free[None] <= np.stack([terms.loss(one)[0] for one in at]) - at * y + 1e-12
    ).all()  # -psi*(y) <= psi(x) - x y


def test_verify_sees_an_objective_that_is_off_where_gamma_is_tiny(files, work):
    """F is a few times gamma there, and its rounding far less: that of a determinant is not one of 1."""
    fitted(files, "--data", "X.npz", "--gamma=1e-12")
    assert call("verify", "run.zarr").code == 0
    run = RunStore.open(Path("run.zarr"))
    report = run.report()
    (output,) = report["outputs"]
    assert 1e-12 < output["objective"] < 1e-11
    output["objective"] *= 1 + 1e-3
    run.write_report(report)
    answer = call("verify", "run.zarr")
    refused(answer, 6)
    assert "other objective" in answer.err


def test_verify_compares_what_a_kernel_has_of_m():
    """Of K0 with eigenvalues that are rounding another M has the same kernel, but for rounding; one other number has not."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((40, 1))
    K0 = rbf_kernel(x)
    B = 8.0 * rng.standard_normal((40, 12))
    U = B @ B.T
    order, kept = np.argsort(-(x[:, 0] ** 2)), slice(0, 18)  # another factor: of 18 of its columns
    pivots = K0[np.ix_(order[kept], order[kept])] + 1e-13 * np.eye(18)
    other = np.linalg.solve(np.linalg.cholesky(pivots), K0[order[kept]]).T
    M = of_inner(other, inner_of(other, U))[0]
    L = root_of(K0)
    inner = inner_of(L, U)
    found, wanted, _ = _changes(M, inner, K0, L)
    assert_allclose(found, wanted, rtol=0, atol=1e-6 * np.abs(wanted).max())
    M.flat[np.abs(M).argmax()] *= 1.001
    assert np.abs(_changes(M, inner, K0, L)[0] - wanted).max() > 1e-5 * np.abs(wanted).max()


def test_nothing_is_written_by_a_plan(files, work):
    before = tree(work)
    words = ["plan" if word == "fit" else word for word in FIT if word != "--no-picture"]
    answer = call(*words, *given(files, "--data", "X.npz"), *PATH)
    assert answer.code == 0 and "constraints on 18 rows" in answer.out and "3 values of gamma" in answer.out
    assert tree(work) == before
