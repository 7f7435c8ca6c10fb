"""Start for machines of few rows: compiled steps of two coefficients, that mostly end at the solution.

A gradient step of a hundred rows takes a microsecond of arithmetic and fifty of calls. What these steps leave is for the
solver behind them: it certifies their point, and continues from it where their gap is not yet small enough.
"""

from __future__ import annotations

import numpy as np

from dkl.linalg.kernels.kernel_operators import Vector
from dkl.linalg.projections import project
from dkl.linalg.svm_pair_steps import pair_steps
from dkl.solvers.svm.interface import SVMProblem

MAX_ROWS = 1000
"""Most rows of a machine whose kernel matrix is copied for it: 8 MB."""
MAX_ROUNDS = 10
"""Most rounds, of as many steps as there are rows; where fewer are allowed none is taken, so that a run with a higher limit begins
alike. Hard machines take thousands, where second derivatives of many rows at once are faster."""


def takes_pairs(n: int, max_iter: int) -> bool:
    """Return whether a machine of n rows starts by pairs."""
    return n <= MAX_ROWS and max_iter >= MAX_ROUNDS


def pair_start(problem: SVMProblem, start: Vector | None, tol: float, max_iter: int) -> tuple[Vector | None, int]:
    """Return (alpha (n,), rounds) at a relative gap of `tol`, or after MAX_ROUNDS rounds.

    (start, 0) where `takes_pairs` is False or alpha is not finite. A round is n steps, and costs a product with K.
    """
    n = problem.n
    if not takes_pairs(n, max_iter):
        return start, 0
    first = np.zeros(n) if start is None or not start.any() else project(start, problem.y, problem.C, 0.0)[0]
    alpha, rounds = pair_steps(
        problem.kernel.block(np.arange(n)), problem.y, problem.C,
        np.ones(n) if problem.linear is None else problem.linear,
        float(problem.rho), first, tol, MAX_ROUNDS,
    )  # fmt: skip
    return (alpha, rounds) if np.isfinite(alpha).all() else (start, 0)
