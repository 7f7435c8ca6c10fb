"""Kernel learning at scale: kernels learned from side information, out of core, on a Dask cluster, with a certificate.

    import dkl
    learner = dkl.PairwiseKernelLearner().fit(X, must_link=ml, cannot_link=cl)
    learner.factor_        # K = factor_ @ factor_.T
    learner.certificate_   # how far from the optimum it can be

The names below are imported when they are first used, so that `import dkl` is quick and starts nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dkl import baselines
    from dkl.estimators.kernel_kmeans import KernelKMeans
    from dkl.estimators.kpca.learner import KernelPCA
    from dkl.estimators.laplacian.learner import LaplacianKernelLearner
    from dkl.estimators.logdet.learner import LogDetKernelLearner
    from dkl.estimators.logdet.metric import LogDetMetricLearner
    from dkl.estimators.mvu.learner import MaximumVarianceUnfolding
    from dkl.estimators.pairwise.learner import PairwiseKernelLearner
    from dkl.estimators.regression.learner import LowRankKernelRegressor
    from dkl.estimators.spectral.clustering import SpectralClustering
    from dkl.estimators.spectral.embedding import SpectralEmbedding
    from dkl.estimators.svc.learner import OptimalNeighborhoodSVC
    from dkl.metrics import adjusted_rand_index, pair_accuracy
    from dkl.pair_splits import pair_train_test_split
    from dkl.pairs import Pairs
    from dkl.runs.public import load, open_run, resume
    from dkl.triplets import Triplets

__version__ = "0.1.0"

_PLACES = {
    "KernelKMeans": "dkl.estimators.kernel_kmeans",
    "KernelPCA": "dkl.estimators.kpca.learner",
    "LaplacianKernelLearner": "dkl.estimators.laplacian.learner",
    "LogDetKernelLearner": "dkl.estimators.logdet.learner",
    "LogDetMetricLearner": "dkl.estimators.logdet.metric",
    "LowRankKernelRegressor": "dkl.estimators.regression.learner",
    "MaximumVarianceUnfolding": "dkl.estimators.mvu.learner",
    "OptimalNeighborhoodSVC": "dkl.estimators.svc.learner",
    "PairwiseKernelLearner": "dkl.estimators.pairwise.learner",
    "Pairs": "dkl.pairs",
    "SpectralClustering": "dkl.estimators.spectral.clustering",
    "SpectralEmbedding": "dkl.estimators.spectral.embedding",
    "Triplets": "dkl.triplets",
    "adjusted_rand_index": "dkl.metrics",
    "load": "dkl.runs.public",
    "open_run": "dkl.runs.public",
    "pair_accuracy": "dkl.metrics",
    "pair_train_test_split": "dkl.pair_splits",
    "resume": "dkl.runs.public",
}

_PACKAGES = {"baselines": "dkl.baselines"}

__all__ = [
    "KernelKMeans",
    "KernelPCA",
    "LaplacianKernelLearner",
    "LogDetKernelLearner",
    "LogDetMetricLearner",
    "LowRankKernelRegressor",
    "MaximumVarianceUnfolding",
    "OptimalNeighborhoodSVC",
    "PairwiseKernelLearner",
    "Pairs",
    "SpectralClustering",
    "SpectralEmbedding",
    "Triplets",
    "adjusted_rand_index",
    "baselines",
    "load",
    "open_run",
    "pair_accuracy",
    "pair_train_test_split",
    "resume",
]


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return importlib.import_module(_PACKAGES[name])
    if name not in _PLACES:
        raise AttributeError(f"module 'dkl' has no attribute {name!r}")
    return getattr(importlib.import_module(_PLACES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_PLACES, *_PACKAGES])
