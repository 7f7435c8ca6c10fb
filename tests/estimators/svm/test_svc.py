"""The neighborhood classifier: scikit-learn's contract, SVC as its limit, weights, data of every form, and its path."""

import pickle
from functools import partial

import dask.array as da
import numpy as np
import pytest
import zarr
from numpy.testing import assert_allclose, assert_array_equal
from repeats import but_for, crossed
from scipy import sparse
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_iris
from sklearn.metrics.pairwise import laplacian_kernel, pairwise_kernels, rbf_kernel
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.utils.estimator_checks import parametrize_with_checks
from svm_cases import blobs, by_libsvm, f, problem

from dkl import OptimalNeighborhoodSVC
from dkl.errors import ConvergenceWarning
from dkl.problems.svm.problem import NeighborhoodSVM
from dkl.solvers.svm import working_set as svm_start

TIGHT = {"tol": 1e-10, "max_iter": 50_000}


TWICE = "the distance between G and K counts a row that is given twice twice: f has |alpha|^4"


def expected_to_fail(estimator):
    return {
        "check_sample_weight_equivalence_on_dense_data": TWICE,
        "check_sample_weight_equivalence_on_sparse_data": TWICE,
    }


@parametrize_with_checks([OptimalNeighborhoodSVC()], expected_failed_checks=expected_to_fail)
def test_contract(estimator, check):
    check(estimator)


@pytest.mark.exhaustive
@parametrize_with_checks(
    [
        OptimalNeighborhoodSVC(multi_class="ovr", solver="gradient", tol=1e-4),
        OptimalNeighborhoodSVC(kernel="linear", dtype="float32", tol=1e-4),
    ],
    expected_failed_checks=expected_to_fail,
)
def test_contract_by_other_settings(estimator, check):
    check(estimator)


@pytest.fixture
def iris():
    X, y = load_iris(return_X_y=True)
    return X[::2], y[::2]


@pytest.fixture
def binary(rng):
    X = rng.standard_normal((120, 4))
    return X, np.where(X[:, 0] + 0.8 * rng.standard_normal(120) > 0, "yes", "no")


# -- SVC as the limit -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kernel", [{"kernel": "rbf"}, {"kernel": "linear"}, {"kernel": "poly", "degree": 2, "coef0": 1.0}]
)
def test_binary_is_svc_at_infinite_rho(kernel, binary):
    X, y = binary
    ours = OptimalNeighborhoodSVC(C=0.7, rho=1e12, **kernel, **TIGHT).fit(X, y)
    theirs = SVC(C=0.7, tol=1e-10, **kernel).fit(X, y)
    assert_allclose(ours.decision_function(X), theirs.decision_function(X), atol=1e-5)
    assert_array_equal(ours.predict(X), theirs.predict(X))
    assert_array_equal(ours.classes_, theirs.classes_)
    assert ours.relative_gap_[0] <= 1e-10


@pytest.mark.parametrize("gamma", ["scale", "auto", 0.7])
@pytest.mark.parametrize("kernel", ["rbf", "sigmoid"])
def test_gamma_is_svcs(kernel, gamma, binary):
    X, y = binary
    if kernel == "sigmoid" and gamma != 0.7:
        gamma, X = 1e-3, X  # sigmoid is no kernel at larger ones
    elif kernel == "sigmoid":
        gamma = 1e-4
    ours = OptimalNeighborhoodSVC(rho=1e12, kernel=kernel, gamma=gamma, **TIGHT).fit(X, y)
    theirs = SVC(kernel=kernel, gamma=gamma, tol=1e-10).fit(X, y)
    assert_allclose(ours.decision_function(X), theirs.decision_function(X), atol=1e-5)


@pytest.mark.parametrize("shape", ["ovo", "ovr"])
@pytest.mark.parametrize("classes", [3, 5])
def test_one_against_one_is_svc_at_infinite_rho(classes, shape, rng):
    X, y = blobs(rng, 90, classes)
    Z = 2 * rng.standard_normal((200, 3))
    ours = OptimalNeighborhoodSVC(rho=1e12, decision_function_shape=shape, **TIGHT).fit(X, y)
    theirs = SVC(tol=1e-10, decision_function_shape=shape).fit(X, y)
    assert_allclose(ours.decision_function(Z), theirs.decision_function(Z), atol=1e-5)
    assert_array_equal(ours.predict(Z), theirs.predict(Z))
    assert len(ours.intercept_) == classes * (classes - 1) // 2


