"""Steps of two coefficients at a time for a small support vector machine with its kernel matrix held.

    minimize over 0 <= alpha_i <= C_i, y'alpha = 0    f = -2 c'alpha + alpha'Y K Y alpha + |alpha|^4 / (4 rho)

With beta = y alpha and v = Y (c - |alpha|^2 / (2 rho) alpha) - K beta, minus half of Y times the gradient, a step moves beta_i
up and beta_j down, for the i of the largest v that may rise and the j of those that may fall that gains most (R.-E. Fan, P.-H.
Chen, C.-J. Lin, Working set selection using second order information, JMLR 2005). Along it f is a convex quartic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dkl.linalg.late_functions import njit

if TYPE_CHECKING:
    from numpy.typing import NDArray

NEWTON_STEPS = 20
"""On the quartic at most; two or three are usual."""


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
        gap += 2.0 * (C[k] * max(0.0, y[k] * (v[k] - b)) - beta[k] * v[k])
    return gap / -value if value < 0.0 else np.inf
