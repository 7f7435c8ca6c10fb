"""Steps of the low-rank engine: accelerated projected gradients, faces of the psd cone, Newton steps in the factor."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from dkl.linalg.symmetric.psd_quadratic import lowest_of_quartic, psd_minimum, svec
from dkl.linalg.symmetric.symmetric_maps import svec_places
from dkl.solvers.qsdp.interface import ConePoint, ConeQuadratic

# First step of the low-rank engine: accelerated projected gradients in Y, to the optimum's rank.
#
#     Y+ = the psd part of Z - gradient f(Z) / L,   Z = Y + (t - 1) / t+ (Y - Y before)        (Beck & Teboulle 2009)
#
# t restarts at 1 where the step turns against the momentum (O'Donoghue & Candes 2015). f's gradient is affine, so that
# Z's follows from those of the factors, and an iteration takes an eigen-decomposition of m rows and two products with
# the map. What they are for needs no more than single precision.

Array = NDArray[np.float64]
MOST, EACH = 150, 10
"""Most gradient steps, and steps from one look at their progress to the next."""
ENOUGH = 0.1
"""Share of f: the steps end once EACH of them lower it by less."""
COLUMNS = 2.0
"""Columns kept, the largest, over the root of m: an optimum's rank grows like it; faces find the rest."""
POWERS, MARGIN = 8, 1.1
"""Products that find the map's norm, and what they may lack."""


def projected_gradients(problem: ConeQuadratic, rough: ConeQuadratic, point: ConePoint) -> ConePoint:
    """Return the point after as many single-precision steps as pay; `point` if none lowers f."""
    # f's Hessian is constant, so one step length holds for all steps.
    curvature = _curvature(rough)
    best = rough.at(point.factor.astype(np.float32))
    Y, slope = best.factor @ best.factor.T, best.gradient
    Z, slope_Z, t, before = Y, slope, 1.0, best.objective
    for step in range(1, MOST + 1):
        found = rough.at(_psd_factor(Z - slope_Z / curvature))
        following = found.factor @ found.factor.T
        if found.objective < best.objective:
            best = found
        grown = 0.5 + 0.5 * math.sqrt(1.0 + 4.0 * t * t)
        # The step turned against the momentum: t restarts at 1.
        turns = np.sum((Z - following) * (following - Y)) > 0
        momentum, t = (0.0, 1.0) if turns else ((t - 1.0) / grown, grown)
        # f's gradient is affine, so that of Z follows from two gradients that are there already.
        Z, slope_Z = following + momentum * (following - Y), found.gradient + momentum * (found.gradient - slope)
        Y, slope = following, found.gradient
        if step % EACH == 0:
            if before - best.objective < ENOUGH * abs(best.objective):
                break
            before = best.objective
    columns = best.factor.astype(np.float64)
    most = math.ceil(COLUMNS * math.sqrt(len(columns)))
    # The largest columns, in double precision; what was too much a face will drop.
    found = problem.at(columns[:, -most:])
    return found if found.objective < point.objective else point


def _curvature(problem: ConeQuadratic) -> float:
    """Return the largest eigenvalue of f's Hessian 2 B*B, by powers of it on the identity, up to MARGIN."""
    Y, norm = np.eye(len(problem.C), dtype=problem.C.dtype), 0.0
    identity = problem.map.see(Y)
    for _ in range(POWERS):
        # B(I Y' + Y I') is twice B(Y).
        Y = 0.5 * problem.map.adjoint(identity.crossed(problem.map.see(Y)))
        norm = float(np.linalg.norm(Y))
        if norm == 0.0:
            return 1.0
        Y /= norm
    return 2.0 * MARGIN * norm


def _psd_factor(matrix: Array) -> Array:
    """Return R (m, r) of the psd part R R' of a symmetric matrix, one column at least."""
    values, vectors = np.linalg.eigh(matrix)
    kept = values > 0
    # One column at least, so that a factor is never empty.
    kept[-1] = True
    return vectors[:, kept] * np.sqrt(np.maximum(values[kept], 0.0))


# Step of the low-rank engine: least convex quadratic over a face of the psd cone, by interior points.

FACE = 24
"""Rows of a problem that is one face, all of it: interior-point steps of q rows take q^6 / 24 operations."""
WEAK, FRESH = 20, 6
"""Maximum columns of a face: of the factor, the weakest ones, and eigenvectors of the gradient."""
CUTS = (1e-3, 1e-4, 1e-5, 1e-6, 1e-8, 1e-10)
"""Shares of Z's largest eigenvalue below which columns are left out where that costs next to nothing."""
SLACK = 0.1
"""Share of a face's progress that leaving columns out may undo, so that later faces have room."""


