"""What scikit-learn's cross-validation does to pairs: routed `Pairs` stay right, plain arrays are refused."""

import importlib
from collections.abc import Callable
from typing import Any

import joblib
import numpy as np
import pytest
from joblib.externals.loky import get_reusable_executor
from numpy.typing import NDArray
from sklearn import config_context
from sklearn.base import BaseEstimator, ClassifierMixin, TransformerMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import BaggingClassifier
from sklearn.experimental import enable_halving_search_cv  # noqa: F401 (its import is its effect)
from sklearn.feature_selection import RFE, RFECV
from sklearn.model_selection import (
    GridSearchCV,
    HalvingGridSearchCV,
    KFold,
    TunedThresholdClassifierCV,
    cross_val_predict,
    cross_val_score,
    learning_curve,
    permutation_test_score,
    validation_curve,
)
from sklearn.multiclass import OneVsOneClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from dkl.errors import InputError
from dkl.estimators.base.side_information import resolve_pairs
from dkl.side_information.pair_checks import SLICERS, inside_cross_validation
from dkl.side_information.pairs import Pairs

N = 30
X = np.arange(N)[:, None] * np.array([1.0, 100.0])  # a row tells its own number
Y = np.arange(N) % 3
MUST = np.array([[row, row + 3] for row in range(0, 24, 2)])
CANNOT = np.array([[row, row + 1] for row in range(29)])
FITS: list[tuple[NDArray[np.int64], Pairs]] = []


class Learner(ClassifierMixin, TransformerMixin, BaseEstimator):
    """Records which rows and which pairs every `fit` got."""

    def __init__(self, alpha: float = 1.0) -> None:
        self.alpha = alpha

    def fit(self, X: Any, y: Any = None, **side: Any) -> "Learner":
        return self._fit(X, y, **side)

    def _fit(
        self, X: Any, y: Any, must_link: Any = None, cannot_link: Any = None, pairs: Any = None, sample_ids: Any = None
    ) -> "Learner":
        resolved = resolve_pairs(
            len(X), must_link=must_link, cannot_link=cannot_link, pairs=pairs, sample_ids=sample_ids, y=y
        )
        FITS.append((np.rint(np.asarray(X)[:, 0]).astype(int), resolved))
        self.classes_ = np.unique(Y)
        self.coef_ = np.ones((1, np.shape(X)[1]))
        return self

    def predict(self, X: Any) -> Any:
        return np.zeros(len(X), dtype=int)

    def predict_proba(self, X: Any) -> Any:
        return np.full((len(X), len(self.classes_)), 1 / len(self.classes_))

    def transform(self, X: Any) -> Any:
        return X

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        return self.alpha


class Router(Learner):
    """The same, with its side information spelled out, as metadata routing wants it."""

    def fit(  # type: ignore[override]
        self,
        X: Any,
        y: Any = None,
        *,
        must_link: Any = None,
        cannot_link: Any = None,
        pairs: Any = None,
        sample_ids: Any = None,
    ) -> "Learner":
        return self._fit(X, y, must_link, cannot_link, pairs, sample_ids)


@pytest.fixture(autouse=True)
def forget() -> None:
    FITS.clear()


def assert_fits_are_right(kept: set[int], n_fits: int) -> None:
    """Every fit learned from exactly the pairs whose ends both lie in its rows, and on those very rows."""
    assert len(FITS) == n_fits
    for rows, pairs in FITS:
        for got, source in ((pairs.must_link, MUST), (pairs.cannot_link, CANNOT)):
            wanted = {frozenset(pair) for pair in source.tolist() if set(pair) <= set(rows.tolist())}
            assert {frozenset(rows[pair].tolist()) for pair in got} == wanted
    assert {len(rows) for rows, _ in FITS} == kept


def routed() -> Router:
    return Router().set_fit_request(pairs=True, sample_ids=True)


CV = KFold(3, shuffle=True, random_state=0)


