"""Weights of pairs: how sure one is of each. What they must satisfy, and what becomes of repeated pairs that have some."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dkl.errors import InputError
from dkl.io.plain_arrays import in_memory, refuse_text
from dkl.side_information.pair_checks import Integers, shown

Weights = npt.NDArray[np.float64]


def as_weights(value: object, n_must: int, n_cannot: int) -> Weights | None:
    """Return a read-only copy of the weights (n_must + n_cannot,); None if they are all 1.

    Errors: `InputError` for anything that is not a finite number >= 0 a pair.
    """
    if value is None:
        return None
    wanted = f"a finite number >= 0 a pair, {n_must} of must_link and then {n_cannot} of cannot_link"
    value = in_memory(value, "weights")
    refuse_text(value, "weights")
    try:
        given = np.asarray(value)
        is_real = given.dtype.kind in "fiu" or given.size == 0
        weights = np.array(given, dtype=float) if is_real else None
    except (ValueError, TypeError) as error:
        raise InputError("not numbers", where="weights", wanted=wanted) from error
    if weights is None or weights.shape != (n_must + n_cannot,):
        got = f"shape {given.shape}, dtype {given.dtype}"
        raise InputError("not a weight a pair", where="weights", got=got, wanted=wanted)
    bad = np.flatnonzero(~(np.isfinite(weights) & (weights >= 0)))
    if len(bad):
        more = f" and {len(bad) - 1} more" if len(bad) > 1 else ""
        got = f"weights[{bad[0]}] = {weights[bad[0]]}{more}"
        raise InputError("not a weight", where="weights", got=got, wanted=wanted)
    weights.setflags(write=False)
    return None if np.all(weights == 1) else weights


def without_opposites(
    must: Integers, must_weights: Weights, cannot: Integers, cannot_weights: Weights, n: int
) -> tuple[Weights, Weights, int, int]:
    """Return both kinds' weights without the pairs given both ways, and how many of these are left out and how many are kept.

    Of a pair that is in `must` and in `cannot`, each as `distinct` returns it, the heavier side keeps the difference of the
    weights; a weight of 0, which both sides have where their weights are equal, leaves the pair out.
    """
    must_keys, cannot_keys = (pairs[:, 0] * n + pairs[:, 1] for pairs in (must, cannot))
    _, in_must, in_cannot = np.intersect1d(must_keys, cannot_keys, assume_unique=True, return_indices=True)
    must_weights, cannot_weights = must_weights.copy(), cannot_weights.copy()
    difference = must_weights[in_must] - cannot_weights[in_cannot]
    must_weights[in_must], cannot_weights[in_cannot] = np.maximum(difference, 0.0), np.maximum(-difference, 0.0)
    n_kept = int(np.count_nonzero(difference))
    return must_weights, cannot_weights, len(difference) - n_kept, n_kept


def distinct(pairs: Integers, weights: Weights, where: str) -> tuple[Integers, Weights]:
    """Return (pairs (k, 2), weights (k,)) of weight above 0: each once, smaller end first, sorted.

    The order is lexicographic. Errors: `InputError` where repeats have different weights: only the user knows whether
    these are to be added up or one is right.
    """
    at = np.flatnonzero(weights > 0)
    at = at[np.lexsort((pairs[at].max(axis=1), pairs[at].min(axis=1)))]
    ordered, sizes = np.sort(pairs[at], axis=1), weights[at]
    is_repeat = np.r_[False, (ordered[1:] == ordered[:-1]).all(axis=1)][: len(at)]
    differs = np.flatnonzero(is_repeat[1:] & (sizes[1:] != sizes[:-1]))
    if len(differs):
        both = np.sort(at[differs[0] : differs[0] + 2])
        got = f"{shown(pairs, both, where)}, of weights {weights[both[0]]:g} and {weights[both[1]]:g}"
        remedy = "give it once, with the sum of its weights if each is to count"
        raise InputError("a pair is repeated with another weight", where=where, got=got, wanted="one", remedy=remedy)
    return ordered[~is_repeat], sizes[~is_repeat]
