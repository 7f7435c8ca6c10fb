"""LogDetKernelLearner and LogDetMetricLearner as scikit-learn users meet them, against a general minimiser and by hand."""

import copy
import pickle
from functools import partial

import numpy as np
import pytest
import scipy.sparse as sp
import sklearn
from logdet_oracle import itml_loss, least, log_loss
from numpy.testing import assert_allclose
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.decomposition import KernelPCA
from sklearn.metrics.pairwise import laplacian_kernel, pairwise_kernels, rbf_kernel
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.neighbors import KNeighborsClassifier, NearestNeighbors
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from tailed_rows import tailed_rows

import dkl
from dkl.errors import ConvergenceWarning, DataWarning, InputError, MemoryBudgetError
from dkl.estimators.base.rules import PAIR_LOSSES, TRIPLET_LOSSES
from dkl.solvers.watch import Outcome

N = 7
MUST, CANNOT = [[0, 1], [2, 3], [5, 1]], [[0, 4], [1, 2], [3, 6], [5, 2]]
TRIPLETS = [[0, 1, 2], [1, 0, 4], [2, 3, 5], [5, 6, 0], [3, 2, 1]]
BOUNDS = {"upper": 1.0, "lower": 4.0}


@pytest.mark.filterwarnings("ignore")  # the checks' data sets are tiny
@parametrize_with_checks([dkl.LogDetKernelLearner(n_in=3, n_out=3, tol=1e-3)])
def test_scikit_learn_s_contract(estimator, check):
    check(estimator)


@pytest.mark.exhaustive
@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks([dkl.LogDetKernelLearner(tol=1e-3), dkl.LogDetMetricLearner(tol=1e-3)])
def test_scikit_learn_s_contract_by_other_settings(estimator, check):
    check(estimator)


@pytest.fixture
def X(rng):
    return rng.normal(size=(N, 3))


@pytest.fixture(scope="module")
def iris():
    X, y = load_iris(return_X_y=True)
    unlabelled = np.arange(150) % 3 != 0
    return X, np.where(unlabelled, -1, y), y, unlabelled


@pytest.fixture(scope="module")
def fitted(iris):
    """Near the graph's kernel, of a third of iris' labels."""
    model = dkl.LogDetKernelLearner(1.0, kernel="laplacian", n_in=4, n_out=4, n_components=10)
    return model.fit(iris[0], iris[1])


# The problem that is solved.


@pytest.mark.parametrize("solver", ["pcg", "direct"])
def test_the_kernel_is_the_least_point(solver, X):
    K0 = X @ X.T + np.eye(N)
    model = dkl.LogDetKernelLearner(30.0, kernel="precomputed", solver=solver, tol=1e-10).fit(K0, triplets=TRIPLETS)
    best, wanted = least(K0, lambda K: 30.0 / N * log_loss(K, TRIPLETS))
    assert model.certificate_.objective == pytest.approx(best, rel=1e-8)
    assert model.certificate_.bound <= best * (1 + 1e-9)
    assert model.result_.outcome is Outcome.SOLVED and model.certificate_.relative_gap <= 1e-10
    assert_allclose(model.kernel_matrix(K0), wanted, rtol=1e-3, atol=1e-4)


def test_the_metric_is_the_least_point(X):
    W0 = np.linalg.inv(np.cov(X, rowvar=False))
    settings = {"prior": "covariance", "normalize_gamma": False, "loss_params": BOUNDS, "tol": 1e-10}
    model = dkl.LogDetMetricLearner(3.0, **settings).fit(X, must_link=MUST, cannot_link=CANNOT)
    best, W = least(W0, lambda A: 3.0 * itml_loss(X @ A @ X.T, MUST, CANNOT, **BOUNDS))
    assert model.certificate_.objective == pytest.approx(best, rel=1e-7)
    assert_allclose(model.get_mahalanobis_matrix(), W, rtol=1e-3, atol=1e-4)
    i, j = X[0], X[4]
    assert model.pair_distance([[i, j]])[0] == pytest.approx(np.sqrt((i - j) @ W @ (i - j)), rel=1e-3)
    apart = model.transform(X)[0] - model.transform(X)[4]
    assert np.linalg.norm(apart) == pytest.approx(model.score_pairs([[i, j]])[0], rel=1e-9)
    assert model.pair_score([[i, j]])[0] == -model.pair_distance([[i, j]])[0]


