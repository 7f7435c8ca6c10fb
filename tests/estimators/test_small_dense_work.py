"""Fits of few rows have one BLAS thread for all that a solver multiplies and factors, whatever the environment says.

A small matrix gains nothing by a second thread, which spins for the next one: a fit of 150 rows took 600 ms of processors and
not 50. A trace looks at each line of solvers, problems and linalg that multiplies, factors or solves.
"""

import linecache
import re
import sys
import threading
import warnings
from pathlib import Path

import numpy as np
import pytest
from threadpoolctl import ThreadpoolController, threadpool_limits

import dkl
from dkl.blocks.workers import dense_work
from dkl.blocks.workers.dense_work import blas_threads_for

FOLDERS = tuple(str(Path(dkl.__file__).parent / name) for name in ("linalg", "problems", "solvers"))
DENSE = re.compile(
    r"\s@\s|linalg\.\w+\(|np\.(dot|matmul|tensordot|vdot)\(|\b(cho_\w+|eigh\w*|solve\w*|qr|svd|lu_\w+)\("
)


def blas():
    return [one for one in ThreadpoolController().lib_controllers if one.user_api == "blas"]


def lines_with_threads(work):
    """(how many lines with dense work `work` runs, those of them that BLAS has more than one thread for)."""
    libraries, seen, bad = blas(), set(), set()

    def look(frame, event, _):
        if event == "line":
            place = frame.f_code.co_filename, frame.f_lineno
            text = linecache.getline(*place)
            if DENSE.search(text) and not text.lstrip().startswith(("def ", '"""')):
                seen.add(place)
                if max(one.num_threads for one in libraries) > 1:
                    bad.add(f"{place[0]}:{place[1]}: {text.strip()}")
        return look

    def trace(frame, event, _):
        return look if frame.f_code.co_filename.startswith(FOLDERS) else None

    before = sys.gettrace()
    with threadpool_limits(3, user_api="blas"):
        sys.settrace(trace)
        threading.settrace(trace)
        try:
            work()
        finally:
            sys.settrace(before)
            threading.settrace(before)
        assert {one.num_threads for one in libraries} == {3}  # and is lifted behind the fit
    return len(seen), sorted(bad)


def rows_and_labels():
    rng = np.random.default_rng(0)
    numbers = np.arange(60) % 3
    return rng.standard_normal((60, 3)) + 1.5 * np.eye(3)[numbers], numbers


X, Y = rows_and_labels()
T = np.column_stack([np.sin(2 * X[:, 0]), X[:, 1] ** 2])
PAIRS = {"must_link": np.arange(60).reshape(-1, 6)[:, [0, 3]], "cannot_link": np.arange(60).reshape(-1, 6)[:, [0, 1]]}
FITS = {
    "svc": lambda: dkl.OptimalNeighborhoodSVC().fit(X, Y),
    "svc, hard": lambda: dkl.OptimalNeighborhoodSVC(kernel="linear", C=1e3).fit(X, Y),
    "svc, level": lambda: dkl.OptimalNeighborhoodSVC(solver="level", max_iter=5).fit(X, Y),
    "svc, two kernels": lambda: dkl.OptimalNeighborhoodSVC(kernel=["rbf", "linear"], max_iter=5).fit(X, Y),
    "svc, path": lambda: dkl.OptimalNeighborhoodSVC(dtype="float32").path(X, Y, [1.0, 10.0]),
    "regression": lambda: dkl.LowRankKernelRegressor(n_columns=30).fit(X, T),
    "regression, path": lambda: dkl.LowRankKernelRegressor(n_columns=30, n_nus=5).path(X, T),
    "pairwise": lambda: dkl.PairwiseKernelLearner(random_state=0).fit(X, **PAIRS),
    "pairwise, admm": lambda: dkl.PairwiseKernelLearner(solver="admm", max_iter=5, random_state=0).fit(X, **PAIRS),
    "logdet": lambda: dkl.LogDetKernelLearner(max_iter=3).fit(X, Y),
    "logdet, metric": lambda: dkl.LogDetMetricLearner(max_iter=3).fit(X, Y),
    "laplacian": lambda: dkl.LaplacianKernelLearner(8, n_neighbors=6).fit(X, **PAIRS),
    "mvu": lambda: dkl.MaximumVarianceUnfolding(n_neighbors=6).fit(X),
    "kernel PCA": lambda: dkl.KernelPCA(2).fit(X),
    "kernel k-means": lambda: dkl.KernelKMeans(3).fit(X),
    "spectral": lambda: dkl.SpectralClustering(3).fit(X),
}


@pytest.mark.parametrize("name", FITS)
def test_a_small_fit_has_one_blas_thread(name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        FITS[name]()  # what it compiles is not traced line by line
        count, bad = lines_with_threads(FITS[name])
    assert count and not bad


def test_the_trace_sees_threads():
    from dkl.problems.svm.problem import least_bound

    ones = np.ones(2)
    count, bad = lines_with_threads(lambda: least_bound(ones, ones, np.array([-1.0, 1.0]), ones))
    assert count and len(bad) == count


def test_large_matrices_keep_the_threads_there_are(monkeypatch):
    monkeypatch.setattr(dense_work, "SHARED_ROWS", 10)
    with threadpool_limits(3, user_api="blas"):
        with blas_threads_for(9):
            assert {one.num_threads for one in blas()} == {1}
        with blas_threads_for(10):
            assert {one.num_threads for one in blas()} == {3}
