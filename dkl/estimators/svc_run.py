"""The machines of a classifier: where the kernel stands, each solved, and what is told of them."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dkl.blocks.kernel_operator import ASYMMETRY, MemoryKernel, RecomputedKernel
from dkl.blocks.kernel_plan import plan_kernel
from dkl.blocks.place import Place
from dkl.blocks.plan import Plan
from dkl.blocks.row_blocks import RowBlocks, machine_memory
from dkl.blocks.row_sources import RowSource
from dkl.blocks.session import Session
from dkl.errors import ConvergenceWarning, InputError
from dkl.linalg.extreme_eigenvalues import lowest_eigenvalue
from dkl.linalg.kernel_columns import Kernel
from dkl.problems.column_pass import check_rows
from dkl.problems.neighborhood_svm import NeighborhoodSVM
from dkl.resources import peak_rss
from dkl.solvers.kernel_combination import CombinedKernel, ScaledKernel, combine
from dkl.solvers.result import Outcome, Result
from dkl.solvers.svm_gradient import Accelerated, SVMSolution
from dkl.solvers.svm_level import LARGEST, LevelMethod
from dkl.solvers.svm_pairs import TwoClasses, machines

MEMORY_SHARE = 0.75
INDEFINITE = 1e-8
"""Of the largest diagonal entry times n: what rounding may take an eigenvalue below zero."""

Callback = Callable[[dict[str, Any]], Any]


@dataclass(frozen=True)
class SVCSettings:
    solver: str
    multi_class: str
    tol: float
    max_iter: int
    dtype: str
    memory_limit: int | None


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
) -> tuple[list[list[FittedMachine]], Plan, dict[str, float]]:
    """For each step all machines, in their order; the plan; seconds by stage."""
    pairs = [_weighted(pair, bounds) for pair in machines(labels, n_classes, settings.multi_class)]
    most = max(len(pair.rows) for pair in pairs)
    if settings.solver == "level" and most > LARGEST:
        raise InputError("too many rows", where='solver="level"', got=most, wanted=f"at most {LARGEST} a machine")
    plan = _plan(source, pairs, settings, session, len(kernels))
    start = time.perf_counter()
    whole = [_operator(source, kernel, plan, settings, session, len(kernels) > 1) for kernel in kernels]
    # Several kernels are weighed against each other with equal traces; a single one is left as it is.
    scales = (
        [1.0] if len(kernels) == 1 else [_unit_trace(part, kernel) for part, kernel in zip(whole, kernels, strict=True)]
    )
    seconds = {"kernel": time.perf_counter() - start}
    start = time.perf_counter()
    by_machine: list[list[FittedMachine]] = []
    for number, pair in enumerate(pairs):
        parts = [part if len(pair.rows) == source.n else part.sub(pair.rows) for part in whole]
        exact = None
        if settings.dtype == "float32":
            exact = [_in_double(kernel, source, pair, session, settings) for kernel in kernels]
        found: list[FittedMachine] = []
        for index, step in enumerate(steps):
            box = np.ascontiguousarray(step.factor * bounds[pair.rows])
            problem = NeighborhoodSVM(parts[0], pair.y, box, step.rho)
            stage = f"machine {number + 1} of {len(pairs)}" + (f", model {index + 1}" if len(steps) > 1 else "")
            first = None if step.after is None else found[step.after].solution.point.alpha
            solver = _solver(settings, callbacks, stage)
            if len(kernels) == 1:
                solution, shares = solver.solve(problem, first), np.ones(1)
            else:
                solution, shares = _solve_combined(problem, parts, scales, solver)
            if exact is not None:
                in_double = exact[0] if len(exact) == 1 else CombinedKernel(exact, shares)
                solution = replace(solution, point=replace(problem, kernel=in_double).at(solution.point.alpha))
            found.append(FittedMachine(pair.rows, pair.y * solution.point.alpha, solution, shares))
        by_machine.append(found)
    seconds["solve"] = time.perf_counter() - start
    return [list(of_step) for of_step in zip(*by_machine, strict=True)], plan, seconds


def _operator(
    source: RowSource, kernel: Kernel, plan: Plan, settings: SVCSettings, session: Session, checked: bool
) -> Any:
    if not (source.is_in_memory and plan.placement == "memory"):  # those in memory are checked already
        RowBlocks(source, session, settings.memory_limit).map(check_rows)
    operator: Any
    if plan.placement == "memory":
        operator = MemoryKernel.of(kernel, source, settings.dtype, session.threads)
    else:
        operator = RecomputedKernel(kernel, source, session, settings.memory_limit, settings.dtype)
        if kernel.is_precomputed:
            check_symmetric_products(operator)
    if kernel.is_precomputed or checked:
        check_psd(operator, kernel.where if checked else "X")
    return operator


def check_symmetric_products(operator: Any) -> None:
    """InputError where u'Kv and v'Ku differ for random u and v, for a matrix that is read by rows alone."""
    u, v = np.random.default_rng(0).standard_normal((2, operator.n))
    Ku, Kv = operator.times(u), operator.times(v)
    one, other = float(u @ Kv), float(v @ Ku)
    if abs(one - other) > ASYMMETRY * float(np.linalg.norm(u) * np.linalg.norm(Kv)):
        got = f"u'Xv = {one:.9g} and v'Xu = {other:.9g} for random u and v"
        raise InputError("not symmetric", where="X", got=got, wanted="a kernel matrix", mend="pass (X + X.T) / 2")


def _weighted(pair: TwoClasses, bounds: NDArray[np.float64]) -> TwoClasses:
    """Without the rows that have no weight."""
    kept = bounds[pair.rows] > 0
    y = pair.y[kept]
    if not ((y > 0).any() and (y < 0).any()):
        raise InputError(
            "all samples of a class have weight zero", where="sample_weight", wanted="two classes at least"
        )
    return TwoClasses(pair.rows[kept], y)


def _plan(source: RowSource, pairs: list[TwoClasses], settings: SVCSettings, session: Session, n_kernels: int) -> Plan:
    place, here = Place.of(session), int(MEMORY_SHARE * machine_memory())
    parts = [len(pair.rows) for pair in pairs if len(pair.rows) < source.n]
    return plan_kernel(
        source.n,
        source.n_features,
        settings.dtype,
        processes=place.processes,
        threads=place.threads,
        limit=place.allowed(settings.memory_limit) or here,
        driver_limit=settings.memory_limit or here,
        rows_in_place=source.is_in_memory or source.is_mapped,
        largest_machine=max(parts, default=None),
        n_kernels=n_kernels,
    ).validate()


def _solver(settings: SVCSettings, callbacks: list[Callback], stage: str) -> Accelerated | LevelMethod:
    def watch(row: dict[str, Any]) -> None:
        for callback in callbacks:
            callback({**row, "stage": stage, "of": settings.max_iter})

    told = watch if callbacks else None
    if settings.solver == "level":
        return LevelMethod(settings.tol, settings.max_iter, told)
    plain = settings.solver == "gradient"
    return Accelerated(settings.tol, settings.max_iter, momentum=not plain, newton=not plain, watch=told)


def _in_double(kernel: Kernel, source: RowSource, pair: TwoClasses, session: Session, settings: SVCSettings) -> Any:
    """The kernel in double precision, for the gap to be told by."""
    exact = RecomputedKernel(kernel, source, session, settings.memory_limit)
    return exact.sub(pair.rows) if len(pair.rows) < source.n else exact


def _unit_trace(part: Any, kernel: Kernel) -> float:
    """What the kernel is to be multiplied by for a mean of 1 on its diagonal."""
    mean = float(part.diagonal().mean())
    if not mean > 0:
        raise InputError("the kernel is zero on all rows", where=kernel.where, mend="choose another kernel")
    return 1.0 / mean


def _solve_combined(
    problem: NeighborhoodSVM, parts: list[Any], scales: list[float], solver: Accelerated | LevelMethod
) -> tuple[SVMSolution, NDArray[np.float64]]:
    """(the machine, with the gap of the whole, the shares of the kernels as they were given)."""
    assert isinstance(solver, Accelerated)
    found = combine(problem, [ScaledKernel(part, scale) for part, scale in zip(parts, scales, strict=True)], solver)
    machine = found.solution
    whole = replace(machine.point, gap=found.gap)
    solution = replace(
        machine,
        point=whole,
        outcome=found.outcome,
        history=found.history,
        n_iter=len(found.history),
        products=sum(int(row["products"]) for row in found.history) * len(parts),
    )
    return solution, found.theta * np.array(scales)


def check_psd(operator: Any, where: str = "X") -> None:
    """InputError with the eigenvalue for a kernel that is indefinite."""
    lowest = lowest_eigenvalue(operator.times, operator.n)
    if lowest < -INDEFINITE * operator.n * max(float(operator.diagonal().max()), np.finfo(float).tiny):
        raise InputError(
            "not positive semidefinite", where=where, got=f"an eigenvalue of {lowest:.6g}",
            wanted="a kernel matrix", mend="add to its diagonal, or drop negative eigenvalues",
        )  # fmt: skip


def outcome_of(fitted: list[FittedMachine]) -> Outcome:
    """The first outcome that is not convergence, if any."""
    outcomes = [machine.solution.outcome for machine in fitted]
    return next((outcome for outcome in outcomes if not outcome.converged), Outcome.SOLVED)


def warn_of(fitted: list[FittedMachine]) -> None:
    """A ConvergenceWarning where a machine did not converge."""
    worst = outcome_of(fitted)
    if not worst.converged:
        text = f"not converged ({worst.value}): raise max_iter or tol"
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
