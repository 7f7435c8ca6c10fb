"""Pseudo-inverse of a graph's Laplacian, dense: a kernel whose distances are the graph's resistances."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack
from scipy.sparse import coo_array, csr_array, diags_array

from dkl.errors import NumericalError
from dkl.linalg.graph.graph_parts import strong_labels
from dkl.linalg.graph.laplacian import check_laplacian

Matrix = NDArray[np.float64]


LEAST_RCOND = 1e-10
"""Reciprocal condition of L + s U U' below which its inverse has few right digits."""


def laplacian_pseudo_inverse(unnormalized: csr_array, laplacian: str = "normalized") -> Matrix:
    """Return L^+ (n, n), symmetric to the bit, of L = D - W (n, n) or L = D^-1/2 (D - W) D^-1/2.

    The null space of L is known, one vector u_c a connected component c: its indicator, times D^1/2 for the second kind. So

        L^+ = (L + s U U')^-1 - U U' / s,        U orthonormal, s the mean of L's diagonal,

    by one Cholesky factorization: n^3 flops where eigenvectors take ten times as many; 8 n^2 bytes in addition to L.
    Edges that join components by name only (`graph_parts.NEGLIGIBLE`) are left out: with them the null space is one vector short
    where rounding sees none. Raises NumericalError where L is singular outside U up to rounding, by the condition of L + s U U'.
    """
    check_laplacian(laplacian)
    count, labels = strong_labels(-unnormalized, unnormalized.diagonal())
    unnormalized = within_components(unnormalized, labels)
    degree = unnormalized.diagonal()
    root = np.sqrt(degree) if laplacian == "normalized" else np.ones_like(degree)
    root = np.where(degree > 0, root, 1.0)  # isolated patterns: L is zero there, whatever the scale
    null = root / np.sqrt(np.bincount(labels, weights=root**2, minlength=count))[labels]
    matrix = unnormalized.toarray()
    if laplacian == "normalized":
        matrix /= root[:, None]
        matrix /= root
    shift = float(matrix.diagonal().mean()) or 1.0
    members = [np.flatnonzero(labels == c) for c in range(count)]
    for of in members:
        matrix[np.ix_(of, of)] += shift * np.outer(null[of], null[of])
    norm = float(lapack.dlange("1", matrix.T))
    factor, failed = lapack.dpotrf(matrix.T, lower=1, overwrite_a=1)  # symmetric: its transpose is in LAPACK's order
    rcond = 0.0 if failed else float(lapack.dpocon(factor, norm, uplo="L")[0])
    if not rcond >= LEAST_RCOND:
        raise NumericalError(
            "the graph's Laplacian is singular up to rounding", where="kernel", got=f"reciprocal condition {rcond:.2g}",
            wanted=f"at least {LEAST_RCOND:.0e}", remedy="take local widths (sigma), a larger one, or more neighbors",
        )  # fmt: skip
    inverse = lapack.dpotri(factor, lower=1, overwrite_c=1)[0]
    inverse = np.tril(inverse)
    inverse += np.tril(inverse, -1).T
    for of in members:
        inverse[np.ix_(of, of)] -= np.outer(null[of], null[of]) / shift
    return np.ascontiguousarray(inverse)


def within_components(unnormalized: csr_array, labels: NDArray[np.integer]) -> csr_array:
    """Return D - W without the edges between components `labels` (n,); itself if no edge joins two."""
    edges = coo_array(unnormalized)
    i, j = edges.coords
    is_kept = (labels[i] == labels[j]) & (i != j)
    if np.count_nonzero(is_kept) == np.count_nonzero(i != j):
        return unnormalized
    kept = csr_array((edges.data[is_kept], (i[is_kept], j[is_kept])), shape=unnormalized.shape)
    # Summed again: what is left of a degree of negligible weights alone would be rounding.
    return csr_array(kept - diags_array(np.asarray(kept.sum(axis=1)).ravel()))
