"""Logistic curve with a floor: how likely a score's label is, where a share e of the labels is wrong.

    P(1 | s) = e + (1 - 2 e) q,   q = 1 / (1 + exp(-a s - b)),   a >= 0,   0 < e <= 0.45

q is the probability that the true label is 1, and e that the given label is the other one. So P(wrong | 1, s) = e (1 - q) / P and
P(wrong | 0, s) = e q / (1 - P).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

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
