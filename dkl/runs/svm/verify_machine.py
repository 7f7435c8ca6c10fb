"""A machine's numbers for `dkl verify`, from labels, bounds, alpha and scores alone: see verify.py in this folder."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dkl.runs.verify.recomputed import Vector, least_charge, middle_intercept

AGREE = 1e-9
"""Tolerance relative to the sizes that are summed up."""
SHARE = 0.25
"""Share of the margin that rho="scale" means. Runs store the word: another share would need another."""


@dataclass(frozen=True)
class BinaryProblem:
    """The rows of a machine, their labels, bounds and alpha; its b, and the shares of the kernels in its K."""

    rows: NDArray[np.intp]
    y: Vector
    C: Vector
    alpha: Vector
    b: float
    shares: Vector

    def proven(self, scores: NDArray[np.float64], rho: float) -> tuple[float, float, float, float, float]:
        """Return (f, least gap over b, gap at the stored b, rounding of f, rounding of gaps).
        From scores (kernels, rows)."""
        alpha, y, square = self.alpha, self.y, float(self.alpha @ self.alpha)
        product = y * (self.shares @ scores)
        quadratic, linear, quartic = float(alpha @ product), 2 * float(alpha.sum()), square**2 / (4 * rho)
        gradient = 2 * (product - 1) + square / rho * alpha
        inner = float(alpha @ gradient)
        gap = max(inner + least_charge(gradient, y, self.C), 0.0)
        over = np.maximum(0.0, -gradient - 2 * self.b * y)
        gap_at_b = inner + float(self.C @ over)
        # Rows are charged their C for a gradient of scores that may be large where alpha, and so the objective, is tiny.
        charged = float(self.C @ np.where(over > 0, 2 * np.abs(product) + 2 + 2 * abs(self.b), 0.0))
        allowed = AGREE * (float(np.abs(alpha) @ np.abs(gradient)) + quadratic + linear + quartic)
        return quadratic - linear + quartic, gap, gap_at_b, allowed, allowed + AGREE * charged

    def intercept(self, scores: NDArray[np.float64], rho: float) -> tuple[float, float]:
        """Return (b, how far rounding may move it): the middle of the b of least gap, which may be flat."""
        alpha, y = self.alpha, self.y
        parts = 2 * self.shares @ scores, -2 * y, float(alpha @ alpha) / rho * y * alpha
        gradient = y * sum(parts)
        return middle_intercept(gradient, y, self.C), AGREE * max(float(np.abs(part).max()) for part in parts)


def scaled_rho(y: Vector, C: Vector) -> float:
    """Return the number that rho="scale" means for these labels and bounds.
    |alpha|^2 is largest in P where the largest bounds are full, as far as the class of the smaller sum has what the
    other needs."""
    unit, square = C / C.max(), 0.0  # C^3 may be beyond every double
    most = min(unit[y > 0].sum(), unit[y < 0].sum())
    for side in (np.sort(unit[y > 0])[::-1], np.sort(unit[y < 0])[::-1]):
        before = np.append(0.0, np.cumsum(side)[:-1])
        square += float((np.clip(most - before, 0.0, side) ** 2).sum())
    limits = np.finfo(float)
    with np.errstate(over="ignore", under="ignore"):
        return float(np.clip(C.max() ** 3 * (square / (2 * SHARE)), limits.tiny, limits.max))
