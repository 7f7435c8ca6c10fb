"""Problem (3) of Li et al. 2009, solved: at one gamma, or along a path of them by warm starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol, get_args

import numpy as np
from numpy.typing import NDArray

from dkl.errors import InputError
from dkl.solvers.logdet_central_path import MetricProblem, central_path
from dkl.solvers.logdet_dual import GROWTH, DualProblem, dual_newton
from dkl.solvers.logdet_narrowing import SoftenedProblem, narrowing_losses
from dkl.solvers.logdet_newton import HALVINGS, NewtonEnd, Stop, trust_region_newton
from dkl.solvers.logdet_step import Region, Solver
from dkl.solvers.result import Outcome
from dkl.solvers.watch import Watch

Vector = NDArray[np.float64]


FIRST = 0.5
"""Length of the first multipliers of a dual ascent, in the norm of the kernel they are taken at: a whole one may leave the cone."""


MOST_ASCENT = 100
"""Steps of the dual, where few are usual; where it takes more, the primal may take few."""


MOST_ALONE = 10
"""Steps of the primal of a metric under ITML's loss, where few are usual; where more are asked for, along the central path."""


NEAR = 0.1
"""Of a relative gap that is proven after MOST_ALONE steps: the primal goes on, where the central path would begin far away."""


class PathProblem(DualProblem, SoftenedProblem, MetricProblem, Protocol):
    """A problem that can be asked at another gamma."""

    @property
    def has_corner(self) -> bool:
        """Whether the loss has no curvature, and is approached by smooth ones."""

    @property
    def has_central_path(self) -> bool:
        """Whether it is of a metric that can be stepped itself, and should."""

    @property
    def has_dual_margins(self) -> bool:
        """Whether the loss has an inverse of its slope: then the dual is solved."""

    def check(self) -> None:
        """InputError where F has no minimum."""