def test_one_against_the_rest_is_a_machine_a_class(rng):
    X, y = blobs(rng, 90, 4)
    Z = 2 * rng.standard_normal((100, 3))
    ours = OptimalNeighborhoodSVC(rho=1e12, multi_class="ovr", **TIGHT).fit(X, y)
    theirs = np.column_stack([SVC(tol=1e-10).fit(X, y == k).decision_function(Z) for k in range(4)])
    assert_allclose(ours.decision_function(Z), theirs, atol=1e-5)
    assert_array_equal(ours.predict(Z), theirs.argmax(axis=1))


@pytest.mark.parametrize(("solver", "rho"), crossed(["accelerated", "gradient", "level"], [0.1, 10.0]))
def test_finite_rho(solver, rho, binary):
    """The learned machine by LIBSVM; a new point has no coordinate of the learned kernel's own."""
    X, y = binary
    sign = np.where(y == "yes", 1.0, -1.0)
    gamma = 1 / (4 * X.var())
    of = problem(rbf_kernel(X, gamma=gamma), sign, 2.0, rho)
    alpha, b = by_libsvm(of)
    Z = X[:30] + 0.1
    tol = 1e-6 if solver == "level" else 1e-8
    ours = OptimalNeighborhoodSVC(C=2.0, rho=rho, solver=solver, tol=tol).fit(X, y)
    assert ours.objective_[0] == pytest.approx(f(of, alpha), rel=tol)
    if solver != "level":  # its alpha is good to the root of tol
        assert_allclose(ours.decision_function(Z), rbf_kernel(Z, X, gamma=gamma) @ (sign * alpha) + b, atol=1e-4)
    assert ours.duality_gap_[0] <= tol * abs(ours.objective_[0])
    assert_array_equal(ours.predict(Z), np.where(ours.decision_function(Z) > 0, "yes", "no"))


def test_smaller_rho_shrinks_the_coefficients(binary):
    X, y = binary
    sizes = [np.linalg.norm(OptimalNeighborhoodSVC(rho=rho).fit(X, y).dual_coef_) for rho in (0.01, 1.0, 100.0, 1e6)]
    assert sizes == sorted(sizes)


# -- labels and weights -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("labels", [["a", "b", "c"], [-7, 0, 1000], [1.0, 2.0, 3.0], np.array(["x", "y", "z"], object)])
def test_labels_of_every_kind(labels, iris):
    X, y = iris
    named = np.asarray(labels)[y]
    fitted = OptimalNeighborhoodSVC().fit(X, named)
    assert_array_equal(fitted.classes_, np.unique(named))
    plain = OptimalNeighborhoodSVC().fit(X, y)
    assert_array_equal(fitted.predict(X), np.asarray(labels)[plain.predict(X)])


def test_two_classes_of_booleans(binary):
    X, y = binary
    assert OptimalNeighborhoodSVC().fit(X, y == "yes").predict(X).dtype == bool


@pytest.mark.parametrize("weight", [{"yes": 3.0, "no": 0.5}, {"yes": 2.0}, "balanced"])
def test_class_weight_is_svcs(weight, binary):
    X, y = binary
    X, y = X[20:], np.where(np.arange(100) < 30, "yes", y[20:])
    ours = OptimalNeighborhoodSVC(rho=1e12, class_weight=weight, **TIGHT).fit(X, y)
    theirs = SVC(class_weight=weight, tol=1e-10).fit(X, y)
    assert_allclose(ours.decision_function(X), theirs.decision_function(X), atol=1e-5)
    assert_allclose(ours.class_weight_, theirs.class_weight_)


