"""`kernel_matrix` of each learner: the kernel that it says that it learned, for rows learned from and for others."""

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.kernel_ridge import KernelRidge
from sklearn.metrics.pairwise import pairwise_kernels
from sklearn.preprocessing import KernelCenterer
from sklearn.svm import SVC

import dkl
from dkl.errors import InputError


@pytest.fixture
def rows(rng):
    """Rows (60, 3) of two groups, 12 fresh ones, and the groups of the 60."""
    y = np.arange(72) % 2
    X = rng.normal(size=(72, 3)) + 2.0 * y[:, None]
    return X[:60], X[60:], y[:60]


def machine(**how):
    return dkl.OptimalNeighborhoodSVC(
        **{"C": 3.0, "rho": 20.0, "gamma": 0.3, "standardize": False, "tol": 1e-10, "holdout": 0, **how}
    )


@pytest.mark.parametrize("multi", [False, True])
def test_svc_on_the_learned_kernel_is_the_machine(rows, rng, multi):
    """A machine of (3) is scikit-learn's SVC on G of (5); a row not learned from has its value under k alone."""
    X, fresh, y = rows
    labels = np.where(X[:, 0] > 2.5, 2, y) if multi else y
    model = machine().fit(X, labels)
    for number in range(len(model.dual_coef_)):
        i, j = [(0, 1), (0, 2), (1, 2)][number]
        chosen = np.flatnonzero((labels == i) | (labels == j))
        K = pairwise_kernels(X, metric="rbf", gamma=0.3)
        G = model.kernel_matrix(X, machine=number)
        alone = SVC(C=3.0, kernel="precomputed", tol=1e-9).fit(
            G[np.ix_(chosen, chosen)], labels[chosen] == (i if multi else j)
        )
        beta = np.zeros(60)
        beta[chosen[alone.support_]] = alone.dual_coef_[0]
        assert model.rho_[number] == 20
        np.testing.assert_allclose(G, K + np.outer(beta, beta) / 40, atol=2e-3)
        assert np.linalg.matrix_rank(G - K, tol=1e-9) == 1
        np.testing.assert_allclose(
            model.kernel_matrix(fresh, X, machine=number), pairwise_kernels(fresh, X, metric="rbf", gamma=0.3)
        )
        decided = G[np.ix_(chosen, model.support_)] @ model.dual_coef_[number] + model.intercept_[number]
        np.testing.assert_allclose(decided, alone.decision_function(G[np.ix_(chosen, chosen)]), atol=5e-3)


def test_rows_learned_from_are_known_by_value_or_by_number(rows):
    X, fresh, y = rows
    model = machine().fit(X, y)
    G = model.kernel_matrix(X)
    some = np.array([7, 3, 41])
    mixed = np.vstack([X[some], fresh[:2]])
    by_value = model.kernel_matrix(mixed)
    np.testing.assert_array_equal(by_value, model.kernel_matrix(mixed, rows=[7, 3, 41, -1, -1]))
    np.testing.assert_allclose(by_value[:3, :3], G[np.ix_(some, some)], rtol=1e-14)
    np.testing.assert_array_equal(by_value, by_value.T)
    np.testing.assert_array_equal(
        model.kernel_matrix(sp.csr_array(mixed)), model.kernel_matrix(sp.csr_array(mixed), rows=[7, 3, 41, -1, -1])
    )
    unseen = model.kernel_matrix(X, rows=np.full(60, -1))
    np.testing.assert_allclose(unseen, pairwise_kernels(X, metric="rbf", gamma=0.3))


def test_a_row_with_both_labels_must_be_said(rows):
    X, _, y = rows
    X, y = np.vstack([X, X[:1]]), np.append(y, 1 - y[0])
    model = machine().fit(X, y)
    with pytest.raises(InputError, match=r"X\[0\].*equals several rows.*rows="):
        model.kernel_matrix(X)
    G = model.kernel_matrix(X, rows=np.arange(61))
    e = np.zeros(61)
    e[model.support_] = model.dual_coef_[0] / np.sqrt(40)
    np.testing.assert_allclose(G - pairwise_kernels(X, metric="rbf", gamma=0.3), np.outer(e, e), atol=1e-14)


