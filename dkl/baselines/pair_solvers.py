"""Kernels of pairs K by the methods of others: block coordinate descent (BCD-NPKL), Laue's hybrid, MFPC, and SimpleNPKL.

E.-L. Hu, B. Wang, S. Chen, BCD-NPKL: scalable non-parametric kernel learning using block coordinate descent, ICML 2011: K = V V', and
one row v_i of V after the other goes where f is least in it, all others held. They leave out the diagonal of T, for which a row is the
solution of a linear system; with the diagonal, as Hu and Kwok 2013 have the problem, f is a quartic in v_i
(`linalg/graph/gauss_seidel.py`), and v_i takes a Newton step that lowers it.

S. Laue, A hybrid algorithm for convex semidefinite optimization, ICML 2012, Algorithm 1, joins Hazan's algorithm and a local search:
V gets a column more, the direction of steepest descent among kernels of rank 1, which is the eigenvector of the least eigenvalue of
the gradient; then all of V goes to a local minimum by L-BFGS. Where the least eigenvalue is not negative, the local minimum is the
global one.

MFPC is fixed point continuation over the psd cone, in the basis of a graph's smoothest eigenvectors:

    minimize over U psd (m, m)    tr(K L) / gamma + 1/2 sum over (i,j) in T of (K_ij - T_ij)^2 + mu tr(U),    K = Q U Q'

F. Shang, L. C. Jiao, F. Wang, Semi-supervised learning with mixed knowledge information, KDD 2012: the fixed point iteration of
S. Ma, D. Goldfarb, L. Chen, Fixed point and Bregman iterative methods for matrix rank minimization, Mathematical Programming 128,
2011, with eigenvalues in the place of singular values, as U is psd:

    Y = U - STEP gradient(U),    U+ = V max(D - STEP mu, 0) V',    Y = V D V'

mu falls from where U = 0 is optimal by SHRINK at a time to its own value, each time once the iteration has come to rest. The
gradient is that of the first two terms. It changes by no more than U does, as Q is orthonormal, so that steps below 2 converge.

SimpleNPKL finds a kernel of bounded norm by its concave dual in one multiplier a pair:

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
from dataclasses import dataclass, replace

import numpy as np
import scipy.linalg
import scipy.optimize
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.linalg import eigsh

from dkl.linalg.eigen.laplacian_eigenmaps import smoothest
from dkl.linalg.slabs.slab_ops import empty_aligned
from dkl.problems.pairwise.certificate import Certificate, gap_scale, gradient_matrix, weighted
from dkl.problems.pairwise.low_rank import row_sweeps
from dkl.problems.pairwise.problem import PairwiseKernel
from dkl.problems.pairwise.terms import padded_width
from dkl.problems.qsdp.problem import QSDPPoint, QuadraticSDP, propagation
from dkl.side_information.pairs import Pairs

Matrix = NDArray[np.float64]
EACH = 10
"""Sweeps, or iterations of MFPC, after which the gap is computed: it costs as much as several sweeps, or as one iteration."""


@dataclass(frozen=True)
class BlockKernel:
    """A kernel found: factor (n, r), its certificate, and sweeps made."""

    factor: Matrix
    certificate: Certificate
    n_iter: int


def solve_blocks(problem: PairwiseKernel, start: Matrix, *, tol: float, max_iter: int) -> BlockKernel:
    """Sweep over the rows of V, from `start` (n, r) on, until the relative gap is at most `tol`, or `max_iter` times."""
    rank = start.shape[1]
    # Aligned and padded with columns of zeros, as the compiled sweep needs them: zeros stay zeros.
    V = empty_aligned((problem.n, padded_width(problem.n, rank)), float)
    V[:, :rank], V[:, rank:] = start, 0.0
    sweep = row_sweeps(problem.laplacian, problem.targets, problem.gamma, problem.weights)
    for done in range(1, max_iter + 1):
        sweep(V, False)
        # At the last sweep too, so that a certificate of the factor that is returned exists.
        if done % EACH == 0 or done == max_iter:
            certificate = problem.certificate(*problem.evaluate(V[:, :rank]))
            if certificate.relative_gap <= tol:
                break
    return BlockKernel(np.array(V[:, :rank]), certificate, done)


LOCAL = 1e-13
"""Relative decrease by which a local search ends."""


@dataclass(frozen=True)
class HybridKernel:
    """A kernel found: factor (n, r), its certificate, and columns that were added."""

    factor: Matrix
    certificate: Certificate
    n_iter: int


def solve_hybrid(
    problem: PairwiseKernel, *, rank: int, tol: float, max_iter: int, random: np.random.RandomState
) -> HybridKernel:
    """Add columns to a factor of zeros until the relative gap is at most `tol`, or there are `rank` of them."""
    V = np.zeros((problem.n, 0))
    for _ in range(rank):
        S = gradient_matrix(problem.laplacian, problem.targets, problem.gamma, problem.evaluate(V)[0], problem.weights)
        # A drawn start: ARPACK's own is of a generator that no seed reaches.
        start = random.standard_normal(problem.n)
        direction = eigsh(S, k=1, which="SA", v0=start, tol=1e-6)[1][:, 0]
        V = _local_minimum(problem, np.column_stack([V, _step(problem, S, direction)]), max_iter)
        certificate = problem.certificate(*problem.evaluate(V))
        if certificate.relative_gap <= tol:
            break
    return HybridKernel(V, certificate, V.shape[1])


def _step(problem: PairwiseKernel, S: sparse.csr_array, direction: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the multiple of a direction (n,) whose kernel of rank 1 lowers f most: f(K + s vv') is a parabola in s."""
    rows = np.repeat(np.arange(problem.n), np.diff(problem.targets.indptr))
    entries = direction[rows] * direction[problem.targets.indices]
    slope = float(direction @ (S @ direction))
    bend = problem.gamma * float(weighted(entries, problem.weights) @ entries)
    # V V' has the direction's square, so that its root scales the column.
    return np.sqrt(max(-slope, 0.0) / bend) * direction if bend > 0 else direction


