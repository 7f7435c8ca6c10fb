"""A machine on a kernel in single precision, solved as exactly as in double: iterative refinement.

What the rounded kernel makes of the alpha that was found is compared with the exact product; the difference goes into the
linear term, where the rounded problem's gradient at alpha is the exact one, and the problem is solved again. One or two
rounds do, for the difference is some 1e-7 of the product, and it only moves with alpha.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from dkl.problems.neighborhood_svm import KernelOperator, NeighborhoodSVM, Point, Vector
from dkl.solvers.result import Outcome
from dkl.solvers.svm_gradient import SVMSolution

ROUNDS = 5

Solve = Callable[[NeighborhoodSVM, Vector | None], SVMSolution]


def refined(
    solve: Solve, problem: NeighborhoodSVM, exact: KernelOperator, tol: float, start: Vector | None = None
) -> SVMSolution:
    """The solution by `solve`, which reaches a relative gap of `tol`, with the point that `exact` makes of it."""
    truth = replace(problem, kernel=exact)
    n_iter, products, history = 0, 0, []
    best: Point | None = None
    for _ in range(ROUNDS):
        found = solve(problem, start)
        point = truth.at(found.point.alpha)
        n_iter, products = n_iter + found.n_iter, products + found.products + 1
        history += found.history
        if best is not None and point.relative_gap >= best.relative_gap:
            break
        best = point
        if best.relative_gap <= tol or not found.outcome.converged:
            break
        start = point.alpha
        problem = replace(truth, kernel=problem.kernel).corrected(point.alpha, point.product)
    assert best is not None
    outcome = Outcome.SOLVED if best.relative_gap <= tol else found.outcome
    if outcome.converged and best.relative_gap > tol:
        outcome = Outcome.STALLED
    return SVMSolution(best, n_iter, products, outcome, history)
