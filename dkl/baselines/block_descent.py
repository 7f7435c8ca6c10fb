"""Block coordinate descent on the columns of a factor, for the kernel of pairs: BCD-NPKL.

E.-L. Hu, B. Wang, S. Chen, BCD-NPKL: scalable non-parametric kernel learning using block coordinate descent, ICML 2011: of
K = V V', one row v_i of V after the other goes where f is least in it, all others held. They leave out the diagonal of T, for
which a row is the solution of a linear system; with the diagonal, as Hu and Kwok 2013 have the problem, f is a quartic in v_i
(`linalg/graph/gauss_seidel.py`), and v_i takes a Newton step that lowers it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dkl.linalg.slabs.slab_ops import empty_aligned
from dkl.problems.pairwise.certificate import Certificate
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
    V = empty_aligned((problem.n, padded_width(problem.n, rank)), float)
    V[:, :rank], V[:, rank:] = start, 0.0
    sweep = row_sweeps(problem.laplacian, problem.targets, problem.gamma, problem.weights)
    for done in range(1, max_iter + 1):
        sweep(V, False)
        if done % EACH == 0 or done == max_iter:
            certificate = problem.certificate(*problem.evaluate(V[:, :rank]))
            if certificate.relative_gap <= tol:
                break
    return BlockKernel(np.array(V[:, :rank]), certificate, done)
