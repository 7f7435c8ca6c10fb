"""Newton step of the low-rank engine on f(R R') in the factor R, and the least f on its line.

    H(D) = 2 (S + shift) D + 2 J*J D,    J D = B(R D' + D R'),    S the gradient of f in Y

by conjugate gradients. The columns of R are made orthogonal, R = U diag(sizes), and D is seen in axes V: U, then the eigenvectors
of S across it, by rising eigenvalue. H's diagonal there is enough of a preconditioner far from an optimum. Near it, where steps are
to be exact, the entries of the first axes are solved for together: in the range of R, where S is nothing, and along the flattest
directions out of it, all depends on B, which couples them.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from dkl.linalg.symmetric.quartics import lowest_of_quartic
from dkl.solvers.qsdp.interface import ConePoint, ConeQuadratic

Array = NDArray[np.float64]
CG_STEPS = 200
ROUGH, EXACT, ORDER = 1e-2, 1e-3, 0.5
"""Share of the squared residual a step may leave; share that is solved jointly; power of its fall."""
PLAIN = 25
"""Steps of conjugate gradients with the diagonal alone; more of them cost what the joint solution does."""
JOINT = 200
"""Entries that are solved for together."""
FINE = 0.1
"""Share of the wanted relative gap, about the root of what f lacks, that a step may leave in any case."""
FLOOR = 1e-6
"""Share of the largest entry that keeps the preconditioner from being singular by rounding."""
SHIFT = 1e-7
"""Share of the gradient's largest eigenvalue that keeps Newton's matrix definite along rotations of R."""
ROUNDING = 1e-13
"""Share of f by which a step may seem to raise it."""


def newton_step(
    problem: ConeQuadratic, rough: ConeQuadratic, point: ConePoint, tol: float
) -> tuple[ConePoint, Array, int]:
    """Return (least point on the line of Newton's step in R, or `point`; step (m, r); Hessian products).

    rough: the problem in single precision, by which the step is found; the point's gradient and the line are of the problem itself.
    tol: the relative gap that is asked for.
    """
    # Its columns orthogonal, so that they trouble each other least.
    turned, sizes, _ = np.linalg.svd(point.factor, full_matrices=False)
    point = point.turned(turned * sizes)
    with np.errstate(over="ignore", invalid="ignore"):
        step, products = _direction(rough, point, turned, sizes, tol)
    if not np.isfinite(step).all():  # numbers beyond single precision
        step, products = _direction(problem, point, turned, sizes, tol)
    seen = problem.map.see(step)
    first, second = point.seen.crossed(seen), seen.squares()
    r, linear = point.residual, problem.C @ step
    quartic = (
        2.0 * float(r @ first) + 2.0 * float(np.sum(linear * point.factor)),
        float(first @ first) + 2.0 * float(r @ second) + float(np.sum(linear * step)),
        2.0 * float(first @ second),
        float(second @ second),
    )
    following = problem.at(point.factor + lowest_of_quartic(*quartic)[0] * step)
    is_lower = following.objective <= point.objective + ROUNDING * abs(point.objective)
    return (following if is_lower else point), step, products


def _direction(problem: ConeQuadratic, point: ConePoint, turned: Array, sizes: Array, tol: float) -> tuple[Array, int]:
    """Return (-H^-1 grad as far as curvature is positive, products), in the problem's precision."""
    S, V = point.gradient, _axes(point.gradient, turned)
    values = np.einsum("ij,ij->j", V, S @ V)
    low, high = float(point.slopes[0]), float(point.slopes[-1])
    shift = max(0.0, -2.0 * low) + SHIFT * max(high, -low)
    slope = -2.0 * (S @ point.factor)
    # Of length 1, so that its square is a number in single precision too.
    length = max(float(np.linalg.norm(slope)), 1e-300)
    R, S, V, values, sizes, slope = (
        array.astype(problem.C.dtype) for array in (point.factor, S, V, values + shift, sizes, slope / length)
    )
    seen = problem.map.see(R)
    diagonal = 2.0 * values[:, None] + 2.0 * seen.curvature(V)
    diagonal += FLOOR * np.abs(diagonal).max()
    if not (np.isfinite(diagonal).all() and np.isfinite(S).all() and diagonal.min() > 0):
        return np.full(point.factor.shape, np.nan), 0

    def product(direction: Array) -> Array:
        return 2.0 * (S @ direction + shift * direction) + 4.0 * seen.curved(direction)

    def alone(residual: Array) -> Array:
        return V @ ((V.T @ residual) / diagonal)

    def enough(solved: Callable[[Array], Array]) -> tuple[float, float]:
        # Eisenstat & Walker: as exact as the step is short.
        size, scale = float(np.sum(slope * solved(slope))), max(abs(point.objective), 1e-300) / length**2
        share = min(ROUGH, (size / scale) ** ORDER)
        return share, max(share * size, (FINE * tol) ** 2 * scale)

    residual = slope
    step, products = np.zeros_like(slope), 0
    share, size = enough(alone)
    if share >= EXACT:
        step, residual, products, is_done = _conjugate(product, alone, slope, size, PLAIN)
        if is_done:
            return length * step.astype(np.float64), products
    jointly = _joint(problem, V, sizes, values, diagonal)
    more, _, others, _ = _conjugate(product, jointly, residual, enough(jointly)[1], CG_STEPS)
    return length * (step + more).astype(np.float64), products + others


def _conjugate(
    product: Callable[[Array], Array], solved: Callable[[Array], Array], residual: Array, enough: float, most: int
) -> tuple[Array, Array, int, bool]:
    """Return (x with H x = residual, residual left, products, whether it is enough or curvature ended it)."""
    step = np.zeros_like(residual)
    image = solved(residual)
    direction, size = image, float(np.sum(residual * image))
    for k in range(1, most + 1):
        image = product(direction)
        bend = float(np.sum(direction * image))
        if bend <= 0:
            return (direction if k == 1 else step), residual, k, True
        length = size / bend
        step = step + length * direction
        residual = residual - length * image
        image = solved(residual)
        following = float(np.sum(residual * image))
        if following <= enough:
            return step, residual, k, True
        direction, size = image + (following / size) * direction, following
    return step, residual, most, False


def _axes(S: Array, turned: Array) -> Array:
    """Return V (m, m): U, and the eigenvectors of S across it."""
    across = np.linalg.qr(turned, mode="complete")[0][:, turned.shape[1] :]
    return np.concatenate([turned, across @ np.linalg.eigh(across.T @ S @ across)[1]], axis=1)


def _joint(problem: ConeQuadratic, V: Array, sizes: Array, values: Array, diagonal: Array) -> Callable[[Array], Array]:
    """Return a function that solves with the first axes' entries taken together.

    J of e_j e_k', j and k in the range, is sizes_k c_jk with c_jk = B(u_j u_k' + u_k u_j'): that of
    (sizes_k e_j e_k' + sizes_j e_k e_j') / rho, rho^2 = sizes_j^2 + sizes_k^2, is rho c_jk, and of the direction orthogonal to it zero:
    a rotation of R.
    """
    m, r = len(V), len(sizes)
    more = min(m - r, max(0, JOINT - r * (r + 1) // 2) // r)
    j, k = np.triu_indices(r)
    rho = np.where(j == k, sizes[j], np.hypot(sizes[j], sizes[k]))
    out, of = np.repeat(np.arange(r, r + more), r), np.tile(np.arange(r), more)
    H = 2.0 * problem.map.gram(V, np.r_[j, out], np.r_[k, of], np.r_[rho, sizes[of]])
    length = np.maximum(rho, np.finfo(rho.dtype).tiny)  # of two columns that are zero: nothing is to be rotated
    scale_j, scale_k = np.where(j == k, 1, sizes[k] / length), np.where(j == k, 0, sizes[j] / length)
    own = np.r_[scale_j**2 * values[j] + scale_k**2 * values[k], values[out]]
    H[np.diag_indices(len(H))] += 2.0 * np.maximum(own, 0.0) + FLOOR * H.diagonal().max()
    factor, is_lower = scipy.linalg.cho_factor(H)
    factor = factor.astype(diagonal.dtype)

    potrs = scipy.linalg.get_lapack_funcs("potrs", (factor,))  # without a wrapper, which takes longer than the solution
    above, below, pairs = j * r + k, k * r + j, len(j)

    def solved(residual: Array) -> Array:
        seen = V.T @ residual
        found = seen / diagonal
        inner, outer = seen[:r].ravel(), seen[r : r + more].ravel()
        both = np.concatenate([scale_j * inner[above] + scale_k * inner[below], outer])
        together = potrs(factor, both, lower=is_lower)[0]
        inner = np.zeros_like(inner)
        inner[below] = scale_k * together[:pairs]
        inner[above] = scale_j * together[:pairs]
        found[:r] = inner.reshape(r, r)
        found[r : r + more] = together[pairs:].reshape(more, r)
        return V @ found

    return solved
