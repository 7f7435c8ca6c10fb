"""Smooth neighbours of losses whose conjugate ends at a bound: strictly convex, with the inverse of their slope.

The dual of problem (3) keeps the slopes of a hinge between -1 and 0, and those of ITML's loss on one side of 0. A barrier of weight
`width` at these bounds makes the dual smooth, and its path in `width` is an interior point method's (Boyd & Vandenberghe 2004, 11.2).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class SoftHingeLoss:
    """width log(1 + exp((1 - x) / width)): the hinge within width log 2, with slopes between -1 and 0 and curvature everywhere."""

    width: float
    lowest: ClassVar[float] = 0.0

    def value(self, margins: Vector, /) -> Vector:
        """psi (c,)."""
        return self.width * np.logaddexp(0.0, (1.0 - margins) / self.width)

    def first(self, margins: Vector, /) -> Vector:
        """-1 / (1 + exp((x - 1) / width))."""
        return -expit((1.0 - margins) / self.width)

    def second(self, margins: Vector, /) -> Vector:
        """-psi' (1 + psi') / width."""
        return expit((1.0 - margins) / self.width) * expit((margins - 1.0) / self.width) / self.width

    def margins_of(self, slopes: Vector, /) -> Vector:
        """1 - width logit(-y) of slopes -1 <= y <= 0, finite where rounding made them 0 or -1; else NaN."""
        rounding = np.finfo(np.float64)
        share = np.where((slopes >= -1.0 - 4.0 * rounding.eps) & (slopes <= 0.0), -slopes, np.nan)
        return 1.0 - self.width * logit(np.clip(share, rounding.tiny, 1.0 - rounding.epsneg))


@dataclass(frozen=True)
class SoftItmlLoss:
    """ITML's loss with a barrier in its conjugate: psi*(y) = -log(1 - v) - width log(|v| / width), v = b y.

    v is in (0, 1) for `similar` pairs and negative for others, whatever the margin; b is `upper` or `lower`. With r = x / b,
        r = 1 / (1 - v) - width / v,   that is   r v^2 + (1 + width - r) v - width = 0,
    of which similar pairs have the positive root and others the negative one.
    """

    similar: NDArray[np.bool_]
    upper: float
    lower: float
    width: float

    @property
    def _bound(self) -> Vector:
        """b (c,)."""
        return np.where(self.similar, self.upper, self.lower)

    def _shares(self, margins: Vector) -> tuple[Vector, Vector]:
        """(r, v); of a pair that is not similar v is -inf where r is not positive."""
        r = margins / self._bound
        middle = 1.0 + self.width - r
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            root = np.sqrt(np.maximum(middle**2 + 4.0 * self.width * r, 0.0))
            # Each root in the form in which nothing cancels.
            positive = np.where(middle > 0, 2.0 * self.width / (middle + root), (root - middle) / (2.0 * r))
            negative = np.where(middle > 0, -(middle + root) / (2.0 * r), -2.0 * self.width / (root - middle))
        return r, np.where(self.similar, positive, np.where(r > 0, negative, -np.inf))

    def value(self, margins: Vector, /) -> Vector:
        """psi (c,) = r v - psi*, inf outside the domain."""
        r, v = self._shares(margins)
        inside = np.isfinite(v)
        safe = np.where(inside, v, -1.0)
        found = r * safe + np.log1p(-safe) + self.width * np.log(np.abs(safe) / self.width)
        return np.where(inside, found, np.inf)

    def first(self, margins: Vector, /) -> Vector:
        """v / b."""
        return self._shares(margins)[1] / self._bound

    def second(self, margins: Vector, /) -> Vector:
        """dv/dr / b^2 = 1 / (b^2 (1 / (1 - v)^2 + width / v^2))."""
        v = self._shares(margins)[1]
        return 1.0 / (self._bound**2 * (1.0 / (1.0 - v) ** 2 + self.width / v**2))

    def margins_of(self, slopes: Vector, /) -> Vector:
        """b r of slopes 0 <= y <= 1/b of similar pairs and y <= 0 of others, finite where rounding made them an end; else NaN."""
        rounding = np.finfo(np.float64)
        v = self._bound * slopes
        inside = np.where(self.similar, (v >= 0.0) & (v <= 1.0 + 4.0 * rounding.eps), v <= 0.0)
        v = np.where(self.similar, np.clip(v, rounding.tiny, 1.0 - rounding.epsneg), np.minimum(v, -rounding.tiny))
        return np.where(inside, self._bound * (1.0 / (1.0 - v) - self.width / v), np.nan)
