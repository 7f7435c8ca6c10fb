"""Newton step of problem (3) by preconditioned CG: Table 1 of Li et al. 2009, without a dense matrix.

With the gradient G = U(r), r = w psi'(a) - l, and the preconditioner K . K, every matrix of Table 1 is an U(.) or a K U(.) K:
    R = U(residual), Q = K^-1 P K^-1 = U(inverse direction), Y = K R K, P = K Q K.
Their inner products are sums over constraints: tr(Y R) = residual'A(Y), tr(P Q) and tr(P H_F(P)) by A(P), so that only margins A(Y) of
Y are computed, one `product` an iteration. The step D = Z is taken in K^-1: U(l + step) = K^-1 - K^-1 Z K^-1 - K0^-1, which is the
Newton step's first order, and keeps l.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]
Operator = Callable[[Vector], Vector]


@dataclass(frozen=True)
class NewtonStep:
    """Newton step of problem (3).

    step      (c,) change of the multipliers
    margins   (c,) change of the margins to first order, A(D)
    norm      |D| in the region's norm
    at_edge   whether it ended at the boundary of the region
    products  Hessian products
    """

    step: Vector
    margins: Vector
    norm: float
    at_edge: bool
    products: int


def newton_step(
    residual: Vector,
    product: Operator,
    curvatures: Vector,
    radius: float,
    is_done: Callable[[float, Vector], bool],
    *,
    start: Vector,
    square_product: Operator | None = None,
    most: int,
) -> NewtonStep:
    """Run PCG from D = 0 until `is_done(tr(Y R), residual)`, the region's boundary, or `most` products.

    residual  (c,) r; product(l) is A(K U(l) K); curvatures (c,) w psi''; start = product(r)
    radius    of |K^-1/2 D K^-1/2|_F, which is known by recurrence; of |D|_F where `square_product` is given: A(K^2 U(l) K^2)
    """
    left, y = residual.copy(), start
    inverse, p = -left, -y
    step, margins = np.zeros_like(left), np.zeros_like(left)
    yr, products, measured = float(left @ y), 0, square_product
    norms = _Norms(measured)
    while not is_done(yr, left) and products < most:
        curved = curvatures * p
        bend = float(p @ inverse) + float(p @ curved)
        if not bend > 0:
            break
        alpha = yr / bend
        to_edge = norms.to_edge(step, margins, inverse, p, radius)
        if alpha >= to_edge:
            return NewtonStep(-(step + to_edge * inverse), margins + to_edge * p, radius, True, products)
        step += alpha * inverse
        margins += alpha * p
        left += alpha * (curved + inverse)
        y = product(left)
        products += 1
        following = float(left @ y)
        beta, yr = following / yr, following
        p = beta * p - y
        inverse = beta * inverse - left
    return NewtonStep(-step, margins, norms.of(step, margins), False, products)


class _Norms:
    """|D| of D = K U(q) K with margins a: sqrt(q'a) in the local norm, sqrt(q'A(K^2 U(q) K^2)) in Frobenius'."""

    def __init__(self, square_product: Operator | None) -> None:
        self._square_product = square_product

    def _dual(self, q: Vector, a: Vector) -> Vector:
        return a if self._square_product is None else self._square_product(q)

    def of(self, q: Vector, a: Vector) -> float:
        return float(np.sqrt(max(0.0, float(q @ self._dual(q, a)))))

    def to_edge(self, q: Vector, a: Vector, direction: Vector, p: Vector, radius: float) -> float:
        """Return the t > 0 at which |D + t P| is the radius."""
        if not np.isfinite(radius):
            return np.inf
        dual = self._dual(direction, p)
        square, cross = float(direction @ dual), float(q @ dual)
        rest = radius**2 - self.of(q, a) ** 2
        root = np.sqrt(max(0.0, cross**2 + square * rest))
        return float(rest / (root + cross)) if cross > 0 else float((root - cross) / square)
