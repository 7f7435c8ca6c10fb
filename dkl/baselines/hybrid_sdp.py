"""Laue's hybrid of Hazan's algorithm and of a local search, for the kernel of pairs.

S. Laue, A hybrid algorithm for convex semidefinite optimization, ICML 2012, Algorithm 1: a factor V of K = V V' gets a column
more, the direction of steepest descent among kernels of rank 1, which is the eigenvector of the least eigenvalue of the gradient;
then all of V goes to a local minimum by L-BFGS. Where the least eigenvalue is not negative, the local minimum is the global one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.optimize
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.linalg import eigsh

from dkl.problems.pairwise.certificate import Certificate, gradient_matrix, weighted
from dkl.problems.pairwise.problem import PairwiseKernel

Matrix = NDArray[np.float64]
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
    return np.sqrt(max(-slope, 0.0) / bend) * direction if bend > 0 else direction


def _local_minimum(problem: PairwiseKernel, V: Matrix, max_iter: int) -> Matrix:
    """Return a local minimum of f(V V') from V on, or the last V of `max_iter` steps."""

    def evaluate(flat: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        W = flat.reshape(V.shape)
        entries, smooth = problem.evaluate(W)
        S = gradient_matrix(problem.laplacian, problem.targets, problem.gamma, entries, problem.weights)
        return problem.value(entries, smooth), 2 * (S @ W).ravel()

    found = scipy.optimize.minimize(
        evaluate, V.ravel(), jac=True, method="L-BFGS-B", options={"maxiter": max_iter, "ftol": LOCAL, "gtol": 0.0}
    )
    return np.asarray(found.x.reshape(V.shape))
