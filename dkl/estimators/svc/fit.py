"""The machines of a classifier: each solved, and what is told of them."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dkl.blocks.plan import Plan
from dkl.blocks.row_sources import RowSource
from dkl.blocks.session import Session
from dkl.errors import ConvergenceWarning, InputError
from dkl.estimators.svc.kernels import KernelPlace
from dkl.linalg.kernel_columns import Kernel
from dkl.problems.neighborhood_svm import KernelOperator, NeighborhoodSVM, Vector
from dkl.resources import peak_rss
from dkl.solvers.kernel_combination import CombinedKernel, ScaledKernel, combine
from dkl.solvers.result import Outcome, Result
from dkl.solvers.svm_gradient import Accelerated, SVMSolution
from dkl.solvers.svm_level import LARGEST, LevelMethod
from dkl.solvers.svm_pairs import TwoClasses, machines
from dkl.solvers.svm_refinement import Solve, refined
from dkl.solvers.svm_working_set import SMALLEST, WorkingSets

Callback = Callable[[dict[str, Any]], Any]


class Keeper(Protocol):
    """What is kept of a fit for another to go on from."""

    def begun(self, machine: int) -> Vector | None:
        """alpha (rows of the machine,) as it was kept last, or None."""

    def keep(self, machine: int, alpha: Vector, done: bool) -> None:
        """After each round of a machine's solver, and when it is solved."""


@dataclass(frozen=True)
class SVCSettings:
    solver: str
    multi_class: str
    tol: float
    max_iter: int
    dtype: str
    memory_limit: int | None
    work_dir: Any = None


@dataclass(frozen=True)
class FittedMachine:
    """Its rows, their coefficients y alpha, how they were come by, and how much of each kernel there is in K."""

    rows: NDArray[np.intp]
    coefficients: NDArray[np.float64]
    solution: SVMSolution
    shares: NDArray[np.float64]


@dataclass(frozen=True)
class Step:
    """One of the models asked for: the bounds times `factor`, rho, and the earlier step whose solution it begins at."""

    factor: float
    rho: float
    after: int | None = None


def fit_machines(
    source: RowSource,
    kernels: list[Kernel],
    labels: NDArray[np.intp],
    n_classes: int,
    bounds: NDArray[np.float64],
    steps: list[Step],
    settings: SVCSettings,
    session: Session,
    callbacks: list[Callback],
    keeper: Keeper | None = None,
) -> tuple[list[list[FittedMachine]], Plan, dict[str, float]]:
    """For each step all machines, in their order; the plan; seconds by stage."""
    pairs = [_weighted(pair, bounds) for pair in machines(labels, n_classes, settings.multi_class)]
    place = kernel_place(source, settings, session)
    plan = plan_machines(place, kernels, pairs, len(steps), settings)
    with ExitStack() as kept:
        start = time.perf_counter()
        whole = place.operators(kernels, plan, kept)
        seconds = {"kernel": time.perf_counter() - start}
        start = time.perf_counter()
        scales = np.ones(1) if len(kernels) == 1 else np.array([*map(_unit_trace, whole, kernels)])
        fit = _MachineFit(place, kernels, whole, scales, steps, settings, callbacks, keeper, len(pairs))
        by_machine = [fit.solve(number, pair, bounds[pair.rows]) for number, pair in enumerate(pairs)]
        seconds["solve"] = time.perf_counter() - start
    return [list(of_step) for of_step in zip(*by_machine, strict=True)], plan, seconds


def kernel_place(source: RowSource, settings: SVCSettings, session: Session) -> KernelPlace:
    """Where the kernels stand. The level method's bound is of all its cuts: none is told again, in double, of its last
    point, so all its work is in double."""
    dtype = "float64" if settings.solver == "level" else settings.dtype
    return KernelPlace(source, session, dtype, settings.memory_limit, settings.work_dir)


def plan_machines(
    place: KernelPlace, kernels: list[Kernel], pairs: list[TwoClasses], n_steps: int, settings: SVCSettings
) -> Plan:
    """K whole where many products are to come: of several machines, steps or kernels, or of a solver that takes all rows.

    MemoryBudgetError or DiskError where it can stand nowhere.
    """
    most, all_rows = max(len(pair.rows) for pair in pairs), place.source.n
    if settings.solver == "level" and most > LARGEST:
        raise InputError("too many rows", where='solver="level"', got=most, wanted=f"at most {LARGEST} a machine")
    in_parts = (
        settings.solver == "accelerated"
        and len(pairs) * n_steps * len(kernels) == 1
        and most > SMALLEST
        and not (kernels[0].is_precomputed or callable(kernels[0].name))
    )
    return place.plan(kernels, most, is_whole=not in_parts, may_use_disk=most == all_rows)


def _weighted(pair: TwoClasses, bounds: NDArray[np.float64]) -> TwoClasses:
    """Without the rows that have no weight."""
    kept = bounds[pair.rows] > 0
    y = pair.y[kept]
    if not ((y > 0).any() and (y < 0).any()):
        raise InputError(
            "all samples of a class have weight zero", where="sample_weight", wanted="two classes at least"
        )
    return TwoClasses(pair.rows[kept], y)


