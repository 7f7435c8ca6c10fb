"""A step of the low-rank engine: the least of a convex quadratic over a face of the psd cone, by an interior-point method."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dkl.linalg.psd_quadratic import psd_minimum, svec
from dkl.linalg.symmetric_maps import svec_places
from dkl.solvers.qsdp_problem import Point, Problem

Array = NDArray[np.float64]
FACE = 30
"""Rows of a problem that is one face, all of it: interior-point steps of q rows take q^6 / 24 operations."""
FRESH = 6
"""Eigenvectors of the gradient that a face gets beside the factor's columns."""
CUTS = (1e-3, 1e-4, 1e-5, 1e-6, 1e-8, 1e-10)
"""Of the largest eigenvalue of Z: what is below is left out where that costs next to nothing."""
SLACK = 0.1
"""Of a face's progress: what leaving columns out may undo, so that later faces have room."""


def least_on_face(problem: Problem, point: Point, aim: float, most: int = FACE) -> Any:
    """The least f over Y = V Z V', of which `point` is one, to `aim`; truncated to the columns that count.

    V: an orthonormal basis of the point's columns and eigenvectors of its gradient; all, where there are at most
    `most` rows.
    """
    V = _face(point, most)
    linear = svec(V.T @ (problem.C - 2.0 * problem.map.adjoint(problem.targets)) @ V)
    normal = 2.0 * problem.map.gram(V, *svec_places(V.shape[1]))
    start = V.T @ point.factor
    found = psd_minimum(normal, linear, _begin(start @ start.T, normal, linear), aim)
    sizes, turn = np.linalg.eigh(found)
    columns = (V @ turn) * np.sqrt(np.maximum(sizes, 0.0))
    whole = problem.at(columns)
    if not whole.objective < point.objective:
        return point
    slack = SLACK * (point.objective - whole.objective)
    for cut in CUTS:
        kept = sizes > cut * sizes[-1]
        if kept.all():
            break
        trial = problem.at(columns[:, kept])
        if trial.objective <= whole.objective + slack:
            return trial
    return whole


def _face(point: Point, most: int) -> Array:
    """V (m, q): the range of the factor, and where f falls steepest."""
    m = len(point.gradient)
    vectors, sizes, _ = np.linalg.svd(point.factor, full_matrices=False)
    own = vectors[:, sizes > 1e-8 * sizes[0]] if sizes[0] > 0 else vectors[:, :0]
    rank = own.shape[1]
    width = m if m <= most else min(m, rank + min(FRESH, most // 2))
    steepest = np.linalg.eigh(point.gradient)[1][:, : width - rank]
    return np.linalg.qr(np.concatenate([own, steepest], axis=1))[0]


def _begin(Z: Array, normal: Array, linear: Array) -> Array:
    """Z, or where it is zero the best multiple of the identity."""
    if np.any(Z):
        return Z
    identity = svec(np.eye(len(Z)))
    slope, bend = float(linear @ identity), float(identity @ normal @ identity)
    return np.eye(len(Z)) * (max(-slope, 1e-3 * abs(slope)) / bend if bend > 0 and slope else 1.0)
