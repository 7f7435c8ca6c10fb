"""What LowRankKernelRegressor takes, each kind with the same model, and what it refuses: one error, one line, nothing written."""

import shutil
from pathlib import Path

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
import zarr
from command_line import tree
from on_workers import Foreign
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GroupKFold, KFold, ShuffleSplit

from dkl import LowRankKernelRegressor
from dkl.errors import DklError, InputError, MemoryBudgetError

N = 60
X = np.random.default_rng(0).standard_normal((N, 4))
Y = np.sin(X[:, 0]) + 2
SQUARE = X @ X.T


def model(**choices):
    given = {"gamma": 0.3, "nu": 0.1, "n_columns": 20, "random_state": 0, "n_jobs": 1}
    return LowRankKernelRegressor(**given | choices)


# -- every kind -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def large():
    """Rows of several blocks, with numbers that single precision holds."""
    rng = np.random.default_rng(1)
    rows = rng.integers(-50, 50, (20_000, 4)) / 32.0
    return rows, np.sin(rows[:, 0]) + 0.1 * rng.standard_normal(len(rows))


def test_every_kind_of_rows_gives_the_same_model(large, tmp_path):
    rows, y = large
    np.save(tmp_path / "x.npy", rows)
    np.save(tmp_path / "f.npy", np.asfortranarray(rows))
    zarr.create_array(str(tmp_path / "x.zarr"), data=rows, chunks=(777, 3))
    forms = {
        "Fortran order": np.asfortranarray(rows),
        "every other": np.repeat(rows, 2, axis=1)[:, ::2],
        "memory map": np.load(tmp_path / "x.npy", mmap_mode="r"),
        "path": tmp_path / "x.npy",
        "Fortran file": str(tmp_path / "f.npy"),
        "zarr": zarr.open_array(str(tmp_path / "x.zarr"), mode="r"),
        "zarr path": str(tmp_path / "x.zarr"),
        "zarr in memory": zarr.array(rows, chunks=(999, 4)),
        "dask": da.from_array(rows, chunks=(1234, 3)),
        "foreign": Foreign(rows),
        "single": rows.astype(np.float32),
        "sparse": sp.csr_array(rows),
    }
    want = model(nu=1.0).fit(rows, y)
    predicted = want.predict(rows)
    for name, form in forms.items():
        got = model(nu=1.0).fit(form, y)
        np.testing.assert_array_equal(got.columns_, want.columns_, err_msg=name)
        np.testing.assert_allclose(got.coef_, want.coef_, rtol=1e-10 if name != "sparse" else 1e-7, err_msg=name)
        np.testing.assert_allclose(got.predict(form), predicted, rtol=1e-10, atol=1e-10, err_msg=name)
        np.testing.assert_allclose(want.predict(form), predicted, rtol=1e-10, atol=1e-10, err_msg=name)


def test_every_kind_of_targets_gives_the_same_model(large):
    rows, y = large
    whole = np.round(8 * y)
    want = model(nu=1.0).fit(rows, whole).coef_
    for targets in (whole.tolist(), whole.astype(np.float32), whole.astype(int), da.from_array(whole, chunks=333)):
        np.testing.assert_array_equal(model(nu=1.0).fit(rows, targets).coef_, want)


@pytest.mark.exhaustive
def test_a_gram_matrix_on_disk_gives_the_model_of_one_in_memory(large, tmp_path):
    rows, y = large
    in_memory = model(nu=0.1, n_columns=1500).fit(rows[:6000], y[:6000])
    limit = in_memory.result_.plan["process_bytes"] // 2 + in_memory.result_.plan["base"] // 2
    for work_dir in (None, tmp_path):
        on_disk = model(nu=0.1, n_columns=1500, memory_limit=limit, work_dir=work_dir).fit(rows[:6000], y[:6000])
        plan = on_disk.result_.plan
        assert plan["placement"] == "disk" and plan["panel"] < 1500 and plan["disk"]["Gram matrix"] == 8 * 1500**2
        np.testing.assert_array_equal(on_disk.support_, in_memory.support_)
        np.testing.assert_allclose(on_disk.predict(rows[:99]), in_memory.predict(rows[:99]), rtol=1e-10)
        assert on_disk.objective_ == pytest.approx(in_memory.objective_, rel=1e-10)


