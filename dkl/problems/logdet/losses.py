"""Losses of a constraint's margin x = tr(K A), for Newton's method and the dual of the LogDet problem (Li et al. 2009, (3)).

psi is convex, and twice differentiable but at single points. Its conjugate psi*(y) = sup over x of x y - psi(x) makes the dual
(`problems/logdet/problem.py`). At y = psi'(x) it is x psi'(x) - psi(x) for any convex psi: a lower bound there needs psi and psi' alone,
so that a user's loss gets the same certificate as ours. `lowest`, the infimum of psi, may be given by a loss that has one: then
something is proven from the first step on. Li et al. 2009, Table 2 and (8). `as_loss` returns the one that is asked for: by its name in
Table 2, or a user's, checked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, log_expit, logit, spence

from dkl.errors import InputError

Vector = NDArray[np.float64]

LEAST_BOUND = 1e-150
"""Smallest bound of a squared distance; 1 over it is the largest: squares of both, and of 1 over both, are still finite."""


@runtime_checkable
class Loss(Protocol):
    """psi of all margins (c,), elementwise. A margin outside the domain has the value inf."""

    def value(self, margins: Vector, /) -> Vector:
        """Return psi (c,)."""

    def first(self, margins: Vector, /) -> Vector:
        """Return psi' (c,)."""

    def second(self, margins: Vector, /) -> Vector:
        """Return psi'' (c,), not negative."""


@runtime_checkable
class InvertibleLoss(Loss, Protocol):
    """A strictly convex loss that knows the inverse of its slope, which the dual's Newton method goes by."""

    def margins_of(self, slopes: Vector, /) -> Vector:
        """Return the margins x (c,) with psi'(x) = slopes; not finite where no x has that slope."""


@runtime_checkable
class SoftenedLoss(Loss, Protocol):
    """Loss that is flat or straight beyond a margin, so that its conjugate ends: solved by ever narrower smooth ones."""

    def softened(self, width: float, /) -> InvertibleLoss:
        """Return a strictly convex loss with slopes of this one, the nearer to it the smaller the width."""

    def supports(self, slopes: Vector, /) -> Vector:
        """Return margins x (c,) at which the slopes y are (sub)gradients, so that psi*(y) = x y - psi(x)."""


@dataclass(frozen=True)
class LogLoss:
    """psi(x) = log(1 + exp(-2 x)): Table 2, the paper's own."""

    lowest: ClassVar[float] = 0.0

    def value(self, margins: Vector, /) -> Vector:
        """Return psi (c,)."""
        return np.asarray(-log_expit(2.0 * margins))  # in a third of logaddexp's time

    def first(self, margins: Vector, /) -> Vector:
        """Return psi' = -2 / (1 + exp(2 x))."""
        return -2.0 * expit(-2.0 * margins)

    def second(self, margins: Vector, /) -> Vector:
        """Return psi'' = 4 / ((1 + exp(2 x)) (1 + exp(-2 x)))."""
        tail = np.exp(-2.0 * np.abs(margins))  # of the smaller one of the two: nothing cancels or overflows
        return 4.0 * tail / (1.0 + tail) ** 2

    def margins_of(self, slopes: Vector, /) -> Vector:
        """Return -logit(-y / 2) / 2 of slopes -2 <= y <= 0, finite where rounding made them 0 or -2; else NaN."""
        rounding = np.finfo(np.float64)
        share = np.where((slopes >= -2.0 * (1.0 + 4.0 * rounding.eps)) & (slopes <= 0.0), -0.5 * slopes, np.nan)
        # The slope ends at -2 and at 0, where rounding may have put it: the nearest representable one is taken.
        share = np.clip(share, rounding.tiny, 1.0 - rounding.epsneg)
        return -0.5 * np.log(share / (1.0 - share))  # to an absolute eps, in less than half the time of SciPy's logit


