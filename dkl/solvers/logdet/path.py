"""A path of the LogDet problem (Li et al. 2009, (3)) over gamma: what is solved at each, and where the next begins."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from dkl.errors import InputError
from dkl.solvers.logdet.central_path import MetricProblem
from dkl.solvers.logdet.dual import GROWTH, DualProblem, DualState
from dkl.solvers.logdet.newton import HALVINGS
from dkl.solvers.watch import Outcome, Watch

# The LogDet problem with a hinge, by ever narrower smooth losses until its own duality gap is small enough.
#
# The slopes of a smooth one are slopes of the loss itself, its multipliers lie in the dual of the problem that is asked
# for, and so the kernel K(l) has a certificate of that problem. Smoothing costs at most w width log 2 a constraint near
# a hinge's corner: an interior point method in width.

Vector = NDArray[np.float64]
WIDEST, NARROWEST = 0.5, 1e-14
"""Least first width, and width below which the smooth loss is the hinge to rounding."""
OF_MARGINS = 0.05
"""First width as a share of the furthest margin at the start.
At less, multipliers of margins in the hundreds are at their bounds to rounding, and have no way back."""
NARROWER = 8.0
"""Factor by which the width falls from one smooth problem to the next."""
SHARE = 0.1
"""Share of the wanted gap to which a smooth problem is solved."""


class SoftenedProblem(Protocol):
    """The LogDet problem with a loss that is approached by smooth ones."""

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
    # Without a start K0 is where the margins are measured, from which the first width follows.
    first = problem.point(np.zeros(len(problem))) if start is None else start
    # The width must not be far below the margins, or all multipliers start at their bounds.
    width = max(WIDEST, OF_MARGINS * float(np.abs(first.margins).max()))
    gap, n_iter, n_products, solution = 1.0, 0, 0, start
    while True:
        solution = solve(
            problem.softened(width),
            start=solution,
            # Each smooth problem is solved a little better than the next width needs, and no better.
            tol=max(SHARE * tol, SHARE * gap / NARROWER),
            max_iter=max_iter - n_iter,
            watch=watch.stage(start={"iteration": n_iter, "products": n_products}),
        )
        n_iter, n_products = n_iter + solution.n_iter, n_products + solution.n_products
        # The certificate is of the loss itself, not of its smooth neighbor: l is a slope of both.
        certificate = problem.softened_certificate(solution.multipliers)
        gap = min(1.0, certificate.relative_gap)
        # The smooth solver may stop unsolved while the gap of the hinge is small enough already.
        outcome = Outcome.SOLVED if gap <= tol else solution.outcome
        width /= NARROWER
        # Narrower than rounding the smooth loss is the hinge, and nothing more is gained.
        if gap <= tol or outcome is not Outcome.SOLVED or not NARROWEST <= width < np.inf:
            outcome = Outcome.STALLED if outcome is Outcome.SOLVED and gap > tol else outcome
            return NarrowingEnd(solution, certificate, outcome, n_iter, n_products)


FIRST = 0.5
"""Length of the first multipliers of a dual ascent, in the norm of the kernel they are taken at: a whole one may leave the cone."""
SMALLEST = float(np.finfo(np.float64).tiny)
FURTHEST = 2.0
"""Octaves of gamma that two solutions lead on for: at three ionosphere's path takes 65 steps in place of 57."""


class PathProblem(DualProblem, SoftenedProblem, MetricProblem, Protocol):
    """A problem that can be asked at another gamma."""

    @property
    def has_corner(self) -> bool:
        """Return whether the loss has no curvature, and is approached by smooth ones."""

    @property
    def has_bend(self) -> bool:
        """Return whether the loss has curvature only in places, and can be approached by smooth ones."""

    @property
    def has_central_path(self) -> bool:
        """Return whether the problem is of a metric that can be stepped itself, and should."""

    @property
    def has_dual_margins(self) -> bool:
        """Return whether the loss has an inverse of its slope: then the dual is solved."""

    def check(self) -> None:
        """Raise InputError where F has no minimum."""

    def matrix_form(self) -> Any:
        """Return the problem in the entries of K, a `MatrixProblem` with its `prior` and `at`."""


