"""Cross-validation of gamma, the weight of the pairs: kernels along a path upwards, a warm-started one a fold.

Upwards, as the optimum of a small gamma has a low rank and is found at once, and each is a start for the next; large ones are what takes
time, and the path ends before them where they are of no use. Chosen is the gamma with the least mean error; of equal ones (up to BETTER)
the least, which trusts the pairs least. Not the least within one standard error of it: that costs the clusters more where all pairs
are right than it gains where some are wrong (benchmarks/pair_gamma.md).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dkl.solvers.factored import CertifiedProblem, solve_to_gap
from dkl.solvers.result import Outcome
from dkl.solvers.watch import Row, Watch

Vector = NDArray[np.float64]
BETTER = 1e-3
"""Share of the least mean error by which others count as equal to it."""
WAITING = 4
"""Values of gamma beyond the best so far, after which the path ends."""


class Fold(Protocol):
    """Some pairs to learn from, and others to be wrong on."""

    def at(self, gamma: float) -> CertifiedProblem:
        """The problem of those to learn from."""

    def error(self, factor: NDArray) -> float:
        """Of a kernel on the others."""


@dataclass
class FoldPath:
    """A fold on its way: the factor (n, r) at the last gamma, and of each gamma so far error, rank and seconds of the run."""

    factor: NDArray | None = field(default=None, repr=False)
    errors: list[float] = field(default_factory=list)
    ranks: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class GammaChoice:
    """Errors on pairs held out and ranks, for each gamma tried and fold (k, K); seconds (k, K) of the run at which each was known.
    NaN, and a rank of -1, for folds that a callback has kept the last gamma from. `best` is the place in `gammas` of the one chosen."""

    gammas: Vector
    errors: Vector
    ranks: NDArray[np.int64]
    seconds: Vector = field(repr=False)

    @property
    def means(self) -> Vector:
        """(k,) over the folds, of the gammas that all of them have; inf for another."""
        return np.where(np.isnan(self.errors).any(axis=1), np.inf, self.errors.mean(axis=1))

    @property
    def best(self) -> int:
        """The place of the gamma that is chosen."""
        return int(np.flatnonzero(self.means <= (1 + BETTER) * self.means.min())[0])

    @property
    def gamma(self) -> float:
        """The one that is chosen."""
        return float(self.gammas[self.best])

    @property
    def rows(self) -> list[Row]:
        """A row each gamma and fold, in the order in which they came."""
        places = np.argwhere(self.ranks >= 0)
        return [self._row(number + 1, int(i), int(k)) for number, (i, k) in enumerate(places)]

    def _row(self, number: int, i: int, k: int) -> Row:
        told = {"gamma": float(self.gammas[i]), "fold": k, "error": float(self.errors[i, k])}
        return {"iteration": number, **told, "rank": int(self.ranks[i, k]), "seconds": float(self.seconds[i, k])}

    @classmethod
    def of(cls, gammas: Vector, paths: Sequence[FoldPath]) -> GammaChoice:
        """From the folds' paths, of which the first may be one gamma ahead."""
        tried = max(1, max(len(path.errors) for path in paths))

        def table(of: Callable[[FoldPath], Sequence[float]], fill: float) -> Vector:
            return np.array([[*of(path), *[fill] * (tried - len(path.errors))] for path in paths]).T

        return cls(
            np.array(gammas[:tried], dtype=float),
            table(lambda path: path.errors, np.nan),
            table(lambda path: path.ranks, -1).astype(np.int64),
            table(lambda path: path.seconds, np.nan),
        )


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