def test_rows_that_no_constraint_touches_do_not_change_the_others(X, rng):
    more = np.concatenate([X, rng.normal(size=(20, 3))])
    small = dkl.LogDetKernelLearner(20.0, kernel="rbf", kernel_params={"gamma": 0.3}).fit(X, triplets=TRIPLETS)
    large = clone(small).fit(more, triplets=TRIPLETS)
    assert_allclose(large.kernel_matrix(more)[:N, :N], small.kernel_matrix(X), atol=1e-6)
    # The same values for unseen rows as where they were there from the start: it is inductive.
    assert_allclose(small.kernel_matrix(more[N:], X), large.kernel_matrix(more)[N:, :N], atol=1e-6)
    assert large.points_.tolist() == list(range(N))


def test_a_linear_kernel_and_a_metric_are_one_problem(X):
    by_kernel = dkl.LogDetKernelLearner(20.0, kernel="linear", tol=1e-9).fit(X, triplets=TRIPLETS)
    by_metric = dkl.LogDetMetricLearner(20.0, loss="log", tol=1e-9).fit(X, triplets=TRIPLETS)
    assert by_kernel.certificate_.objective == pytest.approx(by_metric.certificate_.objective, rel=1e-7)
    assert_allclose(by_kernel.kernel_matrix(X), X @ by_metric.get_mahalanobis_matrix() @ X.T, atol=1e-4)


@pytest.mark.parametrize("loss", [*TRIPLET_LOSSES, *PAIR_LOSSES])
def test_every_loss_lowers_its_objective_to_a_proven_gap(loss, X):
    params = {"lmnn": {"t": 0.2}, "hoi": {"t": 0.5}}.get(loss)
    y = [0, 0, 1, 1, 0, 1, 1]
    model = dkl.LogDetKernelLearner(0.05, loss=loss, loss_params=params, kernel="rbf", n_in=2, n_out=2).fit(X, y)
    assert model.certificate_.relative_gap <= 1e-6 and model.result_.outcome.converged
    assert model.result_.proven == model.certificate_.relative_gap
    assert model.solver_ in ("pcg", "direct", "auto")
    steps = [row["iteration"] for row in model.result_.history]
    assert steps == sorted(steps) and steps[-1] == model.n_iter_


class Squares:
    """(1 - x)^2, a loss of one's own."""

    def value(self, x):
        return (1 - x) ** 2

    def first(self, x):
        return -2 * (1 - x)

    def second(self, x):
        return np.full(x.shape, 2.0)


class Concave(Squares):
    """With a wrong curvature."""

    def second(self, x):
        return np.full(x.shape, -2.0)


def test_a_loss_of_one_s_own(X, monkeypatch):
    K0 = X @ X.T + np.eye(N)
    model = dkl.LogDetKernelLearner(2.0, loss=Squares(), kernel="precomputed").fit(K0, triplets=TRIPLETS)
    from logdet_oracle import margins

    best, _ = least(K0, lambda K: 2.0 / N * float(((1 - margins(K, TRIPLETS)) ** 2).sum()))
    assert model.certificate_.objective == pytest.approx(best, rel=1e-5)
    from dkl.estimators.logdet import fit, learner, metric

    with monkeypatch.context() as patch:  # before any kernel or problem is made
        for module, name in ((learner, "plan_kernel"), (metric, "pose_metric"), (fit, "LogDetKernelProblem")):
            patch.setattr(module, name, lambda *_, **__: pytest.fail("work was begun"))
        for one in (clone(model), dkl.LogDetMetricLearner()):
            with pytest.raises(InputError, match="negative curvature"):
                one.set_params(loss=Concave()).fit(K0, triplets=TRIPLETS)
            with pytest.raises(InputError, match="negative curvature"):
                one.path(K0, gammas=[1.0], triplets=TRIPLETS)


