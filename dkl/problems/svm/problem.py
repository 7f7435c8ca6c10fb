"""ONK: a support vector machine whose kernel is learned in the neighborhood of a given one (J. Liu, J. Chen, S. Chen, J.
Ye, Learning the optimal neighborhood kernel for classification, IJCAI 2009).

    min over G psd, max over alpha in P   2 e'alpha - alpha'Y G Y alpha + rho |G - K|_F^2                         (3)
    P = {0 <= alpha_i <= C_i, y'alpha = 0}

has G = K + (Y alpha)(Y alpha)' / (2 rho) (5), which leaves

    minimize over alpha in P   f = -2 e'alpha + alpha'Y K Y alpha + |alpha|^4 / (4 rho)                            (7)

Its linear term may be another, -2 c'alpha: so a kernel of single precision is corrected by its error at one alpha.

For a fixed G the maximum over alpha is bounded by the primal objective of its machine, at w = G Y alpha and any b. So

    f(alpha) - min f  <=  alpha'g + sum_i C_i max(0, -g_i - 2 b y_i),     g = gradient of f at alpha,

for every b; the least such bound is the duality gap of (3), and its b is the machine's intercept.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dkl.linalg.kernels.kernel_operators import KernelOperator, Vector

EPS = float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class SVMPoint:
    """A feasible alpha (n,) with `product` Y K Y alpha, f, its gradient, the gap of (3) and the intercept b it is reached at."""

    alpha: Vector
    product: Vector
    objective: float
    gradient: Vector
    gap: float
    intercept: float

    @property
    def relative_gap(self) -> float:
        """Return gap / |f|, infinite where f >= 0, as at alpha = 0; the least f is below 0, however small C."""
        return self.gap / -self.objective if self.objective < 0 else float("inf")

    def with_bound(self, gap: float, intercept: float) -> SVMPoint:
        """Return the point of the same alpha with another lower bound."""
        return replace(self, gap=gap, intercept=intercept)

    def with_product(self, product: Vector) -> SVMPoint:
        """Return the point of the same alpha, objective and gap with another Y K Y alpha."""
        return replace(self, product=product)


@dataclass(frozen=True)
class NeighborhoodSVM:
    """The SVM problem (7) for one pair of classes.

    kernel: K; y (n,): labels of -1 and 1; C (n,): bounds; linear: c (n,), None for ones.
    All methods take and return alpha in the box; none projects it.
    """

    kernel: KernelOperator
    y: Vector
    C: Vector
    rho: float
    linear: Vector | None = None

    @property
    def n(self) -> int:
        """Return the number of rows of the two classes."""
        return len(self.y)

    def product(self, alpha: Vector) -> Vector:
        """Return Y K Y alpha (n,): one product with K, the one operation that costs."""
        return self.y * self.kernel.times(self.y * alpha)

    def objective(self, alpha: Vector, product: Vector) -> float:
        """Return f of (7), given the product: alpha'Y K Y alpha - 2 c'alpha + |alpha|^4 / (4 rho)."""
        gain = float(alpha.sum() if self.linear is None else self.linear @ alpha)
        return float(alpha @ product) - 2 * gain + float(alpha @ alpha) ** 2 / (4 * self.rho)

    def gradient(self, alpha: Vector, product: Vector) -> Vector:
        """Return the gradient (n,) of (7), given the product: 2 (Y K Y alpha - c) + (|alpha|^2 / rho) alpha."""
        linear = 1.0 if self.linear is None else self.linear
        return 2 * (product - linear) + (float(alpha @ alpha) / self.rho) * alpha

    def at(self, alpha: Vector, product: Vector | None = None) -> SVMPoint:
        """Return the point at alpha, with its gap; one product with K where `product` is not given."""
        product = self.product(alpha) if product is None else product
        gradient = self.gradient(alpha, product)
        gap, intercept = least_bound(gradient, alpha, self.y, self.C)
        return SVMPoint(alpha, product, self.objective(alpha, product), gradient, gap, intercept)

    def zero(self) -> SVMPoint:
        """Return the point at alpha = 0, without a product."""
        return self.at(np.zeros(self.n), np.zeros(self.n))

    def with_kernel(self, kernel: KernelOperator) -> NeighborhoodSVM:
        """Return the same problem with another K."""
        return replace(self, kernel=kernel)

    def bound(self, gradient: Vector, alpha: Vector) -> tuple[float, float]:
        """Return (gap, b) of `least_bound`."""
        return least_bound(gradient, alpha, self.y, self.C)

    def among(self, rows: NDArray[np.intp], kernel: KernelOperator) -> NeighborhoodSVM:
        """Return the problem with alpha = 0 on all rows but `rows`; `kernel`: K of these."""
        linear = None if self.linear is None else self.linear[rows]
        return NeighborhoodSVM(kernel, self.y[rows], self.C[rows], self.rho, linear)

    def in_reach(self) -> NeighborhoodSVM:
        """Return the same problem, with C lowered to the bound that any alpha better than 0 obeys.

        It has the same solution. f <= 0 and K psd give |alpha|^4 <= 8 rho c'alpha, so |alpha|^3 <= 8 rho |c|. A large C makes a large gap
        of a small error.
        """
        # |c|: sqrt(n) for ones.
        length = np.sqrt(self.n) if self.linear is None else np.linalg.norm(self.linear)
        return replace(self, C=np.minimum(self.C, 2 * np.cbrt(self.rho * length)))

    def corrected(self, alpha: Vector, product: Vector) -> NeighborhoodSVM:
        """Return the problem with a linear term for the gradient at alpha by `product`, a better Y K Y alpha.

        For kernels in single precision: solve, correct by one product in double, solve again (iterative refinement).
        """
        linear = 1.0 if self.linear is None else self.linear
        # c less the kernel's error at alpha: the gradient there is that of the better product.
        return replace(self, linear=linear - (product - self.product(alpha)))

    def with_rounding(self, point: SVMPoint, diagonal: Vector) -> SVMPoint:
        """Return the point with the gap that is left where rounding has each product as far off as it can be expected to.

        diagonal (n,): of K. Terms of (K alpha)_i are at most sqrt(K_ii K_jj) alpha_j, rounded each; what that leaves of the excess counts C
        times, by the bounds that any alpha better than 0 obeys.
        """
        alpha, C = point.alpha, self.in_reach().C
        sizes, square = np.sqrt(np.maximum(diagonal, 0.0)), float(alpha @ alpha)
        terms = 2.0 * sizes * float(np.linalg.norm(sizes * alpha)) + 2.0 + square / self.rho * alpha
        spread = EPS * (terms + 2.0 * abs(point.intercept))
        # Terms well below their break add 0 to the gap whatever their rounding.
        near = self.excess(point) > -spread
        rounding = float(C[near] @ spread[near]) + float(alpha @ spread)
        return point.with_bound(point.gap + rounding, point.intercept)

    def excess(self, point: SVMPoint) -> Vector:
        """Return by how much (n,) the bound of the gap would have each alpha_i grow; below zero, shrink."""
        return -point.gradient - 2 * point.intercept * self.y

    def decision(self, point: SVMPoint) -> tuple[Vector, float]:
        """Return (y alpha (n,), b): g(x) = sum_i y_i alpha_i k(x_i, x) + b.

        K and not G: a new point has no coordinate in G's rank-one term of (5).
        """
        return self.y * point.alpha, point.intercept


def least_bound(gradient: Vector, alpha: Vector, y: Vector, C: Vector) -> tuple[float, float]:
    """Return (gap, b): the least over b of alpha'g + sum_i C_i max(0, -g_i - 2 b y_i), convex in b.

    Exact, by sorting its breaks: O(n log n). Where a whole interval is least, b is its middle. The gap is cut at 0.
    """
    # Term i is zero beyond its break -g_i y_i / 2: to the right of it for y_i = 1, to the left for y_i = -1.
    breaks = -gradient * y / 2
    order = np.argsort(breaks, kind="stable")
    weights, positive = C[order], y[order] > 0
    # Slope / 2 before the first break: all positives are active; each break passed takes a positive out or a negative in.
    slopes = np.cumsum(np.concatenate([[-weights[positive].sum()], weights]))
    scale = float(weights.sum())
    # A margin of rounding about slope 0, or a flat piece would be taken for a corner.
    first = int(np.searchsorted(slopes, -1e-14 * scale))
    last = int(np.searchsorted(slopes, 1e-14 * scale, side="right"))
    low = breaks[order[max(first - 1, 0)]]
    high = breaks[order[min(max(last - 1, 0), len(order) - 1)]]
    b = float(0.5 * (low + high))
    gap = float(alpha @ gradient) + float(C @ np.maximum(0.0, -gradient - 2 * b * y))
    return max(gap, 0.0), b


# The rule behind rho="scale": no support vector gives up more than a share of the margin.
#
# At the optimum of (7) alpha is the support vector machine of K + lambda I, lambda = |alpha|^2 /
# (2 rho), with the same box. Its free support vectors, 0 < alpha_i < C_i, are on the margin of that matrix. A new point
# has no coordinate in lambda I, so by the decision values g that predict they are inside it:
#
#     y_i g(x_i) = 1 - lambda alpha_i.
#
# In the primal that is |w|^2 / 2 + sum_i C_i h_i(1 - y_i g(x_i)) with a hinge h_i that is rounded off over the width
# lambda C_i of the margin: t^2 / (2 lambda C_i) up to there, t - lambda C_i / 2 beyond. Rounded by 1 or more it is no
# hinge any longer, rows well outside the margin of the given kernel's machine become support vectors, and large classes
# outvote small ones. For a number rho the width is up to max_i C_i |alpha|^2 / (2 rho), which grows with the number of
# rows. So
#
#     rho = max_i C_i max over P of |alpha|^2 / (2 SHARE),    P = {0 <= alpha_i <= C_i, y'alpha = 0},
#
# is the least rho at which lambda C_i <= SHARE whatever alpha in P comes out: known before the fit, of bounds and
# labels alone. For bounds C all alike and n rows of the smaller class it is n C^3 / SHARE. It gives the same classifier
# for the rows taken m times with C / m, and for the kernel times c with C / c, as SVC itself does.

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
        # What the larger bounds leave of `most`: full ones first, then one in part, then zeros.
        filled = np.clip(most - (np.cumsum(bounds) - bounds), 0.0, bounds)
        found += float(filled @ filled)
    return found
