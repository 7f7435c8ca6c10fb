"""Trust-region inexact Newton for the LogDet problem (TRIN; Li et al. 2009, (3)): K(l) = (K0^-1 + U(l))^-1.

A step comes from PCG within a region, |K^-1/2 D K^-1/2|_F or, as the paper has it, |D|_F at most a radius; it is taken in K^-1, and
halved, radius and all, until the objective falls as Armijo asks (Nocedal & Yuan 1998 join both so): a halved step costs a
factorization, a new PCG many products.

The gap. With s = |K^1/2 G K^1/2|_F < 1, G = U(w psi'(a) - l), the dual point w psi'(a) proves F - F* <= -s - log(1 - s): the Bregman
distance of -log det between I and I + K^1/2 G K^1/2, no eigenvalue of the latter being below 1 - s. s is PCG's first inner product.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from dkl.solvers.logdet.step import NewtonStep, Region, Solver, StepProblem, choose_step
from dkl.solvers.watch import Outcome, Stall, Watch, verdict

Vector = NDArray[np.float64]
Stop = Literal["gap", "decrement", "gradient"]
SUFFICIENT = 1e-4
"""Least share of the decrease that the gradient promises: Armijo's condition."""
GOOD, POOR = 0.75, 0.25
"""Shares of the model's decrease beyond which the region grows or shrinks."""
SMALL = 1.0 / 64.0
"""Share of a step below which the next may be no longer than what was taken over this."""
HALVINGS = 40
"""Most halvings of a step."""
IDLE = 3
"""Steps in a row that lower the objective by no more than rounding."""
ROUNDING = 1e-13
"""Share of the objective's terms that is rounding."""


class NewtonPoint(Protocol):
    """K(l)."""

    @property
    def multipliers(self) -> Vector:
        """Return the multipliers l (c,)."""

    @property
    def margins(self) -> Vector:
        """Return the margins tr(K A_t) (c,)."""

    @property
    def objective(self) -> float:
        """Return the objective F."""


class NewtonProblem(StepProblem, Protocol):
    """The LogDet problem at a gamma."""

    @property
    def gamma(self) -> float:
        """Return the problem's gamma."""

    @property
    def lowest(self) -> float:
        """Return a lower bound of F."""

    def __len__(self) -> int:
        """Return the number of constraints c."""

    def point(self, multipliers: Vector) -> Any:
        """Return the point of K(l), the trial, or None where it is not positive definite."""

    def accept(self) -> None:
        """Make the trial current."""

    def forces(self, margins: Vector) -> Vector:
        """Return the forces w psi' of the margins."""

    def curvatures(self, margins: Vector) -> Vector:
        """Return the curvatures w psi'' of the margins."""

    def bound(self, margins: Vector) -> float:
        """Return D(w psi'(a)); the trial is lost."""

    def certificate(self, objective: float, bound: float) -> Any:
        """Return the certificate of an objective and a lower bound, with `gap` and `relative_gap`."""


@dataclass(frozen=True)
class NewtonEnd:
    """End of Newton's method: the point, its certificate, the outcome, and counts of steps and products."""

    point: NewtonPoint
    certificate: Any
    outcome: Outcome
    n_iter: int
    n_products: int
    solver: str


