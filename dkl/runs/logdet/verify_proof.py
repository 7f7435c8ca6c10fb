"""F and its bound for `dkl verify`, from K0, M and the multipliers alone: see verify.py in this folder."""

from __future__ import annotations

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from dkl.runs.logdet.verify_losses import Terms

Matrix = NDArray[np.float64]

AGREE = 1e-8
"""Tolerance relative to the sizes that are summed up."""
KNOWN = 8 * float(np.finfo(float).eps)
"""Relative difference of K0's entries between two ways to a kernel of rows."""
FURTHEST, BISECTIONS = 1e6, 120
"""Largest margin that a slope is searched at, and steps of that search."""


def proven(
    K: Matrix, w: float, M: Matrix, multipliers: Matrix, L: Matrix, terms: Terms
) -> tuple[float, float, float, float]:
    """Return (F, its bound, rounding of F, scale of a gap) of K = K0 + K0 M K0 (p, p), K0 = L L'.

    The bound is the largest of the dual's at the slopes of the margins and at the multipliers, and that by the gradient.
    """
    a, inner = terms.margins(K), L.T @ M @ L
    value, steep = terms.loss(a)
    slope, conjugate = terms.dual_point(a, multipliers / w)
    size = log_det(inner)
    objective = w * float(value.sum()) + float(np.trace(inner)) - size
    bound = w * float(conjugate.sum()) + log_det(L.T @ terms.matrix(w * slope) @ L)
    by_multipliers = w * _conjugate(terms, multipliers / w) + log_det(L.T @ terms.matrix(multipliers) @ L)
    by_gradient = objective - _by_gradient(terms.matrix(w * terms.loss(a)[1] - multipliers), K)
    bound = max(bound, terms.lowest, by_multipliers, by_gradient)
    sizes = w * float(np.abs(value).sum() + np.abs(a * slope).sum()) + abs(float(np.trace(inner))) + abs(size)
    # Each entry of K0 is known to some last digits, whose differences are margins, and of ITML's loss all the steeper where small.
    # Where K0 is all but singular M is huge, and the terms of K0 M K0 cancel.
    K0 = L @ L.T
    np.abs(K0, out=K0)
    sizes_of_K = terms.sizes(K0) + terms.of_entries(K0 @ np.abs(M) @ K0)
    rounding = KNOWN * w * float(np.abs(steep) @ sizes_of_K)
    # Each eigenvalue of L'M L is known to some last digits of the largest: where gamma is tiny, or all constraints hold, F is as tiny.
    # Of that by which a kernel differs from K0 by rounding alone, F has the square.
    rounding += KNOWN * len(inner) * min(1.0, float(np.linalg.norm(inner)) + KNOWN)
    # The same of L'M L.
    lengths = np.abs(L).sum(axis=1)
    rounding += KNOWN * float(lengths @ np.abs(M) @ lengths)
    scale = max(abs(objective), abs(bound) if np.isfinite(bound) else 0.0, float(np.finfo(float).tiny))
    return objective, bound, AGREE * sizes + rounding, scale


def _conjugate(terms: Terms, y: Matrix) -> float:
    """Return the sum of -psi*(y), the least of psi(a) - a y over a, by bisection of psi'(a) = y (c,).
    -inf without such an a."""
    low, high = np.full(len(y), -FURTHEST), np.full(len(y), FURTHEST)
    low = np.where(np.isnan(terms.loss(low)[0]), np.finfo(float).tiny, low)  # ITML's a are squared distances
    slack = AGREE * np.abs(y)
    if (y < terms.loss(low)[1] - slack).any() or (y > np.maximum(terms.loss(high)[1], 0.0) + slack).any():
        return float("-inf")
    for _ in range(BISECTIONS):
        middle = 0.5 * (low + high)
        is_below = terms.loss(middle)[1] < y
        low, high = np.where(is_below, middle, low), np.where(is_below, high, middle)
    return float(np.sum(terms.loss(high)[0] - high * y))


def _by_gradient(G: Matrix, K: Matrix) -> float:
    """Return -s - log(1 - s), s = |K^1/2 G K^1/2|_F < 1 of F's gradient G at K: F less that is a bound, as -log det K is self-concordant
    (Nesterov, Lectures on Convex Optimization, 2018, theorem 5.1.13)."""
    product = G @ K
    size = float(np.sqrt(max((product * product.T).sum(), 0.0)))
    return -size - float(np.log1p(-size)) if size < 1 else float("inf")


def root_of(K0: Matrix) -> Matrix:
    """Return L (p, r), K0 = L L', over nonzero eigenvalues of D^-1 K0 D^-1, D the roots of the diagonal."""
    D = np.sqrt(np.maximum(np.diagonal(K0), 0.0))
    D[D == 0] = 1.0
    values, vectors = np.linalg.eigh(K0 / np.outer(D, D))
    kept = values > len(K0) * np.finfo(float).eps * max(float(values[-1]), 0.0)
    return np.asarray(D[:, None] * vectors[:, kept] * np.sqrt(values[kept]))


def pivoted_root(K0: Matrix) -> Matrix:
    """Return L (p, r), K0 = L L', by pivoted Cholesky: another root than `root_of`, with other rounding."""
    lower, pivots, rank, _ = scipy.linalg.lapack.dpstrf(K0, lower=1)
    L = np.zeros((len(K0), rank))
    L[pivots - 1] = np.tril(lower)[:, :rank]
    return L


def log_det(S: Matrix) -> float:
    """Return log det(I + S) of a symmetric S; -inf if I + S is not positive definite."""
    values = np.linalg.eigvalsh(0.5 * (S + S.T))
    return float(np.log1p(values).sum()) if values[0] > -1.0 else float("-inf")  # those of a tiny S are lost next to 1


def inner_of(L: Matrix, U: Matrix) -> Matrix:
    """Return L'M L (r, r) of K^-1 = K0^-1 + U: (I + L'U L)^-1 - I, which is -(I + L'U L)^-1 L'U L."""
    S = L.T @ U @ L
    return np.asarray(-_symmetric(np.linalg.solve(np.eye(len(S)) + S, S)))


def of_inner(L: Matrix, inner: Matrix) -> tuple[Matrix, Matrix]:
    """Return (an M with L'M L = `inner`, K = L (I + L'M L) L')."""
    D = np.linalg.norm(L, axis=1)
    D[D == 0] = 1.0
    Q, T = np.linalg.qr(L / D[:, None])
    half = scipy.linalg.solve_triangular(T, inner, trans="T")
    M = Q @ scipy.linalg.solve_triangular(T, half.T, trans="T") @ Q.T / np.outer(D, D)
    return _symmetric(M), _symmetric(L @ (np.eye(len(inner)) + inner) @ L.T)


def _symmetric(S: NDArray) -> Matrix:
    return np.asarray(0.5 * (S + S.T))
