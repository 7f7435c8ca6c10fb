"""The methods that the papers compare with, with the estimators' interface.

    from dkl.baselines import KernelRidgeRegressor, NystromRegressor, UniformWeightsRegressor
    from dkl.baselines import FirstOrderRegressor, FirstOrderSVC, NystromClassifier
    from dkl.baselines import BCDNPKL, HybridSDP, MFPC, SimpleNPKL
    from dkl.baselines import COPKMeans, E2CP, PCKMeans
    from dkl.baselines import ConjugateGradientKernelLearner, ITMLKernelLearner, ITMLMetricLearner, LaplacianEigenmaps
    from dkl.baselines import LMNNMetricLearner

They are imported when they are first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dkl.baselines.constrained_clusters import E2CP, COPKMeans, PCKMeans
    from dkl.baselines.first_order_regressor import FirstOrderRegressor
    from dkl.baselines.first_order_svc import FirstOrderSVC
    from dkl.baselines.itml import ITMLKernelLearner, ITMLMetricLearner
    from dkl.baselines.kernel_ridge import KernelRidgeRegressor
    from dkl.baselines.laplacian_eigenmaps import LaplacianEigenmaps
    from dkl.baselines.lmnn import LMNNMetricLearner
    from dkl.baselines.logdet_gradient import ConjugateGradientKernelLearner
    from dkl.baselines.nystrom_classifier import NystromClassifier
    from dkl.baselines.pair_kernels import BCDNPKL, MFPC, HybridSDP, SimpleNPKL
    from dkl.baselines.ridge_on_columns import NystromRegressor, UniformWeightsRegressor

_MODULES = {
    "BCDNPKL": "dkl.baselines.pair_kernels",
    "COPKMeans": "dkl.baselines.constrained_clusters",
    "ConjugateGradientKernelLearner": "dkl.baselines.logdet_gradient",
    "E2CP": "dkl.baselines.constrained_clusters",
    "FirstOrderRegressor": "dkl.baselines.first_order_regressor",
    "FirstOrderSVC": "dkl.baselines.first_order_svc",
    "HybridSDP": "dkl.baselines.pair_kernels",
    "ITMLKernelLearner": "dkl.baselines.itml",
    "ITMLMetricLearner": "dkl.baselines.itml",
    "KernelRidgeRegressor": "dkl.baselines.kernel_ridge",
    "LMNNMetricLearner": "dkl.baselines.lmnn",
    "LaplacianEigenmaps": "dkl.baselines.laplacian_eigenmaps",
    "MFPC": "dkl.baselines.pair_kernels",
    "NystromClassifier": "dkl.baselines.nystrom_classifier",
    "NystromRegressor": "dkl.baselines.ridge_on_columns",
    "PCKMeans": "dkl.baselines.constrained_clusters",
    "SimpleNPKL": "dkl.baselines.pair_kernels",
    "UniformWeightsRegressor": "dkl.baselines.ridge_on_columns",
}

__all__ = [
    "BCDNPKL",
    "COPKMeans",
    "ConjugateGradientKernelLearner",
    "E2CP",
    "FirstOrderRegressor",
    "FirstOrderSVC",
    "HybridSDP",
    "ITMLKernelLearner",
    "ITMLMetricLearner",
    "KernelRidgeRegressor",
    "LMNNMetricLearner",
    "LaplacianEigenmaps",
    "MFPC",
    "NystromClassifier",
    "NystromRegressor",
    "PCKMeans",
    "SimpleNPKL",
    "UniformWeightsRegressor",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'dkl.baselines' has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_MODULES])
