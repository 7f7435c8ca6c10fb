"""The number on held-out data that each learner reports: scikit-learn's on the same split, and a warning where it is bad."""

import json
import warnings
from pathlib import Path

import numpy as np
import pytest
from command_line import call
from sklearn.datasets import load_diabetes
from sklearn.linear_model import Ridge
from sklearn.metrics import r2_score
from sklearn.model_selection import KFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import dkl
from dkl.errors import DataWarning
from dkl.quality import held_out

LINEAR = make_pipeline(StandardScaler(), Ridge())
LESS = "is less than that of"


@pytest.fixture(scope="module")
def diabetes():
    X, y = load_diabetes(return_X_y=True)
    return X, np.stack([y, np.sin(20 * X[:, 2]) + X[:, 8]], axis=1)


def regressor(**changes):
    return dkl.LowRankKernelRegressor(**{"gamma": 10.0, "n_columns": 60, "n_jobs": 1, "random_state": 0} | changes)


def bytes_of(model):
    return b"".join(np.asarray(values).tobytes() for values in (model.coef_, model.intercept_, model.support_))


@pytest.mark.parametrize("refit", ["never", "all"])
def test_r2_by_folds_is_that_of_scikit_learns_cross_validation(diabetes, refit):
    X, y = diabetes
    folds = KFold(4, shuffle=True, random_state=1)
    model = regressor(cv=folds, refit=refit, n_nus=12).fit(X, y)
    quality = model.result_.quality
    lams = {} if refit == "never" else {"lam": model.refit_.lam}
    predicted = np.empty_like(y)
    for train, test in folds.split(X):
        predicted[test] = _by_hand(model, X[train], y[train], lams).predict(X[test])
    assert quality.value == pytest.approx(r2_score(y, predicted), abs=2e-3)
    wanted = r2_score(y, cross_val_predict(LINEAR, X, y, cv=folds))
    assert (quality.alternative, quality.alternative_value) == ("linear regression", pytest.approx(wanted, rel=1e-9))
    assert quality.n == 442


def _by_hand(model, X, y, lams):
    """The same learner without cross-validation on some rows, with the columns and the nu, or the lambda, of `model`."""
    if not lams:
        points = load_diabetes().data[model.columns_]
        return regressor(columns=points, nu=model.nu_, holdout=0, tol=1e-9).fit(X, y)
    return _Nystrom(load_diabetes().data[model.columns_], lams["lam"]).fit(X, y)


class _Nystrom:
    """Kernel ridge regression on columns, by its normal equations."""

    def __init__(self, points, lam):
        self.points, self.lam = points, lam

    def columns(self, X):
        return np.exp(-10.0 * np.square(X[:, None] - self.points).sum(axis=2))

    def fit(self, X, y):
        C, self.mean = self.columns(X), y.mean(axis=0)
        self.center = C.mean(axis=0)
        C = C - self.center
        P = self.columns(self.points) + 1e-13 * len(self.points) * np.eye(len(self.points))
        self.w = np.linalg.lstsq(C.T @ C + self.lam * P, C.T @ (y - self.mean), rcond=None)[0]
        return self

    def predict(self, X):
        return (self.columns(X) - self.center) @ self.w + self.mean


@pytest.mark.parametrize("intercept", [True, False])
def test_r2_on_held_out_rows_is_that_of_a_fit_on_the_others(diabetes, intercept):
    X, y = diabetes
    weights = np.where(np.arange(len(X)) % 5 == 0, 0.0, 1.0 + np.arange(len(X)) % 3)
    model = regressor(nu=1.0, holdout=0.2, fit_intercept=intercept).fit(X, y, weights)
    quality, seed = model.result_.quality, np.random.RandomState(0).randint(np.iinfo(np.int32).max)
    used = np.flatnonzero(weights)
    test = used[held_out(len(used), 0.2, seed, 3)]
    train = np.setdiff1d(used, test)
    other = regressor(nu=1.0, holdout=0, columns=X[model.columns_], fit_intercept=intercept, tol=1e-5)
    other.fit(X[train], y[train], weights[train])
    found = r2_score(y[test], other.predict(X[test]), sample_weight=weights[test])
    assert quality.value == pytest.approx(found, abs=1e-3)
    assert quality.n == len(test) == round(0.2 * len(used))
    scaler = StandardScaler().fit(X[train], sample_weight=weights[train])
    linear = Ridge().fit(scaler.transform(X[train]), y[train], sample_weight=weights[train])
    wanted = r2_score(y[test], linear.predict(scaler.transform(X[test])), sample_weight=weights[test])
    assert quality.alternative_value == pytest.approx(wanted, rel=1e-9)


