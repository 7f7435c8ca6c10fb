"""Randomly pivoted Cholesky draws what its definition says, and ends where the kernel has no more to give."""

import itertools

import numpy as np
import pytest
import scipy.sparse as sp
from repeats import but_for
from scipy.stats import chisquare
from sklearn.metrics.pairwise import pairwise_kernels

from dkl.blocks.rows.row_blocks import RowBlocks
from dkl.blocks.session import Session
from dkl.errors import InputError
from dkl.linalg.kernels.kernel_columns import Kernel
from dkl.problems.regression import column_choice
from dkl.problems.regression.column_choice import pivoted_cholesky, uniform


def blocks(X):
    return RowBlocks(X, Session())


def residual(K, chosen):
    """diag K - diag(K_S K_SS^-1 K_S')."""
    inner = K[chosen].T @ np.linalg.pinv(K[np.ix_(chosen, chosen)], rcond=1e-10) @ K[chosen] if len(chosen) else 0 * K
    return np.maximum(np.diag(K) - np.diag(inner), 0.0)


def set_probabilities(K):
    """Of each pair of pivots, in either order, by the definition of the method."""
    first = np.diag(K) / np.trace(K)
    found = dict.fromkeys(itertools.combinations(range(len(K)), 2), 0.0)
    for i in range(len(K)):
        after = residual(K, [i])
        after[i] = 0
        for j in np.flatnonzero(after):
            found[min(i, j), max(i, j)] += first[i] * after[j] / after.sum()
    return first, found


ONE_BY_ONE = [("rbf", 1), ("linear", 1), ("precomputed", 1)]


@pytest.mark.parametrize(
    ("name", "per_round"),
    but_for([*ONE_BY_ONE, ("linear", 32), ("precomputed", 32)], [*ONE_BY_ONE, *((name, 32) for name, _ in ONE_BY_ONE)]),
)
def test_pivots_have_the_probabilities_of_the_definition(rng, name, per_round, monkeypatch):
    """per_round 32: candidates drawn together, and accepted as what is left says."""
    monkeypatch.setattr(column_choice, "FIRST_ROUND", per_round)
    X = rng.standard_normal((6, 3)) * np.array([[0.3], [0.4], [1.0], [1.1], [0.9], [2.0]])
    X[1] = X[0] + 0.05
    K = pairwise_kernels(X, metric="linear" if name == "linear" else "rbf")
    rows = blocks(K if name == "precomputed" else X)
    kernel, draws = Kernel(name), 1000
    chosen = [pivoted_cholesky(rows, kernel, 2, rng) for _ in range(draws)]
    first, pairs = set_probabilities(K)
    assert sum(pairs.values()) == pytest.approx(1)
    counts = np.bincount([pair[0] for pair in chosen], minlength=6)
    assert chisquare(counts, draws * first).pvalue > 1e-4
    seen = [tuple(sorted(pair.tolist())) for pair in chosen]
    counts = np.array([seen.count(pair) for pair in pairs])
    wanted = draws * np.array(list(pairs.values()))
    often = wanted >= 5
    grouped = [np.append(part[often], part[~often].sum()) for part in (counts, wanted)]
    if grouped[1][-1] < 1:
        grouped = [part[:-1] for part in grouped]
        grouped[1] *= grouped[0].sum() / grouped[1].sum()
    assert chisquare(*grouped).pvalue > 1e-4


@pytest.mark.parametrize("make", [np.asarray, sp.csr_array])
def test_they_end_at_the_rank_and_never_repeat(rng, make):
    X = rng.standard_normal((200, 4))
    X[100:] = X[:100]
    chosen = pivoted_cholesky(blocks(make(X)), Kernel("linear"), 50, rng)
    assert len(chosen) == 4 == len(np.unique(X[chosen], axis=0))
    assert np.linalg.matrix_rank(X[chosen]) == 4
    many = pivoted_cholesky(blocks(make(X)), Kernel("rbf", gamma=50.0), 150, rng)
    assert len(many) == 100 == len(np.unique(X[many], axis=0))  # of equal rows, one


