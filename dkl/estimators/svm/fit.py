"""The machines of a classifier: each solved, and their result."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dkl.blocks.memory_plan import Plan, note_idle_workers
from dkl.blocks.session import Session
from dkl.errors import InputError
from dkl.estimators.base.validation import refuse_large_bounds
from dkl.estimators.svm.checkpoint import Cached, MachineCheckpoint, MachineCheckpointer, MachineResult
from dkl.estimators.svm.decisions import Training
from dkl.estimators.svm.plan import KernelPlace, cached_columns, plan_machines, restore_cache
from dkl.estimators.svm.settings import SVCSettings
from dkl.linalg.kernels.kernel_columns import Kernel
from dkl.linalg.kernels.kernel_operators import KernelOperator, Vector
from dkl.problems.svm.problem import NeighborhoodSVM, rho_of
from dkl.resources import one_blas_thread, peak_rss
from dkl.solvers.svm import interface
from dkl.solvers.svm.gradient import Accelerated
from dkl.solvers.svm.interface import RefinedState, Solve, SolverState, StateCallback, SVMSolution, TwoClasses, machines
from dkl.solvers.svm.kernel_combination import ScaledKernel, combine, point_of_sum
from dkl.solvers.svm.level import LevelMethod
from dkl.solvers.svm.refinement import refined
from dkl.solvers.svm.working_set import MAX_ROUNDS, WorkingSets
from dkl.solvers.watch import Outcome, Result, Watch, remedies

REMEDIES = remedies(
    iteration_limit="raise max_iter or tol, or use solver='accelerated' if it is not",
    stationary='the paper\'s rule is met, which proves nothing: lower tol, or take stopping="gap"',
    stalled="rounding ends all progress: raise tol, scale the rows, or use dtype='float64' if it is not",
    numerical_error="a value is not finite: lower C, or scale the features",
)
ENDED = (Outcome.STOPPED, Outcome.TIME_LIMIT)
"""Outcomes by which the watch ends all machines; those not started are left at zero."""


@dataclass(frozen=True)
class FittedMachine:
    """Solved machine: its rows, their coefficients y alpha, the solution, each kernel's share, and rho."""

    rows: NDArray[np.intp]
    coefficients: NDArray[np.float64]
    solution: SVMSolution
    shares: NDArray[np.float64]
    rho: float


@dataclass(frozen=True)
class Step:
    """Step of a fit: one of the requested models.

    The bounds times `factor`; rho, a number or "scale"; and the earlier step whose solution it starts at.
    """

    factor: float
    rho: float | str
    after: int | None = None


@one_blas_thread()  # no system of a machine is larger than some thousand rows; and the same bits on any machine
def fit_machines(
    training: Training,
    steps: list[Step],
    settings: SVCSettings,
    session: Session,
    watch: Watch,
    checkpointer: MachineCheckpointer | None = None,
    then: Callable[[list[Any], list[FittedMachine]], None] | None = None,
) -> tuple[list[list[FittedMachine]], Plan, dict[str, float]]:
    """Fit all machines, in order, for each step, whose factor scales the bounds; return (machines by step, plan, seconds by stage).

    then: called with the kernel matrices and the machines of the last step, before the matrices are released.

    Each machine is a stage of the watch, whose rows say which one: `machine`.
    """
    kernels, bounds, n_classes = training.kernels, training.bounds, len(training.classes)
    # Rows of weight 0 have the bound 0 and would only cost kernel columns.
    pairs = [_weighted(pair, bounds) for pair in machines(training.numbers, n_classes, settings.multi_class)]
    refuse_large_bounds(bounds, max(step.factor for step in steps))
    place = KernelPlace.of(training.source, settings, session, n_classes)
    plan = plan_machines(place, kernels, pairs, len(steps), settings)
    # Said before the matrices are made, which takes the time.
    note_idle_workers(plan)
    with ExitStack() as kept:
        start = time.perf_counter()
        whole = place.operators(kernels, plan, kept)
        seconds = {"kernel": time.perf_counter() - start}
        start = time.perf_counter()
        # Kernels of different scale have no comparable shares.
        scales = np.ones(1) if len(kernels) == 1 else _unit_traces(place, whole, kernels)
        fit = _MachineFit(place, kernels, whole, scales, steps, settings, watch, checkpointer, len(pairs))
        by_machine = [fit.solve(number, pair, bounds[pair.rows]) for number, pair in enumerate(pairs)]
        seconds["solve"] = time.perf_counter() - start
        # Called while the matrices are there: the quality needs them once more.
        if then is not None:
            then(whole, [of_machine[-1] for of_machine in by_machine])
    return [list(of_step) for of_step in zip(*by_machine, strict=True)], plan, seconds


def _weighted(pair: TwoClasses, bounds: NDArray[np.float64]) -> TwoClasses:
    """Return the machine's rows without those of no weight."""
    kept = bounds[pair.rows] > 0
    y = pair.y[kept]
    if not ((y > 0).any() and (y < 0).any()):
        raise InputError(
            "all samples of a class have weight zero", where="sample_weight", wanted="two classes at least"
        )
    return replace(pair, rows=pair.rows[kept], y=y)


