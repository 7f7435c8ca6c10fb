"""A convex quadratic over the psd cone by factors Y = R R' of few columns: gradients, faces, and Newton's method.

    gradient  accelerated projected gradients in Y from zero: cheap, and soon near the optimum's range (`qsdp_gradient`)
    face      Y = V Z V' with V the columns of R and the eigenvectors of the gradient's lowest eigenvalues: a problem of some dozens
              of rows, convex, solved by an interior-point method. It finds the rank and leaves out what is too much, but comes
              nearer only linearly (Helmberg & Rendl, SIAM Journal on Optimization 10, 2000, with a quadratic in place of its model).
              Of many columns only the weakest are in V: the others are sure to stay
    Newton    of f(R R') in R, along which the range turns: quadratically, once the rank is right (Burer & Monteiro 2003). On a line
              f is a quartic, whose least value is exact. Steps are found in single precision

Problems of few rows are one face. Else, after the gradients, Newton goes on while the proven gap falls by PACE a step; a face where it does
not, and Newton again. All work in coordinates in which the map sees all directions alike (`scaling`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dkl.solvers.qsdp_checks import check_bounded, check_numbers
from dkl.solvers.qsdp_face import FACE, least_on_face
from dkl.solvers.qsdp_gradient import projected_gradients
from dkl.solvers.qsdp_newton import newton_step
from dkl.solvers.qsdp_problem import Problem, QSDPSolution
from dkl.solvers.result import Outcome
from dkl.solvers.watch import Stall, Watch, verdict

Array = NDArray[np.float64]
PACE = 3.0
OTHER = {"start": "gradient", "gradient": "newton", "face": "newton", "newton": "face"}
BEGINNING = ("start", "gradient")
LEAST = {"face": 1, "newton": 3}
"""Steps of a kind that are taken before another is tried."""
EXACT = 1e-3
"""Of the gap that is asked for: how exact a face is that holds all."""
COARSE, ROUNDING = 1e-3, 1e-13
"""Of the last step's progress, or of f's size: how exact others are, which leave most of the gap behind."""
NARROW = 10
"""Columns of a factor after whose Newton steps a face that holds them and the step, too, costs little: where valleys are curved and
flat, as of hundreds of eigenvectors, it goes several times as far as the line."""
IDLE = 8


@dataclass(frozen=True)
class LowRankState:
    """Where the method stands before a step, in its scaled coordinates and units: what goes on has the bits of what was never ended.

    factor (m, r) of the point, best (m, r) of the point of the least gap so far; step: what made the point, after `taken` of its
    kind; products so far; idle: steps without progress; gap_before and decrease: of the gap and of f, at the step before.
    """

    factor: Array = field(repr=False)
    best: Array = field(repr=False)
    step: str = "start"
    iteration: int = 0
    taken: int = 0
    products: int = 0
    idle: int = 0
    gap_before: float = 0.0
    decrease: float = np.inf


STEPS = ("gradient", "face", "newton")
"""Of a state, beside "start"."""


def solve_low_rank(
    problem: Problem,
    *,
    tol: float = 1e-6,
    max_iter: int = 200,
    face: int = FACE,
    watch: Watch | None = None,
    begun: LowRankState | None = None,
    keep: Callable[[LowRankState], object] | None = None,
) -> QSDPSolution:
    """Until the relative gap is proven to be at most `tol`, by the feasible dual that is handed out.

    From Y = 0, without anything random; face: rows of a problem that is one face.

    Rows of the history: iteration, objective, gap, relative_gap, rank, step ("gradient", "face", "newton").
    keep: is given the state after each row; nobody writes to its arrays. begun: such a state, of which the row was recorded.
    InputError where f has no lower bound over the psd cone, and for numbers that are none.
    """
    check_numbers(tol=tol, max_iter=max_iter, face=face)
    watch = Watch() if watch is None else watch
    check_bounded(problem)
    J = problem.scaling()
    scaled, unit = problem.congruent(J).in_units()
    J = J * np.sqrt(unit)
    with np.errstate(over="ignore"):  # what is beyond single precision is found in double
        rough = scaled.single()
    state = LowRankState(np.zeros((len(J), 1)), np.zeros((len(J), 1))) if begun is None else begun
    point, best, stall = scaled.at(state.factor), scaled.at(state.best), Stall(IDLE)
    stall.idle = state.idle
    step, taken, products = state.step, state.taken, state.products
    gap_before, decrease = state.gap_before, state.decrease
    for iteration in itertools.count(state.iteration):
        if begun is not None and iteration == begun.iteration:
            told = watch.outcome
        else:
            told = watch.record({
                "iteration": iteration, "objective": unit**2 * point.objective, "gap": unit**2 * point.proof.gap,
                "relative_gap": point.proof.relative_gap, "rank": point.factor.shape[1], "step": step,
            })  # fmt: skip
        if point.proof.gap <= best.proof.gap:
            best = point
        if keep is not None:
            found = (point.factor, best.factor, step, iteration, taken, products, stall.idle, gap_before, decrease)
            keep(LowRankState(*found))
        is_solved = best.proof.relative_gap <= tol
        # It is handed out in the problem's own coordinates, where another z0 corrects the dual, and rounding may undo what is proven.
        if is_solved:
            is_solved = problem.at(J @ best.factor).proof.relative_gap <= tol
        ended = verdict(told, solved=is_solved, at_limit=iteration >= max_iter, stalled=stall.is_passed)
        if ended is not None:
            break
        # Newton's first step from a face's optimum leaves its dual point, and tells nothing about the next.
        taken += 1
        is_slow = step in BEGINNING or (point.proof.gap * PACE > gap_before and taken >= LEAST[step])
        # A face that does not hold all leaves little to another.
        if is_slow or (step == "face" and face < len(J)):
            step, taken = "face" if step == "start" and len(J) <= face else OTHER[step], 0
        gap_before = point.proof.gap
        if step == "gradient":
            following = projected_gradients(scaled, rough, point)
        elif step == "newton":
            following, along, more = newton_step(scaled, rough, point, tol)
            products += more
            if along.shape[1] <= NARROW and face < len(J):
                drop = point.objective - following.objective
                aim = max(COARSE * drop, ROUNDING * point.proof.size)
                following = least_on_face(scaled, following, aim, face, along)
        else:
            # A direction that lowers f by a square of what the gap counts it for must not be lost in what is left undone.
            aim = EXACT * tol * point.proof.size
            if face < len(J) and np.isfinite(point.proof.gap):
                aim = max(COARSE * min(point.proof.gap, decrease), ROUNDING * point.proof.size)
            following = least_on_face(scaled, point, aim, face)
        following = _by_rows(scaled, following)
        decrease = point.objective - following.objective
        stall.check(following.objective < point.objective - 1e-14 * abs(point.objective))
        point = following
    own = problem.at(J @ best.factor)
    outcome = ended or Outcome.ITERATION_LIMIT
    return QSDPSolution(outcome, own.factor, own.proof.dual, problem.certificate(own), iteration, products)


def _by_rows(problem: Problem, point: Any) -> Any:
    """The point, of a factor that lies row by row: BLAS rounds by the order in memory, and a store keeps this one."""
    return point if point.factor.flags.c_contiguous else problem.at(np.ascontiguousarray(point.factor))
