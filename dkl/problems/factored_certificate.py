"""The certificate of problem (1) at K = V V' of low rank, where S has as many eigenvalues near 0 as V has columns, and more.

The bound of problems/certificate.py, f(K) - f* <= <S, K> + <D, K*> for a diagonal D >= 0 with S + D psd. Whether it is can be asked of
any A = B^-1/2 (S + D) B^-1/2 as well, B = max(1, diag S): large multipliers, of wrong pairs at a large gamma, spread S over hundreds where
its lowest modes are at 1e-3, which no filter tells apart. As |S_ij|^2 <= S_ii S_jj near the optimum, A ends at about 3.

With a block Q of the lowest Ritz vectors of A = B^-1/2 S B^-1/2, theta their values, C = (I - QQ') A Q, a lower bound mu of A on the
complement of Q, x = Q a + b and shift > -mu, minimizing over b,
    x'(A + shift I) x >= a' (diag(theta) + shift I - C'C / (mu + shift)) a,
so that D = shift B + D' with D' above B^1/2 U U' B^1/2, -U U' the negative part of that matrix on Q. C enters squared: the Ritz vectors
need not be exact. A large shift leaves nothing to lift, none at all lifts everything; the cheapest of some counts. Up to DENSE rows B = I,
Q is all of LAPACK's eigenvectors, and C and the complement are nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dkl.linalg.diagonal_lift import diagonal_above
from dkl.linalg.extreme_eigenvalues import DENSE
from dkl.linalg.lowest_outside import lowest_outside
from dkl.linalg.lowest_subspace import lowest_subspaces
from dkl.linalg.one_blas_thread import one_blas_thread
from dkl.linalg.principal_columns import truncate_rank
from dkl.problems.certificate import Certificate, TraceBound

Array = NDArray[np.float64]
BESIDE, FEW_BESIDE, GUARDS = 40, 16, 8
"""Ritz vectors that are wanted beside as many as V has columns, at most and where few are asked for, and more that only help
these to converge."""
PASSES, HOPELESS = 8, 2
"""Passes over the block at most, and after which it is left as it is where it cannot prove the goal."""
FAR = 5.0
"""Times what finished Ritz vectors would prove: what is left to win where these are, so that the block is not left yet."""
SINGLE = 1e-6
"""Relative gaps down to this one are proven by Ritz vectors from a filter in single precision."""
SHIFTS = (0.0, 1e-3, 1e-2, 0.1, 0.3)
"""Shares of the shift that leaves nothing to lift."""
UNSURE = 0.5
"""Of the lowest Ritz value beyond the block: what is assumed of S there while it is not known."""
SLACK, ENOUGH = 0.1, 0.5
"""What unfinished Ritz vectors may cost, of the gap or of the goal; and the share of the goal at which they are as good as finished."""


class Factored(Protocol):
    """Problem (1) in V, and S at a point of it."""

    n: int
    gamma: float

    def gradient_matrix(self, point: Any) -> sparse.csr_array:
        """S."""

    def diagonal(self, point: Any) -> Array:
        """K_ii (n,)."""


@dataclass(frozen=True)
class LowEnd:
    """What is known of A = B^-1/2 S B^-1/2 below: Ritz values (k,) and vectors (n, k), coupling C'C (k, k), mu on the complement (inf:
    there is none); and root, B^1/2 (n,)."""

    values: Array
    vectors: Array
    coupling: Array
    mu: float
    root: Array

    @property
    def directions(self) -> Array:
        """x = B^-1/2 q (n, k), for which x'S x is the Ritz value of q."""
        return self.vectors / self.root[:, None]

    @property
    def lowest(self) -> float:
        """A lower bound on lambda_min(A): that of [[diag(values), G], [G, mu I]], G the root of C'C, as C is G up to a rotation."""
        if not np.isfinite(self.mu):
            return float(self.values[0])
        values, turn = np.linalg.eigh(self.coupling)
        root = (turn * np.sqrt(np.maximum(values, 0.0))) @ turn.T
        return float(
            np.linalg.eigvalsh(np.block([[np.diag(self.values), root], [root, self.mu * np.eye(len(root))]]))[0]
        )

    def lowest_unscaled(self) -> float:
        """A lower bound on lambda_min(S): as S + Z Z' is psd, that of -Z Z'; or max B lambda_min(A)."""
        by_all = self.lowest * float(np.max(self.root**2 if self.lowest < 0 else 1.0))
        if by_all >= 0 or self.mu <= 0 or not np.any(self.root > 1):
            return by_all
        lift = self.to_lift(0.0)
        return max(by_all, -float(np.linalg.eigvalsh(lift.T @ lift)[-1]))

    def to_lift(self, shift: float) -> Array:
        """Z = B^1/2 U (n, q) with S + shift B + Z Z' psd, for a shift beyond -mu."""
        inside = np.diag(self.values + shift)
        if np.isfinite(self.mu):
            inside -= self.coupling / (self.mu + shift)
        values, vectors = np.linalg.eigh(inside)
        below = values < 0
        return self.root[:, None] * (self.vectors @ (vectors[:, below] * np.sqrt(-values[below])))


