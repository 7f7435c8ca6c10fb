"""The Euclidean projection onto the feasible set of a support vector machine's dual."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dkl.errors import InputError
from dkl.linalg.late_functions import njit

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
