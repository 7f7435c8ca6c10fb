"""The one declaration of a learner's settings: the estimator's constructor, checks and options are held to it."""

import inspect
import json
from dataclasses import fields

import numpy as np
import pytest
from sklearn.metrics.pairwise import PAIRWISE_KERNEL_FUNCTIONS

import dkl
from dkl.baselines import (
    BCDNPKL,
    E2CP,
    MFPC,
    ConjugateGradientKernelLearner,
    COPKMeans,
    FirstOrderRegressor,
    FirstOrderSVC,
    HybridSDP,
    ITMLKernelLearner,
    ITMLMetricLearner,
    KernelRidgeRegressor,
    LaplacianEigenmaps,
    LMNNMetricLearner,
    NystromClassifier,
    NystromRegressor,
    PCKMeans,
    SimpleNPKL,
    UniformWeightsRegressor,
)
from dkl.baselines.constrained_clusters import COPKMeansSettings, E2CPSettings, PCKMeansSettings
from dkl.baselines.first_order_regressor import FirstOrderRegressorSettings
from dkl.baselines.first_order_svc import FirstOrderSVCSettings
from dkl.baselines.itml import ITMLKernelSettings, ITMLSettings
from dkl.baselines.kernel_ridge import KernelRidgeSettings
from dkl.baselines.laplacian_eigenmaps import EigenmapsSettings
from dkl.baselines.lmnn import LMNNSettings
from dkl.baselines.logdet_gradient import GradientSettings
from dkl.baselines.nystrom_classifier import NystromClassifierSettings
from dkl.baselines.pair_base import PairKernelSettings
from dkl.baselines.pair_kernels import MFPCSettings, SimpleNPKLSettings
from dkl.baselines.ridge_on_columns import RidgeSettings, UniformSettings
from dkl.errors import InputError
from dkl.estimators.base import rules
from dkl.estimators.base.rules import KERNEL_NAMES
from dkl.estimators.base.settings import check_parameters, declared, gathered, parameters
from dkl.estimators.kpca.fit import ComponentsSettings
from dkl.estimators.logdet.settings import LogDetKernelSettings, LogDetMetricSettings
from dkl.estimators.pairwise.settings import PairwiseSettings
from dkl.estimators.qsdp.settings import PropagationSettings, UnfoldingSettings
from dkl.estimators.regression.settings import RegressionSettings
from dkl.estimators.spectral.embedding import ClusteringSettings, EmbeddingSettings
from dkl.estimators.svm.settings import SVCSettings

LEARNERS = {
    dkl.PairwiseKernelLearner: PairwiseSettings,
    dkl.LowRankKernelRegressor: RegressionSettings,
    dkl.OptimalNeighborhoodSVC: SVCSettings,
    KernelRidgeRegressor: KernelRidgeSettings,
    UniformWeightsRegressor: UniformSettings,
    NystromRegressor: RidgeSettings,
    NystromClassifier: NystromClassifierSettings,
    FirstOrderRegressor: FirstOrderRegressorSettings,
    FirstOrderSVC: FirstOrderSVCSettings,
    dkl.LaplacianKernelLearner: PropagationSettings,
    dkl.MaximumVarianceUnfolding: UnfoldingSettings,
    dkl.LogDetKernelLearner: LogDetKernelSettings,
    dkl.LogDetMetricLearner: LogDetMetricSettings,
    ITMLKernelLearner: ITMLKernelSettings,
    ITMLMetricLearner: ITMLSettings,
    LMNNMetricLearner: LMNNSettings,
    ConjugateGradientKernelLearner: GradientSettings,
    BCDNPKL: PairKernelSettings,
    COPKMeans: COPKMeansSettings,
    E2CP: E2CPSettings,
    HybridSDP: PairKernelSettings,
    MFPC: MFPCSettings,
    PCKMeans: PCKMeansSettings,
    SimpleNPKL: SimpleNPKLSettings,
    LaplacianEigenmaps: EigenmapsSettings,
    dkl.KernelPCA: ComponentsSettings,
    dkl.SpectralClustering: ClusteringSettings,
    dkl.SpectralEmbedding: EmbeddingSettings,
}
IDS = [learner.__name__ for learner in LEARNERS]


@pytest.mark.parametrize(("learner", "kind"), LEARNERS.items(), ids=IDS)
def test_a_constructor_has_the_declared_parameters_and_defaults(learner, kind):
    signature = inspect.signature(learner.__init__).parameters
    found = {name: parameter.default for name, parameter in signature.items() if name != "self"}
    assert found == {name: default for name, (default, _) in parameters(kind).items()}


