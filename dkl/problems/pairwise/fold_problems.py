"""Folds of pairs: the problem of those to learn from, and the kernel at those that are held out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dkl.problems.pair_folds import Masks
from dkl.problems.pairwise.terms import on_targets
from dkl.side_information.pairs import Pairs

Vector = NDArray[np.float64]
AT_ONCE = 1 << 16
"""Pairs whose ends' rows are copied out together."""
Solve = Callable[[Vector, float, NDArray | None, Any], Any]
"""Function of weights (nnz of T,), a gamma, a start (n, r), None for the problem's own, and a watch that returns a `FactoredSolution`."""


@dataclass(frozen=True)
class PairFold:
    """Fold of n rows: weights (nnz of T,), 0 at held-out pairs; ends (p, 2) of scored ones; the solver."""

    n: int
    weights: Vector = field(repr=False)
    ends: NDArray[np.int64] = field(repr=False)
    solve: Solve

    def solved(self, gamma: float, start: NDArray | None, watch: Any) -> Any:
        """Learn from the pairs that are not held out."""
        return self.solve(self.weights, gamma, start, watch)

    def scored(self, factor: NDArray) -> tuple[Vector, Vector]:
        """Return K_ij and K_ij / sqrt(K_ii K_jj), (p,) each, of K = factor factor' (n, n) at the pairs held out."""
        return scores_of(factor, self.ends)


def scores_of(factor: NDArray, ends: NDArray[np.int64]) -> tuple[Vector, Vector]:
    """Return K_ij and K_ij / sqrt(K_ii K_jj) (p,), 0 / 0 = 0, of K = factor factor' at `ends` (p, 2)."""
    lengths = np.sqrt(np.einsum("nr,nr->n", factor, factor))
    scores = np.empty(len(ends))
    for lo in range(0, len(ends), AT_ONCE):
        i, j = ends[lo : lo + AT_ONCE].T
        scores[lo : lo + AT_ONCE] = np.einsum("pr,pr->p", factor[i], factor[j])
    sizes = lengths[ends[:, 0]] * lengths[ends[:, 1]]
    return scores, np.divide(scores, sizes, out=np.zeros_like(scores), where=sizes > 0)


def pair_folds(n: int, pairs: Pairs, masks: Masks, solve: Solve) -> list[PairFold]:
    """Return the folds of checked pairs of n rows, each of which learns by `solve`."""
    ends = np.stack([pairs.i, pairs.j], axis=1)
    return [
        PairFold(n, on_targets(n, pairs, np.where(learn, pairs.weights, 0.0)), ends[score], solve)
        for learn, score in masks
    ]
