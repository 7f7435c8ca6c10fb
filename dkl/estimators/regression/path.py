"""The models of SLKL along a path of nu, from the sums of one pass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dkl.blocks.session import Session
from dkl.errors import InputError
from dkl.estimators.columns.fit import Passed
from dkl.estimators.columns.settings import RegressionSettings
from dkl.estimators.regression.fit import choose_nu, make_solver, solving_threads
from dkl.problems.column_lasso import largest_nu
from dkl.solvers.lasso_path import CrossValidation, nu_path, solve_path


@dataclass(frozen=True)
class RegressionPath:
    """The model at each nu, from the largest useful one down. T outputs, M columns.

    nus (k,); weights (k, T, M) of the normalised columns; intercepts (k, T); n_active (k, T); objectives and gaps
    (k, T), gaps relative; errors (k, T): mean squared error on the training rows; cv: that on rows held out, if asked for.
    """

    nus: NDArray[np.float64]
    weights: NDArray[np.float64]
    intercepts: NDArray[np.float64]
    n_active: NDArray[np.int64]
    objectives: NDArray[np.float64]
    gaps: NDArray[np.float64]
    errors: NDArray[np.float64]
    cv: CrossValidation | None = None


def descending(nus: Any) -> NDArray[np.float64]:
    """The values that were given, checked, from the largest down, each once."""
    try:
        values = np.unique(np.asarray(nus, np.float64))[::-1]
    except (TypeError, ValueError):
        values = np.empty(0)
    if not values.size or not (np.isfinite(values).all() and (values > 0).all()):
        raise InputError("not values of nu", where="nus", got=repr(nus)[:80], wanted="finite numbers > 0")
    return values


def path_of(
    passed: Passed,
    settings: RegressionSettings,
    session: Session,
    callbacks: list[Any],
    nus: NDArray[np.float64] | None,
    offsets: NDArray[np.float64],
) -> RegressionPath:
    """`offsets` (T,) are what the targets have been diminished by."""
    shared = passed.shared
    nu_max = largest_nu(shared.cross, settings.lam)
    cv = choose_nu(passed, settings, session, callbacks) if settings.nu == "cv" and nu_max > 0 else None
    if nus is None:
        nus = nu_path(nu_max or 1.0, settings.n_nus)  # without anything to explain any will do
    found = solve_path(shared, nus, settings.lam, make_solver(settings), solving_threads(session))
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
    )
