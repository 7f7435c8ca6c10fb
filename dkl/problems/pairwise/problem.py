"""Kernel learning from must-link and cannot-link pairs (PCP; Hu & Kwok 2013, problem (1)).

    minimize over K psd   f(K) = tr(K L) + gamma/2 * sum over (i,j) in T of W_ij (K_ij - T_ij)^2                   (1)

T holds every diagonal entry (target 1), every must-link pair (1) and every cannot-link pair (0), both (i,j) and (j,i). W_ij > 0
is the weight of the pair, 1 on the diagonal; the paper has 1 throughout.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from dkl.linalg.slabs.slab_ops import random_columns, slab_width
from dkl.problems.pair_folds import Masks
from dkl.problems.pairwise.admm import PairwiseADMM
from dkl.problems.pairwise.certificate import Certificate, certify, gradient_matrix, optimal_scale, weighted
from dkl.problems.pairwise.low_rank import FactoredPairwise
from dkl.problems.pairwise.terms import PairwiseTerms, on_targets
from dkl.side_information.pairs import Pairs


@dataclass(frozen=True, eq=False)
class PairwiseKernel(PairwiseTerms):
    """The pairwise problem, with its two solvers' forms and its certificate."""

    def admm(
        self, rank: int, dtype: DTypeLike, tol: float, *, adapt_rho: bool | str = True, stopping: str = "relative"
    ) -> PairwiseADMM:
        """Return the ADMM program for factors (n, rank) in `dtype`; `tol`: its tolerance, relative unless `stopping` is "paper"."""
        return PairwiseADMM.of(
            self.laplacian,
            self.targets,
            gamma=self.gamma,
            weights=self.weights,
            rank=rank,
            width=slab_width(rank, dtype),
            dtype=dtype,
            tol=tol,
            adapt_rho=adapt_rho,
            stopping=stopping,
        )

    def factored(self, threads: int) -> FactoredPairwise:
        """Return the same problem in V, K = V V', without a copy; to be closed."""
        return FactoredPairwise(self.laplacian, self.targets, self.gamma, weights=self.weights, threads=threads)

    def evaluate_sums(self, program: PairwiseADMM, sums: NDArray[np.float64]) -> tuple[NDArray[np.float64], float]:
        """Return (K on T (nnz,), tr(KL)) at K = U U' from the sums of a "u" or "prime" phase, without U."""
        pair, edge, scalars = program.split(sums)
        entries = program.entries(pair)
        objective, loss = program.objective(pair, edge, float(scalars[-1]))
        return entries, objective - loss

    def evaluate(self, factor: NDArray) -> tuple[NDArray[np.float64], float]:
        """Return (K on T (nnz,), tr(KL)) at K = factor factor', in double precision, 16 columns at a time."""
        return self.evaluate_columns(factor[:, lo : lo + 16] for lo in range(0, factor.shape[1], 16))

    def evaluate_columns(self, parts: Iterable[NDArray]) -> tuple[NDArray[np.float64], float]:
        """Return (K on T (nnz,), tr(KL)), both sums over columns, for a factor in groups of columns (n, few)."""
        entries = np.zeros(self.targets.nnz)
        smooth = 0.0
        rows = np.repeat(np.arange(self.n), np.diff(self.targets.indptr))
        for columns in parts:
            part = np.ascontiguousarray(columns, dtype=float)
            # Rows of both ends of the entries are copied out, 2^18 entries at a time: all at once would exceed the factor.
            for start in range(0, rows.size, 1 << 18):
                span = slice(start, start + (1 << 18))
                entries[span] += np.einsum("ij,ij->i", part[rows[span]], part[self.targets.indices[span]])
            smooth += float(np.vdot(part, self.laplacian @ part))
        return entries, smooth

    def value(self, entries: NDArray[np.float64], smooth: float) -> float:
        """Return f of (1) from K on T and smooth = tr(KL)."""
        difference = entries - self.targets.data
        return smooth + 0.5 * self.gamma * float(weighted(difference, self.weights) @ difference)

    def scale(self, entries: NDArray[np.float64], smooth: float) -> float:
        """Return the t >= 0 for which f(t K) is least; see `optimal_scale`."""
        pull = weighted(entries, self.weights)
        return optimal_scale(float(pull @ self.targets.data), float(pull @ entries), self.gamma, smooth)

    def certificate(
        self, entries: NDArray[np.float64], smooth: float, *, product: Any = None, seed: int = 0
    ) -> Certificate:
        """Return the certificate of K, given on T and by smooth = tr(KL): see `certify`.

        product: a function that makes the product x -> S x of S, as `product_on` returns it; None for scipy's.
        """
        gradient = gradient_matrix(self.laplacian, self.targets, self.gamma, entries, self.weights)
        wrapped = None if product is None else product(gradient)
        return certify(
            gradient, self.targets, self.gamma, entries, smooth, weights=self.weights, product=wrapped, seed=seed
        )


@dataclass(frozen=True)
class RandomStart:
    """V = U with normal entries of variance 1 / rank, so that K_ii is near 1; Lambda = 0. Picklable, for workers.

    A column depends on the seed and its number alone, so the start is the same whatever the slabs and their owners.
    """

    seed: int
    n: int
    rank: int

    def __call__(self, name: str, slab: int, columns: range, out: NDArray) -> None:
        """Fill out (n, w), the columns `columns` of the array `name`."""
        if name == "Lambda":
            out[...] = 0
        else:
            random_columns(self.seed, columns, self.n, self.rank**-0.5, out)


@dataclass(frozen=True, eq=False)
class WarmStart:
    """V = U = a given factor (n, r0) in the first columns, small normal deviates in the others; Lambda = 0.

    Lambda tends to zero at a solution, so that of another gamma would be no better.
    """

    factor: NDArray
    seed: int
    rank: int

    def __call__(self, name: str, slab: int, columns: range, out: NDArray) -> None:
        """Fill out (n, w), the columns `columns` of the array `name`."""
        out[...] = 0
        if name == "Lambda":
            return
        known = range(columns.start, min(columns.stop, self.factor.shape[1]))
        if len(known) < len(columns):
            # A column of zeros in V and U is a stationary point and stays zero; a little noise lets the rank be used.
            random_columns(self.seed, columns, self.factor.shape[0], 1e-3 * self.rank**-0.5, out)
        if len(known) > 0:
            out[:, : len(known)] = self.factor[:, known.start : known.stop]


# Folds of pairs: the problem of those to learn from, and the kernel at those that are held out.

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