def test_columns_that_are_kept_are_those_of_the_kernel(large, tmp_path):
    rows, y = large
    got = model(store_columns=True, work_dir=tmp_path).fit(rows, y)
    stored = zarr.open_array(f"{got.run_path_}/columns", mode="r")[:]
    squares = ((rows[:, None] - rows[got.columns_]) ** 2).sum(axis=2)
    np.testing.assert_allclose(stored, np.exp(-0.3 * squares), rtol=1e-9)


# -- what is refused ------------------------------------------------------------------------------------------------------


def changed(value, array=X):
    array = array.copy()
    array[3, 2] = value
    return array


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """The files that the cases read."""
    place = tmp_path_factory.mktemp("files")
    (place / "work").mkdir()
    np.save(place / "nan.npy", changed(np.nan))
    np.save(place / "objects.npy", np.array([[{}]], dtype=object))
    (place / "damaged.npy").write_bytes(b"\x93NUMPY and no more")
    zarr.create_array(place / "nan.zarr", data=changed(np.nan), chunks=(7, 2))
    zarr.create_array(place / "line.zarr", data=X[:, 0])
    return place


@pytest.fixture(autouse=True)
def folder(files, tmp_path, monkeypatch):
    """A folder to stand in, with a copy of them."""
    monkeypatch.chdir(shutil.copytree(files, tmp_path, dirs_exist_ok=True))
    return tmp_path


def refused(call, match, kind=InputError):
    """`call` raises an error of `kind`, in one line, and the folder stays as it was."""
    before = tree(Path.cwd())
    with pytest.raises(DklError, match=match) as caught:
        call()
    assert isinstance(caught.value, kind)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 500
    assert tree(Path.cwd()) == before


ROWS = {
    "NaN": (lambda: changed(np.nan), r"X\[3, 2\].*NaN"),
    "infinity, sparse": (lambda: sp.csr_array(changed(-np.inf)), r"X\[3, 2\].*infinity"),
    "NaN in dask": (lambda: da.from_array(changed(np.nan), chunks=(13, 3)), r"X\[3, 2\].*NaN"),
    "NaN in a file": (lambda: "nan.npy", r"X\[3, 2\].*NaN"),
    "NaN in zarr": (lambda: "nan.zarr", r"X\[3, 2\].*NaN"),
    "None": (lambda: None, "scalar"),
    "one-dimensional": (lambda: X[:, 0], "1D"),
    "three-dimensional": (lambda: X[None], "dim 3"),
    "no rows": (lambda: X[:0], "0 sample"),
    "no features": (lambda: X[:, :0], "0 feature"),
    "complex": (lambda: X + 1j, "Complex"),
    "complex dask": (lambda: da.from_array(X + 1j), "complex128"),
    "words": (lambda: np.full((N, 2), "word"), "word"),
    "dates": (lambda: np.zeros((N, 2), "M8[s]"), "datetime64"),
    "ragged": (lambda: [[1.0, 2.0], [3.0]], "inhomogeneous"),
    "a dictionary": (lambda: {"a": 1}, "dict"),
    "other number of rows": (lambda: X[:7], r"y: inconsistent.*wanted \(7,\)"),
    "1-d zarr": (lambda: "line.zarr", "2-d"),
    "no such file": (lambda: "none.npy", "none.npy"),
    "a damaged file": (lambda: "damaged.npy", "damaged.npy"),
    "pickled objects": (lambda: "objects.npy", "objects.npy"),
}


@pytest.mark.parametrize("case", ROWS)
def test_rows(case):
    make, match = ROWS[case]
    refused(lambda: model(work_dir="work").fit(make(), Y), match)
    refused(lambda: model().path(make(), Y), match)


