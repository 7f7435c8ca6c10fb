"""Minimum of a convex quadratic over the psd cone, some dozens of rows, by interior points; and of a quartic on a line.

    minimize 1/2 y'N y + c'y over Y psd, y = svec(Y): the upper triangle by rows, off-diagonal entries times sqrt 2

With Z = smat(N y + c) it is Y, Z psd and <Y, Z> = 0. A step is Nesterov and Todd's: dZ = -W^-1 dY W^-1 + sigma mu Y^-1 - Z with
W Z W = Y, which leaves one linear system in svec(dY) of the matrix N + svec(W^-1 . W^-1), q (q + 1) / 2 square; sigma is
Mehrotra's (Todd, Toh & Tutuncu, SIAM Journal on Optimization 8, 1998).
"""

from __future__ import annotations

import functools

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

Array = NDArray[np.float64]
STEPS = 40
"""Most interior-point steps."""
BOUNDARY = 0.95
"""Share of the way to the boundary of the cone that a step may go."""
INSIDE = 1e-5
"""Share of the start's largest eigenvalue by which it is moved inside the cone."""


def svec(matrix: Array) -> Array:
    """Return a symmetric (q, q)'s upper triangle by rows, off-diagonals times sqrt 2: inner products stay."""
    places, scale = _triangle(len(matrix))
    return matrix.ravel()[places] * scale


def smat(vector: Array, q: int) -> Array:
    """Return the symmetric (q, q) of its svec."""
    places, scale = _triangle(q)
    half = np.zeros((q, q))
    half.ravel()[places] = vector / scale
    return half + np.triu(half, 1).T


@functools.lru_cache(maxsize=8)
def _triangle(q: int) -> tuple[NDArray[np.intp], Array]:
    """Return (places of the upper triangle in a row-major (q, q), their factors in svec)."""
    rows, columns = np.triu_indices(q)
    return rows * q + columns, np.where(rows == columns, 1.0, np.sqrt(2.0))


def congruence(u: Array) -> Array:
    """Return the matrix of Y -> U Y U' in svec, u (p, q): p (p + 1) / 2 by q (q + 1) / 2."""
    (a, b), (c, d) = (np.triu_indices(size) for size in u.shape)
    left, right = (np.where(one == other, 1.0, np.sqrt(2.0)) for one, other in ((a, b), (c, d)))
    by_a, by_b = u[a], u[b]
    # `take` of whole rows, multiplied in place: half the time of indexing u by pairs, which is as long as a factorization.
    both = by_a.take(c, axis=1)
    both *= by_b.take(d, axis=1)
    crossed = by_a.take(d, axis=1)
    crossed *= by_b.take(c, axis=1)
    both += crossed
    both *= 0.5 * left[:, None] * right
    return both


def psd_minimum(normal: Array, linear: Array, start: Array, tol: float) -> Array:
    """Return the psd Y (q, q) of least 1/2 y'N y + c'y, from a psd `start`; normal: psd N; linear: c.

    Ends where the duality gap <Y, Z> is at most `tol`, in units of the objective, or no further step is possible.
    """
    q = len(start)
    # An interior point needs a definite start; INSIDE of the largest eigenvalue moves it little.
    y = start + INSIDE * float(np.linalg.eigvalsh(start)[-1]) * np.eye(q)
    z = smat(normal @ svec(y) + linear, q)
    values = np.linalg.eigvalsh(z)
    # Z is shifted by as much as makes it definite, so that both matrices can be factored.
    z += max(0.0, 0.01 * float(np.abs(values).max()) - 1.5 * float(values[0])) * np.eye(q)
    for _ in range(STEPS):
        infeasible = normal @ svec(y) + linear - svec(z)
        gap = float(np.sum(y * z))
        # Both the gap and what is infeasible count, as the first says nothing while Z is not the gradient.
        if gap <= tol and abs(float(infeasible @ svec(y))) <= tol:
            break
        try:
            dy, dz = _step(normal, infeasible, y, z)
        except np.linalg.LinAlgError:  # Y or Z is singular to rounding: no nearer
            break
        y, z = y + dy, z + dz
    return y


