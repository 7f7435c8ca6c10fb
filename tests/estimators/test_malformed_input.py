"""Malformed input to the Python API: one error of ours, in one line that names the culprit, at once, nothing written."""

import os
import warnings
from pathlib import Path

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import zarr
from command_line import tree
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning, NotFittedError

import dkl
from dkl import datasets
from dkl.blocks.graph.neighbor_graph import build_graph
from dkl.errors import DklError, InconsistentPairsError, InputError, MemoryBudgetError
from dkl.side_information.loading import load_pairs
from dkl.side_information.pairs import pair_train_test_split

N = 40
X = np.random.default_rng(0).standard_normal((N, 5))
Y = np.arange(N) % 4
PAIRS = dkl.Pairs.from_labels(Y, random_state=0)
MUST, CANNOT = PAIRS.must_link, PAIRS.cannot_link
SQUARE = X @ X.T


def changed(value, array=X):
    array = array.copy()
    array[3, 2] = value
    return array


NAN = r"X\[3, 2\]: Input X contains NaN; drop the row"
# Patterns that both estimators refuse, and what the message says of them.
PATTERNS = {
    "NaN": (lambda: changed(np.nan), NAN),
    "inf": (lambda: changed(np.inf), r"X\[3, 2\].*infinity"),
    "-inf in sparse": (lambda: sparse.csr_array(changed(-np.inf)), r"X\[3, 2\].*infinity"),
    "NaN in CSC": (lambda: sparse.csc_array(changed(np.nan)), NAN),
    "NaN in dask": (lambda: da.from_array(changed(np.nan), chunks=(13, 3)), NAN),
    "NaN in a memory map": (lambda: np.load("nan.npy", mmap_mode="r"), NAN),
    "NaN in zarr": (lambda: zarr.open_array("nan.zarr", mode="r"), NAN),
    "NaN in a list": (lambda: changed(np.nan).tolist(), NAN),
    "None among objects": (lambda: changed(None, X.astype(object)), NAN),
    "NaN in a table": (lambda: pd.DataFrame(changed(np.nan), columns=[*"abcde"]), NAN.replace("]:", "], column 'c':")),
    "NA in a table": (lambda: pd.DataFrame(changed(np.nan)).astype("Float64"), NAN.replace("]:", "], column 2:")),
    "too large to square": (lambda: X * 1e200, "large|overflow"),
    "None": (lambda: None, "scalar"),
    "a number": (lambda: 5, "scalar"),
    "one-dimensional": (lambda: X[:, 0], "1D"),
    "three-dimensional": (lambda: X[None], "dim 3"),
    "no rows": (lambda: X[:0], r"0 sample"),
    "no columns": (lambda: X[:, :0], r"0 feature"),
    "one row": (lambda: X[:1], "sample|cluster"),
    "complex": (lambda: X + 1j, "Complex"),
    "sparse complex": (lambda: sparse.csr_array(X + 1j), "Complex"),
    "words": (lambda: np.full((N, 2), "word"), "word"),
    "objects": (lambda: np.array([[{}, 1.0]] * N, dtype=object), "dict"),
    "dates": (lambda: np.zeros((N, 2), "M8[s]"), "datetime64"),
    "records": (lambda: np.zeros((N, 2), [("a", "f8")]), "dtype"),
    "ragged": (lambda: [[1.0, 2.0], [3.0]], "inhomogeneous"),
    "a dictionary": (lambda: {"a": 1}, "dict"),
    "a generator": (lambda: (row for row in X), "generator"),
    "bytes": (lambda: b"X.npy", "X.npy"),
    "1-d dask": (lambda: da.from_array(X[:, 0]), "2-d"),
    "one row of dask": (lambda: da.from_array(X[:1]), "few|fewer"),
    "complex dask": (lambda: da.from_array(X + 1j), "complex128"),
    "1-d zarr": (lambda: zarr.open_array("line.zarr", mode="r"), "2-d"),
    "a group of zarr": (lambda: "group.zarr", "group"),
    "no such file": (lambda: "none.npy", "none.npy"),
    "a folder": (lambda: ".", "zarr array"),
    "an .npz": (lambda: "pairs.npz", "zarr array"),
    "a damaged file": (lambda: "damaged.npy", "damaged.npy"),
    "pickled objects": (lambda: "objects.npy", "objects.npy"),
}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """The files that the cases read."""
    place = tmp_path_factory.mktemp("files")
    (place / "work").mkdir()
    np.save(place / "nan.npy", changed(np.nan))
    np.savez(place / "pairs.npz", must_link=MUST, cannot_link=CANNOT)
    (place / "damaged.npy").write_bytes(b"\x93NUMPY and no more")
    np.save(place / "objects.npy", np.array([[{}]], dtype=object))
    (place / "words.csv").write_text("0,1,perhaps\n")
    for name, array in (("nan.zarr", changed(np.nan)), ("line.zarr", X[:, 0])):
        zarr.create_array(place / name, shape=array.shape, chunks=(7, 2)[: array.ndim], dtype="f8")[...] = array
    zarr.create_group(place / "group.zarr")
    return place


