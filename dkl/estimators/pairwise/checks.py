"""Checks of gamma and the pairs before any work starts, and whether pairs are held out first."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dkl.estimators.pairwise.settings import PairwiseSettings
from dkl.problems.pair_folds import n_contradictions, split_folds
from dkl.problems.pairwise.terms import MOST_GAMMA, check_gamma, check_weights, gamma_path
from dkl.side_information.pairs import Pairs

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
