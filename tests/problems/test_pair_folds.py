"""Folds of pairs: nothing that is scored follows from what is learned from, and what a fold's problem and scores are."""

import numpy as np
import pytest
from pairwise_cases import random_problem

import dkl
from dkl.errors import InputError
from dkl.problems.pair_folds import follows, one_fold, split_folds
from dkl.problems.pairwise.problem import PairwiseKernel, pair_folds, scores_of
from dkl.solvers.pairwise.low_rank import solve_to_gap
from dkl.solvers.watch import Watch


def closure(n, pairs, known):
    """Which pairs follow from the known ones, by repeating both rules until nothing is new."""
    same, apart = np.eye(n, dtype=bool), np.zeros((n, n), bool)
    for i, j, sign in zip(pairs.i[known], pairs.j[known], pairs.sign[known], strict=True):
        (same if sign > 0 else apart)[[i, j], [j, i]] = True
    for _ in range(7):  # chains of up to 128
        same = (same.astype(float) @ same) > 0
    apart = (same.astype(float) @ apart @ same) > 0
    return np.where(pairs.sign > 0, same[pairs.i, pairs.j], apart[pairs.i, pairs.j])


def pairs_of_labels(rng, n, n_must, n_cannot):
    return dkl.Pairs.from_labels(rng.integers(0, 3, n), n_must, n_cannot, int(rng.integers(99))).check(n)


@pytest.mark.parametrize("share", [0.5, 0.8])
def test_what_follows_is_the_closure_of_the_rules(rng, share):
    pairs = pairs_of_labels(rng, 30, 20, 60)
    known = rng.random(80) < share
    found = follows(30, pairs, known)
    assert np.array_equal(found, closure(30, pairs, known)) and found[known].all()
    assert found[~known].any() and not found[~known].all()


def test_pairs_are_dealt_out_and_nothing_scored_follows(rng):
    n = 120
    pairs = pairs_of_labels(rng, n, 60, 50)
    masks = split_folds(n, pairs, 5, seed=3)
    left_out = np.stack([~learn for learn, _ in masks])
    assert (left_out.sum(axis=0) == 1).all()  # each pair in one fold
    for kind, count in ((pairs.sign > 0, 12), (pairs.sign < 0, 10)):
        assert (left_out[:, kind].sum(axis=1) == count).all()
    for learn, score in masks:
        assert np.array_equal(score, ~learn & ~closure(n, pairs, learn))
    again = split_folds(n, pairs, 5, seed=3)
    assert all(
        np.array_equal(a, b) for one, two in zip(masks, again, strict=True) for a, b in zip(one, two, strict=True)
    )
    assert any((a[0] != b[0]).any() for a, b in zip(masks, split_folds(n, pairs, 5, seed=4), strict=True))


@pytest.mark.parametrize("of_labels", [False, True])
def test_one_fold_scores_nothing_that_follows(rng, of_labels):
    y = rng.integers(0, 3, 40)
    pairs = pairs_of_labels(rng, 120, 60, 50)
    if of_labels:  # all pairs of all rows: rows are held out, or nothing could be scored
        i, j = np.triu_indices(40, 1)
        alike = y[i] == y[j]
        pairs = dkl.Pairs(np.stack([i, j], 1)[alike], np.stack([i, j], 1)[~alike]).check(40)
    n = 40 if of_labels else 120
    learn, score = one_fold(n, pairs, 0.1, seed=3)
    assert not (learn & score).any() and not closure(n, pairs, learn)[score].any()
    assert 0.05 <= score.mean() <= 0.15 and score[pairs.sign > 0].any() and score[pairs.sign < 0].any()


def test_each_pair_is_scored_once_where_wrong_ones_are_looked_for(rng):
    pairs = pairs_of_labels(rng, 60, 70, 70)  # many of which follow from others
    masks = split_folds(60, pairs, 3, seed=1, score_all=True)
    assert all(np.array_equal(learn, ~score) for learn, score in masks)
    assert (np.stack([score for _, score in masks]).sum(axis=0) == 1).all()


def test_where_all_pairs_of_some_rows_are_given_rows_are_held_out():
    y = np.arange(30) % 3
    i, j = np.triu_indices(30, 1)
    ends, alike = np.stack([i, j], axis=1), y[i] == y[j]
    pairs = dkl.Pairs(ends[alike], ends[~alike]).check(100)
    masks = split_folds(100, pairs, 5, seed=0)
    assert (np.stack([score for _, score in masks]).sum(axis=0) == 1).all()
    for learn, score in masks:
        assert not (closure(100, pairs, learn) & ~learn).any() and not (learn & score).any()
        assert len(np.setdiff1d(np.arange(30), np.r_[pairs.i[learn], pairs.j[learn]])) == 6


@pytest.mark.parametrize(
    ("must", "cannot", "which"), [(3, 30, "must-links"), (30, 3, "cannot-links"), (30, 0, "cannot-links")]
)
def test_too_few_pairs_are_one_error(rng, must, cannot, which):
    pairs = pairs_of_labels(rng, 200, must, cannot)
    with pytest.raises(InputError, match=f"too few {which} to hold some out.*lower cv, or give gamma as a number"):
        split_folds(200, pairs, 5, seed=0)


def test_a_fold_is_the_problem_without_its_pairs_and_scores_these(rng):
    n, gamma = 24, 5.0
    laplacian, must, cannot = random_problem(rng, n, 24)  # of more pairs all may be in one group, without a cannot-link
    pairs = dkl.Pairs(must, cannot, weights=rng.uniform(0.2, 3.0, 24)).check(n, "drop")
    masks = split_folds(n, pairs, 2, seed=0)
    settings = {"target_gap": 1e-7, "max_iter": 20_000}

    whole = PairwiseKernel.of(laplacian, pairs, 1.0).factored(1)

    def solve(weights, gamma, start, watch):
        return solve_to_gap(whole.with_weights(weights).with_gamma(gamma), start, watch=watch, **settings)

    for fold, (learn, score) in zip(pair_folds(n, pairs, masks, solve), masks, strict=True):
        is_must, ends = pairs.sign > 0, np.stack([pairs.i, pairs.j], axis=1)
        rest = dkl.Pairs(ends[learn & is_must], ends[learn & ~is_must], weights=pairs.weights[learn])
        alone = PairwiseKernel.of(laplacian, rest, gamma).factored(1)
        mine, other = fold.solved(gamma, np.ones((n, 1)), Watch()), solve_to_gap(alone, **settings)
        assert mine.certificate.objective == pytest.approx(other.certificate.objective, rel=2e-7)
        K = mine.factor @ mine.factor.T
        scores, cosines = fold.scored(mine.factor)
        assert scores == pytest.approx(K[pairs.i, pairs.j][score], rel=1e-10, abs=1e-12)
        d = np.sqrt(np.diag(K))
        assert cosines == pytest.approx((K / np.outer(d, d))[pairs.i, pairs.j][score], rel=1e-10, abs=1e-12)


def test_a_row_of_zeros_has_cosine_0():
    scores, cosines = scores_of(np.array([[0.0, 0.0], [3.0, 4.0], [1.0, 0.0]]), np.array([[0, 1], [1, 2]]))
    assert scores.tolist() == [0.0, 3.0] and cosines == pytest.approx([0.0, 0.6])
