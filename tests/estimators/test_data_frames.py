"""Data frames of pandas and polars in and out; for what comes out, the checks that scikit-learn runs on its own classes."""

import pandas
import polars
import pytest
from repeats import but_for
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.utils import estimator_checks

import dkl
import dkl.baselines
from dkl.errors import InputError

LEARNER = dkl.PairwiseKernelLearner(max_iter=20, target_gap=None, random_state=0)  # the one that transforms
ESTIMATORS = [
    LEARNER,
    dkl.KernelKMeans(n_init=2, random_state=0),
    dkl.LowRankKernelRegressor(nu=0.01),
    dkl.OptimalNeighborhoodSVC(),
    dkl.LaplacianKernelLearner(random_state=0),
    dkl.MaximumVarianceUnfolding(n_neighbors=20),
    dkl.LogDetKernelLearner(tol=1e-3),
    dkl.LogDetMetricLearner(tol=1e-3),
]
BASELINES = [getattr(dkl.baselines, name)(random_state=0) for name in dkl.baselines.__all__]
NAMES = ["a", "b", "c", "d"]
CHECKS = [
    "check_set_output_transform_pandas",
    "check_set_output_transform_polars",
    "check_global_output_transform_pandas",
    "check_global_set_output_transform_polars",
    "check_transformer_get_feature_names_out",
    "check_transformer_get_feature_names_out_pandas",
]
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@pytest.fixture
def iris():
    X, y = load_iris(return_X_y=True)
    return X[::3], y[::3]


@pytest.fixture(params=ESTIMATORS + but_for(BASELINES[1:], BASELINES), ids=lambda estimator: type(estimator).__name__)
def estimator(request):
    return clone(request.param)


def answer(fitted, X):
    return getattr(fitted, "predict" if hasattr(fitted, "predict") else "transform")(X)


# scikit-learn fits on a frame and asks about an array, and the other way round: told, and on purpose.
@pytest.mark.filterwarnings("ignore:X .*feature names:UserWarning")
@pytest.mark.parametrize("check", CHECKS)
def test_transform_gives_the_frame_that_is_wanted(check):
    getattr(estimator_checks, check)("PairwiseKernelLearner", LEARNER)


@pytest.mark.parametrize(
    "library", [pandas, pytest.param(polars, marks=pytest.mark.exhaustive)], ids=["pandas", "polars"]
)
def test_a_frame_is_its_array(estimator, iris, library):
    X, y = iris
    frame = library.DataFrame(dict(zip(NAMES, X.T, strict=True)))
    plain, framed = clone(estimator).fit(X, y), estimator.fit(frame, library.Series(y))
    assert framed.feature_names_in_.tolist() == NAMES
    assert answer(framed, frame).tobytes() == answer(plain, X).tobytes()


@pytest.mark.parametrize(
    "library", [pandas, pytest.param(polars, marks=pytest.mark.exhaustive)], ids=["pandas", "polars"]
)
def test_other_columns_are_named_in_one_line(estimator, iris, library):
    X, y = iris
    frame = library.DataFrame(dict(zip(NAMES, X.T, strict=True)))
    estimator.fit(frame, y)
    for names, told in ((["b", "a", "c", "d"], "same order"), (["a", "b", "c", "e"], "unseen at fit time: e")):
        with pytest.raises(InputError, match=f"^X: The feature names should match .*{told}") as refusal:
            answer(estimator, library.DataFrame(dict(zip(names, X.T, strict=True))))
        assert "\n" not in str(refusal.value)
