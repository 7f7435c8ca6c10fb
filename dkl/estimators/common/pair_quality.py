"""The quality of a kernel from pairs: the AUC of K_ij on pairs that it did not learn from, next to that of distances of rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dkl.blocks.row_sources import row_source
from dkl.estimators.common.samples import read_rows
from dkl.pairs import Pairs
from dkl.problems.pair_folds import follows
from dkl.quality import MIN_HELD_OUT, Quality, auc_error, auc_of, held_out

Vector = NDArray[np.float64]
Flags = NDArray[np.bool_]

STEP = 7
"""Key of the random stream that draws the held-out pairs; the seed is 0 but for learners that have one."""
ADVICE = "try standardized features, more pairs, or another gamma or graph"
DISTANCES = "distances of rows"


def drawn(pairs: Pairs, share: float, seed: int = 0) -> Flags:
    """Return (m,) which pairs to hold out: a share of the must-links, and of the cannot-links, that have a weight."""
    kinds = np.where(pairs.weights > 0, (pairs.sign > 0).astype(np.intp), -1)
    return np.isin(np.arange(len(kinds)), held_out(len(kinds), share, seed, STEP, kinds))


def hold_out(n: int, pairs: Pairs, share: float, seed: int = 0) -> tuple[Flags, Flags] | None:
    """Return (m,) the pairs to learn from, and the held-out ones that do not follow from these; None where either are too few."""
    out = drawn(pairs, share, seed)
    tests = out & ~follows(n, pairs, ~out)
    is_must = pairs.sign > 0
    if any(not (flags & kind).any() for flags in (tests, ~out) for kind in (is_must, ~is_must)):
        return None
    return (~out, tests) if np.count_nonzero(tests) >= MIN_HELD_OUT else None


def similarities(rows: Any, pairs: Pairs, chosen: Flags) -> Vector:
    """Return (m,) minus the squared distances of the rows of the chosen pairs, NaN for others. rows: as `row_source` takes them."""
    found = np.full(len(chosen), np.nan)
    numbers = np.flatnonzero(chosen)
    if not len(numbers):
        return found
    ends, place = np.unique(np.stack([pairs.i, pairs.j])[:, numbers], return_inverse=True)
    some = read_rows(row_source(rows), ends).astype(np.float64)  # small integers, as of images, would wrap around
    first, second = place.reshape(2, -1)
    apart = some[first] - some[second]
    with np.errstate(over="ignore"):
        squares = apart.multiply(apart) if sp.issparse(apart) else np.square(np.asarray(apart, np.float64))
        found[numbers] = -np.asarray(squares.sum(axis=1)).ravel()
    return found


def quality_of_pairs(scores: Vector, plain: Vector, is_must: Flags, name: str, advice: str = ADVICE) -> Quality | None:
    """Compare scores (m,), NaN for pairs that were not held out, with those of an alternative; None for too few pairs of a kind."""
    used = np.isfinite(scores) & np.isfinite(plain)
    kinds = is_must[used]
    if np.count_nonzero(used) < MIN_HELD_OUT or kinds.all() or not kinds.any():
        return None
    (value, first), (other, second) = (auc_of(one[used], kinds) for one in (scores, plain))
    how = f"{np.count_nonzero(used):,} of {len(scores):,} pairs"
    error = auc_error(first, second, kinds)
    return Quality("held-out AUC of pairs", value, int(np.count_nonzero(used)), how, name, other, error, {}, advice)
