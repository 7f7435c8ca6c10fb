"""Conformal eigenmaps (Sha & Saul, ICML 2005) as a `dkl.QuadraticSDP`: whether they keep angles better than the eigenmaps they begin with.

    OMP_NUM_THREADS=1 python -m benchmarks.qsdp.conformal [--sets cap S roll] [--m 6 10 15]

For patches of a row and its 5 nearest, over each two rows a, b of a patch: the least of the sum of (|z_a - z_b|^2 - s |x_a - x_b|^2)^2 over
P psd, z = P^(1/2) q of m eigenvectors q, where s of each patch is free and tr P = 1. A line has the mean error, in degrees, of the angles
that a row's neighbors are seen at, in the first two coordinates of both maps.
"""

from __future__ import annotations

import argparse

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import make_s_curve, make_swiss_roll
from sklearn.neighbors import NearestNeighbors, kneighbors_graph

import dkl

Array = NDArray[np.float64]


def cap(n: int) -> Array:
    """Return rows of a sphere's lower part, the inverse stereographic image of a square: a conformal map to the plane is known."""
    flat = np.random.default_rng(0).uniform(-0.6, 0.6, (n, 2))
    size = 1 + np.square(flat).sum(axis=1)
    return np.column_stack([2 * flat, size - 2]) / size[:, None]


def locally_linear(X: Array, m: int) -> Array:
    """Return m eigenvectors of locally linear embedding, 10 neighbors."""
    left = np.eye(len(X))
    for i, near in enumerate(kneighbors_graph(X, 10).indices.reshape(-1, 10)):
        sides = X[near] - X[i]
        gram = sides @ sides.T
        weights = np.linalg.solve(gram + 1e-3 * np.trace(gram) * np.eye(10), np.ones(10))
        left[i, near] -= weights / weights.sum()
    return np.asarray(np.linalg.eigh(left.T @ left)[1][:, 1 : m + 1])


def angles(Z: Array, patches: NDArray[np.intp]) -> Array:
    """Return the angles at the first row of each patch between each two others, in degrees."""
    sides = Z[patches[:, 1:]] - Z[patches[:, :1]]
    sides /= np.linalg.norm(sides, axis=2, keepdims=True)
    return np.degrees(np.arccos((sides @ sides.transpose(0, 2, 1))[:, *np.triu_indices(5, 1)].clip(-1, 1)))


def conformal(X: Array, Q: Array, patches: NDArray[np.intp]) -> Array:
    """Return the map of Q (n, m)."""
    m, (i, j), squares = Q.shape[1], np.triu_indices(6, 1), []
    for patch in patches:
        lengths = np.square(X[patch[i]] - X[patch[j]]).sum(axis=1)
        sides = Q[patch[i]] - Q[patch[j]]
        seen = sides[:, :, None] * sides[:, None, :]
        squares.append(seen - np.tensordot(np.outer(lengths, lengths) / (lengths @ lengths), seen, axes=1))
    rows = np.linalg.qr(np.reshape(squares, (-1, m * m)), mode="r").reshape(-1, m, m)
    rows = (rows + rows.transpose(0, 2, 1)) / 2 / np.linalg.norm(rows)
    # f is homogeneous of degree 2: with (tr P - 1)^2 its least P is, but for its size, that under tr P = 1.
    problem = dkl.QuadraticSDP.from_matrices([*rows, np.eye(m)], [*np.zeros(len(rows)), 1.0])
    return np.asarray(Q @ dkl.quadratic_sdp(problem, tol=1e-8).factor)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", choices=("cap", "S", "roll"), default=["cap", "S", "roll"])
    parser.add_argument("--m", type=int, nargs="+", default=[6, 10, 15])
    asked = parser.parse_args()
    print("| rows | eigenvectors | m | conformal | as they are |\n|---|---|---|---|---|")
    rolls = {
        "cap": cap(400),
        "S": make_s_curve(600, random_state=0)[0],
        "roll": make_swiss_roll(800, random_state=0)[0],
    }
    for name, X in ((name, rolls[name]) for name in asked.sets):
        patches = NearestNeighbors(n_neighbors=6).fit(X).kneighbors(X)[1]
        wanted = angles(X, patches)
        for m in asked.m:
            graph = dkl.SpectralEmbedding(m, n_neighbors=8).fit_transform(X)
            for kind, Q in (("graph", graph), ("locally linear", locally_linear(X, m))):
                found = (np.abs(angles(Z[:, :2], patches) - wanted).mean() for Z in (conformal(X, Q, patches), Q))
                print(f"| {name} | {kind} | {m} |", " | ".join(f"{one:.0f}" for one in found), "|", flush=True)


if __name__ == "__main__":
    main()
