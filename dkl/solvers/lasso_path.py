"""Many lassos on the same columns: several outputs, a path over nu with warm starts, the folds of cross-validation.

None of them passes over the rows again: the error on rows held out follows from their own sums,

    |y - C w - c|^2 = y'y - 2 w'C'y + w'C'C w - 2 c (1'y - 1'C w) + c^2 1'1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dkl.linalg.column_moments import Moments
from dkl.linalg.lasso import Vector
from dkl.linalg.one_blas_thread import one_blas_thread
from dkl.problems.column_gram import CentredGram, DenseGram
from dkl.problems.column_lasso import ColumnLasso
from dkl.solvers.lasso_solution import Solution, Solver

NU_RATIO = 1e-9
"""Of the least nu of a path to the largest useful one."""
CV_PATIENCE = 8
"""Values of nu beyond the best so far, after which cross-validation looks no further down."""
BETTER = 1e-4


def nu_path(nu_max: float, count: int) -> Vector:
    """`count` values from the largest useful nu down, in equal ratios."""
    return np.geomspace(nu_max, nu_max * NU_RATIO, count)


def solve_outputs(
    shared: CentredGram,
    nu: float,
    lam: float,
    solver: Solver,
    starts: Sequence[Vector | None] | None = None,
    threads: int = 1,
) -> list[Solution]:
    """The lasso of each output, side by side on threads where the Gram matrix is in memory."""
    outputs = range(len(shared.squares))
    problems = [ColumnLasso.of(shared, output, lam, nu) for output in outputs]
    starts = [None] * len(problems) if starts is None else starts
    if threads == 1 or len(problems) == 1 or not isinstance(shared.gram, DenseGram):
        return [solver.solve(problem, start) for problem, start in zip(problems, starts, strict=True)]
    with one_blas_thread(), ThreadPoolExecutor(threads) as pool:
        return list(pool.map(solver.solve, problems, starts))


def solve_path(shared: CentredGram, nus: Vector, lam: float, solver: Solver, threads: int = 1) -> list[list[Solution]]:
    """[[solution of each output] for each nu], each started from the one before."""
    found: list[list[Solution]] = []
    for nu in nus:
        starts = [solution.weights for solution in found[-1]] if found else None
        found.append(solve_outputs(shared, float(nu), lam, solver, starts, threads))
    return found


@dataclass(frozen=True)
class CrossValidation:
    """Mean squared error on rows held out and number of active columns, for each nu tried, fold and output (k, K, T);
    `best` is a place in `nus`; start (T, M): the weights there without the first fold."""

    nus: Vector
    errors: NDArray[np.float64]
    n_active: NDArray[np.int64]
    best: int
    start: NDArray[np.float64] | None = field(default=None, repr=False)

    @property
    def nu(self) -> float:
        return float(self.nus[self.best])


def cross_validate(
    folds: Sequence[CentredGram],
    moments: Moments,
    nus: Vector,
    lam: float,
    solver: Solver,
    threads: int = 1,
    watch: Callable[[dict[str, Any]], Any] | None = None,
) -> CrossValidation:
    """The nu of a descending path with the least error on rows held out, outputs weighed by their variance.

    folds[k]: the sums of all rows but fold k's, moments: those of each fold.
    """
    variances = np.maximum(np.mean([fold.squares / fold.weight for fold in folds], axis=0), np.finfo(float).tiny)
    weights = [np.zeros(fold.cross.T.shape) for fold in folds]
    errors: list[NDArray[np.float64]] = []
    active: list[NDArray[np.int64]] = []
    means: list[float] = []
    best, start = 0, weights[0]

    def solve(k: int, nu: float) -> tuple[bool, Vector]:
        solutions = solve_outputs(folds[k], nu, lam, solver, list(weights[k]))
        weights[k] = np.array([solution.weights for solution in solutions])
        solved = all(solution.outcome.converged for solution in solutions)
        return solved, held_out_error(moments, k, weights[k], folds[k].intercepts(weights[k]))

    with one_blas_thread(), ThreadPoolExecutor(threads) as pool:
        for place, nu in enumerate(nus):
            solved, found = zip(*pool.map(solve, range(len(folds)), [float(nu)] * len(folds)), strict=True)
            if errors and not all(solved):
                break  # further down rounding, or max_iter, would choose, not the data
            errors.append(np.array(found))
            active.append(np.array([np.count_nonzero(w, axis=1) for w in weights]))
            means.append(float((errors[-1].mean(axis=0) / variances).mean()))
            if place == 0 or means[place] < means[best] * (1 - BETTER):
                best, start = place, weights[0]
            if watch is not None:
                watch({"stage": "cv", "iteration": place + 1, "of": len(nus), "nu": float(nu), "error": means[-1]})
            if place - best >= CV_PATIENCE:
                break
    return CrossValidation(nus[: len(errors)], np.array(errors), np.array(active), best, start)


def held_out_error(moments: Moments, fold: int, weights: NDArray[np.float64], intercepts: Vector) -> Vector:
    """(T,) weighted mean squared error of weights (T, M) on the rows of a fold."""
    gram, cross, square = moments[0][fold], moments[1][fold], moments[2][fold]
    total = square[-1, -1]
    errors = np.empty(len(weights))
    for t, (w, c) in enumerate(zip(weights, intercepts, strict=True)):
        support = np.flatnonzero(w)
        on = w[support]
        upper = np.triu(gram[np.ix_(support, support)])  # of a raw sum the upper triangle counts
        fitted = 2 * float(on @ (upper @ on)) - float(on**2 @ np.diag(upper))
        residual = square[t, t] - 2 * float(on @ cross[support, t]) + fitted
        residual += -2 * c * (square[t, -1] - float(on @ cross[support, -1])) + c**2 * total
        errors[t] = max(residual, 0.0) / total
    return errors
