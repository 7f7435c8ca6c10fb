"""Fixed point continuation over the psd cone, in the basis of a graph's smoothest eigenvectors: MFPC.

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
from numpy.typing import NDArray
from scipy import sparse

from dkl.linalg.eigen.laplacian_eigenmaps import smoothest
from dkl.problems.qsdp.problem import QSDPPoint, QuadraticSDP, propagation
from dkl.side_information.pairs import Pairs

Matrix = NDArray[np.float64]
STEP, SHRINK = 1.0, 0.25
"""Step and factor of mu as Ma et al. have them."""
REST = 1e-3
"""Change of U relative to its size, at least 1, below which the next mu is taken."""
EACH = 10
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
