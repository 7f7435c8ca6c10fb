"""Stationary points of the pairwise problem (Hu & Kwok 2013, (1)) in V, K = V V' of fixed rank: nonlinear conjugate gradients.

The preconditioner is for the stiff part of the Hessian; the line search is exact because f is a quartic on a line.
Memory: 10 arrays of the size of the padded V (V, L V, gradient, previous and preconditioned gradient, direction D, L D,
and the preconditioner's 5 in single precision), 2 more while L V is recomputed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dkl.linalg.slabs import slab_ops as kernels
from dkl.linalg.slabs.slab_ops import lanes_of
from dkl.solvers.pairwise.rank import RankedProblem
from dkl.solvers.watch import Outcome, Row, Watch, verdict

# -- checkpoint state --------------------------------------------------------------------------------------------------
# Checkpoint state of the low-rank solver; a resumed run is bit-identical to an uninterrupted one.
# The solver offers its state before each row of the history, as it is after that row. The arrays are the solver's, of the rows that are
# here, and the next iteration overwrites them: the caller has to request the state, and write or copy it, while the row is recorded.

Array = NDArray[np.float64]
START_RANK = 16
"""Columns of the factor that a solve begins with, where none is handed in."""


@dataclass(frozen=True)
class DescentState:
    """State within a round, after an iteration of conjugate gradients.

    v, lv     (n_own, w) the padded factor and L V, which is moved along with V and not recomputed
    residual  (nnz,) P_T(V V' - T), likewise
    direction, previous   (n_own, w) the last direction, and the gradient at its start
    power, top            (n_own, w) and a number: the preconditioner's estimate of the Hessian's largest eigenvalue
    size      of the preconditioned gradient at that start
    lately    recent objectives, by which progress is judged
    """

    v: Array = field(repr=False)
    lv: Array = field(repr=False)
    residual: Array = field(repr=False)
    direction: Array = field(repr=False)
    previous: Array = field(repr=False)
    power: NDArray[Any] = field(repr=False)
    top: float
    size: float
    iteration: int
    lately: list[float] = field(repr=False)


@dataclass(frozen=True)
class RoundState:
    """State between two rounds.

    progress   relative, by which WINDOW iterations must lower f for the next round to continue
    done, idle rounds so far, and how many of them without a better gap
    count, products   rows of the history, and products with L so far
    factor     (n_own, r) at the last certificate; None before the first
    best       the factor of the least gap, and its certificate
    low        the lower end of S at `factor`
    """

    progress: float
    done: int = 0
    idle: int = 0
    count: int = 0
    products: int = 0
    factor: Array | None = field(default=None, repr=False)
    best: tuple[Array, Any] | None = field(default=None, repr=False)
    low: Any = field(default=None, repr=False)


@dataclass(frozen=True)
class FactoredState:
    """State of the search: the last round, the descent of the next (None: not started), products with L."""

    before: RoundState
    products: int
    descent: DescentState | None = None
    rank: int = 0

    @property
    def count(self) -> int:
        """Return the number of rows of the history."""
        return self.before.count + (0 if self.descent is None else self.descent.iteration)


Keep = Callable[[Callable[[], FactoredState]], object]
"""Callback before each row, with a function that returns the state.

It is valid until that row is recorded, and must not be held any longer, as it holds all arrays.
"""

# -- descent -----------------------------------------------------------------------------------------------------------

REFRESH = 20
"""Iterations after which L V and the residual are recomputed, and the preconditioner's top."""
POWER_STEPS = 20
"""Power iterations that find the preconditioner's top at first."""
WINDOW = 10
"""Iterations over which progress is judged."""


class Preconditioner(Protocol):
    """M^-1 of an M near the Hessian."""

    def refresh(self, v: Array, steps: int) -> None:
        """Update the estimate of M's spectrum at v by `steps` power iterations."""

    def apply(self, v: Array, gradient: Array, norm: float, out: Array) -> None:
        """Compute out <- M^-1 gradient, M at v."""

    def spectrum(self) -> tuple[NDArray, float]:
        """Return (power (n_own, w), top): the current estimate of the top eigenpair."""

    def restore(self, power: NDArray, top: float) -> None:
        """Restore the state returned by `spectrum`."""


class FactoredProblem(RankedProblem, Protocol):
    """f, its gradient and its quartics, by parts of the rows."""

    @property
    def n_products(self) -> int:
        """Return the number of products with L so far."""

    def move(self, point: Any, direction: Array, line: Any, t: float) -> None:
        """Compute point <- V + t D, in place."""

    def again(self, v: Array, lv: Array, residual: Array) -> Any:
        """Return the point of a padded factor (n_own, w) with known L V and residual: copies, no product."""

    def preconditioner(self, width: int) -> Preconditioner:
        """Return a preconditioner for factors of the padded `width`."""


@dataclass
class Minimum:
    """Result of `minimize` at v (n_own, w), whose point is `point`; SOLVED: stationary or hardly falling."""

    v: Array
    objective: float
    gradient_norm: float
    n_iter: int
    n_products: int
    history: list[Row] = field(repr=False)
    outcome: Outcome
    point: Any = field(repr=False)


def minimize(
    problem: FactoredProblem,
    v0: Array | None,
    *,
    tol: float,
    progress: float = 0.0,
    max_iter: int,
    watch: Watch | None = None,
    resume_from: Callable[[], DescentState] | None = None,
    keep: Callable[[Callable[[], DescentState]], object] | None = None,
) -> Minimum:
    """Find a stationary point of f(V V') from v0 (padded), by Polak-Ribiere+ conjugate gradients.

    Ends at |gradient| <= tol, or once WINDOW iterations lower f by less than `progress` relative to its scale. A row an iteration:
    iteration, objective, gradient_norm, products.
    resume_from: reads a state to continue from, in place of v0; called once. keep: called before each row with a function that returns the
    state until the row is recorded.
    """
    # The count of products runs through a whole solve: this descent reports its own share.
    watch, first_product = watch or Watch(), problem.n_products
    if resume_from is not None:
        # The function is called here and its result is not kept, so that the stored state is freed once it is copied.
        at = _Descent.of(problem, resume_from())
    else:
        assert v0 is not None
        at = _Descent(problem, v0)
    stop_reason = watch.outcome
    while True:
        # A stationary point, too little progress, or a gradient of no size: each ends the descent as solved.
        # Where the preconditioned gradient underflows there is no direction left to go.
        solved = at.point.gradient_norm <= tol or at.is_slow(progress) or at.size == 0
        outcome = verdict(stop_reason, solved=solved, at_limit=at.iteration >= max_iter)
        if outcome is not None:
            break
        at.step()
        # Offered before the row is recorded: a run that is killed at a row then resumes with exactly this state.
        if keep is not None:
            keep(at.state)
        stop_reason = watch.record(
            {
                "iteration": at.iteration,
                "objective": at.point.objective,
                "gradient_norm": at.point.gradient_norm,
                "products": problem.n_products,
            }
        )
    point, products = at.point, problem.n_products - first_product
    return Minimum(
        point.v[: problem.rows.n_own],
        point.objective,
        point.gradient_norm,
        at.iteration,
        products,
        watch.history,
        outcome,
        point,
    )


class _Descent:
    """Conjugate gradients under way; the names are those of `DescentState`."""

    line: Any

    def __init__(self, problem: FactoredProblem, v0: Array) -> None:
        self.problem, self.point = problem, problem.at(v0)
        self.precondition = problem.preconditioner(v0.shape[1])
        # The spectrum is estimated first, as the polynomial amplifies whatever lies above its top.
        self.precondition.refresh(self.point.v, POWER_STEPS)
        self.z, self.previous = np.empty_like(self.point.gradient), np.zeros_like(self.point.gradient)
        self.direction, self.line = np.zeros_like(self.point.v), None
        # The first momentum is 0 / inf = 0: the first step is along the preconditioned gradient.
        self.size, self.iteration, self.lately = np.inf, 0, [self.point.objective]

    @classmethod
    def of(cls, problem: FactoredProblem, state: DescentState) -> _Descent:
        """Return a descent that continues from `state`, which is not changed."""
        at = cls.__new__(cls)
        at.problem, at.point = problem, problem.again(state.v, state.lv, state.residual)
        at.precondition = problem.preconditioner(state.v.shape[1])
        at.precondition.restore(state.power, state.top)
        # Copies, as the state belongs to the caller, while iterations write in place.
        at.z, at.previous = np.empty_like(at.point.gradient), np.array(state.previous)
        at.direction, at.line = problem.padded(state.direction), None
        at.size, at.iteration, at.lately = state.size, state.iteration, list(state.lately)
        return at

    def state(self) -> DescentState:
        """Return the current state; its arrays are not copies."""
        own, point = self.problem.rows.n_own, self.point
        power, top = self.precondition.spectrum()
        arrays = (point.v[:own], point.lv, point.residual, self.direction[:own], self.previous, power)
        return DescentState(*arrays, top, self.size, self.iteration, self.lately)

    def is_slow(self, progress: float) -> bool:
        """Return whether the last WINDOW iterations have lowered the objective by too little."""
        if len(self.lately) <= WINDOW:
            return False
        return self.lately[-WINDOW - 1] - self.lately[-1] <= progress * self.problem.scale(self.point.objective)

    def step(self) -> None:
        """Do one iteration of conjugate gradients."""
        problem, point, direction = self.problem, self.point, self.direction
        self.iteration += 1
        # z = M^-1 gradient, by a polynomial without dot products: no sum over owners is waited for.
        self.precondition.apply(point.v, point.gradient, point.gradient_norm, self.z)
        new_size, overlap, slope = _slopes(problem, self.z, point.gradient, self.previous, direction)
        # Polak-Ribiere+: the gradient's change in the preconditioner's inner product, forgetting where it would be negative.
        momentum = max(0.0, (new_size - overlap) / self.size)
        self.size = new_size
        # The next direction, momentum D - z, must lead down.
        _update_direction(problem, momentum if momentum * slope < new_size else 0.0, self.z, direction)
        self.line = problem.line(point, direction, self.line)
        self.previous, point.gradient = point.gradient, self.previous  # `move` overwrites what the point holds
        problem.move(point, direction, self.line, self.line.minimizer()[0])
        if self.iteration % REFRESH == 0:
            # L V and R are updated along each line; a fresh product removes what rounding has added up.
            self.point = problem.at(point.v)
            self.precondition.refresh(self.point.v, 2)
        # Only the last WINDOW objectives are kept: progress is judged by the first and the last of them.
        self.lately = [*self.lately[-WINDOW:], self.point.objective]


def _slopes(
    problem: FactoredProblem, z: Array, gradient: Array, previous: Array, direction: Array
) -> tuple[float, float, float]:
    """Return (z . gradient, z . the previous gradient, direction . gradient), by one sum."""
    arrays = (z, gradient, previous, direction, lanes_of(z.shape[1]))
    one, other, slope = problem.rows.sum(lambda lo, hi: kernels.slope_rows(lo, hi, *arrays))
    return float(one), float(other), float(slope)


def _update_direction(problem: FactoredProblem, momentum: float, z: Array, direction: Array) -> None:
    """Compute direction <- momentum direction - z."""
    arrays = (z, direction, lanes_of(z.shape[1]))
    problem.rows.each(lambda lo, hi: kernels.update_direction_rows(lo, hi, momentum, *arrays), len(z))
