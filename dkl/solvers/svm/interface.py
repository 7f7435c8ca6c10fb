"""Interface of solvers of the optimal neighborhood kernel's machine: their problem, their solution, and the states between two steps.

minimize over alpha in P = {0 <= alpha_i <= C_i, y'alpha = 0}
    f = -2 c'alpha + alpha'Y K Y alpha + |alpha|^4 / (4 rho)                      (Liu et al. 2009, (7))

Resuming from a state is bit-identical. A solver that works by another one has that one's state within its own: `inner`. The arrays of a
state are not written to later, so a state needs no copy. Dimensions are named: "row" is a row of the binary problem.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Annotated, Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from dkl.linalg.kernels.kernel_operators import KernelOperator, Vector
from dkl.solvers.watch import Outcome, Row, Watch


class FeasiblePoint(Protocol):
    """A feasible alpha and what is known there."""

    @property
    def alpha(self) -> Vector:
        """Return alpha (n,)."""

    @property
    def product(self) -> Vector:
        """Return Y K Y alpha (n,)."""

    @property
    def objective(self) -> float:
        """Return the objective f."""

    @property
    def gradient(self) -> Vector:
        """Return the gradient (n,) of f."""

    @property
    def gap(self) -> float:
        """Return f less a lower bound of all f."""

    @property
    def intercept(self) -> float:
        """Return the b at which that bound is reached."""

    @property
    def relative_gap(self) -> float:
        """Return the gap over |f|; infinite where f >= 0."""

    def with_bound(self, gap: float, intercept: float) -> Self:
        """Return the point of the same alpha with another lower bound."""

    def with_product(self, product: Vector) -> Self:
        """Return the point of the same alpha, objective and gap with another Y K Y alpha."""


class SVMProblem(Protocol):
    """The problem."""

    @property
    def n(self) -> int:
        """Return the number of rows."""

    @property
    def kernel(self) -> KernelOperator:
        """Return the kernel K."""

    @property
    def y(self) -> Vector:
        """Return the labels (n,) of -1 and 1."""

    @property
    def C(self) -> Vector:
        """Return the bounds C (n,)."""

    @property
    def rho(self) -> float:
        """Return rho, the weight of the distance to K."""

    @property
    def linear(self) -> Vector | None:
        """Return the linear term c (n,); None for ones."""

    def product(self, alpha: Vector) -> Vector:
        """Return Y K Y alpha: the one operation that costs."""

    def objective(self, alpha: Vector, product: Vector) -> float:
        """Return the objective f."""

    def gradient(self, alpha: Vector, product: Vector) -> Vector:
        """Return the gradient (n,) of f."""

    def at(self, alpha: Vector, product: Vector | None = None) -> FeasiblePoint:
        """Return the point of a feasible alpha; one product, unless it is given."""

    def zero(self) -> FeasiblePoint:
        """Return the point of alpha = 0; no product."""

    def in_reach(self) -> Self:
        """Return the same problem with the bounds that any alpha better than 0 obeys."""

    def bound(self, gradient: Vector, alpha: Vector) -> tuple[float, float]:
        """Return (gap, b): the least bound over b on how far g'alpha is above its least over P, and that b."""


@dataclass(frozen=True)
class SVMSolution:
    """Point reached, products with K, and a row a check: iteration, products, objective, relative_gap.

    bound: what proves the gap of a point that does not prove it itself.
    """

    point: Any
    n_iter: int
    products: int
    outcome: Outcome
    history: list[Row]
    bound: CutBound | None = None


class Solve(Protocol):
    """A solver with its parameters set.

    It starts from `start`, zero without any, or continues from `resume_from`, a state that `on_state` was given for the same problem and
    start.
    """

    def __call__(
        self,
        problem: Any,
        start: Vector | None = None,
        *,
        watch: Watch | None = None,
        on_state: StateCallback | None = None,
        resume_from: Any = None,
    ) -> SVMSolution:
        """Return the point of the least gap that was met."""


def record_point(watch: Watch, iteration: int, products: int, best: FeasiblePoint) -> Outcome | None:
    """Record the row of the best point so far; return the outcome that ends the run, or None."""
    return watch.record(
        {
            "iteration": iteration,
            "products": products,
            "objective": best.objective,
            "relative_gap": best.relative_gap,
        }
    )


def relative_gap(point: FeasiblePoint) -> float:
    """Return the key that points are compared by."""
    return point.relative_gap


# Which two-class machines make up a many-class one: one against the rest, or one against one.

LARGEST_BY_LEVEL = 5000
"""Maximum rows of a machine for the level method, whose linear programs have as many unknowns."""
SMALLEST_IN_PARTS = 2000
"""Rows of a machine that working sets solve at once: so small a kernel matrix takes no time."""


@dataclass(frozen=True)
class TwoClasses:
    """Rows (k,) of a machine, labels of 1 and -1, and its (positive, negative) class: None for the rest."""

    rows: NDArray[np.intp]
    y: NDArray[np.float64]
    between: tuple[int, int | None]


def machines(labels: NDArray[np.intp], n_classes: int, scheme: str) -> list[TwoClasses]:
    """Return the machines of labels (n,) from 0 on. Two classes: one machine, positive for class 1.
    "ovr": class k against the rest; "ovo": i against j > i, positive for i, in the order (0, 1), (0, 2), ..., as SVC has them."""
    if n_classes == 2:
        return [TwoClasses(np.arange(len(labels)), np.where(labels == 1, 1.0, -1.0), (1, 0))]
    if scheme == "ovr":
        everything = np.arange(len(labels))
        return [TwoClasses(everything, np.where(labels == k, 1.0, -1.0), (k, None)) for k in range(n_classes)]
    found = []
    for i in range(n_classes):
        for j in range(i + 1, n_classes):
            rows = np.flatnonzero((labels == i) | (labels == j))
            found.append(TwoClasses(rows, np.where(labels[rows] == i, 1.0, -1.0), (i, j)))
    return found


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
