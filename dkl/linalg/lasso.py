"""Inner loops of the lasso on a Gram matrix."""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]


@numba.njit(cache=True, nogil=True)
def subtract_rows(out, rows, places, factors):  # type: ignore[no-untyped-def]
    """out -= sum_k factors[k] * rows[places[k]]."""
    for k in range(len(places)):
        factor = factors[k]
        row = rows[places[k]]
        for j in range(len(out)):
            out[j] -= factor * row[j]


@numba.njit(cache=True, nogil=True)
def submatrix(rows, places, columns):  # type: ignore[no-untyped-def]
    """(k, k): rows[places[i], columns[j]]."""
    out = np.empty((len(places), len(columns)))
    for i in range(len(places)):
        row = rows[places[i]]
        for j in range(len(columns)):
            out[i, j] = row[columns[j]]
    return out


def line_minimum(
    curvature: float, slope: float, w: Vector, d: Vector, signs: Vector, kappa: float
) -> tuple[float, int]:
    """The t in [0, 1] that minimises t^2 curvature / 2 + t slope + kappa |w + t d|_1. Returns (t, k): k is the weight that
    becomes zero at the minimum, or -1.

    signs: those of w, and of d where w is zero. The derivative grows linearly, and jumps by 2 kappa |d_k| where a weight
    passes zero.
    """
    derivative = slope + kappa * float(d @ signs)
    if derivative >= 0:
        return 0.0, -1
    with np.errstate(over="ignore"):
        crossing = np.divide(-w, d, out=np.full_like(w, np.inf), where=(d != 0) & (w != 0))
    crossing[crossing <= 0] = np.inf
    for k in np.argsort(crossing, kind="stable"):
        t = float(crossing[k])
        if t >= 1 or derivative + curvature * t >= 0:
            break
        derivative += 2 * kappa * abs(float(d[k]))
        if derivative + curvature * t >= 0:
            return t, int(k)
    return (min(1.0, -derivative / curvature) if curvature > 0 else 1.0), -1