@dataclass(frozen=True)
class LogDetSolution:
    """What is handed out at one gamma.

    outcome      SOLVED: the proven relative duality gap is at most tol; STATIONARY: at rest by `stop`
    gamma        as in the problem
    multipliers  (c,) l of which K is made: K^-1 = K0^-1 + U(l); `problem.learned(multipliers)` is the kernel
    margins      (c,) tr(K A_t)
    certificate  with objective, bound, gap, relative_gap, of this K
    n_iter       Newton steps
    n_products   Hessian products
    solver       how Newton's systems were solved: "pcg", "direct", or "auto" where both were or there was no step
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


def solve_logdet(
    problem: PathProblem,
    *,
    solver: Solver = "auto",
    tol: float = 1e-6,
    stop: Stop = "gap",
    region: Region = "local",
    max_iter: int = 200,
    start: LogDetSolution | None = None,
    watch: Watch | None = None,
) -> LogDetSolution:
    """The kernel of `problem` (a LogDetKernelProblem or a LogDetMetricProblem) at its gamma; `start`: a solution at another.

    Where the loss tells the inverse of its slope (`InvertibleLoss`: the log-loss), by Newton's method on the dual (`logdet_dual`), of
    which `stop` and `region` must be the defaults; else, or where that takes long, on the primal (`logdet_newton`).
    solver: how Newton's systems are solved: "pcg" (Table 1), "direct" (the active system by Cholesky, `logdet_direct`), or "auto": by
    PCG, and directly where PCG has done as many operations as that would take.
    A metric under ITML's loss where the primal takes long: along its central path (`logdet_central_path`), but for "pcg".
    A hinge, which has a corner, by ever narrower smooth ones (`logdet_hinge`), each on the dual: again with these defaults.
    Rows of the history: iteration, objective, gap, relative_gap, decrement (Newton's, or |K^1/2 G K^1/2|_F, which bounds it), products;
    of a hinge they are those of the smooth one under way.
    InputError where F has no minimum or is infinite at K0.
    """
    for name, given, known in (("solver", solver, Solver), ("stop", stop, Stop), ("region", region, Region)):
        if given not in get_args(known):
            raise InputError("unknown", where=name, got=repr(given), wanted=f"one of {', '.join(get_args(known))}")
    if not (tol >= 0 and max_iter >= 0):
        raise InputError("negative", where="tol or max_iter", got=(tol, max_iter), wanted="0 or more")
    problem.check()
    watch = Watch() if watch is None else watch
    if start is not None and start.multipliers.shape != (len(problem),):
        raise InputError("of another problem", where="start", got=start.multipliers.shape, wanted=(len(problem),))
    is_default = (stop, region) == ("gap", "local")
    if problem.has_corner and not is_default:
        raise InputError(
            "not of a loss with a corner", where="stop or region", got=(stop, region), wanted=("gap", "local")
        )
    if problem.has_corner:
        smooth = partial(solve_logdet, solver=solver)
        narrowed = narrowing_losses(problem, smooth, start, tol=tol, max_iter=max_iter, watch=watch)
        return replace(
            narrowed.solution,
            outcome=narrowed.outcome,
            certificate=narrowed.certificate,
            n_iter=narrowed.n_iter,
            n_products=narrowed.n_products,
        )
    primal = partial(trust_region_newton, solver=solver, tol=tol, stop=stop, region=region, watch=watch)
    if not (is_default and problem.has_dual_margins):
        has_path = is_default and solver != "pcg" and problem.has_central_path
        most = min(max_iter, MOST_ALONE) if has_path else max_iter
        end = primal(problem, _start(problem, None if start is None else start.multipliers), max_iter=most)
        if end.outcome is not Outcome.ITERATION_LIMIT or most == max_iter:
            return _solution(problem, end, "primal")
        stage = watch.stage(start={"iteration": end.n_iter, "products": end.n_products})
        if end.certificate.relative_gap <= NEAR:
            rest = primal(problem, _start(problem, end.point.multipliers), max_iter=max_iter - end.n_iter, watch=stage)
            return _solution(problem, rest, "primal", before=end)
        begun = _path_start(problem, start)
        rest = central_path(problem, *begun, tol=tol, max_iter=max_iter - end.n_iter, watch=stage)
        return _solution(problem, rest, "primal, central path", before=end)
    most = min(max_iter, MOST_ASCENT)
    end = dual_newton(problem, *_dual_start(problem, start), solver=solver, tol=tol, max_iter=most, watch=watch)
    is_slow = end.outcome is Outcome.ITERATION_LIMIT and most < max_iter
    if end.outcome is not Outcome.STALLED and not is_slow:
        return _solution(problem, end, "dual")
    # A multiplier that is 0 to rounding, of a margin that turned out to be violated, has no way back in the dual, or a long one.
    stage = watch.stage(start={"iteration": end.n_iter, "products": end.n_products})
    rest = primal(problem, _start(problem, end.point.multipliers), max_iter=max_iter - end.n_iter, watch=stage)
    return _solution(problem, rest, "dual, primal", before=end)


def _solution(problem: PathProblem, end: NewtonEnd, method: str, before: NewtonEnd | None = None) -> LogDetSolution:
    """What is handed out of an end, which may be the second."""
    n_iter, n_products = (0, 0) if before is None else (before.n_iter, before.n_products)
    return LogDetSolution(
        end.outcome,
        problem.gamma,
        end.point.multipliers,
        end.point.margins,
        end.certificate,
        n_iter + end.n_iter,
        n_products + end.n_products,
        end.solver if before is None or before.solver == end.solver else "auto",
        method,
    )


def solve_logdet_path(
    problem: PathProblem, gammas: Sequence[float], *, watch: Watch | None = None, **options: Any
) -> list[LogDetSolution]:
    """One solution for each gamma, in the order given; each starts from the one before. Options as for `solve_logdet`.

    Each is a stage of the watch, "gamma" in its rows. A run that has ended leaves the rest of the path where it begins.
    """
    shown = Watch() if watch is None else watch
    solutions: list[LogDetSolution] = []
    for gamma in gammas:
        before = solutions[-1] if solutions else None
        stage = shown.stage("path", gamma=float(gamma))
        solutions.append(solve_logdet(problem.with_gamma(gamma), start=before, watch=stage, **options))
    return solutions


def _start(problem: PathProblem, multipliers: Vector | None) -> Any:
    """The better of K0 and K(multipliers), as the current point."""
    best = problem.point(np.zeros(len(problem)))
    problem.accept()
    if multipliers is not None:
        warm = problem.point(multipliers)
        if warm is not None and (best is None or warm.objective < best.objective):
            problem.accept()
            best = warm
    if best is None or not np.isfinite(best.objective):
        raise InputError(
            "the loss is infinite at K0",
            where="constraints",
            wanted="finite losses",
            remedy="drop duplicates, or lower gamma",
        )
    return best


def _path_start(problem: PathProblem, start: LogDetSolution | None) -> tuple[Vector, float]:
    """(multipliers, gamma): those of `start`, drawn back to a smaller gamma; or slopes at K0, as long as FIRST at most."""
    at_K0 = _start(problem, None)
    if start is not None:
        gamma = min(start.gamma, problem.gamma)
        multipliers = start.multipliers * (gamma / start.gamma)
        if problem.point(multipliers) is not None:
            return multipliers, gamma
    slopes = problem.forces(at_K0.margins) / problem.gamma
    gamma = _reach(problem, slopes, 1.0)
    return (gamma * slopes, gamma) if problem.point(gamma * slopes) is not None else (0.0 * slopes, gamma)


def _dual_start(problem: PathProblem, start: LogDetSolution | None) -> tuple[Any, float]:
    """(the current point, the gamma of whose slopes its multipliers are): the kernel of `start`, or one by the slopes at K0.

    A kernel of a larger gamma is drawn back to slopes of this one, between it and K0.
    """
    if start is not None:
        gamma = min(start.gamma, problem.gamma)
        multipliers = start.multipliers * (gamma / start.gamma)
        is_inside = np.isfinite(problem.with_gamma(gamma).dual_margins(multipliers)).all()
        point = problem.point(multipliers) if is_inside else None
        if point is not None:
            problem.accept()
            if problem.gamma <= GROWTH * gamma:  # the first growth is as far
                return point, gamma
            reached = _reach(problem, multipliers, gamma)
            return _drawn_on(problem, multipliers, gamma, reached) if reached > GROWTH * gamma else (point, gamma)
    slopes = (
        problem.forces(_start(problem, None).margins) / problem.gamma
    )  # of gamma 1: of a huge one products would overflow
    return _drawn_on(problem, slopes, 1.0, _reach(problem, slopes, 1.0))


def _reach(problem: PathProblem, multipliers: Vector, gamma: float) -> float:
    """The gamma, at most the problem's, up to which multipliers of `gamma` may grow with it: to a length of FIRST, while K is near K0."""
    size = float(np.sqrt(max(0.0, float(multipliers @ problem.product(multipliers, coarse=True)))))
    return min(problem.gamma, gamma * (FIRST / max(size, np.finfo(float).tiny)))


def _drawn_on(problem: PathProblem, multipliers: Vector, gamma: float, reached: float) -> tuple[Any, float]:
    """(the current point, `reached`): multipliers of `gamma` grown with it; shorter than 1, they leave the cone by rounding alone.

    Where rounding is all there is, the point is K0, whose multipliers are those of no gamma: the dual stalls there.
    """
    for _ in range(HALVINGS):
        point = problem.point(multipliers * (reached / gamma))
        if point is not None:
            problem.accept()
            return point, reached
        reached /= 2.0
    return _start(problem, None), reached
