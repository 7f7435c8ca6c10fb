"""The dual of a support vector machine: steps of two coefficients, and the projection onto its feasible set."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dkl.errors import InputError
from dkl.linalg.late_functions import njit

# -- pair steps --------------------------------------------------------------------------------------------------------
# Steps of two coefficients at a time for a small support vector machine with its kernel matrix held.
#     minimize over 0 <= alpha_i <= C_i, y'alpha = 0    f = -2 c'alpha + alpha'Y K Y alpha + |alpha|^4 / (4 rho)
# With beta = y alpha and v = Y (c - |alpha|^2 / (2 rho) alpha) - K beta, minus half of Y times the gradient, a step moves beta_i
# up and beta_j down, for the i of the largest v that may rise and the j of those that may fall that gains most (R.-E. Fan, P.-H.
# Chen, C.-J. Lin, Working set selection using second order information, JMLR 2005). Along it f is a convex quartic.

NEWTON_STEPS = 20
"""Most Newton steps on the quartic; two or three are usual."""


@njit(cache=True, nogil=True)
def pair_steps(
    K: NDArray[np.float64],
    y: NDArray[np.float64],
    C: NDArray[np.float64],
    c: NDArray[np.float64],
    rho: float,
    alpha: NDArray[np.float64],
    tol: float,
    most: int,
) -> tuple[NDArray[np.float64], int]:
    """Return (alpha (n,), rounds of n steps): from a feasible alpha to a relative gap `tol`, up to `most`.

    K (n, n) symmetric; y (n,) of -1 and 1; C (n,) bounds; c (n,) linear term.
    """
    n = len(y)
    beta = y * alpha
    product = np.zeros(n)
    # K beta by the rows of K that count, as most coefficients may be 0.
    for k in range(n):
        if beta[k] != 0.0:
            product += beta[k] * K[k]
    v = np.empty(n)
    rounds = 0
    while rounds < most:
        rounds += 1
        # Summed again each round, as updates of it gather rounding.
        square = 0.0
        for k in range(n):
            square += beta[k] * beta[k]
        for _ in range(n):
            i, j, high, low = _pair(K, y, C, c, rho, beta, product, square, v)
            if i < 0 or j < 0:
                break
            top = C[i] if y[i] > 0.0 else 0.0
            bottom = 0.0 if y[j] > 0.0 else -C[j]
            # Curvature of the quadratic part along (e_i - e_j).
            curvature = K[i, i] + K[j, j] - 2.0 * K[i, j]
            room_i, room_j = top - beta[i], beta[j] - bottom
            t = _along(v[i] - v[j], curvature, beta[i] - beta[j], square, rho, min(room_i, room_j))
            if not t > 0.0:
                break
            square += 2.0 * t * (beta[i] - beta[j] + t)
            # What meets a bound is put on it, not next to it by rounding.
            beta[i] = top if t >= room_i else beta[i] + t
            beta[j] = bottom if t >= room_j else beta[j] - t
            # One pass over two rows of K for each step, which is what a step costs.
            for k in range(n):
                product[k] += t * (K[i, k] - K[j, k])
        i, j, high, low = _pair(K, y, C, c, rho, beta, product, square, v)
        # Any intercept proves a gap; at the optimum both ends meet at the machine's own.
        if i < 0 or j < 0 or _relative_gap(y, C, c, rho, beta, product, square, v, 0.5 * (high + low)) <= tol:
            break
    return np.abs(beta), rounds


@njit(cache=True, nogil=True)
def _pair(
    K: NDArray[np.float64],
    y: NDArray[np.float64],
    C: NDArray[np.float64],
    c: NDArray[np.float64],
    rho: float,
    beta: NDArray[np.float64],
    product: NDArray[np.float64],
    square: float,
    v: NDArray[np.float64],
) -> tuple[int, int, float, float]:
    """Return (i, j, v_i, least v that may fall), -1 for a missing coefficient; computes v (n,)."""
    n, share = len(y), 0.5 * square / rho
    i, high, low = -1, -np.inf, np.inf
    for k in range(n):
        v[k] = y[k] * c[k] - product[k] - share * beta[k]
        if v[k] > high and beta[k] < (C[k] if y[k] > 0.0 else 0.0):
            i, high = k, v[k]
    j, most = -1, 0.0
    for k in range(n):
        if beta[k] > (0.0 if y[k] > 0.0 else -C[k]):
            low = min(low, v[k])
            # The second-order choice: the largest decrease of the quadratic model among those that may fall.
            fall = high - v[k]
            if fall > 0.0:
                gain = fall * fall / max(K[i, i] + K[k, k] - 2.0 * K[i, k] + 2.0 * share, 1e-12)
                if gain > most:
                    j, most = k, gain
    return i, j, high, low


@njit(cache=True, nogil=True)
def _along(fall: float, curvature: float, apart: float, square: float, rho: float, room: float) -> float:
    """Return the t in [0, room] of least f: half its slope is -fall + curvature t + what |alpha|^4 adds."""
    # `fall` holds the quartic's slope at 0 already, so that only its change from there counts.
    t, at_zero = 0.0, 0.5 * square * apart / rho
    for _ in range(NEWTON_STEPS):
        size, arm = square + 2.0 * t * (apart + t), apart + 2.0 * t
        slope = -fall + curvature * t + 0.5 * size * arm / rho - at_zero
        bend = max(curvature + (arm * arm + size) / rho, 1e-12)
        new = min(max(t - slope / bend, 0.0), room)
        if abs(new - t) <= 1e-15 * room:
            return new
        t = new
    return t


@njit(cache=True, nogil=True)
def _relative_gap(
    y: NDArray[np.float64],
    C: NDArray[np.float64],
    c: NDArray[np.float64],
    rho: float,
    beta: NDArray[np.float64],
    product: NDArray[np.float64],
    square: float,
    v: NDArray[np.float64],
    b: float,
) -> float:
    """Return the duality gap of the machine with intercept b, over |f|."""
    value, gap = 0.25 * square * square / rho, 0.0
    for k in range(len(y)):
        value += beta[k] * (product[k] - 2.0 * y[k] * c[k])
        # y'alpha = 0, so that b drops out of the second term.
        gap += 2.0 * (C[k] * max(0.0, y[k] * (v[k] - b)) - beta[k] * v[k])
    return gap / -value if value < 0.0 else np.inf


# -- projection --------------------------------------------------------------------------------------------------------

Vector = NDArray[np.float64]
MOST_PASSES = 200
"""Passes over the n numbers at most; a handful is usual."""


def box_hyperplane(v: ArrayLike, y: ArrayLike, C: ArrayLike) -> Vector:
    """Return the x nearest to v (n,), 0 <= x_i <= C_i, y'x = 0, labels y_i = -1 or 1; C: number or (n,).

    x = clip(v - t y, 0, C) at the root t of the decreasing, piecewise linear h(t) = y'clip(v - t y, 0, C) (J. Liu et al.,
    Learning the optimal neighborhood kernel for classification, IJCAI 2009, (22)). Newton's method within a bracket ends
    in a handful of passes, O(n) each. Raises InputError for other labels, all equal ones, or C that is not positive.

    >>> box_hyperplane([2.0, 0.5, 1.0], y=[1, 1, -1], C=2.0)
    array([1.5, 0. , 1.5])
    """
    point, labels, upper = checked(v, y, C)
    return project(point, labels, upper, 0.0)[0]


def checked(v: ArrayLike, y: ArrayLike, C: ArrayLike) -> tuple[Vector, Vector, Vector]:
    """Return (v, y, C) as float64 vectors (n,), C repeated for each entry.

    Raises InputError for other shapes, v not finite, labels other than -1 and 1 or of one kind, C not positive and finite.
    """
    point, labels, upper = _numbers(v, "v"), _numbers(y, "y"), _numbers(C, "C")
    if point.ndim != 1 or labels.shape != point.shape:
        raise InputError("v and y must be vectors of one length", where="v", got=f"{point.shape} and {labels.shape}")
    if upper.shape not in ((), (1,), point.shape):
        raise InputError("bounds must be one or as many as v", where="C", got=f"shape {upper.shape}")
    upper = np.ascontiguousarray(np.broadcast_to(upper, point.shape))
    if not np.isfinite(point).all():
        raise InputError("not finite", where="v", got=f"{point[~np.isfinite(point)][0]}")
    if not np.isin(labels, (-1.0, 1.0)).all():
        raise InputError("labels must be -1 or 1", where="y", got=f"{labels[~np.isin(labels, (-1.0, 1.0))][0]}")
    if len(labels) == 0 or abs(labels.sum()) == len(labels):
        raise InputError("labels of both kinds are needed", where="y", got="one kind alone")
    if not (np.isfinite(upper).all() and (upper > 0).all()):
        raise InputError("bounds must be positive and finite", where="C", got=f"{upper.min()} to {upper.max()}")
    return point, labels, upper


def _numbers(values: ArrayLike, where: str) -> Vector:
    """Return a C-contiguous float64 copy; raises InputError if `values` are not numbers."""
    try:
        return np.array(values, dtype=np.float64, order="C")
    except (TypeError, ValueError) as error:
        raise InputError("not numbers", where=where, got=error) from error


@njit(cache=True, nogil=True, fastmath={"reassoc", "nsz", "contract"})
def _balance(
    v: NDArray[np.float64], y: NDArray[np.float64], C: NDArray[np.float64], t: float
) -> tuple[float, float, float]:
    """Return (h(t), sum of x, number of x between their bounds), without branches for vectorization."""
    h, size, free = 0.0, 0.0, 0.0
    for i in range(len(v)):
        x = v[i] - t * y[i]
        free += 1.0 if (x > 0.0) & (x < C[i]) else 0.0
        x = min(max(x, 0.0), C[i])
        h += y[i] * x
        size += x
    return h, size, free


@njit(cache=True, nogil=True)
def project(
    v: NDArray[np.float64], y: NDArray[np.float64], C: NDArray[np.float64], start: float
) -> tuple[NDArray[np.float64], float]:
    """Return (x, t): the projection of `box_hyperplane`, from t = `start`, for checked float64 (n,).

    A solver passes the t of its last step, which is a pass or two away from the next one.
    """
    low, high = np.inf, -np.inf
    # Beyond these t every x is at a bound, so the root lies between them.
    for i in range(len(v)):
        least, most = (v[i] - C[i], v[i]) if y[i] > 0 else (-v[i], C[i] - v[i])
        low, high = min(low, least), max(high, most)
    t = start if low < start < high else 0.5 * (low + high)
    for _ in range(MOST_PASSES):
        # h decreases: a positive value lies left of the root.
        h, size, free = _balance(v, y, C, t)
        # Zero to the rounding of its terms.
        if abs(h) <= 1e-15 * size:
            break
        if h > 0.0:
            low = t
        else:
            high = t
        # -free is the slope of h here: a Newton step. On a flat piece (no free x) one past the lower end, hence bisection.
        new = t + h / free if free > 0 else low - 1.0
        if not low < new < high:
            new = 0.5 * (low + high)
        if new == t:
            new = np.nextafter(t, high if h > 0.0 else low)
        if not low < new < high:  # the bracket has no number inside
            # No double lies between: the two clipped points differ by more than rounding where |v| is far above C.
            return _between(v, y, C, low, high, t), t
        t = new
    return _at(v, y, C, t), t


@njit(cache=True, nogil=True)
def _at(v: NDArray[np.float64], y: NDArray[np.float64], C: NDArray[np.float64], t: float) -> NDArray[np.float64]:
    """Return clip(v - t y, 0, C)."""
    out = np.empty_like(v)
    for i in range(len(v)):
        out[i] = min(max(v[i] - t * y[i], 0.0), C[i])
    return out


@njit(cache=True, nogil=True)
def _between(
    v: NDArray[np.float64], y: NDArray[np.float64], C: NDArray[np.float64], low: float, high: float, t: float
) -> NDArray[np.float64]:
    """Return the x with y'x = 0 between the bracket's ends: if |v| >> C, t's last digit moves x."""
    above, below = _balance(v, y, C, low)[0], _balance(v, y, C, high)[0]
    if not above > 0.0 > below:
        return _at(v, y, C, t)
    first, last, share = _at(v, y, C, low), _at(v, y, C, high), above / (above - below)
    return first + share * (last - first)
