"""Folds of pairs: the problem of those to learn from, and the kernel at those that are held out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dkl.pairs import Pairs
from dkl.problems.pair_folds import Flags, Masks
from dkl.problems.pairwise import PairwiseKernel
from dkl.problems.pairwise_factored import FactoredPairwise
from dkl.problems.pairwise_terms import on_targets

Vector = NDArray[np.float64]
AT_ONCE = 1 << 16
"""Pairs whose ends' rows are copied out together."""
Solve = Callable[[FactoredPairwise, NDArray, Any], Any]
"""Function of a problem, a start (n, r) and a watch that returns a `FactoredSolution`."""


@dataclass(frozen=True)
class PairFold:
    """problem: the whole one, with weights of 0 at the pairs held out; ends (p, 2) of those that are scored; solve: the solver."""

    problem: FactoredPairwise
    ends: NDArray[np.int64]
    solve: Solve

    @property
    def n(self) -> int:
        """Number of rows."""
        return self.problem.n

    def at(self, gamma: float) -> FactoredPairwise:
        """Return the problem to learn from at a gamma."""
        return self.problem.with_gamma(gamma)

    def solved(self, gamma: float, start: NDArray, watch: Any) -> Any:
        """Learn from the pairs that are not held out."""
        return self.solve(self.at(gamma), start, watch)

    def scored(self, factor: NDArray) -> tuple[Vector, Vector]:
        """Return K_ij and K_ij / sqrt(K_ii K_jj), (p,) each, of K = factor factor' (n, n) at the pairs held out."""
        return scores_of(factor, self.ends)


def scores_of(factor: NDArray, ends: NDArray[np.int64]) -> tuple[Vector, Vector]:
    """Return K_ij and K_ij / sqrt(K_ii K_jj), 0 where that is 0 / 0, at pairs `ends` (p, 2) of K = factor factor'; (p,) each."""
    lengths = np.sqrt(np.einsum("nr,nr->n", factor, factor))
    scores = np.empty(len(ends))
    for lo in range(0, len(ends), AT_ONCE):
        i, j = ends[lo : lo + AT_ONCE].T
        scores[lo : lo + AT_ONCE] = np.einsum("pr,pr->p", factor[i], factor[j])
    sizes = lengths[ends[:, 0]] * lengths[ends[:, 1]]
    return scores, np.divide(scores, sizes, out=np.zeros_like(scores), where=sizes > 0)


@contextmanager
def pair_folds(
    problem: PairwiseKernel, pairs: Pairs, masks: Masks, threads: int, solve: Solve
) -> Iterator[list[PairFold]]:
    """The folds of a problem: they share its graph, its targets and the threads, which end with the context."""
    whole = problem.factored(threads)
    try:
        yield [_fold(whole, problem.n, pairs, learn, score, solve) for learn, score in masks]
    finally:
        whole.close()


def _fold(whole: FactoredPairwise, n: int, pairs: Pairs, learn: Flags, score: Flags, solve: Solve) -> PairFold:
    ends = np.stack([pairs.i, pairs.j], axis=1)[score]
    weights = on_targets(n, pairs, np.where(learn, pairs.weights, 0.0))
    return PairFold(whole.with_weights(weights), ends, solve)
