"""k-means on blocks of rows: greedy k-means++, and Lloyd's algorithm for several restarts at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dkl.solvers.watch import Outcome, Row, Watch, verdict

# Lloyd's algorithm for several restarts at a time: one pass over the rows an iteration for all.
#
# A restart stops when no label has changed since the iteration before, or when its centers moved by no more than `tol`
# (squared Frobenius norm); then it leaves the stack, and the passes become cheaper (scikit-learn's criteria:
# S. Lloyd, Least squares quantization in PCM, IEEE Trans. Inf. Theory 28, 1982; scikit-learn, cluster/_kmeans.py).


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
    """Centers of all restarts, and how each ended.

    centers (R, k, r); n_iter (R,); converged (R,): False where a limit came first; shifts (R,): squared, of the last step, 0 where no
    label changed; history: a row an iteration.
    """

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
    # Infinite, so that a restart without an iteration is not taken for converged.
    last = np.full(restarts, np.inf)
    active, iteration, stop_reason = np.arange(restarts), 0, watch.outcome
    while True:
        outcome = verdict(stop_reason, solved=not len(active), at_limit=iteration >= max_iter)
        if outcome is not None:
            return LloydResult(centers, n_iter, converged, last, outcome, watch.history)
        iteration += 1
        # Converged restarts leave the stack, so later passes cost less.
        update = problem.step(centers[active])
        shifts = np.square(update.centers - centers[active]).sum(axis=(1, 2))
        # Equal digests: no label has changed, whatever rounding did to the centers.
        unchanged = (update.digests == digests[active]).all(axis=1)
        centers[active], digests[active], n_iter[active] = update.centers, update.digests, iteration
        last[active] = np.where(unchanged, 0.0, shifts)
        converged[active] = last[active] <= tol
        # Without a change of labels the shift counts as 0 and ends the restart for any tol.
        active = active[~converged[active]]
        row = {"iteration": iteration, "moving": len(active), "shift": float(shifts.max())}
        stop_reason = watch.record(row | {"finite": bool(np.isfinite(shifts).all())})


# Greedy k-means++ on blocks of rows, for several restarts at a time.
#
# A center is drawn with odds proportional to closest(x) = min over the centers so far of |x - c|^2; of a few candidates
# the one stays that leaves the least sum of closest (D. Arthur, S. Vassilvitskii, k-means++: the advantages of careful
# seeding, SODA 2007, with the greedy choice of its section 7: 2 + floor(log k) candidates, as scikit-learn has it).
#
# Random numbers are drawn here, from one stream a restart; blocks give potentials, so a draw falls first on a block and
# then on a row in it.

Array = NDArray[np.float64]
Draw = tuple[int, int, float]
"""(restart, trial, where in the block's cumulative potential)."""


class CenterCandidates(Protocol):
    """Rows (n, r) that centers are chosen among."""

    n: int
    n_features: int

    def take(self, indices: NDArray[np.int64]) -> Array:
        """Return the rows (m, r) with these indices."""


class SeededRows(CenterCandidates, Protocol):
    """Rows in blocks, with their distances to centers chosen (R, c, r)."""

    def keeps_closest(self, restarts: int) -> bool:
        """Return whether memory allows keeping the distances to the closest centers between calls."""

    def potentials(self, chosen: Array, candidates: Array | None, keep: bool) -> Array:
        """Return each block's sum of `closest` (blocks, R, trials), if a restart took that candidate, too."""

    def drawn_rows(self, chosen: Array, draws: dict[int, list[Draw]], keep: bool) -> Iterator[tuple[int, int, Array]]:
        """Return (restart, trial, row) of each draw, {block: its draws}."""

    def forget_closest(self) -> None:
        """Release the distances kept between calls."""


def plus_plus(
    problem: SeededRows, n_clusters: int, streams: list[np.random.RandomState], watch: Watch | None = None
) -> Array:
    """Choose centers (R, k, r) among the rows, one restart for each stream.

    A row of the watch is a center of each; once it ends the run the centers to come are drawn at random.
    """
    watch, restarts = (watch or Watch()).stage("k-means++", of=n_clusters), len(streams)
    trials, every = 2 + int(np.log(n_clusters)), np.arange(len(streams))
    keep = problem.keeps_closest(restarts)
    # The first center is any row, with equal odds.
    chosen = problem.take(np.array([stream.randint(problem.n) for stream in streams]))[:, None, :]
    # Potentials of each block, under the centers chosen so far: (blocks, R).
    potentials = problem.potentials(chosen, None, keep)[:, :, 0]
    stop_reason = watch.record({"iteration": 1})
    while chosen.shape[1] < n_clusters and stop_reason is None:
        # One stream a restart, drawn here: the numbers do not depend on who has which block.
        draws = _draws(potentials, np.stack([stream.uniform(size=trials) for stream in streams]))
        candidates = np.empty((restarts, trials, problem.n_features))
        for restart, trial, row in problem.drawn_rows(chosen, draws, keep):
            candidates[restart, trial] = row
        trial_potentials = problem.potentials(chosen, candidates, keep)
        # The candidate of the least sum of closest distances, the greedy choice.
        best = trial_potentials.sum(axis=0).argmin(axis=1)
        potentials = trial_potentials[:, every, best]
        chosen = np.concatenate([chosen, candidates[every, best][:, None, :]], axis=1)
        stop_reason = watch.record({"iteration": chosen.shape[1]})
    problem.forget_closest()
    # Where the watch has ended the run, the missing centers are drawn at random: a result of full shape.
    missing = n_clusters - chosen.shape[1]
    return np.concatenate([chosen, at_random(problem, missing, streams)], axis=1) if missing else chosen


def at_random(
    problem: CenterCandidates, n_clusters: int, streams: list[np.random.RandomState], watch: Watch | None = None
) -> Array:
    """Draw centers (R, k, r): k different rows, any as likely as another."""
    indices = np.concatenate([stream.choice(problem.n, n_clusters, replace=False) for stream in streams])
    return problem.take(indices).reshape(len(streams), n_clusters, problem.n_features)


def _draws(potentials: NDArray[np.float64], uniforms: NDArray[np.float64]) -> dict[int, list[Draw]]:
    """Return {block: its draws}, for uniforms (R, trials) in [0, 1) on the line of all rows' potentials."""
    draws: dict[int, list[Draw]] = {}
    for restart, values in enumerate(uniforms):
        ends = np.cumsum(potentials[:, restart])
        # As many rows as clusters may lie on their centers: then all potentials are zero, and the first row is as good.
        points = values * ends[-1]
        blocks = np.minimum(np.searchsorted(ends, points), len(ends) - 1)
        for trial, (block, point) in enumerate(zip(blocks, points, strict=True)):
            before = ends[block - 1] if block else 0.0
            draws.setdefault(int(block), []).append((restart, trial, float(point - before)))
    return draws
