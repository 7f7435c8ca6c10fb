"""Kernels of pairs K by the methods of others: block coordinate descent (BCD-NPKL), Laue's hybrid, and MFPC.

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
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import scipy.optimize
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.linalg import eigsh

from dkl.linalg.eigen.laplacian_eigenmaps import smoothest
from dkl.linalg.slabs.slab_ops import empty_aligned
from dkl.problems.pairwise.certificate import Certificate, gradient_matrix, weighted
from dkl.problems.pairwise.low_rank import row_sweeps
from dkl.problems.pairwise.problem import PairwiseKernel
from dkl.problems.pairwise.terms import padded_width
from dkl.problems.qsdp.problem import QSDPPoint, QuadraticSDP, propagation
from dkl.side_information.pairs import Pairs

Matrix = NDArray[np.float64]
EACH = 10
"""Sweeps after which the gap is computed, which costs as much as several."""


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
"""Iterations after which the gap is computed, which costs as much as one."""


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
