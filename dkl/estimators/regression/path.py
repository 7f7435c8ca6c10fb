"""The models of SLKL along a path of nu, from the sums of one pass."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from dkl.blocks.session import Session
from dkl.errors import InputError
from dkl.estimators.regression.columns.fit import ColumnSums
from dkl.estimators.regression.fit import choose_nu, make_result, make_solver, threads_for
from dkl.estimators.regression.settings import RegressionSettings
from dkl.problems.regression.column_gram import CenteredGram, DenseGram
from dkl.problems.regression.column_lasso import largest_nu, output_problems
from dkl.solvers.regression.lasso_path import CrossValidation, nu_path, solve_path
from dkl.solvers.watch import Result, Watch

SolveOne = Callable[[float, NDArray[np.float64], int], float]
"""Function of a nu, weights to start at and an output that returns the sum of its mu."""
LEAST = 1e-200
"""Nu below which no sum of mu is looked for."""
CLOSE = 1e-12
"""Relative gap to which `nu_of_sum` solves: its sums are then exact to a root of it."""


@dataclass(frozen=True)
class RegressionPath:
    """The model at each nu, from the largest useful one down. T outputs, M columns.

    nus (k,); sums (k, T) of mu; weights (k, T, M) of the normalized columns; intercepts (k, T); n_active (k, T); objectives and gaps
    (k, T), gaps relative; errors (k, T): mean squared error on the training rows; cv: that on rows held out, if asked for;
    result: outcome, history and seconds of all of it. Where a callback ended it during the pass over the rows the models at
    the given nus are constants; without given nus the path is empty (k = 0).
    """

    nus: NDArray[np.float64]
    sums: NDArray[np.float64]
    weights: NDArray[np.float64]
    intercepts: NDArray[np.float64]
    n_active: NDArray[np.int64]
    objectives: NDArray[np.float64]
    gaps: NDArray[np.float64]
    errors: NDArray[np.float64]
    cv: CrossValidation | None = None
    result: Result | None = field(default=None, repr=False)
    _solve: SolveOne | None = field(default=None, repr=False)

    def nu_of_sum(self, n1: float, output: int = 0) -> float:
        """Return the nu at which sum mu is `n1`: (12)-(13) of the paper, sum mu <= n1, is (14) at this nu.

        output: which of several targets; its sum falls with nu, from any size to 0 at the largest useful nu. InputError for an n1 that
        is not above 0, where nothing is explained, as mu is zero then at every nu, and where the sums of the pass did not fit in memory.
        """
        if not (isinstance(n1, (int, float, np.number)) and 0 < n1 < np.inf):
            raise InputError("not a bound of sum mu", where="n1", got=repr(n1), wanted="a finite number > 0")
        solve, sums = self._solve, self.sums[:, output]
        if solve is None:
            raise InputError(
                "the sums of the pass were on disk, and are gone", where="nu_of_sum", remedy="raise memory_limit"
            )
        if not sums[-1] > 0:
            raise InputError(
                "all weights are zero at every nu of the path", where="n1", got=n1, remedy="take smaller nus"
            )
        # Between two neighbors of the path, or below its end.
        first = min(int(np.searchsorted(sums, n1)), len(sums) - 1)
        low, high, start = float(self.nus[first]), float(self.nus[max(first - 1, 0)]), self.weights[first, output]
        while solve(low, start, output) < n1:
            if low < LEAST:
                raise InputError("no nu is so small", where="n1", got=n1, wanted="a sum that some nu has")
            low, high = low / 10, low
        while solve(high, start, output) > n1:
            low, high = high, 10 * high
        root = brentq(lambda x: solve(float(np.exp(x)), start, output) - n1, np.log(low), np.log(high), xtol=1e-13)
        return float(np.exp(root))


def descending(nus: object) -> NDArray[np.float64]:
    """Return the given values, checked, from the largest down, each once."""
    try:
        values = np.unique(np.asarray(nus, np.float64))[::-1]
    except (TypeError, ValueError):
        values = np.empty(0)
    if not values.size or not (np.isfinite(values).all() and (values > 0).all()):
        raise InputError("not values of nu", where="nus", got=repr(nus)[:80], wanted="finite numbers > 0")
    return values


def path_of(
    passed: ColumnSums,
    settings: RegressionSettings,
    session: Session,
    watch: Watch,
    nus: NDArray[np.float64] | None,
    offsets: NDArray[np.float64],
) -> RegressionPath:
    """Return the models at the given nus, or along a path of `settings.n_nus`.

    `offsets` (T,) are subtracted from the targets beforehand.
    """
    if passed.sums is None:
        return _constants(passed, settings.tol, watch, np.empty(0) if nus is None else nus, offsets)
    shared, seconds = passed.sums, dict(passed.seconds)
    start = time.perf_counter()
    nu_max = largest_nu(shared.cross, settings.lam)
    folds = passed.folds(settings) if settings.nu == "cv" and nu_max > 0 else []
    cv = choose_nu(folds, nu_max, settings, session, watch) if folds else None
    seconds["cv"] = time.perf_counter() - start
    if nus is None:
        nus = nu_path(nu_max or 1.0, settings.n_nus)  # without anything to explain any will do
        if cv is not None and len(cv.nus) > len(nus):
            nus = cv.nus  # cross-validation has continued beyond the end
    start = time.perf_counter()
    found = solve_path(
        lambda nu: output_problems(shared, settings.lam, nu),
        nus,
        make_solver(settings),
        threads=threads_for(shared, session),
        watch=watch,
    )
    seconds["solve"] = time.perf_counter() - start
    solutions = [solution for at_nu in found for solution in at_nu]
    ended = [] if cv is None else [cv.outcome]
    result = make_result(solutions, ended, np.zeros(1), settings.tol, seconds, passed.plan, watch)
    w = np.array([[solution.weights for solution in at_nu] for at_nu in found])
    evaluations = [[solution.evaluation for solution in at_nu] for at_nu in found]
    return RegressionPath(
        nus,
        np.sqrt(settings.lam / nus)[:, None] * np.abs(w).sum(axis=2),
        w,
        np.array([shared.intercepts(at_nu) for at_nu in w]) + offsets,
        np.count_nonzero(w, axis=2),
        np.array([[e.objective for e in at_nu] for at_nu in evaluations]),
        np.array([[e.relative_gap for e in at_nu] for at_nu in evaluations]),
        np.array([[e.residual for e in at_nu] for at_nu in evaluations]) / shared.weight,
        cv,
        result,
        partial(_sum_at, shared, settings) if isinstance(shared.gram, DenseGram) else None,
    )


def _sum_at(
    shared: CenteredGram, settings: RegressionSettings, nu: float, start: NDArray[np.float64], output: int
) -> float:
    """Return the sum of mu at a nu, solved from weights `start` (M,)."""
    problem = output_problems(shared, settings.lam, nu)[output]
    solved = make_solver(settings.changed(solver="active-set"), CLOSE).solve(problem, start)
    return float(problem.kernel_weights(solved.weights).sum())


def _constants(
    passed: ColumnSums, tol: float, watch: Watch, nus: NDArray[np.float64], offsets: NDArray[np.float64]
) -> RegressionPath:  # fmt: skip
    """Return constant models, with objective y'y and relative gap 1, of a run stopped before its sums."""
    outcome, count = watch.outcome, len(nus)
    assert outcome is not None
    shape = (count, len(passed.squares))
    objectives = np.broadcast_to(passed.squares, shape).copy()
    return RegressionPath(
        nus,
        np.zeros(shape),
        np.zeros((*shape, len(passed.candidates.scale))),
        np.broadcast_to(offsets, shape).copy(),
        np.zeros(shape, np.int64),
        objectives,
        (objectives > 0).astype(float),
        objectives / passed.weight,
        None,
        make_result([], [outcome], np.ones(1), tol, dict(passed.seconds), passed.plan, watch),
    )