@pytest.fixture(autouse=True)
def folder(files, monkeypatch):
    """Their folder, to stand in: what is refused leaves it as it was."""
    monkeypatch.chdir(files)
    return files


def refused(call, match, kind=InputError):
    """`call` raises an error of `kind`, in one line, and the folder stays as it was."""
    before = tree(Path.cwd())
    with warnings.catch_warnings(), pytest.raises(DklError, match=match) as caught:
        warnings.simplefilter("ignore")
        call()
    assert isinstance(caught.value, kind)
    assert "\n" not in str(caught.value) and str(caught.value)
    assert tree(Path.cwd()) == before


def learner(**parameters):
    """One that would write to the folder, if it came to that."""
    return dkl.PairwiseKernelLearner(**{"max_iter": 5, "random_state": 0, "work_dir": "work", **parameters})


@pytest.mark.parametrize("case", PATTERNS)
def test_patterns_to_learn_from(case):
    make, match = PATTERNS[case]
    patterns = make()
    refused(lambda: learner().fit(patterns, pairs=PAIRS), match)


@pytest.mark.parametrize("case", PATTERNS)
def test_patterns_to_cluster(case):
    make, match = PATTERNS[case]
    patterns = make()
    refused(lambda: dkl.KernelKMeans(3, random_state=0).fit(patterns), match)


AFFINITIES = {
    "not square": (X, "square"),
    "negative": (-np.abs(SQUARE), "negative"),
    "not symmetric": (np.arange(N * N, dtype=float).reshape(N, N), "symmetric"),
    "NaN": (changed(np.nan, np.abs(SQUARE)), r"X\[3, 2\]"),
}


@pytest.mark.parametrize("case", AFFINITIES)
def test_affinities(case):
    affinity, match = AFFINITIES[case]
    refused(lambda: learner(affinity="precomputed").fit(affinity, pairs=PAIRS), match)