def test_precomputed_kernels_tell_by_number_alone(rows):
    X, fresh, y = rows
    K = pairwise_kernels(X, metric="rbf", gamma=0.3)
    model = machine(kernel="precomputed").fit(K, y)
    by_rows = machine().fit(X, y)
    np.testing.assert_allclose(model.kernel_matrix(K, rows=range(60)), by_rows.kernel_matrix(X), atol=1e-6)
    with pytest.raises(InputError, match="rows=, of each row of X its number"):
        model.kernel_matrix(K)
    with pytest.raises(InputError, match="no Z"):
        model.kernel_matrix(K, K, rows=range(60))
    lazy = model.kernel_matrix(K, rows=range(60), lazy=True)
    np.testing.assert_array_equal(lazy, model.kernel_matrix(K, rows=range(60)))


@pytest.mark.parametrize("given", [[0, 1], np.zeros(60), np.full(60, -2), np.zeros((60, 1), int)])
def test_row_numbers_are_checked(rows, given):
    X, _, y = rows
    with pytest.raises(InputError, match="rows: not row numbers"):
        machine().fit(X, y).kernel_matrix(X, rows=given)


@pytest.mark.parametrize("given", [None, 3, -1, True, 1.0])
def test_machines_and_outputs_are_checked(rows, given):
    X, _, y = rows
    model = machine().fit(X, np.where(X[:, 0] > 2.5, 2, y))
    with pytest.raises(InputError, match="machine.*wanted 0 to 2"):
        model.kernel_matrix(X, machine=given)
    of_outputs = dkl.LowRankKernelRegressor(nu=0.1, n_columns=5, random_state=0, holdout=0).fit(X, X)
    with pytest.raises(InputError, match="output.*wanted 0 to 2"):
        of_outputs.kernel_matrix(X, output=given)


@pytest.mark.filterwarnings("ignore:not converged .stalled.")  # to less than rounding lets be proven
@pytest.mark.parametrize("refit", ["never", "all"])
@pytest.mark.parametrize("flat", [True, False])
@pytest.mark.parametrize("intercept", [True, False])
def test_ridge_on_the_learned_columns_kernel_is_the_lasso(rows, refit, flat, intercept):
    """(16): f(x) = k_mu(x, X) (K_mu + lambda I)^-1 y, whatever refit follows; with an intercept, k_mu and y centered."""
    X, fresh, _ = rows
    Y = np.column_stack([np.sin(X[:, 0]), X[:, 1] * X[:, 2]])
    y = Y[:, 0] if flat else Y
    how = {
        "fit_intercept": intercept,
        "lam": 0.7,
        "n_columns": 25,
        "gamma": 0.2,
        "standardize": False,
        "tol": 1e-12,
        "random_state": 0,
        "holdout": 0,
    }
    model = dkl.LowRankKernelRegressor(nu="cv", cv=3, refit=refit, **how).fit(X, y)
    lasso = (
        dkl.LowRankKernelRegressor(nu=model.nu_, refit="never", **how).fit(X, y).predict(fresh).reshape(len(fresh), -1)
    )
    for output in range(1 if flat else 2):
        K, across = model.kernel_matrix(X, output=output), model.kernel_matrix(fresh, X, output=output)
        assert np.linalg.matrix_rank(K) <= np.count_nonzero(np.atleast_2d(model.weights_)[output])
        target, mean = Y[:, output], 0.0
        if intercept:
            centerer, mean = KernelCenterer().fit(K), target.mean()
            K, across = centerer.transform(K), centerer.transform(across)
        ridge = KernelRidge(alpha=0.7, kernel="precomputed").fit(K, target - mean)
        np.testing.assert_allclose(ridge.predict(across) + mean, lasso[:, output], atol=1e-7)


