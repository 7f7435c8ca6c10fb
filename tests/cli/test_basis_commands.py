"""`dkl fit mvu`, `dkl fit laplacian` and the verbs after them: what they take, refuse, keep and go on from."""

import shutil
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from command_line import Answer, call, tree
from command_runs import refused
from numpy.testing import assert_allclose
from run_cases import write_strip
from sklearn.datasets import dump_svmlight_file

import dkl
from dkl.errors import StoreError
from dkl.linalg.symmetric.psd_quadratic import svec
from dkl.problems.qsdp.problem import svec_form, unfolding, variance
from dkl.stores.run import RunStore

FIT = ("--no-picture", "--threads", "1", "--out", "run.zarr")
MVU = ("fit", "mvu", *FIT)
LAPLACIAN = ("fit", "laplacian", *FIT)
REFUSE = ("--contradictions", "raise")
HARD = ("--constraints", "hard")
SMALL = ("--n-basis", "34", "--n-neighbors", "6", "--tol", "1e-10")
N = 70


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A strip, its pairs, and what no fit can take."""
    folder = tmp_path_factory.mktemp("basis")
    write_strip(folder)
    with np.load(folder / "X.npz") as held:
        X, y = held["X"], held["y"]
    np.save(folder / "X.npy", X)
    dump_svmlight_file(sp.csr_array(X), y, str(folder / "X.svmlight"), zero_based=True)
    np.savez(folder / "numbers.npz", X=X, y=np.eye(2)[y])
    np.savez(folder / "signs.npz", X=X, y=2 * y - 1)
    (folder / "some.csv").write_text("\n".join(np.where(np.arange(N) % 3, np.array(["left", "right"])[y], "-1")) + "\n")
    (folder / "names.csv").write_text("\n".join(np.array(["left", "right"])[y]) + "\n")
    np.savez(folder / "part.npz", X=np.concatenate([X, X + 100.0]))
    np.savez(folder / "few.npz", X=X[:20])
    np.savez(folder / "equal.npz", X=np.ones((9, 2)))
    np.savez(folder / "nan.npz", X=np.where(np.arange(N)[:, None] == 3, np.nan, X))
    np.save(folder / "one.npy", np.zeros(N, int))
    np.save(folder / "short.npy", np.arange(5))
    np.save(folder / "large.npy", np.zeros((20_000, 2), np.float32))
    (folder / "against.csv").write_text("0,1,must\n1,2,must\n0,2,cannot\n")
    (folder / "heavy.csv").write_text("0,1,must,1e300\n0,2,cannot,1\n")
    (folder / "outside.csv").write_text("0,99,must\n")
    return folder


@pytest.fixture
def work(files, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for path in files.iterdir():
        if path.is_file():
            Path(path.name).symlink_to(path)
    return tmp_path


def fitted(*words):
    answer = call(*words)
    assert answer.code == 0, answer.err
    return dkl.load("run.zarr")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((*MVU, "--data", "X.npz", "--n-basis", "70"), "--n-basis: more eigenvectors than the graph has"),
        ((*MVU, "--data", "X.npz", "--n-basis", "0"), "'--n-basis': '0' is not an integer >= 1"),
        ((*MVU, "--data", "X.npz", "--nu", "0"), "'--nu': '0' is not a finite number > 0"),
        ((*MVU, "--data", "equal.npz"), "all rows are equal; got edges of length 0 alone"),
        ((*MVU, "--data", "nan.npz"), "X[3, 0]"),
        ((*MVU, "--data", "X.npy", "--colored"), "no targets; name their file by --targets"),
        ((*MVU, "--data", "X.npz", "--colored", "--targets", "one.npy"), "one.npy: all labeled rows are of one class"),
        ((*MVU, "--data", "X.npz", "--targets", "short.npy"), "not labels of these rows"),
        (
            (*MVU, "--data", "signs.npz", "--colored"),
            "signs.npz: all labeled rows are of one class; got -1 and one label",
        ),
        ((*LAPLACIAN, "--data", "X.npz", "--pairs", "against.csv", *REFUSE), "must-linked through 0-1-2"),
        (
            (*LAPLACIAN, "--data", "X.npz", "--pairs", "heavy.csv"),
            "weights of pairs: too large for double precision; got 1e+300",
        ),
        ((*LAPLACIAN, "--data", "X.npz", "--pairs", "outside.csv"), "row numbers out of range"),
        ((*LAPLACIAN, "--data", "X.npz", "--pairs", "pairs.csv", "--n-basis", "70"), "at most 69 of 70 rows"),
        ((*MVU, *HARD, "--data", "X.npz", "--n-basis", "5"), 'n_basis: no effect with constraints="hard"; got 5'),
        ((*MVU, *HARD, "--data", "X.npz", "--nu", "2"), 'nu: no effect with constraints="hard"'),
        ((*MVU, *HARD, "--data", "X.npz", "--colored"), 'colored: no effect with constraints="hard"'),
        ((*MVU, *HARD, "--data", "X.npz", "--solver", "sqlp"), 'solver: no effect with constraints="hard"'),
        ((*MVU, *HARD, "--data", "equal.npz"), "all rows are equal"),
        ((*LAPLACIAN, *HARD, "--data", "X.npz", "--pairs", "pairs.csv", "--n-basis", "5"), "n_basis: no effect with"),
        ((*LAPLACIAN, *HARD, "--data", "X.npz", "--pairs", "hard.csv", "--solver", "scsdp"), "solver: no effect with"),
        ((*LAPLACIAN, *HARD, "--data", "X.npz", "--pairs", "pairs.csv"), "weights of pairs: no effect with"),
        ((*LAPLACIAN, *HARD, "--data", "X.npz", "--pairs", "against.csv"), "must-linked through 0-1-2"),
        ((*LAPLACIAN, "--constraints", "at-most", "--data", "X.npz", "--pairs", "hard.csv"), "'at-most' is not"),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_what_cannot_be_learned_from(words, told, work):
    before = tree(work)
    answer = call(*words)
    # Edges are searched by compiled functions, of which a note may tell before.
    refused(Answer(answer.code, answer.out, answer.err[max(0, answer.err.rfind("dkl: ")) :]))
    assert told in answer.err and tree(work) == before


@pytest.mark.parametrize("task", [("mvu",), ("laplacian", "--pairs", "pairs.csv")], ids=lambda words: words[0])
def test_a_basis_beyond_the_guard_names_what_fits(task, work, monkeypatch):
    """Of rows that are not read; what is named fits, and one more does not."""
    monkeypatch.setattr("dkl.runs.qsdp.basis.check_values", lambda rows: pytest.fail("it was read"))
    words = (*task, "--data", "large.npy", "--memory-limit", "2 GB", "--out", "run.zarr", "--n-basis")
    for verb in ("plan", "fit"):
        answer = call(verb, *words, "9000")
        refused(answer, 5)
    most = int(answer.err.rpartition("smaller n_basis: ")[2].split()[0].replace(",", ""))
    assert call("plan", *words, most).code == 0 and call("plan", *words, most + 1).code == 5
    answer = call("plan", *words, "300", "--solver", "scsdp")
    refused(answer, 5)
    assert 'or solver="low-rank"' in answer.err and not Path("run.zarr").exists()


@pytest.mark.parametrize(
    "task",
    [("mvu", "--constraints", "at-most"), ("laplacian", *HARD, "--pairs", "pairs.csv")],
    ids=lambda words: words[0],
)
def test_a_kernel_on_all_rows_that_does_not_fit_is_refused_before_any_row_is_read(task, work, monkeypatch):
    monkeypatch.setattr("dkl.runs.qsdp.basis.check_values", lambda rows: pytest.fail("it was read"))
    Path("pairs.csv").unlink()
    Path("pairs.csv").write_text("0,1,must\n2,3,cannot\n")
    np.save("many.npy", np.zeros((200_000, 2), np.float32))
    words = (*task, "--data", "many.npy", "--out", "run.zarr", "--memory-limit")
    for verb in ("plan", "fit"):
        refused(call(verb, *words, "1 GB"), 5)
    assert call("plan", *words, "64 GB").code == 0 and not Path("run.zarr").exists()


def test_the_plan_names_the_method_and_what_it_takes(work):
    words = ("plan", "mvu", "--data", "X.npz", *HARD, "--n-neighbors", "5", "--out", "run.zarr")
    small, without = call(*words), call(*words, "--memory-limit", "400 MB")
    assert small.code == 0 and "a step of the interior point" in small.out and "constraints of a kernel" in small.out
    assert without.code == 0 and "augmented Lagrangian" in without.out
    pairs = call("plan", "laplacian", "--data", "X.npz", "--pairs", "hard.csv", *HARD, "--out", "run.zarr")
    assert pairs.code == 0 and "augmented Lagrangian" in pairs.out and "pairs, and the diagonal," in pairs.out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((*LAPLACIAN, *HARD, "--data", "X.npz", "--pairs", "hard.csv"), "raise --tol; the"),
        (
            (*MVU, *HARD, "--data", "few.npz"),
            "raise --tol, or take --constraints at-most: exact distances may leave the kernel no room; the",
        ),
        ((*MVU, "--constraints", "at-most", "--data", "few.npz"), "raise --tol; the"),
    ],
    ids=["pairs", "distances", "at-most"],
)
def test_a_stalled_hard_form_names_only_what_it_takes(words, told, work):
    answer = call(*words, "--n-neighbors", "5", "--tol", "1e-16", "--holdout", "0")
    assert answer.code == 3 and "run.zarr: stalled" in answer.out
    assert answer.err.splitlines()[-1].endswith(f"steps no longer come nearer: {told} result is written")


def test_contradictions_are_left_out_of_hard_pairs_where_asked(work):
    """A cannot-link whose ends two must-links join; and by the default, told what there is to do."""
    words = (*LAPLACIAN, *HARD, "--data", "X.npz", "--pairs", "against.csv")
    told = call(*words)
    assert told.code == 2 and 'take "drop"' in told.err and '"keep"' not in told.err
    E = fitted(*words, "--contradictions", "drop").embedding_
    assert_allclose(E[0] @ E[2], 1.0, atol=1e-5)
    assert call("verify", "run.zarr").code == 0


def test_labels_color_an_unfolding(work):
    """Names, and the numbers of their classes, say the same; and the estimator, and a conic solver, whose dual is kept."""
    colored = (*MVU, "--n-basis", "8", "--n-neighbors", "6", "--colored")
    X = np.load("X.npy")
    wanted = dkl.MaximumVarianceUnfolding(n_basis=8, n_neighbors=6, colored=True).fit(X, np.load("X.npz")["y"])
    for words in (("X.npy", "--targets", "names.csv"), ("numbers.npz",), ("X.npz", "--solver", "sqlp")):
        found = fitted(*colored, "--data", *words)
        assert_allclose(found.embedding_, wanted.embedding_, atol=1e-3 if "sqlp" in words else 1e-9)
        answer = call("verify", "run.zarr")
        assert answer.code == 0, answer.out
        shutil.move("run.zarr", f"run-{len(words)}-{words[0]}")
    assert "dual" in RunStore.open("run-3-X.npz").read_arrays("model")


def test_labels_of_some_rows_color_an_unfolding(work):
    colored = (*MVU, "--n-basis", "8", "--n-neighbors", "6", "--colored")
    y = np.where(np.arange(N) % 3, np.load("X.npz")["y"], -1)
    wanted = dkl.MaximumVarianceUnfolding(n_basis=8, n_neighbors=6, colored=True).fit(np.load("X.npy"), y)
    found = fitted(*colored, "--data", "X.npy", "--targets", "some.csv")
    assert_allclose(found.embedding_, wanted.embedding_, atol=1e-9)
    assert call("verify", "run.zarr").code == 0


@pytest.mark.parametrize(
    "task", [("mvu", "--n-neighbors", "6"), ("laplacian", "--pairs", "pairs.csv")], ids=lambda words: words[0]
)
def test_labels_that_are_only_shown_may_be_1_and_minus_1(task, work):
    words = ("--data", "signs.npz", "--n-basis", "8", "--out", "run.zarr", "--threads", "1", "--picture")
    answer = call("fit", *task, *words)
    assert answer.code == 0 and Path("run.zarr/report.png").exists(), answer.err


def test_components_are_joined_and_verified(work):
    answer = call(*MVU, "--data", "part.npz", "--n-neighbors", "5", "--n-basis", "12")
    assert answer.code == 0 and "had 2 components (70, 70 rows), joined by the shortest edge" in answer.err
    told = call("verify", "run.zarr")
    assert told.code == 0 and "length of joining edges" in told.out, told.err
    run = RunStore.open(Path("run.zarr"))
    basis = run.read_arrays("basis")
    longest = int(basis["squared"].argmax())  # the joining edge: to another row of the other part
    basis["edges"][longest, 1] += 1 if basis["edges"][longest, 1] < 139 else -1
    X = np.load("part.npz")["X"]
    basis["squared"][longest] = ((X[basis["edges"][longest, 0]] - X[basis["edges"][longest, 1]]) ** 2).sum()
    run.write_arrays("basis", basis)
    run.write_report(run.report())
    told = call("verify", "run.zarr")
    assert told.code != 0 and "length of joining edges" in told.err


def test_sparse_rows_are_kept_as_they_are(work):
    found = fitted(*LAPLACIAN, "--data", "X.svmlight", "--pairs", "pairs.csv", "--n-basis", "8")
    dense = dkl.LaplacianKernelLearner(8).fit(np.load("X.npy"), pairs=dkl.load_pairs("pairs.csv"))
    assert_allclose(found.basis_kernel_, dense.basis_kernel_, atol=1e-5 * np.abs(dense.basis_kernel_).max())
    assert call("verify", "run.zarr").code == 0
    assert call("transform", "run.zarr", "--data", "X.svmlight", "--out", "out.npy").code == 0
    assert_allclose(np.load("out.npy"), found.embedding_, atol=1e-12)


@pytest.fixture(scope="module")
def complete(files):
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(files)
        fitted(*MVU, *SMALL, "--data", "X.npz")
    return files / "run.zarr"


@pytest.mark.parametrize("more", [(), ("--max-iter", "3"), ("--solver", "sqlp", "--max-iter", "4")], ids=str)
def test_what_earlier_versions_told_still_verifies_and_loads(more, work):
    """No dual of the low-rank solver was kept, errors were of its own, 2 (B(Y) - t), and over 1 + 2 |f|, of any gap."""
    basis = ("--n-basis", "34" if "sqlp" not in more else "8", *SMALL[2:])
    assert call(*MVU, *basis, "--data", "X.npz", *more).code == (3 if more else 0)
    store = RunStore.open("run.zarr")
    report, kept, model = store.report(), store.read_arrays("basis"), store.read_arrays("model")
    problem = unfolding(kept["Q"], kept["edges"], kept["squared"], report["nu"], variance(kept["Q"]))
    given = model.pop("dual")
    if "sqlp" in more:
        model["dual"] = given
    else:
        given = 2.0 * (svec_form(problem)[0] @ svec(model["Y"]) - problem.targets)
    told = asdict(problem.certify(model["Y"], given))
    f, error = told["objective"], told["dimacs"][4]
    # D = f - error (1 + |f| + |D|), both below 0.
    apart = error * (1 + 2 * abs(f)) / (1 - error)
    scale = (1 + abs(f) + abs(f - apart)) / (1 + 2 * abs(f))
    told["dimacs"] = [*told["dimacs"][:4], error * scale, told["dimacs"][5] * scale]
    store.write_arrays("model", model)
    store.write_report({**report, "certificate": told})
    answer = call("verify", "run.zarr")
    assert answer.code == 0, answer.err
    assert dkl.load("run.zarr").certificate_.relative_gap == told["relative_gap"]


@pytest.mark.parametrize("value", [10**6, N, -1])
def test_edges_of_another_run_are_none(value, complete, work):
    """Well sealed, and beyond the rows: memory that is not theirs is never read."""
    run = Path(shutil.copytree(complete, "run.zarr"))
    store = RunStore.open(run)
    kept = store.read_arrays("basis")
    edges = np.array(kept["edges"])
    edges[3, 1] = value
    store.write_arrays("basis", {**kept, "edges": edges})
    store.write_report(store.report())
    with pytest.raises(StoreError, match=rf"basis/edges: .*row numbers.*edges\[3\] = \({edges[3, 0]}, {value}\)"):
        dkl.load(run)
    assert call("verify", run).code == 6
