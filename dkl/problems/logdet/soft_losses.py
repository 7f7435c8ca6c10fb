"""Smooth neighbors of losses whose conjugate ends at a bound: strictly convex, with the inverse of their slope.

The dual of problem (3) keeps the slopes of a hinge between two numbers. A barrier of weight `width` at these bounds makes the dual smooth,
and its path in `width` is an interior point method's (Boyd & Vandenberghe 2004, 11.2).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit, spence

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class SoftHingeLoss:
    """width log(1 + exp((1 - x) / width)): the hinge within width log 2, with slopes between -1 and 0 and curvature everywhere."""

    width: float
    lowest: ClassVar[float] = 0.0

    def value(self, margins: Vector, /) -> Vector:
        """Return psi (c,)."""
        return self.width * np.logaddexp(0.0, (1.0 - margins) / self.width)

    def first(self, margins: Vector, /) -> Vector:
        """Return psi' = -1 / (1 + exp((x - 1) / width))."""
        return -expit((1.0 - margins) / self.width)

    def second(self, margins: Vector, /) -> Vector:
        """Return psi'' = -psi' (1 + psi') / width."""
        return expit((1.0 - margins) / self.width) * expit((margins - 1.0) / self.width) / self.width

    def margins_of(self, slopes: Vector, /) -> Vector:
        """Return 1 - width logit(-y) for slopes -1 <= y <= 0, finite if rounded to 0 or -1; else NaN."""
        rounding = np.finfo(np.float64)
        share = np.where((slopes >= -1.0 - 4.0 * rounding.eps) & (slopes <= 0.0), -slopes, np.nan)
        return 1.0 - self.width * logit(np.clip(share, rounding.tiny, 1.0 - rounding.epsneg))


@dataclass(frozen=True)
class SoftBendLoss:
    """The hinge of (8), which bends from t to 1, as the mean of the soft hinges of `width` whose corners lie there: within M width log 2.

    With d = (1 - t) / width, z = (1 - x) / width, s(z) = log(1 + exp(z)) and S its integral, S(z) = -Li2(-exp(z)):
        psi = M width / d (S(z) - S(z - d)),   psi' = -M / d (s(z) - s(z - d)),   M = 4 / (3 + t), the steepest slope.
    """

    t: float
    width: float
    lowest: ClassVar[float] = 0.0

    def _scaled(self, margins: Vector) -> tuple[Vector, float, float]:
        """Return z (c,), d and M."""
        return (1.0 - margins) / self.width, (1.0 - self.t) / self.width, 4.0 / (3.0 + self.t)

    def value(self, margins: Vector, /) -> Vector:
        """Return psi (c,)."""
        z, d, steepest = self._scaled(margins)
        # S(z) is z^2 / 2 + pi^2 / 6 less a tail: of two large ones the squares are subtracted first.
        both = np.maximum(z - d, 0.0) * d + np.where(z > d, d * d, np.maximum(z, 0.0) ** 2) / 2.0
        offset = np.pi**2 / 6.0 * (np.heaviside(z, 0.0) - np.heaviside(z - d, 0.0))
        return steepest * self.width / d * (both + offset + _tail(z) - _tail(z - d))

    def first(self, margins: Vector, /) -> Vector:
        """Return psi' = -M / d (s(z) - s(z - d))."""
        z, d, steepest = self._scaled(margins)
        linear = np.clip(z, 0.0, d)  # of s(z) = max(z, 0) + log(1 + exp(-|z|))
        return -steepest / d * (linear + np.log1p(np.exp(-np.abs(z))) - np.log1p(np.exp(-np.abs(z - d))))

    def second(self, margins: Vector, /) -> Vector:
        """Return psi'' = M / (d width) (s'(z) - s'(z - d)), as a product: nothing cancels."""
        z, d, steepest = self._scaled(margins)
        return steepest / (d * self.width) * expit(z) * expit(d - z) * -np.expm1(-d)

    def margins_of(self, slopes: Vector, /) -> Vector:
        """1 - width (a + log((1 - exp(-a)) / (1 - exp(a - d)))), a = -y d / M, of slopes -M <= y <= 0, finite where rounding made
        them 0 or -M; else NaN."""
        _, d, steepest = self._scaled(slopes)
        rounding = np.finfo(np.float64)
        share = slopes / -steepest
        share = np.where((share >= -4.0 * rounding.eps) & (share <= 1.0 + 4.0 * rounding.eps), share, np.nan)
        share = np.clip(share, rounding.tiny, 1.0 - rounding.epsneg)
        a = d * share
        return 1.0 - self.width * (a + np.log(-np.expm1(-a)) - np.log(-np.expm1(-d * (1.0 - share))))


def _tail(z: Vector) -> Vector:
    """Return S(z) less z^2 / 2 + pi^2 / 6 where z > 0: -sign(z) Li2(-exp(-|z|)) of either sign."""
    return np.where(z > 0.0, 1.0, -1.0) * spence(1.0 + np.exp(-np.abs(z)))
