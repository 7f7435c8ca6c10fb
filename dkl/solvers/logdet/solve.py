"""Solver of the LogDet problem (Li et al. 2009, (3)): at one gamma, or along a path of them by warm starts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, get_args

import numpy as np

from dkl.errors import InputError
from dkl.solvers.logdet.central_path import central_path
from dkl.solvers.logdet.dual import dual_newton
from dkl.solvers.logdet.newton import NewtonEnd, Stop, trust_region_newton
from dkl.solvers.logdet.paper import paper_newton
from dkl.solvers.logdet.path import LogDetSolution as LogDetSolution
from dkl.solvers.logdet.path import PathProblem, central_start, dual_start, narrowing_losses, primal_start
from dkl.solvers.logdet.step import Region, Solver
from dkl.solvers.watch import Outcome, Watch

Primal = Callable[..., NewtonEnd]
"""trust_region_newton with its options but max_iter and watch."""
After = tuple[int, Callable[..., LogDetSolution]]
"""After how many steps of the primal another method takes over, called with max_iter and watch."""
MOST_ASCENT = 100
"""Steps of the dual, where few are usual; where it takes more, the primal may take few."""
MOST_ALONE = 10
"""Steps of the primal of a metric under ITML's loss, where few are usual; where more are asked for, along the central path."""
MOST_BENT = 60
"""Steps of the primal of a smoothed hinge, where some 30 are usual; where margins were huge at K0, as of 300 digits' raw rows, 200 prove
nothing, and ever narrower losses on the dual take 39 to 120."""
NEAR = 0.1
"""Relative gap up to which the primal continues, where what would follow begins far away."""


def solve_logdet(
    problem: PathProblem,
    *,
    solver: Solver = "auto",
    tol: float = 1e-6,
    stop: Stop = "gap",
    region: Region = "local",
    max_iter: int = 200,
    start: LogDetSolution | None = None,
    earlier: LogDetSolution | None = None,
    watch: Watch | None = None,
) -> LogDetSolution:
    """Learn the kernel of `problem` (a LogDetKernelProblem or a LogDetMetricProblem) at its gamma.

    `start`: a solution at another gamma, from which it begins; `earlier`: the one that led to `start` on a path, so that the two lead on
    (the dual alone uses it).
    Where the loss has the inverse of its slope (`InvertibleLoss`: the log-loss), by Newton's method on the dual (`dual_newton`), of which
    `stop` and `region` must be the defaults; else, or where that takes long, on the primal (`trust_region_newton`).
    solver: how Newton's systems are solved: "pcg" (Table 1), "direct" (the active system by Cholesky, `direct_step`), or "auto": by
    PCG, and directly where PCG has done as many operations as that would take; or "paper": the whole method as printed (`paper_newton`),
    whose `tol` is |G|_F's, of any loss with second derivatives.
    A metric under ITML's loss where the primal takes long: along its central path (`central_path`), but for "pcg".
    A hinge, which has a corner, by ever narrower smooth ones (`narrowing_losses`), each on the dual: again with these defaults; so too
    the smoothed hinge of (8) where the primal takes long.
    Rows of the history: iteration, objective, gap, relative_gap, decrement (Newton's, or |K^1/2 G K^1/2|_F, which bounds it), products;
    of hinges on the dual they are those of the smooth one under way.
    InputError where F has no minimum or is infinite at K0.
    """
    watch = Watch() if watch is None else watch
    # All arguments are checked before any work: a path would otherwise run for minutes first.
    _check(problem, solver, tol, stop, region, max_iter, start, earlier)
    if solver == "paper":
        return _as_printed(problem, start, tol, max_iter, watch)
    is_default = (stop, region) == ("gap", "local")
    # A hinge has no curvature, so Newton's method on it is Newton's on its smooth neighbors.
    if problem.has_corner:
        return _by_narrowing(problem, start, solver, tol, max_iter, watch)
    primal = partial(trust_region_newton, solver=solver, tol=tol, stop=stop, region=region)
    # The dual is the default where the loss allows it: its certificate costs nothing.
    if is_default and problem.has_dual_margins:
        return _by_dual(problem, start, earlier, primal, solver, tol, max_iter, watch)
    # A method that takes long is followed by another one from where it has come, instead of being given up.
    after: After | None = None
    if is_default and solver != "pcg" and problem.has_central_path:
        after = MOST_ALONE, partial(_by_central_path, problem, start, tol)
    elif is_default and problem.has_bend:
        after = MOST_BENT, partial(_by_narrowing, problem, start, solver, tol)
    return _by_primal(problem, start, primal, after, max_iter, watch)


