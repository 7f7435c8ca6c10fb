"""Losses of a constraint's margin x = tr(K A), with what Newton's method and the dual of problem (3) ask of them.

A loss is any object with the three methods of `Loss`; `as_loss` checks one of a user's. psi is convex, finite where `domain`
allows, and twice differentiable but at single points. Its conjugate psi*(y) = sup over x of x y - psi(x) makes the dual
(`problems/logdet.py`); at y = psi'(x) it is x psi'(x) - psi(x), so that a dual bound needs no conjugate in closed form.
Li et al. 2009, Table 2 and (8).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]


class Loss(Protocol):
    """psi of all margins (c,), elementwise. Margins outside the domain have the value inf."""

    def value(self, margins: Vector) -> Vector:
        """psi."""

    def first(self, margins: Vector) -> Vector:
        """psi'."""

    def second(self, margins: Vector) -> Vector:
        """psi'', not negative."""


@dataclass(frozen=True)
class LogLoss:
    """psi(x) = log(1 + exp(-2 x))."""

    def value(self, margins: Vector) -> Vector:
        """psi."""
        return np.logaddexp(0.0, -2.0 * margins)

    def first(self, margins: Vector) -> Vector:
        """psi'."""
        raise NotImplementedError

    def second(self, margins: Vector) -> Vector:
        """psi''."""
        raise NotImplementedError


@dataclass(frozen=True)
class SmoothedHingeLoss:
    """max(1 - x, 0), smoothed below 1 by (8): linear up to `t`, quadratic from `t` to 1. The paper's LMNN loss, and Hoi's."""

    t: float = 0.7


@dataclass(frozen=True)
class LinearLoss:
    """psi(x) = -x."""


@dataclass(frozen=True)
class ItmlLoss:
    """x/b - log(x/b) - 1 of squared distances x: above b = `upper` where `similar` (c,), below b = `lower` elsewhere, else 0."""

    similar: NDArray[np.bool_]
    upper: float
    lower: float


def as_loss(loss: str | Loss, **parameters: object) -> Loss:
    """One of "log", "lmnn" (t=), "linear", "itml" (similar=, upper=, lower=), "hoi" (t=), or a user's object, checked.

    InputError for an unknown name; for a user's loss that is not finite, or has negative or wrong derivatives, on trial margins.
    """
    raise NotImplementedError
