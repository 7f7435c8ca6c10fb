"""Oracles of what "solved" claims, in 60 digits from what learners hand out, or by a conic solver; nothing here comes from `dkl`.

An oracle returns (what is left, what may be left): relative gaps or residuals. Numbers are arrays of mpmath's, exact where
doubles are given.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import clarabel
import numpy as np
from mpmath import mp, mpf
from scipy import sparse

mp.dps = 60
Left = tuple[Any, Any]
UNTOLD = mpf(10) ** -24
"""Least tr W - log det W - n that counts, whose terms are of size n: less than this is rounding, and such an objective counts as 0."""
CONIC = 1e-8
"""Share of a program's size that a conic solver leaves open."""

exact: Callable[[Any], Any] = np.vectorize(mpf, otypes=[object])
_exp, _log = (np.vectorize(function, otypes=[object]) for function in (mp.exp, mp.log))


def kernel(name: str, X: Any, Z: Any, gamma: Any = 1.0, degree: int = 3, coef0: float = 1.0) -> Any:
    """Return k(x, z) (m, l) of the exact rows X (m, d) and Z (l, d): linear, cosine, rbf or poly."""
    if name == "linear":
        return X @ Z.T
    if name == "cosine":
        X, Z = (rows / np.array([norm(row) or mpf(1) for row in rows])[:, None] for rows in (X, Z))
        return X @ Z.T
    if name == "poly":
        return (mpf(gamma) * (X @ Z.T) + mpf(coef0)) ** degree
    return _exp(-mpf(gamma) * ((X[:, None] - Z[None]) ** 2).sum(axis=-1))


def norm(vector: Any) -> Any:
    """Return |v|."""
    return mp.sqrt((vector**2).sum())


def log_det(A: Any) -> Any:
    """Return log det A of a symmetric A; -infinity where it is not positive definite."""
    try:
        root = mp.cholesky(mp.matrix((A + A.T).tolist()) / 2)
    except ValueError:
        return -mp.inf
    return 2 * sum(mp.log(root[i, i]) for i in range(len(A)))


def root_of(A: Any) -> Any:
    """Return L of A = L L'."""
    L = mp.cholesky(mp.matrix(A.tolist()))
    return np.array([[L[i, j] for j in range(len(A))] for i in range(len(A))], object)


# -- eigenpairs and clusters ----------------------------------------------------------------------------------------------


def components(K: Any, values: Any, vectors: Any, tol: float) -> Left:
    """The largest |H K H v - lambda v| over the largest lambda."""
    A = K - K.mean(axis=0)
    A = A - A.mean(axis=1)[:, None]
    values, vectors = exact(values), exact(vectors)
    if not values[0] > 0:
        return max(abs(A).max() / (abs(K).max() or 1), 0), mpf(10) ** -15
    residual = max(norm(A @ v - value * v) for value, v in zip(values, vectors.T, strict=True))
    return residual / values[0], tol


def eigenmaps(W: Any, values: Any, coordinates: Any, tol: float) -> Left:
    """The largest |L u - lambda u| of L = I - D^-1/2 W D^-1/2, whose norm is 1 at least, and u = D^1/2 f / |.|."""
    W = W - np.diag(np.diag(W))
    roots = np.array([mp.sqrt(degree) for degree in W.sum(axis=1)])
    left = mpf(0)
    for value, f in zip(exact(values), exact(coordinates).T, strict=True):
        u = roots * f
        left = max(left, norm(u - (W @ (u / roots)) / roots - value * u) / norm(u))
    return left, tol


def clusters(X: Any, centers: Any, labels: Any) -> Left:
    """By how much a row is farther from its own center than from another, and a center from its mean, over the largest distance."""
    centers = exact(centers)
    squares = ((X[:, None] - centers[None]) ** 2).sum(axis=-1)
    own = squares[np.arange(len(X)), labels]
    means = [X[labels == k].mean(axis=0) - centers[k] for k in range(len(centers)) if (labels == k).any()]
    size = squares.max() or mpf(1)
    return max([*(own - squares.min(axis=1)), *((mean**2).sum() for mean in means)]) / size, mpf(10) ** -13


