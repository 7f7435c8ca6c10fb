"""Small fits of every learner, for which Numba compiles all that later fits load from its cache."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from dkl.estimators.kmeans.learner import KernelKMeans
from dkl.estimators.kpca.learner import KernelPCA
from dkl.estimators.logdet.learner import LogDetKernelLearner
from dkl.estimators.logdet.metric import LogDetMetricLearner
from dkl.estimators.pairwise.learner import PairwiseKernelLearner
from dkl.estimators.qsdp.laplacian.learner import LaplacianKernelLearner
from dkl.estimators.qsdp.mvu.learner import MaximumVarianceUnfolding
from dkl.estimators.regression.learner import LowRankKernelRegressor
from dkl.estimators.spectral.clustering import SpectralClustering
from dkl.estimators.svm.learner import OptimalNeighborhoodSVC

N = 160
"""Rows of each fit: enough for more than one cluster, fold and neighborhood."""
RANKS = (4, 8, 16, 32)
"""Ranks of ADMM, whose kernels are compiled for each width of a slab."""
Fit = tuple[Any, Any, dict[str, Any]]
"""(estimator, rows, what else its fit is given)."""


def warmup_fits() -> dict[str, list[Fit]]:
    """Return, by learner, fits that together reach what its fits of any data call."""
    rng = np.random.default_rng(0)
    y = np.arange(N) % 4
    X = rng.standard_normal((N, 6)) + 4 * np.eye(6)[y]
    fixed, many, sparse = X.copy(), np.concatenate([X] * 10), sp.csr_array(np.where(X > 0, X, 0.0))
    for rows in (fixed, many):  # as what is read from files is; Numba compiles for such arrays apart
        rows.flags.writeable = False
    apart = X[y < 2] + 100 * y[y < 2, None]
    target = X[:, 0] + np.sin(X[:, 1]) + 0.1 * rng.standard_normal(N)
    ends = rng.permutation(N).reshape(-1, 2)
    alike = y[ends[:, 0]] == y[ends[:, 1]]
    pairs = {"must_link": ends[alike], "cannot_link": ends[~alike]}
    wrong = {"must_link": ends[alike][3:], "cannot_link": np.concatenate([ends[~alike], ends[alike][:3]])}
    labels = {"y": np.where(np.arange(N) % 2, y, -1)}
    types, pairwise, logdet = ("float64", "float32"), PairwiseKernelLearner, LogDetKernelLearner
    regression: dict[str, Any] = {"gamma": 0.1, "random_state": 0}
    admm: dict[str, Any] = {"random_state": 0, "max_iter": 20, "target_gap": None}
    return {
        "pairs": [
            *((pairwise(random_state=0), rows, pairs) for rows in (X, X.astype(np.float32), fixed, sparse)),
            *((pairwise(rank=rank, dtype=dtype, **admm), X, pairs) for dtype in types for rank in RANKS),
            (pairwise(gamma=100.0, target_gap=1e-5, random_state=0), X, wrong),
            (pairwise(gamma="cv", random_state=0), X, pairs),
        ],
        "regression": [
            *((LowRankKernelRegressor(dtype=dtype, **regression), X, {"y": target}) for dtype in types),
            (LowRankKernelRegressor(refit="best", **regression), X, {"y": np.c_[target, X]}),
            (LowRankKernelRegressor(solver="newton", n_columns=20, nu=1.0, **regression), X, {"y": target}),
        ],
        "classification": [
            (OptimalNeighborhoodSVC(solver=solver, dtype=dtype, max_iter=200), X, {"y": y})
            for dtype in types
            for solver in ("accelerated", "gradient", "level")
        ],
        "logdet": [
            *((logdet(loss=loss), X, labels) for loss in ("log", "hinge", "itml")),
            (LogDetMetricLearner(), X, labels),
        ],
        "laplacian, unfolding": [
            (LaplacianKernelLearner(random_state=0), X, pairs),
            *((MaximumVarianceUnfolding(random_state=0), rows, {}) for rows in (X, fixed, sparse, apart)),
            (MaximumVarianceUnfolding(random_state=0, colored=True), X, {"y": y}),
        ],
        "k-means, components": [
            *((KernelKMeans(4, random_state=0), rows, {}) for rows in (X, X.astype(np.float32), sparse)),
            *((KernelKMeans(4, kernel="rbf", random_state=0), rows, {}) for rows in (fixed, many, sparse)),
            (KernelPCA(3), X, {}),
            (SpectralClustering(4, random_state=0), X, {}),
        ],
    }
