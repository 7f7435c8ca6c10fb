"""LMNN against a conic solver, on the problem as Weinberger and Saul print it."""

import clarabel
import numpy as np
import pytest
from numpy.testing import assert_allclose
from numpy.typing import NDArray
from scipy import sparse
from sklearn.datasets import load_iris
from sklearn.neighbors import NearestNeighbors
from sklearn.utils.estimator_checks import parametrize_with_checks

from dkl.baselines import LMNNMetricLearner
from dkl.errors import ConvergenceWarning, InputError, MemoryBudgetError

Array = NDArray[np.float64]


@pytest.mark.exhaustive
@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks([LMNNMetricLearner(tol=0.1)])
def test_scikit_learn_s_contract(estimator, check) -> None:
    check(estimator)


def rows(n: int = 24, d: int = 2, classes: int = 3) -> tuple[Array, NDArray[np.intp]]:
    rng = np.random.default_rng(3)
    y = np.arange(n) % classes
    return rng.normal(size=(n, d)) + rng.normal(size=(classes, d))[y], y


def terms(X: Array, y: NDArray[np.intp], k: int) -> tuple[list[tuple[int, int]], list[tuple[int, int, int]]]:
    """Targets (i, j) and triples (i, j, l), by scikit-learn's neighbors in each class."""
    near = []
    for label in np.unique(y):
        (own,) = np.nonzero(y == label)
        found = NearestNeighbors(n_neighbors=min(k, len(own) - 1)).fit(X[own]).kneighbors(return_distance=False)
        near += [(own[i], own[j]) for i, line in enumerate(found) for j in line]
    return near, [(i, j, other) for i, j in near for other in np.flatnonzero(y != y[i])]


def square(X: Array, i: int, j: int) -> Array:
    return np.outer(X[i] - X[j], X[i] - X[j])


def objective(W: Array, X: Array, y: NDArray[np.intp], k: int, mu: float) -> float:
    near, triples = terms(X, y, k)
    total = (1 - mu) * sum(float(np.sum(W * square(X, *one))) for one in near)
    return total + mu * sum(
        max(0.0, 1 + float(np.sum(W * (square(X, i, j) - square(X, i, other))))) for i, j, other in triples
    )


def least(X: Array, y: NDArray[np.intp], k: int, mu: float) -> float:
    """The optimum over (W, slacks), W psd of 2 x 2: Clarabel."""
    near, triples = terms(X, y, k)
    half = np.array([1.0, np.sqrt(2.0), 1.0])  # svec of the upper triangle (00, 01, 11)

    def svec(A: Array) -> Array:
        return half * np.array([A[0, 0], A[0, 1], A[1, 1]])

    c = len(triples)
    q = np.concatenate([(1 - mu) * sum(svec(square(X, *one)) for one in near), np.full(c, mu)])
    margins = np.stack([svec(square(X, i, j) - square(X, i, other)) for i, j, other in triples])
    # slack >= 1 + <W, C_ij - C_il>, slack >= 0, svec(W) in the cone: A x + s = b.
    A = sparse.vstack([
        sparse.hstack([sparse.csc_matrix(margins), -sparse.eye(c)]), sparse.hstack([sparse.csc_matrix((c, 3)), -sparse.eye(c)]),
        sparse.hstack([-sparse.eye(3), sparse.csc_matrix((3, c))]),
    ]).tocsc()  # fmt: skip
    b = np.concatenate([-np.ones(c), np.zeros(c), np.zeros(3)])
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    cones = [clarabel.NonnegativeConeT(2 * c), clarabel.PSDTriangleConeT(2)]
    return clarabel.DefaultSolver(sparse.csc_matrix((3 + c, 3 + c)), q, A, b, cones, settings).solve().obj_val


@pytest.mark.parametrize(("k", "mu"), [(1, 0.5), (3, 0.5), (3, 0.1), (7, 0.9)])
def test_the_optimum_is_clarabel_s_and_the_bound_is_below_it(k: int, mu: float) -> None:
    X, y = rows()
    model = LMNNMetricLearner(k, mu=mu, tol=1e-5, standardize=False).fit(X, y)
    best = least(X, y, k, mu)
    found = objective(model.get_mahalanobis_matrix(), X, y, k, mu)
    assert model.certificate_.objective == pytest.approx(found, rel=1e-9)
    assert model.certificate_.bound <= best * (1 + 1e-7)
    assert best * (1 - 1e-7) <= found <= best * (1 + 1e-5)


