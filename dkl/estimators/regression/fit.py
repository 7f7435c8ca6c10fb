"""Stages of a fit of SLKL: the pass over the rows, nu by cross-validation if asked for, the lassos.

Used by the estimator and by the command line.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dkl.blocks.memory_plan import Plan
from dkl.blocks.rows.row_groups import RowGroups
from dkl.blocks.rows.row_pieces import Block
from dkl.blocks.rows.row_sources import row_source
from dkl.blocks.session import Session
from dkl.errors import DataWarning
from dkl.estimators.base.progress import warn_of
from dkl.estimators.regression.columns.candidates import kernel_of
from dkl.estimators.regression.columns.fit import Candidates, ColumnSums, row_groups
from dkl.estimators.regression.refit import Refit, favoured
from dkl.estimators.regression.settings import RegressionSettings
from dkl.linalg.lasso import Vector
from dkl.problems.regression.column_gram import CenteredGram, DenseGram
from dkl.problems.regression.column_lasso import ColumnLasso, Evaluation, largest_nu, output_problems
from dkl.problems.regression.column_pass import ColumnJob, targets_and_roots
from dkl.problems.regression.column_ridge import ColumnFold
from dkl.resources import n_cpus, peak_rss
from dkl.solvers.regression.active_set import ActiveSet, Solution, Solver
from dkl.solvers.regression.coordinate_descent import CoordinateDescent
from dkl.solvers.regression.lasso_path import CrossValidation, cross_validate, nu_path, solve_outputs, starts_of
from dkl.solvers.regression.paper import slkl
from dkl.solvers.regression.paper import weights as paper_weights
from dkl.solvers.watch import Outcome, Result, Watch, remedies

if TYPE_CHECKING:
    from dkl.estimators.base.validation import CheckedRows

CV_TOL = 1e-4
"""Relative gap that is enough on the folds of cross-validation."""
THREADS_FROM = 1500
"""Columns from which lassos side by side pay: below, their steps are so short that threads wait for the interpreter."""
LEAST_OUTPUTS, ROWS_A_COLUMN = 3, 10
"""Minimum outputs, and rows a column, to start from one inverse of B: M^3 is then small next to n M^2."""
REMEDIES = remedies(
    iteration_limit="raise max_iter or tol",
    stationary='the paper\'s rule is met, which proves nothing: lower tol, or take stopping="gap"',
    stalled="rounding ends all progress: raise tol or nu, or use dtype='float64' if it is not",
    numerical_error="a value is not finite: scale the targets, or raise lam or nu",
)


@dataclass
class FittedColumns:
    """Result of a regression's fit.

    Weights (T, M) of the normalized columns, intercepts (T,), and how they were found: they are those of `solutions`,
    or of the `refit`, when the lasso has its own intercepts. nu and nu_max are NaN where the fit was stopped before
    they were known. held_out: weights (T, M), intercepts (T,) and gaps (T,) of the fit without the held-out rows; {}
    where there was none.
    """

    weights: NDArray[np.float64]
    intercepts: Vector
    nu: float
    nu_max: float
    solutions: list[Solution]
    candidates: Candidates
    result: Result
    cv: CrossValidation | None = None
    shared: CenteredGram | None = field(default=None, repr=False)
    refit: Refit | None = None
    lasso_intercepts: Vector | None = None
    held_out: dict[str, NDArray[np.float64]] = field(default_factory=dict, repr=False)

    def add(self, offsets: Vector) -> None:
        """Add to the intercepts the offsets (T,) that were subtracted from the targets (n, T)."""
        self.intercepts = self.intercepts + offsets
        if self.lasso_intercepts is not None:
            self.lasso_intercepts = self.lasso_intercepts + offsets
        if self.held_out:
            self.held_out["intercepts"] = self.held_out["intercepts"] + offsets

    @property
    def lasso_weights(self) -> NDArray[np.float64]:
        """Return the weights (T, M) that solve (14): `weights` too, unless a refit has replaced them."""
        return np.array([solution.weights for solution in self.solutions])

    @property
    def active(self) -> NDArray[np.intp]:
        """Return the columns with a weight in any output."""
        return np.flatnonzero((self.weights != 0).any(axis=0))

    def kernel_weights(self, lam: float) -> NDArray[np.float64]:
        """Return (T, M) mu = sqrt(lambda / nu) |w| of the lasso's w; zeros if all of w is zero, whatever nu."""
        sizes = np.abs(self.lasso_weights)
        # nu may be NaN, of a fit that was stopped, or 0.
        return np.sqrt(lam / self.nu) * sizes if sizes.any() else sizes