# -- machines and lassos --------------------------------------------------------------------------------------------------


def machine(K: Any, y: Any, alpha: Any, C: Any, rho: float, b: float, tol: float) -> Left:
    """The gap of (7) at the intercept b over |f|, or by a conic solver where that proves more; infinite outside the box."""
    rho, alpha, C = mpf(rho), exact(alpha), exact(C)
    slack = 1 + mpf(10) ** -12
    if (alpha < 0).any() or (alpha > C * slack).any() or abs(y @ alpha) > mpf(10) ** -9 * alpha.sum():
        return mp.inf, tol
    bounds = np.minimum(C, 2 * mp.cbrt(rho * mp.sqrt(len(y))))
    product, square = y * (K @ (y * alpha)), (alpha**2).sum()
    f = alpha @ product - 2 * alpha.sum() + square**2 / (4 * rho)
    g = 2 * (product - 1) + square / rho * alpha
    gap = alpha @ g + bounds @ np.maximum(0, -g - 2 * mpf(b) * y)
    left = gap / -f if f < 0 else mp.inf
    if left <= tol or f >= 0:
        return left, tol
    # In units in which alpha and f are about 1.
    unit = alpha.max()
    quartic, linear = float(unit**4 / (4 * rho * -f)), float(2 * unit / -f)
    K = K - K.mean(axis=0)  # about its means, as y'alpha = 0, for digits that a constant would take
    K = K - K.mean(axis=1)[:, None]
    Q = (np.outer(y, y) * K * (unit**2 / -f)).astype(float)
    bound = _machine_bound(Q, linear, quartic, y.astype(float), np.minimum(bounds / unit, 1e9).astype(float))
    return (left, tol) if bound is None else (min(left, -1 - mpf(bound)), tol + CONIC)


def _machine_bound(Q: Any, linear: float, quartic: float, y: Any, bounds: Any) -> float | None:
    """Return the dual value of min a'Q a - linear e'a + quartic |a|^4 over 0 <= a <= bounds, y'a = 0; None where none is found.

    x = (a, t) with |a|^2 <= t, as the cone of ((t + 1) / 2, (t - 1) / 2, a).
    """
    n = len(y)
    P = sparse.block_diag([sparse.csc_matrix(np.triu(2 * Q)), [[2 * quartic]]], format="csc")
    eye, zeros = sparse.identity(n), sparse.csc_matrix((n, 1))
    G = sparse.bmat([
        [sparse.csc_matrix(y[None]), None],
        [-eye, zeros],
        [eye, zeros],
        [None, sparse.csc_matrix([[-0.5], [-0.5]])],
        [-eye, zeros],
    ], format="csc")  # fmt: skip
    h = np.concatenate([[0.0], np.zeros(n), bounds, [0.5, -0.5], np.zeros(n)])
    cones = [clarabel.ZeroConeT(1), clarabel.NonnegativeConeT(2 * n), clarabel.SecondOrderConeT(n + 2)]
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    found = clarabel.DefaultSolver(P, np.append(np.full(n, -linear), 0.0), G, h, cones, settings).solve()
    return float(found.obj_val_dual) if str(found.status) == "Solved" else None


def lasso(C: Any, y: Any, w: Any, c: float, s: Any, kappa: Any, intercept: bool, tol: float) -> Left:
    """The gap of the lasso on columns C (n, M) at weights w and the intercept c over its objective; s (n,): sample weights."""
    s = exact(s)

    def centered(values: Any) -> Any:
        return values - (s @ values) / s.sum() if intercept else values

    r = y - C @ w - mpf(c)
    objective = s @ r**2 + 2 * kappa * abs(w).sum()
    r, target = centered(y - C @ w), centered(y)
    square, fitted = s @ r**2, s @ (target * r)
    largest = max(abs((s * r) @ centered(C)))
    scale = fitted / square if square > 0 else mpf(0)
    if largest > 0:
        scale = max(min(scale, kappa / largest), -kappa / largest)
    dual = 2 * scale * fitted - scale**2 * square
    return ((objective - dual) / objective if objective > 0 else mpf(0)), tol


