"""Checkpoint states of the binary SVM solvers between two steps; resuming from one is bit-identical.

A solver that works by another one has that one's state within its own: `inner`. The arrays of a state are not written to
later, so a state needs no copy. Dimensions are named: "row" is a row of the binary problem.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from numpy.typing import NDArray

from dkl.solvers.result import Outcome

if TYPE_CHECKING:
    from dkl.solvers.svm.interface import FeasiblePoint

RowVector = Annotated[NDArray[np.float64], "row"]


@dataclass(frozen=True)
class PointState:
    """State of a point; all of it, as its gap may be of another product."""

    alpha: RowVector
    product: RowVector
    gradient: RowVector
    objective: float
    gap: float
    intercept: float

    @classmethod
    def of(cls, point: FeasiblePoint) -> PointState:
        """Return the state of a point."""
        vectors = (point.alpha, point.product, point.gradient)
        return cls(*vectors, float(point.objective), float(point.gap), float(point.intercept))

    def point(self, problem: Any) -> Any:
        """Return the point that `of` was given, of that problem; no product."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return replace(problem.at(self.alpha, self.product), **values)


@dataclass(frozen=True)
class WalkState:
    """State of gradient steps: the last alpha and the point ahead of it, the step size and counts."""

    alpha: RowVector
    product: RowVector
    ahead: RowVector
    ahead_product: RowVector
    theta: float
    lipschitz: float
    shift: float
    products: int


@dataclass(frozen=True)
class GradientState:
    """State of the projected gradient methods at a check. face: of the check before, see `_Walk.face`."""

    walk: WalkState
    face: Annotated[NDArray[np.int8], "row"]
    iteration: int
    idle: int
    newton_products: int
    best: PointState


@dataclass(frozen=True)
class CutBound:
    """Lower bound of f by points with weights that sum to 1, and the b that it is reached at.

    alpha and cubic: the means of alpha and of |alpha|^2 alpha over the points, which prove it.
    """

    value: float
    intercept: float
    alpha: RowVector
    cubic: RowVector


@dataclass(frozen=True)
class LevelState:
    """State of the level method: all cuts and their points, the lower bound, the best and the last point."""

    gradients: Annotated[NDArray[np.float64], "cut", "row"]
    points: Annotated[NDArray[np.float64], "cut", "row"]
    offsets: Annotated[NDArray[np.float64], "cut"]
    multipliers: Annotated[NDArray[np.float64], "cut"]
    bound: CutBound
    products: int
    iteration: int
    idle: int
    best: PointState
    point: PointState


@dataclass(frozen=True)
class WorkingSetState:
    """State between two rounds of working sets, or within one that has all rows (`inner`); see `_Run`."""

    rows: Annotated[NDArray[np.intp], "working row", "< row"]
    tol: float
    n_iter: int
    products: int
    is_rough: bool
    best_is_rough: bool
    grown: bool
    before: float
    intercept: float
    idle: int
    ended: Outcome
    point: PointState | None
    best: PointState | None
    inner: GradientState | None = None


@dataclass(frozen=True)
class RefinedState:
    """State of iterative refinement: its round and the state of the round's solver."""

    round: int
    n_iter: int
    products: int
    best: PointState | None
    inner: GradientState | LevelState | WorkingSetState


SolverState = GradientState | LevelState | WorkingSetState | RefinedState
StateCallback = Callable[[Any], object]
"""Callback with the solver's state at each check, before its row is recorded; resuming starts there."""


def point_state(point: FeasiblePoint | None) -> PointState | None:
    """Return the state of a point, or None for None."""
    return None if point is None else PointState.of(point)
