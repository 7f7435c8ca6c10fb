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
    from dkl.estimators.kmeans.learner import KernelKMeans
    from dkl.estimators.kpca.learner import KernelPCA
    from dkl.estimators.logdet.learner import LogDetKernelLearner
    from dkl.estimators.logdet.metric import LogDetMetricLearner
    from dkl.estimators.pairwise.learner import PairwiseKernelLearner
    from dkl.estimators.paper_settings import paper_settings
    from dkl.estimators.qsdp.laplacian.learner import LaplacianKernelLearner
    from dkl.estimators.qsdp.mvu.learner import MaximumVarianceUnfolding
    from dkl.estimators.qsdp.sdp import QuadraticSDP, low_rank_sdp, quadratic_sdp
    from dkl.estimators.regression.learner import LowRankKernelRegressor
    from dkl.estimators.spectral.clustering import SpectralClustering
    from dkl.estimators.spectral.embedding import SpectralEmbedding
    from dkl.estimators.svm.learner import OptimalNeighborhoodSVC
    from dkl.metrics import adjusted_rand_index, pair_accuracy
    from dkl.runs.public import load, open_run, resume
    from dkl.side_information.loading import load_pairs, load_triplets
    from dkl.side_information.pairs import Pairs, pair_train_test_split
    from dkl.side_information.triplets import Triplets

__version__ = "0.1.0"

_PLACES = {
    "KernelKMeans": "dkl.estimators.kmeans.learner",
    "KernelPCA": "dkl.estimators.kpca.learner",
    "LaplacianKernelLearner": "dkl.estimators.qsdp.laplacian.learner",
    "LogDetKernelLearner": "dkl.estimators.logdet.learner",
    "LogDetMetricLearner": "dkl.estimators.logdet.metric",
    "LowRankKernelRegressor": "dkl.estimators.regression.learner",
    "MaximumVarianceUnfolding": "dkl.estimators.qsdp.mvu.learner",
    "OptimalNeighborhoodSVC": "dkl.estimators.svm.learner",
    "PairwiseKernelLearner": "dkl.estimators.pairwise.learner",
    "Pairs": "dkl.side_information.pairs",
    "QuadraticSDP": "dkl.estimators.qsdp.sdp",
    "SpectralClustering": "dkl.estimators.spectral.clustering",
    "SpectralEmbedding": "dkl.estimators.spectral.embedding",
    "Triplets": "dkl.side_information.triplets",
    "adjusted_rand_index": "dkl.metrics",
    "load": "dkl.runs.public",
    "load_pairs": "dkl.side_information.loading",
    "load_triplets": "dkl.side_information.loading",
    "low_rank_sdp": "dkl.estimators.qsdp.sdp",
    "open_run": "dkl.runs.public",
    "pair_accuracy": "dkl.metrics",
    "pair_train_test_split": "dkl.side_information.pairs",
    "paper_settings": "dkl.estimators.paper_settings",
    "quadratic_sdp": "dkl.estimators.qsdp.sdp",
    "resume": "dkl.runs.public",
}

_PACKAGES = {name: f"dkl.{name}" for name in ("baselines", "datasets", "errors", "metrics")}

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
    "QuadraticSDP",
    "SpectralClustering",
    "SpectralEmbedding",
    "Triplets",
    "adjusted_rand_index",
    "baselines",
    "load",
    "load_pairs",
    "load_triplets",
    "low_rank_sdp",
    "open_run",
    "pair_accuracy",
    "pair_train_test_split",
    "paper_settings",
    "quadratic_sdp",
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
