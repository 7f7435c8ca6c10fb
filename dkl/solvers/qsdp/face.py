"""Step of the low-rank engine: least convex quadratic over a face of the psd cone, by interior points."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dkl.linalg.symmetric.psd_quadratic import psd_minimum, svec
from dkl.linalg.symmetric.symmetric_maps import svec_places
from dkl.solvers.qsdp.interface import ConePoint, ConeQuadratic

Array = NDArray[np.float64]
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
    fixed, weak, V = _face(point, most, along)
    targets = problem.targets - problem.map.see(fixed).squares()
    linear = svec(V.T @ (problem.C - 2.0 * problem.map.adjoint(targets)) @ V)
    normal = 2.0 * problem.map.gram(V, *svec_places(V.shape[1]))
    start = V.T @ weak
    found = psd_minimum(normal, linear, _begin(start @ start.T, normal, linear), aim)
    sizes, turn = np.linalg.eigh(found)
    columns = (V @ turn) * np.sqrt(np.maximum(sizes, 0.0))
    whole = problem.at(np.concatenate([fixed, columns], axis=1))
    if not whole.objective < point.objective:
        return point
    slack = SLACK * (point.objective - whole.objective)
    for cut in CUTS:
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
    vectors, sizes, _ = np.linalg.svd(point.factor, full_matrices=False)
    rank = int(np.count_nonzero(sizes > 1e-8 * sizes[0]))
    strong = 0 if m <= most else max(0, rank - WEAK)
    width = m if m <= most else min(m, rank - strong + min(FRESH, most // 2))
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
