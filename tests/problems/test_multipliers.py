"""Multipliers of the targets against the dense least squares problem that they solve."""

import numpy as np
import pytest
from scipy import sparse

from dkl.problems import multipliers as module
from dkl.problems.pairwise import target_matrix
from dkl.problems.pairwise_factored import FactoredPairwise

GAMMA = 20.0


def problem_of(rng, n, weights=None, threads=1):
    """A dense psd Laplacian-like matrix, 2 n random pairs of which a third are must-links, weights of T's entries."""
    root = rng.standard_normal((n, n)) / n
    ends = np.unique(np.sort(rng.integers(0, n, (2 * n, 2)), axis=1), axis=0)
    ends = ends[ends[:, 0] != ends[:, 1]]
    targets = target_matrix(n, ends[::3], ends[np.arange(len(ends)) % 3 > 0])
    if weights is not None:
        upper = np.triu(weights(rng, (n, n)), 1)
        dense = upper + upper.T + np.eye(n)
        rows = np.repeat(np.arange(n), np.diff(targets.indptr))
        weights = dense[rows, targets.indices]
    return FactoredPairwise(sparse.csr_array(root @ root.T), targets, GAMMA, weights=weights, threads=threads)


def dense_minimizer(problem, v, stiffness):
    """E of the least |(S + E) V|^2 + stiffness |Q'(S + E) V|^2 + RIDGE |W^-1/2 E|^2 over symmetric E on T's pattern, by lstsq."""
    point = problem.at(problem.padded(v))
    S, n = problem.gradient_matrix(point).toarray(), problem.n
    used, _, _ = np.linalg.svd(v, full_matrices=False)
    q = used[:, : np.linalg.matrix_rank(v)]
    rows = np.repeat(np.arange(n), np.diff(problem.targets.indptr))
    weights = np.ones(rows.size) if problem.weights is None else problem.weights
    upper = [(i, j, w) for i, j, w in zip(rows, problem.targets.indices, weights, strict=True) if i <= j and w > 0]
    terms, unit = [], np.zeros((n, n))
    for i, j, w in upper:
        unit[:] = 0.0
        unit[i, j] = unit[j, i] = 1.0
        ridge = np.zeros(len(upper))
        ridge[len(terms)] = np.sqrt(module.RIDGE / w * (1.0 if i == j else 2.0))
        image = unit @ v
        terms.append(np.concatenate([image.ravel(), np.sqrt(stiffness) * (q.T @ image).ravel(), ridge]))
    image = S @ v
    wanted = -np.concatenate([image.ravel(), np.sqrt(stiffness) * (q.T @ image).ravel(), np.zeros(len(upper))])
    solved = np.linalg.lstsq(np.array(terms).T, wanted, rcond=None)[0]
    E = np.zeros((n, n))
    for (i, j, _), value in zip(upper, solved, strict=True):
        E[i, j] = E[j, i] = value
    return E


WEIGHTS = {
    "ones": None,
    "of any size": lambda rng, shape: rng.uniform(0.1, 5.0, shape),
    "some zero": lambda rng, shape: rng.uniform(0.1, 5.0, shape) * (rng.random(shape) < 0.6),
}


@pytest.mark.parametrize("goal", [1.0, 1e-3])
@pytest.mark.parametrize("rank", [1, 3, 11])
@pytest.mark.parametrize("weights", WEIGHTS)
def test_they_are_the_least_squares_solution(rng, monkeypatch, weights, rank, goal):
    monkeypatch.setattr(module, "MOST_STEPS", 5000)
    monkeypatch.setattr(module, "RELATIVE", 1e-13)
    problem = problem_of(rng, 11, WEIGHTS[weights])
    v = rng.standard_normal((11, rank)) / np.sqrt(rank)
    point = problem.at(problem.padded(v))
    found = problem.multipliers(point, goal)
    E = dense_minimizer(problem, v, module.STIFF / goal)
    rows = np.repeat(np.arange(11), np.diff(problem.targets.indptr))
    size = np.abs(E).max()
    np.testing.assert_allclose(found.entries, E[rows, problem.targets.indices], atol=1e-6 * size)
    np.testing.assert_array_equal(found.diagonal, found.entries[rows == problem.targets.indices])
    if problem.weights is not None:
        assert not found.entries[problem.weights == 0].any(), "a pair of weight 0 is none"


def test_a_zero_factor_has_none(rng):
    problem = problem_of(rng, 9)
    assert not problem.multipliers(problem.at(problem.padded(np.zeros((9, 2)))), 1e-3).entries.any()


@pytest.mark.parametrize("weights", WEIGHTS)
def test_their_price_by_dense_arithmetic(rng, weights):
    problem = problem_of(rng, 13, WEIGHTS[weights])
    v = rng.standard_normal((13, 4)) / 2
    point = problem.at(problem.padded(v))
    for share in (1.0, 0.25):
        found = problem.multipliers(point, 1e-2).times(share)
        rows = np.repeat(np.arange(13), np.diff(problem.targets.indptr))
        used = np.ones(rows.size) if problem.weights is None else problem.weights
        E, W = np.zeros((13, 13)), np.full((13, 13), np.inf)
        E[rows, problem.targets.indices], W[rows, problem.targets.indices] = found.entries, np.where(used > 0, used, 1)
        price = np.sum(E * (v @ v.T)) + np.sum(E**2 / W) / (2 * GAMMA)
        assert found.cost(problem.diagonal(point), GAMMA) == pytest.approx(price, rel=1e-9)
        off = E - np.diag(np.diag(E))
        assert found.off_diagonal.with_targets == pytest.approx(np.sum(off * problem.targets.toarray()), abs=1e-12)
        i, j = np.nonzero(np.triu(problem.targets.toarray() * 0 + (np.inf > W), 1))
        np.testing.assert_array_equal(found.on_pairs(problem.targets), E[i, j])


def test_threads_change_no_bits(rng, monkeypatch):
    from dkl.problems import pairwise_factored

    monkeypatch.setattr(pairwise_factored, "LEAST_NNZ_FOR_THREADS", 0)
    monkeypatch.setattr(pairwise_factored, "LEAST_ROWS", 8)
    pairwise_factored._parts.cache_clear()
    found = []
    for threads in (1, 3):
        own = np.random.default_rng(3)
        problem = problem_of(own, 60, threads=threads)
        found.append(problem.multipliers(problem.at(problem.padded(own.standard_normal((60, 5)))), 1e-3).entries)
        problem.close()
    pairwise_factored._parts.cache_clear()
    np.testing.assert_array_equal(*found)
