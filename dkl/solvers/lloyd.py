"""Lloyd's algorithm for several restarts at a time: one pass over the rows an iteration, whatever their number.

A restart stops when no label has changed since the iteration before, or when its centres moved by no more than `tol`
(squared Frobenius norm); then it leaves the stack, and the passes become cheaper (scikit-learn's criteria:
S. Lloyd, Least squares quantization in PCM, IEEE Trans. Inf. Theory 28, 1982; scikit-learn, cluster/_kmeans.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class Update(Protocol):
    @property
    def centers(self) -> NDArray[np.float64]: ...
    @property
    def digests(self) -> NDArray[np.uint64]: ...


class Problem(Protocol):
    def step(self, centers: NDArray[np.float64]) -> Update: ...


@dataclass(frozen=True)
class LloydResult:
    """centers (R, k, r); n_iter (R,); converged (R,): False where max_iter came first."""

    centers: NDArray[np.float64]
    n_iter: NDArray[np.int64]
    converged: NDArray[np.bool_]


def lloyd(
    problem: Problem,
    centers: NDArray[np.float64],
    *,
    max_iter: int,
    tol: float,
    report: Callable[[int, int, float], None] | None = None,
) -> LloydResult:
    """Improve the restarts' centres (R, k, r) until each has converged, or for `max_iter` iterations.

    `tol` is absolute; `report(iteration, restarts still moving, largest squared shift)` is called after each pass.
    """
    centers = centers.copy()
    restarts = len(centers)
    digests = np.zeros((restarts, 2), np.uint64)
    n_iter = np.zeros(restarts, np.int64)
    converged = np.zeros(restarts, np.bool_)
    active = np.arange(restarts)
    for iteration in range(1, max_iter + 1):
        update = problem.step(centers[active])
        shifts = np.square(update.centers - centers[active]).sum(axis=(1, 2))
        unchanged = (update.digests == digests[active]).all(axis=1)
        centers[active], digests[active], n_iter[active] = update.centers, update.digests, iteration
        converged[active] = unchanged | (shifts <= tol)
        active = active[~converged[active]]
        if report is not None:
            report(iteration, len(active), float(shifts.max()))
        if not len(active):
            break
    return LloydResult(centers, n_iter, converged)