def least_on_face(
    problem: ConeQuadratic, point: ConePoint, aim: float, most: int = FACE, along: Array | None = None
) -> ConePoint:
    """Minimize f over Y = F F' + V Z V', which holds `point`, to `aim`; keep the columns that count.

    V: an orthonormal basis of the point's WEAK columns, of `along` (m, k) and of eigenvectors of the gradient; all, where there are
    at most `most` rows. F: the other columns, which are sure to stay; Newton's steps are theirs.
    """
    # Strong columns are fixed, so that the interior point's problem stays of some dozens of rows.
    fixed, weak, V = _face(point, most, along)
    # The fixed columns have met a part of the targets already.
    targets = problem.targets - problem.map.see(fixed).squares()
    linear = svec(V.T @ (problem.C - 2.0 * problem.map.adjoint(targets)) @ V)
    normal = 2.0 * problem.map.gram(V, *svec_places(V.shape[1]))
    start = V.T @ weak
    # The point itself is feasible, so the interior point starts from it and never ends higher.
    found = psd_minimum(normal, linear, _begin(start @ start.T, normal, linear), aim)
    sizes, turn = np.linalg.eigh(found)
    columns = (V @ turn) * np.sqrt(np.maximum(sizes, 0.0))
    whole = problem.at(np.concatenate([fixed, columns], axis=1))
    # Rounding of the interior point may leave f higher than it was: the point is kept then.
    if not whole.objective < point.objective:
        return point
    slack = SLACK * (point.objective - whole.objective)
    for cut in CUTS:
        # From the coarsest cut on: the fewest columns that cost next to nothing.
        kept = sizes > cut * sizes[-1]
        if kept.all():
            break
        trial = problem.at(np.concatenate([fixed, columns[:, kept]], axis=1))
        if trial.objective <= whole.objective + slack:
            return trial
    return whole