def test_grid_search_keeps_the_right_pairs() -> None:
    with config_context(enable_metadata_routing=True):
        search = GridSearchCV(routed(), {"alpha": [1.0, 2.0]}, cv=CV, error_score="raise")
        search.fit(X, Y, pairs=Pairs(MUST, CANNOT), sample_ids=np.arange(N))
    assert search.best_params_ == {"alpha": 2.0}
    assert_fits_are_right({20, 30}, n_fits=7)
    assert FITS[-1][1] == Pairs(MUST, CANNOT).check(N)  # the refit on all rows has them all


def test_identifiers_need_not_be_row_numbers() -> None:
    ids = 1000 - 7 * np.arange(N)
    with config_context(enable_metadata_routing=True):
        search = GridSearchCV(routed(), {"alpha": [1.0]}, cv=CV, error_score="raise")
        search.fit(X, Y, pairs=Pairs(MUST, CANNOT, ids=ids), sample_ids=ids)
    assert_fits_are_right({20, 30}, n_fits=4)


def test_works_without_metadata_routing() -> None:
    search = GridSearchCV(Learner(), {"alpha": [1.0]}, cv=CV, error_score="raise")
    search.fit(X, Y, pairs=Pairs(MUST, CANNOT), sample_ids=np.arange(N))
    assert_fits_are_right({20, 30}, n_fits=4)


def test_nested_in_a_pipeline_in_a_search() -> None:
    with config_context(enable_metadata_routing=True):
        pipeline = make_pipeline(StandardScaler(with_mean=False, with_std=False), routed())
        inner = GridSearchCV(pipeline, {"router__alpha": [1.0]}, cv=CV, error_score="raise")
        params = {"pairs": Pairs(MUST, CANNOT), "sample_ids": np.arange(N)}
        cross_val_score(inner, X, Y, cv=CV, params=params, error_score="raise")
    assert_fits_are_right({13, 14, 20}, n_fits=12)


def test_labels_need_no_routing() -> None:
    labels = np.where(np.arange(N) % 5 == 0, -1, Y)
    GridSearchCV(Learner(), {"alpha": [1.0]}, cv=CV, error_score="raise").fit(X, labels)
    assert len(FITS) == 4
    for rows, pairs in FITS:
        assert np.all(labels[rows[pairs.must_link]] >= 0)
        assert np.all(np.diff(labels[rows[pairs.must_link]]) == 0)
        assert np.all(np.diff(labels[rows[pairs.cannot_link]]) != 0)


# (30, 2) pairs would be cut to the length of the fold; 5 pairs among the first rows would pass every bound.
AS_LONG_AS_X = np.array([[row, (row + 1) % N] for row in range(N)])
PLAIN = [{"must_link": AS_LONG_AS_X}, {"must_link": AS_LONG_AS_X.tolist()}, {"cannot_link": MUST[:5]}]
WITHOUT_IDS: dict[str, Any] = {"pairs": Pairs(MUST[:5])}
WITH_IDS = {"must_link": MUST[:5], "sample_ids": np.arange(N)}


@pytest.mark.parametrize("side", [*PLAIN, WITHOUT_IDS, WITH_IDS])
@pytest.mark.parametrize("routing", [False, True])
def test_grid_search_refuses_what_it_would_spoil(side: dict[str, Any], routing: bool) -> None:
    with config_context(enable_metadata_routing=routing):
        learner = Router().set_fit_request(**dict.fromkeys(side, True)) if routing else Learner()
        search = GridSearchCV(learner, {"alpha": [1.0]}, cv=CV, error_score="raise")
        with pytest.raises(InputError, match=r"cannot be followed through cross-validation; got .*dkl.Pairs"):
            search.fit(X, Y, **side)
        # With scikit-learn's default, failed fits become one error of its own, which quotes ours.
        with pytest.raises(ValueError, match="cannot be followed through cross-validation"):
            GridSearchCV(learner, {"alpha": [1.0]}, cv=CV).fit(X, Y, **side)
    assert not FITS