# What it may be given.


def test_labels_are_triplets_and_pairs_of_neighbours(iris, fitted):
    X, y = iris[:2]
    triplets = dkl.Triplets.from_labels(X, y, 4, 4)
    scale = len(fitted.points_) / np.count_nonzero(y >= 0)  # without labels m is the number of rows that triplets touch
    same = dkl.LogDetKernelLearner(scale, kernel="laplacian").fit(X, triplets=triplets)
    assert_allclose(same.M_, fitted.M_, rtol=1e-3, atol=1e-3 * np.abs(fitted.M_).max())
    pairs = triplets.to_pairs()
    by_labels = dkl.LogDetMetricLearner(normalize_gamma=False, n_in=4, n_out=4).fit(X, y)
    by_pairs = dkl.LogDetMetricLearner(normalize_gamma=False).fit(X, pairs=pairs)
    by_arrays = dkl.LogDetMetricLearner(normalize_gamma=False).fit(
        X, must_link=pairs.must_link, cannot_link=pairs.cannot_link
    )
    assert_allclose(by_pairs.components_, by_labels.components_, rtol=1e-4, atol=1e-4)
    assert np.array_equal(by_arrays.components_, by_pairs.components_)


def test_tuples_of_metric_learn(X):
    pairs = dkl.Pairs(MUST, CANNOT)
    tuples, signs = pairs.to_metric_learn()
    wanted = dkl.LogDetMetricLearner(tol=1e-9).fit(X, pairs=pairs).components_
    assert_allclose(dkl.LogDetMetricLearner(tol=1e-9).fit(X[tuples], signs).components_, wanted, rtol=1e-3, atol=1e-4)
    of_triplets = dkl.LogDetMetricLearner(loss="log", tol=1e-9)
    wanted = of_triplets.fit(X, triplets=TRIPLETS).components_
    assert_allclose(clone(of_triplets).fit(X[np.array(TRIPLETS)]).components_, wanted, rtol=1e-3, atol=1e-4)
    for bad, y, message in (
        (X[tuples], None, "pairs without their signs"),
        (X[tuples], np.arange(len(tuples)), "not a sign a pair"),
        (X[np.array(TRIPLETS)], np.ones(5), "triplets have no labels"),
        (np.zeros((3, 4, 2)), None, r"not tuples of points; got shape \(3, 4, 2\)"),
    ):
        with pytest.raises(InputError, match=message):
            dkl.LogDetMetricLearner().fit(bad, y)


