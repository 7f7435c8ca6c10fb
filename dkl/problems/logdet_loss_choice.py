"""The loss that is asked for: one of Table 2's by its name, or a user's, checked."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dkl.errors import InputError
from dkl.problems.logdet_losses import HingeLoss, ItmlLoss, LinearLoss, LogLoss, Loss, SmoothedHingeLoss

Vector = NDArray[np.float64]
TRIALS = np.concatenate([-np.logspace(2, -3, 12), [0.0], np.logspace(-3, 2, 12)])
"""Margins at which a user's loss is tried."""
SLOPE_ERROR = 1e-4
"""How far from its slope by differences a derivative may be, relative to 1 and the derivatives nearby."""


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
