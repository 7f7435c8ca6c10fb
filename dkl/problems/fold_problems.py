"""Cross-validation of pairs: the problem of each fold, and how wrong a kernel is on the pairs that it is scored by.

The error of K on the pairs to score by is the problem's own loss, must-links and cannot-links counting as much in all:

    error = 1/2 sum_must w_ij (K_ij - 1)^2 / sum_must w_ij + 1/2 sum_cannot w_ij K_ij^2 / sum_cannot w_ij
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

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


@dataclass(frozen=True)
class PairFold:
    """problem: the whole one, with weights of 0 at the pairs held out; ends (p, 2) of those to score by, targets (p,) 1 or 0, and shares
    (p,): w_ij over the sum of its kind, halved."""

    problem: FactoredPairwise
    ends: NDArray[np.int64]
    targets: Vector
    shares: Vector

    def at(self, gamma: float) -> FactoredPairwise:
        """The problem to learn from at a gamma."""
        return self.problem.with_gamma(gamma)

    def error(self, factor: NDArray) -> float:
        """Of K = factor factor' on the pairs to score by; see the head of this file."""
        total = 0.0
        for lo in range(0, len(self.ends), AT_ONCE):
            some = slice(lo, lo + AT_ONCE)
            i, j = self.ends[some].T
            off = np.einsum("pr,pr->p", factor[i], factor[j]) - self.targets[some]
            total += float(self.shares[some] @ off**2)
        return total


@contextmanager
def pair_folds(problem: PairwiseKernel, pairs: Pairs, masks: Masks, threads: int) -> Iterator[list[PairFold]]:
    """The folds of a problem: they share its graph, its targets and the threads, which end with the context."""
    whole = problem.factored(threads)
    try:
        yield [_fold(whole, problem.n, pairs, learn, score) for learn, score in masks]
    finally:
        whole.close()


def _fold(whole: FactoredPairwise, n: int, pairs: Pairs, learn: Flags, score: Flags) -> PairFold:
    must, cannot = np.split(np.where(score, pairs.weights, 0.0), [pairs.n_must])
    shares = np.concatenate([must / must.sum(), cannot / cannot.sum()])[score] / 2
    ends, targets = np.stack([pairs.i, pairs.j], axis=1)[score], (pairs.sign > 0)[score].astype(float)
    weights = on_targets(n, pairs, np.where(learn, pairs.weights, 0.0))
    return PairFold(whole.with_weights(weights), ends, targets, shares)
