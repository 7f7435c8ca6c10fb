"""Inner loops of the lasso on a Gram matrix."""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]


@numba.njit(cache=True, nogil=True)
def subtract_rows(out, rows, slots, factors):  # type: ignore[no-untyped-def]
    """out -= sum_k factors[k] * rows[slots[k]], in place: b - B w from the rows of B that w has entries at.

    A loop instead of a product: rows[slots] would be copied first, which costs as much as the arithmetic.
    """
    for k in range(len(slots)):
        factor = factors[k]
        row = rows[slots[k]]
        for j in range(len(out)):
            out[j] -= factor * row[j]


@numba.njit(cache=True, nogil=True)
def submatrix(rows, slots, columns):  # type: ignore[no-untyped-def]
    """(k, l) rows[slots[i], columns[j]]: B at some rows and columns, without copies of whole rows."""
    out = np.empty((len(slots), len(columns)))
    for i in range(len(slots)):
        row = rows[slots[i]]
        for j in range(len(columns)):
            out[i, j] = row[columns[j]]
    return out


def line_minimum(
    curvature: float, slope: float, w: Vector, d: Vector, signs: Vector, kappa: float
) -> tuple[float, int]:
    """The t in [0, 1] that minimizes t^2 curvature / 2 + t slope + kappa |w + t d|_1.

    Returns (t, k): k is the weight that becomes zero at the minimum, or -1. signs (M,): those of w, and of d where w is
    zero. The derivative grows linearly, and jumps by 2 kappa |d_k| where a weight passes zero: crossings are taken in order
    until it changes sign.
    """
    derivative = slope + kappa * float(d @ signs)
    if derivative >= 0:
        return 0.0, -1
    # Where -w / d overflows the weight does not cross zero within [0, 1] either.
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
