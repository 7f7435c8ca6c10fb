"""Clusters under pairs against what their papers say: brute force, dense solves, violated pairs."""

import itertools

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from sklearn.utils.estimator_checks import parametrize_with_checks

import dkl
from dkl.baselines import E2CP, COPKMeans, PCKMeans, constrained_kmeans
from dkl.errors import ConvergenceWarning, InputError

MORE_CLASSES = (
    "check_dont_overwrite_parameters",
    "check_methods_sample_order_invariance",
    "check_methods_subset_invariance",
    "check_fit2d_1feature",
    "check_fit2d_predict1d",
)


@pytest.mark.exhaustive
@pytest.mark.filterwarnings("ignore")  # the checks' data sets are tiny
@parametrize_with_checks(
    [COPKMeans(), PCKMeans(), E2CP()],
    expected_failed_checks=lambda model: (
        {"check_clustering": "fits without pairs or labels"}
        | (dict.fromkeys(MORE_CLASSES, "two clusters, labels of three classes") if isinstance(model, COPKMeans) else {})
    ),
)
def test_scikit_learn_s_contract(estimator, check):
    check(estimator)


def drawn(rng, n, k, count):
    """Rows around k centers that overlap, their classes, and `count` pairs of them."""
    y = np.arange(n) % k
    X = rng.standard_normal((n, 3)) + 2.0 * rng.standard_normal((k, 3))[y]
    ends = np.array(list(itertools.combinations(range(n), 2)))
    ends = ends[rng.choice(len(ends), count, replace=False)]
    same = y[ends[:, 0]] == y[ends[:, 1]]
    return X, y, dkl.Pairs(ends[same], ends[~same])


@pytest.mark.parametrize("k", [2, 4])
def test_cop_kmeans_violates_no_pair_and_ends_where_rows_are_at_their_means(k, rng):
    X, _, pairs = drawn(rng, 60, k, 40)
    model = COPKMeans(k, random_state=0).fit(X, pairs=pairs)
    labels, centers = model.labels_, model.cluster_centers_
    first, second = labels[pairs.must_link].T
    assert np.array_equal(first, second)
    first, second = labels[pairs.cannot_link].T
    assert (first != second).all()
    for cluster in np.unique(labels):
        np.testing.assert_allclose(centers[cluster], X[labels == cluster].mean(axis=0), rtol=1e-12)


def test_cop_kmeans_is_not_below_the_best_of_all_assignments_and_refuses_contradictions(rng):
    X, _, pairs = drawn(rng, 8, 2, 6)
    model = COPKMeans(2, random_state=0).fit(X, pairs=pairs)
    labels, centers = model.labels_, model.cluster_centers_
    allowed = [
        np.array(one)
        for one in itertools.product(range(2), repeat=8)
        if all(one[i] == one[j] for i, j in pairs.must_link) and all(one[i] != one[j] for i, j in pairs.cannot_link)
    ]
    best = min(spread(X, one) for one in allowed)
    assert np.square(X - centers[labels]).sum() >= best - 1e-9
    assert spread(X, labels) == pytest.approx(best)  # of so few, five starts find it
    with pytest.raises(dkl.errors.InconsistentPairsError):
        COPKMeans(2).fit(X, must_link=[[0, 1], [1, 2]], cannot_link=[[0, 2]])
    with pytest.raises(InputError, match="no assignment without a violated pair.*PCKMeans"):
        COPKMeans(2).fit(X, cannot_link=[[0, 1], [1, 2], [0, 2]])


def spread(X, labels):
    return sum(np.square(X[labels == c] - X[labels == c].mean(axis=0)).sum() for c in np.unique(labels))


def penalized(X, labels, centers, pairs, weight):
    """Half the squared distances and `weight` a violated pair: (2) of Basu et al."""
    violated = np.count_nonzero(np.ptp(labels[pairs.must_link], axis=1) > 0)
    violated += np.count_nonzero(np.ptp(labels[pairs.cannot_link], axis=1) == 0)
    return 0.5 * np.square(X - centers[labels]).sum() + weight * violated


def test_the_objective_of_pck_means_never_rises(rng, monkeypatch):
    X, _, pairs = drawn(rng, 80, 3, 60)
    plain, values = constrained_kmeans.means, []

    def recorded(moved, labels, centers):
        found = plain(moved, labels, centers)
        values.extend(penalized(X, labels, one + X[0], pairs, 0.7) for one in (centers, found))
        return found

    monkeypatch.setattr(constrained_kmeans, "means", recorded)
    model = PCKMeans(3, weight=0.7, random_state=0).fit(X, pairs=pairs)
    assert len(values) >= 4 and (np.diff(values) <= 1e-9 * values[0]).all()
    assert penalized(X, model.labels_, model.cluster_centers_, pairs, 0.7) == pytest.approx(values[-1])


def fitted(model, X, pairs):
    model.fit(X, pairs=pairs)
    return model.labels_, model.cluster_centers_


