"""Facial reduction of hard MVU: the face of the psd cone that cliques of rows with known distances leave (Krislock & Wolkowicz 2010).

Where all distances of c rows are set, so is their centered Gram matrix, of rank d, the dimension of their simplex. If d < c - 1, every
feasible K has Z'K Z = 0 of the vectors Z (c, c - 1 - d) with mean 0 that this matrix maps to 0, and so K = U V U', V psd (m, m), where U
(n, m) spans what is orthogonal to all such Z, and to the constant vector. Without it no feasible K is positive definite, and multipliers
grow without bound; on the face that cliques leave they need not.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
FLAT, ZERO = 1e-12, 1e-10
"""Eigenvalues of a clique's Gram matrix, relative to the largest, and of the sum of projections, up to which they are 0."""
MOST_CLIQUES = 50
"""Cliques a row, at most: fewer leave a larger face, on which K is sought all the same."""


def face_of_cliques(n: int, edges: NDArray[np.integer], squared: Array) -> Array:
    """Return U (n, m), orthonormal: each K that has these squared distances (e,) along edges (e, 2), and K 1 = 0, is U V U'."""
    places = {(int(i), int(j)): s for s, (i, j) in enumerate(np.sort(edges, axis=1))}
    exposed = np.full((n, n), 1.0 / n)
    for clique in cliques_of(n, edges):
        c = len(clique)
        apart = np.zeros((c, c))
        for a in range(c):
            for b in range(a):
                apart[a, b] = apart[b, a] = squared[places[clique[b], clique[a]]]
        centered = apart - apart.mean(axis=0)
        centered = -0.5 * (centered - centered.mean(axis=1)[:, None])
        values, vectors = np.linalg.eigh(0.5 * (centered + centered.T))
        # The constant vector is moved to the end; the others of eigenvalue 0 are Z.
        flat = vectors[:, values <= FLAT * max(float(values[-1]), 0.0)]
        flat = flat - flat.mean(axis=0)
        left, sizes, _ = np.linalg.svd(flat, full_matrices=False)
        Z = left[:, sizes > 0.5]
        exposed[np.ix_(clique, clique)] += Z @ Z.T
    values, vectors = np.linalg.eigh(exposed)
    return np.ascontiguousarray(vectors[:, values <= ZERO])


def cliques_of(n: int, edges: NDArray[np.integer]) -> list[list[int]]:
    """Return the maximal cliques that the face is made from, each with its rows rising."""
    return list(islice(_cliques(n, edges), MOST_CLIQUES * n))


def _cliques(n: int, edges: NDArray[np.integer]) -> Iterator[list[int]]:
    """Yield the maximal cliques of two rows or more, each with its rows rising (Bron & Kerbosch 1973, with pivots)."""
    near: list[set[int]] = [set() for _ in range(n)]
    for i, j in edges.tolist():
        near[i].add(j)
        near[j].add(i)

    def grown(clique: list[int], more: set[int], done: set[int]) -> Iterator[list[int]]:
        if not more and not done:
            if len(clique) > 1:
                yield sorted(clique)
            return
        pivot = max(sorted(more | done), key=lambda row: len(near[row] & more))
        for row in sorted(more - near[pivot]):
            yield from grown([*clique, row], more & near[row], done & near[row])
            more = more - {row}
            done = done | {row}

    for row in range(n):
        yield from grown([row], {k for k in near[row] if k > row}, {k for k in near[row] if k < row})
