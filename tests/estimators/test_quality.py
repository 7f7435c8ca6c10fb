"""The number on held-out data that each learner reports: scikit-learn's on the same split, and a warning where it is bad."""

import warnings

import numpy as np
import pytest
from command_line import call
from quality_checks import LESS, check_other_model, check_run, check_verify
from sklearn.datasets import load_diabetes, load_digits, make_classification
from sklearn.linear_model import Ridge, RidgeClassifier
from sklearn.metrics import accuracy_score, balanced_accuracy_score, r2_score
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import KFold, cross_val_predict
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

import dkl
from dkl.errors import DataWarning
from dkl.quality import held_out

LINEAR = make_pipeline(StandardScaler(), Ridge())


@pytest.fixture(scope="module")
def diabetes():
    X, y = load_diabetes(return_X_y=True)
    return X, np.stack([y, np.sin(20 * X[:, 2]) + X[:, 8]], axis=1)


def regressor(**changes):
    return dkl.LowRankKernelRegressor(**{"gamma": 10.0, "n_columns": 60, "n_jobs": 1, "random_state": 0} | changes)


def bytes_of(model):
    return b"".join(np.asarray(values).tobytes() for values in (model.coef_, model.intercept_, model.support_))


@pytest.mark.filterwarnings("ignore:not converged .stalled.")  # of fits by hand, to less than rounding lets be proven
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


@pytest.mark.parametrize("options", [("--nu", "1"), pytest.param(("--n-nus", "12"), marks=pytest.mark.exhaustive)])
def test_a_run_of_regression_says_what_the_estimator_says(diabetes, options, tmp_path, monkeypatch):
    X, y = diabetes
    monkeypatch.chdir(tmp_path)
    np.savez("X.npz", X=X, y=y[:, 0])
    line = ("regression", "--data", "X.npz", "--gamma", "10", "--n-columns", "60", "--threads", "1", *options)
    answer = call("fit", *line, "--out", "run.zarr")
    assert answer.code == 0
    check_run(answer, "run.zarr")
    given = {"nu": 1.0} if "--nu" in options else {"n_nus": 12}
    estimator = regressor(**given, random_state=_Seed()).fit(X, y[:, 0])
    assert estimator.result_.quality.as_dict() == dkl.open_run("run.zarr").report["quality"]
    check_verify("run.zarr")
    if "--nu" in options:  # the fit has learned from the held-out rows too
        check_other_model("run.zarr", lambda held, fit: {name: fit[name] for name in ("weights", "intercepts")})
    assert call("fit", *line, "--holdout", "0", "--out", "none.zarr").code == 0
    assert dkl.open_run("none.zarr").report["quality"] is None
    assert "\n  quality" not in call("info", "none.zarr").out
    assert call("fit", *line, "--holdout", "0.6", "--out", "bad.zarr").code == 2


class _Seed(np.random.RandomState):
    """A stream whose first integer is the seed of the command, 0."""

    def randint(self, *arguments, **keywords):
        return 0


# -- classes ------------------------------------------------------------------------------------------------------------


def classes(name):
    """Rows and labels: of two classes that overlap, one of them rare, or of three."""
    rng = np.random.default_rng(5)
    if name == "digits":
        X, y = load_digits(return_X_y=True)
        return X[y < 4] / 16 + 0.3 * rng.standard_normal((np.count_nonzero(y < 4), 64)), y[y < 4]
    X, y = make_classification(700, 12, n_informative=6, weights=[0.8], flip_y=0.1, random_state=1)
    return X, np.where(y, "rare", "usual")


