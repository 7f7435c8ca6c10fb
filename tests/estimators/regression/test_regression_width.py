"""The width of the regressors' kernel that follows from the rows: SVC's gamma="scale", so that the unit of X does not matter."""

from typing import Any

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
from command_line import call
from sklearn.datasets import load_digits
from sklearn.svm import SVR

import dkl
from dkl import baselines

X = load_digits().data[:400]
Y = load_digits().target[:400].astype(float)
REGRESSORS = [
    dkl.LowRankKernelRegressor,
    baselines.FirstOrderRegressor,
    baselines.KernelRidgeRegressor,
    baselines.NystromRegressor,
    baselines.UniformWeightsRegressor,
]


def made(kind: Any, **given: Any) -> Any:
    fixed = {"holdout": 0} if kind is dkl.LowRankKernelRegressor else {}
    return kind(n_columns=60, n_jobs=1, random_state=0, **fixed, **given)


@pytest.mark.filterwarnings("ignore::dkl.errors.ConvergenceWarning")
@pytest.mark.parametrize("kind", REGRESSORS)
def test_the_unit_of_the_rows_does_not_matter(kind: Any) -> None:
    one, other = (made(kind).fit(rows[:300], Y[:300]) for rows in (X, X * 64))
    assert one.gamma_ == 4096 * other.gamma_
    assert one.gamma_ == pytest.approx(SVR().fit(X[:300], Y[:300])._gamma, rel=1e-14)  # whose sum is in another order
    np.testing.assert_allclose(other.predict(X[300:] * 64), one.predict(X[300:]), rtol=1e-9)


def test_the_default_answers_on_pixels_as_a_plain_method_does() -> None:
    plain = SVR().fit(X[:300], Y[:300]).score(X[300:], Y[300:])
    assert dkl.LowRankKernelRegressor(n_jobs=1, random_state=0).fit(X[:300], Y[:300]).score(X[300:], Y[300:]) > plain


def test_classifiers_on_columns_take_it_too() -> None:
    classes = (Y > 4).astype(int)
    one, other = (baselines.NystromClassifier(n_jobs=1, random_state=0).fit(rows, classes) for rows in (X, X * 64))
    np.testing.assert_allclose(other.decision_function(X * 64), one.decision_function(X), rtol=1e-6)


@pytest.mark.parametrize(
    "form", [sp.csr_array, lambda rows: da.from_array(rows, chunks=(70, 64)), lambda rows: rows.astype(np.float32)]
)
def test_every_form_of_rows_has_the_same_width(form: Any) -> None:
    assert made(baselines.NystromRegressor).fit(form(X), Y).gamma_ == pytest.approx(1 / (64 * X.var()), rel=1e-12)


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_a_weight_of_two_is_two_rows(form: Any) -> None:
    weights = np.arange(400) % 3.0
    found = made(baselines.NystromRegressor).fit(form(X), Y, sample_weight=weights).gamma_
    assert found == pytest.approx(1 / (64 * np.repeat(X, weights.astype(int), axis=0).var()), rel=1e-12)


@pytest.mark.parametrize(("gamma", "wanted"), [(0.25, 0.25), (None, 1 / 64), ("auto", 1 / 64)])
def test_other_widths(gamma: Any, wanted: float) -> None:
    assert made(baselines.NystromRegressor, gamma=gamma).fit(X, Y).gamma_ == wanted


def test_kernels_without_a_width_have_none() -> None:
    assert made(dkl.LowRankKernelRegressor, kernel="linear").fit(X, Y).gamma_ is None


def test_equal_rows_have_width_1_and_tiny_ones_are_refused() -> None:
    assert made(dkl.LowRankKernelRegressor).fit(np.full((9, 2), 7.0), np.arange(9.0)).gamma_ == 1
    with pytest.raises(dkl.errors.InputError, match="X: values differ, but by so little"):
        made(dkl.LowRankKernelRegressor).fit(X * 1e-200, Y)


def test_a_run_keeps_it(tmp_path: Any) -> None:
    np.savez(tmp_path / "rows.npz", X=X, y=Y)
    run = tmp_path / "run"
    assert call("fit", "regression", "--data", tmp_path / "rows.npz", "--n-columns", 60, "--out", run).code == 0
    assert dkl.load(run).gamma_ == pytest.approx(1 / (64 * X.var()), rel=1e-12)
    assert call("verify", run).code == 0
