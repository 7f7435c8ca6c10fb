"""The models of SLKL along a path of nu, from the sums of one pass."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dkl.blocks.session import Session
from dkl.errors import InputError
from dkl.estimators.regression.columns.fit import ColumnSums
from dkl.estimators.regression.fit import choose_nu, make_result, make_solver, threads_for
from dkl.estimators.regression.settings import RegressionSettings
from dkl.problems.regression.column_lasso import largest_nu, output_problems
from dkl.solvers.regression.lasso_path import CrossValidation, nu_path, solve_path
from dkl.solvers.result import Result
from dkl.solvers.watch import Watch


@dataclass(frozen=True)
class RegressionPath:
    """The model at each nu, from the largest useful one down. T outputs, M columns.

    nus (k,); weights (k, T, M) of the normalized columns; intercepts (k, T); n_active (k, T); objectives and gaps
    (k, T), gaps relative; errors (k, T): mean squared error on the training rows; cv: that on rows held out, if asked for;
    result: outcome, history and seconds of all of it. Where a callback ended it during the pass over the rows the models at
    the given nus are constants; without given nus the path is empty (k = 0).
    """

    nus: NDArray[np.float64]
    weights: NDArray[np.float64]
    intercepts: NDArray[np.float64]
    n_active: NDArray[np.int64]
    objectives: NDArray[np.float64]
    gaps: NDArray[np.float64]
    errors: NDArray[np.float64]
    cv: CrossValidation | None = None
    result: Result | None = field(default=None, repr=False)


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
        w,
        np.array([shared.intercepts(at_nu) for at_nu in w]) + offsets,
        np.count_nonzero(w, axis=2),
        np.array([[e.objective for e in at_nu] for at_nu in evaluations]),
        np.array([[e.relative_gap for e in at_nu] for at_nu in evaluations]),
        np.array([[e.residual for e in at_nu] for at_nu in evaluations]) / shared.weight,
        cv,
        result,
    )


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
        np.zeros((*shape, len(passed.candidates.scale))),
        np.broadcast_to(offsets, shape).copy(),
        np.zeros(shape, np.int64),
        objectives,
        (objectives > 0).astype(float),
        objectives / passed.weight,
        None,
        make_result([], [outcome], np.ones(1), tol, dict(passed.seconds), passed.plan, watch),
    )
