"""Quality of a kernel of pairs: the AUC of K_ij on held-out pairs, next to that of row distances.

Where folds of pairs have been scored before the fit, to choose gamma or to find wrong pairs, their scores are used. Otherwise one fold is
held out: a kernel is learned without it, to a loose gap, and the fit of all pairs starts from that kernel, which repays a part of its cost
(benchmarks/system/quality_cost.md).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse

from dkl.blocks.rows.row_sources import row_source
from dkl.errors import StoreError
from dkl.estimators.base.plain_models import DISTANCES, quality_of_pairs, similarities
from dkl.estimators.base.plot_rows import MAX_POOL_BYTES, read_rows
from dkl.estimators.pairwise.settings import PairwiseSettings
from dkl.problems.pair_folds import Flags, n_contradictions, one_fold, split_folds
from dkl.problems.pairwise.terms import MOST_GAMMA, check_gamma, check_weights, gamma_path
from dkl.quality import MAX_HELD_OUT, MIN_HELD_OUT, Quality
from dkl.side_information.pairs import Pairs
from dkl.stores.run import RunStore

if TYPE_CHECKING:
    from dkl.estimators.base.validation import CheckedRows

Vector = NDArray[np.float64]
FOLDER = "held_out"
STEP = 6
"""Key of the random stream that draws some of the scored pairs, where they are many."""
AFFINITIES = "the affinity"


@dataclass(frozen=True)
class HeldOutPairs:
    """Pairs to measure the quality on.

    pairs   the checked pairs, m of them, must-links first
    numbers (p,) ascending numbers of those that are scored
    learn   (m,) pairs that the fold's kernel learns from; None: other folds score them
    plain   (p,) scores by the plain alternative, named `by`
    """

    pairs: Pairs = field(repr=False)
    numbers: NDArray[np.int64] = field(repr=False)
    learn: Flags | None = field(repr=False)
    plain: Vector = field(repr=False)
    by: str

    @classmethod
    def of(
        cls, rows: CheckedRows, pairs: Pairs, settings: PairwiseSettings, scale: float, *, is_affinity: bool = False
    ) -> HeldOutPairs | None:
        """Draw the pairs by the settings' seed, and score them by the rows X (n, d), or by affinities X (n, n).

        scale: the Laplacian's largest entry. Returns None where holdout is 0, or where fewer than MIN_HELD_OUT pairs, or pairs of one
        kind alone, can be scored.
        """
        source = row_source(rows)
        learn, score = _fold_of(source.n, pairs, settings, scale)
        numbers = np.flatnonzero(score)
        # Two rows a pair are read.
        most = max(MIN_HELD_OUT, min(MAX_HELD_OUT, MAX_POOL_BYTES // max(2 * source.row_bytes, 1)))
        if len(numbers) > most:
            numbers = np.sort(np.random.default_rng([settings.seed, STEP]).choice(numbers, most, replace=False))
        n_must = int(np.count_nonzero(numbers < pairs.n_must))
        # An AUC needs pairs of both kinds.
        if len(numbers) < MIN_HELD_OUT or n_must in (0, len(numbers)):
            return None
        if is_affinity:
            return cls(pairs, numbers, learn, _affinities(rows, pairs.i[numbers], pairs.j[numbers]), AFFINITIES)
        ends = np.stack([pairs.i, pairs.j], axis=1)[numbers]
        return cls(pairs, numbers, learn, similarities(rows, ends), DISTANCES)

    @classmethod
    def load(cls, run: RunStore, pairs: Pairs, n: int, settings: PairwiseSettings, scale: float) -> HeldOutPairs | None:
        """Read what `store` wrote, if the run has it; StoreError where it does not fit the pairs."""
        if not (run.path / FOLDER).is_dir():
            return None
        found, where = run.read_arrays(FOLDER), f"{run.path}/{FOLDER}"
        numbers, plain = found["pair"], found["plain"]
        is_valid = len(numbers) == len(plain) and bool(np.all(np.diff(numbers) > 0)) and bool(np.isfinite(plain).all())
        if not is_valid or not len(numbers) or numbers[0] < 0 or numbers[-1] >= len(pairs.i):
            raise StoreError("invalid held-out pairs", where=where)
        return cls(pairs, numbers, _fold_of(n, pairs, settings, scale)[0], plain, DISTANCES)

    def store(self, run: RunStore, scores: Vector | None = None) -> None:
        """Write the pairs' numbers and scores to the run's folder. Raises DiskError."""
        more = {} if scores is None else {"scores": scores}
        run.write_arrays(FOLDER, {"pair": self.numbers, "plain": self.plain, **more})

    @property
    def scored(self) -> Flags:
        """Return flags (m,), True for the pairs that are scored."""
        flags = np.zeros(len(self.pairs.i), bool)
        flags[self.numbers] = True
        return flags

    def quality(self, scores: Vector, n_folds: int | None = None) -> Quality:
        """Return the quality of a kernel with `scores` (p,) by `n_folds` folds; None: one part was held out."""
        is_must = self.numbers < self.pairs.n_must
        how = f"{len(scores):,} of {len(self.pairs.i):,} pairs" + ("" if n_folds is None else f", {n_folds} folds")
        return quality_of_pairs(scores, self.plain, is_must, how, self.by)


def _fold_of(n: int, pairs: Pairs, settings: PairwiseSettings, scale: float) -> tuple[Flags | None, Flags]:
    """Return flags (m,) of the pairs to learn from (None: folds score them), and of those to score."""
    if not settings.holdout:
        return None, np.zeros(len(pairs.i), bool)
    if gammas_to_compare(pairs, settings, scale) is not None:
        # To find wrong pairs each must be scored; to compare gammas those suffice that do not follow from the others.
        score_all = looks_for_wrong_pairs(pairs, settings)
        masks = split_folds(n, pairs, settings.cv, settings.seed, score_all=score_all)
        return None, np.any([score for _, score in masks], axis=0)
    return one_fold(n, pairs, settings.holdout, settings.seed)


def _affinities(affinity: Any, i: NDArray[np.int64], j: NDArray[np.int64]) -> Vector:
    """Return the entries (i, j), (p,) each, of a matrix (n, n), dense, sparse or stored."""
    if issparse(affinity):
        return np.asarray(affinity.tocsr()[i, j], np.float64).ravel()
    # Rows of i alone, each once: a stored matrix is read by rows.
    chosen = np.unique(i)
    return np.asarray(read_rows(row_source(affinity), chosen)[np.searchsorted(chosen, i), j], np.float64).ravel()


# Checks of gamma and the pairs before any work starts, and whether pairs are held out first.

FAR = 3.0
"""Factor by which a path's gamma must be below the given one, to be compared with it."""


