"""Learned distances of pairs as a function of two rows, and the distance up to which pairs are alike."""

import pickle

import numpy as np
import pytest
from scipy.spatial.distance import cdist, mahalanobis
from sklearn.base import clone
from sklearn.metrics import accuracy_score, confusion_matrix, fbeta_score
from sklearn.neighbors import KNeighborsClassifier, NearestNeighbors

import dkl
from dkl.errors import InputError
from dkl.estimators.base.pair_threshold import best_threshold

RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(60, 3)) * [1.0, 10.0, 300.0] + 5.0
KIND = np.arange(60) % 3
LEARNERS = [dkl.LogDetMetricLearner, dkl.baselines.ITMLMetricLearner]


@pytest.fixture(scope="module", params=LEARNERS)
def model(request):
    return request.param(n_in=3, n_out=3, standardize=True, random_state=0).fit(ROWS + 3.0 * KIND[:, None], KIND)


def pairs_of(rng, n, ties=False):
    """Return n pairs of points, and whether they are alike, which hangs on their distances but for some noise."""
    points = ROWS[rng.integers(len(ROWS), size=(n, 2))] + rng.normal(size=(n, 2, 3))
    if ties:
        points[: n // 2] = points[:1]
    apart = np.linalg.norm((points[:, 0] - points[:, 1]) / ROWS.std(axis=0), axis=1)
    return points, np.where(apart + rng.normal(size=n) < np.median(apart), 1, -1)


# -- the metric as a function ------------------------------------------------------------------------------------------


def test_the_metric_is_scipys(model):
    metric, W = model.get_metric(), model.get_mahalanobis_matrix()
    for u, v in ROWS[:40].reshape(20, 2, 3):
        np.testing.assert_allclose(metric(u, v), mahalanobis(u, v, W), rtol=1e-10)
        np.testing.assert_allclose(metric(u, v, squared=True), mahalanobis(u, v, W) ** 2, rtol=1e-10)
    assert metric(ROWS[0], ROWS[0]) == 0.0 and type(metric([1, 2, 3], (3, 2, 1))) is float
    np.testing.assert_allclose(cdist(ROWS[:5], ROWS[:7], metric), cdist(*map(model.transform, (ROWS[:5], ROWS[:7]))))


def test_the_metric_is_one_of_scikit_learn(model):
    by_rows = NearestNeighbors(n_neighbors=4).fit(model.transform(ROWS)).kneighbors(model.transform(ROWS[:9]))
    for algorithm in ("ball_tree", "brute"):
        nearest = NearestNeighbors(n_neighbors=4, metric=model.get_metric(), algorithm=algorithm).fit(ROWS)
        distances, rows = nearest.kneighbors(ROWS[:9])
        np.testing.assert_array_equal(rows, by_rows[1])
        np.testing.assert_allclose(distances, by_rows[0], rtol=1e-7, atol=1e-7)
    classifier = clone(KNeighborsClassifier(3, metric=model.get_metric())).fit(ROWS, KIND)
    wanted = KNeighborsClassifier(3).fit(model.transform(ROWS), KIND).predict(model.transform(ROWS + 0.1))
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(classifier)).predict(ROWS + 0.1), wanted)


def test_the_metric_stays_what_it_was():
    model = dkl.LogDetMetricLearner(n_in=3, n_out=3, holdout=0, standardize=False).fit(ROWS, KIND)
    metric = model.get_metric()
    before, copied = metric(ROWS[0], ROWS[1]), pickle.loads(pickle.dumps(metric))
    model.fit(1e3 * ROWS, KIND)
    model.components_ *= 2.0
    assert metric(ROWS[0], ROWS[1]) == copied(ROWS[0], ROWS[1]) == before


@pytest.mark.parametrize("size", [1e-250, 1e200])
def test_the_metric_of_rows_whose_squares_are_no_numbers(model, size):
    metric = model.get_metric()
    np.testing.assert_allclose(metric(size * ROWS[0], size * ROWS[1]) / size, metric(ROWS[0], ROWS[1]), rtol=1e-10)


