"""Choice of gamma, the weight of the pairs, by pairs held out: kernels along a path upwards, a warm-started one a fold.

Upwards, as the optimum of a small gamma has a low rank and is found at once, and each is a start for the next. Chosen is the gamma under
which the pairs held out are most likely, by a logistic curve of their scores whose floor is the share of wrong pairs; see
`GammaChoice`. Their squared error chooses too small a gamma where all pairs are right.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dkl.solvers.pairwise.low_rank import FactoredSolution
from dkl.solvers.watch import Outcome, Row, Watch

# -- curve -------------------------------------------------------------------------------------------------------------
# Logistic curve with a floor: how likely a score's label is, where a share e of the labels is wrong.
#     P(1 | s) = e + (1 - 2 e) q,   q = 1 / (1 + exp(-a s - b)),   a >= 0,   0 < e <= 0.45
# q is the probability that the true label is 1, and e that the given label is the other one. So P(wrong | 1, s) = e (1 - q) / P and
# P(wrong | 0, s) = e q / (1 - P).

Vector = NDArray[np.float64]
RIDGE = 5e-5
"""Weight of a^2 for each label, of scores with mean 0 and variance 1: labels that a score separates leave a finite."""
FLOORS = (1e-6, 0.45)
"""Bounds of e: log P is finite, and 1 more likely at high scores."""
STARTS = (0.02, 0.1, 0.22)
"""Values of e to start at: the likelihood may have several maxima."""


def _sigmoid(x: Vector) -> Vector:
    """Return 1 / (1 + exp(-x)), without overflow."""
    return 0.5 * (1.0 + np.tanh(0.5 * x))


@dataclass(frozen=True)
class NoisyLogistic:
    """The curve: slope a, intercept b and floor e; log_likelihood of the labels it was fitted to."""

    slope: float
    intercept: float
    floor: float
    log_likelihood: float

    @classmethod
    def fit(cls, scores: Vector, labels: NDArray[np.bool_], weights: Vector) -> NoisyLogistic:
        """Maximize sum_i w_i log P(label_i | s_i) - RIDGE sum(w) a^2, with a of the standardized scores; weights (m,) >= 0."""
        from scipy.optimize import minimize  # not for who only reads what was found

        total = float(weights.sum())
        # Scores are standardized, so that RIDGE means the same for kernels of any scale.
        mean = float(weights @ scores) / total
        spread = float(np.sqrt(weights @ (scores - mean) ** 2 / total)) or 1.0
        standard, label = (scores - mean) / spread, labels.astype(float)

        def loss(x: Vector) -> tuple[float, Vector]:
            """Return the negative objective at x = (a, b, e) and its gradient."""
            q = _sigmoid(x[0] * standard + x[1])
            p = x[2] + (1 - 2 * x[2]) * q
            pull = weights * (label / p - (1 - label) / (1 - p))
            along = pull * (1 - 2 * x[2]) * q * (1 - q)
            value = float(weights @ np.where(labels, np.log(p), np.log1p(-p))) - RIDGE * total * x[0] ** 2
            slope = float(along @ standard) - 2 * RIDGE * total * x[0]
            return -value / total, -np.array([slope, along.sum(), pull @ (1 - 2 * q)]) / total

        # Labels of one kind alone would start the intercept at infinity.
        share = float(np.clip(weights @ label / total, 0.01, 0.99))
        starts = [np.array([1.0, np.log(share / (1 - share)), floor]) for floor in STARTS]
        bounds = [(0.0, None), (None, None), FLOORS]
        # From several floors, as the likelihood may have several maxima.
        found = [minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds) for start in starts]
        slope, intercept, floor = min(found, key=lambda one: float(one.fun)).x
        curve = cls(float(slope / spread), float(intercept - slope * mean / spread), float(floor), 0.0)
        # Once more without the ridge, which is no part of the likelihood.
        p = np.where(labels, curve.probability(scores), 1 - curve.probability(scores))
        return cls(curve.slope, curve.intercept, curve.floor, float(weights @ np.log(p)))

    @property
    def parameters(self) -> tuple[float, float, float]:
        """Return (slope, intercept, floor)."""
        return self.slope, self.intercept, self.floor

    def _true(self, scores: Vector) -> Vector:
        """Return q (m,), the probability that the true label is 1."""
        return _sigmoid(self.slope * scores + self.intercept)

    def probability(self, scores: Vector) -> Vector:
        """Return P (m,), the probability that the given label is 1."""
        return self.floor + (1 - 2 * self.floor) * self._true(scores)

    def wrong(self, scores: Vector, labels: NDArray[np.bool_]) -> Vector:
        """Return the probability (m,) that each label is wrong."""
        q = self._true(scores)
        p = self.floor + (1 - 2 * self.floor) * q
        return np.where(labels, self.floor * (1 - q) / p, self.floor * q / (1 - p))


# -- path --------------------------------------------------------------------------------------------------------------


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


# Scores of pairs that were held out, along a path of gamma, and the gamma under which these pairs are most likely.

Flags = NDArray[np.bool_]
MARGIN = 1.0
"""Nats, over all pairs held out, by which a gamma has to be more likely than the last of the path to be chosen in its place."""


@dataclass
class FoldPath:
    """Progress of a fold along the path of gamma.

    factor (n, r): at the last gamma; scores, cosines: of each gamma so far, (p,) each, the kernel and its cosine at the pairs
    held out; ranks; seconds: of the run, when each gamma was done.
    """

    factor: NDArray | None = field(default=None, repr=False)
    scores: list[Vector] = field(default_factory=list, repr=False)
    cosines: list[Vector] = field(default_factory=list, repr=False)
    ranks: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class GammaChoice:
    """Choice of gamma by held-out pairs.

    gammas          (k,) ascending
    scores, cosines (k, m) K_ij, and K_ij / sqrt(K_ii K_jj), of each pair under the kernel of the fold that did not learn from it;
                    NaN for pairs that no fold scores, and where a callback ended the choice before
    curves          (k, 3) slope, intercept and floor of a `NoisyLogistic` of the scores; NaN where not all folds have the gamma
    log_likelihood  (k,) of the pairs by this curve; NaN likewise
    ranks, seconds  (k, folds): -1 and NaN likewise
    """

    gammas: Vector
    scores: Vector = field(repr=False)
    cosines: Vector = field(repr=False)
    curves: Vector = field(repr=False)
    log_likelihood: Vector
    ranks: NDArray[np.int64]
    seconds: Vector = field(repr=False)

    @property
    def best(self) -> int:
        """Return the position of the most likely gamma, or of the largest unless another leads by MARGIN."""
        whole = np.flatnonzero(~np.isnan(self.log_likelihood))
        if not len(whole):
            return len(self.gammas) - 1
        likely, last = int(whole[np.argmax(self.log_likelihood[whole])]), int(whole[-1])
        return likely if self.log_likelihood[likely] > self.log_likelihood[last] + MARGIN else last

    @property
    def gamma(self) -> float:
        """Return the chosen gamma."""
        return float(self.gammas[self.best])

    @property
    def is_whole(self) -> bool:
        """Return True if all folds have all gammas."""
        return not bool(np.isnan(self.log_likelihood).any())

    @property
    def rows(self) -> list[Row]:
        """Return the history rows, one a gamma and fold."""
        return rows_of(self.gammas, self.ranks, self.seconds)

    @classmethod
    def of(
        cls, gammas: Vector, paths: Sequence[FoldPath], held_out: Sequence[Flags], is_must: Flags, weights: Vector
    ) -> GammaChoice:
        """Collect the folds' paths along `gammas`, which a callback may have ended anywhere.

        held_out: of each fold, (m,) flags of the pairs it scores; is_must, weights: (m,) of the pairs, weights with mean 1.
        """
        whole, m = min(len(path.ranks) for path in paths), len(is_must)
        scores, cosines = np.full((len(gammas), m), np.nan), np.full((len(gammas), m), np.nan)
        for path, flags in zip(paths, held_out, strict=True):
            for i in range(len(path.ranks)):
                scores[i, flags], cosines[i, flags] = path.scores[i], path.cosines[i]
        scored, likely = np.any(held_out, axis=0), np.full(len(gammas), np.nan)
        curves = np.full((len(gammas), 3), np.nan)
        for i in range(whole):
            # Weights have mean 1, so that a likelihood in nats means the same for any scale of them.
            curve = NoisyLogistic.fit(scores[i, scored], is_must[scored], weights[scored])
            curves[i], likely[i] = curve.parameters, curve.log_likelihood
        return cls(np.array(gammas, dtype=float), scores, cosines, curves, likely, *tables_of(paths, len(gammas)))


def tables_of(paths: Sequence[FoldPath], count: int) -> tuple[NDArray[np.int64], Vector]:
    """Return ranks and seconds (count, folds) of the folds' paths; -1 and NaN where a fold has not come so far."""
    ranks, seconds = np.full((count, len(paths)), -1, np.int64), np.full((count, len(paths)), np.nan)
    for k, path in enumerate(paths):
        ranks[: len(path.ranks), k], seconds[: len(path.ranks), k] = path.ranks, path.seconds
    return ranks, seconds


def rows_of(gammas: Vector, ranks: NDArray[np.int64], seconds: Vector) -> list[Row]:
    """Return the history rows of the folds, one a gamma and fold, from their tables (k, folds)."""
    places = [(int(i), int(k)) for i, k in np.argwhere(ranks >= 0)]
    return [
        {
            "iteration": number + 1,
            "gamma": float(gammas[i]),
            "fold": k,
            "rank": int(ranks[i, k]),
            "seconds": float(seconds[i, k]),
        }
        for number, (i, k) in enumerate(places)
    ]
