"""Fit of the LogDet problem of K0's block, or a metric's rows, at the constraints' points."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from dkl.blocks.memory_plan import check_size
from dkl.blocks.workers.dense_work import dense_places
from dkl.errors import InputError, MemoryBudgetError
from dkl.estimators.base.mahalanobis import row_spread
from dkl.estimators.base.metric_constraints import KernelDistances, MetricDistances, constraints_and_loss
from dkl.estimators.base.prior_kernels import GraphKernel, PriorKernel
from dkl.estimators.base.progress import solve_in_place, warn_of
from dkl.estimators.base.side_information import SideInformation
from dkl.estimators.logdet.plan import FEWER, LogDetSizes, metric_items, process_bytes
from dkl.estimators.logdet.settings import LogDetMetricSettings, LogDetSettings
from dkl.linalg.eigen.principal_coordinates import leading_components
from dkl.linalg.rows.column_moments import middle_row
from dkl.problems.logdet.constraints import ConstraintSet
from dkl.problems.logdet.problem import LogDetKernelProblem, LogDetMetricProblem
from dkl.resources import peak_rss
from dkl.solvers.logdet.solve import LogDetSolution, led_by, solve_logdet
from dkl.solvers.watch import Outcome, Result, Watch, remedies

if TYPE_CHECKING:
    from dkl.blocks.session import Session
    from dkl.blocks.workers.dense_work import DensePlace, DenseWork
    from dkl.problems.logdet.losses import Loss

Matrix = NDArray[np.float64]
REMEDIES = remedies(
    iteration_limit="raise max_iter, loosen tol, or come to a large gamma by path() from smaller ones",
    stationary='the gradient is at tol, which proves nothing: lower tol, or take solver="auto"',
    stalled="rounding ends all progress: loosen tol, lower gamma, or scale the rows",
    numerical_error="a value stopped being finite: lower gamma, or scale the kernel",
)


@dataclass(frozen=True)
class GammaProblem:
    """A problem that is ready to be solved at any gamma; points (p,): the rows that its constraints touch.

    base: K0 (p, p) at the points, or a metric's rows (p, d) about their mean; W0 (d, d): of a metric. Sent to another process it
    is made ready there: the problem itself is not sent. spread (r, d): of all rows (`row_spread`), of a metric that is cut to
    `n_components`.
    """

    base: Matrix
    constraints: ConstraintSet
    loss: Loss
    n_labelled: int | None
    points: NDArray[np.intp]
    settings: Any
    W0: Matrix | None = None
    spread: Matrix | None = None

    @cached_property
    def problem(self) -> Any:
        """Return the problem at a gamma that plays no part: `with_gamma` has the others."""
        base = np.ascontiguousarray(self.base)
        given: dict[str, Any] = {"normalize_gamma": self.settings.normalize_gamma, "n_labelled": self.n_labelled}
        if self.W0 is None:
            return LogDetKernelProblem(base, self.constraints, self.loss, 1.0, **given)
        return LogDetMetricProblem(base, self.constraints, self.loss, 1.0, W0=self.W0, **given)

    def solve(self, gamma: float, before: Sequence[LogDetSolution], watch: Watch) -> LogDetSolution:
        """Solve at one gamma, from a start that at most the last two solutions before predict.

        The certificate is of the rounded solution that is returned; where its gap exceeds `tol`, the outcome is STALLED. K0 itself is
        returned if it is better: a rounded kernel need not be positive definite, and its objective is infinite then.
        """
        kept = self.settings
        options: dict[str, Any] = {"solver": kept.solver, "tol": kept.tol, "max_iter": kept.max_iter}
        problem = self.problem.with_gamma(gamma)
        found = solve_logdet(problem, **led_by(before), watch=watch, **options)
        with np.errstate(over="ignore", invalid="ignore"):  # the certificate says so
            certificate = problem.handed_out(found.multipliers, found.certificate.bound)
            if found.outcome is not Outcome.SOLVED or not np.isfinite(certificate.objective):
                # What is handed out unsolved is no worse than K0, whose multipliers are 0.
                prior = problem.point(np.zeros(len(problem)))
                if prior is not None and not certificate.objective <= prior.objective:
                    found = replace(found, multipliers=prior.multipliers, margins=prior.margins)
                    certificate = problem.handed_out(found.multipliers, certificate.bound)
        is_rounded = found.outcome is Outcome.SOLVED and not certificate.relative_gap <= kept.tol
        return replace(found, certificate=certificate, outcome=Outcome.STALLED if is_rounded else found.outcome)

    def learned(self, solution: LogDetSolution) -> Any:
        """Return the kernel, or the metric, of a solution."""
        return self.problem.with_gamma(solution.gamma).learned(solution.multipliers)

    def cut(self, components: Matrix) -> Matrix:
        """Return the components of a metric that are handed out, (k, d) of (d, d): all, or `n_components` of them."""
        return (
            components
            if self.spread is None
            else leading_components(components, self.spread, self.settings.n_components)
        )


def solved(
    work: DenseWork, gammas: Sequence[float], watch: Watch, begin: Sequence[LogDetSolution] = ()
) -> tuple[list[LogDetSolution], Result]:
    """Solve a `GammaProblem` in its place, for each gamma in order, each from a start that those before predict.

    begin: solutions that lead to the first. Warns if not converged.
    """
    start, found = time.perf_counter(), list[LogDetSolution]()
    for gamma in gammas:
        # The last two: a secant through their multipliers predicts the next.
        before = found[-2:] or begin
        found.append(solve_in_place(work, stage_of(watch, gammas, gamma), GammaProblem.solve, gamma, before))
    result = result_of(found, work.data.settings.tol, {"solve": time.perf_counter() - start}, watch)
    warn_of(result, stacklevel=3)
    return found, result.placed(work.place.text)


def learned_matrix(posed: GammaProblem, solution: LogDetSolution) -> Matrix:
    """Return M of a solution, wherever this runs."""
    M: Matrix = posed.learned(solution).M
    return M


def stage_of(watch: Watch, gammas: Sequence[float], gamma: float) -> Watch:
    """Return the watch of one solve, alone or on a path."""
    return watch.stage("solve") if len(gammas) == 1 else watch.stage("path", gamma=float(gamma))


def pose_kernel(
    prior: PriorKernel, side: SideInformation, settings: LogDetSettings, params: dict[str, object] | None
) -> GammaProblem:
    """Pose the LogDet problem of a kernel; its memory must have been checked by `plan_kernel`."""
    constraints, loss = constraints_and_loss(side, settings.loss, params, KernelDistances(prior))
    points = constraints.points
    if isinstance(prior, GraphKernel):
        prior.warn_of_untouched(points)
    return GammaProblem(prior.within(points), constraints.on_points(), loss, side.n_labelled, points, settings)


def pose_metric(
    rows: Matrix, W0: Matrix, side: SideInformation, settings: LogDetMetricSettings, params: dict[str, object] | None
) -> GammaProblem:
    """Pose the LogDet problem of a metric (d, d) near W0, on rows (n, d); its memory must have been checked by `place_metric`."""
    constraints, loss = constraints_and_loss(side, settings.loss, params, MetricDistances(rows, W0))
    points = constraints.points
    # About the mean, which no distance sees, and rounding does: that of differences to a row, which are exact.
    base = rows[points] - middle_row(rows[points])
    base -= base.mean(axis=0)
    spread = None if settings.n_components is None else row_spread(rows)
    return GammaProblem(base, constraints.on_points(), loss, side.n_labelled, points, settings, W0, spread)


def place_metric(sizes: LogDetSizes, settings: LogDetSettings, session: Session) -> tuple[str, DensePlace]:
    """Return (solver, place) of a metric.

    "pcg" is in the place of "auto" where a direct step has no room. Raises MemoryBudgetError where nothing fits.
    """
    methods = ["auto", "pcg"] if settings.solver == "auto" else [settings.solver]
    items = {solver: metric_items(sizes, solver) for solver in methods}
    needed = {solver: process_bytes(session) + sum(found.values()) for solver, found in items.items()}
    for solver, place in dense_places(session, needed, settings.memory_limit):
        if place.worker is None:
            try:
                check_size(items[solver], settings.memory_limit, FEWER)
            except MemoryBudgetError:
                if solver != methods[-1]:
                    continue
                raise
        # Matrices are of d rows, or of active constraints.
        return solver, place.for_rows(sizes.d)
    raise AssertionError("the last place fits, or is refused")


def result_of(
    found: Sequence[LogDetSolution],
    tol: float,
    seconds: dict[str, float],
    watch: Watch,
    plan: dict[str, object] | None = None,
) -> Result:
    """Return the result of a path, solved to `tol`: the first outcome not SOLVED, the largest gap left."""
    outcome = next((one.outcome for one in found if one.outcome is not Outcome.SOLVED), Outcome.SOLVED)
    return Result(
        outcome,
        sum(one.n_iter for one in found),
        watch.history,
        seconds | {"total": watch.seconds},
        peak_rss(),
        plan=plan or {},
        remedy=REMEDIES[outcome],
        # NumPy's, as `max` may pass over NaN.
        proven=float(np.max([one.certificate.relative_gap for one in found])),
        asked=tol,
    )


# Models along a path of gamma, the central path of a barrier method (Li et al. 2009, section 4.3).

PAPER = 2.0 ** np.arange(-12, 17, 4)
"""The range of the paper's table 3, by its multiplier 16."""


