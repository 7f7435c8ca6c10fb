"""Cross-validation of gamma, the weight of the pairs: kernels along a path upwards, a warm-started one a fold.

Upwards, as the optimum of a small gamma has a low rank and is found at once, and each is a start for the next; large ones are what takes
time, and the path ends before them where they are of no use. Chosen is the gamma with the least mean error; of equal ones (up to BETTER)
the least, which trusts the pairs least. Not the least within one standard error of it: that costs the clusters more where all pairs
are right than it gains where some are wrong (benchmarks/pair_gamma.md).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dkl.solvers.factored import CertifiedProblem, solve_to_gap
from dkl.solvers.gamma_errors import FoldPath, GammaChoice
from dkl.solvers.result import Outcome
from dkl.solvers.watch import Row, Watch

Vector = NDArray[np.float64]
WAITING = 4
"""Values of gamma beyond the best so far, after which the path ends."""


class Fold(Protocol):
    """Some pairs to learn from, and others to be wrong on."""

    def at(self, gamma: float) -> CertifiedProblem:
        """The problem of those to learn from."""

    def error(self, factor: NDArray) -> float:
        """Of a kernel on the others."""


def choose_gamma(
    folds: Sequence[Fold],
    gammas: Vector,
    *,
    paths: Sequence[FoldPath] | None = None,
    commit: Callable[[int, FoldPath], None] = lambda fold, path: None,
    watch: Watch | None = None,
    **limits: Any,
) -> tuple[GammaChoice, NDArray | None, Outcome]:
    """(choice, first fold's last factor, outcome) along ascending gammas, a row each gamma and fold.

    paths: of the folds, as far as they have come before; they go on from there. commit(fold, path): called after each kernel.
    limits: of `solve_to_gap`. Where the watch ends it, the choice is among the gammas that all folds have.
    """
    paths = [FoldPath() for _ in folds] if paths is None else list(paths)
    watch = (watch or Watch()).stage("cv", of=len(gammas) * len(folds))
    known = GammaChoice.of(gammas, paths).rows
    watch.resume(known)
    count = len(known)
    for place, gamma in enumerate(map(float, gammas)):
        if _is_over(gammas, paths, place):
            break
        for k, (fold, path) in enumerate(zip(folds, paths, strict=True)):
            if len(path.errors) > place:
                continue
            told = _step(fold, path, gamma, watch, {"iteration": count + 1, "fold": k}, limits)
            if len(path.errors) > place:
                count += 1
                commit(k, path)
            if told is not None:
                return GammaChoice.of(gammas, paths), paths[0].factor, told
    return GammaChoice.of(gammas, paths), paths[0].factor, Outcome.SOLVED


def _step(fold: Fold, path: FoldPath, gamma: float, watch: Watch, row: Row, limits: dict[str, Any]) -> Outcome | None:
    """The fold's kernel at the next gamma, and its row. What ends the run, if anything: what it ended before is not kept."""
    problem = fold.at(gamma)
    # Near the optimum of a small gamma, and the same for all folds without a word of what pairs they hold out.
    start = np.ones((problem.n, 1)) if path.factor is None else path.factor
    found = solve_to_gap(problem, start, watch=watch.quiet(), **limits)
    if watch.outcome is not None:
        return watch.outcome
    if found.outcome is Outcome.NUMERICAL_ERROR:
        return found.outcome
    error, rank, seconds = fold.error(found.factor), int(found.factor.shape[1]), watch.seconds
    path.factor = found.factor
    path.errors.append(error)
    path.ranks.append(rank)
    path.seconds.append(seconds)
    return watch.record({**row, "gamma": gamma, "error": error, "rank": rank, "seconds": seconds})


def _is_over(gammas: Vector, paths: Sequence[FoldPath], place: int) -> bool:
    """Whether the gammas before `place` are enough: the best of them is WAITING behind the last."""
    return place - 1 - GammaChoice.of(gammas, paths).best >= WAITING