def make_solver(settings: RegressionSettings, tol: float | None = None) -> Solver:
    """Return a solver for sums, with Newton steps in place of Algorithm 2, which needs columns."""
    tol = settings.tol if tol is None else tol
    if settings.solver == "active-set" or settings.whole_columns:
        return ActiveSet(tol, settings.max_iter)
    return CoordinateDescent(
        settings.solver, settings.sampling, settings.stopping, tol, settings.max_iter, settings.seed
    )


def fit_columns(
    passed: ColumnSums,
    settings: RegressionSettings,
    session: Session,
    watch: Watch | None = None,
    paper: Callable[[float, Watch], list[Solution]] | None = None,
) -> FittedColumns:
    """Find nu and the weights, from the sums of a pass. `paper`: solves at a nu by the literal algorithm.

    Where the watch has ended the run: at the best nu so far, the weights so far; before the end of the pass, the constant.
    """
    watch = watch or Watch()
    if passed.sums is None:
        return _constant(passed, settings, watch)
    shared, lam = passed.sums, settings.lam
    # The least nu at which all weights are zero, where every path begins.
    nu_max = largest_nu(shared.cross, lam)
    seconds, start = dict(passed.seconds), time.perf_counter()
    # Folds only where there is something to choose: of targets without a correlation all nus are alike.
    folds = passed.folds(settings) if settings.nu == "cv" and nu_max > 0 else []
    cv = choose_nu(folds, nu_max, settings, session, watch) if folds else None
    seconds["cv"] = time.perf_counter() - start
    start = time.perf_counter()
    ridge = None if cv is None else favoured(passed, folds, cv, settings, watch, solving_threads(session))
    # The folds' sums are the largest arrays, and are not needed after this.
    passed.moments, folds = None, []
    seconds["refit"] = time.perf_counter() - start
    start = time.perf_counter()
    # Without anything to explain every nu gives the same.
    nu = cv.nu if cv is not None else 1.0 if settings.nu == "cv" else float(settings.nu)
    solving = watch.stage("solve", max_iter=settings.max_iter)
    problems, threads = output_problems(shared, lam, nu), threads_for(shared, session)
    if paper is not None:
        solutions = paper(nu, solving)
    else:
        if cv is not None and cv.weights is not None:
            # A fold's weights are near to those of all rows at the same nu.
            starts: list[Vector | None] | None = list(cv.weights[0])
        else:
            starts = common_starts(problems, shared, settings, passed.plan.shape["n"], threads)
        solutions = solve_outputs(problems, make_solver(settings), starts, threads=threads, watch=solving)
    # Rounding of the sums counts in the gap, so that no gap is proven that is not there.
    solutions = with_rounding(problems, solutions, shared, settings)
    weights = np.array([solution.weights for solution in solutions])
    refitted = None if ridge is None or watch.outcome is not None else ridge.fitted(shared, weights)
    refit, weights = (None, weights) if refitted is None else refitted
    seconds["solve"] = time.perf_counter() - start
    ended = [] if cv is None else [cv.outcome]
    if refit is not None and not (refit.relative_gaps <= settings.tol).all():
        ended.append(Outcome.STALLED)
    # A gap of zero stands for a refit that did not take place.
    gaps = np.zeros(1) if refit is None else refit.relative_gaps
    result = make_result(solutions, ended, gaps, settings.tol, seconds, passed.plan, watch)
    if settings.nu != "cv" and nu >= nu_max > 0:
        text = f"nu={nu:.6g}, but from {nu_max:.6g} on all weights are zero: the model is a constant; lower nu"
        warnings.warn(text, DataWarning, stacklevel=4)
    warn_of(result, stacklevel=4)
    if cv is not None and cv.edge is not None and (refit is None or refit.columns != "all"):
        warnings.warn(edge_text(cv), DataWarning, stacklevel=4)
    fitted = FittedColumns(
        weights, shared.intercepts(weights), nu, nu_max, solutions, passed.candidates, result, cv, shared, refit
    )
    fitted.lasso_intercepts = shared.intercepts(fitted.lasso_weights)
    return fitted