def test_sample_weight_is_svcs(rng):
    X, y = blobs(rng, 90, 3)
    weights = rng.uniform(0.1, 3.0, 90)
    ours = OptimalNeighborhoodSVC(rho=1e12, **TIGHT).fit(X, y, sample_weight=weights)
    theirs = SVC(tol=1e-10).fit(X, y, sample_weight=weights)
    shape = {"decision_function_shape": "ovo"}
    assert_allclose(
        ours.set_params(**shape).decision_function(X), theirs.set_params(**shape).decision_function(X), atol=1e-5
    )


@pytest.mark.parametrize("scheme", ["ovo", "ovr"])
def test_weight_zero_drops_a_row(scheme, rng):
    X, y = blobs(rng, 90, 3)
    weights = rng.choice([0.0, 1.0, 2.0], 90)
    kept = weights > 0
    given = OptimalNeighborhoodSVC(gamma=0.3, multi_class=scheme, **TIGHT).fit(X, y, sample_weight=weights)
    without = OptimalNeighborhoodSVC(gamma=0.3, multi_class=scheme, **TIGHT).fit(
        X[kept], y[kept], sample_weight=weights[kept]
    )
    assert_allclose(given.objective_, without.objective_, rtol=1e-9)
    assert_allclose(given._decisions(X), without._decisions(X), atol=1e-6)
    assert set(given.support_) <= set(np.flatnonzero(kept))


# -- kernels and forms of data ----------------------------------------------------------------------------------------


def test_kernels_of_every_form_are_one(binary, tmp_path):
    X, y = binary
    Z = X[:40] + 0.05
    K, across = laplacian_kernel(X, gamma=0.4), laplacian_kernel(Z, X, gamma=0.4)
    wanted = OptimalNeighborhoodSVC(kernel="laplacian", gamma=0.4).fit(X, y).decision_function(Z)
    given = OptimalNeighborhoodSVC(kernel="precomputed").fit(K, y)
    assert_allclose(given.decision_function(across), wanted, atol=1e-8)
    assert not hasattr(given, "support_vectors_")
    called = OptimalNeighborhoodSVC(kernel=laplacian_kernel, kernel_params={"gamma": 0.4}).fit(X, y)
    assert_allclose(called.decision_function(Z), wanted, atol=1e-8)
    of_rows = partial(pairwise_kernels, metric=lambda a, b: np.exp(-0.4 * np.abs(a - b).sum()))
    pairwise = OptimalNeighborhoodSVC(kernel=of_rows).fit(X, y)
    assert_allclose(pairwise.decision_function(Z), wanted, atol=1e-8)
    rounded = OptimalNeighborhoodSVC(kernel="precomputed").fit(K.astype(np.float32), y)
    assert_allclose(rounded.decision_function(across), wanted, atol=1e-4)


@pytest.mark.parametrize("form", ["CSR", "CSC", "memory map", "zarr", "dask", "Fortran", "list", "path"])
def test_data_of_every_form(form, binary, tmp_path):
    X, y = binary
    X = X * (np.abs(X) > 0.3)
    np.save(tmp_path / "X.npy", X)
    stored = zarr.create_array(str(tmp_path / "X.zarr"), shape=X.shape, chunks=(50, 4), dtype="f8")
    stored[...] = X
    forms = {
        "CSR": lambda: sparse.csr_array(X),
        "CSC": lambda: sparse.csc_matrix(X),
        "memory map": lambda: np.load(tmp_path / "X.npy", mmap_mode="r"),
        "zarr": lambda: stored,
        "dask": lambda: da.from_array(X, chunks=(33, 4)),
        "Fortran": lambda: np.asfortranarray(X),
        "list": lambda: X.tolist(),
        "path": lambda: str(tmp_path / "X.npy"),
    }
    plain = OptimalNeighborhoodSVC().fit(X, y)
    fitted = OptimalNeighborhoodSVC().fit(forms[form](), y)
    assert_allclose(fitted.decision_function(forms[form]()), plain.decision_function(X), atol=1e-6)
    assert fitted.n_features_in_ == 4
    assert sparse.issparse(fitted.support_vectors_) == (form in ("CSR", "CSC"))