def test_pck_means_stays_at_the_best_of_all_assignments(rng, monkeypatch):
    for seed in range(10):
        X, _, pairs = drawn(rng, 8, 2, 8)
        every = [np.array(one) for one in itertools.product(range(2), repeat=8) if len(set(one)) == 2]
        centers = [np.array([X[one == c].mean(axis=0) for c in range(2)]) for one in every]
        values = [penalized(X, *both, pairs, 0.5) for both in zip(every, centers, strict=True)]
        best = int(np.argmin(values))
        model = PCKMeans(2, weight=0.5, random_state=seed)
        labels, found = fitted(model, X, pairs)
        assert penalized(X, labels, found, pairs, 0.5) >= values[best] - 1e-9
        with monkeypatch.context() as patch:
            patch.setattr(constrained_kmeans, "neighborhood_centers", lambda *_, start=centers[best]: start - X[0])  # noqa: B023
            labels, found = fitted(model, X, pairs)
        assert penalized(X, labels, found, pairs, 0.5) == pytest.approx(values[best])


def test_e2cp_propagates_as_its_iteration_does(rng):
    n, alpha = 40, 0.8
    X, _, pairs = drawn(rng, n, 2, 30)
    model = E2CP(2, alpha=alpha, n_neighbors=5, random_state=0).fit(X, pairs=pairs)
    distances = cdist(X, X)
    order = np.argsort(distances, axis=1)
    scale = np.sort(distances, axis=1)[:, 5]
    W = np.zeros((n, n))
    for i in range(n):
        for j in order[i, 1:6]:
            W[i, j] = W[j, i] = np.exp(-(distances[i, j] ** 2) / (scale[i] * scale[j]))
    S = W / np.sqrt(np.outer(W.sum(axis=1), W.sum(axis=1)))
    Z = np.zeros((n, n))
    for (i, j), sign in [*((pair, 1.0) for pair in pairs.must_link), *((pair, -1.0) for pair in pairs.cannot_link)]:
        Z[i, j] = Z[j, i] = sign
    F = Z.copy()
    for _ in range(400):  # down the columns, then along the rows: (5) and (6) of Lu and Ip
        F = alpha * S @ F + (1 - alpha) * Z
    down = F.copy()
    for _ in range(400):
        F = alpha * F @ S + (1 - alpha) * down
    closed = np.linalg.solve(np.eye(n) - alpha * S, np.linalg.solve(np.eye(n) - alpha * S, Z).T).T * (1 - alpha) ** 2
    np.testing.assert_allclose(F, closed, atol=1e-10)
    F /= np.abs(F).max()
    wanted = np.where(F >= 0, 1 - (1 - F) * (1 - W), (1 + F) * W)
    np.fill_diagonal(wanted, 0.0)
    np.testing.assert_allclose(model.affinity_matrix_, wanted, atol=1e-8)


def test_rows_are_given_their_own_clusters_and_the_limit_of_iterations_is_told(rng):
    X, y, pairs = drawn(rng, 60, 3, 40)
    for model in (COPKMeans(3, random_state=0), PCKMeans(3, random_state=0), E2CP(3, random_state=0)):
        model.fit(X, pairs=pairs)
        again = model.predict(X)
        if isinstance(model, E2CP):  # an unseen row has the cluster of the nearest
            np.testing.assert_array_equal(again, model.labels_)
        else:
            distances = cdist(X, model.cluster_centers_)
            np.testing.assert_array_equal(again, distances.argmin(axis=1))
    for make in (COPKMeans, PCKMeans):
        with pytest.warns(ConvergenceWarning, match="raise max_iter") as told:
            make(3, max_iter=1, random_state=0).fit(X, pairs=pairs)
        assert told[0].filename == __file__
    with pytest.raises(InputError, match="fewer samples than clusters"):
        E2CP(61).fit(X, y)


def test_pairs_that_say_what_is_clear_change_nothing(rng):
    X, y, _ = drawn(rng, 60, 3, 40)
    X += 20.0 * np.eye(3)[y]
    for make in (COPKMeans, PCKMeans, E2CP):
        model = make(3, random_state=1).fit(X, must_link=[[0, 3], [1, 4], [2, 5]], cannot_link=[[0, 1]])
        assert dkl.adjusted_rand_index(y, model.labels_) == 1.0
        with pytest.raises(InputError, match="requires y to be passed"):
            make(3).fit(X)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("model", [COPKMeans(2, random_state=0), PCKMeans(2, random_state=0), E2CP(2, random_state=0)])
def test_rows_whose_distances_overflow_are_refused_by_row_and_column(model, rng):
    X, y = rng.standard_normal((40, 3)) + 4.0 * (np.arange(40) % 2)[:, None], np.arange(40) % 2
    far = X.copy()
    far[5, 2] = 1e200
    with pytest.raises(InputError, match=r"^X\[5, 2\]: a value is so large that distances overflow; got 1e\+200"):
        model.fit(far, y)
    model.fit(X, y)
    with pytest.raises(InputError, match=r"^X\[5, 2\]: a value is so large that distances overflow; got 1e\+200"):
        model.predict(far)


@pytest.mark.parametrize("model", [COPKMeans(3, random_state=0), PCKMeans(3, random_state=0), E2CP(3, random_state=0)])
def test_the_unit_of_the_rows_does_not_decide(model, rng):
    X, _, pairs = drawn(rng, 60, 3, 40)
    labels = model.fit(X, pairs=pairs).labels_
    np.testing.assert_array_equal(model.fit(X * 2.0**-60, pairs=pairs).labels_, labels)