def _constant(passed: ColumnSums, settings: RegressionSettings, watch: Watch) -> FittedColumns:
    """Return the zero fit of a stopped pass: all weights zero have P = y'y, and no P is below D(0) = 0."""
    M, outcome = len(passed.candidates.scale), watch.outcome
    assert outcome is not None
    unknown, zeros = np.full(M, np.nan), np.zeros(M)
    solutions = [
        Solution(zeros, Evaluation(float(square), 0.0, unknown, float(square), 0.0), 0, outcome)
        for square in passed.squares
    ]
    nu = np.nan if settings.nu == "cv" else float(settings.nu)
    weights = np.zeros((len(solutions), M))
    result = make_result(solutions, [], np.zeros(1), settings.tol, dict(passed.seconds), passed.plan, watch)
    warn_of(result, stacklevel=5)
    return FittedColumns(weights, np.zeros(len(weights)), nu, np.nan, solutions, passed.candidates, result)


def choose_nu(
    folds: Sequence[ColumnFold], nu_max: float, settings: RegressionSettings, session: Session, watch: Watch
) -> CrossValidation:
    """Cross-validate along a path from the largest useful nu down; return the errors on the folds."""
    coarse = make_solver(settings, max(settings.tol, CV_TOL))
    nus = nu_path(nu_max, settings.n_nus)
    return cross_validate(folds, nus, coarse, threads=lasso_threads(session, folds[0].shape[1]), watch=watch)


def with_rounding(
    problems: Sequence[ColumnLasso], solutions: Sequence[Solution], shared: CenteredGram, settings: RegressionSettings
) -> list[Solution]:
    """Return the solutions with gaps in which rounding of the sums is counted.

    Where the gap exceeds `tol` they are stalled, or, ended by the paper's rule, stationary: it proves no gap.
    """
    counted, unproven = [], Outcome.STATIONARY if settings.ends_by_the_papers_rule else Outcome.STALLED
    for output, (problem, solution) in enumerate(zip(problems, solutions, strict=True)):
        w, found = solution.weights, solution.evaluation
        assert isinstance(found, Evaluation)
        found = problem.with_rounding(w, found, shared.spread(output, w, found.residual))
        is_unproven = solution.outcome.converged and not found.relative_gap <= settings.tol
        outcome = unproven if is_unproven else solution.outcome
        counted.append(replace(solution, evaluation=found, outcome=outcome))
    return counted


def common_starts(
    problems: Sequence[ColumnLasso], shared: CenteredGram, settings: RegressionSettings, n: int, threads: int
) -> list[Vector | None] | None:
    """Return starts from one inverse of B, if several outputs share it and it costs little; else None.

    Little is relative to the pass over n rows.
    """
    # The inverse costs M^3, which is little next to the pass only of many rows and several outputs.
    few = len(problems) < LEAST_OUTPUTS or n < ROWS_A_COLUMN * len(shared.cross)
    if few or settings.solver != "active-set" or not isinstance(shared.gram, DenseGram):
        return None
    return starts_of(problems, shared.gram.matrix, threads=threads)


def edge_text(cv: CrossValidation) -> str:
    """Return a warning that the path of nu had to end while the error on held-out rows still fell."""
    what = "max_iter ends the path" if cv.edge is Outcome.ITERATION_LIMIT else "rounding ends the path"
    how = (
        "raise max_iter"
        if cv.edge is Outcome.ITERATION_LIMIT
        else "take other columns, more of them, or dtype='float64'"
    )
    return f"nu={cv.nu:.6g} is the best that was tried and the last: the error still falls there, but {what}; {how}"


