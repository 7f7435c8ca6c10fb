"""Greedy k-means++ on blocks of rows, for several restarts at a time.

A centre is drawn with odds proportional to closest(x) = min over the centres so far of |x - c|^2; of a few candidates
the one stays that leaves the least sum of closest (D. Arthur, S. Vassilvitskii, k-means++: the advantages of careful
seeding, SODA 2007, with the greedy choice of its section 7: 2 + floor(log k) candidates, as scikit-learn has it).

Random numbers are drawn here, from one stream a restart; blocks give potentials, so a draw falls first on a block and
then on a row in it. `closest` follows from the rows and the centres so far. It is kept in a memo where memory allows,
and else, or when a worker is lost, made again by the same products in the same order: the bits are the same either way.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dkl.blocks.row_blocks import Block
from dkl.linalg.kmeans import lower, lowered_sums
from dkl.problems.kmeans import Centers, KMeansProblem, Offset, centered

MEMO = "k-means++"

Draw = tuple[int, int, float]
"""(restart, trial, where in the block's cumulative potential)."""


def plus_plus(problem: KMeansProblem, n_clusters: int, streams: list[np.random.RandomState]) -> Centers:
    """Centres (R, k, r) relative to the offset, chosen among the rows; one restart for each stream."""
    rows, offset, restarts = problem.rows, problem.offset, len(streams)
    trials = 2 + int(np.log(n_clusters))
    keep = rows.keeps(restarts * 8)
    chosen = problem.take(np.array([stream.randint(problem.n) for stream in streams]))[:, None, :]
    # Potentials of each block, under the centres chosen so far: (blocks, R).
    potentials = np.stack(rows.map(block_potentials, chosen, None, offset, keep))[:, :, 0]
    for _ in range(1, n_clusters):
        draws = _draws(potentials, np.stack([stream.uniform(size=trials) for stream in streams]))
        candidates = np.empty((restarts, trials, problem.n_features))
        for part in rows.map(candidate_rows, chosen, draws, offset, keep, only=set(draws)):
            for restart, trial, row in part:
                candidates[restart, trial] = row
        trial_potentials = np.stack(rows.map(block_potentials, chosen, candidates, offset, keep))
        best = trial_potentials.sum(axis=0).argmin(axis=1)
        every = np.arange(restarts)
        potentials = trial_potentials[:, every, best]
        chosen = np.concatenate([chosen, candidates[every, best][:, None, :]], axis=1)
    rows.forget()
    return chosen


def at_random(problem: KMeansProblem, n_clusters: int, streams: list[np.random.RandomState]) -> Centers:
    """Centres (R, k, r) relative to the offset: k different rows, any as likely as another."""
    indices = np.concatenate([stream.choice(problem.n, n_clusters, replace=False) for stream in streams])
    return problem.take(indices).reshape(len(streams), n_clusters, problem.n_features)


def _draws(potentials: NDArray[np.float64], uniforms: NDArray[np.float64]) -> dict[int, list[Draw]]:
    """{block: its draws}, for uniforms (R, trials) in [0, 1) on the line of all rows' potentials."""
    draws: dict[int, list[Draw]] = {}
    for restart, values in enumerate(uniforms):
        ends = np.cumsum(potentials[:, restart])
        # As many rows as clusters may lie on their centres: then all potentials are zero, and the first row is as good.
        points = values * ends[-1]
        blocks = np.minimum(np.searchsorted(ends, points), len(ends) - 1)
        for trial, (block, point) in enumerate(zip(blocks, points, strict=True)):
            before = ends[block - 1] if block else 0.0
            draws.setdefault(int(block), []).append((restart, trial, float(point - before)))
    return draws


def _closest(block: Block, chosen: Centers, offset: Offset, keep: bool) -> NDArray[np.float64]:
    """(R, m): squared distance of each row to the nearest of each restart's chosen centres (R, c, r)."""
    known, closest = block.memo.get(MEMO, (chosen[:, :0], None))
    if closest is None or not np.array_equal(known, chosen[:, : known.shape[1]]):
        known, closest = chosen[:, :0], np.full((len(chosen), block.stop - block.start), np.inf)
    for c in range(known.shape[1], chosen.shape[1]):
        lower(block.rows, chosen[:, c], closest, offset)
    if keep:
        block.memo[MEMO] = chosen, closest
    return closest


def block_potentials(
    block: Block, chosen: Centers, candidates: Centers | None, offset: Offset, keep: bool
) -> NDArray[np.float64]:
    """(R, trials): the block's sum of closest if a restart took that candidate (R, trials, r); (R, 1) without any."""
    closest = _closest(block, chosen, offset, keep)
    if candidates is None:
        return closest.sum(axis=1)[:, None]
    return lowered_sums(block.rows, candidates, closest, offset)


def candidate_rows(
    block: Block, chosen: Centers, draws: dict[int, list[Draw]], offset: Offset, keep: bool
) -> list[tuple[int, int, NDArray[np.float64]]]:
    """[(restart, trial, row)] of the rows on which this block's draws fall."""
    ends = np.cumsum(_closest(block, chosen, offset, keep), axis=1)
    last = ends.shape[1] - 1
    own = draws[block.index]
    picks = np.array([min(int(np.searchsorted(ends[restart], point)), last) for restart, _, point in own])
    rows = centered(block.rows[picks], offset)
    return [(restart, trial, row) for (restart, trial, _), row in zip(own, rows, strict=True)]
