"""A convex quadratic over the psd cone by factors Y = R R' of few columns: gradients, faces, and Newton's method.

    gradient  accelerated projected gradients in Y from zero: cheap, and soon near the optimum's range (`qsdp_gradient`)
    face      Y = V Z V' with V the columns of R and the eigenvectors of the gradient's lowest eigenvalues: a problem of some dozens
              of rows, convex, solved by an interior-point method. It finds the rank and leaves out what is too much, but comes
              nearer only linearly (Helmberg & Rendl, SIAM Journal on Optimization 10, 2000, with a quadratic in place of its model)
    Newton    of f(R R') in R, along which the range turns: quadratically, once the rank is right (Burer & Monteiro 2003). On a line
              f is a quartic, whose least value is exact

Problems of few rows are one face. Else, after the gradients, Newton goes on while the proven gap falls by PACE a step; a face where it does
not, and Newton again. All work in coordinates in which the map sees all directions alike (`scaling`).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dkl.errors import InputError
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
EXACT = 0.1
"""Of the gap that is asked for: how exact a face is that holds all."""
COARSE, ROUNDING = 1e-3, 1e-13
"""Of the last step's progress, or of f's size: how exact others are, which leave most of the gap behind."""
UNSEEN = 1e-12
IDLE = 8


def solve_low_rank(
    problem: Problem, *, tol: float = 1e-6, max_iter: int = 200, face: int = FACE, watch: Watch | None = None
) -> QSDPSolution:
    """Until the proven relative gap is at most `tol`. From Y = 0, without anything random; face: rows of a problem that is one face.

    Rows of the history: iteration, objective, gap, relative_gap, rank, step ("gradient", "face", "newton").
    InputError where f has no lower bound over the psd cone.
    """
    watch = Watch() if watch is None else watch
    _check_bounded(problem)
    J = problem.scaling()
    scaled = problem.congruent(J)
    point = scaled.at(np.zeros((len(J), 1)))
    best, certificate, step, gap_before = point, scaled.certificate(point), "start", 0.0
    proven, stall, taken, products, decrease = certificate, Stall(IDLE), 0, 0, np.inf
    for iteration in range(max_iter + 1):
        told = watch.record({
            "iteration": iteration, "objective": point.objective, "gap": certificate.gap,
            "relative_gap": certificate.relative_gap, "rank": point.factor.shape[1], "step": step,
        })  # fmt: skip
        if certificate.gap <= proven.gap:
            best, proven = point, certificate
        ended = verdict(
            told, solved=proven.relative_gap <= tol, at_limit=iteration == max_iter, stalled=stall.is_passed
        )
        if ended is not None:
            break
        # Newton's first step from a face's optimum leaves its dual point, and tells nothing about the next.
        taken += 1
        is_slow = step in BEGINNING or (certificate.gap * PACE > gap_before and taken >= LEAST[step])
        # A face that does not hold all leaves little to another.
        if is_slow or (step == "face" and face < len(J)):
            step, taken = "face" if step == "start" and len(J) <= face else OTHER[step], 0
        gap_before = certificate.gap
        if step == "gradient":
            following = projected_gradients(scaled, point)
        elif step == "newton":
            following, more = newton_step(scaled, point)
            products += more
        else:
            # A direction that lowers f by a square of what the gap counts it for must not be lost in what is left undone.
            aim = EXACT * tol * certificate.size
            if face < len(J) and np.isfinite(certificate.gap):
                aim = max(COARSE * min(certificate.gap, decrease), ROUNDING * certificate.size)
            following = least_on_face(scaled, point, aim, face)
        decrease = point.objective - following.objective
        stall.check(following.objective < point.objective - 1e-14 * abs(point.objective))
        point = following
        certificate = scaled.certificate(point)
    factor = J @ best.factor
    return QSDPSolution(
        ended or Outcome.ITERATION_LIMIT, factor, problem.certificate(problem.at(factor)), iteration, products
    )


def _check_bounded(problem: Problem) -> None:
    """InputError where C is negative in a direction that no B_t sees: along it f falls forever."""
    values, vectors = np.linalg.eigh(problem.map.size())
    unseen = vectors[:, values <= UNSEEN * max(float(values[-1]), 0.0)]
    if unseen.shape[1] and np.linalg.eigvalsh(unseen.T @ problem.C @ unseen)[0] < -UNSEEN * np.abs(problem.C).max():
        raise InputError(
            "the objective has no lower bound", where="C", got="a direction in which C is negative and A is zero",
            wanted="A that sees every direction in which C is negative", remedy="join the graph's components, or add pairs",
        )  # fmt: skip
