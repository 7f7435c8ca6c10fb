"""Quality of a kernel from pairs: the AUC of K_ij on held-out pairs, next to that of row distances."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dkl.blocks.rows.row_sources import row_source
from dkl.estimators.base.samples import read_rows
from dkl.problems.pair_folds import follows
from dkl.quality import Quality, auc_error, auc_of, held_out
from dkl.side_information.pairs import Pairs

if TYPE_CHECKING:
    from dkl.estimators.base.user_types import CheckedRows

Vector = NDArray[np.float64]
Flags = NDArray[np.bool_]

ADVICE = "try standardized features, more pairs, or another gamma or graph"
DISTANCES = "distances of rows"


def hold_out(n: int, pairs: Pairs, share: float, step: int) -> tuple[Flags, Flags] | None:
    """Return (m,) the pairs to learn from, and the held-out ones that these do not imply.

    None where the latter lack a kind. A share of the must-links, and of the cannot-links, that have a weight. step: key
    of the random stream; the seed is 0. Learners with a seed, and folds of rows where all pairs of some rows are given,
    hold out by `pair_folds.one_fold`.
    """
    is_must = pairs.sign > 0
    kinds = np.where(pairs.weights > 0, is_must.astype(np.intp), -1)
    learn = ~np.isin(np.arange(len(kinds)), held_out(len(kinds), share, 0, step, kinds))
    tests = ~learn & ~follows(n, pairs, learn)
    return (learn, tests) if len(np.unique(is_must[tests])) == 2 else None


def similarities(rows: CheckedRows, ends: NDArray[np.integer]) -> Vector:
    """Return minus the squared distances (p,) of pairs `ends` (p, 2) of rows that `row_source` takes."""
    numbers, place = np.unique(ends.T, return_inverse=True)
    some = read_rows(row_source(rows), numbers).astype(np.float64)  # small integers, as of images, would wrap around
    first, second = place.reshape(2, -1)
    apart = some[first] - some[second]
    with np.errstate(over="ignore"):
        squares = apart.multiply(apart) if sp.issparse(apart) else np.square(np.asarray(apart, np.float64))
        return -np.asarray(squares.sum(axis=1)).ravel()


def quality_of_pairs(
    scores: Vector, plain: Vector, is_must: Flags, how: str, name: str, advice: str = ADVICE
) -> Quality:
    """Compare scores (p,) of held-out pairs, must-links where is_must (p,), with the alternative `name`."""
    (value, first), (other, second) = auc_of(scores, is_must), auc_of(plain, is_must)
    error = auc_error(first, second, is_must)
    return Quality("held-out AUC of pairs", value, len(scores), how, name, other, error, {}, advice)