@dataclass(frozen=True)
class LogDetPath:
    """The solutions at k values of gamma, in the order given.

    objectives, gaps (k,): of (3), gaps relative; n_iter, n_products (k,): Newton steps and Hessian products; methods, solvers (k,):
    as `method_` and `solver_`; result: outcome, history and seconds of all of it. `model(i)` is the fitted learner of gammas[i].
    """

    gammas: NDArray[np.float64]
    objectives: NDArray[np.float64]
    gaps: NDArray[np.float64]
    n_iter: NDArray[np.int64]
    n_products: NDArray[np.int64]
    methods: tuple[str, ...]
    solvers: tuple[str, ...]
    result: Result = field(repr=False)
    _make: Callable[[int], Any] = field(repr=False)

    @classmethod
    def of(
        cls, gammas: NDArray[np.float64], found: Sequence[LogDetSolution], result: Result, make: Callable[[int], object]
    ) -> Self:
        """Build the path from its solutions; `make(i)` makes the learner of solution i."""
        return cls(
            gammas,
            np.array([one.certificate.objective for one in found]),
            np.array([one.certificate.relative_gap for one in found]),
            np.array([one.n_iter for one in found]),
            np.array([one.n_products for one in found]),
            tuple(one.method for one in found),
            tuple(one.solver for one in found),
            result,
            make,
        )

    def model(self, i: int) -> Any:
        """Return the fitted learner of gammas[i]."""
        return self._make(range(len(self.gammas))[i])


def values_of_gamma(gammas: object) -> NDArray[np.float64]:
    """Return the given values (k,), or the paper's; InputError unless they are positive numbers."""
    if gammas is None:
        return np.array(PAPER)
    try:
        found = np.atleast_1d(np.asarray(gammas, np.float64))
    except (TypeError, ValueError, OverflowError):
        found = np.empty(0)
    if found.ndim != 1 or not found.size or not (np.isfinite(found).all() and (found > 0).all()):
        got = repr(gammas)[:80]
        raise InputError("not a list of values", where="gammas", got=got, wanted="finite numbers > 0")
    return found