SIDES = {
    "nothing": ({}, "must_link", InputError),
    "empty lists": ({"must_link": [], "cannot_link": []}, "no pairs", InputError),
    "no pairs in Pairs": ({"pairs": dkl.Pairs()}, "no pairs", InputError),
    "out of range": ({"must_link": [[0, N]]}, r"\(0, 40\)", InputError),
    "negative": ({"cannot_link": [[0, -1]]}, r"\(0, -1\)", InputError),
    "with itself": ({"must_link": [[0, 1], [7, 7]]}, r"must_link\[1\] = \(7, 7\)", InputError),
    "in both sets": ({"must_link": [[0, 1]], "cannot_link": [[1, 0]]}, "no pairs left; got 1 given both", InputError),
    "floats": ({"must_link": [[0.0, 1.0]]}, "integer", InputError),
    "NaN": ({"must_link": [[np.nan, 1.0]]}, "integer", InputError),
    "booleans": ({"must_link": [[True, False]]}, "integer", InputError),
    "words": ({"must_link": [["a", "b"]]}, "integer", InputError),
    "triples": ({"must_link": [[0, 1, 2]]}, r"\(1, 3\)", InputError),
    "one flat pair": ({"must_link": [0, 1]}, r"\[\[i, j\]\]", InputError),
    "a number": ({"must_link": 3}, "array of pairs", InputError),
    "ragged": ({"must_link": [[0, 1], [2]]}, "lengths", InputError),
    "beyond 64 bits": ({"must_link": [[0, 2**70]]}, "integer", InputError),
    "a sparse matrix": ({"must_link": sparse.csr_array((N, N))}, "must_link", InputError),
    "a set": ({"must_link": {(0, 1)}}, "must_link", InputError),
    "given twice": ({"pairs": PAIRS, "must_link": MUST}, "twice", InputError),
    "an array as pairs": ({"pairs": MUST}, "wrong argument", InputError),
    "Pairs as must_link": ({"must_link": PAIRS}, "wrong argument", InputError),
    "too few ids": ({"pairs": PAIRS, "sample_ids": np.arange(3)}, "sample_ids", InputError),
    "repeated ids": ({"pairs": PAIRS, "sample_ids": np.zeros(N, int)}, "repeated", InputError),
    "ids of other rows": ({"pairs": PAIRS, "sample_ids": np.arange(N) + 1000}, "no pairs left", InputError),
    "too few labels": ({"y": Y[:5]}, "labels and rows", InputError),
    "labels in two columns": ({"y": np.c_[Y, Y]}, "labels are not one-dimensional", InputError),
    "an infinity among labels": ({"y": np.where(Y == 0, np.inf, Y)}, r"y\[0\] = inf", InputError),
    "fractional labels": ({"y": Y + 0.5}, "0.5", InputError),
    "complex labels": ({"y": Y + 1j}, "complex128", InputError),
    "dates as labels": ({"y": Y.astype("M8[s]")}, "datetime64", InputError),
    "ragged labels": ({"y": [[0]] * (N - 1) + [[1, 2]]}, "lengths", InputError),
    "no label known": ({"y": np.full(N, -1)}, "no row has a label", InputError),
    "labels -1 and +1": ({"y": np.where(Y > 1, 1, -1)}, "recode", InputError),
    "labels that do not compare": ({"y": np.array(["a", 1] * (N // 2), dtype=object)}, "compare", InputError),
}


def test_contradictions_are_refused_where_that_is_asked_for():
    strict = learner(contradictions="raise")
    both, chain = (
        {"must_link": [[0, 1]], "cannot_link": [[1, 0]]},
        {"must_link": [[0, 1], [1, 2]], "cannot_link": [[2, 0]]},
    )
    refused(lambda: strict.fit(X, **both), "also in must_link", InconsistentPairsError)
    refused(lambda: strict.fit(X, **chain), "2-1-0", InconsistentPairsError)


@pytest.mark.parametrize("case", SIDES)
def test_side_information(case):
    given, match, kind = SIDES[case]
    refused(lambda: learner().fit(X, **given), match, kind)


PARAMETERS = [
    ("rank", 0), ("rank", N + 1), ("rank", 10**30), ("rank", 2.0), ("rank", None), ("gamma", 0), ("gamma", "1"),
    ("gamma", 10**400), ("gamma", [1]), ("solver", None), ("n_neighbors", 1.5), ("sigma", -1), ("sigma", 1e300),
    ("laplacian", None), ("neighbors_method", "x"), ("affinity", "x"), ("rho", 0), ("adapt_rho", "x"), ("stopping", "x"), ("max_iter", 1e3),
    ("tol", np.nan), ("target_gap", -1), ("dtype", np.float32), ("memory_limit", -1), ("memory_limit", [1]),
    ("work_dir", "nowhere"), ("work_dir", ""), ("work_dir", 5), ("work_dir", "nan.npy"), ("checkpoint_every", 1.5),
    ("client", "tcp://127.0.0.1:8786"), ("n_jobs", 0), ("n_jobs", -2), ("warm_start", 1), ("random_state", "x"), ("random_state", -1),
    ("random_state", 2**40), ("callbacks", "print"), ("callbacks", [print, 1]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value"), PARAMETERS)
def test_parameters_of_the_learner(name, value):
    refused(lambda: learner(**{name: value}).fit(X, pairs=PAIRS), name)


def test_too_little_memory_is_told_before_a_run_is_made():
    refused(lambda: learner(memory_limit="10 kB").fit(X, pairs=PAIRS), "memory_limit", MemoryBudgetError)


def test_a_gamma_beyond_the_arithmetic_is_told():
    with pytest.raises(InputError, match="gamma"):
        learner(gamma=1e300, work_dir=None).fit(X, pairs=PAIRS)


CLUSTERINGS = [
    ("n_clusters", 0), ("n_clusters", N + 1), ("n_clusters", 1.5), ("n_clusters", True), ("kernel", "x"),
    ("kernel", ["rbf"]), ("kernel", "chi2"), ("kernel", lambda a: 1.0), ("kernel", lambda a, b: np.nan),
    ("gamma", "x"), ("gamma", np.nan), ("degree", "x"), ("kernel_params", 5), ("init", "x"), ("init", [["a"] * 5] * 3),
    ("init", np.zeros((2, 5))), ("init", np.full((3, 5), np.nan)), ("n_init", 0), ("max_iter", 0), ("tol", -1),
    ("random_state", "x"), ("random_state", -1), ("client", 5), ("memory_limit", "x"), ("memory_limit", 0),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value"), CLUSTERINGS)
def test_parameters_of_the_clusterer(name, value):
    refused(lambda: dkl.KernelKMeans(**{"n_clusters": 3, name: value}).fit(X), "kernel|n_clusters|" + name)


KERNELS = {"not square": X, "not symmetric": SQUARE + np.triu(SQUARE), "indefinite": SQUARE - 5 * np.eye(N),
           "sparse": sparse.csr_array(SQUARE), "NaN": changed(np.nan, SQUARE)}  # fmt: skip


@pytest.mark.parametrize("case", KERNELS)
def test_kernel_matrices(case):
    refused(lambda: dkl.KernelKMeans(3, kernel="precomputed").fit(KERNELS[case]), "kernel|X")


NEW_ROWS = {"other features": X[:, :3], "NaN": changed(np.nan), "too large": X * 1e200, "one-dimensional": X[0],
            "no rows": X[:0], "words": np.full((3, 5), "w"), "other features in dask": da.from_array(X[:, :3]),
            "NaN in dask": da.from_array(changed(np.nan)), "NaN in a list": changed(np.nan).tolist(),
            "no such file": "none.npy"}  # fmt: skip


@pytest.fixture(scope="module")
def fitted():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return learner(work_dir=None).fit(X, pairs=PAIRS)


@pytest.mark.parametrize("case", NEW_ROWS)
def test_new_rows(case, fitted):
    refused(lambda: np.asarray(fitted.transform(NEW_ROWS[case])), "X|none.npy")


def test_nothing_is_transformed_before_a_fit():
    with pytest.raises(NotFittedError):
        learner().transform(X)
    with pytest.raises(NotFittedError):
        dkl.KernelKMeans(3).predict(X)


CALLS = {
    "ids repeated": (lambda: dkl.Pairs([[0, 1]], ids=[1, 1]), "ids: repeated"),
    "ids too few": (lambda: dkl.Pairs([[0, 5]], ids=[1, 2]), r"must_link.*\(0, 5\)"),
    "ids of words": (lambda: dkl.Pairs([[0, 1]], ids=["a", "b"]), "ids"),
    "labels in columns": (lambda: dkl.Pairs.from_labels(X), "y: "),
    "more pairs than exist": (lambda: dkl.Pairs.from_labels(Y, n_must=10**9), "n_must"),
    "pairs by a truth": (lambda: dkl.Pairs.from_labels(Y, n_must=True), "n_must"),
    "seed of words": (lambda: dkl.Pairs.from_labels(Y, random_state="x"), "random_state"),
    "negative seed": (lambda: dkl.Pairs.from_labels(Y, random_state=-1), "random_state"),
    "signs of zero": (lambda: dkl.Pairs.from_metric_learn(MUST, np.zeros(len(MUST))), "y_pairs"),
    "too few signs": (lambda: dkl.Pairs.from_metric_learn(MUST, [1]), "y_pairs"),
    "ragged signs": (lambda: dkl.Pairs.from_metric_learn(MUST, [[1], [1, 2]]), "y_pairs"),
    "dense matrix": (lambda: dkl.Pairs.from_sparse(np.eye(3)), "sparse"),
    "rectangular matrix": (lambda: dkl.Pairs.from_sparse(sparse.csr_array((2, 3))), "square"),
    "NaN in a matrix": (lambda: dkl.Pairs.from_sparse(sparse.csr_array([[0, np.nan], [0, 0]])), r"matrix\[0, 1\]"),
    "unknown form": (lambda: dkl.Pairs.from_sparse(sparse.eye_array(3), form="x"), "form"),
    "n of words": (lambda: PAIRS.check("x"), "n: "),
    "n beyond 64 bits": (lambda: PAIRS.check(10**30), "n: "),
    "other contradictions": (lambda: PAIRS.check(N, "ignore"), "contradictions"),
    "selection of columns": (lambda: PAIRS.select(X), "sample_ids"),
    "split of an array": (lambda: pair_train_test_split(MUST, 0.5), "pairs: "),
    "split of nothing": (lambda: pair_train_test_split(PAIRS, 0.0), "test_size"),
    "file of words": (lambda: load_pairs("words.csv"), "words.csv, line 1"),
    "no file of pairs": (lambda: load_pairs("none.csv"), "none.csv"),
    "no path of pairs": (lambda: load_pairs(None), "path"),
    "no path of an array": (lambda: datasets.read_array(None), "path"),
    "unknown set": (lambda: datasets.load("../../etc/passwd"), "passwd"),
    "no name of a set": (lambda: datasets.load(None), "name"),
    "no patterns": (lambda: datasets.chessboard(0), "n: "),
    "a board of fractions": (lambda: datasets.chessboard(10, n_squares=2.5), "n_squares"),
    "endless turns": (lambda: datasets.double_spiral(10, turns=np.nan), "turns"),
    "graph of n neighbors": (lambda: build_graph(X, n_neighbors=N), "n_neighbors"),
    "graph of no width": (lambda: build_graph(X, sigma=np.ones(3)), "sigma"),
}


@pytest.mark.parametrize("case", CALLS)
def test_pairs_sets_files_and_graphs(case):
    call, match = CALLS[case]
    refused(call, match)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_work_folder_that_cannot_be_written_to(tmp_path):
    tmp_path.chmod(0o500)
    refused(lambda: learner(work_dir=str(tmp_path)).fit(X, pairs=PAIRS), "work_dir", DklError)
