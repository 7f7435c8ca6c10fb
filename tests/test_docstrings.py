"""Examples in docstrings run and print what they say. That public definitions have docstrings at all is ruff's to hold."""

import doctest
import importlib

import pytest

import dkl

BASELINES = {
    "ConjugateGradientKernelLearner": "dkl.baselines.logdet_gradient",
    "ITMLKernelLearner": "dkl.baselines.itml",
    "ITMLMetricLearner": "dkl.baselines.itml",
    "LaplacianEigenmaps": "dkl.baselines.laplacian_eigenmaps",
    "KernelRidgeRegressor": "dkl.baselines.kernel_ridge",
    "NystromRegressor": "dkl.baselines.ridge_on_columns",
    "UniformWeightsRegressor": "dkl.baselines.ridge_on_columns",
}
PUBLIC = {
    "LaplacianKernelLearner": "dkl.estimators.qsdp.laplacian.learner",
    "LogDetKernelLearner": "dkl.estimators.logdet.learner",
    "LogDetMetricLearner": "dkl.estimators.logdet.metric",
    "MaximumVarianceUnfolding": "dkl.estimators.qsdp.mvu.learner",
    "Pairs": "dkl.side_information.pairs",
    "Triplets": "dkl.side_information.triplets",
    "adjusted_rand_index": "dkl.metrics",
    "pair_accuracy": "dkl.metrics",
    "pair_train_test_split": "dkl.side_information.pair_splits",
    **BASELINES,
}
OTHERS = ["dkl.errors", "dkl.linalg.projections", "dkl.linalg.rows.tree_sum", "dkl.resources"]


@pytest.mark.parametrize("name", sorted({*PUBLIC.values(), *OTHERS}))
def test_examples_are_true(name):
    found = doctest.testmod(importlib.import_module(name))
    assert found.attempted and not found.failed


@pytest.mark.parametrize("name", PUBLIC)
def test_what_users_import_has_an_example(name):
    assert ">>>" in getattr(importlib.import_module(PUBLIC[name]), name).__doc__
    assert name in BASELINES or name in dkl.__all__