@pytest.mark.parametrize(
    ("v", "message"),
    [
        ([1.0, 2.0], r"v: not a row; got shape \(2,\); wanted shape \(3,\), numbers"),
        (ROWS[:1], r"v: not a row; got shape \(1, 3\)"),
        (["1", "2", "3"], "v: not a row; got list"),
        ([1.0, [2.0], 3.0], "v: not a row; got list"),
        ([1.0, np.nan, 3.0], r"v\[1\]: not finite"),
    ],
)
def test_what_is_not_a_row_has_no_distance(model, v, message):
    with pytest.raises(InputError, match=message):
        model.get_metric()(ROWS[0], v)


# -- the threshold -----------------------------------------------------------------------------------------------------

STRATEGIES = [
    ("accuracy", {}),
    ("f_beta", {}),
    ("f_beta", {"beta": 0.2}),
    ("f_beta", {"beta": 3}),
    *((name, {"min_rate": rate}) for name in ("max_tpr", "max_tnr") for rate in (0, 0.1, 0.5, 0.7, 0.95, 1)),
]


def measures(distances, alike, threshold, strategy, min_rate=None, beta=1.0):
    """Return what is to be largest, and then what is next to it, by scikit-learn's counts."""
    found = np.where(distances <= threshold, 1, -1)
    (tn, fp), (fn, tp) = confusion_matrix(alike, found, labels=[-1, 1])
    tpr, tnr = tp / (tp + fn), tn / (tn + fp)
    if strategy == "accuracy":
        return (accuracy_score(alike, found),)
    if strategy == "f_beta":
        return (fbeta_score(alike, found, beta=beta, zero_division=0),)
    own, other = (tpr, tnr) if strategy == "max_tpr" else (tnr, tpr)
    return (own, other) if other >= min_rate else (-1.0, -1.0)


@pytest.mark.parametrize(("strategy", "more"), STRATEGIES)
@pytest.mark.parametrize("ties", [False, True])
def test_no_threshold_is_better(rng, strategy, more, ties):
    """Against every one there is: below all distances, at each, above all."""
    for count in (2, 3, 12):
        distances = np.round(rng.gamma(2.0, size=count), 1 if ties else 15)
        alike = np.where(distances + rng.normal(size=count) < 2.0, 1, -1)
        alike[:2] = 1, -1
        found = best_threshold(distances, alike > 0, strategy, more.get("min_rate"), more.get("beta"))
        best = max(measures(distances, alike, one, strategy, **more) for one in [-1.0, *distances])
        np.testing.assert_allclose(measures(distances, alike, found, strategy, **more), best, rtol=1e-12)
        np.testing.assert_equal(np.abs(distances - found).min() > 0, True)  # so that rounding moves no pair


@pytest.mark.parametrize(("strategy", "more"), [STRATEGIES[0], STRATEGIES[1], STRATEGIES[8], STRATEGIES[14]])
def test_predictions_are_those_of_the_threshold(model, rng, strategy, more):
    points, alike = pairs_of(rng, 24, ties=True)
    assert model.calibrate_threshold(points, alike, strategy, **more) is model
    distances = np.array([mahalanobis(u, v, model.get_mahalanobis_matrix()) for u, v in points])
    found = model.predict_pairs(points)
    np.testing.assert_array_equal(found, np.where(distances <= model.threshold_, 1, -1))
    assert found.dtype == np.int64
    best = max(measures(distances, alike, one, strategy, **more) for one in [-1.0, *distances * (1 + 1e-9)])
    np.testing.assert_allclose(measures(distances, alike, model.threshold_, strategy, **more), best)
    np.testing.assert_array_equal([int(model.predict_pairs(one[None])[0]) for one in points], found)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict_pairs(points), found)


def test_pairs_that_a_distance_parts(model):
    near, far = np.zeros((5, 2, 3)), np.zeros((5, 2, 3))
    near[:, 1, 0], far[:, 1, 0] = np.linspace(1, 2, 5), np.linspace(4, 9, 5)
    unit = float(model.pair_distance(near[:1])[0])
    for strategy, more in STRATEGIES[:2]:
        model.calibrate_threshold(np.concatenate([near, far]), np.repeat([True, False], 5), strategy, **more)
        np.testing.assert_allclose(model.threshold_, 3 * unit)
    model.calibrate_threshold(np.concatenate([far, near]), np.repeat([1.0, -1.0], 5), "max_tpr", min_rate=1)
    assert 0 < model.threshold_ < unit  # those that are far are alike: none may be taken so
    model.calibrate_threshold(np.concatenate([near, far]), np.repeat([1, -1], 5), "max_tnr", min_rate=0)
    np.testing.assert_allclose(model.threshold_, 3 * unit)


