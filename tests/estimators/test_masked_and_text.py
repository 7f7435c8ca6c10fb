"""Masked values and numerals: scikit-learn makes numbers of them without a word; every learner refuses them."""

import warnings

import numpy as np
import pandas as pd
import pytest

from dkl import (
    KernelKMeans,
    LaplacianKernelLearner,
    LogDetKernelLearner,
    LogDetMetricLearner,
    LowRankKernelRegressor,
    MaximumVarianceUnfolding,
    OptimalNeighborhoodSVC,
    Pairs,
    PairwiseKernelLearner,
)
from dkl.baselines import KernelRidgeRegressor, NystromRegressor, UniformWeightsRegressor
from dkl.errors import DataWarning, InputError

N = 24
X = np.random.default_rng(0).standard_normal((N, 3))
Y = np.arange(N) % 2
MASK = np.zeros((N, 3), bool)
MASK[5, 1] = True
FITS = {
    "pairwise": lambda X, y=Y: PairwiseKernelLearner(max_iter=3).fit(X, y),
    "regression": lambda X, y=Y: LowRankKernelRegressor(nu=1.0).fit(X, y),
    "svc": lambda X, y=Y: OptimalNeighborhoodSVC().fit(X, y),
    "logdet": lambda X, y=Y: LogDetKernelLearner().fit(X, y),
    "metric": lambda X, y=Y: LogDetMetricLearner().fit(X, y),
    "laplacian": lambda X, y=Y: LaplacianKernelLearner().fit(X, y),
    "mvu": lambda X, y=Y: MaximumVarianceUnfolding(colored=True).fit(X, y),
    "ridge": lambda X, y=Y: KernelRidgeRegressor().fit(X, y),
    "uniform weights": lambda X, y=Y: UniformWeightsRegressor().fit(X, y),
    "nystrom": lambda X, y=Y: NystromRegressor().fit(X, y),
    "k-means": lambda X, y=None: KernelKMeans(2, kernel="linear", n_init=1).fit(X),
}
ROWS = {
    "masked": (np.ma.array(X, mask=MASK), r"X\[5, 1\]: masked values; got 1 of them"),
    "numerals": (X.astype(str), "X: text, not numbers; got '.*convert"),
    "a numeral among objects": (np.where(MASK, "1.5", X.astype(object)), "X: text, not numbers; got '1.5'"),
    "a list of numerals": (X.astype(str).tolist(), "X: text, not numbers"),
    "a table with numerals": (
        pd.DataFrame({"a": X[:, 0], "b": X[:, 1].astype(str)}),
        "X: text, not numbers; got .* in column 'b'.*convert",
    ),
    "words": (
        pd.DataFrame({"a": X[:, 0].astype(str), "b": ["1.5", *["west"] * (N - 1)]}),
        "X: text, not numbers; got 'west' in column 'b'; wanted numbers; encode the column, as by .*OneHotEncoder, or drop it$",
    ),
    "bytes": (X.astype("S"), "X: text, not numbers; got b'"),
}


@pytest.mark.parametrize("case", ROWS)
@pytest.mark.parametrize("learner", FITS)
def test_rows(learner: str, case: str) -> None:
    rows, words = ROWS[case]
    with pytest.raises(InputError, match=words) as caught:
        FITS[learner](rows)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "learner", sorted(FITS.keys() - {"k-means", "pairwise", "logdet", "metric", "laplacian", "mvu"})
)
def test_rows_to_predict(learner: str) -> None:
    fitted = FITS[learner](X)
    for rows, words in ROWS.values():
        if not isinstance(rows, pd.DataFrame):  # of other columns
            with pytest.raises(InputError, match=words):
                fitted.predict(rows)


@pytest.mark.parametrize("learner", sorted(FITS.keys() - {"k-means"}))
def test_masked_targets(learner: str) -> None:
    with pytest.raises(InputError, match=r"y\[3\]: masked values"):
        FITS[learner](X, np.ma.array(Y, mask=np.arange(N) == 3))


def test_text_as_targets_of_a_regression() -> None:
    for learner in ("regression", "ridge", "uniform weights", "nystrom"):
        with pytest.raises(InputError, match="y: text, not numbers.*convert"):
            FITS[learner](X, Y.astype(str))
        with pytest.raises(InputError, match="got 'west'; wanted numbers; pass y as numbers"):
            FITS[learner](X, np.where(Y == 1, "west", "1").astype(object))
    assert set(FITS["svc"](X, Y.astype(str)).classes_) == {"0", "1"}  # names of classes


def test_weights_and_pairs() -> None:
    weights = np.ma.array(np.ones(N), mask=np.arange(N) == 2)
    for model in (LowRankKernelRegressor(nu=1.0), OptimalNeighborhoodSVC()):
        with pytest.raises(InputError, match=r"sample_weight\[2\]: masked values"):
            model.fit(X, Y, sample_weight=weights)
    with pytest.raises(InputError, match=r"must_link\[0, 1\]: masked values"):
        Pairs(np.ma.array([[0, 1]], mask=[[False, True]]))


def test_a_mask_that_hides_nothing_and_objects_that_are_numbers() -> None:
    wanted = FITS["svc"](X).decision_function(X)
    for rows in (np.ma.array(X), X.astype(object), X.tolist()):
        np.testing.assert_allclose(FITS["svc"](rows).decision_function(X), wanted, rtol=1e-12)


def test_labels_beside_pairs_are_told_to_be_unused() -> None:
    learner = PairwiseKernelLearner(max_iter=3)
    with pytest.warns(DataWarning, match="y is not learned from"), warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=learner_warning())
        learner.fit(X, Y, must_link=[[0, 2]], cannot_link=[[0, 1]])


def learner_warning() -> type[Warning]:
    from dkl.errors import ConvergenceWarning

    return ConvergenceWarning