def test_all_components_are_the_centered_kernel(rows):
    X, fresh, _ = rows
    model = dkl.KernelPCA(n_components=59, kernel="poly", degree=2, gamma=0.1, coef0=1, holdout=0, random_state=0).fit(
        X
    )
    K = pairwise_kernels(X, metric="poly", degree=2, gamma=0.1, coef0=1)
    centerer = KernelCenterer().fit(K)
    np.testing.assert_allclose(model.kernel_matrix(X), centerer.transform(K), atol=1e-9)
    across = centerer.transform(pairwise_kernels(fresh, X, metric="poly", degree=2, gamma=0.1, coef0=1))
    np.testing.assert_allclose(model.kernel_matrix(fresh, X), across, atol=1e-9)


def test_a_metric_s_kernel_has_its_distances(rows):
    X, fresh, y = rows
    model = dkl.LogDetMetricLearner(random_state=0, holdout=0).fit(X, y)
    K = model.kernel_matrix(X)
    pairs = np.stack([X[:30], X[30:]], axis=1)
    distances = np.sqrt(K[range(30), range(30)] + K[range(30, 60), range(30, 60)] - 2 * K[range(30), range(30, 60)])
    np.testing.assert_allclose(distances, model.pair_distance(pairs), rtol=1e-8)
    np.testing.assert_allclose(model.kernel_matrix(fresh, X), model.kernel_matrix(np.vstack([fresh, X]))[:12, 12:])


def test_kernels_of_pairs_are_those_of_the_factor(rows):
    X, fresh, y = rows
    pairs = np.array([(i, j) for i in range(0, 60, 5) for j in range(1, 60, 7) if i != j])
    alike = y[pairs[:, 0]] == y[pairs[:, 1]]
    given = {"must_link": pairs[alike], "cannot_link": pairs[~alike]}
    model = dkl.PairwiseKernelLearner(random_state=0, holdout=0).fit(X, **given)
    V = np.asarray(model.factor_)
    np.testing.assert_allclose(model.kernel_matrix(X), V @ V.T, rtol=1e-12)
    np.testing.assert_allclose(np.diagonal(model.kernel_matrix(fresh)), 1.0)  # K(x, x) = 1, as the pairs' model has it
    smooth = dkl.LaplacianKernelLearner(random_state=0, holdout=0).fit(X, **given)
    np.testing.assert_allclose(
        smooth.kernel_matrix(X), smooth.basis_ @ smooth.basis_kernel_ @ smooth.basis_.T, atol=1e-8
    )
    np.testing.assert_allclose(smooth.kernel_matrix(fresh, X), smooth.transform(fresh) @ smooth.embedding_.T)


LAZY = {
    "svc": lambda X, y: machine().fit(X, y),
    "regression": lambda X, y: dkl.LowRankKernelRegressor(nu=0.05, n_columns=20, random_state=0, holdout=0).fit(X, y),
    "pca": lambda X, y: dkl.KernelPCA(n_components=3, random_state=0, holdout=0).fit(X),
    "logdet": lambda X, y: dkl.LogDetKernelLearner(random_state=0, holdout=0).fit(X, y),
    "graph": lambda X, y: dkl.LogDetKernelLearner(kernel="laplacian", random_state=0, holdout=0).fit(X, y),
    "metric": lambda X, y: dkl.LogDetMetricLearner(random_state=0, holdout=0).fit(X, y),
    "unfolding": lambda X, y: dkl.MaximumVarianceUnfolding(random_state=0, holdout=0).fit(X),
}


