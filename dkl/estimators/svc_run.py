"""The machines of a classifier: where the kernel stands, each solved, and what is told of them."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dkl.blocks.kernel_operator import MemoryKernel, RecomputedKernel
from dkl.blocks.kernel_plan import plan_kernel
from dkl.blocks.place import Place
from dkl.blocks.plan import Plan
from dkl.blocks.row_blocks import machine_memory
from dkl.blocks.row_sources import RowSource
from dkl.blocks.session import Session
from dkl.errors import ConvergenceWarning, InputError
from dkl.linalg.extreme_eigenvalues import lowest_eigenvalue
from dkl.linalg.kernel_columns import Kernel
from dkl.problems.column_pass import check_rows
from dkl.problems.neighborhood_svm import NeighborhoodSVM
from dkl.resources import peak_rss
from dkl.solvers.result import Outcome, Result
from dkl.solvers.svm_gradient import Accelerated, SVMSolution
from dkl.solvers.svm_pairs import TwoClasses, machines

MEMORY_SHARE = 0.75
INDEFINITE = 1e-8
"""Of the largest diagonal entry times n: what rounding may take an eigenvalue below zero."""

Callback = Callable[[dict[str, Any]], Any]


@dataclass(frozen=True)
class SVCSettings:
    rho: float
    solver: str
    multi_class: str
    tol: float
    max_iter: int
    dtype: str
    memory_limit: int | None


@dataclass(frozen=True)
class FittedMachine:
    """Its rows, their coefficients y alpha, and how they were come by."""

    rows: NDArray[np.intp]
    coefficients: NDArray[np.float64]
    solution: SVMSolution


def fit_machines(
    source: RowSource,
    kernel: Kernel,
    labels: NDArray[np.intp],
    n_classes: int,
    bounds: NDArray[np.float64],
    settings: SVCSettings,
    session: Session,
    callbacks: list[Callback],
) -> tuple[list[FittedMachine], Plan, dict[str, float]]:
    """All machines, in their order; the plan; seconds by stage."""
    pairs = [_weighted(pair, bounds) for pair in machines(labels, n_classes, settings.multi_class)]
    plan = _plan(source, pairs, settings, session)
    seconds = {"kernel": 0.0, "solve": 0.0}
    start = time.perf_counter()
    whole: Any
    if plan.placement == "memory":
        whole = MemoryKernel.of(kernel, source, settings.dtype, session.threads)
    else:
        whole = RecomputedKernel(kernel, source, session, settings.memory_limit, settings.dtype)
        whole.rows.map(check_rows)
    if kernel.is_precomputed:
        check_psd(whole)
    seconds["kernel"] = time.perf_counter() - start
    found = []
    for number, pair in enumerate(pairs):
        start = time.perf_counter()
        operator = whole if len(pair.rows) == source.n else whole.sub(pair.rows)
        problem = NeighborhoodSVM(operator, pair.y, np.ascontiguousarray(bounds[pair.rows]), settings.rho)
        solution = _solver(settings, callbacks, number, len(pairs)).solve(problem)
        if settings.dtype == "float32":
            solution = _in_double(solution, problem, kernel, source, pair, session, settings)
        found.append(FittedMachine(pair.rows, pair.y * solution.point.alpha, solution))
        seconds["solve"] += time.perf_counter() - start
    return found, plan, seconds


def _weighted(pair: TwoClasses, bounds: NDArray[np.float64]) -> TwoClasses:
    """Without the rows that have no weight."""
    kept = bounds[pair.rows] > 0
    y = pair.y[kept]
    if not ((y > 0).any() and (y < 0).any()):
        raise InputError(
            "all samples of a class have weight zero", where="sample_weight", wanted="two classes at least"
        )
    return TwoClasses(pair.rows[kept], y)


def _plan(source: RowSource, pairs: list[TwoClasses], settings: SVCSettings, session: Session) -> Plan:
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
    ).validate()


def _solver(settings: SVCSettings, callbacks: list[Callback], number: int, of: int) -> Accelerated:
    def watch(row: dict[str, Any]) -> None:
        for callback in callbacks:
            callback({**row, "stage": f"machine {number + 1} of {of}", "of": settings.max_iter})

    plain = settings.solver == "gradient"
    return Accelerated(
        settings.tol, settings.max_iter, momentum=not plain, newton=not plain, watch=watch if callbacks else None
    )


def _in_double(
    solution: SVMSolution,
    problem: NeighborhoodSVM,
    kernel: Kernel,
    source: RowSource,
    pair: TwoClasses,
    session: Session,
    settings: SVCSettings,
) -> SVMSolution:
    """The same alpha with its objective and gap under the kernel in double precision."""
    exact: Any = RecomputedKernel(kernel, source, session, settings.memory_limit)
    if len(pair.rows) < source.n:
        exact = exact.sub(pair.rows)
    return replace(solution, point=replace(problem, kernel=exact).at(solution.point.alpha))


def check_psd(operator: Any) -> None:
    """InputError with the eigenvalue for a precomputed kernel that is indefinite."""
    lowest = lowest_eigenvalue(operator.times, operator.n)
    if lowest < -INDEFINITE * operator.n * max(float(operator.diagonal().max()), np.finfo(float).tiny):
        raise InputError(
            "not positive semidefinite", where="X", got=f"an eigenvalue of {lowest:.6g}",
            wanted="a kernel matrix", mend="add to its diagonal, or drop negative eigenvalues",
        )  # fmt: skip


def result_of(fitted: list[FittedMachine], seconds: dict[str, float], plan: Plan) -> Result:
    """One result for all machines; a ConvergenceWarning where one did not converge."""
    solutions = [machine.solution for machine in fitted]
    worst = next((s.outcome for s in solutions if not s.outcome.converged), Outcome.SOLVED)
    if not worst.converged:
        text = f"not converged ({worst.value}): raise max_iter or tol"
        warnings.warn(text, ConvergenceWarning, stacklevel=3)
    history = [{**row, "machine": k} for k, solution in enumerate(solutions) for row in solution.history]
    return Result(
        worst,
        sum(solution.n_iter for solution in solutions),
        history,
        {**seconds, "total": sum(seconds.values())},
        peak_rss(),
        plan=plan.as_dict(),
    )
