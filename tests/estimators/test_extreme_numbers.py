"""Numbers of extreme size, in rows and in settings: every learner's answer is finite, or one clear error; NumPy warns of nothing."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from repeats import but_for
from sklearn.datasets import make_blobs

import dkl
from dkl.errors import ConvergenceWarning, DataWarning, DklError, InputError

X, Y = make_blobs(48, 3, centers=3, cluster_std=1.5, random_state=3)
TARGETS = np.sin(X[:, 0]) + 0.1 * Y
SEED = {"n_jobs": 1, "random_state": 0}

Fit = Callable[[Any, dict[str, Any]], Any]
LEARNERS: dict[str, Fit] = {
    "pairwise": lambda rows, more: dkl.PairwiseKernelLearner(**SEED, **more).fit(rows, Y),
    "pairwise by ADMM": lambda rows, more: dkl.PairwiseKernelLearner(
        **{"solver": "admm", "rank": 5, "max_iter": 60, "target_gap": None} | SEED | more
    ).fit(rows, Y),
    "laplacian": lambda rows, more: dkl.LaplacianKernelLearner(**{"n_basis": 6, "n_neighbors": 6} | SEED | more).fit(rows, Y),
    "mvu": lambda rows, more: dkl.MaximumVarianceUnfolding(**{"n_basis": 6, "n_neighbors": 6} | SEED | more).fit(rows),
    "logdet": lambda rows, more: dkl.LogDetKernelLearner(**{"n_jobs": 1} | more).fit(rows, Y),
    "logdet metric": lambda rows, more: dkl.LogDetMetricLearner(**{"n_jobs": 1} | more).fit(rows, Y),
    "svc": lambda rows, more: dkl.OptimalNeighborhoodSVC(**{"n_jobs": 1} | more).fit(rows, Y),
    "svc by gradients": lambda rows, more: dkl.OptimalNeighborhoodSVC(
        **{"solver": "gradient", "max_iter": 200, "n_jobs": 1} | more
    ).fit(rows, Y),
    "regression": lambda rows, more: dkl.LowRankKernelRegressor(**{"n_columns": 15, "n_nus": 6} | SEED | more).fit(rows, TARGETS),
    "kpca": lambda rows, more: dkl.KernelPCA(2, **SEED, **more).fit(rows),
    "kpca of a factor": lambda rows, more: dkl.KernelPCA(2, kernel="linear", **SEED, **more).fit(rows),
    "embedding": lambda rows, more: dkl.SpectralEmbedding(2, **SEED, **more).fit(rows),
    "clustering": lambda rows, more: dkl.SpectralClustering(3, **SEED, **more).fit(rows),
    "kmeans": lambda rows, more: dkl.KernelKMeans(3, random_state=0, **more).fit(rows),
    "kernel kmeans": lambda rows, more: dkl.KernelKMeans(3, **{"kernel": "rbf", "random_state": 0} | more).fit(rows),
}  # fmt: skip
SIZES = [1e-300, 1e-160, 1e-80, 1e-12, 1e12, 1e80, 1e152, 1e160, 1e300]
ENDS = (1e-300, 1e-12, 1e12, 1e300)
WITH_GAMMA = ("pairwise", "pairwise by ADMM", "logdet", "logdet metric", "svc", "regression", "kpca", "kernel kmeans")
SETTINGS: list[tuple[str, dict[str, Any]]] = [
    *((name, {"gamma": gamma}) for name in WITH_GAMMA for gamma in ENDS),
    *((name, {"C": C}) for name in ("svc", "svc by gradients") for C in (1e-300, 1e-12, 1e12, 1e60)),
    *((name, {"rho": rho}) for name in ("svc", "svc by gradients") for rho in ENDS),
    *(("svc", {"kernel": "poly", "degree": degree}) for degree in (1, 9, 60)),
    *(("regression", {"nu": nu}) for nu in ENDS),
    *(("regression", {"lam": lam, "nu": 1e-3}) for lam in ENDS),
    *(("mvu", {"nu": nu}) for nu in ENDS),
    *((name, {"sigma": sigma}) for name in ("pairwise", "laplacian", "embedding", "clustering") for sigma in ENDS),
]
PLAIN = {
    ("svc", "sparse", 1e-160), ("svc by gradients", "one far", 1e160), ("regression", "one far", 1e152), ("logdet metric", "dense", 1e-160),
    ("kpca of a factor", "dense", 1e-80), ("kpca of a factor", "one far", 1e152), ("kmeans", "float32", 1e300),
    ("kernel kmeans", "sparse", 1e300),
}  # fmt: skip
"""Cases of rows in plain `pytest`: each gave another warning."""


@contextmanager
def numpy_says_nothing() -> Iterator[None]:
    """A RuntimeWarning is an error; of our own warnings any may come."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for ours in (DataWarning, ConvergenceWarning):
            warnings.simplefilter("ignore", ours)
        yield


