"""Losses of a constraint's margin x = tr(K A), with what Newton's method and the dual of problem (3) ask of them.

psi is convex, and twice differentiable but at single points. Its conjugate psi*(y) = sup over x of x y - psi(x) makes the dual
(`problems/logdet.py`). At y = psi'(x) it is x psi'(x) - psi(x) for any convex psi: a lower bound there needs psi and psi' alone,
so that a user's loss gets the same certificate as ours. `lowest`, the infimum of psi, may be told by a loss that has one: then
something is proven from the first step on. Li et al. 2009, Table 2 and (8).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, logit

from dkl.errors import InputError

Vector = NDArray[np.float64]
TRIALS = np.concatenate([-np.logspace(2, -3, 12), [0.0], np.logspace(-3, 2, 12)])
"""Margins at which a user's loss is tried."""
SLOPE_ERROR = 1e-4
"""How far from its slope by differences a derivative may be, relative to 1 and the derivatives nearby."""


@runtime_checkable
class Loss(Protocol):
    """psi of all margins (c,), elementwise. A margin outside the domain has the value inf."""

    def value(self, margins: Vector, /) -> Vector:
        """psi (c,)."""

    def first(self, margins: Vector, /) -> Vector:
        """psi' (c,)."""

    def second(self, margins: Vector, /) -> Vector:
        """psi'' (c,), not negative."""


@runtime_checkable
class InvertibleLoss(Loss, Protocol):
    """A strictly convex loss that knows the inverse of its slope, which the dual's Newton method goes by."""

    def margins_of(self, slopes: Vector, /) -> Vector:
        """(c,) the margins x with psi'(x) = slopes; not finite where there are none."""


@dataclass(frozen=True)
class LogLoss:
    """psi(x) = log(1 + exp(-2 x)): Table 2, the paper's own."""

    lowest: ClassVar[float] = 0.0

    def value(self, margins: Vector, /) -> Vector:
        """psi (c,)."""
        return np.logaddexp(0.0, -2.0 * margins)

    def first(self, margins: Vector, /) -> Vector:
        """-2 / (1 + exp(2 x))."""
        return -2.0 * expit(-2.0 * margins)

    def second(self, margins: Vector, /) -> Vector:
        """4 / ((1 + exp(2 x)) (1 + exp(-2 x)))."""
        return 4.0 * expit(-2.0 * margins) * expit(2.0 * margins)

    def margins_of(self, slopes: Vector, /) -> Vector:
        """-logit(-y / 2) / 2 of slopes -2 <= y <= 0, finite where rounding made them 0 or -2; else NaN."""
        rounding = np.finfo(np.float64)
        share = np.where((slopes >= -2.0 * (1.0 + 4.0 * rounding.eps)) & (slopes <= 0.0), -0.5 * slopes, np.nan)
        return -0.5 * logit(np.clip(share, rounding.tiny, 1.0 - rounding.epsneg))


@dataclass(frozen=True)
class SmoothedHingeLoss:
    """max(1 - x, 0) as (8) smooths it: linear up to t < 1, quadratic from t to 1, then 0. LMNN's loss and Hoi's."""

    t: float = 0.7
    lowest: ClassVar[float] = 0.0

    def __post_init__(self) -> None:
        if not -3.0 < self.t < 1.0:
            raise InputError(
                "not a smoothing of the hinge", where="t", got=self.t, wanted="more than -3 and less than 1"
            )

    def value(self, margins: Vector, /) -> Vector:
        """psi (c,)."""
        below = np.maximum(1.0 - margins, 0.0)
        bend = 2.0 * below**2 / ((1.0 - self.t) * (3.0 + self.t))
        return np.where(margins <= self.t, (2.0 + 2.0 * self.t - 4.0 * margins) / (3.0 + self.t), bend)

    def first(self, margins: Vector, /) -> Vector:
        """-4 / (3 + t) up to t, then rising to 0 at 1."""
        return -4.0 / (3.0 + self.t) * np.clip((1.0 - margins) / (1.0 - self.t), 0.0, 1.0)

    def second(self, margins: Vector, /) -> Vector:
        """4 / ((1 - t)(3 + t)) between t and 1, else 0."""
        return np.where((margins > self.t) & (margins < 1.0), 4.0 / ((1.0 - self.t) * (3.0 + self.t)), 0.0)


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
class HingeLoss:
    """max(1 - x, 0) itself: LMNN's loss and Hoi's in Table 2, by ever narrower `SoftHingeLoss`es (`solvers/logdet_hinge.py`)."""

    lowest: ClassVar[float] = 0.0

    def value(self, margins: Vector, /) -> Vector:
        """psi (c,)."""
        return np.maximum(1.0 - margins, 0.0)

    def first(self, margins: Vector, /) -> Vector:
        """-1 below 1, else 0."""
        return np.where(margins < 1.0, -1.0, 0.0)

    def second(self, margins: Vector, /) -> Vector:
        """0."""
        return np.zeros(margins.shape)

    def softened(self, width: float) -> SoftHingeLoss:
        """Within width log 2 of it."""
        return SoftHingeLoss(width)


@dataclass(frozen=True)
class LinearLoss:
    """psi(x) = -x: Table 2. The optimum is (K0^-1 - w sum A_t)^-1, and there is none where that is not positive definite."""

    def value(self, margins: Vector, /) -> Vector:
        """-x."""
        return -margins

    def first(self, margins: Vector, /) -> Vector:
        """-1."""
        return np.full(margins.shape, -1.0)

    def second(self, margins: Vector, /) -> Vector:
        """0."""
        return np.zeros(margins.shape)


