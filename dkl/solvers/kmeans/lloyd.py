"""Lloyd's algorithm for several restarts at a time: one pass over the rows an iteration for all.

A restart stops when no label has changed since the iteration before, or when its centers moved by no more than `tol`
(squared Frobenius norm); then it leaves the stack, and the passes become cheaper (scikit-learn's criteria:
S. Lloyd, Least squares quantization in PCM, IEEE Trans. Inf. Theory 28, 1982; scikit-learn, cluster/_kmeans.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dkl.solvers.result import Outcome
from dkl.solvers.watch import Row, Watch, verdict


class CenterUpdate(Protocol):
    """Result of one step for all restarts."""

    @property
    def centers(self) -> NDArray[np.float64]:
        """Return the means (R, k, r) of the clusters."""

    @property
    def digests(self) -> NDArray[np.uint64]:
        """Return digests (R, 2) of the labels: equal where no label has changed."""


class ClusteringProblem(Protocol):
    """The rows."""

    def step(self, centers: NDArray[np.float64]) -> CenterUpdate:
        """Assign the rows to the nearest of the centers (R, k, r) of each restart, and take the means."""


@dataclass(frozen=True)
class LloydResult:
    """centers (R, k, r); n_iter (R,); converged (R,): False where a limit came first; shifts (R,): squared, of the last step, 0 where
    no label changed; a row an iteration."""

    centers: NDArray[np.float64]
    n_iter: NDArray[np.int64]
    converged: NDArray[np.bool_]
    shifts: NDArray[np.float64]
    outcome: Outcome
    history: list[Row] = field(repr=False)


def lloyd(
    problem: ClusteringProblem,
    centers: NDArray[np.float64],
    *,
    max_iter: int,
    tol: float,
    watch: Watch | None = None,
) -> LloydResult:
    """Improve the restarts' centers (R, k, r) until each has converged, or for `max_iter` iterations.

    `tol` is absolute. A row: iteration, how many restarts are still moving, their largest squared shift.
    """
    watch = (watch or Watch()).stage("k-means", max_iter=max_iter)
    centers = centers.copy()
    restarts = len(centers)
    digests = np.zeros((restarts, 2), np.uint64)
    n_iter = np.zeros(restarts, np.int64)
    converged = np.zeros(restarts, np.bool_)
    last = np.full(restarts, np.inf)
    active, iteration, stop_reason = np.arange(restarts), 0, watch.outcome
    while True:
        outcome = verdict(stop_reason, solved=not len(active), at_limit=iteration >= max_iter)
        if outcome is not None:
            return LloydResult(centers, n_iter, converged, last, outcome, watch.history)
        iteration += 1
        update = problem.step(centers[active])
        shifts = np.square(update.centers - centers[active]).sum(axis=(1, 2))
        unchanged = (update.digests == digests[active]).all(axis=1)
        centers[active], digests[active], n_iter[active] = update.centers, update.digests, iteration
        last[active] = np.where(unchanged, 0.0, shifts)
        converged[active] = last[active] <= tol
        active = active[~converged[active]]
        row = {"iteration": iteration, "moving": len(active), "shift": float(shifts.max())}
        stop_reason = watch.record(row | {"finite": bool(np.isfinite(shifts).all())})