# -- LogDet ----------------------------------------------------------------------------------------------------------------


@mp.workdps(300)  # a weight may be 1e-150: what it changes is to be seen beside 1
def log_det_problem(L: Any, W: Any, triplets: Any, weight: Any, multipliers: Any, tol: float) -> Left:
    """The gap of w sum log(1 + exp(-2 a)) + LogDet(W, I) for K = L W L', by its dual at multipliers (c,), or at its margins."""
    K, (i, j, k) = L @ W @ L.T, np.asarray(triplets).T
    margins = 2 * K[i, j] - 2 * K[i, k] - K[j, j] + K[k, k]
    objective = weight * _log(1 + _exp(-2 * margins)).sum() + np.trace(W) - log_det(W) - len(W)
    bound = mpf(0)  # of both terms
    for slopes in (-2 / (1 + _exp(2 * margins)), exact(multipliers) / weight):
        if not ((slopes <= 0) & (slopes >= -2)).all():
            continue
        some = (slopes < 0) & (slopes > -2)  # of others the conjugate is 0
        x = _log(-2 / slopes[some] - 1) / 2 if some.any() else slopes[some]
        U = np.full(K.shape, mpf(0), object)
        for a, p, q, slope in zip(i, j, k, weight * slopes, strict=True):
            U[a, p], U[p, a], U[a, q], U[q, a] = U[a, p] + slope, U[p, a] + slope, U[a, q] - slope, U[q, a] - slope
            U[p, p], U[q, q] = U[p, p] - slope, U[q, q] + slope
        D = weight * (_log(1 + _exp(-2 * x)) - x * slopes[some]).sum() + log_det(np.eye(len(W)) + L.T @ U @ L)
        bound = max(bound, D)
    return (objective - bound) / max(objective, bound, UNTOLD), tol + UNTOLD / max(objective, bound, UNTOLD)


# -- convex quadratics over the cone ---------------------------------------------------------------------------------------


def quadratic(forms: Any, targets: Any, linear: Any, Y: Any, least: Any, tol: float) -> Left | None:
    """The gap of f = sum (<B_s, Y> - t_s)^2 + <C, Y> at Y over max(|f|, |<C, Y>|, least), by a conic solver's bound.

    forms (p, m, m) symmetric, exact, as all numbers. None where the conic solver ends without a bound.
    """
    m, Y = len(Y), exact(Y)
    seen = np.array([(B * Y).sum() for B in forms], object)
    part = (linear * Y).sum()
    f = ((seen - targets) ** 2).sum() + part
    # In units of Y and f in which targets and forms are about 1.
    form, target = abs(forms).max(), abs(targets).max() or mpf(1)
    B, t = (forms / form).astype(float), (targets / target).astype(float)
    C = (linear / (form * target)).astype(float)
    i, j = np.triu_indices(m)
    order = np.lexsort((i, j))  # columns of the upper triangle
    i, j = i[order], j[order]
    double = np.where(i == j, 1.0, np.sqrt(2.0))
    rows, c = B[:, i, j] * double, C[i, j] * double
    P, size = sparse.csc_matrix(np.triu(2 * rows.T @ rows)), len(double)
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    cones = [clarabel.PSDTriangleConeT(m)]
    found = clarabel.DefaultSolver(
        P, c - 2 * rows.T @ t, -sparse.identity(size, format="csc"), np.zeros(size), cones, settings
    ).solve()
    if str(found.status) != "Solved":
        return None
    unit = target**2
    bound = (mpf(found.obj_val_dual) + mpf(float(t @ t))) * unit
    scale = max(abs(f), abs(part), least)
    return (f - bound) / scale, tol + CONIC * max((targets**2).sum(), abs(part), abs(f)) / scale
