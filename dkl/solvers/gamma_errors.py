"""What cross-validation of gamma has found: the errors of each fold along its path, and the gamma that follows from them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dkl.solvers.watch import Row

Vector = NDArray[np.float64]
BETTER = 1e-3
"""Share of the least mean error by which others count as equal to it."""


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
