"""Convex quadratic over the psd cone by factors Y = R R' of few columns: gradients, faces, Newton.

    gradient  accelerated projected gradients in Y from zero: cheap, and soon near the optimum's range (`projected_gradients`)
    face      Y = V Z V' with V the columns of R and the eigenvectors of the gradient's lowest eigenvalues: a problem of some dozens
              of rows, convex, solved by an interior-point method. It finds the rank and leaves out what is too much, but comes
              nearer only linearly (Helmberg & Rendl, SIAM Journal on Optimization 10, 2000, with a quadratic in place of its model).
              Of many columns only the weakest are in V: the others are sure to stay
    Newton    of f(R R') in R, along which the range turns: quadratically, once the rank is right (Burer & Monteiro 2003). On a line
              f is a quartic, whose least value is exact. Steps are found in single precision

Problems of few rows are one face. Else, after the gradients, Newton continues while the proven gap falls by PACE a step; a face where it
does not, and Newton again. All work in coordinates in which the map sees all directions alike (`scaling`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from numpy.typing import NDArray

from dkl.solvers.qsdp.interface import ConeQuadratic, QSDPSolution, check_bounded, check_numbers
from dkl.solvers.qsdp.steps import FACE, least_on_face, newton_step, projected_gradients
from dkl.solvers.watch import Row, Stall, Watch, verdict

if TYPE_CHECKING:
    from dkl.solvers.qsdp.interface import ConePoint

Array = NDArray[np.float64]
PACE = 3.0
"""Factor by which a step must lower the proven gap, or the next is of another kind."""
Step = Literal["start", "gradient", "face", "newton"]
OTHER: dict[str, Step] = {"start": "gradient", "gradient": "newton", "face": "newton", "newton": "face"}
BEGINNING = ("start", "gradient")
LEAST = {"face": 1, "newton": 3}
"""Steps of a kind that are taken before another is tried."""
EXACT = 1e-3
"""Accuracy of a face that holds all rows, as a share of the wanted gap."""
COARSE, ROUNDING = 1e-3, 1e-13
"""Accuracy of other faces: a share of the last step's progress, at least one of f's size."""
NARROW = 10
"""Columns of a factor after whose Newton steps a face that holds them and the step, too, costs little: where valleys are curved and
flat, as of hundreds of eigenvectors, it goes several times as far as the line."""
IDLE = 8
"""Most steps in a row that do not lower the objective."""


@dataclass(frozen=True)
class LowRankState:
    """Checkpoint state before a step, in scaled coordinates and units; resuming from it is bit-identical.

    factor (m, r) of the point, best (m, r) of the point of the least gap so far; step: what made the point, after `taken` of its
    kind; products so far; idle: steps without progress; gap_before and decrease: of the gap and of f, at the step before.
    """

    factor: Annotated[Array, "basis", "column"] = field(repr=False)
    best: Annotated[Array, "basis", "best column"] = field(repr=False)
    step: Step = "start"
    iteration: int = 0
    taken: int = 0
    products: int = 0
    idle: int = 0
    gap_before: float = 0.0
    decrease: float = np.inf


def solve_low_rank(
    problem: ConeQuadratic,
    *,
    tol: float = 1e-6,
    max_iter: int = 200,
    face: int = FACE,
    watch: Watch | None = None,
    start: Array | None = None,
    resume_from: LowRankState | None = None,
    on_state: Callable[[LowRankState], object] | None = None,
) -> QSDPSolution:
    """Solve until a relative gap of at most `tol` is proven, by the feasible dual that is returned.

    From Y = 0, without anything random, or from `start`, a factor (m, r) of Y near the optimum; face: rows of a problem that is one face.

    Rows of the history: iteration, objective, gap, relative_gap, rank, step ("gradient", "face", "newton").
    on_state: called with the state after each row; its arrays are not written to. resume_from: such a state, of which the row was recorded.
    InputError where f has no lower bound over the psd cone, and for invalid numbers.
    """
    check_numbers(tol=tol, max_iter=max_iter, face=face)
    watch = Watch() if watch is None else watch
    check_bounded(problem)
    walk = _ScaledSteps(problem, tol, face, start, resume_from)
    stop_reason = watch.outcome if resume_from is not None else watch.record(walk.row())
    while True:
        if on_state is not None:
            on_state(walk.state())
        at_limit, stalled = walk.iteration >= max_iter, walk.stall.is_passed
        outcome = verdict(stop_reason, solved=walk.is_solved(), at_limit=at_limit, stalled=stalled)
        if outcome is not None:
            own = walk.result()
            certificate = problem.certificate(own)
            return QSDPSolution(outcome, own.factor, own.proof.dual, certificate, walk.iteration, walk.products)
        walk.advance()
        stop_reason = watch.record(walk.row())


class _ScaledSteps:
    """Sequence of points in scaled coordinates and units; see `LowRankState` for what is counted."""

    def __init__(
        self, problem: ConeQuadratic, tol: float, face: int, start: Array | None, resume_from: LowRankState | None
    ) -> None:
        self.problem, self.tol, self.face = problem, tol, face
        J = problem.scaling()
        # Units of powers of 4, so that scaling by them rounds nothing.
        self.scaled, self.unit = problem.congruent(J).in_units()
        self.J = J * np.sqrt(self.unit)
        self.is_one_face = len(J) <= face
        with np.errstate(over="ignore"):  # what is beyond single precision is found in double
            self.rough = self.scaled.single()
        # The start in the scaled coordinates: Y = J Z J'.
        factor = np.zeros((len(J), 1)) if start is None else np.ascontiguousarray(np.linalg.solve(self.J, start))
        state = LowRankState(factor, factor) if resume_from is None else resume_from
        self.point, self.best = self.scaled.at(state.factor), self.scaled.at(state.best)
        self.stall = Stall(IDLE)
        # A resumed search counts its idle steps from where the interrupted one was.
        self.stall.idle = state.idle
        self.step, self.iteration, self.taken, self.products = state.step, state.iteration, state.taken, state.products
        self.gap_before, self.decrease = state.gap_before, state.decrease
        self._compare()

    def row(self) -> Row:
        """Return the point's row of the history."""
        proof, square = self.point.proof, self.unit**2
        return {
            "iteration": self.iteration, "objective": square * self.point.objective, "gap": square * proof.gap,
            "relative_gap": proof.relative_gap, "rank": self.point.factor.shape[1], "step": self.step,
        }  # fmt: skip

    def state(self) -> LowRankState:
        """Return the state to resume from."""
        counts = (self.step, self.iteration, self.taken, self.products, self.stall.idle)
        return LowRankState(self.point.factor, self.best.factor, *counts, self.gap_before, self.decrease)

    def result(self) -> ConePoint:
        """Return the best point, in the problem's own coordinates."""
        return self.problem.at(self.J @ self.best.factor)

    def is_solved(self) -> bool:
        """Return whether the gap is proven in the problem's own coordinates too, where z0 and rounding differ."""
        is_proven = self.best.proof.relative_gap <= self.tol
        # The cheap gap first: the one in the problem's own coordinates takes a decomposition.
        return bool(is_proven and self.result().proof.relative_gap <= self.tol)

    def advance(self) -> None:
        """Take one step, of the kind that is due."""
        self._choose()
        self.gap_before = self.point.proof.gap
        # One order of memory for all factors, or a resumed run would have other bits.
        following = _by_rows(self.scaled, getattr(self, f"_{self.step}")())
        self.decrease = self.point.objective - following.objective
        self.stall.check(following.objective < self.point.objective - 1e-14 * abs(self.point.objective))
        self.point = following
        self.iteration += 1
        self._compare()

    def _compare(self) -> None:
        # Of equal gaps the later point counts.
        if self.point.proof.gap <= self.best.proof.gap:
            self.best = self.point

    def _choose(self) -> None:
        """Choose the next step's kind: the same, or another where that was slow."""
        # Newton's first step from a face's optimum leaves its dual point, and says nothing about the next.
        self.taken += 1
        is_slow = self.step in BEGINNING or (
            self.point.proof.gap * PACE > self.gap_before and self.taken >= LEAST[self.step]
        )
        # A face that does not hold all leaves little to another.
        if is_slow or (self.step == "face" and not self.is_one_face):
            # Gradients are for the way from nothing to near the optimum's range.
            is_near = self.step == "start" and bool(self.point.factor.any())
            following = OTHER["gradient" if is_near else self.step]
            self.step = "face" if self.step == "start" and self.is_one_face else following
            self.taken = 0

    def _gradient(self) -> ConePoint:
        return projected_gradients(self.scaled, self.rough, self.point)

    def _newton(self) -> ConePoint:
        following, along, more = newton_step(self.scaled, self.rough, self.point, self.tol)
        self.products += more
        if along.shape[1] > NARROW or self.is_one_face:
            return following
        aim = self._coarse(self.point.objective - following.objective)
        return least_on_face(self.scaled, following, aim, self.face, along)

    def _face(self) -> ConePoint:
        # A direction that lowers f by a square of what the gap counts it for must not be lost in what is left undone.
        aim = EXACT * self.tol * self.point.proof.size
        if not self.is_one_face and np.isfinite(self.point.proof.gap):
            aim = self._coarse(min(self.point.proof.gap, self.decrease))
        return least_on_face(self.scaled, self.point, aim, self.face)

    def _coarse(self, progress: float) -> float:
        """Return the accuracy of a face that leaves the rest to further steps."""
        return max(COARSE * progress, ROUNDING * self.point.proof.size)


def _by_rows(problem: ConeQuadratic, point: ConePoint) -> ConePoint:
    """Return the point with its factor stored by rows, as a store has it: BLAS rounds by that order."""
    return point if point.factor.flags.c_contiguous else problem.at(np.ascontiguousarray(point.factor))