@pytest.mark.parametrize(("learner", "kind"), LEARNERS.items(), ids=IDS)
def test_a_docstring_has_every_parameter(learner, kind):
    text = inspect.getdoc(learner)
    for name in parameters(kind):
        assert name in text, name


@pytest.mark.parametrize("kind", LEARNERS.values(), ids=IDS)
def test_defaults_keep_their_rules_and_json_keeps_them(kind):
    settings = kind().checked()
    assert kind(**json.loads(json.dumps(settings.as_dict()))) == settings
    for name, (default, rule) in parameters(kind).items():
        assert rule.accepts(default), name
    for known in declared(kind).values():
        assert known.help.endswith(".") and known.rule.wanted
    assert [field.name for field in fields(kind)] == list(declared(kind))


@pytest.mark.parametrize(("learner", "kind"), LEARNERS.items(), ids=IDS)
def test_a_parameter_that_breaks_its_rule_is_named(learner, kind):
    for name, (_, rule) in parameters(kind).items():
        bad = object()
        if rule.accepts(bad):
            continue
        with pytest.raises(InputError, match=rf"The '{name}' parameter of {learner.__name__} must be"):
            check_parameters(learner(**{name: bad}), kind)
        if name in declared(kind):
            with pytest.raises(InputError, match=name):
                kind(**{name: bad}).checked()


def test_settings_are_gathered_as_json_can_hold_them():
    learner = dkl.PairwiseKernelLearner(rank=np.int64(7), gamma=np.float32(2), tol=0, max_iter=np.int32(3))
    found = gathered(PairwiseSettings, learner, seed=5)
    assert (found.rank, found.gamma, found.tol, found.max_iter, found.seed) == (7, 2.0, 0.0, 3, 5)
    assert [type(value) for value in (found.rank, found.gamma, found.tol, found.max_iter)] == [int, float, float, int]
    json.dumps(found.as_dict())


def test_kernel_names_are_those_of_the_arithmetic():
    assert set(KERNEL_NAMES) == {"precomputed", *PAIRWISE_KERNEL_FUNCTIONS}


@pytest.mark.parametrize(
    ("rule", "good", "bad"),
    [
        (rules.Real(above=0), ["1", "1e-300", " 2 "], ["0", "-1", "nan", "inf", "", "x", "1e999"]),
        (rules.Real(least=0), ["0", "3.5"], ["-1e-9", "nan"]),
        (rules.Real(), ["-3", "0"], ["inf", "-inf", "nan", "one"]),
        (rules.Integer(1), ["1", "9223372036854775807"], ["0", "1.5", "9223372036854775808", "-3", "", "1e3"]),
        (rules.Word("a", "b"), ["a"], ["c", "", "A"]),
        (rules.Either(rules.Integer(1), rules.Word("auto")), ["3", "auto"], ["0", "Auto", "1.5"]),
        (rules.Either(rules.Word("x"), rules.NotGiven()), ["x"], ["None", ""]),
        (rules.Size(), ["4 GB", "2GiB", "750"], ["much", "-5", "0", ""]),
    ],
    ids=lambda value: getattr(value, "wanted", None),
)
def test_a_rule_takes_from_text_what_it_accepts(rule, good, bad):
    for text in good:
        assert rule.accepts(rule.parse(text))
    for text in bad:
        with pytest.raises(ValueError):  # the command says what it wanted
            rule.parse(text)


def test_numbers_are_neither_booleans_nor_beyond_every_float():
    assert not rules.Real(above=0).accepts(True) and not rules.Integer(0).accepts(False)
    assert not rules.Real(above=0).accepts(10**400) and not rules.Real().accepts(float("nan"))
    assert rules.Real(above=0).accepts(np.float32(1)) and rules.Integer(1).accepts(np.int8(1))
    assert rules.Flag().accepts(np.True_) and not rules.Flag().accepts(1)


@pytest.mark.parametrize("value", [np.arange(1000.0), "a\nb" * 500, 10**400, -(10**5000)], ids=range(4))
def test_any_value_is_named_in_a_short_line(value: object) -> None:
    with pytest.raises(dkl.errors.InputError, match="'gamma' parameter of LowRankKernelRegressor must be") as error:
        dkl.LowRankKernelRegressor(gamma=value).fit(np.eye(4), np.arange(4.0))
    assert "\n" not in str(error.value) and len(str(error.value)) < 300