def test_equal_rows_are_alike_but_below_0(model):
    same = np.zeros((1, 2, 3))
    assert model.predict_pairs(same[:0]).shape == (0,)
    assert model.set_threshold(0).predict_pairs(same) == 1 and model.set_threshold(-0.5).predict_pairs(same) == -1
    other = np.arange(6.0).reshape(1, 2, 3)
    model.calibrate_threshold(np.concatenate([same, other]), [-1, 1], "max_tpr", min_rate=1)
    assert model.predict_pairs(same) == -1


def test_pairs_of_rows_and_a_path_and_a_second_fit(rng):
    pairs = dkl.Pairs.from_labels(KIND, 20, 20, random_state=0)
    model = dkl.LogDetMetricLearner(standardize=True, holdout=0).fit(ROWS, pairs=pairs)
    ends, alike = pairs.to_metric_learn()
    assert model.calibrate_threshold(ROWS[ends], alike).predict_pairs(ROWS[ends]).shape == (40,)
    on_path = model.path(ROWS, pairs=pairs, gammas=[1.0]).model(0)
    for other in (on_path, clone(model).fit(ROWS, pairs=pairs), model.fit(ROWS, pairs=pairs)):
        with pytest.raises(InputError, match=r"threshold_: no distance .*; call calibrate_threshold\(pairs, alike\)"):
            other.predict_pairs(ROWS[ends])


POINTS = ROWS[:8].reshape(4, 2, 3)
SIGNS = [1, 1, -1, -1]


@pytest.mark.parametrize(
    ("arguments", "more", "message"),
    [
        ((POINTS[0], SIGNS), {}, "pairs: not pairs of points"),
        ((POINTS, SIGNS[:3]), {}, r"alike: not a sign a pair; got shape \(3,\), dtype int64; wanted 4 values, \+1"),
        ((POINTS, [SIGNS]), {}, r"alike: not a sign a pair; got shape \(1, 4\)"),
        ((POINTS, None), {}, "alike: not a sign a pair"),
        ((POINTS, [1, [1], -1, -1]), {}, "alike: not a sign a pair; got list"),
        ((POINTS, ["1", "1", "-1", "-1"]), {}, "alike: "),
        ((POINTS, [1, 1, 0, 0]), {}, r"alike\[2\]: not a sign; got 0; wanted \+1 or -1"),
        ((POINTS, [1.0, np.nan, -1, -1]), {}, r"alike\[1\]: not a sign; got nan"),
        ((POINTS, [1, 1, 1, 1]), {}, "alike: pairs of one kind have no threshold; got 4 alike and 0 not"),
        ((POINTS, [False] * 4), {}, "alike: pairs of one kind have no threshold; got 0 alike and 4 not"),
        ((np.empty((0, 2, 3)), []), {}, "alike: .* got shape|alike: pairs of one kind"),
        ((POINTS, SIGNS, "best"), {}, "strategy: no such strategy; got 'best'; wanted \"accuracy\" or"),
        ((POINTS, SIGNS, None), {}, "strategy: no such strategy; got None"),
        ((POINTS, SIGNS, "max_tpr"), {}, "min_rate: not a rate; got None; wanted a finite number >= 0 and <= 1"),
        ((POINTS, SIGNS, "max_tnr"), {"min_rate": 1.5}, "min_rate: not a rate; got 1.5"),
        ((POINTS, SIGNS, "f_beta"), {"beta": 0}, "beta: not a weight; got 0; wanted a finite number > 0"),
        ((POINTS, SIGNS), {"min_rate": 0.5}, "min_rate: a number that this strategy does not have; got strategy"),
        ((POINTS, SIGNS, "max_tnr"), {"min_rate": 0.5, "beta": 2}, 'beta: .* wanted strategy="f_beta"'),
    ],
)
def test_what_no_threshold_is_chosen_by(model, arguments, more, message):
    model.set_threshold(2.5)
    with pytest.raises(InputError, match=message):
        model.calibrate_threshold(*arguments, **more)
    assert model.threshold_ == 2.5


@pytest.mark.parametrize("threshold", [None, "1", np.nan, np.inf, True, [1.0]])
def test_what_is_no_threshold(model, threshold):
    with pytest.raises(InputError, match="threshold: not a distance"):
        model.set_threshold(threshold)