@pytest.mark.parametrize("nu", ["cv", 1.0])
def test_the_model_does_not_depend_on_what_is_held_out(diabetes, nu):
    X, y = diabetes
    with_it, without = (regressor(nu=nu, n_nus=12, holdout=share).fit(X, y) for share in (0.1, 0.0))
    assert bytes_of(with_it) == bytes_of(without)
    assert with_it.result_.quality is not None and without.result_.quality is None


def test_rows_of_any_kind_have_the_same_quality(diabetes, tmp_path):
    X, y = diabetes
    np.save(tmp_path / "X.npy", X)
    found = [regressor(nu=1.0).fit(rows, y).result_.quality for rows in (X, str(tmp_path / "X.npy"), X.copy(order="F"))]
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("nu", ["cv", 0.05])
def test_a_useless_regression_warns_and_a_good_one_does_not(diabetes, nu, rng):
    X, _ = diabetes
    good = np.sin(3 * X[:, 0] / X[:, 0].std())
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=f".*{LESS}")
        regressor(nu=nu, n_nus=12, gamma=200.0, n_columns=300).fit(X, good)
    noise = X @ np.ones(X.shape[1])
    wrong = rng.permutation(X.ravel()).reshape(X.shape)  # columns that say nothing but one, which is on another scale
    wrong[:, 0] = 1e-6 * noise
    with pytest.warns(DataWarning, match=f"{LESS} linear regression"):
        regressor(nu=nu, n_nus=12, gamma=1e3).fit(wrong, noise)


def test_a_precomputed_kernel_is_compared_with_the_mean(diabetes):
    X, y = diabetes
    K = np.exp(-10.0 * np.square(X[:, None] - X).sum(axis=2))
    for nu in ("cv", 1.0):
        found = regressor(kernel="precomputed", nu=nu, n_nus=12).fit(K, y).result_.quality
        assert found.alternative == "the mean" and found.value > 0.2 > 0.0 >= found.alternative_value > -0.1


@pytest.mark.parametrize("options", [("--nu", "1"), ("--n-nus", "12")])
def test_a_run_of_regression_says_what_the_estimator_says(diabetes, options, tmp_path, monkeypatch):
    X, y = diabetes
    monkeypatch.chdir(tmp_path)
    np.savez("X.npz", X=X, y=y[:, 0])
    line = ("regression", "--data", "X.npz", "--gamma", "10", "--n-columns", "60", "--threads", "1", *options)
    answer = call("fit", *line, "--out", "run.zarr")
    assert answer.code == 0
    _check_run(answer, "run.zarr")
    given = {"nu": 1.0} if "--nu" in options else {"n_nus": 12}
    estimator = regressor(**given, random_state=_Seed()).fit(X, y[:, 0])
    assert estimator.result_.quality.as_dict() == dkl.open_run("run.zarr").report["quality"]
    answer = call("verify", "run.zarr")
    assert answer.code == 0 and ("not recomputed: quality" in answer.out) == ("--nu" in options)
    assert call("fit", *line, "--holdout", "0", "--out", "none.zarr").code == 0
    assert dkl.open_run("none.zarr").report["quality"] is None
    assert "\n  quality" not in call("info", "none.zarr").out
    assert call("fit", *line, "--holdout", "0.6", "--out", "bad.zarr").code == 2


class _Seed(np.random.RandomState):
    """A stream whose first integer is the seed of the command, 0."""

    def randint(self, *arguments, **keywords):
        return 0


def _check_run(answer, path):
    """The quality stands in the last lines of a fit, in info, its JSON, the loaded estimator and the picture's title."""
    stored = json.loads((Path(path) / "report.json").read_text())["quality"]
    model = dkl.load(path)
    quality = model.result_.quality
    assert quality.as_dict() == stored
    assert str(quality) in answer.out and str(quality) in call("info", path).out
    assert json.loads(call("info", path, "--json").out)["report"]["quality"] == stored
    assert repr(quality) in repr(model.result_)
    title = model.plot().get_suptitle()
    assert title.startswith(quality.title) and "of its minimum" in title
    assert "of its minimum" in answer.out
