"""A ridge's lambda by cross-validation, along a path from where it hides everything down to rounding."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dkl.linalg.lasso import Vector
from dkl.linalg.one_blas_thread import one_blas_thread
from dkl.solvers.watch import Watch

RATIO = 10**-0.5
"""Ratio of each lambda to the one before."""
WAITING = 4
"""Values beyond the best so far, after which the path looks no further: two decades."""

BETTER, ROUNDING = 1e-4, 1e-10
"""Least decrease of the error that counts: a share of it, and one of the variance, for rounding."""


class RidgeFoldProblem(Protocol):
    """Some rows to learn from, and others to be wrong on."""

    def error(self, lam: float) -> Vector | None:
        """Return the mean squared errors (T,) on the other rows; None where there is no solution."""


@dataclass(frozen=True)
class RidgePath:
    """Lambdas tried (k,), errors (k, K, T) on the rows held out, and the place of the best in `lams`."""

    lams: Vector
    errors: NDArray[np.float64]
    best: int

    @property
    def lam(self) -> float:
        """Return the best lambda that was tried."""
        return float(self.lams[self.best])


def lam_path(weight: float) -> Vector:
    """Return lambdas from the sum of the sample weights down to its rounding.

    At the first one, half of what the first direction can explain is lost.
    """
    count = int(np.log(np.finfo(float).eps) / np.log(RATIO))
    return np.asarray(float(weight) * RATIO ** np.arange(count + 1), np.float64)


def validate_ridge(
    folds: Sequence[RidgeFoldProblem], lams: Vector, variances: Vector, *, threads: int = 1, watch: Watch | None = None
) -> RidgePath | None:
    """Find the lambda of a descending path with the least error, outputs weighed by `variances` (T,).

    A row each lambda. None where there is no solution at the first, or the watch has ended the run.
    """
    watch = watch or Watch()
    errors: list[NDArray[np.float64]] = []
    means: list[float] = []
    best = 0
    with one_blas_thread(), ThreadPoolExecutor(threads) as pool:
        for place, lam in enumerate(lams):
            # Folds are solved side by side, each with its own factorization.
            found = list(pool.map(lambda fold, lam=lam: fold.error(float(lam)), folds))
            if any(one is None for one in found):
                break  # further down rounding would choose
            errors.append(np.array(found))
            means.append(float((errors[-1].mean(axis=0) / variances).mean()))
            if means[place] < means[best] * (1 - BETTER) - ROUNDING:
                best = place
            stop_reason = watch.record({"iteration": place + 1, "lam": float(lam), "error": means[-1]})
            if stop_reason is not None:
                return None
            if place - best >= WAITING:
                break
    if not errors:
        return None
    return RidgePath(np.asarray(lams[: len(errors)], float), np.array(errors), best)