def trust_region_newton(
    problem: NewtonProblem,
    start: NewtonPoint,
    *,
    solver: Solver,
    tol: float,
    stop: Stop,
    region: Region,
    max_iter: int,
    watch: Watch,
) -> NewtonEnd:
    """Minimize F from `start`, the problem's current point, until `stop`, a limit, or no step lowers F.

    stop: "gap", a proven relative gap of at most tol; "decrement", s^2 / 2 at most tol |F|, where s bounds Newton's decrement;
    "gradient", |G|_F at most tol. Only a proven gap is SOLVED; the others come to rest as STATIONARY.
    """
    # No region at first: the first step that falls short sets its radius.
    point, bound, radius, products, stall = start, problem.lowest, np.inf, 0, Stall(IDLE)
    ways: set[str] = set()
    for iteration in range(max_iter + 1):
        # The gradient is G = U(r): it vanishes where every multiplier is the force of its margin.
        residual = problem.forces(point.margins) - point.multipliers
        with np.errstate(over="ignore", invalid="ignore"):  # the outcome reports it
            along = problem.product(residual)
            size = float(np.sqrt(max(float(residual @ along), 0.0)))  # in this order: of a NaN, max is the NaN then
        products += 1
        # The dual point w psi'(a) proves F - F* <= -s - log(1 - s), without another factorization.
        bound = max(bound, point.objective - proven_gap(size))
        certificate = problem.certificate(point.objective, bound)
        rests = _rests(problem, stop, tol, size, residual, point.objective)
        stop_reason = watch.record({
            "iteration": iteration, "objective": point.objective, "gap": certificate.gap,
            "relative_gap": certificate.relative_gap, "decrement": size, "products": products,
        })  # fmt: skip
        is_solved = stop == "gap" and certificate.relative_gap <= tol
        ended = verdict(stop_reason, solved=is_solved, at_limit=iteration == max_iter, stalled=stall.is_passed)
        if not np.isfinite(size):  # of the gap at this point nothing is known
            ended = Outcome.NUMERICAL_ERROR
        elif ended is None and rests:
            ended = Outcome.STATIONARY
        if ended is not None:
            break
        curvatures = problem.curvatures(point.margins)
        way, step = choose_step(problem, solver, region, residual, along, curvatures, radius)
        ways.add(way)
        products += step.products
        following, share = _descend(problem, point, step, float(residual @ step.margins))
        if following is None:
            # Ends the search at the top of the loop, which records this point first.
            stall.idle = IDLE + 1
            continue
        stall.check(following.objective < point.objective - _rounding(point))
        # The radius follows from how far F fell, next to what the model had promised.
        radius = _next_radius(radius, step, share, _agreement(point, following, step, residual, curvatures))
        point = following
    # The last margins may prove more than all points before: one factorization at the end, not one a step.
    last = problem.bound(point.margins)  # of another kernel: with rounding's difference it may be above the objective
    if bound < last <= point.objective:
        certificate = problem.certificate(point.objective, last)
    way = ways.pop() if len(ways) == 1 else solver
    return NewtonEnd(point, certificate, ended or Outcome.ITERATION_LIMIT, iteration, products, way)


def proven_gap(size: float) -> float:
    """Return -s - log(1 - s) for s < 1, else inf."""
    return -size - float(np.log1p(-size)) if size < 1.0 else np.inf


def _rests(problem: NewtonProblem, stop: Stop, tol: float, size: float, residual: Vector, objective: float) -> bool:
    if stop == "decrement":
        return size**2 / 2.0 <= tol * abs(objective)
    return stop == "gradient" and problem.pattern_norm(residual) <= tol


def _descend(
    problem: NewtonProblem, point: NewtonPoint, step: NewtonStep, slope: float
) -> tuple[NewtonPoint | None, float]:
    """Return (accepted point or None, share of the step), halved until F falls by SUFFICIENT of the slope."""
    share, slack = 1.0, _rounding(point)
    for _ in range(HALVINGS):
        trial = problem.point(point.multipliers + share * step.step)
        # Armijo's rule; the slack lets steps pass whose whole decrease is rounding.
        if trial is not None and trial.objective <= point.objective + SUFFICIENT * share * slope + slack:
            problem.accept()
            return trial, share
        share /= 2.0
    return None, 0.0


def _rounding(point: NewtonPoint) -> float:
    """Return the change of the objective below which it is rounding."""
    return ROUNDING * (abs(point.objective) + float(np.abs(point.multipliers * point.margins).sum()))


def _agreement(
    point: NewtonPoint, following: NewtonPoint, step: NewtonStep, residual: Vector, curvatures: Vector
) -> float:
    """Return the objective's decrease over the model's, for a whole step: 1 where the model is exact."""
    # The model's curvature along the step: of -log det and of the losses.
    bend = -float(step.step @ step.margins) + float(curvatures @ step.margins**2)
    predicted = -float(residual @ step.margins) - bend / 2.0
    return (point.objective - following.objective) / predicted if predicted > 0 else 1.0


def _next_radius(radius: float, step: NewtonStep, share: float, agreement: float) -> float:
    """Return the radius after a step: bounded by a halved one, grown by a good one, halved by a poor one.

    What bounds a step in K^-1 is its one largest eigenvalue, which a norm over all of them knows little of: a region that
    followed the halvings further down took a third more steps. One that never did let steps of norm 4e6, of 500 products each, be
    halved twenty times a step where a start is far off.
    """
    if agreement > GOOD:
        return max(radius, 4.0 * step.norm)
    if share < 1.0:
        return step.norm * min(1.0, share / SMALL)
    return 0.5 * step.norm if agreement < POOR else radius