class Untrue:
    """Kernel whose diagonal promises of every row what only row 0 has: all that is drawn later is rejected, in every round."""

    is_precomputed = False

    def diagonal(self, rows, indices):
        return np.ones(len(rows))

    def columns(self, rows, points):
        return ((rows == 0) & (points.T == 0)).astype(float)


@pytest.mark.timeout(60)
def test_rounds_that_accept_nothing_end(rng):
    rounds = []

    class Counted(Untrue):
        def diagonal(self, rows, indices):
            rounds.append(len(rows))
            return super().diagonal(rows, indices)

    chosen = pivoted_cholesky(blocks(np.arange(4.0)[:, None]), Counted(), 3, rng)
    assert chosen.tolist() == [0]
    assert len(rounds) == 1 + column_choice.MOST_IDLE


def test_a_first_round_that_accepts_nothing_is_followed_by_another(rng, monkeypatch):
    accepted, rounds = column_choice._accepted, []

    def none_at_first(*given):
        rounds.append(given)
        return accepted(*given) if len(rounds) > 1 else np.empty(0, np.intp)

    monkeypatch.setattr(column_choice, "_accepted", none_at_first)
    chosen = pivoted_cholesky(blocks(rng.standard_normal((60, 3))), Kernel("rbf", gamma=0.5), 7, rng)
    assert len(set(chosen.tolist())) == 7


@pytest.mark.timeout(60)
def test_a_diagonal_that_no_column_has_is_refused(rng):
    class Zero(Untrue):
        where = "kernel"

        def columns(self, rows, points):
            return np.zeros((len(rows), len(points)))

    with pytest.raises(InputError, match=r"kernel: k\(x, x\) > 0 by itself, and 0 in a matrix of rows"):
        pivoted_cholesky(blocks(np.arange(4.0)[:, None]), Zero(), 3, rng)


@pytest.mark.parametrize("count", [1, 7, 60])
def test_as_many_as_asked_for(rng, count):
    X = rng.standard_normal((300, 5))
    chosen = pivoted_cholesky(blocks(X), Kernel("rbf", gamma=0.5), count, rng)
    assert len(set(chosen.tolist())) == len(chosen) == count
    assert chosen.min() >= 0 and chosen.max() < 300


def test_only_allowed_rows_are_drawn(rng):
    X, allowed = rng.standard_normal((120, 5)), np.arange(120) % 3 == 0
    chosen = pivoted_cholesky(blocks(X), Kernel("rbf", gamma=1.0), 100, rng, allowed)
    assert sorted(chosen.tolist()) == np.flatnonzero(allowed).tolist()
    assert allowed[uniform(120, 30, rng, allowed)].all()


def test_pivots_cover_a_rare_cluster_that_uniform_draws_miss(rng):
    X = np.vstack([rng.standard_normal((990, 3)) * 0.05, rng.standard_normal((10, 3)) * 0.05 + 8])
    hit = [(pivoted_cholesky(blocks(X), Kernel("rbf", gamma=0.1), 3, rng) >= 990).any() for _ in range(30)]
    assert np.mean(hit) > 0.9


@pytest.mark.parametrize("name", ["rbf", "linear", "precomputed"])
def test_what_is_left_is_by_definition(rng, name):
    X = rng.standard_normal((50, 6))
    K = pairwise_kernels(X, metric="linear" if name == "linear" else "rbf")
    rows, kernel = blocks(K if name == "precomputed" else X), Kernel(name)
    chosen = np.array([4, 40, 11])
    left = rows.map(
        column_choice.residual_diagonal,
        kernel,
        rows.take(chosen),
        chosen,
        np.linalg.cholesky(K[np.ix_(chosen, chosen)]),
    )
    np.testing.assert_allclose(np.concatenate(left), residual(K, chosen), atol=1e-9)


def test_uniform_draws_are_different_ascending_and_even(rng):
    counts = np.zeros(10)
    for _ in range(2000):
        drawn = uniform(10, 3, rng)
        assert (np.diff(drawn) > 0).all()
        counts[drawn] += 1
    assert chisquare(counts).pvalue > 1e-4
    assert uniform(5, 9, rng).tolist() == [0, 1, 2, 3, 4]
    assert uniform(4, 9, rng, np.array([True, False, True, False])).tolist() == [0, 2]
