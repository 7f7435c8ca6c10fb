"""Inner loops of SLKL's solvers on a Gram matrix B = C'C: of the lasso in w, and of the same problem in the weights mu of kernels.

Steps along a coordinate of mu in K = lambda I + C diag(mu) C' need no C. All they need is kept as

    a_j = y'K^-1 c_j,    q_j = c_j'K^-1 c_j    (all columns j),    G = (diag(mu_S)^-1 + B_SS / lambda)^-1    (active S)

and follows from B by rank-one updates (Machart et al. 2011, (22)-(27)): O(1) for a weight that stays at zero, O(m0 M) for one that
moves.
"""

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


EXACT, NEWTON = 0, 1
"""Rules for a step along a coordinate: the exact minimizer, or the paper's Newton step (19)."""
DRIFT = 1e-4
"""Share by which q and c'K^-1 c from G may differ."""
DONE, NEEDS_ROW, NEEDS_CAPACITY, DRIFTED = 0, 1, 2, 3
"""Why `descend` returned. All but DONE ask the caller for something, and to call again with the rest of the order."""


@njit(cache=True, nogil=True, inline="always")
def new_weight(a, q, mu, lam, nu, rule):  # type: ignore[no-untyped-def]
    """Return the weight that minimizes F along its coordinate (EXACT), or the Newton step (19) towards it.

    dF/dmu = nu - lambda a^2 / (1 + d q)^2 at mu + d is zero at d = (|a| sqrt(lambda/nu) - 1) / q; (19) has
    d = (lambda a^2 - nu) / (2 lambda a^2 q), and zero where a is. A column of zeros gets weight zero.
    """
    if q <= 0.0 or a == 0.0:
        return 0.0
    if rule == EXACT:
        d = (abs(a) * np.sqrt(lam / nu) - 1.0) / q
    else:
        ratio = np.sqrt(nu / lam) / abs(a)
        d = (1.0 - ratio * ratio) / (2.0 * q)
    return max(0.0, mu + d)


@njit(cache=True, nogil=True)
def best_coordinate(a, q, mu, alive, lam, nu, rule):  # type: ignore[no-untyped-def]
    """Return (m, drop): the coordinate whose step lowers F most, and by how much; m = -1 if none does.

    F(mu + d) - F(mu) = nu d - lambda a^2 d / (1 + d q) along a coordinate; only those where `alive` is True. O(M).
    """
    best, gain = -1, 0.0
    for m in range(len(mu)):
        if alive[m]:
            d = new_weight(a[m], q[m], mu[m], lam, nu, rule) - mu[m]
            drop = lam * a[m] * a[m] * d / (1.0 + d * q[m]) - nu * d
            if drop > gain:
                best, gain = m, drop
    return best, gain


@njit(cache=True, nogil=True)
def descend(  # type: ignore[no-untyped-def]
    order, rows, slot, mu, a, q, support, position, G, size, lam, nu, most, rule
):
    """Take the coordinates in `order` one after the other, in place. Returns (how many were done, size of S, moves, state).

    rows[slot[m]] is row m of B; slot[m] < 0: it is not there yet (state NEEDS_ROW). support[:size] are the active
    columns, position[m] their positions in it or -1; G[:size, :size]. NEEDS_CAPACITY: G is full. DRIFTED: rounding errors
    have grown to where q and G differ, the next weight would exceed `most`, a bound on all of them, or K would lose
    definiteness.
    """
    moves = 0
    h = np.empty(len(G))
    z = np.empty(len(mu))
    for k in range(len(order)):
        m = order[k]
        # q from G_mm = mu - mu^2 q, without what updates have gathered: from here 1 - G_mm / mu keeps twelve digits.
        if mu[m] * q[m] > 1e-4:
            q[m] = (1.0 - G[position[m], position[m]] / mu[m]) / mu[m]
        new, old = new_weight(a[m], q[m], mu[m], lam, nu, rule), mu[m]
        if new == old:
            continue
        if slot[m] < 0:
            return k, size, moves, NEEDS_ROW
        if old == 0.0 and size == len(G):
            return k, size, moves, NEEDS_CAPACITY
        # Negated, here and below, so that NaN counts as drift.
        if not (new <= most and 1.0 + (new - old) * q[m] > 0.0):
            return k, size, moves, DRIFTED
        row = rows[slot[m]]
        # The weight moves: its products with all columns, by SMW from the active rows.
        # h = G B_Sm / lambda, z = C'K^-1 c_m
        for i in range(size):
            h[i] = 0.0
        for j in range(size):
            factor = row[support[j]] / lam
            for i in range(size):
                h[i] += factor * G[j, i]
        for j in range(len(mu)):
            z[j] = row[j]
        for i in range(size):
            other = rows[slot[support[i]]]
            factor = h[i]
            for j in range(len(mu)):
                z[j] -= factor * other[j]
        for j in range(len(mu)):
            z[j] /= lam
        q_m, a_m = q[m], a[m]
        # q_m was updated by subtractions, z_m comes from G: where they differ, rounding has added up in one of them.
        if not abs(z[m] - q_m) <= DRIFT * q_m:
            return k, size, moves, DRIFTED
        share = (new - old) / (1.0 + (new - old) * q_m)
        for j in range(len(mu)):
            a[j] -= share * a_m * z[j]
            q[j] -= share * z[j] * z[j]
        a[m], q[m] = a_m / (1.0 + (new - old) * q_m), q_m / (1.0 + (new - old) * q_m)
        size = _update(G, h, support, position, size, m, old, new, q_m)
        mu[m] = new
        moves += 1
    return len(order), size, moves, DONE


@njit(cache=True, nogil=True)
def _update(G, h, support, position, size, m, old, new, q):  # type: ignore[no-untyped-def]
    """Update G and S in place after mu_m went from `old` to `new`, by (25), (26) or (27); return the size of S.

    The formulas are written with mu - mu^2 q in place of G_mm, in which small weights cancel.
    """
    if old == 0.0:
        s = 1.0 / (1.0 / new + q)
        for i in range(size):
            for j in range(size):
                G[i, j] += s * h[i] * h[j]
            G[i, size] = G[size, i] = -s * h[i]
        G[size, size] = s
        support[size], position[m] = m, size
        return size + 1
    p = position[m]
    # Divided twice: the square of a tiny weight underflows.
    factor = (old - new) / old / old / (1.0 + (new - old) * q)
    column = G[p, :size].copy()
    for i in range(size):
        for j in range(size):
            G[i, j] -= factor * column[i] * column[j]
    if new > 0.0:
        return size
    # A weight that became zero leaves S: the last one takes its position, so that S stays contiguous.
    last = size - 1
    for i in range(size):
        G[p, i] = G[last, i]
    for i in range(size):
        G[i, p] = G[i, last]
    support[p] = support[last]
    position[support[p]] = p
    position[m] = -1
    return last
