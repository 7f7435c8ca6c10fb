"""A machine on a kernel in single precision, solved as exactly as in double: iterative refinement.

The product of the rounded kernel with the alpha found is compared with the exact one; the difference goes into the linear term,
so that the rounded problem's gradient at alpha is the exact one, and the problem is solved again. One or two rounds are enough, as
the difference is some 1e-7 of the product and changes only with alpha.
"""

from __future__ import annotations

from typing import Protocol, Self

from dkl.linalg.kernels.kernel_operators import KernelOperator, Vector
from dkl.solvers.svm.interface import (
    FeasiblePoint,
    RefinedState,
    Solve,
    StateCallback,
    SVMProblem,
    SVMSolution,
    point_state,
)
from dkl.solvers.watch import Outcome, Watch

ROUNDS = 5
"""Maximum number of rounds."""


class CorrectedSVM(SVMProblem, Protocol):
    """A problem whose K can be replaced, and whose linear term makes up for the error of that K."""

    def with_kernel(self, kernel: KernelOperator) -> Self:
        """Return the same problem with another K."""

    def corrected(self, alpha: Vector, product: Vector) -> Self:
        """Return the problem with the linear term of the gradient by `product`, a better Y K Y alpha."""


def refined(
    solve: Solve,
    problem: CorrectedSVM,
    exact: KernelOperator,
    tol: float,
    start: Vector | None = None,
    *,
    watch: Watch | None = None,
    on_state: StateCallback | None = None,
    resume_from: RefinedState | None = None,
) -> SVMSolution:
    """Return the solution for the kernel `exact` to a relative gap of `tol`, by `solve` on the kernel of `problem`.

    The history and the states are those of `solve`; steps and products are counted on from round to round.
    """
    watch, truth, inner = watch or Watch(), problem.with_kernel(exact), None
    first, n_iter, products = 0, 0, 0
    best: FeasiblePoint | None = None
    if resume_from is not None:
        first, n_iter, products = resume_from.round, resume_from.n_iter, resume_from.products
        inner = resume_from.inner
        if resume_from.best is not None:
            best = resume_from.best.point(truth)
            start = best.alpha
            problem = truth.with_kernel(problem.kernel).corrected(best.alpha, best.product)
    for number in range(first, ROUNDS):
        # Steps and products count through the rounds, as one solution's.
        part = watch.stage(start={"iteration": n_iter, "products": products})
        report = None if on_state is None else _report_within(on_state, number, n_iter, products, best)
        found = solve(problem, start, watch=part, on_state=report, resume_from=inner)
        inner = None
        point = truth.at(found.point.alpha)
        n_iter, products = n_iter + found.n_iter, products + found.products + 1
        # A round that is no better ends it: what is left is the accuracy of the kernel, not of the solver.
        if best is not None and point.relative_gap >= best.relative_gap:
            break
        best = point
        if best.relative_gap <= tol or not found.outcome.converged:
            break
        start = point.alpha
        problem = truth.with_kernel(problem.kernel).corrected(point.alpha, point.product)
    assert best is not None
    outcome = Outcome.SOLVED if best.relative_gap <= tol else found.outcome
    # The rounded problem solved, the exact one not: the kernel's precision is the end of it.
    if outcome.converged and best.relative_gap > tol:
        outcome = Outcome.STALLED
    return SVMSolution(best, n_iter, products, outcome, watch.history)


def _report_within(
    on_state: StateCallback, number: int, n_iter: int, products: int, best: FeasiblePoint | None
) -> StateCallback:
    """Return a callback that reports the state of a round's solver within that of the rounds."""
    return lambda inner: on_state(RefinedState(number, n_iter, products, point_state(best), inner))
