"""What is computed on one rank slab: sparse products and sampled dot products of its w columns.

A factor of n rows and r columns is cut along the rank axis into slabs of w columns, each (n, w) C-contiguous. On one
slab everything below is local; only dot products are sums over slabs. Kernels release the GIL and touch each buffer
once; `lanes` carries the width as a type (see lanes.py).
"""

from __future__ import annotations

from numba import njit

from dkl.linalg.lanes import add_sparse_row, row_dot

_JIT = {"nogil": True, "cache": True, "fastmath": {"contract", "reassoc"}, "error_model": "numpy"}


@njit(**_JIT)
def sparse_product(indptr, indices, data, x, out, lanes):  # type: ignore[no-untyped-def]
    """out += M x for M in CSR (n x n), x and out (n, w)."""
    for i in range(indptr.size - 1):
        add_sparse_row(indices, data, indptr[i], indptr[i + 1], x, out, i, lanes)


@njit(**_JIT)
def pair_dots(left, right, x, y, total, lanes):  # type: ignore[no-untyped-def]
    """total[k] += x[left[k]] . y[right[k]] for every listed pair of rows."""
    for k in range(left.size):
        total[k] += row_dot(x, left[k], y, right[k], lanes)


@njit(**_JIT)
def edge_dots(indptr, indices, x, y, total, lanes):  # type: ignore[no-untyped-def]
    """total[k] += x[i] . y[j] for every entry k = (i, j) of a CSR pattern."""
    for i in range(indptr.size - 1):
        for k in range(indptr[i], indptr[i + 1]):
            total[k] += row_dot(x, i, y, indices[k], lanes)


@njit(**_JIT)
def product_and_edge_dots(indptr, indices, data, t_indptr, t_indices, x, out, total, lanes):  # type: ignore[no-untyped-def]
    """out += M x, and total[k] += x[j] . out[i] for every entry k = (i, j) of the pattern T, while out[i] is at hand."""
    for i in range(indptr.size - 1):
        add_sparse_row(indices, data, indptr[i], indptr[i + 1], x, out, i, lanes)
        for k in range(t_indptr[i], t_indptr[i + 1]):
            total[k] += row_dot(x, t_indices[k], out, i, lanes)


@njit(**_JIT)
def proximal_update(t_indptr, t_indices, weights, rho, other, linear, mine, lanes):  # type: ignore[no-untyped-def]
    """mine[i] <- (linear[i] + rho other[i] - sum_j W_ij other[j]) / rho, and how far `mine` moved.

    The closed form of updates (13) by the SMW identity (25) of Hu & Kwok (2013): W_i solves the small system of
    pattern i. `linear` is used up. `weights` holds -W. Returns (sum of squares of the move, sum of squares of `mine`).
    """
    width = len(lanes)
    moved = 0.0
    size = 0.0
    inverse = 1.0 / rho
    for i in range(t_indptr.size - 1):
        for c in range(width):
            linear[i, c] += rho * other[i, c]
        add_sparse_row(t_indices, weights, t_indptr[i], t_indptr[i + 1], other, linear, i, lanes)
        row_moved = 0.0
        row_size = 0.0
        for c in range(width):
            value = linear[i, c] * inverse
            change = value - mine[i, c]
            row_moved += change * change
            row_size += value * value
            mine[i, c] = value
        moved += row_moved
        size += row_size
    return moved, size


@njit(**_JIT)
def multiplier_update(rho, v, u, multiplier):  # type: ignore[no-untyped-def]
    """multiplier += rho (v - u); returns (|v - u|^2, |multiplier|^2, |u|^2, u . multiplier)."""
    gap = 0.0
    size = 0.0
    u_size = 0.0
    product = 0.0
    for i in range(v.shape[0]):
        row_gap = 0.0
        row_size = 0.0
        row_u = 0.0
        row_product = 0.0
        for c in range(v.shape[1]):
            difference = v[i, c] - u[i, c]
            value = multiplier[i, c] + rho * difference
            row_gap += difference * difference
            row_size += value * value
            row_u += u[i, c] * u[i, c]
            row_product += u[i, c] * value
            multiplier[i, c] = value
        gap += row_gap
        size += row_size
        u_size += row_u
        product += row_product
    return gap, size, u_size, product


@njit(**_JIT)
def flat_dot(x, y):  # type: ignore[no-untyped-def]
    """sum of x * y over all entries, row sums first."""
    result = 0.0
    for i in range(x.shape[0]):
        row = 0.0
        for c in range(x.shape[1]):
            row += x[i, c] * y[i, c]
        result += row
    return result