def test_single_precision_tells_the_gap_in_double(binary):
    X, y = binary
    fitted = OptimalNeighborhoodSVC(dtype="float32", rho=10.0, gamma=0.3, tol=1e-5).fit(X, y)
    sign = np.where(y == "yes", 1.0, -1.0)
    alpha = np.zeros(120)
    alpha[fitted.support_] = np.abs(fitted.dual_coef_[0])
    of = problem(rbf_kernel(X, gamma=0.3), sign, 1.0, 10.0)
    point = NeighborhoodSVM(of.kernel, sign, np.ones(120), 10.0).at(alpha)
    assert fitted.objective_[0] == pytest.approx(f(of, alpha), rel=1e-12)
    assert fitted.duality_gap_[0] == pytest.approx(point.gap, rel=1e-6)
    assert 0 < fitted.relative_gap_[0] < 1e-4


def test_single_precision_tells_the_gap_of_the_kernels_weights_in_double_too(binary):
    """The weights' part, max_k q_k - theta'q, is a difference of large numbers: rounded entries of K show in it at once."""
    X, y = binary
    fitted = OptimalNeighborhoodSVC(
        dtype="float32", rho=10.0, kernel=["rbf", "poly"], gamma=0.3, degree=2, coef0=2.0, tol=1e-5
    ).fit(X, y)
    sign = np.where(y == "yes", 1.0, -1.0)
    alpha = np.zeros(120)
    alpha[fitted.support_] = np.abs(fitted.dual_coef_[0])
    K = [rbf_kernel(X, gamma=0.3), pairwise_kernels(X, metric="poly", gamma=0.3, degree=2, coef0=2.0)]
    traces = np.array([np.trace(part) / 120 for part in K])
    of = problem(np.tensordot(fitted.kernel_weights_[0], K, 1), sign, 1.0, 10.0)
    q = np.array([sign * alpha @ part @ (sign * alpha) for part in K]) / traces
    gap = NeighborhoodSVM(of.kernel, sign, np.ones(120), 10.0).at(alpha).gap
    gap += max(q.max() - fitted.kernel_weights_[0] * traces @ q, 0.0)
    assert fitted.duality_gap_[0] == pytest.approx(gap, rel=1e-6, abs=1e-12 * q.max())


# -- in scikit-learn's hands ------------------------------------------------------------------------------------------


def test_pipeline_and_grid_search(iris):
    X, y = iris
    grid = {"optimalneighborhoodsvc__C": [0.1, 1.0], "optimalneighborhoodsvc__rho": [0.1, 100.0]}
    search = GridSearchCV(make_pipeline(StandardScaler(), OptimalNeighborhoodSVC()), grid, cv=3).fit(X, y)
    assert search.best_score_ > 0.9
    assert search.best_params_.keys() == grid.keys()


def test_precomputed_kernels_are_cut_on_both_sides_in_cross_validation(iris):
    X, y = iris
    by_kernel = cross_val_score(OptimalNeighborhoodSVC(kernel="precomputed"), rbf_kernel(X, gamma=0.2), y, cv=3)
    assert_allclose(by_kernel, cross_val_score(OptimalNeighborhoodSVC(gamma=0.2), X, y, cv=3))


def test_probabilities_by_the_standard_wrapper(iris):
    X, y = iris
    found = CalibratedClassifierCV(OptimalNeighborhoodSVC(), ensemble=False, cv=3).fit(X, y).predict_proba(X)
    assert_allclose(found.sum(axis=1), 1)
    assert (found.argmax(axis=1) == y).mean() > 0.9


def test_clone_and_pickle(iris):
    X, y = iris
    fitted = OptimalNeighborhoodSVC(C=3.0, rho=7.0, class_weight="balanced").fit(X, y)
    again = pickle.loads(pickle.dumps(fitted))
    assert_array_equal(again.decision_function(X), fitted.decision_function(X))
    bare = clone(fitted)
    assert bare.get_params() == fitted.get_params() and not hasattr(bare, "classes_")


def test_the_same_fit_has_the_same_bits(binary):
    X, y = binary
    one, two = OptimalNeighborhoodSVC(n_jobs=1).fit(X, y), OptimalNeighborhoodSVC(n_jobs=2).fit(X, y)
    assert_array_equal(one.dual_coef_, two.dual_coef_)
    assert_array_equal(one.intercept_, two.intercept_)


