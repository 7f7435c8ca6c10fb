"""The refit of LowRankKernelRegressor against explicit loops over folds with scikit-learn's Lasso and Ridge."""

import numpy as np
import pytest
import scipy.sparse as sp
from repeats import but_for
from sklearn.linear_model import Lasso, Ridge
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import KFold

from dkl import LowRankKernelRegressor
from dkl.errors import ConvergenceWarning, DataWarning, InputError

GAMMA, COLUMNS = 0.3, np.arange(0, 150, 6)


@pytest.fixture
def rows(rng):
    return rng.standard_normal((150, 3))


@pytest.fixture
def targets(rows, rng):
    return 5 + np.sin(2 * rows[:, 0]) + rows[:, 1] ** 2 + 0.3 * rng.standard_normal(len(rows))


def model(**choices):
    given = {"gamma": GAMMA, "columns": COLUMNS, "n_nus": 20, "tol": 1e-8, "random_state": 0, "n_jobs": 1}
    return LowRankKernelRegressor(**given | choices)


def ridge_predictions(X, y, Z, S, lam):
    """At Z, of Ridge on the Nystrom features of the points X[COLUMNS[S]], from rows X."""
    points = X[COLUMNS[S]] if X.shape[0] == 150 else S
    values, vectors = np.linalg.eigh(rbf_kernel(points, gamma=GAMMA))
    half = vectors / np.sqrt(values)
    ridge = Ridge(alpha=lam, solver="svd").fit(rbf_kernel(X, points, gamma=GAMMA) @ half, y)
    return ridge.predict(rbf_kernel(Z, points, gamma=GAMMA) @ half)


def errors_by_hand(X, y, splits, nu, lam, which):
    """(K,) mean squared errors on rows held out: a lasso on the others chooses the columns, a ridge is fitted on them."""
    found = []
    for train, test in splits:
        C = rbf_kernel(X[train], X[COLUMNS], gamma=GAMMA)
        lasso = Lasso(np.sqrt(nu) / len(train), tol=1e-12, max_iter=10**6).fit(C, y[train])
        S = np.flatnonzero(lasso.coef_) if which == "active" else np.arange(len(COLUMNS))
        points = X[COLUMNS[S]]
        found.append(np.mean((y[test] - ridge_predictions(X[train], y[train], X[test], points, lam)) ** 2))
    return np.array(found)


@pytest.mark.parametrize("which", but_for(["active"], ["active", "all"]))
def test_it_is_a_ridge_whose_lambda_the_same_folds_choose(rows, targets, rng, which):
    splits = list(KFold(4, shuffle=True, random_state=0).split(rows))
    got = model(cv=splits, refit=which).fit(rows, targets)
    plain = model(cv=splits, refit="never").fit(rows, targets)
    refit = got.refit_
    assert (refit.columns, got.nu_, got.objective_) == (which, plain.nu_, plain.objective_) and plain.refit_ is None
    for lam, errors in list(zip(refit.lams, refit.errors[:, :, 0], strict=True))[::3]:
        np.testing.assert_allclose(errors, errors_by_hand(rows, targets, splits, got.nu_, lam, which), rtol=1e-6)
    means = refit.errors.mean(axis=(1, 2))
    assert refit.lam in refit.lams and means[refit.lams == refit.lam] <= means.min() * (1 + 1e-4) + 1e-9
    S = np.flatnonzero(plain.weights_) if which == "active" else np.arange(len(COLUMNS))
    np.testing.assert_array_equal(got.support_, COLUMNS[S])
    new = rng.standard_normal((20, 3))
    np.testing.assert_allclose(got.predict(new), ridge_predictions(rows, targets, new, S, refit.lam), rtol=1e-7)
    residual = targets - got.predict(rows)
    length = got.coef_ @ rbf_kernel(rows[got.support_], gamma=GAMMA) @ got.coef_
    assert refit.objectives[0] == pytest.approx(residual @ residual + refit.lam * length, rel=1e-9)
    assert 0 <= refit.relative_gaps[0] < 1e-10
    np.testing.assert_array_equal(got.weights_, plain.weights_)


