"""The pseudo-inverse of a graph's Laplacian, dense: the kernel of which the distances are resistances of the graph."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from dkl.errors import NumericalError
from dkl.linalg.laplacian import check_laplacian

Matrix = NDArray[np.float64]


def laplacian_pseudo_inverse(unnormalized: csr_array, laplacian: str = "normalized") -> Matrix:
    """L^+ (n, n), symmetric to the bit, from D - W (n, n): of L = D - W itself, or of L = D^-1/2 (D - W) D^-1/2.

    The null space of L is known, one vector u_c a connected component c: its indicator, times D^1/2 for the second kind. So

        L^+ = (L + s U U')^-1 - U U' / s,        U orthonormal, s the mean of L's diagonal,

    by one Cholesky factorization: n^3 flops where eigenvectors take ten times as many; 8 n^2 bytes beside L.
    Raises NumericalError where L is singular beside U up to rounding: where some weights are negligible beside others.
    """
    check_laplacian(laplacian)
    degree = unnormalized.diagonal()
    root = np.sqrt(degree) if laplacian == "normalized" else np.ones_like(degree)
    root = np.where(degree > 0, root, 1.0)  # isolated patterns: L is zero there, whatever the scale
    count, labels = connected_components(unnormalized, directed=False)
    null = root / np.sqrt(np.bincount(labels, weights=root**2, minlength=count))[labels]
    matrix = unnormalized.toarray()
    if laplacian == "normalized":
        matrix /= root[:, None]
        matrix /= root
    shift = float(matrix.diagonal().mean()) or 1.0
    members = [np.flatnonzero(labels == c) for c in range(count)]
    for of in members:
        matrix[np.ix_(of, of)] += shift * np.outer(null[of], null[of])
    factor, failed = lapack.dpotrf(matrix.T, lower=1, overwrite_a=1)  # symmetric: its transpose is in LAPACK's order
    inverse, singular = (factor, failed) if failed else lapack.dpotri(factor, lower=1, overwrite_c=1)
    if failed or singular:
        remedy = "widen the graph's similarity (sigma), or take more neighbours"
        raise NumericalError("the graph's Laplacian is singular up to rounding", where="kernel", remedy=remedy)
    inverse = np.tril(inverse)
    inverse += np.tril(inverse, -1).T
    for of in members:
        inverse[np.ix_(of, of)] -= np.outer(null[of], null[of]) / shift
    return np.ascontiguousarray(inverse)
