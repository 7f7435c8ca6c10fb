"""A step of the low-rank engine: Newton's, of a convex quadratic f(R R') in the factor R, and the least f on its line."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from dkl.solvers.qsdp_problem import Point, Problem

Array = NDArray[np.float64]
DIRECT = 1000
"""Entries of R up to which Newton's equations are factorized; beyond, conjugate gradients."""
CG_STEPS = 200
FLOOR = 1e-13
"""Of the largest entry: what keeps the blocks of the preconditioner from being singular by rounding."""
SHIFT = 1e-12
"""Of the largest eigenvalue of the gradient: what keeps Newton's matrix definite along rotations of R, which change nothing."""


def newton_step(problem: Problem, point: Point) -> tuple[Any, int]:
    """(the least point on the line of Newton's step in R, or the same where there is none, Hessian products)."""
    low, high = np.linalg.eigvalsh(point.gradient)[[0, -1]]
    # Its columns orthogonal, so that they trouble each other least.
    turned, sizes, _ = np.linalg.svd(point.factor, full_matrices=False)
    point = problem.at(turned * sizes)
    shift = max(0.0, -2.0 * float(low)) + SHIFT * max(float(high), -float(low))
    if point.factor.size <= DIRECT:
        step, products = _direct(point, shift), 0
    else:
        step, products = _conjugate(problem, point, shift)
    seen = problem.map.see(step)
    first, second = point.seen.crossed(seen), seen.squares()
    r, linear = point.residual, problem.C @ step
    quartic = (
        2.0 * float(r @ first) + 2.0 * float(np.sum(linear * point.factor)),
        float(first @ first) + 2.0 * float(r @ second) + float(np.sum(linear * step)),
        2.0 * float(first @ second),
        float(second @ second),
    )
    length = _least(*quartic)
    following = problem.at(point.factor + length * step)
    return (following if following.objective <= point.objective else point), products


def _direct(point: Point, shift: float) -> Array:
    """-H^-1 grad, H by its entries: 2 (S + shift) on the diagonal blocks and 2 J'J, J the derivative of B(R R')."""
    m, r = point.factor.shape
    J = point.seen.jacobian()
    H = 2.0 * (J.T @ J)
    for k in range(r):
        H[k * m : (k + 1) * m, k * m : (k + 1) * m] += 2.0 * point.gradient
    slope = -2.0 * (point.gradient @ point.factor).T.ravel()
    diagonal = np.diag_indices(m * r)
    entries = H[diagonal]
    for _ in range(60):
        H[diagonal] = entries + 2.0 * shift
        try:
            return scipy.linalg.cho_solve(scipy.linalg.cho_factor(H), slope).reshape(r, m).T
        except np.linalg.LinAlgError:
            shift *= 10.0
    return slope.reshape(r, m).T


def _conjugate(problem: Problem, point: Point, shift: float) -> tuple[Array, int]:
    """(the same by conjugate gradients, preconditioned by the diagonal blocks, as far as curvature is positive; products)."""
    S, m = point.gradient, len(point.gradient)
    blocks = np.stack([2.0 * part for part in point.seen.curvatures()]) + 2.0 * (S + shift * np.eye(m))
    inverses = np.linalg.inv(blocks + FLOOR * np.abs(blocks).max() * np.eye(m))

    def solved(residual: Array) -> Array:
        return (inverses @ residual.T[:, :, None])[:, :, 0].T

    residual = -2.0 * (S @ point.factor)
    step = np.zeros_like(residual)
    image = solved(residual)
    direction, size = image, float(np.sum(residual * image))
    # Eisenstat & Walker: as exact as the step is short.
    enough = min(0.01, size / max(abs(point.objective), 1e-300)) * size
    for k in range(1, CG_STEPS + 1):
        crossed = point.seen.crossed(problem.map.see(direction))
        product = 2.0 * (S @ direction) + 4.0 * point.seen.pulled(crossed)
        bend = float(np.sum(direction * product))
        if bend <= 0:
            return (direction if k == 1 else step), k
        length = size / bend
        step = step + length * direction
        residual = residual - length * product
        image = solved(residual)
        following = float(np.sum(residual * image))
        if following <= enough:
            break
        direction, size = image + (following / size) * direction, following
    return step, k


def _least(c1: float, c2: float, c3: float, c4: float) -> float:
    """The t at which c1 t + c2 t^2 + c3 t^3 + c4 t^4 is least; 0 where it never falls."""
    roots = np.roots([4 * c4, 3 * c3, 2 * c2, c1])
    # A double root may come out as a complex pair, its imaginary part rounding.
    real = roots.real[np.abs(roots.imag) <= 1e-8 * np.abs(roots)]
    if real.size == 0:
        return 0.0
    return float(real[np.argmin(real * (c1 + real * (c2 + real * (c3 + real * c4))))])