def _check(
    problem: PathProblem, solver: str, tol: float, stop: str, region: str, max_iter: int, *before: LogDetSolution | None
) -> None:
    """Raise InputError for invalid arguments, before any work."""
    for name, given, known in (("solver", solver, Solver), ("stop", stop, Stop), ("region", region, Region)):
        if given not in get_args(known):
            raise InputError("unknown", where=name, got=repr(given), wanted=f"one of {', '.join(get_args(known))}")
    if not (tol >= 0 and max_iter >= 0):
        raise InputError("negative", where="tol or max_iter", got=(tol, max_iter), wanted="0 or more")
    problem.check()
    for name, one in zip(("start", "earlier"), before, strict=True):
        if one is not None and one.multipliers.shape != (len(problem),):
            raise InputError("of another problem", where=name, got=one.multipliers.shape, wanted=(len(problem),))
    if solver == "paper" and (problem.has_corner or (stop, region) != ("gap", "local")):
        got = "a loss with a corner" if problem.has_corner else (stop, region)
        raise InputError("the paper's method has its own region and stop", where="solver paper", got=got,
                         wanted="a loss with second derivatives, and no stop or region")  # fmt: skip
    if problem.has_corner and (stop, region) != ("gap", "local"):
        raise InputError(
            "not of a loss with a corner", where="stop or region", got=(stop, region), wanted=("gap", "local")
        )


@np.errstate(over="ignore", invalid="ignore")  # of margins near the largest number: the outcome reports it
def _by_dual(
    problem: PathProblem,
    start: LogDetSolution | None,
    earlier: LogDetSolution | None,
    primal: Primal,
    solver: Solver,
    tol: float,
    max_iter: int,
    watch: Watch,
) -> LogDetSolution:
    """Solve by the dual; if that takes long, or stalls, finish by the primal."""
    # Few steps of the dual are usual: where it takes many, the primal continues from the dual's point.
    most = min(max_iter, MOST_ASCENT)
    end = dual_newton(problem, *dual_start(problem, start, earlier), solver=solver, tol=tol, max_iter=most, watch=watch)
    is_slow = end.outcome is Outcome.ITERATION_LIMIT and most < max_iter
    if end.outcome is not Outcome.STALLED and not is_slow:
        return _solution(problem, end, "dual")
    # A multiplier that is 0 to rounding, of a margin that turned out to be violated, has no way back in the dual, or a long one.
    rest = primal(
        problem,
        primal_start(problem, end.point.multipliers),
        max_iter=max_iter - end.n_iter,
        watch=_continued(watch, end),
    )
    # The dual's bound holds for any kernel.
    if rest.outcome is not Outcome.SOLVED and rest.certificate.bound < end.certificate.bound:
        rest = replace(rest, certificate=problem.certificate(rest.certificate.objective, end.certificate.bound))
    return _solution(problem, rest, "dual, primal", before=end)


def _as_printed(
    problem: PathProblem, start: LogDetSolution | None, tol: float, max_iter: int, watch: Watch
) -> LogDetSolution:
    """Solve by the paper's method; return the kernel of the multipliers w psi' at its last K, which are its own at the optimum."""
    form, multipliers = problem.matrix_form(), np.zeros(len(problem)) if start is None else start.multipliers
    end = paper_newton(
        form, form.prior if start is None else form.at(multipliers), lowest=problem.lowest, certify=problem.certificate,
        tol=tol, max_iter=max_iter, watch=watch,
    )  # fmt: skip
    # Far from the optimum, where a limit has ended it, these may give no kernel: then the start's is as good as any.
    point = problem.point(problem.forces(end.margins)) or problem.point(multipliers)
    problem.accept()
    last = problem.bound(point.margins)
    certificate = problem.certificate(point.objective, last if end.bound < last <= point.objective else end.bound)
    outcome = end.outcome
    if outcome is Outcome.STATIONARY and certificate.relative_gap <= tol:
        outcome = Outcome.SOLVED
    whole = NewtonEnd(point, certificate, outcome, end.n_iter, end.n_products, "paper")
    return _solution(problem, whole, "primal")


