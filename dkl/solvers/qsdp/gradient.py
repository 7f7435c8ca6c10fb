"""First step of the low-rank engine: accelerated projected gradients in Y, to the optimum's rank.

    Y+ = the psd part of Z - gradient f(Z) / L,   Z = Y + (t - 1) / t+ (Y - Y before)        (Beck & Teboulle 2009)

t restarts at 1 where the step turns against the momentum (O'Donoghue & Candes 2015). f's gradient is affine, so that Z's follows from those
of the factors, and an iteration takes an eigen-decomposition of m rows and two products with the map. What they are for needs no more
than single precision.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dkl.solvers.qsdp.interface import ConePoint, ConeQuadratic

Array = NDArray[np.float64]
MOST, EACH = 150, 10
ENOUGH = 0.1
"""Share of f: the steps end once EACH of them lower it by less."""
COLUMNS = 2.0
"""Columns kept, the largest, over the root of m: an optimum's rank grows like it; faces find the rest."""
POWERS, MARGIN = 8, 1.1
"""Products that find the map's norm, and what they may lack."""


def projected_gradients(problem: ConeQuadratic, rough: ConeQuadratic, point: ConePoint) -> ConePoint:
    """Return the point after as many single-precision steps as pay; `point` if none lowers f."""
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
        turns = np.sum((Z - following) * (following - Y)) > 0
        momentum, t = (0.0, 1.0) if turns else ((t - 1.0) / grown, grown)
        Z, slope_Z = following + momentum * (following - Y), found.gradient + momentum * (found.gradient - slope)
        Y, slope = following, found.gradient
        if step % EACH == 0:
            if before - best.objective < ENOUGH * abs(best.objective):
                break
            before = best.objective
    columns = best.factor.astype(np.float64)
    most = math.ceil(COLUMNS * math.sqrt(len(columns)))
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
    kept[-1] = True
    return vectors[:, kept] * np.sqrt(np.maximum(values[kept], 0.0))
