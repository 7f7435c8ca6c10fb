"""Multipliers of the targets that make S vanish on the columns of V, nearly, by least squares.

At the optimum of problem (1) S V = 0. Near it S V is small, yet S then has negative eigenvalues: about V'S V within V's range, and where
S couples that range to its other eigenvalues next to 0. To lift them costs many times the gap. But S is only one choice: for any
symmetric E on T's pattern the bounds of problems/certificate.py hold with S + E in place of S, for <E, K> and |W^(-1/2) E|^2 / (2 gamma).
So S is first moved to where it should be,
    E = argmin |(S + E) V|^2 + stiffness |Q'(S + E) V|^2 + RIDGE |W^(-1/2) E|^2,   Q an orthonormal basis of V's range.
What is left within the range lowers the spectrum by itself, what is left beside it by its square: hence the stiffness, which grows as
the goal falls. The ridge keeps E small where it would do little. The price is next to nothing: where E V is -S V, <E, K> is -<S, K>, which
is 0 at a K of the best scale.

The normal equations are P_T(A + A') / 2 + RIDGE E / W = 0 with A = (I + stiffness Q Q') (S + E) V V': a product with a matrix on T's
pattern and dot products on it a step, of which conjugate gradients need dozens.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dkl.linalg import slab_kernels as kernels
from dkl.linalg.lanes import lanes_of
from dkl.linalg.principal_columns import truncate_rank
from dkl.linalg.slabs import empty_aligned
from dkl.problems.certificate import OffDiagonal

Array = NDArray[np.float64]
STIFF = 0.1
"""stiffness is this by the relative gap that is aimed at: at 100 a goal of 1e-3 was proven best, from 1,000 on one of 1e-4."""
LEAST_GOAL = 1e-12
"""A goal of less, or of 0, counts as this one: beyond it the equations are rounding."""
RIDGE = 0.1
"""Beside K_ii, about 1: what is not to be had for a small E is left to the lift."""
MOST_STEPS, RELATIVE = 100, 1e-2
"""Of conjugate gradients, at most, and of the residual."""


class Patterned(Protocol):
    """Problem (1) with its loops over parts of the rows."""

    n: int
    gamma: float
    targets: sparse.csr_array
    weights: Array | None

    def entries(self, point: Any) -> Array:
        """K = V V' on T's pattern (nnz,)."""

    def each(self, function: Callable[[int, int], Any], count: int) -> None:
        """function(lo, hi) over ranges of [0, count), by threads."""


@dataclass(frozen=True)
class Multipliers:
    """E: its entries on T's pattern (nnz,), of which diagonal (n,) is a part, and what the others cost beside a lift."""

    entries: Array
    diagonal: Array
    off_diagonal: OffDiagonal

    def cost(self, kernel: Array, gamma: float) -> float:
        """<E, K> + |W^(-1/2) E|^2 / (2 gamma), from K_ii (n,)."""
        off = self.off_diagonal
        size = off.size + float(self.diagonal @ self.diagonal)
        return off.with_kernel + float(self.diagonal @ kernel) + size / (2 * gamma)

    def times(self, share: float) -> Multipliers:
        """share E."""
        return Multipliers(share * self.entries, share * self.diagonal, self.off_diagonal.times(share))

    def on_pairs(self, targets: sparse.csr_array) -> Array:
        """E_ij of T's pairs i < j, row by row."""
        rows = np.repeat(np.arange(targets.shape[0]), np.diff(targets.indptr))
        return self.entries[rows < targets.indices]


def least_squares(problem: Patterned, point: Any, goal: float) -> Multipliers:
    """E at a point, for a relative gap; some dozens of products with a matrix on T's pattern, or a hundred where the goal is small."""
    found = _Normal(problem, point, STIFF / max(goal, LEAST_GOAL)).solved()
    return _split(problem, point, _symmetric(problem.targets, found))


class _Normal:
    """The normal equations, by rows; a pair of weight 0 is none, and its entries stay 0."""

    def __init__(self, problem: Patterned, point: Any, stiffness: float) -> None:
        self.problem, self.v, self.gradient = problem, point.v, point.gradient
        self.stiffness, self.basis = stiffness, _basis(point.v)
        targets = problem.targets
        self.pattern = targets.indptr.astype(np.int64), targets.indices.astype(np.int32, copy=False)
        weights = np.ones(targets.nnz) if problem.weights is None else problem.weights
        self.is_pair = weights > 0
        self.ridge = np.divide(RIDGE, weights, out=np.zeros(targets.nnz), where=self.is_pair)
        self.image = empty_aligned(point.v.shape, float)
        self.lanes = lanes_of(point.v.shape[1])

    def solved(self) -> Array:
        """E, by conjugate gradients from 0."""
        residual = np.empty_like(self.ridge)
        self._crossed(self.gradient, residual)
        residual *= -0.5  # the gradient is 2 S V
        found, direction = np.zeros_like(residual), residual.copy()
        size = first = float(residual @ residual)
        for _ in range(MOST_STEPS):
            if not size > RELATIVE**2 * first:
                break
            image = self.times(direction)
            step = size / float(direction @ image)
            found += step * direction
            residual -= step * image
            before, size = size, float(residual @ residual)
            direction *= size / before
            direction += residual
        return found

    def times(self, entries: Array) -> Array:
        """The image of E's entries (nnz,)."""
        out = np.empty_like(entries)
        n, known = self.problem.n, (*self.pattern, entries, self.v)
        self.problem.each(lambda lo, hi: kernels.product_rows(lo, hi, *known, self.image, self.lanes), n)
        self._crossed(self.image, out)
        return out + self.ridge * entries

    def _crossed(self, other: Array, out: Array) -> None:
        """out[k] = (v_i . x_j + x_i . v_j) / 2 for every entry of a pair or the diagonal, x = (I + stiffness QQ') other."""
        other = other + self.basis @ (self.stiffness * (self.basis.T @ other))
        n, known = self.problem.n, (*self.pattern, self.v, other)
        self.problem.each(lambda lo, hi: kernels.crossed_rows(lo, hi, *known, out, self.lanes), n)
        out *= np.where(self.is_pair, 0.5, 0.0)


def _symmetric(targets: sparse.csr_array, entries: Array) -> Array:
    """(E + E') / 2 on T's pattern: rounding tells (i, j) from (j, i), and what is stored, and proven, is one number for both."""
    moved = sparse.csr_array((entries, targets.indices, targets.indptr), shape=targets.shape)
    return 0.5 * (entries + sparse.csr_array(moved.T).data)


def _basis(v: Array) -> Array:
    """Q of V's range, orthonormal columns."""
    factor = truncate_rank(v, v.shape[1])
    return factor / np.linalg.norm(factor, axis=0)


def _split(problem: Patterned, point: Any, entries: Array) -> Multipliers:
    """E with its diagonal, and what the rest of it costs."""
    targets, held = problem.targets, problem.entries(point)
    weights = np.ones(targets.nnz) if problem.weights is None else problem.weights
    is_diagonal = np.repeat(np.arange(problem.n), np.diff(targets.indptr)) == targets.indices
    off = entries[~is_diagonal]
    used = weights[~is_diagonal]
    size = float(np.sum(np.divide(off * off, used, out=np.zeros_like(off), where=used > 0)))
    cost = OffDiagonal(float(off @ held[~is_diagonal]), float(off @ targets.data[~is_diagonal]), size)
    return Multipliers(entries, entries[is_diagonal], cost)