@dataclass(frozen=True)
class SmoothedHingeLoss:
    """max(1 - x, 0) smoothed by (8): linear up to t < 1, quadratic to 1, then 0. LMNN's loss and Hoi's."""

    t: float = 0.7
    lowest: ClassVar[float] = 0.0

    def __post_init__(self) -> None:
        if not -3.0 < self.t < 1.0:
            # Outside of these values (1 - t) (3 + t) is not positive, and psi is not convex.
            raise InputError(
                "not a smoothing of the hinge", where="t", got=self.t, wanted="more than -3 and less than 1"
            )

    def value(self, margins: Vector, /) -> Vector:
        """Return psi (c,)."""
        # Below t the loss is straight, above 1 it is 0: the bend joins them with its slope.
        below = np.maximum(1.0 - margins, 0.0)
        bend = 2.0 * below**2 / ((1.0 - self.t) * (3.0 + self.t))
        return np.where(margins <= self.t, (2.0 + 2.0 * self.t - 4.0 * margins) / (3.0 + self.t), bend)

    def first(self, margins: Vector, /) -> Vector:
        """Return psi': -4 / (3 + t) up to t, then rising to 0 at 1."""
        return -4.0 / (3.0 + self.t) * np.clip((1.0 - margins) / (1.0 - self.t), 0.0, 1.0)

    def second(self, margins: Vector, /) -> Vector:
        """Return psi'': 4 / ((1 - t)(3 + t)) between t and 1, else 0."""
        return np.where((margins > self.t) & (margins < 1.0), 4.0 / ((1.0 - self.t) * (3.0 + self.t)), 0.0)

    def softened(self, width: float, /) -> SoftBendLoss:
        """Return a smooth loss within 4 / (3 + t) width log 2 of this one."""
        return SoftBendLoss(self.t, width)

    def supports(self, slopes: Vector, /) -> Vector:
        """Return 1 + y (1 - t) (3 + t) / 4 of slopes y from -4 / (3 + t) to 0."""
        return 1.0 + np.clip(slopes * (3.0 + self.t) / 4.0, -1.0, 0.0) * (1.0 - self.t)


@dataclass(frozen=True)
class LinearLoss:
    """Loss psi(x) = -x of Table 2. The optimum is (K0^-1 - w sum A_t)^-1, if that is positive definite."""

    def value(self, margins: Vector, /) -> Vector:
        """Return psi = -x."""
        return -margins

    def first(self, margins: Vector, /) -> Vector:
        """Return psi' = -1."""
        return np.full(margins.shape, -1.0)

    def second(self, margins: Vector, /) -> Vector:
        """Return psi'' = 0."""
        return np.zeros(margins.shape)


@dataclass(frozen=True)
class HingeLoss:
    """Hinge max(1 - x, 0): LMNN's loss and Hoi's in Table 2, by narrower `SoftHingeLoss`es."""

    lowest: ClassVar[float] = 0.0

    def value(self, margins: Vector, /) -> Vector:
        """Return psi (c,)."""
        return np.maximum(1.0 - margins, 0.0)

    def first(self, margins: Vector, /) -> Vector:
        """Return psi' (c,): -1 below 1, else 0."""
        return np.where(margins < 1.0, -1.0, 0.0)

    def second(self, margins: Vector, /) -> Vector:
        """Return psi'' = 0."""
        return np.zeros(margins.shape)

    def softened(self, width: float, /) -> SoftHingeLoss:
        """Return a smooth loss within width log 2 of this one."""
        return SoftHingeLoss(width)

    def supports(self, slopes: Vector, /) -> Vector:
        """Return 1, the corner, for every slope from -1 to 0."""
        return np.ones(slopes.shape)


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
        # The dataclass is frozen, so its field is set past its own guard.
        object.__setattr__(self, "similar", np.asarray(self.similar, dtype=bool))
        for name in ("upper", "lower"):
            bound = getattr(self, name)
            # Squares of the bounds and of their inverses appear in values and curvatures, and must stay finite.
            if not (np.isfinite(bound) and bound > 0):
                raise InputError("not a squared distance", where=name, got=bound, wanted="more than 0")
            if not LEAST_BOUND <= bound <= 1 / LEAST_BOUND:
                raise InputError(
                    "the square of a squared distance is beyond double precision", where=name, got=bound,
                    wanted=f"{LEAST_BOUND:g} to {1 / LEAST_BOUND:g}", remedy="scale X",
                )  # fmt: skip

    def some(self, chosen: NDArray[np.bool_]) -> ItmlLoss:
        """Return the loss of the chosen constraints (c,)."""
        return ItmlLoss(self.similar[chosen], self.upper, self.lower)

    def _ratio(self, margins: Vector) -> tuple[Vector, Vector, NDArray[np.bool_]]:
        """Return (x / b, b, where the loss is not 0)."""
        bound = np.where(self.similar, self.upper, self.lower)
        ratio = margins / bound
        return ratio, bound, np.where(self.similar, ratio > 1.0, ratio < 1.0)

    def value(self, margins: Vector, /) -> Vector:
        """Return psi (c,), inf for margins that are not positive."""
        ratio, bound, counts = self._ratio(margins)
        is_inside = ratio > 0
        counts = counts & is_inside
        safe = np.where(counts, ratio, 1.0)
        rest = np.where(counts, (margins - bound) / bound, 0.0)  # safe - 1, which rounding leaves nothing of near b
        log = np.where(safe < 0.5, np.log(safe), np.log1p(np.maximum(rest, -0.5)))
        return np.where(is_inside, rest - log, np.where(self.similar, 0.0, np.inf))

    def first(self, margins: Vector, /) -> Vector:
        """Return psi' (c,): 1/b - 1/x where the loss counts, else 0."""
        ratio, bound, counts = self._ratio(margins)
        return np.where(counts, (1.0 - 1.0 / np.where(counts, ratio, 1.0)) / bound, 0.0)

    def second(self, margins: Vector, /) -> Vector:
        """Return psi'' (c,): 1/x^2 where the loss counts, else 0."""
        ratio, bound, counts = self._ratio(margins)
        return np.where(counts, 1.0 / (np.where(counts, ratio, 1.0) * bound) ** 2, 0.0)


