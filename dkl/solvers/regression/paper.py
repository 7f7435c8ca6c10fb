"""SLKL (Machart et al. 2011, Algorithm 2): stochastic coordinate Newton descent on columns in memory.

Kept for comparison: it works on C (n x M) itself, O(n m0) a step. Two slips of the print are mended: the second
derivative carries the factor 2 that (21) gives at p = 2, and the stopping test F(mu^(k-M)) - F(mu^k) < eps F(mu^(k-M))
has its sign. With `mended=False` both are as printed: steps are twice as long, and those down raise F, and the test
F(mu^k) - F(mu^(k-M)) < eps F(mu^(k-M)) ends it after M steps, unless these have raised F.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dkl.solvers.watch import Outcome, Watch, verdict

Vector = NDArray[np.float64]


@dataclass
class PaperState:
    """mu (M,), the active columns in order, G (m0, m0) of (23), F after each M steps, and how it ended."""

    mu: Vector
    support: list[int]
    G: NDArray[np.float64]
    objectives: list[float] = field(default_factory=list)
    n_iter: int = 0
    outcome: Outcome = Outcome.ITERATION_LIMIT

    @classmethod
    def zero(cls, n_columns: int) -> PaperState:
        """Return the state without any column."""
        return cls(np.zeros(n_columns), [], np.empty((0, 0)))


def slkl(
    C: NDArray[np.float64],
    y: Vector,
    lam: float,
    nu: float,
    *,
    tol: float = 1e-4,
    max_iter: int = 10_000,
    draw: Callable[[], object],
    mended: bool = True,
    watch: Watch | None = None,
) -> PaperState:
    """Run Algorithm 2 for at most `max_iter` times M steps; a row each M steps.
    `draw()` gives the next coordinate, uniform in the paper; mended: without the slips of the print."""
    watch, M = watch or Watch(), C.shape[1]
    state = PaperState.zero(M)
    walk, solved = steps(C, y, lam, nu, state, draw, mended=mended), False
    while True:
        state.objectives.append(objective(C, y, lam, nu, state))
        if state.n_iter:
            before, now = state.objectives[-2:]
            # The paper prints the test with the wrong sign: as F falls, the fall is the earlier value less the later.
            fall = before - now if mended else now - before
            solved = fall < tol * before
        row = {"iteration": state.n_iter, "objective": state.objectives[-1], "n_active": len(state.support)}
        outcome = verdict(watch.record(row), solved=solved, at_limit=state.n_iter >= max_iter * M)
        if outcome is not None:
            state.outcome = outcome
            return state
        for _ in range(M):
            next(walk)


def steps(
    C: NDArray[np.float64],
    y: Vector,
    lam: float,
    nu: float,
    state: PaperState,
    draw: Callable[[], Any],
    *,
    mended: bool = True,
) -> Iterator[PaperState]:
    """Yield step by step from a state, which is changed in place, without end."""
    while True:
        _step(C, y, lam, nu, state, int(draw()), 2.0 if mended else 1.0)
        state.n_iter += 1
        yield state


def solve_with_kernel(C: NDArray[np.float64], lam: float, state: PaperState, v: Vector) -> Vector:
    """Return (lambda I + C diag(mu) C')^-1 v by (22)."""
    active = C[:, state.support]
    # Woodbury, (22): K^-1 v by the active columns alone.
    return v / lam - active @ (state.G @ (active.T @ v)) / lam**2


def objective(C: NDArray[np.float64], y: Vector, lam: float, nu: float, state: PaperState) -> float:
    """Return F(mu) of (14)."""
    return lam * float(y @ solve_with_kernel(C, lam, state, y)) + nu * float(state.mu.sum())


def weights(C: NDArray[np.float64], y: Vector, lam: float, state: PaperState) -> Vector:
    """Return w = mu * C'K^-1 y, so that f(x_i) = (C w)_i; (16), (17)."""
    return state.mu * (C.T @ solve_with_kernel(C, lam, state, y))


def _step(C: NDArray[np.float64], y: Vector, lam: float, nu: float, state: PaperState, m: int, factor: float) -> None:
    c = C[:, m]
    v = solve_with_kernel(C, lam, state, c)
    # a = c'K^-1 y and q = c'K^-1 c are all that a coordinate's derivatives need.
    a, q = float(y @ v), float(c @ v)
    # The second derivative: its factor is 2 in (21), at p = 2, and left out in Algorithm 2.
    h = factor * lam * a**2 * q
    # Newton's step (19), cut at mu = 0.
    new = max(0.0, state.mu[m] + (lam * a**2 - nu) / h) if h > 0 else 0.0
    _update(C, lam, state, m, new)
    state.mu[m] = new


def _update(C: NDArray[np.float64], lam: float, state: PaperState, m: int, new: float) -> None:
    """Update G for the new weight of column m: (24) to (27)."""
    old, G = state.mu[m], state.G
    if old == new:  # (24) among others
        return
    if old == 0:
        # (27): a column enters, and G grows by a row and a column.
        c = C[:, m]
        inner = C[:, state.support].T @ c
        s = 1 / (1 / new + c @ c / lam - inner @ G @ inner / lam**2)
        v = -s / lam * (G @ inner)
        state.G = np.block([[G + np.outer(v, v) / s, v[:, None]], [v[None], np.array([[s]])]])
        state.support.append(m)
        return
    p = state.support.index(m)
    if new == 0:
        # (26): a column leaves, and its row and column of G are eliminated.
        G = G - np.outer(G[:, p], G[p]) / G[p, p]
        state.G = np.delete(np.delete(G, p, axis=0), p, axis=1)
        state.support.pop(p)
        return
    # (25): a weight changes, which is a rank-one change of G.
    change = 1 / new - 1 / old
    state.G = G - change / (1 + change * G[p, p]) * np.outer(G[:, p], G[p])
