"""Malformed input to the neighborhood classifier: one error of ours, in one line that names the culprit."""

import re
import warnings

import dask.array as da
import numpy as np
import pytest
import zarr
from scipy import sparse
from sklearn.exceptions import NotFittedError
from sklearn.metrics.pairwise import rbf_kernel

from dkl import OptimalNeighborhoodSVC
from dkl.blocks.rows.row_sources import row_source
from dkl.errors import DklError, InputError
from dkl.estimators.base.kernel_width import spread_of

N = 40
X = np.random.default_rng(0).standard_normal((N, 3))
Y = np.arange(N) % 2
K = rbf_kernel(X)


def changed(value, array=X):
    array = array.copy()
    array[3, 2] = value
    return array


def with_eigenvalue(value):
    """A kernel matrix of which one eigenvalue has been made `value`."""
    values, vectors = np.linalg.eigh(K)
    values[0] = value
    return (vectors * values) @ vectors.T


def refused(call, match, kind=InputError):
    """`call` raises an error of `kind`, in one line."""
    with warnings.catch_warnings(), pytest.raises(DklError, match=match) as caught:
        warnings.simplefilter("ignore")
        call()
    assert isinstance(caught.value, kind)
    assert str(caught.value) and "\n" not in str(caught.value)


ROWS = {
    "NaN": (lambda: changed(np.nan), r"X\[3, 2\].*NaN"),
    "inf": (lambda: changed(np.inf), r"X\[3, 2\].*infinity"),
    "NaN in CSR": (lambda: sparse.csr_array(changed(np.nan)), r"X\[3, 2\].*NaN"),
    "NaN in a memory map": (lambda: np.load("nan.npy", mmap_mode="r"), r"X\[3, 2\].*NaN"),
    "NaN in a path": (lambda: "nan.npy", r"X\[3, 2\].*NaN"),
    "NaN in zarr": (lambda: zarr.open_array("nan.zarr", mode="r"), r"X\[3, 2\].*NaN"),
    "NaN in dask": (lambda: da.from_array(changed(np.nan), chunks=(9, 3)), r"X\[3, 2\].*NaN"),
    "too large to square": (lambda: X * 1e200, "large|overflow|finite"),
    "None": (lambda: None, "scalar"),
    "a number": (lambda: 5.0, "scalar"),
    "one-dimensional": (lambda: X[:, 0], "1D"),
    "three-dimensional": (lambda: X[None], "dim 3"),
    "no rows": (lambda: X[:0], "0 sample"),
    "no columns": (lambda: X[:, :0], "0 feature"),
    "too few rows": (lambda: X[:-1], "samples"),
    "complex": (lambda: X + 1j, "Complex"),
    "words": (lambda: np.full((N, 2), "word"), "word"),
    "dates": (lambda: np.zeros((N, 2), "M8[s]"), "datetime64"),
    "records": (lambda: np.zeros((N, 2), [("a", "f8")]), "dtype"),
    "ragged": (lambda: [[1.0, 2.0], [3.0]], "inhomogeneous"),
    "a dictionary": (lambda: {"a": 1}, "dict"),
    "no such file": (lambda: "none.npy", "none.npy"),
    "1-d dask": (lambda: da.from_array(X[:, 0]), "2-d"),
}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("nan.npy", changed(np.nan))
    zarr.create_array("nan.zarr", shape=X.shape, chunks=(7, 3), dtype="f8")[...] = changed(np.nan)


@pytest.mark.parametrize("case", ROWS)
def test_rows(case):
    make, match = ROWS[case]
    refused(lambda: OptimalNeighborhoodSVC().fit(make(), Y), match)


