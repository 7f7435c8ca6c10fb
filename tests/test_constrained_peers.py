"""The methods that benchmarks/system/answers.py compares with, against what their papers say: brute force, dense solves, violated pairs."""

import importlib.util
import itertools
from pathlib import Path

import numpy as np
import pytest
from scipy.linalg import sqrtm
from scipy.spatial.distance import cdist

import dkl

PATH = Path(__file__).parents[1] / "benchmarks" / "system" / "constrained_peers.py"


@pytest.fixture(scope="module")
def peers():
    spec = importlib.util.spec_from_file_location("constrained_peers", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def drawn(rng, n, k, count):
    """Rows around k centers that overlap, their classes, and `count` pairs of them."""
    y = np.arange(n) % k
    X = rng.standard_normal((n, 3)) + 2.0 * rng.standard_normal((k, 3))[y]
    ends = np.array(list(itertools.combinations(range(n), 2)))
    ends = ends[rng.choice(len(ends), count, replace=False)]
    same = y[ends[:, 0]] == y[ends[:, 1]]
    return X, y, dkl.Pairs(ends[same], ends[~same])


@pytest.mark.parametrize("k", [2, 4])
def test_cop_kmeans_violates_no_pair_and_ends_where_rows_are_at_their_means(peers, k, rng):
    X, _, pairs = drawn(rng, 60, k, 40)
    labels, centers = peers.cop_kmeans(X, pairs, k, seed=0)
    first, second = labels[pairs.must_link].T
    assert np.array_equal(first, second)
    first, second = labels[pairs.cannot_link].T
    assert (first != second).all()
    for cluster in np.unique(labels):
        np.testing.assert_allclose(centers[cluster], X[labels == cluster].mean(axis=0), rtol=1e-12)


def test_cop_kmeans_is_not_below_the_best_of_all_assignments_and_refuses_contradictions(peers, rng):
    X, _, pairs = drawn(rng, 8, 2, 6)
    labels, centers = peers.cop_kmeans(X, pairs, 2, seed=0)
    allowed = [
        np.array(one)
        for one in itertools.product(range(2), repeat=8)
        if all(one[i] == one[j] for i, j in pairs.must_link) and all(one[i] != one[j] for i, j in pairs.cannot_link)
    ]
    best = min(spread(X, one) for one in allowed)
    assert np.square(X - centers[labels]).sum() >= best - 1e-9
    assert spread(X, labels) == pytest.approx(best)  # of so few, five starts find it
    with pytest.raises(ValueError, match="cannot-link inside"):
        peers.cop_kmeans(X, dkl.Pairs([[0, 1], [1, 2]], [[0, 2]]), 2, seed=0)


def spread(X, labels):
    return sum(np.square(X[labels == c] - X[labels == c].mean(axis=0)).sum() for c in np.unique(labels))


def penalized(X, labels, centers, pairs, weight):
    """Half the squared distances and `weight` a violated pair: (2) of Basu et al."""
    violated = np.count_nonzero(np.ptp(labels[pairs.must_link], axis=1) > 0)
    violated += np.count_nonzero(np.ptp(labels[pairs.cannot_link], axis=1) == 0)
    return 0.5 * np.square(X - centers[labels]).sum() + weight * violated


def test_the_objective_of_pck_means_never_rises(peers, rng, monkeypatch):
    X, _, pairs = drawn(rng, 80, 3, 60)
    plain, values = peers.means, []

    def recorded(X, labels, centers):
        found = plain(X, labels, centers)
        values.extend(penalized(X, labels, one, pairs, 0.7) for one in (centers, found))
        return found

    monkeypatch.setattr(peers, "means", recorded)
    labels, centers = peers.pck_means(X, pairs, 3, seed=0, weight=0.7)
    assert len(values) >= 4 and (np.diff(values) <= 1e-9 * values[0]).all()
    assert penalized(X, labels, centers, pairs, 0.7) == pytest.approx(values[-1])


def test_pck_means_stays_at_the_best_of_all_assignments(peers, rng, monkeypatch):
    for seed in range(10):
        X, _, pairs = drawn(rng, 8, 2, 8)
        every = [np.array(one) for one in itertools.product(range(2), repeat=8) if len(set(one)) == 2]
        centers = [np.array([X[one == c].mean(axis=0) for c in range(2)]) for one in every]
        values = [penalized(X, *both, pairs, 0.5) for both in zip(every, centers, strict=True)]
        best = int(np.argmin(values))
        labels, found = peers.pck_means(X, pairs, 2, seed, weight=0.5)
        assert penalized(X, labels, found, pairs, 0.5) >= values[best] - 1e-9
        with monkeypatch.context() as patch:
            patch.setattr(peers, "neighborhood_centers", lambda *_, start=centers[best]: start)
            labels, found = peers.pck_means(X, pairs, 2, seed, weight=0.5)
        assert penalized(X, labels, found, pairs, 0.5) == pytest.approx(values[best])


@pytest.mark.parametrize("shrinkage", [0.0, 0.3])
def test_rca_whitens_the_covariance_within_chunklets(peers, shrinkage, rng):
    X, y, _ = drawn(rng, 60, 3, 10)
    X = X @ rng.standard_normal((3, 3))
    chunklets = [np.flatnonzero(y == c)[:10] for c in range(3)]
    links = np.concatenate([np.stack([one[:-1], one[1:]], axis=1) for one in chunklets])
    A = peers.rca(X, dkl.Pairs(links, np.empty((0, 2), int)), shrinkage)
    C = np.mean([np.cov(X[one].T, bias=True) for one in chunklets], axis=0)
    C = (1 - shrinkage) * C + shrinkage * np.trace(C) / 3 * np.eye(3)
    np.testing.assert_allclose(A, np.linalg.inv(sqrtm(C).real), rtol=1e-8)
    if not shrinkage:
        within = np.concatenate([X[one] - X[one].mean(axis=0) for one in chunklets]) @ A
        np.testing.assert_allclose(within.T @ within / len(within), np.eye(3), atol=1e-9)


def test_e2cp_propagates_as_its_iteration_does(peers, rng, monkeypatch):
    n, alpha = 40, 0.8
    X, _, pairs = drawn(rng, n, 2, 30)
    captured = []
    monkeypatch.setattr(peers, "spectral_labels", lambda W, k, seed: captured.append(W.copy()))
    peers.e2cp(X, pairs, 2, seed=0, alpha=alpha, n_neighbors=5)
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
    np.testing.assert_allclose(captured[0], wanted, atol=1e-8)
