"""Problem (3) with a hinge, by ever narrower smooth losses until its own duality gap is small enough.

The slopes of a smooth one are slopes of the loss itself, its multipliers lie in the dual of the problem that is asked for, and so the
kernel K(l) has a certificate of that problem. Smoothing costs at most w width log 2 a constraint near a hinge's corner: an interior
point method in width.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from dkl.solvers.result import Outcome
from dkl.solvers.watch import Watch

Vector = NDArray[np.float64]
WIDEST, NARROWEST = 0.5, 1e-14
OF_MARGINS = 0.05
"""First width as a share of the furthest margin at the start.
At less, multipliers of margins in the hundreds are at their bounds to rounding, and have no way back."""
NARROWER = 8.0
"""Times, from one width to the next."""
SHARE = 0.1
"""Share of the wanted gap to which a smooth problem is solved."""


class SoftenedProblem(Protocol):
    """Problem (3) with a loss that is approached by smooth ones."""

    def __len__(self) -> int:
        """Return the number of constraints c."""

    def point(self, multipliers: Vector) -> Any:
        """Return K(l), with `margins`; K0 for 0."""

    def softened(self, width: float) -> Self:
        """Return the problem with a smooth loss of `width`."""

    def softened_certificate(self, multipliers: Vector) -> Any:
        """Return the certificate of K(l) for the loss itself."""


@dataclass(frozen=True)
class NarrowingEnd:
    """Last smooth solution, with the loss's own certificate, outcome, and steps and products of all."""

    solution: Any
    certificate: Any
    outcome: Outcome
    n_iter: int
    n_products: int


def narrowing_losses(
    problem: SoftenedProblem, solve: Callable[..., Any], start: Any, *, tol: float, max_iter: int, watch: Watch
) -> NarrowingEnd:
    """Solve at falling widths, to a proven relative gap of at most tol.

    Each width is a stage of the watch, whose iterations and products count on.
    """
    begun = problem.point(np.zeros(len(problem))) if start is None else start
    width = max(WIDEST, OF_MARGINS * float(np.abs(begun.margins).max()))
    gap, n_iter, n_products, solution = 1.0, 0, 0, start
    while True:
        solution = solve(
            problem.softened(width),
            start=solution,
            tol=max(SHARE * tol, SHARE * gap / NARROWER),
            max_iter=max_iter - n_iter,
            watch=watch.stage(start={"iteration": n_iter, "products": n_products}),
        )
        n_iter, n_products = n_iter + solution.n_iter, n_products + solution.n_products
        certificate = problem.softened_certificate(solution.multipliers)
        gap = min(1.0, certificate.relative_gap)
        outcome = Outcome.SOLVED if gap <= tol else solution.outcome
        width /= NARROWER
        if gap <= tol or outcome is not Outcome.SOLVED or not NARROWEST <= width < np.inf:
            outcome = Outcome.STALLED if outcome is Outcome.SOLVED and gap > tol else outcome
            return NarrowingEnd(solution, certificate, outcome, n_iter, n_products)
