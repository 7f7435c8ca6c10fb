"""What is checked of gamma and the pairs before any work starts."""

from __future__ import annotations

from dkl.estimators.pairwise.settings import PairwiseSettings
from dkl.pairs import Pairs
from dkl.problems.pair_folds import split_folds
from dkl.problems.pairwise_terms import MOST_GAMMA, check_gamma, check_weights


def largest_gamma(settings: PairwiseSettings, scale: float) -> float:
    """The given one, or the end of the path for a Laplacian whose largest entry is `scale`."""
    return MOST_GAMMA * scale if isinstance(settings.gamma, str) else float(settings.gamma)


def check_pairs(n: int, pairs: Pairs, settings: PairwiseSettings, scale: float | None) -> None:
    """InputError for a gamma, or weights, that do not go with a Laplacian of such a `scale`, where that is known, and for too few
    pairs to choose gamma by."""
    if scale is not None:
        gamma = largest_gamma(settings, scale)
        check_gamma(gamma, scale)
        check_weights(gamma, pairs.weights, scale)
    if settings.gamma == "cv":
        split_folds(n, pairs, settings.cv, settings.seed)
