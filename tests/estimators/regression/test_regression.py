"""LowRankKernelRegressor as scikit-learn's users meet it: its contract, weights, outputs, cross-validation, path, columns."""

import pickle
import signal
import tempfile
import warnings
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.linear_model import Lasso
from sklearn.metrics.pairwise import laplacian_kernel, polynomial_kernel, rbf_kernel
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from dkl import LowRankKernelRegressor
from dkl.errors import DataWarning, InputError
from dkl.estimators.regression.fit import edge_text
from dkl.solvers.watch import Outcome

GAMMA, LAM, NU = 0.3, 0.7, 0.4
ROUNDS = "sums of single precision round by more than the check allows"
FAILS = {
    "float32": {
        "check_sample_weight_equivalence_on_dense_data": ROUNDS,
        "check_sample_weight_equivalence_on_sparse_data": ROUNDS,
    },
    "precomputed": {
        "check_positive_only_tag_during_fit": "no kernel has a negative diagonal",
        "check_estimators_dtypes": "a kernel that is cut to integers is not positive semidefinite",
    },
}


def expected_to_fail(estimator):
    return FAILS.get(estimator.dtype, {}) | FAILS.get(estimator.kernel, {})


@pytest.mark.filterwarnings("ignore:not converged .stalled.")  # of the checks' data, in single precision above all
@parametrize_with_checks(
    [LowRankKernelRegressor(nu=0.01)],
    expected_failed_checks=expected_to_fail,
)
def test_scikit_learn_contract(estimator, check):
    check(estimator)


@pytest.mark.exhaustive
@pytest.mark.filterwarnings("ignore:not converged .stalled.")  # of the checks' data, in single precision above all
@parametrize_with_checks(
    [
        LowRankKernelRegressor(nu=0.01, kernel="precomputed"),
        LowRankKernelRegressor(),
        LowRankKernelRegressor(nu=0.01, dtype="float32"),
        LowRankKernelRegressor(nu=0.01, columns="rpcholesky"),
    ],
    expected_failed_checks=expected_to_fail,
)
def test_scikit_learn_contract_by_other_settings(estimator, check):
    check(estimator)


@pytest.fixture
def rows(rng):
    return rng.standard_normal((150, 3))


@pytest.fixture
def targets(rows, rng):
    return 5 + np.sin(2 * rows[:, 0]) + rows[:, 1] ** 2 + 0.1 * rng.standard_normal(len(rows))


def model(**choices):
    given = {"gamma": GAMMA, "nu": NU, "lam": LAM, "n_columns": 40, "tol": 1e-9, "random_state": 0, "n_jobs": 1}
    return LowRankKernelRegressor(**given | choices)