@dataclass(frozen=True)
class ItmlLoss:
    """x/b - log(x/b) - 1 of squared distances x > 0: above b = `upper` for `similar` pairs, below b = `lower` for others, else 0.

    similar: (c,) one for each constraint. Table 2; Davis et al. 2007.
    """

    similar: NDArray[np.bool_]
    upper: float
    lower: float
    lowest: ClassVar[float] = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "similar", np.asarray(self.similar, dtype=bool))
        for name in ("upper", "lower"):
            if not (np.isfinite(getattr(self, name)) and getattr(self, name) > 0):
                raise InputError("not a squared distance", where=name, got=getattr(self, name), wanted="more than 0")

    def _ratio(self, margins: Vector) -> tuple[Vector, Vector, NDArray[np.bool_]]:
        """x / b with b; and where the loss is not 0."""
        bound = np.where(self.similar, self.upper, self.lower)
        ratio = margins / bound
        return ratio, bound, np.where(self.similar, ratio > 1.0, ratio < 1.0)

    def value(self, margins: Vector, /) -> Vector:
        """psi (c,), inf for margins that are not positive."""
        ratio, _, counts = self._ratio(margins)
        is_inside = ratio > 0
        safe = np.where(counts & is_inside, ratio, 1.0)
        outside = np.where(self.similar, 0.0, np.inf)
        return np.where(is_inside, safe - 1.0 - np.log(safe), outside)

    def first(self, margins: Vector, /) -> Vector:
        """1/b - 1/x where it counts."""
        ratio, bound, counts = self._ratio(margins)
        return np.where(counts, (1.0 - 1.0 / np.where(counts, ratio, 1.0)) / bound, 0.0)

    def second(self, margins: Vector, /) -> Vector:
        """1/x^2 where it counts."""
        ratio, bound, counts = self._ratio(margins)
        return np.where(counts, 1.0 / (np.where(counts, ratio, 1.0) * bound) ** 2, 0.0)


def as_loss(loss: str | Loss, **parameters: Any) -> Loss:
    """One of "log", "lmnn" and "hoi" (t=0.7), "hinge" and "hoi_hinge", "linear", "itml" (similar=, upper=, lower=), or an object, checked.

    InputError for an unknown name, and for a user's loss that on trial margins is not finite, has a negative curvature, or
    derivatives that are not its slopes.
    """
    ours: dict[str, type[Any]] = {
        "log": LogLoss, "lmnn": SmoothedHingeLoss, "hoi": SmoothedHingeLoss, "hinge": HingeLoss, "hoi_hinge": HingeLoss,
        "linear": LinearLoss, "itml": ItmlLoss,
    }  # fmt: skip
    if isinstance(loss, str):
        if loss not in ours:
            raise InputError(
                "unknown loss", where="loss", got=repr(loss), wanted=f"one of {', '.join(ours)}, or an object"
            )
        return ours[loss](**parameters)
    if not isinstance(loss, Loss):
        raise InputError("not a loss", where="loss", got=type(loss).__name__, wanted="methods value, first and second")
    if not isinstance(loss, tuple(ours.values())):
        check_loss(loss)
    return loss


def check_loss(loss: Loss, margins: ArrayLike = TRIALS) -> None:
    """InputError unless psi is finite, psi'' >= 0, psi' its slope, and psi above its tangents, on trial margins (k,).

    Slopes are compared where the curvature on both sides is alike: psi' may have corners.
    """
    x = np.asarray(margins, dtype=np.float64)
    value, first, second = (_called(loss, name, x) for name in ("value", "first", "second"))
    for name, got in (("value", value), ("first", first), ("second", second)):
        if got.shape != x.shape or not np.all(np.isfinite(got)):
            bad = x[~np.isfinite(got)][:1] if got.shape == x.shape else "an array of another shape"
            raise InputError(
                "not finite elementwise", where=f"loss.{name}", got=f"{bad} of margins {x[0]:g} to {x[-1]:g}"
            )
    if (second < 0).any():
        where = x[second < 0][0]
        raise InputError(
            "negative curvature: not a convex loss",
            where=f"loss.second({where:g})",
            got=f"{second[second < 0][0]:.3g}",
            wanted="0 or more",
        )
    step = 1e-6 * np.maximum(1.0, np.abs(x))
    above, below = _called(loss, "value", x + step), _called(loss, "value", x - step)
    slope, kink = (
        (above - below) / (2 * step),
        np.abs(_called(loss, "first", x + step) - _called(loss, "first", x - step)),
    )
    rounding = 1e-9 * (np.abs(above) + np.abs(below)) / step * 1e-3
    wrong = np.abs(slope - first) > SLOPE_ERROR * (1.0 + np.abs(first)) + kink + rounding
    if wrong.any():
        where = x[wrong][0]
        raise InputError(
            "not the slope of loss.value",
            where=f"loss.first({where:g})",
            got=f"{first[wrong][0]:.6g}",
            wanted=f"{slope[wrong][0]:.6g}",
        )
    tangent = value[:, None] + first[:, None] * (x[None, :] - x[:, None])
    if (tangent > value + 1e-6 * (1.0 + np.abs(value) + np.abs(tangent))).any():
        raise InputError("not convex: values below a tangent", where="loss.value")


def _called(loss: Loss, name: str, x: Vector) -> Vector:
    return np.asarray(getattr(loss, name)(x), dtype=np.float64)
