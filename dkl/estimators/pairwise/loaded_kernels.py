"""Preloading of the compiled kernels of pairs, imported where workers are forked from.

Numba reads a kernel from its cache when it is first called with arrays of a kind: 0.2 s of ADMM's first iteration, on each worker, and
on each that comes for one that was lost. Here they are called once, for a problem of 64 patterns.
"""

from __future__ import annotations

import numpy as np
from scipy import sparse

from dkl.blocks.slabs.placement import LocalPlacement
from dkl.problems.pairwise.problem import PairwiseKernel, RandomStart
from dkl.solvers.pairwise.descent import minimize


def load(n: int = 64, rank: int = 16) -> None:
    """Run an iteration of ADMM and some of the factored solver, to load the compiled loops.

    The graph is a ring, whose opposite patterns are linked.
    """
    near, far = (_ring(n, steps) for steps in (1, n // 2))
    degrees = sparse.diags_array(near.sum(axis=0))
    problem = PairwiseKernel(sparse.csr_array(degrees - near), far, 1.0)
    program = problem.admm(rank, "float64", 0.0)
    placement = LocalPlacement(program)
    placement.start(RandomStart(0, n, rank), program.start(100.0))
    placement.advance(1)
    placement.close()
    solver = problem.factored(1)
    minimize(solver, solver.padded(np.random.default_rng(0).standard_normal((n, rank))), tol=0.0, max_iter=3)
    solver.close()


def _ring(n: int, steps: int) -> sparse.csr_array:
    """Return the adjacency matrix (n, n), 1 between patterns `steps` apart on a ring."""
    rows = np.arange(n)
    both = np.concatenate([rows, (rows + steps) % n]), np.concatenate([(rows + steps) % n, rows])
    ring = sparse.csr_array((np.ones(2 * n), both), shape=(n, n))
    ring.data[:] = 1.0
    return ring


load()