def classifier(**changes):
    # The given kernel is hardly changed at so large a rho: this is SVC.
    return dkl.OptimalNeighborhoodSVC(**{"C": 2.0, "gamma": 0.05, "rho": 1e9, "n_jobs": 1} | changes)


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("digits", {}),
        ("digits", {"multi_class": "ovr"}),
        ("rare", {}),
        ("rare", {"class_weight": "balanced"}),
        ("rare", {"dtype": "float32"}),
        ("rare", {"kernel": "precomputed"}),
        ("rare", {"kernel": ["rbf", "rbf"]}),
    ],
)
def test_accuracy_on_held_out_rows_is_that_of_svc_on_the_others(name, changes):
    X, y = classes(name)
    codes = np.unique(y, return_inverse=True)[1]
    test = held_out(len(X), 0.2, 0, 4, codes)
    train = np.setdiff1d(np.arange(len(X)), test)
    weight = changes.get("class_weight")
    if weight:  # as all rows have it
        counts = np.bincount(codes)
        weight = dict(zip(np.unique(y), len(y) / (len(counts) * counts), strict=True))
    given = rbf_kernel(X, gamma=0.05) if changes.get("kernel") == "precomputed" else X
    model = classifier(holdout=0.2, **changes).fit(given, y)
    svc = SVC(C=2.0, gamma=0.05, class_weight=weight, tol=1e-5)
    other = OneVsRestClassifier(svc) if changes.get("multi_class") == "ovr" else svc
    predicted = other.fit(X[train], y[train]).predict(X[test])
    quality = model.result_.quality
    assert quality.n == len(test) == np.round(0.2 * np.bincount(codes)).sum()
    assert quality.value == pytest.approx(balanced_accuracy_score(y[test], predicted), abs=0.015)
    assert quality.others["accuracy"] == pytest.approx(accuracy_score(y[test], predicted), abs=0.015)
    if changes.get("kernel") == "precomputed":
        assert (quality.alternative, quality.alternative_value) == ("the largest class", pytest.approx(0.5))
        return
    linear = make_pipeline(StandardScaler(), RidgeClassifier(class_weight=weight)).fit(X[train], y[train])
    found = balanced_accuracy_score(y[test], linear.predict(X[test]))
    if weight is None:  # else features are standardized by the weights too
        assert quality.alternative_value == pytest.approx(found)
        assert quality.others["accuracy of a linear classifier"] == linear.score(X[test], y[test])
    assert quality.alternative_value == pytest.approx(found, abs=0.03)


def test_a_large_machine_is_solved_again_on_its_support_alone(monkeypatch):
    """As where the kernel matrix is not in memory: the accuracy is that of SVC too."""
    monkeypatch.setattr("dkl.solvers.svm.interface.SMALLEST_IN_PARTS", 300)
    X, y = classes("rare")
    quality = classifier(holdout=0.2).fit(X, y).result_.quality
    test = held_out(len(X), 0.2, 0, 4, (y == "usual").astype(int))
    train = np.setdiff1d(np.arange(len(X)), test)
    predicted = SVC(C=2.0, gamma=0.05).fit(X[train], y[train]).predict(X[test])
    assert quality.value == pytest.approx(balanced_accuracy_score(y[test], predicted), abs=0.03)


def test_the_classifier_does_not_depend_on_what_is_held_out():
    X, y = classes("digits")
    with_it, without = (classifier(holdout=share).fit(X, y) for share in (0.1, 0.0))
    assert with_it.dual_coef_.tobytes() == without.dual_coef_.tobytes()
    assert with_it.intercept_.tobytes() == without.intercept_.tobytes()
    assert with_it.result_.quality is not None and without.result_.quality is None


def test_rows_without_weight_are_neither_learned_from_nor_held_out():
    X, y = classes("rare")
    weights = (np.arange(len(X)) % 4 > 0).astype(float)
    quality = classifier().fit(X, y, weights).result_.quality
    other = classifier().fit(X[weights > 0], y[weights > 0]).result_.quality
    assert quality.n == other.n
    assert quality.value == pytest.approx(other.value, abs=0.15)  # of other rows


def test_a_useless_classifier_warns_and_a_good_one_does_not():
    X, y = classes("digits")
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=f".*{LESS}")
        classifier().fit(X, y)
    with pytest.warns(DataWarning, match=f"{LESS} a linear classifier"):
        classifier(gamma=100.0).fit(X, y)


@pytest.mark.parametrize("dtype", ["float64", pytest.param("float32", marks=pytest.mark.exhaustive)])
def test_a_run_of_classification_says_what_the_estimator_says(dtype, tmp_path, monkeypatch):
    X, y = classes("rare")
    monkeypatch.chdir(tmp_path)
    np.savez("X.npz", X=X, y=y)
    line = ("svc", "--data", "X.npz", "--gamma", "0.05", "--C", "2", "--rho", "1e9", "--threads", "1", "--dtype", dtype)
    answer = call("fit", *line, "--out", "run.zarr")
    assert answer.code == 0
    check_run(answer, "run.zarr")
    estimator = classifier(dtype=dtype).fit(X, y)
    assert estimator.result_.quality.as_dict() == dkl.open_run("run.zarr").report["quality"]
    assert "accuracy of a linear classifier 0." in call("info", "run.zarr").out
    check_verify("run.zarr")
    names = ("support", "coefficients", "intercepts")
    check_other_model("run.zarr", lambda held, fit: {name: fit[name] for name in names})
