"""Newton's method on the dual of problem (3), maximizing D(l), for losses whose slope has an inverse.

With x_t the dual margins, w psi'(x_t) = l_t, the gradient of D is a(l) - x, and with C = diag(w psi''(x)) Newton's step is
    (I + C H) step = C (a - x),   H_st = tr(A_s K A_t K),
the system of the primal (`logdet_step`) at x instead of a. A loss that falls off like exp(-2 a) is far stiffer at a kernel's own margins
than at those of its multipliers when gamma grows: there a primal step asks for kernels that grow many times too much.

The gap is free: F - D = w sum of the Bregman distances of psi from x_t to a_t.

gamma itself grows along the way after each whole step, as far as one step can follow: the path of solutions is the central path of a
barrier method (Li et al. 2009, 4.3). How a step is taken keeps it long (`logdet_ascent`).
"""

from __future__ import annotations

import numpy as np

from dkl.solvers.logdet.ascent import DualProblem, DualState, ascend, curvatures_at
from dkl.solvers.logdet.dual_step import FEW, dual_step
from dkl.solvers.logdet.newton import IDLE, ROUNDING, NewtonEnd
from dkl.solvers.logdet.step import Solver
from dkl.solvers.result import Outcome
from dkl.solvers.watch import Stall, Watch, verdict

SHARE = 0.3
"""Share of the wanted gap that the last step aims at."""
ON_THE_WAY = 1e-6
"""Largest relative gap aimed at before gamma is the problem's.
By 1e-3 a cold start to that gap takes more steps than one to 1e-6 (31 and 22 of sonar's)."""
GROWTH = 2.0
"""Growth factor of gamma after a whole step of length 1; more after a shorter one, up to its cube."""
NORM = 2.0
"""Norm that the growth aims at for the first step after gamma has grown.
USPS' images, all labeled, take 46 steps of 368 products along figure 2's path without it, and 39 of 259 with it or with 1.2 or 3: steps of
5 and more reach for a kernel that others take back."""
SLOWEST = 0.5
"""Octaves that gamma grows by at least."""


def dual_newton(
    problem: DualProblem, at: DualState, target: DualProblem, *, solver: Solver, tol: float, max_iter: int, watch: Watch
) -> NewtonEnd:
    """Maximize D from `at`, the current point's state, to a proven relative gap of at most tol.

    target: the problem at its own gamma or a smaller one, of whose loss `at`'s multipliers are slopes. Rows of the history, and what is
    handed out, are of the lowest objective so far, and where it is solved of the point that proves it; something is proven once gamma is
    the problem's.
    """
    best, lowest, bound, decrement = at.point, np.inf, problem.lowest, np.inf
    products, is_stiff, stall, ways = 0, False, Stall(IDLE), set[str]()
    grown, rate = 0.0, 0.0  # octaves that gamma has just grown by, and a step's norm to an octave
    for iteration in range(max_iter + 1):
        is_there = target.gamma == problem.gamma
        objective = problem.objective(at.point)
        bound = max(bound, at.dual) if is_there else bound
        best, lowest = (at.point, objective) if objective < lowest else (best, lowest)
        is_solved = is_there and problem.certificate(objective, at.dual).relative_gap <= tol
        if is_solved:
            # Of one point, between whose F and D log det cancels, rounding and all; and of its multipliers a narrower loss begins.
            # What is handed out proves itself: a bound of other multipliers could not be verified.
            best, lowest, bound = at.point, objective, at.dual
        certificate = problem.certificate(lowest, bound)
        stop_reason = watch.record({
            "iteration": iteration, "objective": lowest, "gap": certificate.gap, "relative_gap": certificate.relative_gap,
            "decrement": decrement, "products": products,
        })  # fmt: skip
        ended = verdict(stop_reason, solved=is_solved, at_limit=iteration == max_iter, stalled=stall.is_passed)
        if ended is not None:
            break
        curvatures, is_far = curvatures_at(target, at)
        differences = at.point.margins - at.x
        gap = SHARE * (tol if is_there else min(tol, ON_THE_WAY)) * abs(objective)
        way, step = dual_step(problem, solver, differences, curvatures, gap, is_stiff)
        is_stiff = is_stiff or step.products > FEW
        ways.add(way)
        products += step.products
        grown, rate = (0.0, step.norm / grown) if grown > 0 else (grown, rate)
        rise = float(differences @ step.step)
        decrement = float(np.sqrt(max(0.0, rise)))
        slack = ROUNDING * (abs(at.dual) + float(np.abs(at.point.multipliers * at.x).sum()))
        following, share = ascend(target, at, step, curvatures, is_far, rise, slack)
        if following is None:
            stall.idle = IDLE + 1
            continue
        stall.check(not is_there or (rise > slack and certificate.gap >= 0))
        at = following
        if share == 1.0 and not is_there:
            octaves = _octaves(step.norm, rate)
            gamma, target = target.gamma, problem.with_gamma(min(problem.gamma, 2.0**octaves * target.gamma))
            grown = float(np.log2(target.gamma / gamma))
            at = DualState.of(target, at.point)
    way = ways.pop() if len(ways) == 1 else solver
    return NewtonEnd(best, certificate, ended or Outcome.ITERATION_LIMIT, iteration, products, way)


def _octaves(norm: float, rate: float) -> float:
    """Return by how many octaves gamma may grow after a whole step; rate: norm per octave of the last one."""
    most = np.log2(GROWTH) / min(1.0, max(norm, 1.0 / 3.0))
    return float(max(SLOWEST, min(most, NORM / max(rate, np.finfo(np.float64).tiny))))
