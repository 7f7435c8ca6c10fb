"""The certificate of problem (1) at K = V V' of low rank, where S has as many eigenvalues near 0 as V has columns, and more.

The bound of problems/certificate.py, f(K) - f* <= <S, K> + shift tr(K*) + <D, K*> for a shift and a diagonal D >= 0 with
S + shift I + D psd, from a block Q of S's lowest Ritz vectors, theta their values, C = (I - QQ') S Q, and a lower bound mu of S
on the complement of Q. With x = Q a + b and shift > -mu, minimizing over b,
    x'(S + shift I) x >= a' (diag(theta) + shift I - C'C / (mu + shift)) a,
so that D need only be above the negative part of that matrix on Q. C enters squared: the Ritz vectors need not be exact.
A large shift leaves nothing to lift, none at all lifts everything; the cheapest of some counts. Up to DENSE rows Q is all of
LAPACK's eigenvectors, and C and the complement are nothing.
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
    """What is known of S below: Ritz values (k,) and vectors (n, k), coupling C'C (k, k), mu on the complement (inf: there is none)."""

    values: Array
    vectors: Array
    coupling: Array
    mu: float

    @property
    def lowest(self) -> float:
        """A lower bound on lambda_min(S): that of [[diag(values), G], [G, mu I]], G the root of C'C, as C is G up to a rotation."""
        if not np.isfinite(self.mu):
            return float(self.values[0])
        values, turn = np.linalg.eigh(self.coupling)
        root = (turn * np.sqrt(np.maximum(values, 0.0))) @ turn.T
        return float(
            np.linalg.eigvalsh(np.block([[np.diag(self.values), root], [root, self.mu * np.eye(len(root))]]))[0]
        )

    def to_lift(self, shift: float) -> Array:
        """U (n, q) with S + shift I + U U' psd, for a shift beyond -mu."""
        inside = np.diag(self.values + shift)
        if np.isfinite(self.mu):
            inside -= self.coupling / (self.mu + shift)
        values, vectors = np.linalg.eigh(inside)
        below = values < 0
        return self.vectors @ (vectors[:, below] * np.sqrt(-values[below]))


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
    bound = TraceBound.of(point.objective, problem.gamma, problem.diagonal(point))
    norm = float(abs(matrix).sum(axis=1).max())
    rounding = float(np.finfo(float).eps * norm * 4 * (np.sqrt(n) if n <= DENSE else 1.0))
    with one_blas_thread():
        goal = 0.0 if last else relative * bound.scale
        if n <= DENSE:
            end, residual = _dense_end(matrix), 0.0
            term, lift = _cheapest(end, bound, rounding)
        else:
            start = _start(point.v, few, seed, near)
            end, residual, (term, lift) = _low_end(matrix, start, bound, goal, seed, rounding)
    inner = 0.5 * float(np.vdot(point.v, point.gradient))
    # A negative <S, K> is rounding or a K that is not scaled: it must not lower the bound.
    gap = max(inner, 0.0) + term
    certificate = Certificate(
        point.objective,
        gap,
        float(gap / bound.scale),
        end.lowest - rounding,
        residual,
        inner,
        bound.trace_bound,
        direction=np.ascontiguousarray(end.vectors[:, 0]),
        lift=lift,
    )
    return certificate, end


def _cheapest(end: LowEnd, bound: TraceBound, rounding: float = 0.0) -> tuple[float, Array]:
    """(the gap's second term, the lift that gives it) over some shifts between no lift and nothing but a lift."""
    whole = max(-end.lowest, 0.0)
    best = bound.gap_term(-whole - rounding), np.zeros(bound.n)
    for share in SHIFTS if whole > 0 else ():
        shift = share * whole
        if end.mu + shift > 0:
            lift = diagonal_above(end.to_lift(shift))
            term = bound.gap_term(-shift - rounding, lift)
            if term > best[0] and best[1].any():
                break  # with a larger share it rises further
            if term < best[0]:
                best = term, lift
    return best


def _dense_end(matrix: sparse.csr_array) -> LowEnd:
    """All of the spectrum."""
    values, vectors = np.linalg.eigh(matrix.toarray())
    return LowEnd(values, vectors, np.zeros((values.size, values.size)), np.inf)


def _low_end(
    matrix: sparse.csr_array, start: Start, bound: TraceBound, goal: float, seed: int, rounding: float
) -> tuple[LowEnd, float, tuple[float, Array]]:
    """(the lowest Ritz vectors, as well as the goal of the gap's second term asks; the residual norm of the first; what they prove).

    What finished Ritz vectors would prove is about what the values of these do; where that is beyond the goal, there is nothing to
    prove yet, and the vectors only serve to go on from.
    """
    dtype = np.float32 if goal >= SINGLE * bound.scale else np.float64
    blocks = lowest_subspaces(matrix, start.block, start.count, PASSES, dtype, start.known)
    for done, block in enumerate(blocks, 1):
        coupling = block.remainder.T @ block.remainder
        told = _cheapest(LowEnd(block.values, block.vectors, coupling, UNSURE * block.beyond), bound, rounding)[0]
        is_enough, exact = told <= ENOUGH * goal, 0.0
        if not is_enough and done >= HOPELESS:
            exact = _cheapest(LowEnd(block.values, block.vectors, 0 * coupling, np.inf), bound, rounding)[0]
        is_last = done == PASSES or (goal > 0 and exact > goal and done >= HOPELESS)
        if is_last or is_enough or (done >= HOPELESS and told - exact <= SLACK * max(goal, exact)):
            mu = lowest_outside(matrix, block.vectors, seed)
            end = LowEnd(block.values, block.vectors, coupling, mu)
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
