"""`dkl fit metric`: the learner's metric from files, proven again, applied, and what is refused."""

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from command_line import call
from command_runs import refused
from numpy.testing import assert_allclose, assert_array_equal
from run_cases import change
from scipy.optimize import minimize
from scipy.spatial.distance import pdist

import dkl
from dkl.errors import InputError
from dkl.stores.run import RunStore

N, D = 240, 3
FIT = ("fit", "metric", "--out", "run.zarr", "--no-picture", "--threads", "1")
LEARNER = {"n_in": 2, "n_out": 2, "n_jobs": 1}
OPTIONS = ("--n-in", "2", "--n-out", "2")
UNITS = np.array([1.0, 30.0, 0.2])


@pytest.fixture
def files(tmp_path, monkeypatch, rng):
    """A folder with rows, dense and sparse, labels, triplets and pairs."""
    monkeypatch.chdir(tmp_path)
    kinds = np.arange(N) % 3
    X = (rng.standard_normal((N, D)) + 1.5 * np.eye(D)[kinds]) * UNITS
    np.savez("X.npz", X=X, y=np.where(np.arange(N) % 5 == 4, -1, kinds))
    np.save("single.npy", X.astype(np.float32))
    sp.save_npz("sparse.npz", sp.csr_array(np.where(np.abs(X) > 0.1, X, 0.0)))
    np.save("y.npy", kinds)
    np.savez("new.npz", X=X[:7] + 0.1)
    np.save("t.npy", dkl.Triplets.from_labels(X, kinds, 2, 2).triplets)
    ends = rng.permutation(N).reshape(-1, 2).tolist()
    lines = [f"{i},{j},{'must' if kinds[i] == kinds[j] else 'cannot'}" for i, j in ends]
    Path("pairs.csv").write_text("\n".join(["i,j,label", *lines]) + "\n")
    Path("weighted.csv").write_text("i,j,label,weight\n0,3,must,2\n0,1,cannot,1\n")
    return X


@pytest.fixture(scope="module")
def constraints():
    """(Matrices of constraints, their entries as a file has them); 55 MB, made once."""
    rng = np.random.default_rng(0)
    A = rng.normal(size=(120, N, N)) * (rng.random((120, N, N)) < 0.02)
    A[:, range(N), range(N)] += 0.1
    A += A.transpose(0, 2, 1)
    t, i, j = np.nonzero(A)
    return A, np.stack([t, i, j, A[t, i, j]], axis=1)


def given(words, constraints):
    """Return (rows, arguments of fit) of the files that the words name."""
    named = dict(zip(words[::2], words[1::2], strict=True))
    data = named["--data"]
    X = sp.load_npz(data) if data == "sparse.npz" else np.load(data) if data.endswith(".npy") else np.load(data)["X"]
    if "--triplets" in named:
        return X, {"triplets": np.load(named["--triplets"])}
    if "--constraints" in named:
        return X, {"constraints": constraints[0]}
    if "--pairs" in named:
        return X, {"pairs": dkl.load_pairs(named["--pairs"])}
    return X, {"y": np.load(named["--targets"]) if "--targets" in named else np.load(data)["y"]}


@pytest.mark.parametrize(
    ("words", "settings"),
    [
        (("--data", "X.npz"), {}),
        (("--data", "X.npz", "--pairs", "pairs.csv"), {"prior": "covariance"}),
        (("--data", "X.npz", "--triplets", "t.npy"), {"loss": "log", "standardize": True}),
        (("--data", "X.npz", "--constraints", "c.npy"), {"loss": "hinge"}),
        pytest.param(
            ("--data", "X.npz", "--pairs", "pairs.csv"),
            {"loss": "hoi_hinge", "standardize": True},
            marks=pytest.mark.exhaustive,
        ),
        (("--data", "single.npy", "--targets", "y.npy"), {"loss": "lmnn", "loss_params": {"t": 0.5}}),
        (("--data", "sparse.npz", "--targets", "y.npy"), {"holdout": 0.0}),
        (("--data", "X.npz"), {"n_components": 2, "holdout": 0.2}),
    ],
    ids=["labels", "pairs", "triplets", "constraints", "products", "single", "sparse", "cut"],
)
def test_the_same_from_any_file(words, settings, files, constraints):
    """To the bytes of the estimator on the same data, and verified; new rows are what the estimator makes of them."""
    settings = {"standardize": False, **settings}
    flat = {**settings, **settings.get("loss_params", {})}
    flat.pop("loss_params", None)
    options = [
        word
        for name, value in flat.items()
        if name != "standardize"
        for word in ("--" + name.replace("_", "-"), str(value))
    ]
    options.append("--standardize" if settings["standardize"] else "--no-standardize")
    np.save("c.npy", constraints[1])
    answer = call(*FIT, *words, *options, *OPTIONS, "--gamma", "4")
    assert answer.code == 0, answer.err
    found, (X, side) = dkl.load("run.zarr"), given(words, constraints)
    learner = dkl.LogDetMetricLearner(4.0, **LEARNER, **settings).fit(X, **side)
    assert_array_equal(found.components_, learner.components_)
    assert (
        found.certificate_ == learner.certificate_
        and found.get_params() == learner.set_params(n_jobs=None).get_params()
    )
    assert found.result_.quality == learner.result_.quality and (found.result_.quality is None) == (
        flat.get("holdout") == 0
    )
    answer = call("verify", "run.zarr")
    assert answer.code == 0 and "they agree" in answer.out, answer.err
    assert ("quality" in answer.out) == (found.result_.quality is not None)
    new = np.load("new.npz")["X"]
    assert call("transform", "run.zarr", "--data", "new.npz", "--out", "out.npy").code == 0
    assert_allclose(np.load("out.npy"), learner.transform(new), atol=1e-10)
    ends = np.stack([new[:-1], new[1:]], axis=1)
    assert_allclose(np.linalg.norm(np.diff(np.load("out.npy"), axis=0), axis=1), found.pair_distance(ends), rtol=1e-8)
    assert found.plot().axes and found.calibrate_threshold(ends, [1, -1] * 3).predict_pairs(ends).shape == (6,)


