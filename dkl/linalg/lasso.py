"""Inner loops of the lasso on a Gram matrix."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dkl.linalg.late_functions import njit

Vector = NDArray[np.float64]
SPLITTER = 134_217_729.0
"""2^27 + 1: a product with it leaves the upper 26 bits of a double (Dekker, 1971)."""


@njit(cache=True, nogil=True)
def subtract_rows(out, rows, slots, factors):  # type: ignore[no-untyped-def]
    """Compute out -= sum_k factors[k] * rows[slots[k]], in place: b - B w from B's rows where w is not 0.

    A loop instead of a product: rows[slots] would be copied first, which costs as much as the arithmetic.
    """
    # Row by row: each row of B is read once, in order.
    for k in range(len(slots)):
        factor = factors[k]
        row = rows[slots[k]]
        for j in range(len(out)):
            out[j] -= factor * row[j]


@njit(cache=True, nogil=True)
def subtract_rows_precisely(out, rows, slots, factors):  # type: ignore[no-untyped-def]
    """Subtract as `subtract_rows`, as if in twice the precision and rounded once at the end.

    By error-free products and sums (T. J. Dekker, A floating-point technique for extending the available precision, Numerische
    Mathematik 18, 1971; T. Ogita, S. M. Rump, S. Oishi, Accurate sum and dot product, SIAM J. Sci. Comput. 26, 2005, algorithm 5.3). No
    fastmath here: it would take the errors for zero.
    """
    low = np.zeros(len(out))
    for k in range(len(slots)):
        factor = -factors[k]
        shifted = SPLITTER * factor
        # Dekker's split: two halves whose products are exact.
        high_factor = shifted - (shifted - factor)
        low_factor = factor - high_factor
        row = rows[slots[k]]
        for j in range(len(out)):
            product = factor * row[j]
            shifted_entry = SPLITTER * row[j]
            high = shifted_entry - (shifted_entry - row[j])
            rest = row[j] - high
            # (product, lost): what factor * row[j] is, exactly.
            lost = ((high_factor * high - product) + high_factor * rest + low_factor * high) + low_factor * rest
            total = out[j] + product
            added = total - out[j]
            # Knuth's two-sum: what the addition to out[j] has lost.
            low[j] += ((out[j] - (total - added)) + (product - added)) + lost
            out[j] = total
    for j in range(len(out)):
        out[j] += low[j]


@njit(cache=True, nogil=True)
def submatrix(rows, slots, columns):  # type: ignore[no-untyped-def]
    """Return (k, l) rows[slots[i], columns[j]]: B at some rows and columns, without copies of whole rows."""
    out = np.empty((len(slots), len(columns)))
    for i in range(len(slots)):
        row = rows[slots[i]]
        for j in range(len(columns)):
            out[i, j] = row[columns[j]]
    return out


@njit(cache=True, nogil=True)
def upper_submatrix(rows, columns):  # type: ignore[no-untyped-def]
    """Return (k, k) rows[columns[i], columns[j]] for j >= i, and zeros below."""
    out = np.zeros((len(columns), len(columns)))
    for i in range(len(columns)):
        row = rows[columns[i]]
        for j in range(i, len(columns)):
            out[i, j] = row[columns[j]]
    return out


def line_minimum(
    curvature: float, slope: float, w: Vector, d: Vector, signs: Vector, kappa: float
) -> tuple[float, int]:
    """Return (t, k): the t in [0, 1] that minimizes t^2 curvature / 2 + t slope + kappa |w + t d|_1, and where it stops.

    k is the weight that becomes zero at the minimum, or -1. signs (M,): those of w, and of d where w is zero. The derivative
    grows linearly, and jumps by 2 kappa |d_k| where a weight passes zero: crossings are taken in order until it changes sign.
    """
    derivative = slope + kappa * float(d @ signs)
    found: tuple[float, int] = (0.0, -1) if derivative >= 0 else _zero_of(derivative, curvature, w, d, kappa)
    return found


@njit(cache=True, nogil=True)
def _zero_of(derivative, curvature, w, d, kappa):  # type: ignore[no-untyped-def]
    """Return (t, k) as `line_minimum`, from the derivative < 0 at t = 0."""
    moving = ((d != 0) & (w != 0)).nonzero()[0]
    # Where -w / d overflows the weight does not cross zero within [0, 1] either.
    crossing = -w[moving] / d[moving]
    inside = ((crossing > 0) & (crossing < 1)).nonzero()[0]
    # A merge sort is stable: of equal crossings the first weight counts.
    for place in inside[np.argsort(crossing[inside], kind="mergesort")]:
        t, k = crossing[place], moving[place]
        if derivative + curvature * t >= 0:
            break
        # A weight that passes zero turns its sign, and the derivative jumps by twice its penalty.
        derivative += 2 * kappa * abs(d[k])
        if derivative + curvature * t >= 0:
            return t, k
    return (min(1.0, -derivative / curvature) if curvature > 0 else 1.0), -1
