"""A fit of problem (3): the block of K0 at the constraints' points, or a metric's rows there, solved and certified."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from dkl.errors import MemoryBudgetError
from dkl.estimators.common.metric_constraints import KernelDistances, MetricDistances, constraints_and_loss
from dkl.estimators.common.outcomes import warn_of
from dkl.estimators.common.prior_kernels import PriorKernel
from dkl.estimators.common.side_information import SideInformation
from dkl.estimators.common.size_guard import check_size
from dkl.estimators.logdet.settings import LogDetSettings
from dkl.problems.logdet import LogDetKernelProblem, LogDetMetricProblem
from dkl.problems.logdet_plan import DIRECT_BYTES
from dkl.resources import peak_rss
from dkl.solvers.logdet import LogDetSolution, solve_logdet, solve_logdet_path
from dkl.solvers.result import Outcome, Result, remedies
from dkl.solvers.watch import Watch

Matrix = NDArray[np.float64]
S = TypeVar("S", bound=LogDetSettings)
REMEDIES = remedies(
    iteration_limit="raise max_iter, loosen tol, or come to a large gamma by path() from smaller ones",
    stalled="rounding ends all progress: loosen tol, or lower gamma",
    numerical_error="a value stopped being finite: lower gamma, or scale the kernel",
)
SQUARES = 12
"""p x p arrays alive at the peak: K0, its inverse, the current kernel and the trial, products, and M; measured 10.2."""
CONSTRAINT_BYTES = 400
"""Of a constraint: its four entries in the incidence and its transpose, what these are sorted by, margins and multipliers."""
STEP_BYTES = 432
"""Of a direct step, times the square of its constraints: their Hessian, its factor, and what they are made of."""
FEWER = "label fewer rows, or give fewer triplets or pairs: the rows that they touch count, and no others"


@dataclass(frozen=True)
class Posed:
    """A problem that is ready to be solved at any gamma; points (p,): the rows that its constraints touch."""

    problem: Any
    points: NDArray[np.intp]
    settings: LogDetSettings

    def solved(self, gammas: Sequence[float], watch: Watch) -> tuple[list[LogDetSolution], Result]:
        """A solution for each gamma, in that order, each begun at the one before; warns where one did not converge."""
        start, kept = time.perf_counter(), self.settings
        options: dict[str, Any] = {"solver": kept.solver, "tol": kept.tol, "max_iter": kept.max_iter}
        if len(gammas) == 1:
            problem = self.problem.with_gamma(gammas[0])
            found = [solve_logdet(problem, watch=watch.stage("solve"), **options)]
        else:
            found = solve_logdet_path(self.problem, gammas, watch=watch, **options)
        result = _result(found, {"solve": time.perf_counter() - start}, watch)
        warn_of(result, stacklevel=3)
        return found, result


def pose_kernel(prior: PriorKernel, side: SideInformation, settings: Any, params: dict[str, Any] | None) -> Posed:
    """Problem (3) of a kernel. MemoryBudgetError where its block is too large, before it is made."""
    settings = _fitting(side, None, settings)
    constraints, loss = constraints_and_loss(side, settings.loss, params, KernelDistances(prior))
    points = constraints.points
    problem = LogDetKernelProblem(
        prior.within(points), constraints.on_points(), loss, settings.gamma,
        normalize_gamma=settings.normalize_gamma, n_labelled=side.n_labelled,
    )  # fmt: skip
    return Posed(problem, points, settings)


def pose_metric(rows: Matrix, W0: Matrix, side: SideInformation, settings: Any, params: dict[str, Any] | None) -> Posed:
    """Problem (3) of a Mahalanobis matrix (d, d) near W0, on rows (n, d)."""
    settings = _fitting(side, rows.shape[1], settings)
    constraints, loss = constraints_and_loss(side, settings.loss, params, MetricDistances(rows, W0))
    points = constraints.points
    # About the mean, which no distance sees, and rounding does.
    problem = LogDetMetricProblem(
        rows[points] - rows[points].mean(axis=0), constraints.on_points(), loss, settings.gamma,
        W0=W0, normalize_gamma=settings.normalize_gamma, n_labelled=side.n_labelled,
    )  # fmt: skip
    return Posed(problem, points, settings)


def _fitting(side: SideInformation, rank: int | None, settings: S) -> S:
    """The settings, with solver="pcg" in the place of "auto" where a direct step has no room; rank: d of a metric.

    MemoryBudgetError where the block of K0, or W and the rows, do not fit either way.
    """
    p, c = side.n_points, side.n_constraints
    square = p * p if rank is None else rank * (rank + p)
    items = {f"{c:,} constraints on {p:,} rows": 8 * SQUARES * square + CONSTRAINT_BYTES * c}
    if settings.solver == "pcg":
        check_size(items, settings.memory_limit, FEWER)
        return settings
    try:
        check_size({**items, "a direct step": min(DIRECT_BYTES, STEP_BYTES * c * c)}, settings.memory_limit, FEWER)
    except MemoryBudgetError:
        if settings.solver == "direct":
            raise
        return _fitting(side, rank, settings.changed(solver="pcg"))
    return settings


def _result(found: list[LogDetSolution], seconds: dict[str, float], watch: Watch) -> Result:
    outcome = next((one.outcome for one in found if one.outcome is not Outcome.SOLVED), Outcome.SOLVED)
    return Result(
        outcome,
        sum(one.n_iter for one in found),
        watch.history,
        seconds | {"total": sum(seconds.values())},
        peak_rss(),
        remedy=REMEDIES[outcome],
        proven=max(float(one.certificate.relative_gap) for one in found),
    )