def _local_minimum(problem: PairwiseKernel, V: Matrix, max_iter: int) -> Matrix:
    """Return a local minimum of f(V V') from V on, or the last V of `max_iter` steps."""

    def evaluate(flat: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        W = flat.reshape(V.shape)
        entries, smooth = problem.evaluate(W)
        S = gradient_matrix(problem.laplacian, problem.targets, problem.gamma, entries, problem.weights)
        return problem.value(entries, smooth), 2 * (S @ W).ravel()

    found = scipy.optimize.minimize(
        # gtol=0: the search ends by the decrease of f alone, as gradients have no common scale over problems.
        evaluate,
        V.ravel(),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": max_iter, "ftol": LOCAL, "gtol": 0.0},
    )
    return np.asarray(found.x.reshape(V.shape))


STEP, SHRINK = 1.0, 0.25
"""Step and factor of mu as Ma et al. have them."""
REST = 1e-3
"""Change of U relative to its size, at least 1, below which the next mu is taken."""


@dataclass(frozen=True)
class FixedPoint:
    """A kernel found: U = factor factor' (m, r), its proven relative gap at the last mu, and iterations made."""

    factor: Matrix
    relative_gap: float
    n_iter: int


def in_smooth_basis(laplacian: sparse.csr_array, pairs: Pairs, m: int, gamma: float) -> tuple[Matrix, QuadraticSDP]:
    """Return (Q (n, m), the problem above times 2, without its last term): T holds each pair in both orders."""
    basis = smoothest(laplacian, m)
    loss = propagation(basis.vectors, pairs.must_link, pairs.cannot_link, np.full(len(pairs.i), 2.0))
    return basis.vectors, replace(loss, C=np.diag(2.0 / gamma * basis.values))


def solve_fixed_points(problem: QuadraticSDP, *, mu: float, tol: float, max_iter: int) -> FixedPoint:
    """Iterate until the gap at the last mu is proven to be at most `tol`, or `max_iter` times."""
    last = replace(problem, C=problem.C + 2.0 * mu * np.eye(problem.m))
    U, point = np.zeros((problem.m, problem.m)), problem.at(np.zeros((problem.m, 1)))
    now = max(mu, -0.5 * float(point.slopes[0]))
    for iteration in range(1, max_iter + 1):
        point = _shrunk(problem, U - 0.5 * STEP * point.gradient, STEP * now)
        following = point.factor @ point.factor.T
        change, U = float(np.linalg.norm(following - U)), following
        if now > mu and change <= REST * max(1.0, float(np.linalg.norm(U))):
            now = max(mu, SHRINK * now)
        elif now == mu and (iteration % EACH == 0 or iteration == max_iter):
            gap = last.at(point.factor).proof.relative_gap
            if gap <= tol:
                break
    return FixedPoint(point.factor, last.at(point.factor).proof.relative_gap, iteration)


def _shrunk(problem: QuadraticSDP, Y: Matrix, by: float) -> QSDPPoint:
    """Return the point whose eigenvalues are those of Y less `by`, negative ones set to zero."""
    values, vectors = np.linalg.eigh(Y)
    kept = np.maximum(values - by, 0.0)
    # One column at least, so that a factor is never empty.
    columns = np.flatnonzero(kept) if kept.any() else [-1]
    return problem.at(vectors[:, columns] * np.sqrt(kept[columns]))


Vector = NDArray[np.float64]


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