def by_sklearn(C, y, *, intercept=True, weights=None):
    """Lasso on given columns: 1/(2W) |y - C w - c|^2 + alpha |w|_1, alpha = sqrt(lam nu) / W.

    In rounds, each of which begins with a new residual: one that is corrected over and over drifts.
    """
    total = len(y) if weights is None else weights.sum()
    lasso = Lasso(np.sqrt(LAM * NU) / total, fit_intercept=intercept, tol=1e-14, max_iter=20_000, warm_start=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # rounding may hide 1e-14: what counts is compared
        for _ in range(10):
            if lasso.fit(C, y, sample_weight=weights).n_iter_ < lasso.max_iter:
                break
    return lasso


# -- against scikit-learn's lasso ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("weighted", [True, False])
def test_it_is_the_lasso_on_kernel_columns(rows, targets, rng, intercept, weighted):
    weights = rng.integers(0, 4, len(rows)).astype(float) if weighted else None
    columns = np.arange(0, 150, 5)
    got = model(columns=columns, fit_intercept=intercept, tol=1e-11).fit(rows, targets, sample_weight=weights)
    want = by_sklearn(rbf_kernel(rows, rows[columns], gamma=GAMMA), targets, intercept=intercept, weights=weights)
    new = rng.standard_normal((20, 3))
    predicted = want.predict(rbf_kernel(new, rows[columns], gamma=GAMMA))
    np.testing.assert_allclose(got.predict(new), predicted, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(got.intercept_, want.intercept_, rtol=1e-8, atol=1e-8)
    dense = np.zeros(len(columns))
    dense[np.searchsorted(columns, got.support_)] = got.coef_
    np.testing.assert_allclose(dense, want.coef_, atol=1e-6)  # columns are much alike: weights are less sure than fits
    residual = targets - got.predict(rows)
    fit = (residual**2 * (1 if weights is None else weights)).sum()
    assert got.objective_ == pytest.approx(fit + 2 * np.sqrt(LAM * NU) * np.abs(got.coef_).sum(), rel=1e-9)
    assert got.duality_gap_ <= 1e-11 * got.objective_


@pytest.mark.parametrize(
    ("kernel", "matrix"),
    [
        ("laplacian", lambda X, Z: laplacian_kernel(X, Z, gamma=GAMMA)),
        ("poly", lambda X, Z: polynomial_kernel(X, Z, degree=2, gamma=GAMMA, coef0=0.5)),
        (lambda x, z, width: np.exp(-width * np.abs(x - z).sum()), lambda X, Z: laplacian_kernel(X, Z, gamma=GAMMA)),
    ],
)
def test_other_kernels_are_normalised_on_their_diagonal(rows, targets, kernel, matrix):
    columns = np.arange(0, 150, 10)
    given = {"kernel_params": {"width": GAMMA}} if callable(kernel) else {"degree": 2, "coef0": 0.5}
    got = model(kernel=kernel, columns=columns, **given).fit(rows, targets)
    lengths = np.sqrt(np.diag(matrix(rows[columns], rows[columns])))
    want = by_sklearn(matrix(rows, rows[columns]) / lengths, targets)
    np.testing.assert_allclose(got.predict(rows), want.predict(matrix(rows, rows[columns]) / lengths), rtol=1e-6)


def test_a_precomputed_kernel_is_the_kernel_itself(rows, targets):
    K = rbf_kernel(rows, gamma=GAMMA)
    named, given = model().fit(rows, targets), model(kernel="precomputed").fit(K, targets)
    np.testing.assert_array_equal(given.columns_, named.columns_)
    np.testing.assert_allclose(given.predict(K[:30]), named.predict(rows[:30]), rtol=1e-9)


def test_weights_count_repetitions(rows, targets, rng):
    weights = rng.integers(0, 4, len(rows))
    weights[:20] = 1  # the columns' rows are there once in either
    columns = np.arange(20)
    weighted = model(columns=columns).fit(rows, targets, sample_weight=weights)
    repeated = model(columns=columns).fit(np.repeat(rows, weights, axis=0), np.repeat(targets, weights))
    np.testing.assert_allclose(weighted.predict(rows), repeated.predict(rows), rtol=1e-8)
    np.testing.assert_allclose(weighted.objective_, repeated.objective_, rtol=1e-10)


def test_outputs_share_columns_and_are_fitted_each_by_itself(rows, targets):
    Y = np.stack([targets, -3 * targets, np.cos(rows[:, 2])], axis=1)
    got = model().fit(rows, Y)
    assert got.coef_.shape == (3, got.n_active_) and got.intercept_.shape == (3,) and got.weights_.shape == (3, 40)
    assert got.objective_.shape == got.duality_gap_.shape == got.relative_gap_.shape == (3,)
    for t in range(3):
        alone = model().fit(rows, Y[:, t])
        np.testing.assert_allclose(got.predict(rows)[:, t], alone.predict(rows), rtol=1e-7, atol=1e-7)
    column = model().fit(rows, targets[:, None])
    assert column.predict(rows).shape == (150, 1)
    np.testing.assert_array_equal(column.predict(rows)[:, 0], model().fit(rows, targets).predict(rows))


def test_outputs_that_begin_at_one_inverse_are_fitted_each_by_itself(rows, targets):
    """Three of them, and many rows a column."""
    Y = np.stack([targets, rows[:, 0] * rows[:, 1], np.cos(rows[:, 2])], axis=1)
    got = model(n_columns=10, nu=1e-3).fit(rows, Y)
    assert got.n_iter_ == 0 and (got.relative_gap_ <= 1e-9).all()
    for t in range(3):
        alone = model(n_columns=10, nu=1e-3).fit(rows, Y[:, t])
        assert alone.n_iter_ > 0
        np.testing.assert_allclose(got.predict(rows)[:, t], alone.predict(rows), rtol=1e-6, atol=1e-6)


def test_single_precision_is_near_double(rows, targets):
    # What sums of single precision are rounded by is more than the gap that is asked for.
    with pytest.warns(ConvergenceWarning, match="stalled.*raise tol or nu, or use dtype='float64' if it is not"):
        single = model(dtype="float32", tol=1e-6).fit(rows, targets)
    double = model().fit(rows, targets)
    assert single.result_.outcome is Outcome.STALLED and 1e-6 < single.relative_gap_ < 1e-2
    np.testing.assert_allclose(single.predict(rows), double.predict(rows), rtol=1e-3)
    assert not np.array_equal(single.predict(rows), double.predict(rows))


# -- as others use it ---------------------------------------------------------------------------------------------------


def test_pipelines_searches_clones_and_pickles(rows, targets):
    search = GridSearchCV(model(), {"gamma": [0.01, 0.3, 50.0]}, cv=3).fit(rows, targets)
    assert search.best_params_["gamma"] == 0.3
    pipeline = make_pipeline(StandardScaler(), model()).fit(rows * [1, 1e3, 1e-3], targets)
    assert pipeline.score(rows * [1, 1e3, 1e-3], targets) > 0.9
    fitted = search.best_estimator_
    assert clone(fitted).get_params() == fitted.get_params()
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.predict(rows), fitted.predict(rows))


@pytest.mark.parametrize("kernel", ["rbf", "linear", "poly", "laplacian"])
def test_sparse_rows_are_dense_rows(rows, targets, kernel):
    X = np.where(np.abs(rows) > 0.5, rows, 0)
    dense = model(kernel=kernel, nu=0.01).fit(X, targets)
    for form in (sp.csr_array(X), sp.csc_matrix(X)):
        got = model(kernel=kernel, nu=0.01).fit(form, targets)
        assert sp.issparse(got.support_vectors_)
        # Steps end on a face, exactly; what is left is the rounding of its system, whose condition is some thousands.
        np.testing.assert_allclose(got.predict(form), dense.predict(X), rtol=1e-11)
        np.testing.assert_allclose(got.predict(X), dense.predict(X), rtol=1e-11)


def test_callbacks_see_stages_and_may_stop(rows, targets, monkeypatch):
    seen = []
    fitted = model(nu="cv", callbacks=[seen.append, lambda row: "no truth"]).fit(rows, targets)
    assert seen == fitted.result_.history
    stages = [row["stage"] for row in seen]
    order = ["pass", "cv", "refit", "solve"]
    assert stages == sorted(stages, key=order.index) and set(stages) == set(order)
    assert all(row["iteration"] <= row["of"] for row in seen if "of" in row)
    assert ["of" in row for row in seen] == [row["stage"] != "solve" for row in seen]


@pytest.mark.parametrize("nu", [0.01, "cv"])
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("work_dir", [False, True])
def test_stopped_in_the_pass_the_model_is_a_constant(rows, targets, nu, fit_intercept, work_dir, tmp_path, monkeypatch):
    for name in ("work", "temporary"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    seen, big, y = [], np.tile(rows, (200, 1)), np.tile(np.column_stack([targets, 2 * targets]), (200, 1))
    weights = np.linspace(0.5, 2.0, len(big))

    def stop(row):
        seen.append(row)
        return True

    folder = tmp_path / "work" if work_dir else None
    learner = model(nu=nu, callbacks=stop, fit_intercept=fit_intercept, work_dir=folder)
    fitted = learner.fit(big, y, sample_weight=weights)
    assert fitted.result_.outcome is Outcome.STOPPED and seen == fitted.result_.history
    assert len(seen) == 1 and seen[0]["iteration"] < seen[0]["of"]
    middle = np.average(y, axis=0, weights=weights) if fit_intercept else np.zeros(2)
    np.testing.assert_allclose(fitted.predict(rows), np.tile(middle, (len(rows), 1)), rtol=1e-12)
    np.testing.assert_allclose(fitted.objective_, weights @ (y - middle) ** 2)
    np.testing.assert_array_equal(fitted.duality_gap_, fitted.objective_)
    np.testing.assert_array_equal(fitted.relative_gap_, [1.0, 1.0])
    assert not fitted.weights_.any() and fitted.n_active_ == 0
    assert not list((tmp_path / "temporary").iterdir())


@pytest.mark.parametrize("at", [1, 4])
def test_stopped_in_cross_validation_the_best_nu_so_far_counts(rows, targets, at):
    seen = []

    def stop(row):
        seen.append(row)
        return row["stage"] == "cv" and row["iteration"] == at

    fitted = model(nu="cv", callbacks=stop).fit(rows, targets)
    assert fitted.result_.outcome is Outcome.STOPPED and seen == fitted.result_.history
    assert seen[-1]["stage"] == "cv" and len(fitted.cv_.nus) == at
    assert fitted.nu_ == fitted.cv_.nus[np.argmin([row["error"] for row in seen if row["stage"] == "cv"])]
    check_gap(fitted, rows, targets)


@pytest.mark.parametrize("solver", ["active-set", "exact", "newton", "paper"])
@pytest.mark.parametrize("at", [1, 2])
def test_stopped_in_the_solve_the_weights_so_far_count(rows, targets, solver, at):
    seen, y = [], np.column_stack([targets, targets**2])

    def stop(row):
        if row["stage"] == "solve":
            seen.append(row)
        return len(seen) == at

    learner = model(nu=1e-4, solver=solver, callbacks=stop, tol=1e-12, n_jobs=1)
    fitted = learner.fit(rows, y)
    assert fitted.result_.outcome is Outcome.STOPPED
    assert seen == [row for row in fitted.result_.history if row["stage"] == "solve"] and len(seen) == at
    assert {row["output"] for row in seen} == {0} and not fitted.coef_[1].any()
    assert fitted.relative_gap_[1] == pytest.approx(1.0) or fitted.relative_gap_[1] < 1
    check_gap(fitted, rows, y)


def check_gap(fitted, rows, y):
    """The objective is that of the predictions, and no solution to a small gap is below it by more than the gap."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)  # of the largest nu rounding decides whether all weights are zero
        best = model(nu=fitted.nu_, tol=1e-7).fit(rows, y)
    assert np.all(fitted.objective_ - best.objective_ <= np.asarray(fitted.duality_gap_) * (1 + 1e-9) + 1e-9)
    assert np.all(fitted.objective_ >= np.asarray(best.objective_) * (1 - 1e-8))


def test_a_stopped_path_has_every_nu_with_its_gap(rows, targets):
    seen = []

    def stop(row):
        seen.append(row)
        return row["stage"] == "path" and row["iteration"] == 3

    path = model(n_nus=6, nu=1.0, callbacks=stop).path(rows, targets)
    assert path.result.outcome is Outcome.STOPPED and seen == path.result.history and seen[-1]["iteration"] == 3
    whole = model(n_nus=6, nu=1.0).path(rows, targets)
    assert whole.result.outcome.converged and [row["nu"] for row in whole.result.history[-6:]] == whole.nus.tolist()
    np.testing.assert_array_equal(path.nus, whole.nus)
    np.testing.assert_array_equal(path.weights[:3], whole.weights[:3])
    np.testing.assert_array_equal(path.weights[3:], np.tile(whole.weights[2], (3, 1, 1)))
    excess = (path.objectives - whole.objectives) / path.objectives
    assert (excess <= path.gaps * (1 + 1e-9) + 1e-12).all() and (path.gaps[3:] > 0).all()
    big, y = np.tile(rows, (200, 1)), np.tile(targets, 200)
    none = model(callbacks=lambda row: True).path(big, y)
    assert none.nus.shape == (0,) and none.weights.shape[0] == 0
    constant = model(nu=1.0, callbacks=lambda row: True).path(big, y, [0.1, 1.0])
    assert not constant.weights.any() and (constant.gaps == 1).all()
    np.testing.assert_allclose(constant.errors[:, 0], np.var(y))


def test_verbose_tells_stages(rows, targets, capsys):
    model(nu="cv", verbose=1).fit(rows, targets)
    told = capsys.readouterr().err
    assert "pass 1/1" in told and "solve" in told
    model().fit(rows, targets)
    assert capsys.readouterr().err == ""


def test_an_interrupt_leaves_nothing_behind(rows, targets, tmp_path, monkeypatch, interrupts):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    big, y = np.tile(rows, (200, 1)), np.tile(targets, 200)
    fitted = model(n_jobs=2, tol=1e-6)
    with pytest.raises(KeyboardInterrupt):
        fitted.set_params(callbacks=lambda row: signal.raise_signal(signal.SIGINT)).fit(big, y)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(NotFittedError):
        fitted.predict(rows)
    fitted.set_params(callbacks=None).fit(big, y)
    assert list(tmp_path.iterdir()) == []


def test_seeds(rows, targets):
    first, second = model(random_state=3).fit(rows, targets), model(random_state=3).fit(rows, targets)
    np.testing.assert_array_equal(first.predict(rows), second.predict(rows))
    other = model(random_state=4).fit(rows, targets)
    assert not np.array_equal(first.columns_, other.columns_)
    stream = np.random.RandomState(3)
    np.testing.assert_array_equal(model(random_state=stream).fit(rows, targets).columns_, first.columns_)


# -- nu -----------------------------------------------------------------------------------------------------------------


def errors_by_hand(C, y, splits, nu):
    """Mean over the folds of the mean squared error on rows held out."""
    found = []
    for train, test in splits:
        alpha = np.sqrt(LAM * nu) / len(train)
        lasso = Lasso(alpha, tol=1e-12, max_iter=10**6).fit(C[train], y[train])
        found.append(((y[test] - lasso.predict(C[test])) ** 2).mean())
    return np.array(found)


def test_cross_validation_is_that_by_hand(rows, targets):
    splits = list(KFold(4, shuffle=True, random_state=0).split(rows))
    columns = np.arange(0, 150, 10)
    got = model(nu="cv", cv=splits, columns=columns, n_nus=12, tol=1e-10, refit="never").fit(rows, targets)
    C = rbf_kernel(rows, rows[columns], gamma=GAMMA)
    # A relative gap of 1e-4 is all that is asked of a fold, but steps end on a face, exactly.
    for nu, errors in zip(got.cv_.nus, got.cv_.errors[:, :, 0], strict=True):
        np.testing.assert_allclose(errors, errors_by_hand(C, targets, splits, nu), rtol=1e-9)
    means = got.cv_.errors.mean(axis=(1, 2))
    assert got.nu_ == got.cv_.nu == got.cv_.nus[got.cv_.best]
    assert means.min() >= means[got.cv_.best] * (1 - 1e-4)  # what is better by less is not taken for better
    fixed = model(nu=got.nu_, columns=columns, tol=1e-10).fit(rows, targets)
    np.testing.assert_allclose(got.predict(rows), fixed.predict(rows), rtol=1e-10)


@pytest.mark.filterwarnings("ignore::dkl.errors.ConvergenceWarning")  # of an objective that is rounding
def test_the_path_goes_on_behind_its_end(rng):
    """Columns of very different lengths, and targets in their range: the least nu is the best, as there is no noise."""
    X = np.linalg.qr(rng.standard_normal((60, 12)))[0] * np.geomspace(1, 1e-6, 12)
    learner = LowRankKernelRegressor("linear", columns=np.eye(12), n_nus=10, fit_intercept=False, random_state=0)
    fitted = learner.fit(X, X @ np.geomspace(1, 1e6, 12))
    assert fitted.nu_ < fitted.nu_max_ * 1e-9 and len(fitted.cv_.nus) > 10
    assert fitted.cv_.errors[fitted.cv_.best].mean() < 1e-3 * fitted.cv_.errors[9].mean()
    np.testing.assert_array_equal(learner.path(X, X @ np.geomspace(1, 1e6, 12)).nus, fitted.cv_.nus)


@pytest.mark.filterwarnings("ignore::dkl.errors.ConvergenceWarning")
def test_what_keeps_the_path_from_going_on_is_told(rows, targets):
    learner = model(nu="cv", max_iter=2, refit="never")
    with pytest.warns(DataWarning, match="the last: .* max_iter ends the path"):
        fitted = learner.fit(rows, targets)
    assert fitted.cv_.edge is Outcome.ITERATION_LIMIT and fitted.nu_ == fitted.cv_.nus[-1]
    text = edge_text(replace(fitted.cv_, edge=Outcome.STALLED))
    assert f"nu={fitted.nu_:.6g}" in text and "rounding ends the path" in text


@pytest.mark.exhaustive
def test_splitters_lists_generators_and_masks_are_one(rows, targets):
    splits = list(KFold(3).split(rows))
    masks = [tuple(np.isin(np.arange(150), part) for part in split) for split in splits]
    want = model(nu="cv", cv=splits).fit(rows, targets)
    for cv in (KFold(3), iter(splits), masks, [(train[::-1], test[::-1]) for train, test in splits]):
        got = model(nu="cv", cv=cv).fit(rows, targets)
        assert got.nu_ == want.nu_
        np.testing.assert_array_equal(got.cv_.errors, want.cv_.errors)


def test_folds_are_dealt_among_rows_with_a_weight(rows, targets):
    """Few rows have one: every fold has its share of them, and the others change nothing."""
    few = np.zeros(150)
    few[::15] = 1.0
    columns = np.arange(0, 150, 15)
    got = model(nu="cv", columns=columns).fit(rows, np.where(few > 0, targets, 1e3), sample_weight=few)
    assert np.isfinite(got.cv_.errors).all() and got.cv_.errors.shape[1] == 5
    assert np.abs(got.predict(rows[::15]) - targets[::15]).max() < 10
    # No more folds than rows that have a weight.
    assert model(nu="cv", cv=50, columns=columns).fit(rows, targets, sample_weight=few).cv_.errors.shape[1] == 10


def test_a_fold_without_weight_is_told(rows, targets):
    weights = (np.arange(150) >= 50).astype(float)
    with pytest.raises(InputError, match="test set has no row with a weight"):
        model(nu="cv", cv=KFold(3)).fit(rows, targets, sample_weight=weights)


@pytest.mark.parametrize(("solver", "tol"), [("active-set", 1e-9), ("exact", 1e-6), ("newton", 1e-6)])
def test_the_path_has_the_models_of_fits(rows, targets, solver, tol):
    Y = np.stack([targets, rows[:, 2]], axis=1)
    nus = [0.01, 3.0, 0.3]
    learner = model(solver=solver, tol=tol)
    path = learner.path(rows, Y, nus=nus)
    np.testing.assert_array_equal(path.nus, [3.0, 0.3, 0.01])
    assert path.cv is None and path.weights.shape == (3, 2, 40) and (np.diff(path.n_active, axis=0) >= 0).all()
    for k, nu in enumerate(path.nus):
        fitted = clone(learner).set_params(nu=nu).fit(rows, Y)
        C = rbf_kernel(rows, rows[fitted.columns_], gamma=GAMMA)
        predicted = C @ path.weights[k].T + path.intercepts[k]
        # The objective F is |y - C w - c|^2 and more that is convex: F(w) - min F >= |C (w - w*) + c - c*|^2, and <= the gap.
        gaps = np.stack([path.gaps[k] * path.objectives[k], fitted.duality_gap_])
        rounding = 1e-12 * fitted.objective_
        apart = np.linalg.norm(predicted - fitted.predict(rows), axis=0)
        assert (apart <= np.sqrt(gaps).sum(axis=0) + 1e-12 * np.linalg.norm(Y, axis=0)).all()
        assert (np.abs(path.objectives[k] - fitted.objective_) <= gaps.max(axis=0) + rounding).all()
        np.testing.assert_allclose(path.errors[k], ((Y - predicted) ** 2).mean(axis=0), rtol=1e-10)
        assert (path.gaps[k] <= tol).all()


def test_the_path_by_default_starts_where_all_weights_are_zero(rows, targets):
    learner = model(nu="cv", n_nus=7, tol=1e-6)
    path = learner.path(rows, targets)
    fitted = learner.fit(rows, targets)
    assert path.nus[0] == pytest.approx(fitted.nu_max_) and len(path.nus) == 7
    assert path.n_active[0, 0] == 0 and path.n_active[1, 0] > 0
    np.testing.assert_array_equal(path.cv.errors, fitted.cv_.errors)
    assert path.cv.nu == fitted.nu_


def test_the_path_leaves_a_model_as_it_is(rows, targets):
    fitted = model()
    fitted.path(rows, targets, nus=[1.0])
    with pytest.raises(NotFittedError):
        fitted.predict(rows)
    want = fitted.fit(rows, targets).predict(rows)
    fitted.path(rows[:, :2], np.stack([targets, targets], axis=1), nus=[1.0])
    np.testing.assert_array_equal(fitted.predict(rows), want)


def test_a_nu_beyond_use_is_told(rows, targets):
    nu_max = model().fit(rows, targets).nu_max_
    C = rbf_kernel(rows, rows[model().fit(rows, targets).columns_], gamma=GAMMA)
    centred = targets - targets.mean()
    assert nu_max == pytest.approx(np.abs((C - C.mean(axis=0)).T @ centred).max() ** 2 / LAM)
    with pytest.warns(DataWarning, match="all weights are zero"):
        constant = model(nu=nu_max * 1.001).fit(rows, targets)
    assert constant.n_active_ == 0 and constant.coef_.shape == (0,) and constant.support_.shape == (0,)
    np.testing.assert_allclose(constant.predict(rows[:5]), targets.mean())
    assert model(nu=nu_max * 0.99).fit(rows, targets).n_active_ == 1


@pytest.mark.parametrize("nu", [NU, "cv"])
@pytest.mark.parametrize("value", [0.0, 0.1, 3.3, -1e6 / 3])
def test_constant_targets_give_that_constant(rows, nu, value):
    got = model(nu=nu).fit(rows, np.full(150, value))
    assert got.n_active_ == 0 and not got.weights_.any() and got.objective_ == got.duality_gap_ == 0
    np.testing.assert_array_equal(got.predict(rows), value)
    path = model(nu=nu, n_nus=3).path(rows, np.full(150, value))
    assert not path.weights.any() and (path.intercepts == value).all()


# -- columns ------------------------------------------------------------------------------------------------------------


def test_columns_are_row_numbers_or_points(rows, targets):
    numbers = np.array([5, 3, 100, 7])
    by_number, by_point = model(columns=numbers).fit(rows, targets), model(columns=rows[numbers]).fit(rows, targets)
    np.testing.assert_array_equal(by_number.columns_, numbers)
    np.testing.assert_array_equal(by_point.columns_, [-1] * 4)
    np.testing.assert_allclose(by_point.predict(rows), by_number.predict(rows), rtol=1e-10)
    np.testing.assert_array_equal(by_number.support_vectors_, rows[by_number.support_])
    in_fortran_order = model(columns=np.asfortranarray(rows[numbers])).fit(rows, targets)
    np.testing.assert_array_equal(in_fortran_order.predict(rows), by_point.predict(rows))
    assert model(columns=list(numbers)).fit(rows, targets).n_columns_ == 4
    assert model(columns=rows[:4].astype(int)).fit(rows, targets).n_columns_ == 4


def test_drawn_columns(rows, targets):
    all_rows = model(n_columns=10**6).fit(rows, targets)
    np.testing.assert_array_equal(all_rows.columns_, np.arange(150))
    weights = (np.arange(150) < 30).astype(float)
    np.testing.assert_array_equal(model().fit(rows, targets, sample_weight=weights).columns_, np.arange(30))
    pivoted = model(columns="rpcholesky", n_columns=25).fit(rows, targets)
    assert len(np.unique(pivoted.columns_)) == 25
    of_rank = model(columns="rpcholesky", kernel="linear", n_columns=25).fit(rows, targets)
    assert of_rank.n_columns_ == 3
    drawn = model(n_columns=25).fit(rows, targets)
    K = rbf_kernel(rows, gamma=GAMMA)

    def left(columns):
        return np.trace(K - K[:, columns] @ np.linalg.lstsq(K[np.ix_(columns, columns)], K[columns], rcond=1e-12)[0])

    assert left(pivoted.columns_) < left(drawn.columns_)


# -- edges --------------------------------------------------------------------------------------------------------------


def test_rows_that_are_there_many_times(rows, targets):
    few, y = np.repeat(rows[:15], 10, axis=0), np.repeat(targets[:15], 10)
    got = model(n_columns=150, tol=1e-8).fit(few, y)
    assert got.relative_gap_ <= 1e-8
    once = model(columns=np.arange(15), nu=NU).fit(rows[:15], targets[:15], sample_weight=np.full(15, 10.0))
    np.testing.assert_allclose(got.objective_, once.objective_, rtol=1e-6)


def test_rows_of_zeros_have_columns_of_zeros(rows, targets):
    X = rows.copy()
    X[40:] = 0
    got = model(kernel="linear", n_columns=150, nu=1e-3).fit(X, targets)
    assert (got.support_ < 40).all() and got.n_active_ <= 3
    nothing = model(kernel="linear").fit(np.zeros((150, 3)), targets)
    np.testing.assert_allclose(nothing.predict(rows), targets.mean())


def test_one_row(rows, targets):
    np.testing.assert_array_equal(model().fit(rows[:1], targets[:1]).predict(rows[:3]), targets[0])
    # |y - w|^2 + 2 kappa |w| on one column of one row.
    kappa = np.sqrt(LAM * NU)
    alone = model(fit_intercept=False).fit(rows[:1], targets[:1])
    assert alone.coef_[0] == pytest.approx(targets[0] - kappa)
    assert alone.weights_[0] == pytest.approx(np.sqrt(LAM / NU) * (targets[0] - kappa))


def test_what_is_fitted_without_warnings(rows, targets):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for y in (targets * 1e-150, targets * 1e100, targets + 1e8):
            model(nu="cv").fit(rows, y)


@pytest.mark.filterwarnings("ignore::dkl.errors.ConvergenceWarning")
@pytest.mark.parametrize("nu", [1e-6, "cv"])
def test_the_printed_algorithm_goes_to_the_same_optimum(rows, targets, nu):
    settings = {"n_columns": 12, "nu": 0.05 if nu != "cv" else nu, "fit_intercept": True}
    printed = model(solver="paper", stopping="paper", tol=1e-7, max_iter=300, **settings).fit(rows, targets)
    want = model(tol=1e-10, **settings).fit(rows, targets)
    assert printed.nu_ == want.nu_
    assert want.objective_ <= printed.objective_ * (1 + 1e-9)
    np.testing.assert_allclose(printed.objective_, want.objective_, rtol=1e-2)