@pytest.mark.parametrize("noise", but_for([0.5], [0.05, 0.5, 5.0]))
def test_auto_takes_what_errors_on_rows_held_out_favour(rows, rng, noise):
    """By "auto" of the lasso and the ridge on its columns, by "best" of the ridge on all columns too."""
    y = np.sin(2 * rows[:, 0]) + rows[:, 1] ** 2 + noise * rng.standard_normal(150)
    ways = ("never", "active", "all", "auto", "best")
    lasso, active, every, auto, best = (model(refit=how).fit(rows, y) for how in ways)
    held_out = [lasso.cv_.errors[lasso.cv_.best, :, 0]]
    held_out += [one.refit_.errors[one.refit_.lams == one.refit_.lam][0, :, 0] for one in (active, every)]
    wanted = 1 if held_out[1].mean() < held_out[0].mean() else 0
    gain = held_out[wanted] - held_out[2]
    of_best = 2 if gain.mean() > gain.std(ddof=1) / np.sqrt(5) else wanted
    for found, choice, tried in ((auto, wanted, {"active"}), (best, of_best, {"active", "all"})):
        np.testing.assert_array_equal(found.predict(rows), (lasso, active, every)[choice].predict(rows))
        assert (None if found.refit_ is None else found.refit_.columns) == (None, "active", "all")[choice]
        assert {row.get("columns") for row in found.result_.history if row["stage"] == "refit"} == tried
    np.testing.assert_array_equal(auto.support_, lasso.support_)


def test_several_outputs_share_columns_and_lambda(rows, targets):
    Y = np.column_stack([targets, -2 * targets + 1, rows[:, 2]])
    weights = np.linspace(0.5, 2, 150)
    got = model(refit="active").fit(rows, Y, sample_weight=weights)
    np.testing.assert_array_equal(got.support_, COLUMNS[(got.weights_ != 0).any(axis=0)])
    assert got.coef_.shape == (3, got.n_active_) and (got.coef_ != 0).all() and got.refit_.relative_gaps.shape == (3,)
    np.testing.assert_allclose(got.predict(rows)[:, 1], -2 * got.predict(rows)[:, 0] + 1, rtol=1e-7, atol=1e-7)


def test_kernels_and_rows_of_any_kind(rows, targets):
    want = model(refit="all").fit(rows, targets)
    given = model(refit="all", kernel="precomputed").fit(rbf_kernel(rows, gamma=GAMMA), targets)
    points = model(refit="all", columns=rows[COLUMNS]).fit(rows, targets)
    sparse = model(refit="all").fit(sp.csr_array(rows), targets)
    for X, got in ((rbf_kernel(rows, gamma=GAMMA), given), (rows, points), (rows, sparse)):
        np.testing.assert_allclose(got.predict(X), want.predict(rows), rtol=1e-7)
    with pytest.warns(ConvergenceWarning, match="dtype='float64'"):
        single = model(refit="all", dtype="float32", tol=1e-5).fit(rows, targets)
    np.testing.assert_allclose(single.predict(rows), want.predict(rows), rtol=1e-3)


def test_a_kernel_without_a_space_of_functions_has_no_refit(rows, targets):
    learner = model(kernel="sigmoid", gamma=1.0, coef0=1.0, columns="uniform", n_columns=20)
    plain = learner.set_params(refit="never").fit(rows, targets).predict(rows)
    np.testing.assert_array_equal(learner.set_params(refit="auto").fit(rows, targets).predict(rows), plain)
    with pytest.warns(DataWarning, match="not positive semidefinite"):
        assert learner.set_params(refit="all").fit(rows, targets).refit_ is None


def test_without_folds_there_is_none(rows, targets):
    assert model(nu=0.1).fit(rows, targets).refit_ is None
    assert model(refit="active").fit(rows, np.zeros(150)).refit_ is None
    for choices in ({"nu": 0.1, "refit": "active"}, {"solver": "paper", "refit": "all"}):
        with pytest.raises(InputError, match="folds that choose nu"):
            model(**choices).fit(rows, targets)
    with pytest.raises(InputError, match="refit"):
        model(refit=True).fit(rows, targets)


def test_who_stops_the_refit_gets_the_lasso(rows, targets):
    stopped = model(callbacks=lambda row: row["stage"] == "refit").fit(rows, targets)
    plain = model(refit="never").fit(rows, targets)
    assert stopped.refit_ is None and stopped.nu_ == plain.nu_
    assert stopped.result_.history[-1]["stage"] == "refit"