# Smooth neighbors of losses whose conjugate ends at a bound: strictly convex, with the inverse of their slope.
#
# The LogDet problem's dual keeps the slopes of a hinge between two numbers. A barrier of weight `width` at these bounds
# makes the dual smooth, and its path in `width` is an interior point method's (Boyd & Vandenberghe 2004, 11.2).


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
    """The hinge of (8), smoothed: the mean of the soft hinges of `width` whose corners lie where it bends, from t to 1.

    It is within M width log 2 of that hinge.
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
        """Return the margins of slopes -M <= y <= 0, finite where rounding made them 0 or -M; else NaN.

        They are 1 - width (a + log((1 - exp(-a)) / (1 - exp(a - d)))), a = -y d / M.
        """
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


TRIALS = np.concatenate([-np.logspace(2, -3, 12), [0.0], np.logspace(-3, 2, 12)])
"""Margins at which a user's loss is tried."""
SLOPE_ERROR = 1e-4
"""Largest error of a derivative against differences, relative to 1 and the derivatives nearby."""


def as_loss(loss: str | Loss, **parameters: Any) -> Loss:
    """Return the loss of a name with its parameters, or a user's object, checked.

    Names: "log", "lmnn" and "hoi" (t=0.7), "hinge" and "hoi_hinge", "linear", "itml" (similar=, upper=, lower=).
    InputError for an unknown name, and for a user's loss that `check_loss` refuses.
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
    # A user's loss may be of any class: it is asked for its three methods.
    if not isinstance(loss, Loss):
        raise InputError("not a loss", where="loss", got=type(loss).__name__, wanted="methods value, first and second")
    # Ours need no trial: their slopes and curvatures are derived, and tested.
    if not isinstance(loss, tuple(ours.values())):
        check_loss(loss)
    return loss


def check_loss(loss: Loss) -> None:
    """Raise InputError unless a user's loss is convex and its derivatives fit, on TRIALS.

    psi must be finite, or inf outside its domain, and above its tangents; psi' its slope, psi'' >= 0, and `margins_of`, where there is
    one, the inverse of psi'. Slopes are compared where the curvature on both sides is alike: psi' may have corners.
    """
    x = np.asarray(TRIALS, dtype=np.float64)
    value = _called(loss, "value", x)
    # Inf marks the end of the loss's domain; NaN is an error, reported below.
    inside = value < np.inf
    if np.isnan(value).any() or np.isneginf(value).any() or not inside.any():
        got, wanted = _first(x, value, ~np.isfinite(value)), "finite values, or inf outside the domain"
        raise InputError("not finite elementwise", where="loss.value", got=got, wanted=wanted)
    x, value = x[inside], value[inside]
    first, second = (_called(loss, name, x) for name in ("first", "second"))
    for name, found in (("first", first), ("second", second)):
        if not np.isfinite(found).all():
            got = _first(x, found, ~np.isfinite(found))
            raise InputError("not finite elementwise", where=f"loss.{name}", got=got, wanted="finite derivatives")
    if (second < 0).any():
        got = _first(x, second, second < 0)
        raise InputError("negative curvature: not a convex loss", where="loss.second", got=got, wanted="0 or more")
    _check_slopes(loss, x, first)
    # Convexity is checked by tangents: a value below one of them means a loss that is not convex.
    tangent = value[:, None] + first[:, None] * (x[None, :] - x[:, None])
    if (tangent > value + 1e-6 * (1.0 + np.abs(value) + np.abs(tangent))).any():
        raise InputError("not convex: values below a tangent", where="loss.value")
    if isinstance(loss, InvertibleLoss):
        _check_inverse(loss, first, second)


def _check_slopes(loss: Loss, x: Vector, first: Vector) -> None:
    """Raise InputError where psi' is not the slope of psi by differences."""
    # Central differences, as one-sided ones are off by half a curvature.
    step = 1e-6 * np.maximum(1.0, np.abs(x))
    above, below = _called(loss, "value", x + step), _called(loss, "value", x - step)
    # Where the slope jumps, a difference lies between both sides and proves nothing.
    kink = np.abs(_called(loss, "first", x + step) - _called(loss, "first", x - step))
    with np.errstate(invalid="ignore"):  # at the end of a domain
        slope = (above - below) / (2 * step)
        # A difference of two values is off by their rounding over the step.
        rounding = 1e-9 * (np.abs(above) + np.abs(below)) / step * 1e-3
        wrong = np.abs(slope - first) > SLOPE_ERROR * (1.0 + np.abs(first)) + kink + rounding
    if wrong.any():
        wanted = f"{slope[wrong][0]:.6g} by differences"
        raise InputError("not the slope of loss.value", where="loss.first", got=_first(x, first, wrong), wanted=wanted)