@pytest.mark.parametrize(
    ("changes", "given", "message"),
    [
        ({"gamma": 0.0}, {}, "'gamma' parameter of LogDetKernelLearner must be a finite number > 0"),
        ({"loss": "squared"}, {}, "'loss' parameter"),
        ({}, {"pairs": dkl.Pairs(MUST)}, 'loss="log" is of triplets or labels; got pairs; wanted .*"itml" or "hoi"'),
        ({"loss": "itml"}, {"triplets": TRIPLETS}, 'loss="itml" is of pairs or labels; got triplets; wanted .*"log"'),
        ({}, {"triplets": TRIPLETS, "pairs": dkl.Pairs(MUST)}, "two kinds of side information"),
        ({}, {"triplets": [[0, 1, 9]]}, "triplets: row numbers out of range"),
        ({}, {"y": [0] * N}, "y: all labeled rows are of one class"),
        ({}, {"y": [0, 1]}, r"y: labels and rows differ in number; got shape \(2,\)"),
        ({}, {}, "requires y to be passed"),
        ({"loss_params": {"t": 0.5}}, {"triplets": TRIPLETS}, "loss_params: unknown parameters of the loss"),
        ({"kernel_params": {"sigma": 1.0}}, {"triplets": TRIPLETS}, "kernel_params: unknown parameters.*wanted gamma"),
        ({"kernel": "rbf", "kernel_params": {"degree": 2}}, {"triplets": TRIPLETS}, "wanted gamma of kernel='rbf'"),
        (
            {"kernel": "rbf", "kernel_params": {"gamma": -1}},
            {"triplets": TRIPLETS},
            r"params\['gamma'\]: not a gamma .* -1",
        ),
        (
            {"kernel": "poly", "kernel_params": {"degree": "2"}},
            {"triplets": TRIPLETS},
            r"params\['degree'\]: .* got '2'",
        ),
        (
            {"kernel": "laplacian", "kernel_params": {"laplacian": "x"}},
            {"triplets": TRIPLETS},
            "wanted 'normalized' or 'unnormalized'",
        ),
        (
            {"loss": "lmnn", "loss_params": {"t": "x"}},
            {"triplets": TRIPLETS},
            "not a bend; got 'x'; wanted .* > -3 and < 1",
        ),
        ({"kernel": "sigmoid"}, {"triplets": TRIPLETS}, "an eigenvalue of -.*; wanted 0 or more; take another kernel"),
        ({}, {"triplets": []}, "triplets: no triplets; got 0"),
        ({}, {"triplets": [[0, 1, 1]]}, r"a row twice in a triplet; got triplets\[0\] = \(0, 1, 1\)"),
        ({}, {"y": [-1] * N}, "y: no row has a label; got 0 classes among 0 labeled rows"),
        (
            {"loss": "itml", "loss_params": {"upper": 0}},
            {"pairs": dkl.Pairs(MUST)},
            "not a bound; got 0; wanted a finite number > 0",
        ),
        (
            {"kernel": "laplacian", "memory_limit": 10_000},
            {"triplets": TRIPLETS},
            "the kernel matrix of all 7 rows .* raise memory_limit",
        ),
        ({"memory_limit": 10_000}, {"triplets": TRIPLETS}, "memory plan: .* 5 constraints on 7 rows"),
    ],
)
def test_what_cannot_be_learned_from(changes, given, message, X):
    kind = MemoryBudgetError if "memory_limit" in changes else InputError
    with pytest.raises(kind, match=message):
        dkl.LogDetKernelLearner(**changes).fit(X, **given)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda K: K - 3 * np.eye(N), r"X: not positive semidefinite; got an eigenvalue of -3;"),
        (lambda K: K + np.triu(np.ones((N, N)), 1), r"X: not symmetric; got X\[\d, \d\] = .* and X\["),
        (lambda K: K[:, :4], r"must be square; got shape \(7, 4\)"),
    ],
)
def test_matrices_that_are_no_kernels(change, message, X):
    with pytest.raises(InputError, match=message):
        dkl.LogDetKernelLearner(kernel="precomputed").fit(change(X @ X.T), triplets=TRIPLETS)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda P: P[0], r"not pairs of points; got shape \(2, 3\); wanted \(m, 2, 3\)"),
        (lambda P: P[:, :, :1], "not pairs of points; got shape"),
        (lambda P: [P[0], P[1][:1]], "not pairs of points; got list"),
        (lambda P: P.astype(object) + 1j, "not pairs of points; got ndarray"),
        (lambda P: P + 1j, "not pairs of points; got ndarray"),
        (lambda P: P.astype(str), "pairs: text, not numbers"),
        (lambda P: np.where(P[1, 0, 1] == P, np.nan, P), r"pairs\[1, 0, 1\]: not finite"),
        (lambda P: np.where(P[0, 1, 0] == P, np.inf, P), r"pairs\[0, 1, 0\]: not finite"),
    ],
)
def test_pairs_that_have_no_distance(change, message, X):
    model, given = dkl.LogDetMetricLearner(loss="log").fit(X, triplets=TRIPLETS), X[:4].reshape(2, 2, -1)
    assert model.score_pairs(given).shape == (2,)
    with pytest.raises(ValueError, match=message):
        model.score_pairs(change(given))


