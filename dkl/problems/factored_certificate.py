"""The certificate of problem (1) at K = V V' of low rank, where S has as many eigenvalues near 0 as V has columns, and more.

The bounds of problems/certificate.py, f(K) - f* <= <S, K> + what M costs, for M on T's pattern with S + M psd. M is found in three steps:

  1. multipliers E by which S + E nearly vanishes on V's columns (problems/multipliers.py): next to free, and the lower end of S + E is
     what V lacks, not what is unfinished in it;
  2. the lowest Ritz vectors of S + E, some dozens, from a filter; where they are too low for the goal, the large entries of the negative
     ones are lifted, and a pass of the filter over what is left shows how low that is;
  3. the cheapest diagonal that makes the rest psd (problems/lifted_proof.py).

Up to DENSE rows step 2 is LAPACK's: all eigenvectors.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dkl.linalg.extreme_eigenvalues import DENSE
from dkl.linalg.lowest_outside import lowest_outside
from dkl.linalg.lowest_subspace import RitzBlock, lowest_subspaces
from dkl.linalg.one_blas_thread import one_blas_thread
from dkl.linalg.principal_columns import truncate_rank
from dkl.problems.certificate import Certificate, TraceBound
from dkl.problems.lifted_proof import LowEnd, Modes, Proof, cheapest
from dkl.problems.multipliers import Multipliers

Array = NDArray[np.float64]
BESIDE, FEW_BESIDE, GUARDS = 40, 16, 8
"""Ritz vectors that are wanted beside as many as V has columns, at most and where few are asked for, and more that only help
these to converge."""
PASSES, HOPELESS = 8, 2
"""Passes over the block at most, and after which its large entries are lifted."""
SINGLE = 1e-6
"""Relative gaps down to this one are proven by Ritz vectors from a filter in single precision."""
UNSURE = 0.5
"""Of the lowest Ritz value beyond the block: what is assumed of S there while it is not known."""
SLACK, ENOUGH = 0.1, 0.5
"""What unfinished Ritz vectors may cost, of the gap or of the goal; and the share of the goal at which they are as good as finished."""
AFFORDED = 0.1
"""Of the goal: what E may cost."""


class Factored(Protocol):
    """Problem (1) in V, and S at a point of it."""

    n: int
    gamma: float
    targets: sparse.csr_array

    def gradient_matrix(self, point: Any) -> sparse.csr_array:
        """S."""

    def diagonal(self, point: Any) -> Array:
        """K_ii (n,)."""

    def multipliers(self, point: Any, relative: float) -> Multipliers:
        """E, for a relative gap."""


def certified(
    problem: Factored,
    point: Any,
    relative: float,
    seed: int,
    *,
    few: bool = False,
    last: bool = False,
    near: Modes | None = None,
) -> tuple[Certificate, Modes]:
    """The certificate at a point, and what was found of the lower end of S + E.

    relative: the relative gap that is aimed at; `few` asks for a narrow block, `last` for the best bound there is; `near`: what
    was found at a point nearby.
    """
    bound = TraceBound.of(point.objective, problem.gamma, problem.diagonal(point))
    change = _affordable(problem.multipliers(point, relative), bound, AFFORDED * relative * bound.scale)
    search = _Search(problem, point, bound, change, 0.0 if last else relative * bound.scale, seed)
    with one_blas_thread():
        modes, residual, proof = search.dense() if problem.n <= DENSE else search.filtered(_start(search.root[:, None] * point.v, few, seed, near))
    inner = 0.5 * float(np.vdot(point.v, point.gradient))
    # A negative <S, K> is rounding or a K that is not scaled: it must not lower the bound.
    gap = max(inner, 0.0) + proof.term
    direction = modes.directions[:, 0]
    certificate = Certificate(
        point.objective,
        gap,
        float(gap / bound.scale),
        -search.rounding * float(search.root.max()) ** 2,
        residual,
        inner,
        bound.trace_bound,
        direction=direction / np.linalg.norm(direction),
        lift=proof.lift,
        pair_lift=change.pairs(problem.targets),
    )
    return certificate, modes


def _affordable(change: Multipliers, bound: TraceBound, most: float) -> Multipliers:
    """As large a share of E as costs at most so much: at a small gamma a large E is dear."""
    share = 1.0
    while share > 1e-3 and change.times(share).cost(bound.diagonal, bound.gamma) > most:
        share /= 2
    return change if share == 1.0 else change.times(share)


class _Search:
    """The lower end of A = B^-1/2 (S + E) B^-1/2 at a point, and what it proves."""

    def __init__(self, problem: Factored, point: Any, bound: TraceBound, change: Multipliers, goal: float, seed: int) -> None:
        targets = problem.targets
        moved = sparse.csr_array((change.entries, targets.indices, targets.indptr), shape=targets.shape)
        matrix = sparse.csr_array(problem.gradient_matrix(point) + moved)
        n = problem.n
        self.root = np.ones(n) if n <= DENSE else np.sqrt(np.maximum(matrix.diagonal(), 1.0))
        self.matrix = _scaled(matrix, 1 / self.root)
        self.bound, self.goal, self.seed = bound.beside(change.off_diagonal), goal, seed
        self.given = change.diagonal
        norm = float(abs(self.matrix).sum(axis=1).max())
        self.rounding = float(np.finfo(float).eps * norm * 4 * (np.sqrt(n) if n <= DENSE else 1.0))

    def dense(self) -> tuple[Modes, float, Proof]:
        """All of the spectrum."""
        values, vectors = np.linalg.eigh(self.matrix.toarray())
        end = LowEnd(values, vectors, self.root, np.zeros((values.size, values.size)), np.inf)
        return end, 0.0, cheapest(end, self.bound, self.given, self.rounding)

    def filtered(self, start: Start) -> tuple[Modes, float, Proof]:
        """(the lowest Ritz vectors, the residual norm of the first, what they prove)."""
        dtype = np.float32 if self.goal >= SINGLE * self.bound.scale else np.float64
        for done, block in enumerate(lowest_subspaces(self.matrix, start.block, start.count, PASSES, dtype, start.known), 1):
            told = self._told(block, self.given)
            import os
            if os.environ.get("SAY"):
                print("   pass", done, "told", told / self.bound.scale, "neg", int((block.values < 0).sum()), block.values[0], block.beyond, flush=True)
            if told <= ENOUGH * self.goal or done == PASSES:
                proof = self._of(self.matrix, block, self.given)
                if proof.term <= self.goal or done == PASSES:
                    break
            if self.goal > 0 and done >= HOPELESS:
                proof = self._lifted(block, dtype)
                break
        if self.goal == 0:
            proof = min(proof, self._lifted(block, dtype), key=lambda one: one.term)
        return Modes(block.values, block.vectors, self.root), float(np.linalg.norm(block.remainder[:, 0])), proof

    def _lifted(self, block: RitzBlock, dtype: Any) -> Proof:
        """What a lift of the large entries proves, and a pass over what is left."""
        modes = Modes(block.values, block.vectors, self.root)
        lift = modes.clean_lift()
        lifted = sparse.csr_array(self.matrix + sparse.diags_array(lift / self.root**2))
        start = np.hstack([block.vectors, self._guards(block)])
        known = np.sort(np.sum(block.vectors * (lifted @ block.vectors), axis=0))
        given = self.given + lift
        for done, again in enumerate(lowest_subspaces(lifted, start, block.values.size, 3, dtype, known), 1):
            told, exact = self._told(again, given), self._exact(again, given)
            import os
            if os.environ.get("SAY"):
                print("   lifted", done, "cost of lift", float((lift).sum()) / self.bound.scale, "told", told / self.bound.scale, "exact", exact/self.bound.scale, "neg", int((again.values < 0).sum()), again.values[0], again.beyond, flush=True)
            if told <= ENOUGH * self.goal or exact > self.goal or told - exact <= SLACK * max(self.goal, exact):
                break
        return self._of(lifted, again, given)

    def _guards(self, block: RitzBlock) -> Array:
        return np.random.default_rng(self.seed).standard_normal((block.vectors.shape[0], GUARDS))

    def _told(self, block: RitzBlock, given: Array) -> float:
        """What the block would prove, the rest of the spectrum beginning where its guards are."""
        end = self._end(block, UNSURE * block.beyond)
        return cheapest(end, self.bound, given, self.rounding).term

    def _exact(self, block: RitzBlock, given: Array) -> float:
        """What finished Ritz vectors would prove, about: those of these values."""
        end = LowEnd(block.values, block.vectors, self.root, np.zeros((block.values.size,) * 2), np.inf)
        return cheapest(end, self.bound, given, self.rounding).term

    def _of(self, matrix: sparse.csr_array, block: RitzBlock, given: Array) -> Proof:
        """What it does prove, with a lower bound on the rest of the spectrum."""
        mu = lowest_outside(matrix, block.vectors, self.seed)
        import os
        proof = cheapest(self._end(block, mu), self.bound, given, self.rounding)
        if os.environ.get("SAY"):
            print("   proof", proof.term / self.bound.scale, "mu", mu, flush=True)
        return proof

    def _end(self, block: RitzBlock, mu: float) -> LowEnd:
        return LowEnd(block.values, block.vectors, self.root, block.remainder.T @ block.remainder, mu)


def _scaled(matrix: sparse.csr_array, scale: Array) -> sparse.csr_array:
    """scale_i M_ij scale_j, in place."""
    matrix.data *= scale[matrix.indices]
    matrix.data *= np.repeat(scale, np.diff(matrix.indptr))
    return matrix


@dataclass(frozen=True)
class Start:
    """What a block starts from, how many Ritz vectors are wanted of it, and Ritz values of its first columns if they are known."""

    block: Array
    count: int
    known: Array | None


def _start(v: Array, few: bool, seed: int, near: Modes | None) -> Start:
    """The columns of V, on which S nearly vanishes, or what was found nearby; and random ones, as many as are wanted and the guards."""
    n, factor = v.shape[0], truncate_rank(v, v.shape[1])
    count = min(factor.shape[1] + (FEW_BESIDE if few else BESIDE), n - GUARDS)
    block = np.random.default_rng(seed).standard_normal((n, count + GUARDS))
    if near is None:
        block[:, : factor.shape[1]] = factor / np.linalg.norm(factor, axis=0)
        return Start(block, count, None)
    kept = min(near.vectors.shape[1], count)
    block[:, :kept] = near.vectors[:, :kept]
    return Start(block, count, near.values)