def _check_inverse(loss: InvertibleLoss, first: Vector, second: Vector) -> None:
    """Raise InputError where psi'(margins_of(y)) is not y: the bound, and with it the proof, goes by it."""
    # Slopes where psi is flat have no inverse, so they are left out of the trial.
    slopes, curved = first[second > 0], second[second > 0]
    again = _called(loss, "margins_of", slopes)
    back = _called(loss, "first", again)
    # Rounding of the slope and of the margin both count, as their scales may differ by many orders.
    rounding = 1e-9 * (1.0 + np.abs(slopes)) + 1e-9 * curved * np.abs(again)
    wrong = ~(np.abs(back - slopes) <= rounding)
    if wrong.any():
        got = f"{again[wrong][0]:.6g} of the slope {slopes[wrong][0]:.6g}, where the slope is {back[wrong][0]:.6g}"
        raise InputError("not the inverse of loss.first", where="loss.margins_of", got=got)


def _first(x: Vector, found: Vector, bad: NDArray[np.bool_]) -> str:
    """Describe the first bad value and its margin for a message."""
    return f"{found[bad][0]:.6g} of the margin {x[bad][0]:.6g}"


def _called(loss: Loss, name: str, x: Vector) -> Vector:
    """Return a method's values at x (k,); raises InputError if it fails, or returns no reals of x's shape."""
    try:
        # A user's function may overflow far outside; those margins are judged by what it returns.
        with np.errstate(all="ignore"):
            found = np.asarray(getattr(loss, name)(x.copy()))
    except Exception as error:
        got = f"{type(error).__name__}: {error}"
        raise InputError("the loss cannot be evaluated", where=f"loss.{name}", got=got) from error
    if found.shape != x.shape or found.dtype.kind not in "fiub":
        got, wanted = f"shape {found.shape} of {found.dtype}", f"real numbers of the margins' shape {x.shape}"
        raise InputError("not elementwise", where=f"loss.{name}", got=got, wanted=wanted)
    return found.astype(np.float64)