@pytest.mark.parametrize("size", [1e-250, 1e200, 1e300])
def test_distances_of_points_whose_squares_are_no_numbers(X, size):
    """They grow as the points do."""
    model, points = dkl.LogDetMetricLearner(loss="log").fit(X, triplets=TRIPLETS), X[:6].reshape(3, 2, -1).copy()
    points[2, 1] = points[2, 0]
    found = model.pair_distance(size * points)
    np.testing.assert_allclose(found / size, model.pair_distance(points), rtol=1e-12)
    assert found[2] == 0


def test_rows_too_far_from_the_graph_are_refused(iris, fitted):
    with pytest.raises(InputError, match=r"X\[1, [0-9]+\]: a value is so large that distances overflow"):
        fitted.transform([iris[0][0] + 0.1, 1e200 * iris[0][1]])


def test_a_width_of_values_whose_variance_underflows(X):
    for tiny in (1e-200 * X, sp.csr_array(1e-200 * X)):
        with pytest.raises(InputError, match="X: values differ, .* variance underflows; scale X"):
            dkl.LogDetKernelLearner(kernel="rbf").fit(tiny, triplets=TRIPLETS)


def test_a_dense_matrix_of_all_rows_is_refused_before_it_is_made():
    X, y = np.zeros((200_000, 1)), np.zeros(200_000)
    y[:3], X[:3, 0] = 1, 1
    with pytest.raises(MemoryBudgetError, match=r"the kernel matrix of all 200,000 rows.*choose a kernel of rows"):
        dkl.LogDetKernelLearner(kernel="laplacian", memory_limit="1 GB").fit(X, triplets=[[0, 1, 5]])
    many = np.arange(30_000).reshape(-1, 3)
    with pytest.raises(MemoryBudgetError, match=r"10,000 constraints on 30,000 rows .*label fewer rows"):
        dkl.LogDetKernelLearner(memory_limit="1 GB").fit(X, triplets=many)
    model = dkl.LogDetKernelLearner(memory_limit="1 GB").fit(X + np.arange(200_000)[:, None] % 7, triplets=many[:3])
    assert model.transform(X[:5]).shape[0] == 5  # principal components of nine rows


def test_without_room_for_a_direct_step_there_is_none(iris):
    X, y = iris[:2]
    model = dkl.LogDetKernelLearner(n_in=4, n_out=4, memory_limit="398 MB")  # that of a bare process is 390
    with pytest.raises(MemoryBudgetError, match="a direct step"):
        clone(model).set_params(solver="direct").fit(X, y)
    found = model.fit(X, y)
    assert found.result_.outcome.converged
    wanted = dkl.LogDetKernelLearner(n_in=4, n_out=4, solver="direct").fit(X, y)
    assert found.certificate_.objective == pytest.approx(wanted.certificate_.objective, rel=3e-6)


def test_labels_beside_triplets_are_told(X):
    with pytest.warns(DataWarning, match="y is not learned from"):
        dkl.LogDetKernelLearner(kernel="rbf").fit(X, [0, 0, 1, 1, 0, 1, 1], triplets=TRIPLETS)


def test_cannot_links_of_equal_rows_are_left_out(X):
    X[4] = X[0]  # (0, 4) is a cannot-link pair
    with pytest.warns(
        DataWarning, match=r"1 cannot-link pair of rows at distance 0 under the given metric is left out, .* \(0, 4\)"
    ):
        model = dkl.LogDetMetricLearner().fit(X, must_link=MUST, cannot_link=CANNOT)
    assert_allclose(
        model.components_, dkl.LogDetMetricLearner().fit(X, must_link=MUST, cannot_link=CANNOT[1:]).components_
    )
    with pytest.warns(DataWarning), pytest.raises(InputError, match="no pairs of rows that differ"):
        dkl.LogDetMetricLearner().fit(X, cannot_link=CANNOT[:1])


# Kernels, seen and unseen rows.


