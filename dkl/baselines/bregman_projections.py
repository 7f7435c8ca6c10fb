"""Bregman projections of a matrix onto one constraint on a distance after the other, with slack: the arithmetic of ITML.

J. Davis, B. Kulis, P. Jain, S. Sra, I. Dhillon, Information-theoretic metric learning, ICML 2007, Algorithm 1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

Matrix = NDArray[np.float64]
Indices = NDArray[np.intp]


@dataclass(frozen=True)
class Constraints:
    """ends (c, 2) among the p rows that pairs touch; sign (c,) 1 for must-links, -1 for cannot-links; bounds (c,) u or l."""

    points: Indices
    ends: Indices
    sign: Matrix
    bounds: Matrix


@dataclass(frozen=True)
class Projected:
    """What the sweeps leave: multipliers (c,), sweeps, and whether the last changed no more than was allowed."""

    multipliers: Matrix
    n_iter: int
    is_converged: bool


def project(
    matrix: Matrix, constraints: Constraints, gamma: float, tol: float, max_iter: int, rows: Matrix | None = None
) -> Projected:
    """Sweeps of projections onto one constraint after the other; `matrix`, K (p, p) or W (d, d), is changed in place.

    rows (p, d): of which K = rows W rows', for a metric. A projection costs p^2 flops, or d^2. A sweep that changes the
    multipliers by at most `tol` of their norm is the last.
    """
    multipliers, slack = np.zeros(len(constraints.ends)), constraints.bounds.copy()
    for sweep in range(1, max_iter + 1):
        before = multipliers.copy()
        if rows is None:
            _sweep_kernel(matrix, constraints.ends, constraints.sign, multipliers, slack, gamma)
        else:
            _sweep_metric(matrix, rows, constraints.ends, constraints.sign, multipliers, slack, gamma)
        size = float(np.linalg.norm(multipliers) + np.linalg.norm(before))
        if np.linalg.norm(multipliers - before) <= tol * size:
            return Projected(multipliers, sweep, True)
    return Projected(multipliers, max_iter, False)


@njit(cache=True)
def _step(t, p, sign, multipliers, slack, gamma):  # type: ignore[no-untyped-def]
    """beta of K += beta v v', v = K a, p = a'K a, after the projection onto constraint t; Algorithm 1, lines 3.3 to 3.7.

    p / (1 - delta alpha p) = gamma xi / (gamma + delta alpha xi) asks for delta alpha = gamma/(1+gamma) (1/p - 1/xi). The paper prints
    1/2 (1/p - gamma/xi), which is that at gamma = 1 alone.
    """
    if p <= 0.0:
        return 0.0
    delta = sign[t]
    alpha = min(multipliers[t], delta * gamma / (1.0 + gamma) * (1.0 / p - 1.0 / slack[t]))
    slack[t] = gamma * slack[t] / (gamma + delta * alpha * slack[t])
    multipliers[t] -= alpha
    return delta * alpha / (1.0 - delta * alpha * p)


@njit(cache=True)
def _add(matrix, v, beta):  # type: ignore[no-untyped-def]
    for a in range(len(v)):
        for b in range(len(v)):
            matrix[a, b] += beta * v[a] * v[b]


@njit(cache=True)
def _sweep_kernel(K, ends, sign, multipliers, slack, gamma):  # type: ignore[no-untyped-def]
    for t in range(len(ends)):
        i, j = ends[t]
        p = K[i, i] + K[j, j] - 2.0 * K[i, j]
        beta = _step(t, p, sign, multipliers, slack, gamma)
        if beta != 0.0:
            _add(K, K[i] - K[j], beta)


@njit(cache=True)
def _sweep_metric(W, rows, ends, sign, multipliers, slack, gamma):  # type: ignore[no-untyped-def]
    v = np.empty(len(W))
    for t in range(len(ends)):
        a = rows[ends[t, 0]] - rows[ends[t, 1]]
        p = 0.0
        for r in range(len(W)):
            v[r] = 0.0
            for s in range(len(W)):
                v[r] += W[r, s] * a[s]
            p += v[r] * a[r]
        beta = _step(t, p, sign, multipliers, slack, gamma)
        if beta != 0.0:
            _add(W, v, beta)