SPLITTERS: dict[str, Callable[[Any, dict[str, Any]], Any]] = {
    "cross_val_score": lambda est, side: cross_val_score(est, X, Y, cv=CV, params=side, error_score="raise"),
    "cross_val_predict": lambda est, side: cross_val_predict(est, X, Y, cv=CV, params=side),
    "learning_curve": lambda est, side: learning_curve(est, X, Y, cv=CV, params=side, error_score="raise"),
    "validation_curve": lambda est, side: validation_curve(
        est, X, Y, param_name="alpha", param_range=[1.0], cv=CV, params=side, error_score="raise"
    ),
    "permutation_test_score": lambda est, side: permutation_test_score(est, X, Y, cv=CV, n_permutations=1, params=side),
    "threads": lambda est, side: in_threads(est, side),
    "HalvingGridSearchCV": lambda est, side: HalvingGridSearchCV(
        est, {"alpha": [1.0, 2.0]}, cv=CV, error_score="raise"
    ).fit(X, Y, **side),
    "BaggingClassifier": lambda est, side: BaggingClassifier(est, bootstrap=False, max_samples=20).fit(X, Y, **side),
    "CalibratedClassifierCV": lambda est, side: CalibratedClassifierCV(est, cv=CV).fit(X, Y, **side),
    "RFECV": lambda est, side: RFECV(est, cv=CV).fit(X, Y, **side),
    "OneVsOneClassifier": lambda est, side: OneVsOneClassifier(est).fit(X, Y, **side),
    "TunedThresholdClassifierCV": lambda est, side: TunedThresholdClassifierCV(est, cv=CV).fit(X, Y % 2, **side),
}


def in_threads(learner: Any, side: dict[str, Any]) -> None:
    with joblib.parallel_backend("threading"):
        cross_val_score(learner, X, Y, cv=CV, params=side, error_score="raise", n_jobs=2)


@pytest.mark.parametrize("name", SPLITTERS)
def test_all_that_fits_on_a_part_is_recognised(name: str) -> None:
    side = {"must_link": MUST[:3]}
    refusal = pytest.raises(InputError, match="cannot be followed through cross-validation")
    with config_context(enable_metadata_routing=True), refusal:
        SPLITTERS[name](Router().set_fit_request(must_link=True), side)
    assert all(len(rows) == N for rows, _ in FITS)  # one of them fits on all rows first, which is right


@pytest.mark.exhaustive
def test_worker_processes_refuse_too() -> None:
    # Defined here, hence sent by value: the workers cannot import this file.
    class Plain(ClassifierMixin, BaseEstimator):
        def fit(self, X: Any, y: Any = None, must_link: Any = None) -> "Plain":
            resolve_pairs(len(X), must_link=must_link)
            return self

    try:
        with pytest.raises(InputError, match="cannot be followed through cross-validation"):
            cross_val_score(Plain(), X, Y, cv=CV, params={"must_link": MUST[:3]}, error_score="raise", n_jobs=2)
    finally:
        get_reusable_executor().shutdown(wait=True)


def test_a_fit_of_ones_own_inside_says_which_rows_its_pairs_mean() -> None:
    class Own(ClassifierMixin, BaseEstimator):
        def fit(self, X: Any, y: Any) -> "Own":
            Learner().fit(X, pairs=Pairs.from_labels(y, random_state=0), sample_ids=np.arange(len(X)))
            return self

        def score(self, X: Any, y: Any) -> float:
            return 0.0

    cross_val_score(Own(), X, Y, cv=CV, error_score="raise")
    assert len(FITS) == 3


def test_a_part_cut_by_hand_is_out_of_range() -> None:
    train, _ = next(CV.split(X))
    with pytest.raises(InputError, match=r"row numbers out of range.*another X.*sample_ids"):
        Learner().fit(X[train], must_link=MUST)


def test_plain_fits_are_not_bothered() -> None:
    assert not inside_cross_validation()
    Learner().fit(X, must_link=MUST, cannot_link=CANNOT)
    make_pipeline(StandardScaler(with_mean=False, with_std=False), Learner()).fit(X, learner__pairs=Pairs(MUST, CANNOT))
    RFE(Learner(), n_features_to_select=2).fit(X, Y, must_link=MUST, cannot_link=CANNOT)  # cuts columns, not rows
    assert_fits_are_right({30}, n_fits=3)


@pytest.mark.parametrize("module", SLICERS)
def test_scikit_learn_still_has_what_is_looked_for(module: str) -> None:
    found = importlib.import_module(module)
    assert all(callable(getattr(found, name)) for name in SLICERS[module] or ())