def test_principal_coordinates_are_those_of_kernel_pca(iris, fitted):
    X = iris[0]
    K = fitted.kernel_matrix(X)
    wanted = KernelPCA(10, kernel="precomputed", eigen_solver="dense").fit(K)
    found = fitted.transform(X)
    assert found.shape == (150, 10) and len(fitted.get_feature_names_out()) == 10
    assert_allclose(np.abs(found), np.abs(wanted.transform(K)), atol=1e-6 * np.abs(found).max())
    assert_allclose(fitted.transform(X[40:60]), found[40:60], atol=1e-8 * np.abs(found).max())
    assert np.linalg.eigvalsh(K)[0] > -1e-8 * np.abs(K).max()


def test_coordinates_that_are_not_centred(X):
    model = dkl.LogDetKernelLearner(5.0, kernel="rbf", center=False, n_components=N).fit(X, triplets=TRIPLETS)
    found = model.transform(X)
    assert_allclose(found @ found.T, model.kernel_matrix(X), atol=1e-9)


def test_unseen_rows_of_the_graph_are_means_of_their_neighbours(iris, fitted):
    X = iris[0]
    new = X[:20] + 1e-7
    assert_allclose(fitted.kernel_matrix(new, X).shape, (20, 150))
    step = np.abs(fitted.transform(new) - fitted.transform(X[:20]))
    assert np.median(step) < 0.2 * np.abs(fitted.transform(X)).std()
    assert_allclose(fitted.kernel_matrix(X[:5], X), fitted.kernel_matrix(X)[:5], atol=1e-8)
    assert np.isfinite(fitted.transform(X + 1e5)).all()


@pytest.mark.parametrize("seed", [2, 3])
def test_tails_leave_a_kernel_of_the_graph(seed):
    """Of one width for all rows K0 is rounding there, or cannot be made at all."""
    X, y = tailed_rows(seed)
    model = dkl.LogDetKernelLearner(kernel="laplacian", n_jobs=1).fit(X[::3], y[::3])
    spread = model.kernel_matrix(X[::3]).diagonal()
    assert spread.max() < 10 * np.median(spread)
    known, unseen = np.arange(300) % 3 == 0, np.arange(300) % 3 != 0
    score = (
        KNeighborsClassifier(1).fit(model.transform(X[known]), y[known]).score(model.transform(X[unseen]), y[unseen])
    )
    assert score >= KNeighborsClassifier(1).fit(X[known], y[known]).score(X[unseen], y[unseen]) - 0.02


def test_unseen_rows_of_a_far_graph_row_have_its_width(iris):
    """K0 of an unseen row by the formula: exp(-3 d^2 / max(s_new, s_j)^2) of its 10 nearest, s of the graph."""
    X, rows = iris[0], iris[0][:3] + 0.05
    model = dkl.LogDetKernelLearner(1e-9, kernel="laplacian", n_in=4, n_out=4).fit(X, iris[1])
    d, near = NearestNeighbors(n_neighbors=10).fit(X).kneighbors(rows)
    s = NearestNeighbors(n_neighbors=10).fit(X).kneighbors()[0][:, -1]
    weights = np.exp(-3 * (d / np.maximum(d[:, -1:], s[near])) ** 2)
    means = np.zeros((3, 150))
    np.put_along_axis(means, near, weights / weights.sum(axis=1, keepdims=True), 1)
    assert_allclose(model.kernel_matrix(rows, X), means @ model.kernel_matrix(X), atol=1e-6)


def test_components_that_nothing_is_learned_of_are_warned_of(rng):
    rows = np.concatenate([rng.standard_normal((30, 3)), 50 + rng.standard_normal((12, 3))])
    model = dkl.LogDetKernelLearner(kernel="laplacian", n_jobs=1)
    with pytest.warns(
        DataWarning, match=r"1 of the 2 components .*, 12 of 42 rows \(first: row 30\), hold no row with"
    ):
        model.fit(rows, triplets=[[0, 1, 2], [3, 4, 5]])
    model.fit(rows, triplets=[[0, 1, 2], [30, 31, 5]])


