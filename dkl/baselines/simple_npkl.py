"""SimpleNPKL: a kernel of bounded norm from pairs, by its concave dual in one multiplier a pair.

    minimize over K psd, tr(K^2) <= B    tr(K L) + sum over (i,j) in T of l(K_ij, t_ij),      (i,j) and (j,i) both in T

J. Zhuang, I. W. Tsang, S. C. H. Hoi, A family of simple non-parametric kernel learning algorithms, JMLR 12, 2011. For fixed
multipliers a_ij of the entries the kernel has a closed form (their Proposition 1 with p = 2):

    A = -L - [a_ij],    K = sqrt(B) A_+ / |A_+|_F,    A_+ the positive part of A
    D(a) = -sqrt(B) |A_+|_F - sum over T of (a_ij t_ij + q a_ij^2 / (2 gamma))   <=   the minimum

D is concave with the gradient K_ij - t_ij - q a_ij / gamma. They climb it by projected gradients; here L-BFGS-B does, and D proves
how far from the minimum K is.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy.linalg
import scipy.optimize
import scipy.sparse as sp
from numpy.typing import NDArray

from dkl.problems.pairwise.certificate import gap_scale

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class PairLoss:
    """Loss gamma/2 l(k, t) of an entry, by its conjugate a t + q a^2 / (2 gamma) on a range of a.

    value(k, t): l; q: 0 or 1; one_sided: whether a t <= 0; bounded: whether |a| <= gamma/2.
    """

    value: Callable[[Vector, Vector], Vector]
    q: float
    one_sided: bool = True
    bounded: bool = False

    def bounds(self, t: Vector, gamma: float) -> tuple[Vector, Vector]:
        """Return the least and largest a of each entry."""
        most = np.full(len(t), gamma / 2 if self.bounded else np.inf)
        if not self.one_sided:
            return -most, most
        return np.where(t > 0, -most, 0.0), np.where(t > 0, 0.0, most)


LOSSES = {
    "square": PairLoss(lambda k, t: (k - t) ** 2, 1.0, one_sided=False),
    "hinge": PairLoss(lambda k, t: np.maximum(0.0, 1.0 - t * k), 0.0, bounded=True),
    "squared_hinge": PairLoss(lambda k, t: np.maximum(0.0, 1.0 - t * k) ** 2, 1.0),
}
"""Losses of must-links, t = 1, and cannot-links, t = -1."""


@dataclass(frozen=True)
class BoundedKernelProblem:
    """The problem of `BoundedKernel`s: L (n, n), entries (i, j) with i <= j and targets t (m,), gamma, the loss, and B."""

    L: sp.csr_array
    i: NDArray[np.intp]
    j: NDArray[np.intp]
    t: Vector
    gamma: float
    loss: PairLoss
    B: float

    @property
    def counts(self) -> Vector:
        """Return how often T has each entry: twice off the diagonal."""
        return np.where(self.i == self.j, 1.0, 2.0)

    def kernel(self, a: Vector) -> tuple[Matrix, Vector, float]:
        """Return (eigenvectors (n, r), eigenvalues (r,) of K, |A_+|_F) at the multipliers."""
        A = -self.L.toarray()
        A[self.i, self.j] -= a
        off = self.i != self.j
        A[self.j[off], self.i[off]] -= a[off]
        # The positive eigenpairs alone, which are all of A_+.
        values, vectors = scipy.linalg.eigh(A, subset_by_value=(0.0, np.inf), driver="evr", overwrite_a=True)
        size = float(np.linalg.norm(values))
        return vectors, np.sqrt(self.B) * values / size if size else values, size

    def dual(self, a: Vector, size: float) -> float:
        """Return D(a), from |A_+|_F."""
        return -np.sqrt(self.B) * size - float(self.counts @ (a * self.t + self.loss.q * a**2 / (2 * self.gamma)))

    def primal(self, entries: Vector, factor: Matrix) -> float:
        """Return the objective at K = factor factor', from its entries on T."""
        smooth = float(np.vdot(factor, self.L @ factor))
        return smooth + 0.5 * self.gamma * float(self.counts @ self.loss.value(entries, self.t))

    def shrinkage(self, entries: Vector, factor: Matrix) -> float:
        """Return the s in [0, 1] for which the objective of s K is least, by the square loss; 1 by others.

        The closed form is on the bound, tr(K^2) = B, where the minimum need not be.
        """
        if self.loss.one_sided:
            return 1.0
        bend = self.gamma * float(self.counts @ entries**2)
        slope = self.gamma * float(self.counts @ (entries * self.t)) - float(np.vdot(factor, self.L @ factor))
        return float(np.clip(slope / bend, 0.0, 1.0)) if bend > 0 else 1.0


@dataclass(frozen=True)
class BoundedKernel:
    """A kernel found: factor (n, r), its objective, the best lower bound of the minimum, and how many kernels were made."""

    factor: Matrix
    objective: float
    bound: float
    n_iter: int
    gamma: float

    @property
    def relative_gap(self) -> float:
        """Return the gap over `gap_scale`: the larger of the objective and a floor."""
        scale = gap_scale(self.objective, len(self.factor), self.gamma)
        return max(0.0, self.objective - self.bound) / scale if np.isfinite(scale) else np.inf


class _SearchEnd(Exception):
    """The gap is small enough."""


def solve_bounded(problem: BoundedKernelProblem, tol: float, max_iter: int) -> BoundedKernel:
    """Climb the dual until the relative gap is at most `tol`, or `max_iter` kernels were made."""
    low, high = problem.loss.bounds(problem.t, problem.gamma)
    best: list[BoundedKernel] = []

    def descend(a: Vector) -> tuple[float, Vector]:
        vectors, values, size = problem.kernel(a)
        factor = vectors * np.sqrt(values)
        entries = np.einsum("ij,ij->i", factor[problem.i], factor[problem.j])
        dual, shrunk = problem.dual(a, size), problem.shrinkage(entries, factor)
        primal = problem.primal(shrunk * entries, np.sqrt(shrunk) * factor)
        before = best[0] if best else BoundedKernel(factor, np.inf, -np.inf, 0, problem.gamma)
        kept = np.sqrt(shrunk) * factor if primal < before.objective else before.factor
        ends = min(primal, before.objective), max(dual, before.bound)
        # Primal and dual values go up and down: the gap is that of the best of each so far.
        best[:] = [BoundedKernel(kept, *ends, before.n_iter + 1, problem.gamma)]
        if best[0].relative_gap <= tol or best[0].n_iter >= max_iter:
            raise _SearchEnd
        return -dual, -problem.counts * (entries - problem.t - problem.loss.q * a / problem.gamma)

    # Half of the largest multiplier pulls must-links together: at a = 0, A has no positive part and D no gradient.
    start = np.clip(-0.25 * problem.gamma * problem.t, low, high)
    with contextlib.suppress(_SearchEnd):
        scipy.optimize.minimize(
            descend, start, jac=True, method="L-BFGS-B", bounds=scipy.optimize.Bounds(low, high),
            options={"maxiter": max_iter, "maxfun": max_iter, "ftol": 0.0, "gtol": 0.0},
        )  # fmt: skip
    return best[0]