def _face(point: ConePoint, most: int, along: Array | None) -> tuple[Array, Array, Array]:
    """Return (F (m, s), the factor's weak columns, V (m, q) of their range, `along` and steepest descent)."""
    m = len(point.gradient)
    # The singular vectors of R are the eigenvectors of Y, strongest first.
    vectors, sizes, _ = np.linalg.svd(point.factor, full_matrices=False)
    rank = int(np.count_nonzero(sizes > 1e-8 * sizes[0]))
    strong = 0 if m <= most else max(0, rank - WEAK)
    width = m if m <= most else min(m, rank - strong + min(FRESH, most // 2))
    # The gradient's lowest eigenvectors are the directions in which f falls steepest out of Y's range.
    parts = [vectors[:, strong:rank], np.linalg.eigh(point.gradient)[1][:, : width - (rank - strong)]]
    if along is not None:
        parts.append(along / np.maximum(np.linalg.norm(along, axis=0), 1e-300))
    columns = vectors * sizes
    return columns[:, :strong], columns[:, strong:rank], np.linalg.qr(np.concatenate(parts, axis=1))[0]


def _begin(Z: Array, normal: Array, linear: Array) -> Array:
    """Return Z, or where it is zero the best multiple of the identity."""
    if np.any(Z):
        return Z
    identity = svec(np.eye(len(Z)))
    slope, bend = float(linear @ identity), float(identity @ normal @ identity)
    return np.eye(len(Z)) * (max(-slope, 1e-3 * abs(slope)) / bend if bend > 0 and slope else 1.0)


# Newton step of the low-rank engine on f(R R') in the factor R, and the least f on its line.
#
#     H(D) = 2 (S + shift) D + 2 J*J D,    J D = B(R D' + D R'),    S the gradient of f in Y
#
# by conjugate gradients. The columns of R are made orthogonal, R = U diag(sizes), and D is seen in axes V: U, then the
# eigenvectors of S across it, by rising eigenvalue. H's diagonal there is enough of a preconditioner far from an
# optimum. Near it, where steps are to be exact, the entries of the first axes are solved for together: in the range of
# R, where S is nothing, and along the flattest directions out of it, all depends on B, which couples them.

CG_STEPS = 200
"""Most steps of conjugate gradients with the joint solution."""
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
    # Orthogonal columns, between which the Hessian has the least coupling.
    turned, sizes, _ = np.linalg.svd(point.factor, full_matrices=False)
    point = point.turned(turned * sizes)
    with np.errstate(over="ignore", invalid="ignore"):
        step, products = _direction(rough, point, turned, sizes, tol)
    if not np.isfinite(step).all():  # numbers beyond single precision
        step, products = _direction(problem, point, turned, sizes, tol)
    seen = problem.map.see(step)
    # f(R + t D) is a quartic in t, as B is quadratic in the factor.
    first, second = point.seen.crossed(seen), seen.squares()
    r, linear = point.residual, problem.C @ step
    quartic = (
        2.0 * float(r @ first) + 2.0 * float(np.sum(linear * point.factor)),
        float(first @ first) + 2.0 * float(r @ second) + float(np.sum(linear * step)),
        2.0 * float(first @ second),
        float(second @ second),
    )
    following = problem.at(point.factor + lowest_of_quartic(*quartic)[0] * step)
    # The step is found in single precision, but whether it lowers f is asked in double.
    is_lower = following.objective <= point.objective + ROUNDING * abs(point.objective)
    return (following if is_lower else point), step, products


def _direction(problem: ConeQuadratic, point: ConePoint, turned: Array, sizes: Array, tol: float) -> tuple[Array, int]:
    """Return (-H^-1 grad as far as curvature is positive, products), in the problem's precision."""
    S, V = point.gradient, _axes(point.gradient, turned)
    values = np.einsum("ij,ij->j", V, S @ V)
    low, high = float(point.slopes[0]), float(point.slopes[-1])
    # S has negative eigenvalues away from the optimum: the shift makes Newton's matrix definite.
    shift = max(0.0, -2.0 * low) + SHIFT * max(high, -low)
    slope = -2.0 * (S @ point.factor)
    # Of length 1, so that its square is a number in single precision too.
    length = max(float(np.linalg.norm(slope)), 1e-300)
    R, S, V, values, sizes, slope = (
        array.astype(problem.C.dtype) for array in (point.factor, S, V, values + shift, sizes, slope / length)
    )
    seen = problem.map.see(R)
    # The diagonal of H in the axes V, where S is nearly diagonal.
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
        # Negative curvature ends the iteration; the first direction is still one of descent.
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
    # An orthonormal basis of what R's range leaves, in which S is made diagonal.
    across = np.linalg.qr(turned, mode="complete")[0][:, turned.shape[1] :]
    return np.concatenate([turned, across @ np.linalg.eigh(across.T @ S @ across)[1]], axis=1)


def _joint(problem: ConeQuadratic, V: Array, sizes: Array, values: Array, diagonal: Array) -> Callable[[Array], Array]:
    """Return a function that solves with the first axes' entries taken together.

    J of e_j e_k', j and k in the range, is sizes_k c_jk with c_jk = B(u_j u_k' + u_k u_j'): that of
    (sizes_k e_j e_k' + sizes_j e_k e_j') / rho, rho^2 = sizes_j^2 + sizes_k^2, is rho c_jk, and of the direction orthogonal to it zero:
    a rotation of R.
    """
    m, r = len(V), len(sizes)
    # As many axes outside of the range as JOINT allows, those of the lowest eigenvalues first.
    more = min(m - r, max(0, JOINT - r * (r + 1) // 2) // r)
    j, k = np.triu_indices(r)
    rho = np.where(j == k, sizes[j], np.hypot(sizes[j], sizes[k]))
    out, of = np.repeat(np.arange(r, r + more), r), np.tile(np.arange(r), more)
    H = 2.0 * problem.map.gram(V, np.r_[j, out], np.r_[k, of], np.r_[rho, sizes[of]])
    length = np.maximum(rho, np.finfo(rho.dtype).tiny)  # of two columns that are zero: nothing is to be rotated
    scale_j, scale_k = np.where(j == k, 1, sizes[k] / length), np.where(j == k, 0, sizes[j] / length)
    own = np.r_[scale_j**2 * values[j] + scale_k**2 * values[k], values[out]]
    # The joint matrix is kept definite by the part of S above 0 and by FLOOR.
    H[np.diag_indices(len(H))] += 2.0 * np.maximum(own, 0.0) + FLOOR * H.diagonal().max()
    factor, is_lower = scipy.linalg.cho_factor(H)
    factor = factor.astype(diagonal.dtype)

    potrs = scipy.linalg.get_lapack_funcs("potrs", (factor,))  # without a wrapper, which takes longer than the solution
    above, below, pairs = j * r + k, k * r + j, len(j)

    def solved(residual: Array) -> Array:
        seen = V.T @ residual
        found = seen / diagonal
        inner, outer = seen[:r].ravel(), seen[r : r + more].ravel()
        # Of entries jk and kj the part that changes Y; what is left of them, a rotation of R, stays 0.
        both = np.concatenate([scale_j * inner[above] + scale_k * inner[below], outer])
        together = potrs(factor, both, lower=is_lower)[0]
        inner = np.zeros_like(inner)
        inner[below] = scale_k * together[:pairs]
        inner[above] = scale_j * together[:pairs]
        found[:r] = inner.reshape(r, r)
        found[r : r + more] = together[pairs:].reshape(more, r)
        return V @ found

    return solved