@pytest.mark.parametrize(
    ("kernel", "params", "of"),
    [
        ("rbf", {"gamma": 0.3}, lambda X: rbf_kernel(X, gamma=0.3)),
        ("rbf", None, lambda X: rbf_kernel(X, gamma=1 / (3 * X.var()))),
        (
            "polynomial",
            {"degree": 2, "coef0": 1},
            lambda X: pairwise_kernels(X, metric="poly", degree=2, gamma=1 / (3 * X.var())),
        ),
        (laplacian_kernel, None, laplacian_kernel),
    ],
    ids=["rbf", "rbf of its own width", "polynomial", "function"],
)
def test_a_named_kernel_is_that_of_scikit_learn(kernel, params, of, X):
    given = dkl.LogDetKernelLearner(5.0, kernel="precomputed").fit(of(X), triplets=TRIPLETS)
    named = dkl.LogDetKernelLearner(5.0, kernel=kernel, kernel_params=params).fit(X, triplets=TRIPLETS)
    assert_allclose(named.kernel_matrix(X), given.kernel_matrix(of(X)), atol=1e-6)
    assert_allclose(np.abs(named.transform(X)), np.abs(given.transform(of(X))), atol=1e-5)


def test_sparse_rows_are_dense_rows(X):
    for model in (
        dkl.LogDetKernelLearner(kernel="laplacian", n_neighbors=3),
        dkl.LogDetKernelLearner(kernel="rbf"),
        dkl.LogDetMetricLearner(loss="log"),
    ):
        dense = model.fit(X, triplets=TRIPLETS).transform(X)
        assert_allclose(
            clone(model).fit(sp.csr_array(X), triplets=TRIPLETS).transform(sp.csr_array(X)), dense, atol=1e-7
        )


def test_precomputed_kernels_of_two_new_sets_are_refused(X):
    K0 = X @ X.T
    model = dkl.LogDetKernelLearner(kernel="precomputed").fit(K0, triplets=TRIPLETS)
    with pytest.raises(InputError, match="two sets of new rows"):
        model.kernel_matrix(K0, K0)


# Paths, ends, and what scikit-learn does to it.


def test_a_path_is_its_fits(iris):
    X, y = iris[:2]
    for model in (dkl.LogDetKernelLearner(n_in=3, n_out=3), dkl.LogDetMetricLearner(n_in=3, n_out=3)):
        gammas = [0.1, 10.0, 1.0]
        path = model.path(X, y, gammas)
        assert path.gammas.tolist() == gammas and (path.gaps <= 1e-6).all() and path.result.outcome.converged
        for i, gamma in enumerate(gammas):
            alone, found = clone(model).set_params(gamma=gamma).fit(X, y), path.model(i)
            assert found.gamma == gamma
            assert path.objectives[i] == pytest.approx(alone.certificate_.objective, rel=3e-6)
            scale = np.abs(alone.transform(X)).max()
            assert_allclose(found.transform(X[:9]), alone.transform(X[:9]), atol=0.02 * scale)
        assert not hasattr(model, "result_")
    for wrong in ([1.0, -1.0], [np.nan], [np.inf], [0], [], "x", [10**400]):
        with pytest.raises(InputError, match="gammas: not a list of values"):
            model.path(X, y, wrong)


def test_ends_are_told(iris):
    X, y = iris[:2]
    with pytest.warns(ConvergenceWarning, match=r"not converged \(iteration_limit\): raise max_iter"):
        short = dkl.LogDetKernelLearner(100.0, max_iter=1, tol=1e-12).fit(X, y)
    assert short.certificate_.relative_gap > 1e-12
    rows = []

    def stop(row):
        rows.append(row)
        return True

    stopped = dkl.LogDetKernelLearner(100.0, callbacks=stop).fit(X, y)
    assert stopped.result_.outcome is Outcome.STOPPED and len(rows) == len(stopped.result_.history) == 1
    assert np.isfinite(stopped.certificate_.objective)