@pytest.mark.parametrize("name", LAZY)
def test_a_lazy_kernel_is_computed_by_blocks(name, rows, monkeypatch):
    X, fresh, y = rows
    model = LAZY[name](X, y)
    monkeypatch.setattr("dkl.blocks.rows.predictions.BLOCK", 25)
    for given in ((X,), (fresh, X)):
        lazy, whole = model.kernel_matrix(*given, lazy=True), model.kernel_matrix(*given)
        assert isinstance(lazy, da.Array) and lazy.shape == whole.shape and lazy.dtype == whole.dtype
        assert max(lazy.chunksize) == 25
        np.testing.assert_allclose(lazy.compute(), whole, rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(lazy[3:9, 2].compute(), whole[3:9, 2], rtol=1e-10, atol=1e-12)


def test_no_learner_answers_before_it_is_fitted(rows):
    from sklearn.exceptions import NotFittedError

    X, _, _ = rows
    for learner in (
        dkl.OptimalNeighborhoodSVC, dkl.LowRankKernelRegressor, dkl.KernelPCA, dkl.LogDetKernelLearner, dkl.LogDetMetricLearner,
        dkl.MaximumVarianceUnfolding, dkl.LaplacianKernelLearner, dkl.PairwiseKernelLearner,
    ):  # fmt: skip
        with pytest.raises(NotFittedError):
            learner().kernel_matrix(X)


@pytest.mark.parametrize("kernel", ["rbf", "linear", "poly"])
def test_a_kernel_of_rows_that_overflows_is_refused_by_row_and_column(kernel, rows):
    X, fresh, y = rows
    model = dkl.LogDetKernelLearner(kernel=kernel, holdout=0, random_state=0).fit(X, y)
    fresh = np.array(fresh)
    fresh[4, 1] = -1e200
    words = r"^X\[4, 1\]: a value is so large that distances overflow; got -1e\+200"
    for answer in (model.kernel_matrix, *([] if kernel == "linear" else [model.transform])):
        with pytest.raises(InputError, match=words):
            answer(fresh)
    with pytest.raises(InputError, match=words.replace("X", "Z")):
        model.kernel_matrix(X * 1e150 if kernel == "linear" else X, fresh)


def test_coordinates_whose_products_overflow_are_refused(rows):
    X, fresh, y = rows
    model = dkl.LogDetMetricLearner(holdout=0, random_state=0).fit(X, y)
    fresh = np.array(fresh)
    fresh[4, 1] = -1e200
    for given in ((fresh,), (X * 1e150, fresh)):
        with pytest.raises(InputError, match="values are so large that the kernel overflows"):
            model.kernel_matrix(*given)


@pytest.mark.parametrize("large", [1e200, np.nan])
def test_lazy_blocks_refuse_what_all_values_at_once_refuse(rows, large, monkeypatch):
    monkeypatch.setattr("dkl.blocks.rows.predictions.BLOCK", 16)
    X, fresh, y = rows
    bad = X.copy()
    bad[40, 1] = large
    what = "a value is so large" if large == large else "Input X contains NaN"
    for model in (
        machine().fit(X, y),
        dkl.LowRankKernelRegressor(nu=0.1, holdout=0, standardize=False).fit(X, y),
        dkl.LogDetKernelLearner(holdout=0, standardize=False).fit(X, y),
        dkl.PairwiseKernelLearner(holdout=0, standardize=False, random_state=0).fit(X, y),
    ):
        for given, place in (((bad, fresh), "X"), ((fresh, bad), "Z"), ((bad,), "X")):
            for lazy in (False, True):
                with pytest.raises(InputError, match=rf"^{place}\[40, 1\]: {what}"):
                    np.asarray(model.kernel_matrix(*given, lazy=lazy))
    assert machine().fit(X, y).kernel_matrix(X, fresh, lazy=True).compute().shape == (60, 12)


def test_coordinates_whose_products_overflow_are_refused_lazily(rows):
    model = dkl.LogDetMetricLearner(holdout=0, standardize=False).fit(rows[0], rows[2])
    for lazy in (False, True):
        with pytest.raises(InputError, match="^X: values are so large that the kernel overflows"):
            np.asarray(model.kernel_matrix(rows[0] * 1e160, lazy=lazy))
