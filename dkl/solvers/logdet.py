"""Problem (3) of Li et al. 2009, solved: at one gamma, or along a path of them by warm starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, Self, get_args

import numpy as np
from numpy.typing import NDArray

from dkl.errors import InputError
from dkl.solvers.logdet_newton import Point, Problem, Stop, trust_region_newton
from dkl.solvers.logdet_step import Region, Solver
from dkl.solvers.result import Outcome
from dkl.solvers.watch import Watch

Vector = NDArray[np.float64]


class PathProblem(Problem, Protocol):
    """A problem that can be asked at another gamma."""

    def check(self) -> None:
        """InputError where F has no minimum."""

    def with_gamma(self, gamma: float) -> Self:
        """The same at another gamma."""


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
    """

    outcome: Outcome
    gamma: float
    multipliers: Vector = field(repr=False)
    margins: Vector = field(repr=False)
    certificate: Any
    n_iter: int
    n_products: int
    solver: str


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

    solver: how Newton's systems are solved: "pcg" (Table 1), "direct" (the active system by Cholesky, `logdet_direct`), or "auto": by
    PCG, and directly where PCG has done as many operations as that would take.
    Rows of the history: iteration, objective, gap, relative_gap, decrement (|K^1/2 G K^1/2|_F, which bounds Newton's), products.
    InputError where F has no minimum or is infinite at K0.
    """
    for name, given, known in (("solver", solver, Solver), ("stop", stop, Stop), ("region", region, Region)):
        if given not in get_args(known):
            raise InputError("unknown", where=name, got=repr(given), wanted=f"one of {', '.join(get_args(known))}")
    if not (tol >= 0 and max_iter >= 0):
        raise InputError("negative", where="tol or max_iter", got=(tol, max_iter), wanted="0 or more")
    problem.check()
    began = _start(problem, start)
    end = trust_region_newton(
        problem,
        began,
        solver=solver,
        tol=tol,
        stop=stop,
        region=region,
        max_iter=max_iter,
        watch=Watch() if watch is None else watch,
    )
    return LogDetSolution(
        end.outcome,
        problem.gamma,
        end.point.multipliers,
        end.point.margins,
        end.certificate,
        end.n_iter,
        end.n_products,
        end.solver,
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


def _start(problem: Problem, start: LogDetSolution | None) -> Point:
    """The better of K0 and the kernel of `start`, as the current point."""
    if start is not None and start.multipliers.shape != (len(problem),):
        raise InputError("of another problem", where="start", got=start.multipliers.shape, wanted=(len(problem),))
    nothing = np.zeros(len(problem))
    best = problem.point(nothing)
    problem.accept()
    if start is not None:
        warm = problem.point(start.multipliers)
        if warm is not None and (best is None or warm.objective < best.objective):
            problem.accept()
            best = warm
    if best is None or not np.isfinite(best.objective):
        raise InputError(
            "the loss is infinite at K0", where="constraints", wanted="finite losses", remedy="drop duplicates"
        )
    return best
