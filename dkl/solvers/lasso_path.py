"""Many lassos on the same columns: several outputs, a path over nu with warm starts, the folds of cross-validation.

None of them passes over the rows again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dkl.linalg.lasso import Vector
from dkl.linalg.one_blas_thread import one_blas_thread
from dkl.solvers.lasso_solution import Lasso, Solution, Solver
from dkl.solvers.result import Outcome
from dkl.solvers.watch import Stall, Watch

NU_RATIO = 1e-9
"""Of the least nu of a path to the largest useful one."""
CV_WAITING = 8
"""Values of nu beyond the best so far, after which cross-validation looks no further down."""
BETTER = 1e-4


class Fold(Protocol):
    """Some rows to learn from, and others to be wrong on. T outputs, M columns."""

    @property
    def shape(self) -> tuple[int, int]:
        """(T, M)."""

    @property
    def variances(self) -> Vector:
        """(T,) of the targets."""

    def problems(self, nu: float) -> Sequence[Any]:
        """The lasso of each output."""

    def error(self, weights: NDArray[np.float64]) -> Vector:
        """(T,) mean squared errors on the other rows."""


def nu_path(nu_max: float, count: int) -> Vector:
    """`count` values from the largest useful nu down, in equal ratios."""
    return np.geomspace(nu_max, nu_max * NU_RATIO, count)


def solve_outputs(
    problems: Sequence[Lasso],
    solver: Solver,
    starts: Sequence[Vector | None] | None = None,
    *,
    threads: int = 1,
    watch: Watch | None = None,
) -> list[Solution]:
    """The lasso of each output, side by side on `threads`, which must share a Gram matrix that is in memory.

    Each output is a stage of the watch, whose rows say which one: `output`.
    """
    watch = watch or Watch()
    starts = [None] * len(problems) if starts is None else starts
    parts = [watch.stage(output=output) for output in range(len(problems))]

    def solve(problem: Lasso, start: Vector | None, part: Watch) -> Solution:
        return solver.solve(problem, start, watch=part)

    if threads == 1 or len(problems) == 1:
        return [solve(*work) for work in zip(problems, starts, parts, strict=True)]
    with one_blas_thread(), ThreadPoolExecutor(threads) as pool:
        return list(pool.map(solve, problems, starts, parts))


def solve_path(
    problems_at: Callable[[float], Sequence[Lasso]],
    nus: Vector,
    solver: Solver,
    *,
    threads: int = 1,
    watch: Watch | None = None,
) -> list[list[Solution]]:
    """[[solution of each output] for each nu], each started from the one before; a row each nu.

    problems_at(nu): the lasso of each output. Once the watch has ended the run, the weights so far stand for the nus to come,
    each with the gap that they have there.
    """
    watch = (watch or Watch()).stage("path", of=len(nus))
    found: list[list[Solution]] = []
    for place, nu in enumerate(nus):
        starts = [solution.weights for solution in found[-1]] if found else None
        found.append(solve_outputs(problems_at(float(nu)), solver, starts, threads=threads, watch=watch.quiet()))
        worst = max(solution.evaluation.relative_gap for solution in found[-1])
        active = max(int(np.count_nonzero(solution.weights)) for solution in found[-1])
        watch.record({"iteration": place + 1, "nu": float(nu), "relative_gap": worst, "n_active": active})
    return found


@dataclass(frozen=True)
class CrossValidation:
    """Mean squared error on rows held out and number of active columns, for each nu tried, fold and output (k, K, T);
    `best` is a place in `nus`; start (T, M): the weights there without the first fold; outcome: SOLVED where the whole path
    was looked along, as far as it was worth it."""

    nus: Vector
    errors: NDArray[np.float64]
    n_active: NDArray[np.int64]
    best: int
    start: NDArray[np.float64] | None = field(default=None, repr=False)
    outcome: Outcome = Outcome.SOLVED

    @property
    def nu(self) -> float:
        """The best nu that was tried."""
        return float(self.nus[self.best])


def cross_validate(
    folds: Sequence[Fold], nus: Vector, solver: Solver, *, threads: int = 1, watch: Watch | None = None
) -> CrossValidation:
    """The nu of a descending path with the least error on rows held out, outputs weighed by their variance; a row each nu."""
    watch = (watch or Watch()).stage("cv", of=len(nus))
    variances = np.maximum(np.mean([fold.variances for fold in folds], axis=0), np.finfo(float).tiny)
    weights = [np.zeros(fold.shape) for fold in folds]
    errors: list[NDArray[np.float64]] = []
    active: list[NDArray[np.int64]] = []
    means: list[float] = []
    best, start, waiting, outcome = 0, weights[0], Stall(CV_WAITING - 1), Outcome.SOLVED

    def solve(k: int, nu: float) -> tuple[bool, Vector]:
        solutions = solve_outputs(folds[k].problems(nu), solver, list(weights[k]), watch=watch.quiet())
        weights[k] = np.array([solution.weights for solution in solutions])
        solved = all(solution.outcome.converged for solution in solutions)
        return solved, folds[k].error(weights[k])

    with one_blas_thread(), ThreadPoolExecutor(threads) as pool:
        for place, nu in enumerate(nus):
            solved, found = zip(*pool.map(solve, range(len(folds)), [float(nu)] * len(folds)), strict=True)
            if errors and not all(solved):
                outcome = watch.outcome or outcome
                break  # further down rounding, or max_iter, would choose, not the data
            errors.append(np.array(found))
            active.append(np.array([np.count_nonzero(w, axis=1) for w in weights]))
            means.append(float((errors[-1].mean(axis=0) / variances).mean()))
            is_better = place == 0 or means[place] < means[best] * (1 - BETTER)
            if is_better:
                best, start = place, weights[0]
            told = watch.record({"iteration": place + 1, "nu": float(nu), "error": means[-1]})
            if told is not None:
                outcome = told
                break
            if waiting.check(is_better):
                break
    return CrossValidation(nus[: len(errors)], np.array(errors), np.array(active), best, start, outcome)
