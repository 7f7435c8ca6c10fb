"""The cheapest diagonal above a low-rank matrix: D >= U U' with a small sum of entries.

D - U U' is psd iff G = U' D^-1 U <= I. For any M psd (q, q) the diagonal D_i = sqrt(u_i' M u_i), times the largest eigenvalue
of its G, is above; at the least sum M is the geometric mean that solves M = M G M, which M <- M^1/2 G^1/2 M^1/2 approaches.
One column alone has the least sum |u|_1^2, where M = |u|_1^2 and D_i = |u_i| |u|_1 (Gershgorin).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dkl.linalg.rows.shared_rows import SharedRows

Array = NDArray[np.float64]
STEPS, WORTH = 15, 5e-3
"""Maximum steps, and least share of the sum that a step must win: the first ones win nearly all."""
MARGIN = 1e-12
"""D is made larger by this share, beyond what rounding may take from it."""


def diagonal_above(u: Array, rows: SharedRows | None = None) -> Array:
    """Return D >= 0 of about the least sum with diag(D) - u u' psd, u (n, q). rows: owners', None for all."""
    rows = rows or SharedRows.alone(len(u))
    best, least = np.zeros(u.shape[0]), np.inf
    spans = rows.sum(lambda lo, hi: np.abs(u[lo:hi]).sum(axis=0)) if u.shape[1] > 0 else np.zeros(0)
    # The start is exact for one column: M = |u|_1^2, Gershgorin's diagonal.
    weight = np.diag(spans**2)
    for _ in range(STEPS if spans.any() else 0):
        diagonal = np.sqrt(np.maximum(np.einsum("ij,ij->i", rows.times(u, weight), u), 0.0))
        # Rows of zeros need nothing, and those that underflow next to nothing.
        diagonal += np.finfo(float).eps ** 2 * float(rows.largest(diagonal.max(initial=0.0)))
        root_of_gram, largest = _root(rows.gram(u / diagonal[:, None], u))
        # Scaled by the largest eigenvalue of G, any diagonal is above: so each step has a valid D.
        above = (1 + MARGIN) * largest * diagonal
        before, now = least, float(rows.sum(lambda lo, hi, above=above: above[lo:hi].sum()))  # type: ignore[misc]
        if now < least:
            best, least = above, now
        if now > (1 - WORTH) * before:
            break
        root, _ = _root(weight)
        # The fixed point M = M G M of the geometric mean.
        weight = root @ root_of_gram @ root
    return best


def _root(matrix: Array) -> tuple[Array, float]:
    """Return (the square root of a psd matrix, the largest eigenvalue of the matrix)."""
    values, vectors = np.linalg.eigh(0.5 * (matrix + matrix.T))
    return (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T, float(values[-1])