def test_the_metric_is_the_least_point(files):
    """Of pairs under ITML's loss, by scipy over Cholesky factors; its distances are those of the rows that are written."""
    words = (
        "--data",
        "X.npz",
        "--pairs",
        "pairs.csv",
        "--upper",
        "2",
        "--lower",
        "6",
        "--standardize",
        "--holdout",
        "0",
    )
    assert call(*FIT, *words, "--tol", "1e-10", "--gamma", "3", "--whole-gamma").code == 0
    Z, pairs = (files - files.mean(axis=0)) / files.std(axis=0), dkl.load_pairs("pairs.csv").check(N)
    apart, sign = Z[pairs.i] - Z[pairs.j], pairs.sign

    def objective(entries):
        L = np.zeros((D, D))
        L[np.tril_indices(D)] = entries
        ratio = np.square(apart @ L).sum(axis=1) / np.where(sign > 0, 2.0, 6.0)
        counts = np.where(sign > 0, ratio > 1, ratio < 1)
        loss = np.where(counts, ratio - np.log(np.where(counts, ratio, 1.0)) - 1, 0.0)
        return 3 * loss.sum() + np.square(L).sum() - 2 * np.log(np.abs(np.diagonal(L))).sum() - D

    best = min((minimize(objective, np.eye(D)[np.tril_indices(D)], method=name, options={"maxiter": 2000})
                for name in ("BFGS", "Powell")), key=lambda one: one.fun)  # fmt: skip
    L = np.zeros((D, D))
    L[np.tril_indices(D)] = best.x
    model = dkl.load("run.zarr")
    assert model.certificate_.objective <= best.fun + 1e-8
    assert_allclose(model.components_.T @ model.components_, L @ L.T, rtol=1e-3, atol=1e-3)
    assert call("transform", "run.zarr", "--data", "X.npz", "--out", "rows.npy").code == 0
    assert_allclose(pdist(np.load("rows.npy")), pdist(Z @ L), rtol=1e-3)


@pytest.mark.parametrize("array", ["model/components", "model/multipliers", "model/prior", "model/points"])
def test_verify_sees_other_numbers(array, files):
    assert call(*FIT, "--data", "X.npz", *OPTIONS, "--prior", "covariance", "--gamma", "1", "--gamma", "8").code == 0
    assert call("verify", "run.zarr").code == 0
    change(Path("run.zarr"), array)
    answer = call("verify", "run.zarr")
    refused(answer, 6)


@pytest.mark.parametrize("what", ["components", "whole_components", "order", "turned", "other axes"])
def test_verify_sees_other_components_than_the_leading_ones(what, files):
    """Of a metric that is cut: other numbers, or components that are none of the leading axes of the learned rows."""
    assert call(*FIT, "--data", "X.npz", *OPTIONS, "--standardize", "--n-components", "2").code == 0
    assert call("verify", "run.zarr").code == 0
    if what in ("components", "whole_components"):
        change(Path("run.zarr"), f"model/{what}", 1e-3)
    else:
        half = np.sqrt(0.5)
        turns = {
            "order": [[0, 1, 0], [1, 0, 0]],
            "turned": [[half, half, 0], [-half, half, 0]],
            "other axes": [[1, 0, 0], [0, 0, 1]],
        }
        whole = np.load("X.npz")["X"] / np.load("X.npz")["X"].std(axis=0)
        store = RunStore.open(Path("run.zarr"))
        arrays = store.read_arrays("model")
        axes = np.linalg.svd((whole - whole.mean(axis=0)) @ arrays["whole_components"].T)[2]
        arrays["components"] = np.ascontiguousarray(turns[what] @ axes @ arrays["whole_components"])
        store.write_arrays("model", arrays)
        store.write_report(store.report())
    refused(call("verify", "run.zarr"), 6)


