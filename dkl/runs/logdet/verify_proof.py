"""F and its bound for `dkl verify`, from K0, M and the multipliers alone: see verify.py beside this file."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dkl.runs.logdet.verify_losses import Terms

Matrix = NDArray[np.float64]

AGREE = 1e-8
"""Relative to the sizes that are summed up."""
FURTHEST, BISECTIONS = 1e6, 120
"""Largest margin that a slope is searched at, and steps of that search."""
RANK = 1e-12
"""Of the largest eigenvalue: what is less is 0."""


def proven(
    K: Matrix, w: float, M: Matrix, multipliers: Matrix, L: Matrix, terms: Terms
) -> tuple[float, float, float, float]:
    """Return (F, its bound, how far rounding may move F, what a gap is relative to) of K = K0 + K0 M K0 (p, p), K0 = L L'.

    The bound is the largest of the dual's at the slopes of the margins and at the multipliers, and that by the gradient.
    """
    a = terms.margins(K)
    value, _ = terms.loss(a)
    slope, conjugate = terms.dual_point(a, multipliers / w)
    inner = L.T @ M @ L
    size = log_det(inner)
    objective = w * float(value.sum()) + float(np.trace(inner)) - size
    bound = w * float(conjugate.sum()) + log_det(L.T @ terms.matrix(w * slope) @ L)
    by_multipliers = w * _conjugate(terms, multipliers / w) + log_det(L.T @ terms.matrix(multipliers) @ L)
    by_gradient = objective - _by_gradient(terms.matrix(w * terms.loss(a)[1] - multipliers), K)
    bound = max(bound, terms.lowest, by_multipliers, by_gradient)
    sizes = w * float(np.abs(value).sum() + np.abs(a * slope).sum()) + abs(float(np.trace(inner))) + abs(size)
    scale = max(abs(objective), abs(bound) if np.isfinite(bound) else 0.0, float(np.finfo(float).tiny))
    return objective, bound, AGREE * sizes, scale


def _conjugate(terms: Terms, y: Matrix) -> float:
    """Return the sum of -psi*(y), the least of psi(a) - a y over a, by bisection of psi'(a) = y (c,); -inf where there is none."""
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
    """L (p, r), K0 = L L', over the eigenvalues that are not 0."""
    values, vectors = np.linalg.eigh(K0)
    kept = values > RANK * max(float(values[-1]), 0.0)
    return np.asarray(vectors[:, kept] * np.sqrt(values[kept]))


def log_det(S: Matrix) -> float:
    """log det(I + S) of a symmetric S; -inf where I + S is not positive definite."""
    values = 1.0 + np.linalg.eigvalsh(0.5 * (S + S.T))
    return float(np.log(values).sum()) if values[0] > 0 else float("-inf")


def of_multipliers(K0: Matrix, U: Matrix) -> Matrix:
    """M of K^-1 = K0^-1 + U: -(I + U K0)^-1 U."""
    found = -np.linalg.solve(np.eye(len(K0)) + U @ K0, U)
    return np.asarray(0.5 * (found + found.T))
