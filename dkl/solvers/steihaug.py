"""The trust-region subproblem by preconditioned conjugate gradients (Steihaug 1983; Nocedal & Wright 2006, Alg. 7.2)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.floating]


@dataclass(frozen=True)
class Step:
    """A step and what the model says of it."""

    direction: Vector
    predicted: float  # decrease of the quadratic model, positive
    norm: float  # in the preconditioner's norm
    n_products: int
    reason: str  # "converged", "boundary", "negative curvature", "limit"


def _inner(x: Vector, y: Vector) -> float:
    return float(np.vdot(x, y))


def steihaug(
    gradient: Vector,
    product: Callable[[Vector], Vector],
    precondition: Callable[[Vector], Vector],
    radius: float,
    tol: float,
    max_products: int,
) -> Step:
    """Approximately minimise g'd + d'Hd/2 over |d|_M <= radius, M the preconditioner's norm.

    product(d) = H d; precondition(r) = M^-1 r. Stops at |r|_{M^-1} <= tol |g|_{M^-1}, at the boundary, or on negative
    curvature (then at the boundary). The M-norms are tracked by recurrences, so M itself is never applied.
    """
    d = np.zeros_like(gradient)
    r = gradient.copy()
    z = precondition(r)
    p = -z
    rz = first = _inner(r, z)
    d_norm2, dp, p_norm2 = 0.0, 0.0, rz
    decrease = 0.0
    for count in range(1, max_products + 1):
        hp = product(p)
        curvature = _inner(p, hp)
        alpha = rz / curvature if curvature > 0 else np.inf
        new_norm2 = d_norm2 + 2 * alpha * dp + alpha**2 * p_norm2 if np.isfinite(alpha) else np.inf
        if new_norm2 >= radius**2:
            tau = _to_boundary(d_norm2, dp, p_norm2, radius)
            # model(d + tau p) - model(d) = tau (g + Hd)'p + tau^2 p'Hp / 2, and (g + Hd)'p = -rz.
            decrease += tau * rz - 0.5 * tau**2 * curvature
            d += tau * p
            reason = "boundary" if curvature > 0 else "negative curvature"
            return Step(d, decrease, radius, count, reason)
        d += alpha * p
        decrease += 0.5 * alpha * rz
        r += alpha * hp
        z = precondition(r)
        rz_new = _inner(r, z)
        d_norm2 = new_norm2
        if rz_new <= tol**2 * first:
            return Step(d, decrease, d_norm2**0.5, count, "converged")
        beta = rz_new / rz
        dp = beta * (dp + alpha * p_norm2)
        p_norm2 = rz_new + beta**2 * p_norm2
        p *= beta
        p -= z
        rz = rz_new
    return Step(d, decrease, d_norm2**0.5, max_products, "limit")


def _to_boundary(d_norm2: float, dp: float, p_norm2: float, radius: float) -> float:
    """The positive root tau of |d + tau p|_M = radius."""
    room = max(radius**2 - d_norm2, 0.0)
    root = np.sqrt(dp**2 + p_norm2 * room)
    # The form without cancellation.
    return float(room / (dp + root)) if dp > 0 else float((root - dp) / p_norm2)
