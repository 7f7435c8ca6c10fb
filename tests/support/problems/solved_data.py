"""Rows, side information and kernels of the trials of tests/solved_trials.py, at any scale, and such whose sums cancel."""

from __future__ import annotations

from typing import Any

import numpy as np
import solved_oracles as oracles
from numpy.typing import NDArray
from solved_oracles import exact

Rng = np.random.Generator
Rows = NDArray[np.float64]


def scale(rng: Rng) -> float:
    """Return 1 half of the time, else a power of ten, near or far."""
    reach = rng.choice([0.0, 0.0, 12.0, 150.0])
    return float(10.0 ** rng.uniform(-reach, reach))


def random_rows(rng: Rng) -> tuple[Rows, NDArray[np.intp]]:
    """Return rows (n, d) and a class of each, 2 or 3 of them."""
    n, d = int(rng.integers(8, 15)), int(rng.integers(2, 5))
    y = np.arange(n) % int(rng.integers(2, 4))
    X = rng.standard_normal((n, d)) + 2 * np.eye(4, d)[y]
    kind = rng.choice(["as drawn", "far from 0", "far and narrow", "columns", "sizes"])
    if kind == "far from 0":
        X = X + 10.0 ** rng.uniform(1, 7)
    elif kind == "far and narrow":
        X = X * 10.0 ** rng.uniform(-6, 0) + rng.standard_normal(d) * 10.0 ** rng.uniform(0, 3)
    elif kind == "columns":
        X = X * 10.0 ** rng.uniform(-4, 4, d)
    elif kind == "sizes":
        X = X * 10.0 ** rng.uniform(-3, 3, (n, 1))
    return X * scale(rng), y


def random_pairs(rng: Rng, y: NDArray[np.intp]) -> tuple[Any, Any]:
    """Return must-links and cannot-links (p, 2), each pair once."""
    i, j = np.triu_indices(len(y), 1)
    kept = rng.choice(len(i), int(rng.integers(2, len(y))), replace=False)
    ends, alike = np.stack([i[kept], j[kept]], axis=1), y[i[kept]] == y[j[kept]]
    return ends[alike], ends[~alike]


def random_triplets(rng: Rng, y: NDArray[np.intp]) -> Any:
    """Return triplets (t, 3) of an anchor, a row of its class, and another."""
    found = set()
    for _ in range(int(rng.integers(3, 10))):
        a = int(rng.integers(len(y)))
        same, other = np.flatnonzero((y == y[a]) & (np.arange(len(y)) != a)), np.flatnonzero(y != y[a])
        found.add((a, int(rng.choice(same)), int(rng.choice(other))))
    return np.array(sorted(found))


def random_kernel(rng: Rng, X: Rows) -> tuple[str, Rows, Any, dict[str, Any]]:
    """Return a kernel's name, the rows or the matrix to learn from, its exact matrix (n, n) where it is given, and its parameters.

    Every third is constant to some digits: wide, or with a constant added.
    """
    name = str(rng.choice(["linear", "rbf", "poly", "cosine", "precomputed"]))
    spread = float(np.square(X - X.mean(axis=0)).sum(axis=1).mean()) or 1.0
    flat = float(10.0 ** rng.uniform(1, 12)) if rng.random() < 1 / 3 else 1.0
    if name == "precomputed":
        apart = ((X[:, None] - X[None]) ** 2).sum(axis=-1) / spread
        K = (np.exp(-apart / rng.uniform(0.1, 10)) + (flat if flat > 1 else 0)) * scale(rng)
        return name, 0.5 * (K + K.T), exact(0.5 * (K + K.T)), {}
    if name in ("linear", "cosine"):
        return name, X, None, {}
    gamma = min(max(float(10.0 ** rng.uniform(-4, 2)) / flat / spread, 1e-300), 1e300)
    return name, X, None, {"gamma": gamma} if name == "rbf" else {"gamma": gamma, "degree": 2, "coef0": flat}


def matrix_of(name: str, X: Rows, K: Any, params: dict[str, Any]) -> Any:
    """Return the exact kernel matrix (n, n) of the rows X."""
    return oracles.kernel(name, exact(X), exact(X), **params) if K is None else K