LABELS = {
    "None": (lambda: None, "y cannot be None|requires y"),
    "one class": (lambda: np.zeros(N), "all labeled rows are of one class; got 1 class"),
    "too few": (lambda: Y[:-1], "samples"),
    "numbers": (lambda: np.linspace(0, 1, N), "continuous"),
    "numbers that are one double": (lambda: (Y + 2.0**53).tolist(), "continuous"),
    "NaN": (lambda: np.where(Y, np.nan, 1.0), r"y\[1\]: a label is missing"),
    "inf": (lambda: np.where(Y, np.inf, 1.0), "infinity"),
    "two columns": (lambda: np.column_stack([Y, Y]), "1d|shape"),
    "a number": (lambda: 3, "1d|shape"),
    "objects of two kinds": (
        lambda: np.array(["a", 1] * (N // 2), object),
        "^y: labels of types that do not compare; wanted numbers, or text$",
    ),
    "bytes": (lambda: np.array([b"a", b"b"] * (N // 2)), "bytes"),
}


@pytest.mark.parametrize("case", LABELS)
def test_labels(case):
    make, match = LABELS[case]
    refused(lambda: OptimalNeighborhoodSVC().fit(X, make()), match)


WEIGHTS = {
    "negative": (np.where(Y, -1.0, 1.0), "sample_weight.*[Nn]egative"),
    "NaN": (np.where(Y, np.nan, 1.0), "sample_weight.*NaN"),
    "all zero": (np.zeros(N), "zero"),
    "NaN for all": (np.nan, "sample_weight.*sum of nan"),
    "infinite": (np.inf, "sample_weight.*sum of inf"),
    "beyond all sums": (np.full(N, 1e308), "sample_weight.*sum of inf"),
    "a class of zeros": (np.where(Y, 0.0, 1.0), "all samples of a class"),
    "too few": (np.ones(N - 1), "sample_weight"),
    "two columns": (np.ones((N, 2)), "sample_weight.*1D|sample_weight"),
    "words": (np.full(N, "a"), "sample_weight"),
}


def test_values_whose_variance_underflows():
    """gamma="scale" would be 1, and all rows the same to the kernel."""
    for tiny in (1e-200 * X, sparse.csr_array(1e-200 * X)):
        refused(
            lambda rows=tiny: OptimalNeighborhoodSVC().fit(rows, Y), "X: values differ, .* variance underflows; scale X"
        )


def test_a_width_from_rows_in_blocks_is_that_of_rows_in_memory(tmp_path, monkeypatch):
    """Far from zero, where the mean of squares less the square of the mean has no digit left."""
    monkeypatch.setattr("dkl.estimators.base.kernel_width.VARIANCE_BYTES", 7 * X[:1].nbytes)
    far = 1e8 + X
    stored = zarr.create_array(str(tmp_path / "X.zarr"), data=far, chunks=(10, X.shape[1]))
    variance, low, high = spread_of(row_source(stored))
    assert variance == pytest.approx(np.var(far), rel=1e-9) and (low, high) == (far.min(), far.max())
    thin = sparse.csr_array(X * (X > 0))
    assert spread_of(row_source(thin))[0] == pytest.approx(np.var(thin.toarray()), rel=1e-12)


@pytest.mark.parametrize("case", WEIGHTS)
def test_weights(case):
    weights, match = WEIGHTS[case]
    refused(lambda: OptimalNeighborhoodSVC().fit(X, Y, sample_weight=weights), match)


PARAMETERS = [
    ({"C": 0}, "'C' .*> 0.*0"),
    ({"C": -1.0}, "'C'"),
    ({"C": np.nan}, "'C'"),
    ({"C": np.inf}, "'C'"),
    ({"C": "1"}, "'C'"),
    ({"C": True}, "'C'"),
    ({"C": [1.0]}, "'C'"),
    ({"C": 1e100}, "^C: bounds are so large that .* overflows; .*1e.100; wanted at most"),
    ({"C": 1e160, "solver": "level"}, "^C: bounds are so large"),
    ({"rho": 0.0}, "'rho' .*> 0"),
    ({"rho": -3}, "'rho'"),
    ({"rho": np.inf}, "'rho'"),
    ({"rho": None}, "'rho'"),
    ({"kernel": "none"}, "'kernel'"),
    ({"kernel": 3}, "'kernel'"),
    ({"kernel": lambda X, Z: np.full((len(X), len(Z)), np.nan)}, "not finite"),
    ({"kernel": lambda x, z: 1.0}, "not a kernel matrix"),
    ({"kernel": lambda a: 1.0}, "cannot be evaluated"),
    ({"kernel_params": [1]}, "'kernel_params'"),
    ({"gamma": 0.0}, "'gamma'"),
    ({"gamma": "wide"}, "'gamma'"),
    ({"degree": -1}, "'degree'"),
    ({"coef0": np.nan}, "'coef0'"),
    ({"stopping": "paper"}, "stopping: the paper's rule"),
    ({"tau": 1.0}, "'tau'.*> 0 and < 1"),
    ({"solver": "smo"}, "'solver'.*'accelerated' or 'gradient' or 'level'"),
    ({"multi_class": "crammer"}, "'multi_class'"),
    ({"decision_function_shape": "both"}, "'decision_function_shape'"),
    ({"class_weight": "even"}, "class_weight"),
    ({"class_weight": {0: -1.0}}, "class_weight"),
    ({"class_weight": {0: np.nan}}, "class_weight"),
    ({"class_weight": {0: 0.0, 1: 1.0}}, "all samples of a class"),
    ({"class_weight": {"no such": 1.0}}, "class_weight"),
    ({"class_weight": 3}, "class_weight"),
    ({"tol": -1e-3}, "'tol'"),
    ({"max_iter": 0}, "'max_iter'"),
    ({"max_iter": 1.5}, "'max_iter'"),
    ({"dtype": "float16"}, "'dtype'"),
    ({"memory_limit": "much"}, "memory"),
    ({"memory_limit": -5}, "memory"),
    ({"client": "here"}, "client.*Dask"),
    ({"n_jobs": 0}, "'n_jobs'"),
    ({"callbacks": 3}, "callbacks"),
]


@pytest.mark.parametrize(("given", "match"), PARAMETERS, ids=lambda value: re.sub(" at 0x.*", "", str(value))[:40])
def test_parameters(given, match):
    refused(lambda: OptimalNeighborhoodSVC(**given).fit(X, Y), match)


PRECOMPUTED = {
    "not square": (lambda: K[:, :-1], "square.*shape"),
    "asymmetric": (lambda: changed(0.9, K), r"not symmetric.*X\[3, 2\] = "),
    "an eigenvalue of -0.5": (lambda: with_eigenvalue(-0.5), r"not positive semidefinite.*eigenvalue of -0\.5\b"),
    "an eigenvalue of -1e-3": (lambda: with_eigenvalue(-1e-3), "eigenvalue of -0.001"),
    "its negative": (lambda: -K, "positive semidefinite"),
    "sparse": (lambda: sparse.csr_array(K), "[Ss]parse"),
    "NaN": (lambda: changed(np.nan, K), "NaN"),
    "not square, on disk": (lambda: "nan.npy", "square"),
}


@pytest.mark.parametrize("case", PRECOMPUTED)
def test_precomputed_kernels(case):
    make, match = PRECOMPUTED[case]
    refused(lambda: OptimalNeighborhoodSVC(kernel="precomputed").fit(make(), Y), match)


@pytest.mark.parametrize("case", ["asymmetric", "an eigenvalue of -0.5", "NaN"])
def test_precomputed_kernels_that_are_not_held(case, monkeypatch):
    """Read anew in each product."""
    from dkl.estimators.svm import plan as svc_plan

    plan = svc_plan.plan_kernel
    monkeypatch.setattr(svc_plan, "plan_kernel", lambda *a, **k: plan(*a, **{**k, "driver_limit": 1}))
    make, match = PRECOMPUTED[case]
    np.save("K.npy", make())
    refused(lambda: OptimalNeighborhoodSVC(kernel="precomputed").fit("K.npy", Y), match.split(".*")[0])


def test_large_indefinite_kernel():
    """Beyond the size whose eigenvalues are all computed; and kernels of low rank, with most eigenvalues 0, pass."""
    rng = np.random.default_rng(0)
    Z = rng.standard_normal((600, 3))
    labels = np.arange(600) % 2
    refused(lambda: OptimalNeighborhoodSVC(kernel="precomputed").fit(Z @ Z.T - 0.01 * np.eye(600), labels), "-0.01")
    OptimalNeighborhoodSVC(kernel="precomputed", tol=0.1, C=0.01, rho=1.0).fit(Z @ Z.T, labels)


def test_rounding_is_no_indefiniteness():
    """A kernel matrix kept in single precision has eigenvalues a little below 0."""
    rounded = rbf_kernel(X, gamma=1e-3).astype(np.float32)
    assert np.linalg.eigvalsh(rounded.astype(float))[0] < 0
    OptimalNeighborhoodSVC(kernel="precomputed").fit(rounded, Y)


GRIDS = [
    ([], [1.0], "Cs"),
    ([1.0], [], "rhos"),
    ([0.0], [1.0], "Cs"),
    ([1.0], [-1.0, 1.0], "rhos"),
    ([np.nan], [1.0], "Cs"),
    ("word", [1.0], "Cs"),
    ([[1.0]], [1.0], "Cs"),
    ([1.0], None, "rhos"),
]


@pytest.mark.parametrize(("Cs", "rhos", "match"), GRIDS)
def test_grids(Cs, rhos, match):
    refused(lambda: OptimalNeighborhoodSVC().path(X, Y, Cs, rhos), match)


def test_predict_before_fit():
    for method in ("predict", "decision_function"):
        with pytest.raises(NotFittedError):
            getattr(OptimalNeighborhoodSVC(), method)(X)


def test_rows_to_predict():
    fitted = OptimalNeighborhoodSVC().fit(X, Y)
    for bad, match in [
        (X[:, :2], "2 features.*3 features"),
        (da.from_array(X[:, :2]), "2 features.*3 features"),
        (changed(np.nan), "NaN"),
        (X[0], "1D"),
        (X[:0], "0 sample"),
    ]:
        refused(lambda bad=bad: fitted.predict(bad), match)
    with_kernel = OptimalNeighborhoodSVC(kernel="precomputed").fit(K, Y)
    refused(lambda: with_kernel.predict(K[:, :-1]), "39 features.*40 features")


def test_too_many_rows_for_the_level_method(monkeypatch):
    from dkl.solvers.svm import interface

    monkeypatch.setattr(interface, "LARGEST_BY_LEVEL", 30)
    refused(lambda: OptimalNeighborhoodSVC(solver="level").fit(X, Y), 'solver="level": too many rows; got 40')


def test_multipliers_near_0_are_blamed_on_what_makes_them_small():
    of = {"solver": "level", "kernel": "linear", "standardize": False}
    words = r"kernel: its values are so large .*; got k\(x, x\) = [0-9.]+e\+16[01]; scale the rows, as standardize=True"
    refused(lambda: OptimalNeighborhoodSVC(**of).fit(1e80 * X, Y), words)
    refused(lambda: OptimalNeighborhoodSVC(C=1e-300, **of).fit(X, Y), "C: the box is too small .*; raise C")


def test_a_failed_fit_leaves_the_data_alone():
    before, labels = X.copy(), Y.copy()
    OptimalNeighborhoodSVC().fit(X, Y)
    np.testing.assert_array_equal(X, before)
    np.testing.assert_array_equal(Y, labels)