def largest_gamma(settings: PairwiseSettings, scale: float) -> float:
    """Return the given gamma, or the end of the path for a Laplacian whose largest entry is `scale`."""
    return MOST_GAMMA * scale if isinstance(settings.gamma, str) else float(settings.gamma)


def gammas_to_compare(pairs: Pairs, settings: PairwiseSettings, scale: float) -> NDArray[np.float64] | None:
    """Return the ascending gammas to compare by held-out pairs, the given one last; None without any.

    pairs: checked; scale: the Laplacian's largest entry.
    """
    path = gamma_path(scale, settings.n_gammas)
    if isinstance(settings.gamma, str):
        return path
    # One near the given gamma would differ from it by chance alone.
    smaller = path[path <= settings.gamma / FAR]
    if not len(smaller) or not looks_for_wrong_pairs(pairs, settings):
        return None
    return np.append(smaller, float(settings.gamma))


def looks_for_wrong_pairs(pairs: Pairs, settings: PairwiseSettings) -> bool:
    """Return whether to look for wrong pairs: "find", or "auto" with contradictions and enough for folds."""
    if settings.wrong_pairs != "auto":
        return settings.wrong_pairs == "find"
    return min(pairs.n_must, pairs.n_cannot) >= settings.cv and n_contradictions(pairs) > 0


def holds_out_for_certain(settings: PairwiseSettings) -> bool:
    """Return whether a fit whose folds do not fit into memory is refused: `auto` does without them."""
    return settings.gamma == "cv" or settings.wrong_pairs == "find"


def check_pairs(n: int, pairs: Pairs, settings: PairwiseSettings, scale: float | None) -> None:
    """Raise InputError for a gamma or weights unsuited to a Laplacian of this `scale`, or too few pairs.

    scale: None if unknown, then gamma and weights are not checked. Pairs are too few if some cannot be held out.
    """
    if scale is not None:
        gamma = largest_gamma(settings, scale)
        check_gamma(gamma, scale)
        check_weights(gamma, pairs.weights, scale)
    if gammas_to_compare(pairs, settings, scale or 1.0) is not None:
        split_folds(n, pairs, settings.cv, settings.seed, score_all=looks_for_wrong_pairs(pairs, settings))