def test_rotated_rows_have_the_same_distances_and_rows_without_a_label_say_nothing() -> None:
    X, y = rows(d=3)
    Q = np.linalg.qr(np.random.default_rng(0).normal(size=(3, 3)))[0]
    settings = {"tol": 1e-5, "standardize": False}
    plain = LMNNMetricLearner(**settings).fit(X, y)
    turned = LMNNMetricLearner(**settings).fit(X @ Q + 5.0, y)
    assert_allclose(turned.certificate_.objective, plain.certificate_.objective, rtol=2e-5)
    pairs = np.random.default_rng(1).normal(size=(50, 2, 3))
    assert_allclose(turned.pair_distance(pairs @ Q + 5.0), plain.pair_distance(pairs), rtol=1e-2, atol=1e-3)
    more = LMNNMetricLearner(**settings).fit(np.vstack([X, 9 + X[:4]]), np.concatenate([y, [-1] * 4]))
    assert_allclose(more.components_, plain.components_, rtol=1e-6, atol=1e-9)


def test_constant_columns_and_more_columns_than_rows_are_proven_too() -> None:
    X, y = rows()
    plain = LMNNMetricLearner(tol=1e-5, standardize=False).fit(X, y)
    wide = np.column_stack([X, np.full(len(X), 7.0), X[:, 0] - X[:, 1]])
    model = LMNNMetricLearner(tol=1e-5, standardize=False).fit(wide, y)
    # A combination of columns allows no other distances, but another step from Euclid's targets.
    assert model.certificate_.relative_gap <= 1e-5
    flat = LMNNMetricLearner(tol=1e-5, standardize=False).fit(wide[:, :3], y)
    assert_allclose(flat.certificate_.objective, plain.certificate_.objective, rtol=2e-5)


def test_iris_is_solved_with_a_default_and_too_few_steps_are_said() -> None:
    X, y = load_iris(return_X_y=True)
    model = LMNNMetricLearner(standardize=False).fit(X, y)  # a ConvergenceWarning is an error here
    assert 0 <= model.certificate_.relative_gap <= 1e-2
    with pytest.warns(ConvergenceWarning, match="not converged: relative gap .* after 2 steps; raise max_iter"):
        LMNNMetricLearner(max_iter=2, standardize=False).fit(X, y)


@pytest.mark.parametrize("unit", [2.0**-27, 2.0**27])
def test_the_metric_follows_the_unit_of_the_rows(unit: float) -> None:
    """The margin is 1 in each: rows of 1e-8 had ended at a gap of .1."""
    X, y = load_iris(return_X_y=True)
    plain, other = (LMNNMetricLearner(standardize=False).fit(one, y) for one in (X, unit * X))
    np.testing.assert_array_equal(other.components_ * unit, plain.components_)
    assert other.certificate_ == plain.certificate_


def test_classes_that_a_metric_parts_have_the_optimum_0() -> None:
    """Targets differ in the second column alone, and classes in the first."""
    X = np.array([[0.0, 0.0], [0.0, 4.0], [1.0, 1.0], [1.0, 5.0]])
    model = LMNNMetricLearner(n_targets=1, standardize=False).fit(X, [0, 0, 1, 1])  # a warning is an error here
    assert model.certificate_.bound <= 0 <= model.certificate_.objective < 1e-9


def test_what_is_refused() -> None:
    X, y = rows()
    with pytest.raises(InputError, match="a method of labels"):
        LMNNMetricLearner().fit(X[[[0, 3, 1], [1, 4, 2]]])
    with pytest.raises(MemoryBudgetError, match="distances of 24 labeled rows"):
        LMNNMetricLearner(memory_limit=1000).fit(X, y)
    with pytest.raises(InputError, match="mu"):
        LMNNMetricLearner(mu=1.0).fit(X, y)
