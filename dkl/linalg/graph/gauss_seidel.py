"""The pairwise problem in V (Hu & Kwok 2013, (1)), minimized over one row after the other: a sweep of nonlinear Gauss-Seidel.

In x = v_i alone, the other rows held, f is, up to a constant,
    L_ii x.x + 2 x . sum_j!=i L_ij v_j + gamma/2 (x.x - 1)^2 + gamma sum_j!=i W_ij (x.v_j - T_ij)^2,
of gradient 2 g, g = (L V + gamma (W R) V)_i, and Hessian 2 (s I + gamma (2 x x' + sum_j W_ij v_j v_j')), s = L_ii + gamma (x.x - 1).
Each row takes a Newton step, s raised to where the Hessian is positive definite, and goes along it as far as f, a quartic, falls.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dkl.linalg.eigen.lowest_subspace import filtered, spectrum_top
from dkl.linalg.late_functions import njit
from dkl.linalg.rows.shared_rows import SharedMatrix
from dkl.linalg.slabs.slab_ops import add_sparse_row, row_dot

# For the reasons in `slab_ops`.
_JIT = {"nogil": True, "cache": True, "fastmath": {"contract", "reassoc"}, "error_model": "numpy"}
LEAST_CURVATURE = 0.1
"""Least s, which may be negative for a short row."""
NEWTON_STEPS = 6
"""Steps on the quartic along d; the start, a step of 1, is Newton's for the row."""


@njit(**_JIT)
def sweep(indptr, indices, data, t_indptr, t_indices, t_data, weights, gamma, v, backwards, lanes):  # type: ignore[no-untyped-def]
    """Sweep over the rows of v (n, w), in order or backwards, in place; L and T in CSR, T's `weights`."""
    n, width = v.shape
    g, d = np.zeros((1, width)), np.zeros((1, width))
    hessian = np.empty((width, width))
    for q in range(n):
        i = n - 1 - q if backwards else q
        g[:] = 0.0
        add_sparse_row(indices, data, indptr[i], indptr[i + 1], v, g, 0, lanes)
        own = 0.0
        for k in range(indptr[i], indptr[i + 1]):
            if indices[k] == i:
                own = data[k]
        # x.x - 1, the residual of the diagonal target.
        excess = row_dot(v, i, v, i, lanes) - 1.0
        # Kept positive, as the Hessian of a row with short pairs may be indefinite.
        s = max(own + gamma * excess, LEAST_CURVATURE)
        # Its lower half alone is computed, which is all that `solve` reads.
        hessian[:] = 0.0
        for k in range(t_indptr[i], t_indptr[i + 1]):
            j = t_indices[k]
            pull = gamma * weights[k] * (row_dot(v, i, v, j, lanes) - t_data[k])
            # The diagonal entry counts x twice, hence 2 x x' in the Hessian.
            stiff = gamma * weights[k] * (2.0 if j == i else 1.0)
            for a in range(width):
                g[0, a] += pull * v[j, a]
                for b in range(a + 1):
                    hessian[a, b] += stiff * v[j, a] * v[j, b]
        for a in range(width):
            hessian[a, a] += s
        solve(hessian, g, d)
        # d is a descent direction, as the Hessian with the raised s is definite: the slope at 0 is negative.
        slope, size = 2.0 * row_dot(g, 0, d, 0, lanes), row_dot(d, 0, d, 0, lanes)
        # The coefficients of the quartic along d, from dot products with the paired rows.
        along = 2.0 * row_dot(d, 0, v, i, lanes)
        square = own * size + 0.5 * gamma * (along * along + 2.0 * excess * size)
        for k in range(t_indptr[i], t_indptr[i + 1]):
            if t_indices[k] != i:
                change = row_dot(d, 0, v, t_indices[k], lanes)
                square += gamma * weights[k] * change * change
        # As far as f falls, at most twice the Newton step.
        t = lowest(slope, square, gamma * along * size, 0.5 * gamma * size * size)
        for a in range(width):
            v[i, a] += t * d[0, a]


@njit(**_JIT)
def solve(matrix: NDArray[np.float64], g: NDArray[np.float64], out: NDArray[np.float64]) -> None:
    """Compute out (1, w) <- -matrix^-1 g of a definite matrix, by Cholesky's factor in its lower half."""
    width = matrix.shape[0]
    for a in range(width):
        for b in range(a + 1):
            total = matrix[a, b]
            for c in range(b):
                total -= matrix[a, c] * matrix[b, c]
            matrix[a, b] = np.sqrt(total) if a == b else total / matrix[b, b]
    for a in range(width):
        total = -g[0, a]
        for c in range(a):
            total -= matrix[a, c] * out[0, c]
        out[0, a] = total / matrix[a, a]
    for a in range(width - 1, -1, -1):
        total = out[0, a]
        for c in range(a + 1, width):
            total -= matrix[c, a] * out[0, c]
        out[0, a] = total / matrix[a, a]


@njit(**_JIT)
def lowest(c1, c2, c3, c4):  # type: ignore[no-untyped-def]
    """Return t in [0, 2] with c1 t + c2 t^2 + c3 t^3 + c4 t^4 <= 0, near a minimum; Newton, else halving."""
    t = 1.0
    for _ in range(NEWTON_STEPS):
        slope = c1 + t * (2.0 * c2 + t * (3.0 * c3 + t * 4.0 * c4))
        bend = 2.0 * c2 + t * (6.0 * c3 + t * 12.0 * c4)
        if bend <= 0.0:
            break
        t = min(max(t - slope / bend, 0.1), 2.0)
    while t > 1e-3 and c1 + t * (c2 + t * (c3 + t * c4)) > 0.0:
        t *= 0.5
    # After ten halvings f still does not fall: what is left is rounding, and the row stays.
    return t if t > 1e-3 else 0.0


# Rows on the unit sphere that vary little along a graph: where the low-rank solvers begin.

Array = NDArray[np.float64]
CUT, DEGREE = 0.05, 20
"""Lower end of the filter as a share of the top of the spectrum, and the filter's degree."""
EASE = 0.01
"""Share of the top of the spectrum: eigenvalues below it count nearly alike."""


def smooth_rows(laplacian: SharedMatrix, width: int, seed: int) -> Array:
    """Return rows (n_own, width) of length 1: Ritz vectors of L from filtered random columns, each over theta + EASE top.

    theta is the vector's Ritz value. A path of weak gammas would lead to such rows too, by a hundred products with L.
    """
    rows, top = laplacian.rows, spectrum_top(laplacian)
    block = rows.random(seed, width)
    # Single precision will do: sweeps and the solver refine what begins here.
    basis = filtered(laplacian, block, CUT * top, top, DEGREE, np.float32)
    rows.orthonormalize(basis)
    values, turn = np.linalg.eigh(rows.gram(basis, laplacian.product(basis)))
    factor = rows.times(basis, turn / (np.maximum(values, 0.0) + EASE * top))
    length = np.linalg.norm(factor, axis=1)
    # Rows without neighbors have no length to speak of: they stay random.
    lost = length < 1e-6 * rows.largest(length.max())
    factor[lost], length[lost] = block[lost], np.linalg.norm(block[lost], axis=1)
    return np.asarray(factor / length[:, None])
