"""Kernel learning from must-link and cannot-link pairs (PCP; Hu & Kwok 2013, problem (1)).

    minimize over K psd   f(K) = tr(K L) + gamma/2 * sum over (i,j) in T of W_ij (K_ij - T_ij)^2                   (1)

T holds every diagonal entry (target 1), every must-link pair (1) and every cannot-link pair (0), both (i,j) and (j,i). W_ij > 0
is the weight of the pair, 1 on the diagonal; the paper has 1 throughout.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy import sparse

from dkl.errors import InputError
from dkl.linalg.slabs import random_columns, slab_width
from dkl.pairs import Pairs
from dkl.problems.certificate import Certificate, certify, gradient_matrix, optimal_scale, weighted
from dkl.problems.pairwise_admm import PairwiseADMM, paper_rank
from dkl.problems.pairwise_factored import FactoredPairwise

REACH = 1e12
"""How far gamma may be from the scale of L, either way: of the smaller of both terms of S, doubles still hold three digits."""


def check_gamma(gamma: float, scale: float) -> None:
    """InputError where gamma and a Laplacian whose largest entry is `scale` cannot be added in double precision.

    S = L + gamma P_T(K - T) holds both to eps = 2e-16 of the larger. Beyond a ratio of 1e12 fewer than three digits of the
    other would be left, and squares of gamma would overflow at last.
    """
    if scale > 0 and not scale / REACH <= gamma <= scale * REACH:
        raise InputError(
            "too far from the Laplacian for double precision",
            where="gamma",
            got=gamma,
            wanted=f"{scale / REACH:.2g} to {scale * REACH:.2g}, as the Laplacian's largest entry is {scale:.2g}",
        )


def check_weights(gamma: float, weights: NDArray[np.float64], scale: float) -> None:
    """InputError where gamma times the largest weight and a Laplacian of such a `scale` cannot be added: see `check_gamma`.

    A small product does no harm: the diagonal has the weight 1, and it is gamma alone that must not be lost beside L.
    """
    most = float(weights.max(initial=1.0))
    if scale > 0 and not most <= REACH * scale / gamma:
        wanted = f"at most {REACH * scale / gamma:.2g}, as gamma is {gamma:g}"
        raise InputError("too large for double precision", where="weights of pairs", got=most, wanted=wanted)


def target_matrix(n: int, must_link: NDArray[np.int64], cannot_link: NDArray[np.int64]) -> sparse.csr_array:
    """T in CSR, n x n, sorted, symmetric, with its whole diagonal; a cannot-link target is a stored zero.

    must_link, cannot_link : (m, 2) distinct unordered pairs, i != j, in no common pair.
    """
    return _on_pattern(n, must_link, cannot_link, np.repeat([1.0, 0.0], [len(must_link), len(cannot_link)]))


def _on_pattern(
    n: int, must_link: NDArray[np.int64], cannot_link: NDArray[np.int64], values: NDArray[np.float64]
) -> sparse.csr_array:
    """The matrix with T's pattern, 1 on the diagonal, and `values` at the must-links and then the cannot-links."""
    diagonal, must = np.arange(n), len(must_link)
    # Every pair twice, (i, j) and (j, i): the paper counts both, and the small systems need both.
    rows = np.concatenate([diagonal, must_link[:, 0], must_link[:, 1], cannot_link[:, 0], cannot_link[:, 1]])
    columns = np.concatenate([diagonal, must_link[:, 1], must_link[:, 0], cannot_link[:, 1], cannot_link[:, 0]])
    entries = np.concatenate([np.ones(n), values[:must], values[:must], values[must:], values[must:]])
    # Not through scipy's COO: its conversions are free to drop the zeros.
    order = np.lexsort((columns, rows))
    indptr = np.concatenate(([0], np.cumsum(np.bincount(rows, minlength=n))))
    return sparse.csr_array((entries[order], columns[order], indptr), shape=(n, n))


def on_targets(n: int, pairs: Pairs, values: NDArray[np.float64]) -> NDArray[np.float64]:
    """(nnz of T,) `values`, one a pair, must-links first, in the order of T's entries, and 1 on the diagonal."""
    return _on_pattern(n, pairs.must_link, pairs.cannot_link, values).data


@dataclass(frozen=True, eq=False)
class PairwiseKernel:
    """Problem (1): the Laplacian (n, n), the targets T (n, n) of `target_matrix`, and their weight gamma > 0.

    weights: W_ij > 0 (nnz of T,), in the order of T's entries; None: ones.
    """

    laplacian: sparse.csr_array
    targets: sparse.csr_array
    gamma: float
    weights: NDArray[np.float64] | None = None

    @classmethod
    def of(cls, laplacian: sparse.csr_array, pairs: Pairs, gamma: float) -> PairwiseKernel:
        """The problem of pairs that have passed `Pairs.check`."""
        n, must, cannot = int(laplacian.shape[0]), pairs.must_link, pairs.cannot_link
        weights = on_targets(n, pairs, pairs.weights) if pairs.is_weighted else None
        return cls(laplacian, target_matrix(n, must, cannot), gamma, weights)

    @property
    def n(self) -> int:
        """Number of patterns."""
        return int(self.laplacian.shape[0])

    @property
    def paper_rank(self) -> int:
        """The paper's rank rule (section 4), over all entries of T; never more than n."""
        return min(paper_rank(int(self.targets.nnz)), self.n)

    def admm(self, rank: int, dtype: DTypeLike, tol: float, *, adapt_rho: bool = True) -> PairwiseADMM:
        """The program of the ADMM iteration for factors (n, rank) in `dtype`; `tol` is its relative tolerance."""
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
        )

    def factored(self, threads: int) -> FactoredPairwise:
        """The same problem in V, K = V V', without a copy; to be closed."""
        return FactoredPairwise(self.laplacian, self.targets, self.gamma, weights=self.weights, threads=threads)

    def evaluate_sums(self, program: PairwiseADMM, sums: NDArray[np.float64]) -> tuple[NDArray[np.float64], float]:
        """(K on T (nnz,), tr(KL)) at K = U U', from the sums after a "u" or "prime" phase: nothing has to be computed from U."""
        pair, edge, scalars = program.split(sums)
        entries = program.entries(pair)
        objective, loss = program.objective(pair, edge, float(scalars[-1]))
        return entries, objective - loss

    def evaluate(self, factor: NDArray) -> tuple[NDArray[np.float64], float]:
        """(K on T (nnz,), tr(KL)) at K = factor factor', in double precision, 16 columns at a time."""
        return self.evaluate_columns(factor[:, lo : lo + 16] for lo in range(0, factor.shape[1], 16))

    def evaluate_columns(self, parts: Iterable[NDArray]) -> tuple[NDArray[np.float64], float]:
        """The same for a factor that comes in groups of columns (n, few): both are sums over columns."""
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
        """f of (1) from K on T and smooth = tr(KL)."""
        difference = entries - self.targets.data
        return smooth + 0.5 * self.gamma * float(weighted(difference, self.weights) @ difference)

    def scale(self, entries: NDArray[np.float64], smooth: float) -> float:
        """The t >= 0 for which f(t K) is least; see `optimal_scale`."""
        return optimal_scale(entries, self.targets.data, self.gamma, smooth, self.weights)

    def certificate(
        self, entries: NDArray[np.float64], smooth: float, *, product: Any = None, seed: int = 0
    ) -> Certificate:
        """How far K, given on T and by smooth = tr(KL), is from the optimum of (1): see `certify`.

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