def _step(normal: Array, infeasible: Array, y: Array, z: Array) -> tuple[Array, Array]:
    """Return the step (dY, dZ), cut at the cone's boundary; a trial step, straight at <Y, Z> = 0, chooses its mu."""
    q = len(y)
    root_y, root_z = np.linalg.cholesky(y), np.linalg.cholesky(z)
    out_y, out_z = np.linalg.inv(root_y), np.linalg.inv(root_z)
    # Nesterov and Todd's W from the singular values of R_z'R_y, so that W Z W = Y holds exactly.
    _, scale, turn = np.linalg.svd(root_z.T @ root_y)
    half = (np.sqrt(scale)[:, None] * turn) @ out_y
    # One factorization serves the step that shows mu and the step that is taken.
    system = scipy.linalg.cho_factor(normal + congruence(half.T @ half), overwrite_a=True, check_finite=False)
    inverse, mu = out_y.T @ out_y, float(np.sum(y * z)) / q

    def solved(aim: float) -> tuple[Array, Array, float, float]:
        along = scipy.linalg.cho_solve(system, svec(aim * inverse - z) - infeasible, check_finite=False)
        dy, dz = smat(along, q), smat(normal @ along + infeasible, q)
        return dy, dz, _to_boundary(out_y, dy), _to_boundary(out_z, dz)

    # The affine step, straight at <Y, Z> = 0.
    dy, dz, to_y, to_z = solved(0.0)
    ahead = float(np.sum((y + to_y * dy) * (z + to_z * dz))) / q
    # Mehrotra's sigma: the cube of the share that the affine step leaves, within bounds.
    dy, dz, to_y, to_z = solved(mu * min(max((ahead / mu) ** 3, 1e-6), 0.8))
    # One length for both, as the gradient of the quadratic ties dZ to dY.
    return min(to_y, to_z) * dy, min(to_y, to_z) * dz


def _to_boundary(out: Array, change: Array) -> float:
    """Return the step <= 1 along `change` that keeps a matrix psd; out: inverse of its Cholesky factor."""
    steepest = float(np.linalg.eigvalsh(out @ change @ out.T)[0])
    return 1.0 if steepest >= -BOUNDARY else BOUNDARY / -steepest


# The least value of a quartic on a line, exact but for rounding.


@np.errstate(over="ignore", invalid="ignore", divide="ignore")
def lowest_of_quartic(c1: float, c2: float, c3: float, c4: float) -> tuple[float, float]:
    """Return (t, value) of the least c1 t + c2 t^2 + c3 t^3 + c4 t^4: the best real root of its slope.

    (0, 0) without a real root. Leading coefficients so small that roots are beyond double precision count as 0.

    >>> lowest_of_quartic(-2.0, 1.0, 0.0, 0.0)
    (1.0, -1.0)
    >>> lowest_of_quartic(-2.0, 1.0, 0.0, 1e-310)[1]
    -1.0
    """
    slope = np.array([4 * c4, 3 * c3, 2 * c2, c1])
    # `np.roots` divides by the leading coefficient, and refuses quotients that overflow.
    while slope.size > 1 and not np.isfinite(slope / slope[0]).all():
        slope = slope[1:]
    roots = np.roots(slope)
    # A double root may come out as a complex pair, its imaginary part rounding.
    real = roots.real[np.abs(roots.imag) <= 1e-8 * np.abs(roots)]
    values = real * (c1 + real * (c2 + real * (c3 + real * c4)))
    real, values = real[np.isfinite(values)], values[np.isfinite(values)]
    if real.size == 0:
        return 0.0, 0.0
    best = int(np.argmin(values))
    return float(real[best]), float(values[best])