def test_copies_give_the_same(iris, fitted):
    for same in (copy.deepcopy(fitted), pickle.loads(pickle.dumps(fitted))):
        assert np.array_equal(same.transform(iris[0]), fitted.transform(iris[0]))


def test_labelled_neighbours_classify_the_others(iris, fitted):
    X, _, y, unlabelled = iris
    rows = fitted.transform(X)
    found = KNeighborsClassifier(1).fit(rows[~unlabelled], y[~unlabelled]).score(rows[unlabelled], y[unlabelled])
    assert found >= 0.9


def test_grid_search_and_pipelines():
    X, y = load_iris(return_X_y=True)
    pipe = make_pipeline(
        StandardScaler(), dkl.LogDetKernelLearner(kernel="rbf", n_in=3, n_out=3), KNeighborsClassifier(1)
    )
    search = GridSearchCV(pipe, {"logdetkernellearner__gamma": [0.1, 1.0]}, cv=3, error_score="raise").fit(X, y)
    assert search.best_score_ > 0.9
    triplets = dkl.Triplets.from_labels(X, y, 3, 3)

    class Scored(dkl.LogDetMetricLearner):
        def score(self, X, y=None):
            return float(-self.certificate_.objective)

    with sklearn.config_context(enable_metadata_routing=True):
        learner = Scored(loss="log").set_fit_request(triplets=True, sample_ids=True)
        cv = KFold(3, shuffle=True, random_state=0)
        search = GridSearchCV(learner, {"gamma": [0.1, 1.0]}, cv=cv, error_score="raise")
        assert search.fit(X, y, triplets=triplets, sample_ids=np.arange(150)).best_params_ == {"gamma": 0.1}


@pytest.mark.parametrize("of", [dkl.LogDetMetricLearner, dkl.baselines.ITMLMetricLearner])
def test_pairs_of_equal_points_are_left_out_with_a_note(X, of):
    tuples, signs = dkl.Pairs(MUST, CANNOT).to_metric_learn()
    points, same = X[tuples], np.array([[X[0], X[0]], [X[5], X[5]]])
    learner = partial(of, **({"random_state": 0} if "random_state" in of().get_params() else {}))
    wanted = learner().fit(points, signs).components_
    with pytest.warns(DataWarning, match=rf"2 of {len(points) + 2} pairs are left out: equal points.*first: X\[0\]"):
        found = learner().fit(np.concatenate([same, points]), np.concatenate([[1, -1], signs]))
    assert_allclose(found.components_, wanted, rtol=1e-12, atol=1e-12)
    with pytest.raises(InputError, match="equal points in each of the pairs"):
        learner().fit(same, [1, -1])


def test_triplets_with_equal_points_are_left_out_with_a_note(X):
    points = X[np.array(TRIPLETS)]
    wanted = dkl.LogDetMetricLearner(loss="log").fit(points).components_
    more = np.concatenate([points, [[X[0], X[0], X[1]], [X[0], X[1], X[0]], [X[0], X[1], X[1]]]])
    with pytest.warns(DataWarning, match=f"3 of {len(more)} triplets are left out: equal points"):
        found = dkl.LogDetMetricLearner(loss="log").fit(more)
    assert_allclose(found.components_, wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("learner", [dkl.LogDetKernelLearner, dkl.LogDetMetricLearner])
def test_an_objective_that_is_next_to_nothing_is_no_rounding(learner, rng):
    """At small weights the learned kernel is the given one but for the second order: F is w times the losses there."""
    y = np.arange(40) % 2
    X = rng.standard_normal((40, 3)) + 3 * y[:, None]
    small, tiny = (learner(gamma, holdout=0, random_state=0).fit(X, y) for gamma in (1e-8, 1e-14))
    for fitted in (small, tiny):
        assert fitted.result_.outcome == "solved" and 0 <= fitted.certificate_.relative_gap <= 1e-6
    assert tiny.certificate_.objective == pytest.approx(1e-6 * small.certificate_.objective, rel=1e-5)