@dataclass(frozen=True)
class _ResumePoint:
    """Start of a machine: alpha, or a state of its solver with cached columns; and the kernels that it multiplies by."""

    number: int
    start: Vector | None
    state: SolverState | None
    cached: Cached
    kernels: list[Any]


@dataclass(frozen=True)
class _MachineFit:
    """Fit of one machine at all steps, each from an earlier solution; `scales` make kernels comparable."""

    place: KernelPlace
    kernels: list[Kernel]
    whole: list[Any]
    scales: Vector
    steps: list[Step]
    settings: SVCSettings
    watch: Watch
    checkpointer: MachineCheckpointer | None
    n_machines: int

    def solve(self, number: int, pair: TwoClasses, bounds: Vector) -> list[FittedMachine]:
        """Solve the machine at each step."""
        machine = self._checkpoint(number, len(pair.rows))
        if machine.result is not None and machine.result.is_final(self.settings.max_iter):
            return [self._restored(number, pair, bounds, machine.result)]
        # All rows: the kernel itself; else the part of a machine's rows, cut or recomputed.
        is_all = len(pair.rows) == self.place.source.n
        parts = [part if is_all else part.sub(pair.rows) for part in self.whole]
        # The gap is computed by the kernel in double precision, whatever the solver multiplied by.
        exact = [self._in_double(kernel, part, pair) for kernel, part in zip(self.kernels, parts, strict=True)]
        first = None if machine.result is None else machine.result.point.alpha
        found: list[FittedMachine] = []
        for index, step in enumerate(self.steps):
            C = np.ascontiguousarray(step.factor * bounds)
            problem = NeighborhoodSVM(parts[0], pair.y, C, rho_of(step.rho, C, pair.y))
            start = first if step.after is None else found[step.after].solution.point.alpha
            watch = self._stage(number, index)
            if len(parts) == 1:
                resume = _ResumePoint(number, start, machine.state, machine.cached, [parts[0], exact[0]])
                watch.resume(machine.history)
                solution, shares = self._solve_one(problem, exact[0], watch, resume), np.ones(1)
            else:
                solution, shares = self._solve_several(problem, parts, exact, watch)
            # Rounding of the products counts in the gap, so that no gap is proven that is not there.
            solution = _with_rounding(problem, solution, parts, shares, self.settings.tol)
            found.append(FittedMachine(pair.rows, pair.y * solution.point.alpha, solution, shares, problem.rho))
        # One that the watch broke off may have come to a gap that is small enough at another point than it would have.
        if self.checkpointer is not None and self.watch.outcome is None:
            cached = cached_columns(self.whole) if is_all else []
            result = MachineResult.of(solution, shares, self.settings.max_iter, cached)
            self.checkpointer.on_result(number, len(pair.rows), result)
        return found

    def _checkpoint(self, number: int, n: int) -> MachineCheckpoint:
        """Return the checkpoint that a machine of `n` rows starts from: the stored one, if valid, else an empty one."""
        machine = None
        if self.checkpointer is not None:
            # States of a refined machine are of another kind than those of a plain one.
            is_refined = len(self.whole) == 1 and self.whole[0].dtype != np.float64
            machine = self.checkpointer.resume(number, n, self.settings.solver, is_refined=is_refined)
        result = None if machine is None else machine.result
        if result is not None and result.max_iter < MAX_ROUNDS <= self.settings.max_iter:
            machine = None  # its start differs from that of a machine that may take as many steps
        return machine or MachineCheckpoint(n)

    def _restored(self, number: int, pair: TwoClasses, bounds: Vector, result: MachineResult) -> FittedMachine:
        """Restore a machine that ended in an earlier session."""
        restore_cache(self.whole, result.cached)
        watch = self._stage(number, 0)
        watch.resume(result.history)
        solution = result.solution(watch.history)
        step = self.steps[0]
        rho = rho_of(step.rho, step.factor * bounds, pair.y)
        return FittedMachine(pair.rows, pair.y * solution.point.alpha, solution, result.shares, rho)

    def _stage(self, number: int, index: int) -> Watch:
        """Return the watch of a machine at a step; share: of all of them those before it."""
        count = len(self.steps)
        name = f"machine {number + 1} of {self.n_machines}" + (f", model {index + 1}" if count > 1 else "")
        share = (number * count + index) / (self.n_machines * count)
        return self.watch.stage(name, machine=number, max_iter=self.settings.max_iter, share=share)

    def _in_double(self, kernel: Kernel, part: Any, pair: TwoClasses) -> KernelOperator | None:
        """Return the kernel in double precision to compute the gap by; None if it already is."""
        if part.dtype == np.float64:
            return None
        exact = self.place.recomputed(kernel, "float64")
        return exact.sub(pair.rows) if len(pair.rows) < self.place.source.n else exact

    def _solve_one(
        self, problem: NeighborhoodSVM, exact: KernelOperator | None, watch: Watch, resume: _ResumePoint
    ) -> SVMSolution:
        tol, start, state = self.settings.tol, resume.start, resume.state
        on_state: StateCallback | None = None
        if self.checkpointer is not None:
            on_state = partial(self._on_state, resume, problem.n)
        if state is not None:
            restore_cache(resume.kernels, resume.cached)
        if exact is None:
            return self._solver(tol)(problem, start, watch=watch, on_state=on_state, resume_from=state)
        assert state is None or isinstance(state, RefinedState)
        # Half of the accuracy for the rounded kernel, so that there is room for what rounding adds.
        solver = self._solver(tol / 2)
        return refined(solver, problem, exact, tol, start, watch=watch, on_state=on_state, resume_from=state)

    def _solver(self, tol: float) -> Solve:
        settings, by_paper = self.settings, self.settings.stopping == "paper"
        if settings.solver == "level":
            return LevelMethod(tol, settings.max_iter, settings.tau, by_paper).solve
        plain = settings.solver == "gradient"
        method = Accelerated(tol, settings.max_iter, momentum=not plain, newton=not plain, by_change=by_paper)
        return method.solve if plain else WorkingSets(method, interface.SMALLEST_IN_PARTS).solve

    def _on_state(self, resume: _ResumePoint, n: int, state: SolverState) -> None:
        assert self.checkpointer is not None
        if self.watch.outcome is None:  # a stopped machine resumes from its last check, later ones are not started
            self.checkpointer.on_state(resume.number, n, state, cached_columns(resume.kernels))

    def _solve_several(
        self, problem: NeighborhoodSVM, parts: list[Any], exact: list[KernelOperator | None], watch: Watch
    ) -> tuple[SVMSolution, NDArray[np.float64]]:
        """Solve a machine of several kernels; return it, with the gap of the whole, and the kernels' shares."""
        settings = self.settings
        plain = settings.solver == "gradient"
        truth = [kernel for kernel in exact if kernel is not None]
        # Half of the accuracy for rounded kernels, so that there is room for what rounding adds.
        tol = settings.tol / 2 if truth else settings.tol
        solver = Accelerated(tol, settings.max_iter, momentum=not plain, newton=not plain)
        scaled = [ScaledKernel(part, scale) for part, scale in zip(parts, self.scales, strict=True)]
        found = combine(problem, scaled, solver, watch=watch)
        shares, point, gap, outcome = found.theta * self.scales, found.solution.point, found.gap, found.outcome
        if truth:
            in_double = [ScaledKernel(part, scale) for part, scale in zip(truth, self.scales, strict=True)]
            point, gap = point_of_sum(problem, in_double, found.theta, point.alpha)
        point = replace(point, gap=gap)
        # Solved for the rounded kernels, not for the exact ones: rounding is what is left.
        if outcome.converged and point.relative_gap > settings.tol:
            outcome = Outcome.STALLED
        solution = SVMSolution(point, found.n_tried, found.products * len(parts), outcome, found.history)
        return solution, shares


