"""One fit of SLKL, stage by stage: the pass over the rows, nu by cross-validation if asked for, the lasso of each output.

Used by the estimator and by the command line.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dkl.blocks.plan import Plan
from dkl.blocks.row_groups import RowGroups
from dkl.blocks.row_pieces import Block
from dkl.blocks.session import Session
from dkl.errors import ConvergenceWarning, DataWarning
from dkl.estimators.columns.fit import Candidates, Passed
from dkl.estimators.columns.settings import RegressionSettings
from dkl.linalg.lasso import Vector
from dkl.problems.column_gram import CentredGram
from dkl.problems.column_lasso import ColumnLasso, largest_nu
from dkl.problems.column_pass import ColumnJob
from dkl.resources import n_cpus, peak_rss
from dkl.solvers.active_set import ActiveSet
from dkl.solvers.coordinate_descent import CoordinateDescent
from dkl.solvers.lasso_path import CrossValidation, cross_validate, nu_path, solve_outputs
from dkl.solvers.lasso_solution import Solution, Solver
from dkl.solvers.result import Outcome, Result
from dkl.solvers.slkl_paper import slkl
from dkl.solvers.slkl_paper import weights as paper_weights

CV_TOL = 1e-4
"""Relative gap that is enough on the folds of cross-validation."""


@dataclass
class FittedColumns:
    """Weights (T, M) of the normalised columns, intercepts (T,), and how they were come by."""

    weights: NDArray[np.float64]
    intercepts: Vector
    nu: float
    nu_max: float
    solutions: list[Solution]
    candidates: Candidates
    result: Result
    cv: CrossValidation | None = None
    shared: CentredGram | None = field(default=None, repr=False)

    @property
    def active(self) -> NDArray[np.intp]:
        """Columns with a weight in any output."""
        return np.flatnonzero((self.weights != 0).any(axis=0))


def make_solver(settings: RegressionSettings, tol: float | None = None) -> Solver:
    """For sums. Algorithm 2 as printed takes columns: where it has none, as in cross-validation, Newton steps do."""
    tol = settings.tol if tol is None else tol
    if settings.solver in ("active-set", "paper"):
        return ActiveSet(tol, settings.max_iter)
    return CoordinateDescent(
        settings.solver, settings.sampling, settings.stopping, tol, settings.max_iter, settings.seed
    )


def fit_columns(
    passed: Passed,
    settings: RegressionSettings,
    session: Session,
    callbacks: Sequence[Callable[[dict[str, Any]], Any]] = (),
    paper: Callable[[float], list[Solution]] | None = None,
) -> FittedColumns:
    """nu and the weights, from the sums of a pass. `paper`: solves at a nu by the literal algorithm."""
    shared, lam = passed.shared, settings.lam
    nu_max = largest_nu(shared.cross, lam)
    seconds, start = dict(passed.seconds), time.perf_counter()
    cv = choose_nu(passed, settings, session, callbacks) if settings.nu == "cv" and nu_max > 0 else None
    passed.moments = None
    seconds["cv"] = time.perf_counter() - start
    start = time.perf_counter()
    # Without anything to explain every nu gives the same.
    nu = cv.nu if cv is not None else 1.0 if settings.nu == "cv" else float(settings.nu)
    starts = None if cv is None or cv.start is None else list(cv.start)
    solve = paper or partial(
        solve_outputs, shared, lam=lam, solver=make_solver(settings), starts=starts, threads=solving_threads(session)
    )
    solutions = solve(nu)
    seconds["solve"] = time.perf_counter() - start
    weights = np.array([solution.weights for solution in solutions])
    result = _result(solutions, seconds, passed.plan)
    for row in result.history[-1:]:
        for callback in callbacks:
            callback({**row, "stage": "solve", "of": row["iteration"]})
    _warn(result, settings, nu, nu_max)
    return FittedColumns(
        weights, shared.intercepts(weights), nu, nu_max, solutions, passed.candidates, result, cv, shared
    )


def choose_nu(
    passed: Passed,
    settings: RegressionSettings,
    session: Session,
    callbacks: Sequence[Callable[[dict[str, Any]], Any]],
) -> CrossValidation:
    """Errors on the folds along a path from the largest useful nu down."""
    assert passed.moments is not None
    folds = [passed.without_fold(fold, settings.fit_intercept) for fold in range(settings.n_folds)]
    nus = nu_path(largest_nu(passed.shared.cross, settings.lam), settings.n_nus)

    def watch(row: dict[str, Any]) -> None:
        for callback in callbacks:
            callback(dict(row))

    coarse = make_solver(settings, max(settings.tol, CV_TOL))
    return cross_validate(folds, passed.moments, nus, settings.lam, coarse, solving_threads(session), watch)


def solving_threads(session: Session) -> int:
    """Of this process, which solves wherever the pass was."""
    return n_cpus() if session.is_distributed else session.threads


def _result(solutions: list[Solution], seconds: dict[str, float], plan: Plan) -> Result:
    worst = next((s.outcome for s in solutions if not s.outcome.converged), Outcome.SOLVED)
    history = [{**row, "output": t} for t, solution in enumerate(solutions) for row in solution.history]
    steps = sum(solution.n_iter for solution in solutions)
    return Result(worst, steps, history, {**seconds, "total": sum(seconds.values())}, peak_rss(), plan=plan.as_dict())


def _warn(result: Result, settings: RegressionSettings, nu: float, nu_max: float) -> None:
    if settings.nu != "cv" and nu >= nu_max > 0:
        text = f"nu={nu:.6g}, but from {nu_max:.6g} on all weights are zero: the model is a constant; lower nu"
        warnings.warn(text, DataWarning, stacklevel=4)
    if not result.outcome.converged:
        remedies = {
            Outcome.ITERATION_LIMIT: "raise max_iter or tol",
            Outcome.STALLED: "rounding ends all progress: use dtype='float64', or raise tol or nu",
        }
        text = f"not converged ({result.outcome.value}): {remedies[result.outcome]}"
        warnings.warn(text, ConvergenceWarning, stacklevel=4)


def solve_by_paper(
    groups: RowGroups, job: ColumnJob, shared: CentredGram, settings: RegressionSettings
) -> Callable[[float], list[Solution]]:
    """Algorithm 2 as printed, on the columns in memory (n x M), for each output."""
    root = job.targets[:, -1:]
    C = np.concatenate(groups.map(columns_of_block, job)) * root
    y = job.targets[:, :-1]
    if settings.fit_intercept:
        C -= root * shared.column_means
        y = y - root * shared.target_means

    def solve(nu: float) -> list[Solution]:
        found = []
        for output in range(y.shape[1]):
            draws = np.random.default_rng(settings.seed)
            state = slkl(
                C, y[:, output], settings.lam, nu, tol=settings.tol, max_iter=settings.max_iter,
                draw=partial(draws.integers, job.n_columns),
            )  # fmt: skip
            w = paper_weights(C, y[:, output], settings.lam, state)
            outcome = Outcome.SOLVED if state.converged else Outcome.ITERATION_LIMIT
            evaluation = ColumnLasso.of(shared, output, settings.lam, nu).evaluate(w)
            history = [{"iteration": k * job.n_columns, "objective": value} for k, value in enumerate(state.objectives)]
            found.append(Solution(w, evaluation, state.n_iter, outcome, 0, history))
        return found

    return solve


def columns_of_block(block: Block, job: ColumnJob) -> NDArray[np.floating]:
    return job.columns(block.rows)