def numbers_of(model: Any, rows: Any) -> list[np.ndarray]:
    """All that a model says of rows, as arrays of numbers."""
    verbs = [verb for verb in ("predict", "transform", "decision_function") if hasattr(model, verb)]
    last = (getattr(getattr(model, "result_", None), "history", None) or [{}])[-1]
    return [np.asarray(last.get("objective", 0.0)), *(np.asarray(getattr(model, verb)(rows)) for verb in verbs)]


def check(name: str, rows: Any, more: dict[str, Any]) -> None:
    with numpy_says_nothing():
        try:
            model = LEARNERS[name](rows, more)
            found = numbers_of(model, rows)
        except DklError as error:
            assert "\n" not in str(error) and str(error)
            return
    for values in found:
        assert values.dtype.kind != "f" or np.isfinite(values).all()


KINDS = ("dense", "sparse", "float32", "one far")
CASES = [(name, kind, size) for name in LEARNERS for kind in KINDS for size in SIZES]


@pytest.mark.parametrize(("name", "kind", "size"), but_for([case for case in CASES if case not in PLAIN], CASES))
def test_rows_of_any_size(name: str, kind: str, size: float) -> None:
    rows: Any = X * size
    if kind == "sparse":
        rows = sp.csr_array(np.where(np.abs(X) > 2, X, 0.0) * size)
    elif kind == "one far":
        rows = np.vstack([X[:-1], X[-1:] * size])
    elif kind == "float32":
        rows = (np.clip(X / np.abs(X).max() * size, -3e38, 3e38)).astype(np.float32)
    check(name, rows, {})


WITH_KERNEL = ("logdet", "svc", "svc by gradients", "regression", "kpca", "kernel kmeans")
KERNELS = [
    (name, kernel, size)
    for name in WITH_KERNEL
    for kernel in ("linear", "poly", "sigmoid", "cosine")
    for size in (1e-300, 1e-160, 1e80, 1e150, 1e160, 1e300)
]


@pytest.mark.parametrize(
    ("name", "kernel", "size"), but_for([one for one in KERNELS if one != ("svc", "linear", 1e150)], KERNELS)
)
def test_kernels_of_rows_of_any_size(name: str, kernel: str, size: float) -> None:
    check(name, X * size, {"kernel": kernel})


FURTHER = [
    one
    for one in SETTINGS
    if one not in (("svc", {"C": 1e-300}), ("kpca", {"gamma": 1e-12}), ("svc", {"gamma": 1e300}))
]


@pytest.mark.parametrize(("name", "more"), but_for(FURTHER, SETTINGS))
def test_settings_of_any_size(name: str, more: dict[str, Any]) -> None:
    check(name, X, more)


@pytest.mark.parametrize(
    "learner",
    [
        dkl.LogDetMetricLearner(),
        dkl.baselines.ITMLMetricLearner(),
        dkl.baselines.LMNNMetricLearner(),
        dkl.baselines.COPKMeans(3),
        dkl.baselines.PCKMeans(3),
        dkl.baselines.E2CP(3),
    ],
    ids=lambda learner: type(learner).__name__,
)
def test_rows_whose_differences_underflow_are_not_taken_for_equal(learner):
    with pytest.raises(InputError, match="^X: .*(too small to square|squared distances underflow).*scale"):
        learner.fit(X * 1e-200, Y)


@pytest.mark.parametrize("learner", [dkl.LowRankKernelRegressor(), dkl.baselines.KernelRidgeRegressor()])
def test_targets_of_both_signs_that_overflow_are_refused_without_a_warning(learner):
    with pytest.raises(InputError, match="^y: targets are too large to square"):
        learner.fit(X, np.where(Y > 0, 1e308, -1e308))
