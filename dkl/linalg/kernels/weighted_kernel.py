"""Steps along a coordinate of mu in K = lambda I + C diag(mu) C', without C: all they need is kept as

    a_j = y'K^-1 c_j,    q_j = c_j'K^-1 c_j    (all columns j),    G = (diag(mu_S)^-1 + B_SS / lambda)^-1    (active S)

and follows from B = C'C by rank-one updates (Machart et al. 2011, (22)-(27)): O(1) for a weight that stays at zero,
O(m0 M) for one that moves.
"""

from __future__ import annotations

import numpy as np

from dkl.linalg.late_functions import njit

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
        if mu[m] * q[m] > 1e-4:  # G_mm = mu - mu^2 q: from there 1 - mu q does not cancel
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