@pytest.mark.parametrize("count", ["1", "5"])
def test_columns_that_do_not_vary(count, files):
    """The covariance is singular: W0, the metric and its components are proven all the same."""
    X, y = np.load("X.npz")["X"], np.load("y.npy")
    np.savez("flat.npz", X=np.column_stack([X, np.full(N, 7.0), X[:, 0] + X[:, 1]]), y=y)
    words = ("--data", "flat.npz", *OPTIONS, "--prior", "covariance", "--no-standardize", "--n-components", count)
    assert call(*FIT, *words).code == 0
    answer = call("verify", "run.zarr")
    assert answer.code == 0, answer.err


def test_more_constrained_rows_than_columns_take_no_square_of_them(files, rng):
    """A plan of 20,000 labeled rows, whose kernel would be 3.2 GB."""
    np.save("many.npy", rng.standard_normal((20_000, 2)))
    np.save("many_y.npy", np.arange(20_000) % 2)
    words = ("--data", "many.npy", "--targets", "many_y.npy", "--n-in", "1", "--n-out", "1", "--solver", "pcg")
    answer = call("plan", "metric", *words, "--out", "new.zarr", "--memory-limit", "600 MB")
    assert answer.code == 0, answer.err
    refused(call("plan", "logdet", *words, "--out", "new.zarr", "--memory-limit", "600 MB"), 5)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--data", "X.npz", "--triplets", "t.npy"), "--loss: not a loss of triplets; got itml"),
        (("--data", "X.npz", "--pairs", "pairs.csv", "--loss", "log"), "--loss: not a loss of pairs; got log"),
        (("--data", "X.npz", "--pairs", "pairs.csv", "--triplets", "t.npy"), "two kinds of side information"),
        (("--data", "X.npz", "--constraints", "c.npy"), "--loss: not a loss of constraints; got itml"),
        (("--data", "single.npy"), "nothing to learn from"),
        (("--data", "X.npz", "--pairs", "weighted.csv"), "weights"),
        (("--data", "X.npz", "--t", "0.5"), "--t: a parameter that this loss does not have; got --loss itml"),
        (("--data", "X.npz", "--solver", "paper", "--loss", "hinge"), "the paper's method takes second derivatives"),
        (("--data", "X.npz", "--prior", "rbf"), "--prior"),
        (("--data", "X.npz", "--n-components", "4"), "more components than columns; got 4; wanted at most 3"),
        (("--data", "X.npz", "--n-components", "0"), "--n-components"),
        (("--data", "X.npz", "--kernel", "rbf"), "--kernel"),
    ],
)
@pytest.mark.parametrize("verb", ["plan", "fit"])
def test_what_is_refused(verb, words, told, files):
    np.save("c.npy", [[0.0, 0.0, 1.0, 1.0]])
    answer = call(verb, "metric", *words, "--out", "run.zarr")
    refused(answer)
    assert told in answer.err and not Path("run.zarr").exists(), answer.err


def test_a_path_goes_on_at_its_next_gamma(files, monkeypatch):
    """One of three gammas solved, then an end: the run says so, and is resumed to the bytes of an undisturbed one."""
    words = ("--data", "X.npz", *OPTIONS, "--standardize", *(f"--gamma={gamma}" for gamma in (0.5, 2, 8)))
    assert call(*FIT, *words).code == 0
    whole = dkl.load("run.zarr")

    class Away:
        comes_back = True

        def __call__(self, row):
            return row.get("gamma") == 2.0

    (Path("run.zarr") / "report.json").unlink()
    with pytest.raises(dkl.errors.InterruptedRunError):
        dkl.resume("run.zarr", n_jobs=1, callbacks=Away())
    assert "1 of 3 gammas solved" in call("info", "run.zarr").out
    assert call("resume", "run.zarr", "--threads", "1").code == 0
    assert_array_equal(dkl.load("run.zarr").components_, whole.components_)
    with pytest.raises(InputError, match="--gamma"):
        dkl.resume("run.zarr", gamma=3.0)


@pytest.mark.exhaustive
def test_on_a_worker(files):
    """Solved by a worker of the command's own: the same bytes, and the run says where."""
    assert call(*FIT, "--data", "X.npz", *OPTIONS, "--standardize").code == 0
    words = ["fit", "metric", "--out", "own.zarr", "--no-picture", "--workers", "1", "--data", "X.npz", *OPTIONS]
    answer = call(*words, "--standardize")
    assert answer.code == 0, answer.err
    assert "worker " in dkl.open_run("own.zarr").report["placement"]
    assert_array_equal(dkl.load("own.zarr").components_, dkl.load("run.zarr").components_)
