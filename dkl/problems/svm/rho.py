"""The rule behind rho="scale": no support vector gives up more than a share of the margin.

At the optimum of (7) in `neighborhood_svm` alpha is the support vector machine of K + lambda I, lambda = |alpha|^2 / (2 rho),
with the same box. Its free support vectors, 0 < alpha_i < C_i, are on the margin of that matrix. A new point has no
coordinate in lambda I, so by the decision values g that predict they are inside it:

    y_i g(x_i) = 1 - lambda alpha_i.

In the primal that is |w|^2 / 2 + sum_i C_i h_i(1 - y_i g(x_i)) with a hinge h_i that is rounded off over the width lambda C_i
of the margin: t^2 / (2 lambda C_i) up to there, t - lambda C_i / 2 beyond. Rounded by 1 or more it is no hinge any longer,
rows well outside the margin of the given kernel's machine become support vectors, and large classes outvote small ones.
For a number rho the width is up to max_i C_i |alpha|^2 / (2 rho), which grows with the number of rows. So

    rho = max_i C_i max over P of |alpha|^2 / (2 SHARE),    P = {0 <= alpha_i <= C_i, y'alpha = 0},

is the least rho at which lambda C_i <= SHARE whatever alpha in P comes out: known before the fit, of bounds and labels alone.
For bounds C all alike and n rows of the smaller class it is n C^3 / SHARE. It gives the same classifier for the rows taken m
times with C / m, and for the kernel times c with C / c, as SVC itself does.
"""

from __future__ import annotations

import numpy as np

from dkl.linalg.kernels.kernel_operators import Vector

SHARE = 0.25
"""Largest share of the margin that the hinge is rounded off over."""
LIMITS = np.finfo(np.float64)


def rho_of(rho: float | str, C: Vector, y: Vector) -> float:
    """Return the number of a setting of rho, for bounds C (n,) > 0 and labels y (n,) of both signs."""
    return scaled_rho(C, y) if rho == "scale" else float(rho)


def scaled_rho(C: Vector, y: Vector) -> float:
    """Return max_i C_i max over P of |alpha|^2 / (2 SHARE), within what a double holds."""
    largest = float(C.max())
    # Relative to the largest: C^3 may be beyond every double.
    square = largest_square(C / largest, y) / (2 * SHARE)
    with np.errstate(over="ignore", under="ignore"):
        return float(np.clip(np.float64(largest) ** 3 * square, LIMITS.tiny, LIMITS.max))


def largest_square(C: Vector, y: Vector) -> float:
    """Return the largest |alpha|^2 over 0 <= alpha <= C, y'alpha = 0.

    The sums of alpha over the two classes are equal, so at most the smaller of the sums of C. A sum of squares is convex:
    it is largest where the largest bounds are filled first.
    """
    sides = C[y > 0], C[y < 0]
    most = min(float(side.sum()) for side in sides)
    found = 0.0
    for side in sides:
        bounds = np.sort(side)[::-1]
        filled = np.clip(most - (np.cumsum(bounds) - bounds), 0.0, bounds)
        found += float(filled @ filled)
    return found
