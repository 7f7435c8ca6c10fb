"""What a fit says of held-out data: its text, its JSON, its standard error, and which data are held out."""

import json
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import balanced_accuracy_score, r2_score, roc_auc_score

from dkl.errors import StoreError
from dkl.quality import MAX_HELD_OUT, Quality, auc_error, auc_of, held_out, paired_error, r2_of

GOOD = Quality("held-out R2", 0.48, 442, "5 folds of 442 rows", "linear regression", 0.51, 0.02, {"R": 0.7}, "scale")


def test_it_is_said_in_a_line():
    assert str(GOOD) == "held-out R2 0.480 (5 folds of 442 rows); linear regression 0.510"
    assert repr(GOOD) == f"<{GOOD}>"


def test_the_alternative_is_better_beyond_a_standard_error_and_one_row():
    assert GOOD.is_worse and "0.480 is less than that of linear regression, 0.510" in GOOD.warning
    assert not replace(GOOD, standard_error=0.031).is_worse
    assert not replace(GOOD, n=20).is_worse
    assert not replace(GOOD, value=0.52).is_worse


def test_json_keeps_it():
    assert Quality.from_dict(json.loads(json.dumps(GOOD.as_dict())), "x") == GOOD
    assert Quality.from_dict(None, "x") is None


BAD = {
    "measure": 3, "value": float("nan"), "n": 0, "how": None, "alternative": 1.0, "alternative_value": "0.3",
    "standard_error": float("inf"), "others": {"accuracy": "high"}, "advice": [],
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_an_invalid_field_is_named(name):
    with pytest.raises(StoreError, match=rf"report, quality\.{name}: invalid quality"):
        Quality.from_dict(GOOD.as_dict() | {name: BAD[name]}, "report")
    with pytest.raises(StoreError, match=rf"quality\.{name}"):
        Quality.from_dict({key: value for key, value in GOOD.as_dict().items() if key != name}, "report")


def test_what_is_not_a_quality_is_named():
    with pytest.raises(StoreError, match="report: invalid quality"):
        Quality.from_dict([1], "report")


def test_the_standard_error_of_a_plain_mean_is_the_textbook_one(rng):
    d = rng.standard_normal(37)
    assert paired_error(d) == pytest.approx(stats.sem(d))


def test_the_standard_error_of_a_difference_of_balanced_accuracies(rng):
    """That of many redrawn samples of two classifiers that err by known chances."""
    classes = np.repeat([0, 1], [180, 20])
    weights = 1 / (2 * np.bincount(classes)[classes])
    found, errors = [], []
    for _ in range(400):
        first, second = (np.where(rng.random(200) < right, classes, 1 - classes) for right in (0.8, 0.7))
        apart = balanced_accuracy_score(classes, first) - balanced_accuracy_score(classes, second)
        found.append(apart)
        errors.append(paired_error((first == classes).astype(float) - (second == classes), weights))
    assert np.mean(errors) == pytest.approx(np.std(found), rel=0.1)


def test_r2_is_scikit_learns(rng):
    y, found = rng.standard_normal((50, 3)), rng.standard_normal((50, 3))
    y[:, 1], found[:, 2] = 4.0, y[:, 2]
    squares, totals = np.square(y - found).sum(axis=0), np.square(y - y.mean(axis=0)).sum(axis=0)
    assert r2_of(squares, totals) == pytest.approx(r2_score(y, found))


def test_the_same_share_of_each_class_is_held_out(rng):
    classes = rng.choice([-1, 0, 1, 2], 1000, p=[0.2, 0.6, 0.15, 0.05])
    chosen = held_out(1000, 0.1, 3, 1, classes)
    assert np.array_equal(chosen, np.unique(chosen)) and (classes[chosen] >= 0).all()
    for k in range(3):
        assert np.count_nonzero(classes[chosen] == k) == round(0.1 * np.count_nonzero(classes == k))
    assert np.array_equal(chosen, held_out(1000, 0.1, 3, 1, classes))
    assert not np.array_equal(chosen, held_out(1000, 0.1, 4, 1, classes))
    assert not np.array_equal(chosen, held_out(1000, 0.1, 3, 2, classes))


def test_a_class_is_never_held_out_whole_and_few_are_not_held_out():
    assert len(held_out(12, 0.5, 0, 1, np.arange(12))) == 0
    assert len(held_out(99, 0.1, 0, 1)) == 10
    assert len(held_out(90, 0.1, 0, 1)) == 0
    assert len(held_out(10_000_000, 0.1, 0, 1)) == MAX_HELD_OUT


@pytest.mark.parametrize("ties", [False, True])
def test_the_auc_is_scikit_learns(rng, ties):
    is_positive = rng.random(60) < 0.3
    scores = rng.integers(0, 6, 60).astype(float) if ties else rng.standard_normal(60)
    found, placements = auc_of(scores, is_positive)
    assert found == pytest.approx(roc_auc_score(is_positive, scores))
    assert placements[~is_positive].mean() == pytest.approx(found)


def test_the_standard_error_of_a_difference_of_aucs_is_that_of_many_samples(rng):
    is_positive = np.arange(150) < 60
    apart, errors = [], []
    for _ in range(400):
        signal = rng.standard_normal(150) + 1.5 * is_positive
        (one, first), (two, second) = (auc_of(signal + rng.standard_normal(150) * s, is_positive) for s in (0.3, 1.5))
        apart.append(one - two)
        errors.append(auc_error(first, second, is_positive))
    assert np.mean(errors) == pytest.approx(np.std(apart), rel=0.1)