def _by_primal(
    problem: PathProblem,
    start: LogDetSolution | None,
    primal: Primal,
    after: After | None,
    max_iter: int,
    watch: Watch,
) -> LogDetSolution:
    """Solve by the primal; if that takes more steps than `after` has and is not near, by its method."""
    # Without a follower the primal has all iterations.
    most, follow = after or (max_iter, None)
    first = primal_start(problem, None if start is None else start.multipliers)
    end = primal(problem, first, max_iter=min(most, max_iter), watch=watch)
    # What ended by itself, or has no iterations left, is the solution.
    if end.outcome is not Outcome.ITERATION_LIMIT or follow is None or end.n_iter >= max_iter:
        return _solution(problem, end, "primal")
    left, stage = max_iter - end.n_iter, _continued(watch, end)
    # Near its end the primal continues by itself: what would follow starts far away.
    if end.certificate.relative_gap <= NEAR:
        rest = primal(problem, primal_start(problem, end.point.multipliers), max_iter=left, watch=stage)
        return _solution(problem, rest, "primal", before=end)
    return _joined(problem, end, follow(max_iter=left, watch=stage))


def _joined(problem: PathProblem, end: NewtonEnd, rest: LogDetSolution) -> LogDetSolution:
    """Return both's steps; of two unsolved, the lower objective with the higher bound."""
    solver = rest.solver if rest.solver == end.solver else "auto"
    n_iter, n_products = end.n_iter + rest.n_iter, end.n_products + rest.n_products
    rest = replace(rest, n_iter=n_iter, n_products=n_products, solver=solver, method=f"primal, {rest.method}")
    if rest.outcome is Outcome.SOLVED:
        return rest
    # The earlier method may have gone lower than the one that followed it.
    if end.certificate.objective < rest.certificate.objective:
        rest = replace(rest, multipliers=end.point.multipliers, margins=end.point.margins, certificate=end.certificate)
    bound = max(rest.certificate.bound, end.certificate.bound)
    return replace(rest, certificate=problem.certificate(rest.certificate.objective, bound))


def _by_central_path(
    problem: PathProblem, start: LogDetSolution | None, tol: float, *, max_iter: int, watch: Watch
) -> LogDetSolution:
    """Solve a metric's problem by Newton's method in W itself, along its central path."""
    end = central_path(problem, *central_start(problem, start), tol=tol, max_iter=max_iter, watch=watch)
    return _solution(problem, end, "central path")


def _by_narrowing(
    problem: PathProblem, start: LogDetSolution | None, solver: Solver, tol: float, max_iter: int, watch: Watch
) -> LogDetSolution:
    """Solve by ever narrower smooth losses, each on the dual."""
    smooth = partial(solve_logdet, solver=solver)
    narrowed = narrowing_losses(problem, smooth, start, tol=tol, max_iter=max_iter, watch=watch)
    return replace(
        narrowed.solution,
        outcome=narrowed.outcome,
        certificate=narrowed.certificate,
        n_iter=narrowed.n_iter,
        n_products=narrowed.n_products,
    )


def _continued(watch: Watch, end: NewtonEnd) -> Watch:
    """Return the watch of a method that follows on `end` and continues its counts."""
    return watch.stage(start={"iteration": end.n_iter, "products": end.n_products})


def _solution(problem: PathProblem, end: NewtonEnd, method: str, before: NewtonEnd | None = None) -> LogDetSolution:
    """Return the solution of an end; `before`: the end that it followed, whose steps are added."""
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
    """Solve at each gamma, in the order given, from the solution before or where the two before lead.

    Options as for `solve_logdet`. Each is a stage of the watch, "gamma" in its rows. A run that has ended leaves the rest of the path
    where it begins.
    """
    shown = Watch() if watch is None else watch
    found: list[LogDetSolution] = []
    for gamma in gammas:
        stage = shown.stage("path", gamma=float(gamma))
        found.append(solve_logdet(problem.with_gamma(gamma), **led_by(found), watch=stage, **options))
    return found


def led_by(found: Sequence[LogDetSolution]) -> dict[str, Any]:
    """Return `start` and `earlier` for the next solve of a path, from the solutions so far."""
    return dict(zip(("start", "earlier"), reversed(found), strict=False))