@dataclass(frozen=True)
class _MachineFit:
    """One machine at all steps, each begun at an earlier one's solution. `scales`: what makes kernels comparable."""

    place: KernelPlace
    kernels: list[Kernel]
    whole: list[Any]
    scales: Vector
    steps: list[Step]
    settings: SVCSettings
    callbacks: list[Callback]
    keeper: Keeper | None
    n_machines: int

    def solve(self, number: int, pair: TwoClasses, bounds: Vector) -> list[FittedMachine]:
        is_all = len(pair.rows) == self.place.source.n
        parts = [part if is_all else part.sub(pair.rows) for part in self.whole]
        exact = [self._in_double(kernel, part, pair) for kernel, part in zip(self.kernels, parts, strict=True)]
        first = None if self.keeper is None else self.keeper.begun(number)
        found: list[FittedMachine] = []
        for index, step in enumerate(self.steps):
            problem = NeighborhoodSVM(parts[0], pair.y, np.ascontiguousarray(step.factor * bounds), step.rho)
            start = first if step.after is None else found[step.after].solution.point.alpha
            stage = f"machine {number + 1} of {self.n_machines}"
            stage += f", model {index + 1}" if len(self.steps) > 1 else ""
            if len(parts) == 1:
                solution, shares = self._solve_one(problem, exact[0], number, stage, start), np.ones(1)
            else:
                solution, shares = self._solve_several(problem, parts, exact, stage)
            found.append(FittedMachine(pair.rows, pair.y * solution.point.alpha, solution, shares))
        if self.keeper is not None:
            self.keeper.keep(number, found[-1].solution.point.alpha, True)
        return found

    def _in_double(self, kernel: Kernel, part: Any, pair: TwoClasses) -> KernelOperator | None:
        """The kernel in double precision, for the gap to be told by, where it is not yet."""
        if part.dtype == np.float64:
            return None
        exact = self.place.anew(kernel, "float64")
        return exact.sub(pair.rows) if len(pair.rows) < self.place.source.n else exact

    def _solve_one(
        self, problem: NeighborhoodSVM, exact: KernelOperator | None, number: int, stage: str, start: Vector | None
    ) -> SVMSolution:
        tol = self.settings.tol
        if exact is None:
            return self._solver(number, stage, tol)(problem, start)
        # Half of the accuracy for the rounded kernel, so that there is room for what rounding adds.
        return refined(self._solver(number, stage, tol / 2), problem, exact, tol, start)

    def _solver(self, number: int, stage: str, tol: float) -> Solve:
        settings, watch = self.settings, self._watch(stage)
        kept = None if self.keeper is None else partial(self._keep, number)
        if settings.solver == "level":
            return LevelMethod(tol, settings.max_iter, watch, kept).solve
        plain = settings.solver == "gradient"
        method = Accelerated(tol, settings.max_iter, momentum=not plain, newton=not plain, watch=watch, kept=kept)
        return method.solve if plain else WorkingSets(method, SMALLEST).solve

    def _keep(self, number: int, alpha: Vector) -> None:
        assert self.keeper is not None
        self.keeper.keep(number, alpha, False)

    def _watch(self, stage: str) -> Callback | None:
        def watch(row: dict[str, Any]) -> None:
            for callback in self.callbacks:
                callback({**row, "stage": stage, "of": self.settings.max_iter})

        return watch if self.callbacks else None

    def _solve_several(
        self, problem: NeighborhoodSVM, parts: list[Any], exact: list[KernelOperator | None], stage: str
    ) -> tuple[SVMSolution, NDArray[np.float64]]:
        """(the machine, with the gap of the whole, the shares of the kernels as they were given)."""
        settings = self.settings
        plain = settings.solver == "gradient"
        solver = Accelerated(
            settings.tol, settings.max_iter, momentum=not plain, newton=not plain, watch=self._watch(stage)
        )
        scaled = [ScaledKernel(part, scale) for part, scale in zip(parts, self.scales, strict=True)]
        found = combine(problem, scaled, solver)
        shares, point, gap, outcome = found.theta * self.scales, found.solution.point, found.gap, found.outcome
        truth = [kernel for kernel in exact if kernel is not None]
        if truth:
            in_double = replace(problem, kernel=CombinedKernel(truth, shares)).at(point.alpha)
            point, gap = in_double, found.gap - point.gap + in_double.gap
        point = replace(point, gap=gap)
        if outcome.converged and point.relative_gap > settings.tol:
            outcome = Outcome.STALLED
        products = sum(int(row["products"]) for row in found.history) * len(parts)
        solution = SVMSolution(point, len(found.history), products, outcome, found.history)
        return solution, shares


def _unit_trace(part: Any, kernel: Kernel) -> float:
    """What the kernel is to be multiplied by for a mean of 1 on its diagonal."""
    mean = float(part.diagonal().mean())
    if not mean > 0:
        raise InputError("the kernel is zero on all rows", where=kernel.where, mend="choose another kernel")
    return 1.0 / mean


def outcome_of(fitted: list[FittedMachine]) -> Outcome:
    """The first outcome that is not convergence, if any."""
    outcomes = [machine.solution.outcome for machine in fitted]
    return next((outcome for outcome in outcomes if not outcome.converged), Outcome.SOLVED)


def warn_of(fitted: list[FittedMachine]) -> None:
    """A ConvergenceWarning where a machine did not converge."""
    worst = outcome_of(fitted)
    if not worst.converged:
        text = f"not converged ({worst.value}): raise max_iter or tol, or use dtype='float64' if it is not"
        warnings.warn(text, ConvergenceWarning, stacklevel=3)


def result_of(fitted: list[FittedMachine], seconds: dict[str, float], plan: Plan) -> Result:
    """One result for all machines."""
    solutions = [machine.solution for machine in fitted]
    history = [{**row, "machine": k} for k, solution in enumerate(solutions) for row in solution.history]
    return Result(
        outcome_of(fitted),
        sum(solution.n_iter for solution in solutions),
        history,
        {**seconds, "total": sum(seconds.values())},
        peak_rss(),
        plan=plan.as_dict(),
    )
