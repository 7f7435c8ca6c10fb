"""Refit: a ridge on the lasso's columns, or on all, if errors on held-out rows favor it.

The lasso pays for few columns with weights that are too small. The ridge takes its columns as they are and shrinks in the
kernel's own norm (`dkl.problems.regression.column_ridge`); its lambda is chosen by the folds that chose nu, from the same sums.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dkl.errors import DataWarning
from dkl.estimators.regression.columns.fit import ColumnSums
from dkl.estimators.regression.settings import RegressionSettings
from dkl.linalg.lasso import Vector
from dkl.problems.regression.column_gram import CenteredGram
from dkl.problems.regression.column_ridge import ColumnFold, ColumnRidge, RidgeFold, is_definite, penalty
from dkl.solvers.regression.lasso_path import CrossValidation, RidgePath, lam_path, mean_variances, validate_ridge
from dkl.solvers.watch import Watch

Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class Refit:
    """A ridge in the place of the lasso. T outputs, K folds.

    columns: "active", those that the lasso has in any output, or "all"; lam: the ridge's lambda, best of lams (k,) by errors
    (k, K, T), mean squared on rows held out; objectives and gaps (T,) of the ridge on all rows.
    """

    columns: str
    lam: float
    lams: Vector
    errors: Matrix
    objectives: Vector
    gaps: Vector

    @property
    def relative_gaps(self) -> Vector:
        """Return gap / objective (T,), 0 where the objective is 0."""
        return np.divide(self.gaps, self.objectives, out=np.zeros_like(self.gaps), where=self.objectives > 0)


@dataclass(frozen=True)
class RefitChoice:
    """Choice of cross-validation: the ridge on these columns, at the path's best lambda."""

    columns: str
    path: RidgePath
    P: Matrix = field(repr=False)

    def fitted(self, shared: CenteredGram, lasso: Matrix) -> tuple[Refit, Matrix] | None:
        """Return the ridge on all rows and its weights (T, M); None without columns or a numerical solution.

        `lasso` (T, M): the lasso's weights.
        """
        chosen = np.flatnonzero((lasso != 0).any(axis=0)) if self.columns == "active" else np.arange(lasso.shape[1])
        ridge = ColumnRidge(shared, self.P, chosen)
        weights = ridge.solve(self.path.lam) if len(chosen) else None
        if weights is None:
            return None
        evaluated = ridge.evaluate(weights, self.path.lam)
        return Refit(self.columns, self.path.lam, self.path.lams, self.path.errors, *evaluated), weights


def favoured(
    passed: ColumnSums,
    folds: Sequence[ColumnFold],
    cv: CrossValidation,
    settings: RegressionSettings,
    watch: Watch,
    threads: int,
) -> RefitChoice | None:
    """Return the ridge to refit by, or None for the lasso. Uses up what `passed` holds between columns.

    "auto": the ridge on the lasso's columns where its held-out error is less than the lasso's. "best": the ridge on all columns,
    which costs more to predict by, where its error is less than that by more than a standard error of the difference over the folds.
    """
    if passed.between is None or cv.weights is None or watch.outcome is not None:
        return None
    # Released here: M x M numbers, whose memory the folds need.
    P, passed.between = penalty(passed.between), None
    # A sigmoid kernel, say: w'P w would be no norm, and the ridge without a minimum.
    if not is_definite(P):
        if settings.refit in ("active", "all"):
            text = f"no refit: the kernel is not positive semidefinite, so refit={settings.refit!r} has no norm to shrink in"
            warnings.warn(text, DataWarning, stacklevel=5)
        return None
    variances = mean_variances(folds)
    ridges = _validated(passed.shared, P, folds, cv.weights, settings.refit, variances, watch, threads)
    if settings.refit in ("active", "all"):
        return RefitChoice(settings.refit, ridges[settings.refit], P) if settings.refit in ridges else None
    found, least = None, _scores(cv.errors[cv.best], variances)
    for columns, path in ridges.items():
        scores = _scores(path.errors[path.best], variances)
        gain = least - scores
        # The rule of one standard error for the ridge that costs more to predict by; the active columns cost nothing more.
        needed = gain.std(ddof=1) / np.sqrt(len(gain)) if columns == "all" else 0.0
        if gain.mean() > needed:
            found, least = RefitChoice(columns, path, P), scores
    return found


def _validated(
    shared: CenteredGram,
    P: Matrix,
    folds: Sequence[ColumnFold],
    weights: Matrix,
    wanted: str,
    variances: Vector,
    watch: Watch,
    threads: int,
) -> dict[str, RidgePath]:
    """Return the path over lambda of each requested ridge; `weights` (K, T, M): lasso's without each fold."""
    active = [np.flatnonzero((w != 0).any(axis=0)) for w in weights]
    every = [np.arange(len(P))] * len(folds)
    candidates = {"active": active, "all": every}
    if wanted != "best":
        candidates = {"active": active} if wanted == "auto" else {wanted: candidates[wanted]}
    elif all(len(some) == len(P) for some in active):
        del candidates["all"]  # they are the same
    lams, found = lam_path(shared.weight), {}
    for columns, chosen in candidates.items():
        # In some fold the lasso has no column: there is nothing to refit.
        if not all(len(some) for some in chosen):
            continue
        parts = [RidgeFold.of(fold, P, some) for fold, some in zip(folds, chosen, strict=True)]
        stage = watch.stage("refit", of=len(lams), columns=columns)
        path = validate_ridge(parts, lams, variances, threads=threads, watch=stage)
        if path is not None:
            found[columns] = path
    return found if watch.outcome is None else {}


def _scores(errors: Matrix, variances: Vector) -> Vector:
    """Return a score (K,) of each fold, from mean squared errors (K, T)."""
    return np.asarray((errors / variances).mean(axis=1))