def certified(
    problem: Factored,
    point: Any,
    relative: float,
    seed: int,
    *,
    few: bool = False,
    last: bool = False,
    near: LowEnd | None = None,
) -> tuple[Certificate, LowEnd]:
    """The certificate at a point, and what was found of S's lower end.

    relative: the relative gap that is aimed at; `few` asks for a narrow block, `last` for the best bound there is; `near`: what
    was found at a point nearby.
    """
    n, matrix = problem.n, problem.gradient_matrix(point)
    root = np.ones(n) if n <= DENSE else np.sqrt(np.maximum(matrix.diagonal(), 1.0))
    matrix = _scaled(matrix, 1 / root)
    bound = TraceBound.of(point.objective, problem.gamma, problem.diagonal(point))
    norm = float(abs(matrix).sum(axis=1).max())
    rounding = float(np.finfo(float).eps * norm * 4 * (np.sqrt(n) if n <= DENSE else 1.0))
    with one_blas_thread():
        goal = 0.0 if last else relative * bound.scale
        if n <= DENSE:
            end, residual = _dense_end(matrix, root), 0.0
            term, lift = _cheapest(end, bound, rounding)
        else:
            start = _start(root[:, None] * point.v, few, seed, near)
            end, residual, (term, lift) = _low_end(matrix, root, start, bound, goal, seed, rounding)
    inner = 0.5 * float(np.vdot(point.v, point.gradient))
    # A negative <S, K> is rounding or a K that is not scaled: it must not lower the bound.
    gap = max(inner, 0.0) + term
    direction = end.vectors[:, 0] / root
    certificate = Certificate(
        point.objective,
        gap,
        float(gap / bound.scale),
        end.lowest_unscaled() - rounding * float(root.max()) ** 2,
        residual,
        inner,
        bound.trace_bound,
        direction=direction / np.linalg.norm(direction),
        lift=lift,
    )
    return certificate, end


def _scaled(matrix: sparse.csr_array, scale: Array) -> sparse.csr_array:
    """scale_i M_ij scale_j, in place."""
    matrix.data *= scale[matrix.indices]
    matrix.data *= np.repeat(scale, np.diff(matrix.indptr))
    return matrix


def _cheapest(end: LowEnd, bound: TraceBound, rounding: float = 0.0) -> tuple[float, Array]:
    """(the gap's second term, the lift that gives it) over some shifts between no lift and nothing but a lift."""
    whole = max(-end.lowest, 0.0)
    first = best = _paid(bound, (whole + rounding) * end.root**2)
    for share in SHIFTS if whole > 0 else ():
        shift = share * whole
        if end.mu + shift > 0:
            now = _paid(bound, diagonal_above(end.to_lift(shift)) + (shift + rounding) * end.root**2)
            if now[0] > best[0] and best is not first:
                break  # with a larger share it rises further
            best = min(best, now, key=lambda one: one[0])
    return best


def _paid(bound: TraceBound, lift: Array) -> tuple[float, Array]:
    """(the gap's second term of a lift, the lift)."""
    return bound.gap_term(0.0, lift), lift


def _dense_end(matrix: sparse.csr_array, root: Array) -> LowEnd:
    """All of the spectrum."""
    values, vectors = np.linalg.eigh(matrix.toarray())
    return LowEnd(values, vectors, np.zeros((values.size, values.size)), np.inf, root)


def _low_end(
    matrix: sparse.csr_array, root: Array, start: Start, bound: TraceBound, goal: float, seed: int, rounding: float
) -> tuple[LowEnd, float, tuple[float, Array]]:
    """(the lowest Ritz vectors, as well as the goal of the gap's second term asks; the residual norm of the first; what they prove).

    What finished Ritz vectors would prove is about what the values of these do; where that is beyond the goal, there is nothing to
    prove yet, and the vectors only serve to go on from.
    """
    dtype = np.float32 if goal >= SINGLE * bound.scale else np.float64
    blocks = lowest_subspaces(matrix, start.block, start.count, PASSES, dtype, start.known)
    for done, block in enumerate(blocks, 1):
        coupling = block.remainder.T @ block.remainder
        told = _cheapest(LowEnd(block.values, block.vectors, coupling, UNSURE * block.beyond, root), bound, rounding)[0]
        is_enough, exact = told <= ENOUGH * goal, 0.0
        if not is_enough and done >= HOPELESS:
            exact = _cheapest(LowEnd(block.values, block.vectors, 0 * coupling, np.inf, root), bound, rounding)[0]
        is_last = done == PASSES or (goal > 0 and exact > goal and done >= HOPELESS and told <= FAR * exact)
        if is_last or is_enough or (done >= HOPELESS and told - exact <= SLACK * max(goal, exact)):
            mu = lowest_outside(matrix, block.vectors, seed)
            end = LowEnd(block.values, block.vectors, coupling, mu, root)
            proof = _cheapest(end, bound, rounding)
            if is_last or proof[0] <= max(goal, (1 + SLACK) * told):
                break
    return end, float(np.linalg.norm(block.remainder[:, 0])), proof


@dataclass(frozen=True)
class Start:
    """What a block starts from, how many Ritz vectors are wanted of it, and Ritz values of its first columns if they are known."""

    block: Array
    count: int
    known: Array | None


def _start(v: Array, few: bool, seed: int, near: LowEnd | None) -> Start:
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