def _with_rounding(
    problem: NeighborhoodSVM, solution: SVMSolution, parts: list[Any], shares: Vector, tol: float
) -> SVMSolution:
    """Return the solution with a gap in which rounding is counted; stalled if that exceeds `tol`."""
    diagonal = sum(share * part.diagonal() for share, part in zip(shares, parts, strict=True))
    point = problem.with_rounding(solution.point, np.asarray(diagonal, np.float64))
    is_rounded = solution.outcome.converged and not point.relative_gap <= tol
    return replace(solution, point=point, outcome=Outcome.STALLED if is_rounded else solution.outcome)


def _unit_traces(place: KernelPlace, whole: list[Any], kernels: list[Kernel]) -> Vector:
    """Return each kernel's factor for a mean of 1 on its diagonal, computed in double: gaps compare by it."""
    exact = [
        part if part.dtype == np.float64 else place.recomputed(kernel, "float64")
        for part, kernel in zip(whole, kernels, strict=True)
    ]
    return np.array([*map(_unit_trace, exact, kernels)])


def _unit_trace(part: Any, kernel: Kernel) -> float:
    """Return the factor by which the kernel has a mean of 1 on its diagonal."""
    mean = float(part.diagonal().mean())
    if not mean > 0:
        raise InputError("the kernel is zero on all rows", where=kernel.where, remedy="choose another kernel")
    return 1.0 / mean


def outcome_of(fitted: list[FittedMachine]) -> Outcome:
    """Return the first outcome that is not convergence, if any."""
    outcomes = [machine.solution.outcome for machine in fitted]
    return next((outcome for outcome in outcomes if not outcome.converged), Outcome.SOLVED)


def result_of(
    fitted: list[FittedMachine], tol: float, seconds: dict[str, float], total: float, plan: Plan
) -> Result:  # fmt: skip
    """Return one result for all machines, solved to `tol`; total: the watch's seconds, stages included."""
    solutions, outcome = [machine.solution for machine in fitted], outcome_of(fitted)
    return Result(
        outcome,
        sum(solution.n_iter for solution in solutions),
        [row for solution in solutions for row in solution.history],
        {**seconds, "total": total},
        peak_rss(),
        plan=plan.as_dict(),
        remedy=REMEDIES[outcome],
        proven=float(np.max([solution.point.relative_gap for solution in solutions])),
        asked=tol,
    )
