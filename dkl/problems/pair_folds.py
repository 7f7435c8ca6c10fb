"""Folds of pairs: which are held out together.

Each kind of pair is dealt out to the folds at random. Fold k learns from the pairs of the others, and is scored by its own. Where pairs
contradict each other, or are searched for wrong ones, these are all its pairs, each with a score by a kernel that did not learn from it.

Where pairs are consistent, gamma is chosen only by those of its pairs that do not follow from what it learns from: (a, c) follows from
the must-links (a, b) and (b, c), and a cannot-link from one between the same two sets of rows that must-links join. What follows is
met by any gamma that is large enough, and would speak for large ones. Where less than half of a fold would be left, as where all pairs
of some labeled rows are given, rows are held out in place of pairs: fold k learns from the pairs that touch none of its rows, from
which no pair that touches one follows, and is scored by half of those between its rows and those of another, and by all within.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse import csgraph

from dkl.errors import InputError
from dkl.side_information.pair_checks import contradicted
from dkl.side_information.pairs import Pairs

Flags = NDArray[np.bool_]
Masks = list[tuple[Flags, Flags]]
"""Flags (m,) of the pairs to learn from and to score by, for each fold; must-links first.
No two folds score the same pair."""


def n_contradictions(pairs: Pairs) -> int:
    """Return the number of cannot-links whose ends must-links join."""
    n = 1 + int(max(pairs.i.max(initial=0), pairs.j.max(initial=0)))
    return int(np.count_nonzero(contradicted(pairs.must_link, pairs.cannot_link, n)))


def split_folds(n: int, pairs: Pairs, n_folds: int, seed: int, *, score_all: bool = False) -> Masks:
    """Return the folds of checked pairs of n rows: see the head of this file. score_all: each pair is scored, in the fold that holds
    it out. InputError for too few pairs."""
    # A stream for folds alone, so that other draws of a fit do not move them.
    draws = np.random.default_rng([seed, 2])
    fold_of = _dealt(pairs, n_folds, draws)
    found: Masks | None = [(fold_of != fold, fold_of == fold) for fold in range(n_folds)]
    if not score_all:
        found = _without_followers(n, pairs, fold_of, n_folds) or _split_rows(n, pairs, n_folds, draws)
    assert found is not None
    is_must = pairs.sign > 0
    for kind, name in ((is_must, "must-links"), (~is_must, "cannot-links")):
        if any(not learn[kind].any() or not score[kind].any() for learn, score in found):
            raise InputError(
                f"too few {name} to hold some out", where="gamma='cv' or wrong_pairs='find'", got=f"{pairs!r}",
                wanted=f"some to learn from and some to score by in each of {n_folds} folds",
                remedy="lower cv, or give gamma as a number and wrong_pairs='trust'",
            )  # fmt: skip
    return found


def one_fold(n: int, pairs: Pairs, share: float, seed: int) -> tuple[Flags, Flags]:
    """Return (m,) the pairs to learn from and those to score by, about a `share` of them, of checked pairs of n rows.

    Of the kind of the folds: see the head of this file. There may be none to score of either kind.
    """
    draws, n_folds = np.random.default_rng([seed, 5]), max(2, round(1 / share))
    learn = _dealt(pairs, n_folds, draws) != 0
    # What follows from the pairs that are learned from would be met by any gamma.
    score = ~learn & ~follows(n, pairs, learn)
    is_must = pairs.sign > 0
    if any(2 * np.count_nonzero(score & kind) < np.count_nonzero(~learn & kind) for kind in (is_must, ~is_must)):
        return _split_rows(n, pairs, n_folds, draws)[0]
    return learn, score


def _dealt(pairs: Pairs, n_folds: int, draws: np.random.Generator) -> NDArray[np.intp]:
    """Return the fold (m,) of each pair, either kind dealt out by itself."""
    is_must = pairs.sign > 0
    fold_of = np.empty(len(is_must), np.intp)
    for kind in (is_must, ~is_must):
        # Each kind by itself, or a fold might have none of the rarer kind.
        fold_of[kind] = draws.permutation(int(kind.sum())) % n_folds
    return fold_of


def _without_followers(n: int, pairs: Pairs, fold_of: NDArray[np.intp], n_folds: int) -> Masks | None:
    """Return the folds without what follows; None where less than half of the pairs of a kind would be left to score by in some fold."""
    is_must = pairs.sign > 0
    found: Masks = []
    for fold in range(n_folds):
        learn, out = fold_of != fold, fold_of == fold
        score = out & ~follows(n, pairs, learn)
        if any(2 * np.count_nonzero(score & kind) < np.count_nonzero(out & kind) for kind in (is_must, ~is_must)):
            return None
        found.append((learn, score))
    return found


def _split_rows(n: int, pairs: Pairs, n_folds: int, draws: np.random.Generator) -> Masks:
    """Return folds of rows: of each kind of pair, they touch as many rows, up to two."""
    must, cannot = (np.isin(np.arange(n), kind) for kind in (pairs.must_link, pairs.cannot_link))
    # Rows of both kinds of pairs first, so that each fold has some of these.
    parts = (must & cannot, must & ~cannot, cannot & ~must)
    order = np.concatenate([draws.permutation(np.flatnonzero(part)) for part in parts])
    fold_of = np.empty(n, np.intp)
    fold_of[order] = np.arange(len(order)) % n_folds
    one, other = fold_of[pairs.i], fold_of[pairs.j]
    # A pair between two folds is held out by both; each scores every second of these.
    scored = np.where(np.arange(len(one)) % 2 == 0, one, other)
    return [(~((one == fold) | (other == fold)), scored == fold) for fold in range(n_folds)]


def follows(n: int, pairs: Pairs, known: Flags) -> Flags:
    """Return which pairs (m,) of n rows follow from the `known` ones (m,), by chains of must-links."""
    is_must = pairs.sign > 0
    chains = known & is_must
    links = sparse.coo_array((np.ones(int(chains.sum())), (pairs.i[chains], pairs.j[chains])), shape=(n, n))
    # Sets of rows that must-links join: a pair follows if it is within one, or joins two that a cannot-link separates.
    joined = csgraph.connected_components(links, directed=False)[1].astype(np.int64)
    low, high = np.sort([joined[pairs.i], joined[pairs.j]], axis=0)
    between = low * n + high  # a number for each two sets of rows that must-links join
    return np.where(is_must, low == high, np.isin(between, between[known & ~is_must]))