def test_callbacks_and_the_end_that_is_told(binary, capfd):
    X, y = binary
    rows = []
    with pytest.warns(ConvergenceWarning, match="iteration_limit.*max_iter"):
        fitted = OptimalNeighborhoodSVC(max_iter=3, tol=1e-12, callbacks=rows.append).fit(X, y)
    assert rows and rows[0]["stage"] == "machine 1 of 1"
    assert not fitted.result_.outcome.converged and fitted.n_iter_ == 3
    OptimalNeighborhoodSVC(verbose=1).fit(X, y)
    assert "machine 1 of 1" in "".join(capfd.readouterr())


def test_a_callback_may_end_it_before_any_step(binary):
    X, y = binary
    fitted = OptimalNeighborhoodSVC(callbacks=lambda row: True).fit(X, y)
    assert fitted.result_.outcome.value == "stopped_by_callback" and fitted.support_.shape == (0,)
    assert fitted.support_vectors_.shape == (0, X.shape[1]) and fitted.predict(X[:3]).shape == (3,)


# -- path -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scheme", "solver"),
    but_for([("ovo", "gradient")], [("ovo", "accelerated"), ("ovr", "accelerated"), ("ovo", "gradient")]),
)
def test_path_is_what_fits_one_by_one_find(scheme, solver, iris, monkeypatch):
    monkeypatch.setattr(svm_start, "MAX_ROWS", 0)  # whose few rounds a start does not make fewer
    X, y = iris
    Cs, rhos = [10.0, 0.1, 1.0], [1.0, 1000.0]
    model = OptimalNeighborhoodSVC(multi_class=scheme, solver=solver, tol=1e-7)
    path = model.path(X, y, Cs, rhos)
    assert not hasattr(model, "classes_")
    assert path.objectives.shape == path.gaps.shape == path.intercepts.shape == (3, 2, 3)
    assert path.coefficients.shape == (3, 2, 3, len(X))
    assert (path.gaps <= 1e-7).all()
    cold = 0
    for i, C in enumerate(Cs):
        for j, rho in enumerate(rhos):
            alone = clone(model).set_params(C=C, rho=rho).fit(X, y)
            assert_allclose(path.objectives[i, j], alone.objective_, rtol=1e-7)
            of_grid = path.model(i, j)
            assert (of_grid.C, of_grid.rho) == (C, rho)
            assert_allclose(of_grid._decisions(X), alone._decisions(X), atol=2e-3)
            assert of_grid.score(X, y) == pytest.approx(alone.score(X, y), abs=0.02)
            assert_allclose(of_grid.intercept_, path.intercepts[i, j])
            cold += sum(row["products"] for row in last_rows(alone.result_.history))
    assert path.products.sum() < cold


def last_rows(history):
    return {row["machine"]: row for row in history}.values()


def test_path_with_weights_and_a_precomputed_kernel(rng):
    X, y = blobs(rng, 60, 2)
    weights = rng.choice([0.0, 1.0, 2.0], 60)
    K = pairwise_kernels(X, metric="rbf", gamma=0.5)
    model = OptimalNeighborhoodSVC(kernel="precomputed", class_weight="balanced", tol=1e-9)
    path = model.path(K, y, 2.0, [1.0, 10.0], sample_weight=weights)
    alone = clone(model).set_params(C=2.0, rho=10.0).fit(K, y, sample_weight=weights)
    assert_allclose(path.objectives[0, 1], alone.objective_, rtol=2e-9)
    assert (path.coefficients[..., weights == 0] == 0).all()
    assert_array_equal(path.model(0, 1).predict(K), alone.predict(K))


def test_path_leaves_the_model_alone(iris):
    X, y = iris
    fitted = OptimalNeighborhoodSVC(C=5.0).fit(X, y)
    before = pickle.dumps(fitted.dual_coef_)
    path = fitted.path(X[:, :2], y == 0, [1.0], [1.0])
    assert pickle.dumps(fitted.dual_coef_) == before and fitted.n_features_in_ == 4 and len(fitted.classes_) == 3
    assert path.model(0, 0).n_features_in_ == 2