def solving_threads(session: Session) -> int:
    """Return the threads of this process, which solves wherever the pass was."""
    return n_cpus() if session.is_distributed else session.threads


def lasso_threads(session: Session, columns: int) -> int:
    """Return how many lassos of `columns` columns to solve side by side: 1 where threads would wait for each other."""
    return solving_threads(session) if columns >= THREADS_FROM else 1


def threads_for(shared: CenteredGram, session: Session) -> int:
    """Return how many outputs may be solved side by side; those whose Gram matrix is on disk take turns."""
    return lasso_threads(session, len(shared.lengths)) if isinstance(shared.gram, DenseGram) else 1


def make_result(
    solutions: Sequence[Solution], ended: list[Outcome], gaps: Vector, tol: float, seconds: dict[str, float], plan: Plan, watch: Watch
) -> Result:  # fmt: skip
    """Return one result for all outputs: the first outcome not converged, if any, and the largest gap.

    ended: outcomes of other work, as cross-validation; gaps: relative gaps of other weights, as the refit's, at least one.
    """
    outcomes = [solution.outcome for solution in solutions] + ended
    # One that did not converge speaks for all: a warning must not be lost among solved outputs.
    outcome = next((outcome for outcome in outcomes if not outcome.converged), Outcome.SOLVED)
    seconds["total"] = watch.seconds
    proven = float(np.max([*(solution.evaluation.relative_gap for solution in solutions), *gaps]))
    return Result(
        outcome, sum(solution.n_iter for solution in solutions), watch.history, seconds, peak_rss(), plan=plan.as_dict(),
        remedy=REMEDIES[outcome], proven=proven, asked=tol,
    )  # fmt: skip


def paper_solver(
    rows: CheckedRows,
    targets: NDArray[np.float64],
    weights: NDArray[np.float64] | None,
    settings: RegressionSettings,
    session: Session,
    passed: ColumnSums,
) -> Callable[[float, Watch], list[Solution]]:
    """Return Algorithm 2 on the columns of the pass, for which the rows are read once more."""
    candidates = passed.candidates
    groups = row_groups(row_source(rows), session, len(candidates.scale), settings, passed.plan)
    kernel = kernel_of(settings, candidates.gamma)
    job = ColumnJob(kernel, candidates.points, candidates.scale, targets_and_roots(targets, weights))
    return solve_by_paper(groups, job, passed.shared, settings)


def solve_by_paper(
    groups: RowGroups, job: ColumnJob, shared: CenteredGram, settings: RegressionSettings
) -> Callable[[float, Watch], list[Solution]]:
    """Return Algorithm 2 on the columns in memory (n x M), for each output."""
    root = job.targets[:, -1:]
    C = np.concatenate(groups.map(columns_of_block, job)) * root
    y = job.targets[:, :-1]
    # About the means, as an intercept is fitted by centering.
    if settings.fit_intercept:
        C -= root * shared.raw_means
        y = y - root * shared.target_means

    def solve(nu: float, watch: Watch) -> list[Solution]:
        found = []
        for output in range(y.shape[1]):
            part, draws = watch.stage(output=output), np.random.default_rng(settings.seed)
            state = slkl(
                C, y[:, output], settings.lam, nu, tol=settings.tol, max_iter=settings.max_iter,
                draw=partial(draws.integers, job.n_columns), mended=settings.solver == "paper", watch=part,
            )  # fmt: skip
            w = paper_weights(C, y[:, output], settings.lam, state)
            evaluation = ColumnLasso.of(shared, output, settings.lam, nu).evaluate(w)
            found.append(Solution(w, evaluation, state.n_iter, state.outcome, 0, part.history))
        return found

    return solve


def columns_of_block(block: Block, job: ColumnJob) -> NDArray[np.floating]:
    """Return the kernel columns (m, M) of a block of rows; workers run it."""
    return job.columns(block.rows)