TARGETS = {
    "None": (None, "requires y"),
    "NaN": (np.where(Y > 2.5, np.nan, Y), r"y\[\d+\]: a target is missing; got nan"),
    "infinity": (np.where(Y > 2.5, np.inf, Y), "y: .*infinity"),
    "too few": (Y[:-1], r"y: inconsistent.*wanted \(60,\)"),
    "no column": (Y[:, None][:, :0], "y: .*0 feature"),
    "three-dimensional": (Y[:, None, None], "y: .*dim 3"),
    "a number": (3.0, "y: .*scalar"),
    "words": (["a"] * N, "y: text, not numbers; got 'a'.*pass y as numbers"),
    "complex": (Y + 1j, "y: Complex"),
    "dates": (np.zeros(N, "M8[s]"), "y: .*datetime64"),
    "spans": (np.arange(N).astype("m8[s]"), "y: .*timedelta64"),
    "ragged": ([[1], [1, 2]] * (N // 2), "y: .*inhomogeneous"),
    "sparse": (sp.csr_array(Y[:, None]), "y: .*toarray"),
    "too large to square": (Y * 1e200, "y: .*too large"),
}


@pytest.mark.parametrize("case", TARGETS)
def test_targets(case):
    y, match = TARGETS[case]
    refused(lambda: model(work_dir="work").fit(X, y), match)


WEIGHTS = {
    "too few": np.ones(N - 1), "two-dimensional": np.ones((N, 1)), "negative": -np.ones(N), "NaN": np.full(N, np.nan),
    "all zero": np.zeros(N), "words": ["a"] * N, "beyond all sums": np.full(N, 1e308), "infinite": np.inf,
    "complex": np.full(N, 1j), "dictionary": {},
}  # fmt: skip


@pytest.mark.parametrize("case", WEIGHTS)
def test_sample_weights(case):
    refused(lambda: model(work_dir="work").fit(X, Y, sample_weight=WEIGHTS[case]), "sample_weight")


PARAMETERS = [
    ("kernel", "rfb"), ("kernel", None), ("kernel", ["rbf"]), ("kernel", "chi2"), ("kernel", lambda a: 1.0),
    ("kernel", lambda a, b: np.nan), ("kernel", lambda a, b: "x"), ("kernel", lambda a, b: -1.0),
    ("kernel", "precomputed"), ("gamma", 0), ("gamma", -1), ("gamma", "1"), ("gamma", np.nan), ("gamma", 10**400),
    ("degree", "x"), ("degree", -1), ("coef0", np.inf), ("coef0", None), ("kernel_params", 5),
    ("kernel_params", {"gamma": 1}), ("nu", 0), ("nu", -1.0), ("nu", "auto"), ("nu", np.inf), ("nu", None), ("nu", True),
    ("lam", 0), ("lam", "1"), ("lam", np.nan), ("n_columns", 0), ("n_columns", 2.5), ("n_columns", "all"),
    ("n_columns", True), ("columns", "all"), ("columns", None), ("columns", []), ("columns", [0, 0]), ("columns", [-1]),
    ("columns", [N]), ("columns", [0.5]), ("columns", [[1, 2], [3]]), ("columns", X[:3, :2]), ("columns", changed(np.nan)),
    ("columns", np.ones(N, bool)), ("columns", X[None]), ("columns", sp.csr_array(X)), ("solver", "admm"), ("solver", None),
    ("sampling", "cyclic"), ("stopping", "never"), ("stopping", "paper"), ("fit_intercept", 1), ("fit_intercept", "yes"),
    ("tol", -1), ("tol", np.nan), ("tol", "small"), ("max_iter", 0), ("max_iter", 1e3), ("n_nus", 0), ("n_nus", "x"),
    ("dtype", "float16"), ("dtype", np.float32), ("store_columns", "x"), ("memory_limit", -1), ("memory_limit", "much"),
    ("memory_limit", [1]), ("work_dir", "nowhere"), ("work_dir", ""), ("work_dir", 5), ("work_dir", "nan.npy"),
    ("checkpoint_every", 0), ("checkpoint_every", 1.5), ("checkpoint_every", "often"), ("client", 5),
    ("client", "tcp://127.0.0.1:8786"), ("n_jobs", 0), ("n_jobs", 1.5), ("random_state", "x"), ("random_state", -1),
    ("random_state", 2**40), ("callbacks", "print"), ("callbacks", [print, 1]),
]  # fmt: skip
SPLITS = [
    ("cv", 1), ("cv", 2.5), ("cv", None), ("cv", "five"), ("cv", []), ("cv", [[0, 1], [2, 3]]), ("cv", ShuffleSplit(3)),
    ("cv", GroupKFold(3)), ("cv", KFold(N + 1)), ("cv", [(np.arange(30), np.arange(30, N))]),
    ("cv", [(np.arange(30), np.arange(30, N)), (np.arange(30), np.arange(30))]),
    ("cv", [(np.arange(30), np.arange(30, N)), (np.arange(31, N), np.arange(31))]),
    ("cv", [(np.arange(30), np.arange(30, N + 1)), (np.arange(30, N), np.arange(30))]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value"), [*PARAMETERS, *SPLITS])
def test_parameters(name, value):
    told = {"kernel": "kernel|precomputed"}.get(name, name)
    case = {"nu": "cv"} if name == "cv" else {}
    place = None if callable(value) else "work"
    refused(lambda: model(**{"work_dir": place, **case, name: value}).fit(X, Y), told)


def test_parameters_that_do_not_go_together():
    refused(lambda: model(store_columns=True).fit(X, Y), "work_dir")
    refused(lambda: model(solver="paper", work_dir="work").fit(X, Y), "work_dir")
    refused(lambda: model(kernel=lambda x, z: x @ z, work_dir="work").fit(X, Y), "kernel: a run's folder")
    refused(lambda: model(solver="paper").path(X, Y), "no path")
    refused(lambda: model(kernel="precomputed", columns=SQUARE[:3], work_dir="work").fit(SQUARE, Y), "row numbers")
    refused(lambda: model(nu="cv", work_dir="work").fit(X[:1], Y[:1]), "2 rows")
    for nus in ([], [0.0], [-1.0], [np.nan], ["a"], [[1], [1, 2]], {}):
        refused(lambda nus=nus: model().path(X, Y, nus=nus), "nus")


KERNELS = {
    "overflow on the diagonal": ({"kernel": "poly", "degree": 400, "gamma": 1.0}, 100 * X),
    "overflow beside it": ({"columns": np.zeros((2, 4)), "kernel": "poly", "degree": 400, "gamma": 1.0, "coef0": 0.5},
                           np.abs(X) * 1e3),
    "rows too large": ({"kernel": "linear"}, X * 1e200),
    "distances too large": ({}, X * 1e200),
    "squares too large": ({"kernel": "linear", "columns": X[:2]}, X * 1e154),
    "negative diagonal": ({"kernel": "sigmoid", "coef0": -50}, X),
    "no real root": ({"kernel": "poly", "degree": 0.5, "coef0": -50}, X),
    "nothing to draw": ({"kernel": "linear", "columns": "rpcholesky"}, 0 * X),
    "overflow in a draw": ({"kernel": "linear", "columns": "rpcholesky"}, X * 1e200),
}  # fmt: skip


@pytest.mark.parametrize("case", KERNELS)
def test_kernels(case):
    parameters, rows = KERNELS[case]
    if case == "overflow beside it":
        parameters = parameters | {"columns": np.full((2, 4), 1e-3)}
    refused(lambda: model(work_dir="work", **parameters).fit(rows, Y), "kernel=")


def test_too_little_memory_is_told_with_its_worst_item_and_a_remedy():
    words = r"memory plan: the plan does not fit: \S.* takes \S+ \w+ of 4\d\d MB a process.*wanted at least 4\d\d MB; raise memory_limit$"
    for limit in ("1 kB", "280 MB"):
        refused(lambda limit=limit: model(memory_limit=limit, work_dir="work").fit(X, Y), words, MemoryBudgetError)


NEW_ROWS = {"other features": X[:, :3], "NaN": changed(np.nan), "one-dimensional": X[0], "no rows": X[:0],
            "words": np.full((3, 4), "w"), "other features in dask": da.from_array(X[:, :3]),
            "NaN in dask": da.from_array(changed(np.nan)), "NaN in zarr": "nan.zarr", "no such file": "none.npy"}  # fmt: skip


@pytest.mark.parametrize("case", NEW_ROWS)
def test_new_rows(case):
    fitted = model().fit(X, Y)
    refused(lambda: np.asarray(fitted.predict(NEW_ROWS[case])), r"X|none\.npy")


def test_new_rows_on_which_the_kernel_overflows():
    fitted = model(kernel="poly", nu=1e-3).fit(X, Y)
    refused(lambda: fitted.predict(X * 1e150), r"kernel=.poly.*predictions")


def test_nothing_is_predicted_before_a_fit():
    with pytest.raises(NotFittedError):
        model().predict(X)
    unlucky = model()
    with pytest.raises(InputError):
        unlucky.fit(X, Y[:3])
    with pytest.raises(NotFittedError):
        unlucky.predict(X)
