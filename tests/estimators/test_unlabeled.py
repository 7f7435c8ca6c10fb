"""-1, and None among objects, are unlabeled in every learner of partly labeled rows, and a class of the classifier."""

import numpy as np
import pytest
from sklearn.base import clone

import dkl
from dkl.baselines import ConjugateGradientKernelLearner, ITMLKernelLearner, ITMLMetricLearner, LMNNMetricLearner
from dkl.errors import InputError

N = 60
SIGNS = np.where(np.arange(N) < N // 2, 1, -1)
X = np.random.default_rng(0).normal(size=(N, 3)) + 3 * (SIGNS > 0)[:, None]
LEARNERS_OF_LABELS = [
    dkl.PairwiseKernelLearner(),
    dkl.LaplacianKernelLearner(),
    dkl.LogDetKernelLearner(),
    dkl.LogDetMetricLearner(),
    dkl.MaximumVarianceUnfolding(n_neighbors=8, colored=True),
    ITMLMetricLearner(),
    ITMLKernelLearner(),
    ConjugateGradientKernelLearner(),
    LMNNMetricLearner(),
]


@pytest.mark.parametrize("model", LEARNERS_OF_LABELS, ids=lambda model: type(model).__name__)
def test_two_classes_called_1_and_minus_1_are_refused(model):
    for labels in (SIGNS, SIGNS.astype(float), SIGNS.astype(str), SIGNS.astype(object)):
        with pytest.raises(InputError, match=r"y: all labeled rows are of one class.*recode.*-1 means unlabeled"):
            clone(model).fit(X, labels)


@pytest.mark.parametrize(
    "model", [*LEARNERS_OF_LABELS, dkl.OptimalNeighborhoodSVC()], ids=lambda model: type(model).__name__
)
def test_labels_of_one_class_are_refused(model):
    half = np.where(np.arange(N) % 2, 7.0, np.nan)
    for labels, got in (
        (np.zeros(N, int), f"1 class among {N} labeled"),
        (["a"] * N, f"{N} labeled"),
        (half, f"1 class among {N // 2} labeled"),
    ):
        if isinstance(model, dkl.OptimalNeighborhoodSVC) and labels is half:
            continue  # which wants a label in every row
        with pytest.raises(
            InputError, match=f"y: all labeled rows are of one class; got .*{got} rows; wanted two classes"
        ):
            clone(model).fit(X, labels)
    if not isinstance(model, dkl.OptimalNeighborhoodSVC):
        with pytest.raises(InputError, match="y: no row has a label"):
            clone(model).fit(X, [None] * N)


@pytest.mark.parametrize("model", LEARNERS_OF_LABELS[:6], ids=lambda model: type(model).__name__)
def test_unlabeled_is_one_thing_in_numbers_text_and_objects(model):
    model = clone(model).set_params(random_state=0)
    numbers = np.where(np.arange(N) % 3, SIGNS > 0, -1)
    names = [None if value < 0 else "ab"[value] for value in numbers]
    forms = (numbers, numbers.astype(float), numbers.astype(str), names, np.array(names, object))
    wanted, *others = (learned(clone(model).fit(X, y)) for y in forms)
    for found in others:
        np.testing.assert_array_equal(found, wanted)


def learned(model):
    """What `model` shows of its rows."""
    return model.embedding_ if isinstance(model, dkl.MaximumVarianceUnfolding) else model.transform(X)


def test_the_classifier_has_a_class_called_minus_1():
    model = dkl.OptimalNeighborhoodSVC().fit(X, SIGNS)
    assert model.classes_.tolist() == [-1, 1] and model.score(X, SIGNS) > 0.9
