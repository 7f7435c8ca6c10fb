"""Length of a step of the dual of problem (3), and multipliers along it that stay slopes of the loss.

A step goes at most REACH of the way to where K^-1 is singular. And l_t moves no further than a linear change of x_t would take it, so
that it never leaves the slopes of the loss; or as far as the step says, where so much is well inside them: of contradictory constraints
K is large where many l_t balance, and bending each by itself, a per cent of some, leaves the cone at a hundredth of a step that is good
as a whole.

A multiplier that is next to nothing, of a margin that was large and no longer is, has no curvature at x to come back by: a step would
only multiply it by some number. Where the slope at a is more than FAR times the multiplier, C is that of the secant from x to a,
    C = (w psi'(a) - l) / (a - x),
which gives a step towards w psi'(a), as the primal has it, and still one of ascent: C is positive. Near the optimum x is a.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from dkl.solvers.logdet.dual_step import DualStepProblem
from dkl.solvers.logdet.newton import HALVINGS, SUFFICIENT, NewtonPoint, NewtonProblem
from dkl.solvers.logdet.pcg import NewtonStep

Vector = NDArray[np.float64]
Mask = NDArray[np.bool_]
REACH = 0.6
"""Largest share of the way to the end of the cone that a step goes."""
INSIDE = 0.9
"""Share of the way to the end of the loss's slopes that a multiplier may go straight."""
FAR = 1e6
"""Times the multiplier that the slope at a margin is where the secant leads back to it. Of 300 digits' raw rows, at gammas from 2^-12 to
2^16, 22 to 46 steps; without the secant 99 to 143, the last of them the primal's. 1e4 takes wine up to a half more."""


class DualPoint(NewtonPoint, Protocol):
    """K(l)."""

    @property
    def log_det(self) -> float:
        """Return log det(I + K0 U(l))."""


class DualProblem(NewtonProblem, DualStepProblem, Protocol):
    """Problem (3) at a gamma, with a loss whose slope has an inverse."""

    def with_gamma(self, gamma: float) -> Self:
        """Return the same problem at another gamma; what is current stays so."""

    def objective(self, point: Any) -> float:
        """Return F of a point made at another gamma."""

    def dual_margins(self, multipliers: Vector) -> Vector:
        """Return the dual margins x with w psi'(x) = l."""

    def dual_objective(self, point: Any, dual_margins: Vector) -> float:
        """Return the dual objective D(l)."""

    def lowest_growth(self, multipliers: Vector) -> float:
        """Return at most the lowest eigenvalue of K^1/2 U(l) K^1/2."""


class DualState(NamedTuple):
    """K(l) at a gamma: the point; x (c,) its dual margins; dual, D(l)."""

    point: Any
    x: Vector
    dual: float

    @classmethod
    def of(cls, problem: DualProblem, point: DualPoint) -> Self:
        """Return the state of a point at the problem's gamma."""
        x = problem.dual_margins(point.multipliers)
        return cls(point, x, problem.dual_objective(point, x))


def ascend(
    target: DualProblem, at: DualState, step: NewtonStep, curvatures: Vector, is_far: Mask, rise: float, slack: float
) -> tuple[DualState | None, float]:
    """Return (accepted state, share of step): within REACH of the cone's end, halved until D rises enough.

    curvatures, is_far: of `curvatures_at`. rise: of D by a whole step, to first order; slack: what rounding may take of it.
    """
    share = 1.0
    if step.norm > REACH:  # no eigenvalue is larger than the norm
        share = min(1.0, REACH / max(-target.lowest_growth(step.step), np.finfo(np.float64).tiny))
    for _ in range(HALVINGS):
        for multipliers in _moved(target, at, share * step.step, curvatures, is_far):
            trial = target.point(multipliers)
            if trial is not None:
                reached = DualState.of(target, trial)
                if reached.dual >= at.dual + SUFFICIENT * share * rise - slack:
                    target.accept()
                    return reached, share
        share /= 2.0
    return None, 0.0


def curvatures_at(target: DualProblem, at: DualState) -> tuple[Vector, Mask]:
    """Return (w psi''(x) (c,), or of the secant to margins that ask for FAR times the multiplier; where)."""
    curvatures, slopes = target.curvatures(at.x), target.forces(at.point.margins)
    is_far = np.abs(slopes) > FAR * np.abs(at.point.multipliers)
    if is_far.any():
        secants = (slopes[is_far] - at.point.multipliers[is_far]) / (at.point.margins[is_far] - at.x[is_far])
        curvatures[is_far] = np.maximum(curvatures[is_far], secants)
    return curvatures, is_far


def _moved(target: DualProblem, at: DualState, change: Vector, curvatures: Vector, is_far: Mask) -> Iterator[Vector]:
    """Yield slopes of the loss near l + change.

    First between l and w psi'(x + change / (w psi''(x))), then where INSIDE allows l + change. Those that come back from next to nothing
    go straight at once, which is what their secant is the curvature of.
    """
    multipliers = at.point.multipliers
    curved = target.forces(at.x + change / np.maximum(curvatures, np.finfo(np.float64).tiny))
    bent = np.clip(multipliers + change, np.minimum(multipliers, curved), np.maximum(multipliers, curved))
    straight = None
    if is_far.any():
        straight = _straight(target, multipliers, change, bent)
        bent = np.where(is_far & (np.abs(straight) > np.abs(multipliers)), straight, bent)
    yield bent
    straight = _straight(target, multipliers, change, bent) if straight is None else straight
    if not np.array_equal(straight, bent):
        yield straight


def _straight(target: DualProblem, multipliers: Vector, change: Vector, bent: Vector) -> Vector:
    """Return l + change where INSIDE allows it, else `bent`."""
    is_inside = np.isfinite(target.dual_margins(multipliers + change / INSIDE))
    return np.where(is_inside, multipliers + change, bent)
