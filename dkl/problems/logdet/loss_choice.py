"""The loss that is asked for: one of Table 2's by its name, or a user's, checked."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dkl.errors import InputError
from dkl.problems.logdet.losses import HingeLoss, InvertibleLoss, ItmlLoss, LinearLoss, LogLoss, Loss, SmoothedHingeLoss

Vector = NDArray[np.float64]
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