@dataclass(frozen=True)
class LogDetSolution:
    """Solution of the LogDet problem at one gamma.

    outcome      SOLVED: the proven relative duality gap is at most tol; STATIONARY: at rest by `stop`
    gamma        as in the problem
    multipliers  (c,) l of which K is made: K^-1 = K0^-1 + U(l); `problem.learned(multipliers)` is the kernel
    margins      (c,) tr(K A_t)
    certificate  with objective, bound, gap, relative_gap, of this K
    n_iter       Newton steps
    n_products   Hessian products
    solver       how Newton's systems were solved: "pcg", "direct", "paper", or "auto" where both were or there was no step
    method       whose steps they were: "primal", "dual", "central path", or what followed on what: "dual, primal"
    """

    outcome: Outcome
    gamma: float
    multipliers: Vector = field(repr=False)
    margins: Vector = field(repr=False)
    certificate: Any
    n_iter: int
    n_products: int
    solver: str
    method: str


def primal_start(problem: PathProblem, multipliers: Vector | None) -> Any:
    """Return the better of K0 and K(multipliers), as the current point."""
    # A warm start is a candidate only where it gives a positive definite K.
    warm = None if multipliers is None else problem.point(multipliers)
    if warm is not None:
        problem.accept()  # it may be current already, and is the better one nearly always
    best = problem.point(np.zeros(len(problem)))
    if warm is not None and (best is None or warm.objective < best.objective):
        best = warm
    else:
        problem.accept()
    if best is None or not np.isfinite(best.objective):
        raise InputError(
            "the loss is infinite at K0",
            where="constraints",
            wanted="finite losses",
            remedy="drop duplicates, or lower gamma",
        )
    return best


def central_start(problem: PathProblem, start: LogDetSolution | None) -> tuple[Vector, float]:
    """Return (multipliers, gamma) of `start`, drawn back to a smaller gamma, or slopes at K0 up to FIRST."""
    at_K0 = primal_start(problem, None)
    if start is not None:
        # Only a start of a smaller gamma is on the path towards this one.
        gamma = min(start.gamma, problem.gamma)
        # Multipliers grow about as gamma near K0, so they are drawn back in proportion.
        multipliers = start.multipliers * (gamma / start.gamma)
        if problem.point(multipliers) is not None:
            return multipliers, gamma
    slopes = problem.forces(at_K0.margins) / problem.gamma
    # Slopes at K0 up to a length at which K certainly stays definite.
    gamma = _reach(problem, slopes, 1.0)
    return (gamma * slopes, gamma) if problem.point(gamma * slopes) is not None else (0.0 * slopes, gamma)


def dual_start(
    problem: PathProblem, start: LogDetSolution | None, earlier: LogDetSolution | None
) -> tuple[DualState, DualProblem]:
    """Return (the state of the current point, the problem at the gamma that it is of).

    The point is where `start` and `earlier` lead, if D is higher and the gap smaller there than at `start` itself; else that, or a kernel
    by the slopes at K0, at most GROWTH times the gamma that it solves. D alone does not decide: of contradictory constraints it was higher
    at a kernel from which three steps led back in place of one, and of a loss with a domain where F is infinite.
    """
    point, gamma = _kernel_start(problem, start)
    target = problem.with_gamma(min(problem.gamma, max(SMALLEST, GROWTH * gamma)))
    plain = DualState.of(target, point)
    x = None if start is None or earlier is None else _led_on(problem, start, earlier)
    if x is None:
        # Two earlier solutions lead on only where both exist; a path's first gamma has none.
        return plain, target
    stayed = plain if target.gamma == problem.gamma else DualState.of(problem, point)
    # A point outside of the cone is no state, and the extrapolation is dropped.
    there = problem.point(problem.forces(x))
    led = None if there is None else DualState.of(problem, there)
    # Both the dual value and the gap must be better: of contradictory constraints the value alone misled.
    if led is None or not (led.dual > stayed.dual and led.point.objective - led.dual < point.objective - stayed.dual):
        return plain, target
    problem.accept()
    return led, problem


