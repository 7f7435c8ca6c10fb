"""A factor V of the kernel of pairs K = V V' by the methods of others: block coordinate descent (BCD-NPKL), and Laue's hybrid.

E.-L. Hu, B. Wang, S. Chen, BCD-NPKL: scalable non-parametric kernel learning using block coordinate descent, ICML 2011: one row v_i
of V after the other goes where f is least in it, all others held. They leave out the diagonal of T, for which a row is the solution
of a linear system; with the diagonal, as Hu and Kwok 2013 have the problem, f is a quartic in v_i (`linalg/graph/gauss_seidel.py`),
and v_i takes a Newton step that lowers it.

S. Laue, A hybrid algorithm for convex semidefinite optimization, ICML 2012, Algorithm 1, joins Hazan's algorithm and a local search:
V gets a column more, the direction of steepest descent among kernels of rank 1, which is the eigenvector of the least eigenvalue of
the gradient; then all of V goes to a local minimum by L-BFGS. Where the least eigenvalue is not negative, the local minimum is the
global one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.optimize
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.linalg import eigsh

from dkl.linalg.slabs.slab_ops import empty_aligned
from dkl.problems.pairwise.certificate import Certificate, gradient_matrix, weighted
from dkl.problems.pairwise.low_rank import row_sweeps
from dkl.problems.pairwise.problem import PairwiseKernel
from dkl.problems.pairwise.terms import padded_width

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
