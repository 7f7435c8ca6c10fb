"""Choice of gamma, the weight of the pairs, by pairs held out: kernels along a path upwards, a warm-started one a fold.

Upwards, as the optimum of a small gamma has a low rank and is found at once, and each is a start for the next. Chosen is the gamma under
which the pairs held out are most likely, by a logistic curve of their scores whose floor is the share of wrong pairs; see
`gamma_scores`. Their squared error chooses too small a gamma where all pairs are right.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dkl.solvers.pairwise.gamma_scores import FoldPath, rows_of, tables_of
from dkl.solvers.pairwise.low_rank import FactoredSolution
from dkl.solvers.result import Outcome
from dkl.solvers.watch import Row, Watch

Vector = NDArray[np.float64]


class PathFold(Protocol):
    """Some pairs to learn from, and others that are held out."""

    @property
    def n(self) -> int:
        """Return the number of rows."""

    def solved(self, gamma: float, start: NDArray, watch: Watch) -> FactoredSolution:
        """Learn from the former."""

    def scored(self, factor: NDArray) -> tuple[Vector, Vector]:
        """Return a kernel and its cosine at the latter."""


def follow_path(
    folds: Sequence[PathFold],
    gammas: Vector,
    *,
    paths: Sequence[FoldPath] | None = None,
    commit: Callable[[int, FoldPath], None] = lambda fold, path: None,
    watch: Watch | None = None,
) -> tuple[list[FoldPath], Outcome]:
    """Score the pairs held out along ascending gammas: (path of each fold, outcome), with a history row each gamma and fold.

    paths: of the folds, to continue from. commit(fold, path): called after each kernel. Where the watch ends it, the first folds'
    paths may be one gamma ahead.
    """
    paths = [FoldPath() for _ in folds] if paths is None else list(paths)
    watch = (watch or Watch()).stage("cv", of=len(gammas) * len(folds))
    # The rows of gammas that are done are recorded once more, with the seconds that they took then.
    watch.resume(rows_of(gammas, *tables_of(paths, len(gammas))))
    count = sum(len(path.ranks) for path in paths)
    for place, gamma in enumerate(map(float, gammas)):
        for k, (fold, path) in enumerate(zip(folds, paths, strict=True)):
            if len(path.ranks) > place:
                continue
            stop = _step(fold, path, gamma, watch, {"iteration": count + 1, "fold": k})
            # Committed before the end is looked at, so that no kernel is learned twice.
            if len(path.ranks) > place:
                count += 1
                commit(k, path)
            if stop is not None:
                return paths, stop
    return paths, Outcome.SOLVED


def _step(fold: PathFold, path: FoldPath, gamma: float, watch: Watch, row: Row) -> Outcome | None:
    """Learn the fold's kernel at the next gamma and record its row. Returns what ends the run; a kernel it cut short is not kept."""
    # Near the optimum of a small gamma, and the same for all folds without a word of what pairs they hold out.
    start = np.ones((fold.n, 1)) if path.factor is None else path.factor
    found = fold.solved(gamma, start, watch.quiet())
    if watch.outcome is not None:
        return watch.outcome
    if found.outcome is Outcome.NUMERICAL_ERROR:
        return found.outcome
    scores, cosines = fold.scored(found.factor)
    path.factor, rank, seconds = found.factor, int(found.factor.shape[1]), watch.seconds
    path.scores.append(scores)
    path.cosines.append(cosines)
    path.ranks.append(rank)
    path.seconds.append(seconds)
    return watch.record({**row, "gamma": gamma, "rank": rank, "seconds": seconds})