def _led_on(problem: PathProblem, start: LogDetSolution, earlier: LogDetSolution) -> Vector | None:
    """Extrapolate dual margins (c,) over log gamma from `earlier` and `start`; None beyond FURTHEST.

    None too where they are not finite. Margins hardly move along a path where multipliers grow with gamma, near K0, and move with log
    gamma where gamma is large: there they end on this line to a thousandth of the gap that `start` would begin with. Between these two
    they may turn, and it is not taken.
    """
    # Octaves that the two solutions lie apart, and that are still to go.
    went, ahead = np.log2(start.gamma / earlier.gamma), np.log2(problem.gamma / start.gamma)
    # Extrapolating further than twice the distance, or against it, amplifies what the two solutions differ by.
    if not (0 < ahead * went <= 2.0 * went**2 and abs(ahead) <= FURTHEST):
        return None
    here, there = (problem.with_gamma(one.gamma).dual_margins(one.multipliers) for one in (start, earlier))
    if not (np.isfinite(here).all() and np.isfinite(there).all()):
        return None
    # Linear in log gamma: multipliers bend, margins do so little.
    return here + (ahead / went) * (here - there)


def _kernel_start(problem: PathProblem, start: LogDetSolution | None) -> tuple[Any, float]:
    """Return (current point, gamma at which its multipliers are slopes), from `start` or by slopes at K0.

    A kernel of a larger gamma is drawn back to slopes of this one, between it and K0.
    """
    if start is not None:
        gamma = min(start.gamma, problem.gamma)
        multipliers = start.multipliers * (gamma / start.gamma)
        # The dual's domain, which a loss may end, is asked first: an objective there would be inf.
        is_inside = np.isfinite(problem.with_gamma(gamma).dual_margins(multipliers)).all()
        point = problem.point(multipliers) if is_inside else None
        if point is not None and np.isfinite(point.objective):
            problem.accept()
            if problem.gamma <= GROWTH * gamma:  # the first growth is as far
                return point, gamma
            reached = _reach(problem, multipliers, gamma)
            return _drawn_on(problem, multipliers, gamma, reached) if reached > GROWTH * gamma else (point, gamma)
    # Of gamma 1, as of a huge one products would overflow.
    slopes = problem.forces(primal_start(problem, None).margins) / problem.gamma
    return _drawn_on(problem, slopes, 1.0, _reach(problem, slopes, 1.0))


def _reach(problem: PathProblem, multipliers: Vector, gamma: float) -> float:
    """Return the gamma, at most the problem's, at which multipliers that grow with it reach the length FIRST."""
    square = float(multipliers @ problem.product(multipliers, coarse=True))
    # An overflowed product says nothing about the length, which then counts as infinite.
    size = np.inf if np.isnan(square) else float(np.sqrt(max(0.0, square)))  # of slopes near the largest number
    return min(problem.gamma, gamma * (FIRST / max(size, SMALLEST)))


def _drawn_on(problem: PathProblem, multipliers: Vector, gamma: float, reached: float) -> tuple[Any, float]:
    """Return (the current point, `reached`) for multipliers of `gamma` that have grown with it.

    Shorter than 1, they leave the cone by rounding alone, but margins may leave the loss's domain.
    Where rounding is all there is, the point is K0, whose multipliers are those of no gamma: the dual stalls there.
    """
    # Multipliers within the cone by their length may still leave the domain of a loss: they are halved till they are in.
    for _ in range(HALVINGS):
        point = problem.point(multipliers * (reached / gamma))
        if point is not None and np.isfinite(point.objective):
            problem.accept()
            return point, reached
        reached /= 2.0
    return primal_start(problem, None), reached
