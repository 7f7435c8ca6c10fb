"""Smooth neighbours of losses whose conjugate ends at a bound: strictly convex, with the inverse of their slope.

The dual of problem (3) keeps the slopes of a hinge between -1 and 0. A barrier of weight `width` at these bounds makes the dual smooth,
and its path in `width` is an interior point method's (Boyd & Vandenberghe 2004, 11.2).
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
