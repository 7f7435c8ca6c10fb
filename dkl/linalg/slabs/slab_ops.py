"""Rank slabs: how a factor is cut into them, and compiled loops on one, products and dot products of its w columns.

A factor of n rows and r columns is cut along the rank axis into slabs of w columns, each (n, w) C-contiguous. On one
slab everything below is local; only dot products are sums over slabs. Kernels release the GIL and touch each buffer
once; `lanes` carries the width as a type (see `lanes_of`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from dkl.linalg.late_functions import LateFunction, njit

# -- how a factor is cut -----------------------------------------------------------------------------------------------

CACHE_LINE = 64
"""Bytes of a cache line."""
WIDTH = 16
"""Columns of a slab of a block of vectors: in single precision the length of a cache line."""


def slab_width(rank: int, dtype: DTypeLike) -> int:
    """Return the columns of a slab: 16, two cache lines in double; 32 in single; fewer for tiny ranks.

    Measured at n = 11,220 with 77 entries a row: w = 16 and 32 reach 2.5 times the speed of w = 8 in double.
    """
    widest = 16 if np.dtype(dtype).itemsize == 8 else 32
    width = 4
    while width < min(rank, widest):
        width *= 2
    return width


def n_slabs(rank: int, width: int) -> int:
    """Return rank / width, rounded up: the slabs of `width` columns, the last padded with zeros."""
    return -(-rank // width)


def empty_aligned(shape: tuple[int, ...], dtype: DTypeLike, alignment: int = CACHE_LINE) -> NDArray:
    """Return an uninitialized array that starts at a multiple of `alignment` bytes.

    By default on a cache line, so that no row of a slab straddles one more than it must.
    """
    dtype = np.dtype(dtype)
    size = int(np.prod(shape)) * dtype.itemsize
    # NumPy guarantees less, so a line more is allocated and the start moved.
    raw = np.empty(size + alignment, np.uint8)
    start = -raw.ctypes.data % alignment
    return raw[start : start + size].view(dtype).reshape(shape)


def random_columns(seed: int, columns: range, n: int, scale: float, out: NDArray) -> None:
    """Draw out (n, w) = scale * normal deviates, a stream a column by (seed, column); zeros in others.

    So a column is the same whatever the slab's width and the process that fills it.
    """
    out[...] = 0
    # SeedSequence hashes (seed, column), so the streams of neighboring columns are independent.
    for position, column in enumerate(columns):
        stream = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(column,)))
        out[:, position] = stream.standard_normal(n) * scale


# -- row operations ----------------------------------------------------------------------------------------------------
# What every kernel is made of, by name: `simd_code.py` has their code, and imports Numba.
# The width of a slab is part of the type: kernels take `lanes`, a tuple of w zeros, and compile once for each width and dtype.


def lanes_of(width: int) -> tuple[int, ...]:
    """Return the width of a slab as kernels take it: `width` zeros, whose number is in its numba type."""
    return (0,) * width


def _code(name: str) -> Callable[..., Any]:
    """Return the operation `name`, which compiled functions alone can call."""
    from dkl.linalg.slabs import simd_code

    return getattr(simd_code, name)


put_sparse_row, add_sparse_row, combine_rows, row_dot, crossed_dot = (
    LateFunction(partial(_code, name), __name__, name)
    for name in ("put_sparse_row", "add_sparse_row", "combine_rows", "row_dot", "crossed_dot")
)

# -- compiled loops ----------------------------------------------------------------------------------------------------

# "reassoc" lets sums over columns run in vector registers; their order is then fixed by the width, hence still the same
# bits for a rank and dtype. Division by zero gives inf as in NumPy: a check there would forbid vectorization.
_JIT = {"nogil": True, "cache": True, "fastmath": {"contract", "reassoc"}, "error_model": "numpy"}


@njit(**_JIT)
def sparse_product(indptr, indices, data, x, out, lanes):  # type: ignore[no-untyped-def]
    """Compute out += M x for M in CSR (n x n), x and out (n, w)."""
    for i in range(indptr.size - 1):
        add_sparse_row(indices, data, indptr[i], indptr[i + 1], x, out, i, lanes)


@njit(**_JIT)
def pair_dots(left, right, x, y, total, lanes):  # type: ignore[no-untyped-def]
    """Add total[k] += x[left[k]] . y[right[k]] for every listed pair of rows: entries of P_i'P_i."""
    for k in range(left.size):
        total[k] += row_dot(x, left[k], y, right[k], lanes)


@njit(**_JIT)
def product_and_edge_dots(indptr, indices, data, t_indptr, t_indices, x, scale, y, out, total, lanes):  # type: ignore[no-untyped-def]
    """Compute out = M x + scale y, and total[k] += x[j] . out[i] for every entry k = (i, j) of the pattern T; returns out . out.

    One kernel for all: the dot products come while row i of `out` is still in the cache. In KL-ADMM `out` is (11)'s linear
    term, y the multiplier, and the dot products are P_i'c_i, the right-hand sides of the small systems.
    """
    size = 0.0
    for i in range(indptr.size - 1):
        combine_rows((scale,), (y,), (i,), out, i, lanes)
        add_sparse_row(indices, data, indptr[i], indptr[i + 1], x, out, i, lanes)
        for k in range(t_indptr[i], t_indptr[i + 1]):
            total[k] += row_dot(x, t_indices[k], out, i, lanes)
        size += row_dot(out, i, out, i, lanes)
    return size


@njit(**_JIT)
def proximal_update(t_indptr, t_indices, weights, rho, other, linear, mine, lanes):  # type: ignore[no-untyped-def]
    """Compute mine[i] <- (linear[i] + rho other[i] - sum_j W_ij other[j]) / rho, the sum over T_i.

    The closed form of updates (13) by the SMW identity (25) of Hu & Kwok (2013): W_i solves the small system of
    pattern i. `linear` is overwritten. `weights` holds -W. Returns (sum of squares of the move, sum of squares of `mine`).
    """
    change = np.empty((1, len(lanes)), mine.dtype)
    moved = 0.0
    size = 0.0
    for i in range(t_indptr.size - 1):
        combine_rows((1.0, rho), (linear, other), (i, i), linear, i, lanes)
        add_sparse_row(t_indices, weights, t_indptr[i], t_indptr[i + 1], other, linear, i, lanes)
        # The move, while the row of before is still there.
        combine_rows((1.0 / rho, -1.0), (linear, mine), (i, i), change, 0, lanes)
        combine_rows((1.0 / rho,), (linear,), (i,), mine, i, lanes)
        moved += row_dot(change, 0, change, 0, lanes)
        size += row_dot(mine, i, mine, i, lanes)
    return moved, size


@njit(**_JIT)
def multiplier_update(rho, v, u, multiplier, lanes):  # type: ignore[no-untyped-def]
    """Compute multiplier += rho (v - u), the last of updates (11)-(13) of Hu & Kwok (2013), (n, w) arrays.

    Returns (|v - u|^2, |multiplier|^2, |u|^2, u . multiplier): the primal residual and what the objective needs.
    """
    difference = np.empty((1, len(lanes)), v.dtype)
    gap = 0.0
    size = 0.0
    u_size = 0.0
    product = 0.0
    for i in range(v.shape[0]):
        combine_rows((1.0, -1.0), (v, u), (i, i), difference, 0, lanes)
        combine_rows((1.0, rho), (multiplier, difference), (i, 0), multiplier, i, lanes)
        gap += row_dot(difference, 0, difference, 0, lanes)
        size += row_dot(multiplier, i, multiplier, i, lanes)
        u_size += row_dot(u, i, u, i, lanes)
        product += row_dot(u, i, multiplier, i, lanes)
    return gap, size, u_size, product


# -- the low-rank problem: rows [lo, hi) of one factor (n, w) that holds the whole rank, for threads that share the rows --


@njit(**_JIT)
def product_rows(lo, hi, indptr, indices, data, x, out, lanes):  # type: ignore[no-untyped-def]
    """Compute out[i] = (M x)_i."""
    for i in range(lo, hi):
        put_sparse_row(indices, data, indptr[i], indptr[i + 1], x, out, i, lanes)


@njit(**_JIT)
def gram_rows(lo, hi, indptr, indices, x, out, lanes):  # type: ignore[no-untyped-def]
    """Compute out[k] = x_i . x_j for every entry k = (i, j) of a CSR pattern."""
    for i in range(lo, hi):
        for k in range(indptr[i], indptr[i + 1]):
            out[k] = row_dot(x, i, x, indices[k], lanes)


@njit(**_JIT)
def crossed_rows(lo, hi, indptr, indices, x, y, out, lanes):  # type: ignore[no-untyped-def]
    """Compute out[k] = x_i . y_j + y_i . x_j for every entry k = (i, j) of a CSR pattern."""
    for i in range(lo, hi):
        for k in range(indptr[i], indptr[i + 1]):
            out[k] = crossed_dot(x, y, i, indices[k], lanes)


@njit(**_JIT)
def gradient_rows(lo, hi, indptr, indices, residual, weights, gamma, v, lv, work, out, lanes):  # type: ignore[no-untyped-def]
    """Compute out[i] = 2 (L v + gamma (W R) v)_i, R with `residual` on T's pattern, W R with its products with `weights`, lv = L v.

    Returns (out . out, v . lv, R . W R). `work` is as long as T's entries.
    """
    size = 0.0
    smooth = 0.0
    loss = 0.0
    for i in range(lo, hi):
        for k in range(indptr[i], indptr[i + 1]):
            work[k] = 2.0 * gamma * weights[k] * residual[k]
        # A loop that stores is vectorized or not by where its arrays lie; a sum in it would have bits of two kinds.
        for k in range(indptr[i], indptr[i + 1]):
            loss += weights[k] * residual[k] * residual[k]
        combine_rows((2.0,), (lv,), (i,), out, i, lanes)
        add_sparse_row(indices, work, indptr[i], indptr[i + 1], v, out, i, lanes)
        size += row_dot(out, i, out, i, lanes)
        smooth += row_dot(v, i, lv, i, lanes)
    return size, smooth, loss


@njit(**_JIT)
def line_rows(  # type: ignore[no-untyped-def]
    lo, hi, indptr, indices, data, t_indptr, t_indices, residual, weights, v, lv, d, ld, first, second, lanes
):
    """Compute ld = L d, first = v_i.d_j + d_i.v_j and second = d_i.d_j on T's pattern; returns the sums of a quartic along d.

    (first . residual, first . first, second . residual, first . second, second . second, d . lv, d . ld), the first five with
    the entries' `weights`.
    """
    # R(t) = R + t first + t^2 second: the products of which its square consists.
    fr, ff, sr, fs, ss, linear, square = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    for i in range(lo, hi):
        put_sparse_row(indices, data, indptr[i], indptr[i + 1], d, ld, i, lanes)
        linear += row_dot(d, i, lv, i, lanes)
        square += row_dot(d, i, ld, i, lanes)
        for k in range(t_indptr[i], t_indptr[i + 1]):
            j = t_indices[k]
            a = crossed_dot(v, d, i, j, lanes)
            b = row_dot(d, i, d, j, lanes)
            first[k] = a
            second[k] = b
            wa, wb = weights[k] * a, weights[k] * b
            fr += wa * residual[k]
            ff += wa * a
            sr += wb * residual[k]
            fs += wa * b
            ss += wb * b
    return fr, ff, sr, fs, ss, linear, square


@njit(**_JIT)
def move_rows(lo, hi, step, x, y, lanes):  # type: ignore[no-untyped-def]
    """Compute y[i] += step x[i], in place; returns y . y."""
    size = 0.0
    for i in range(lo, hi):
        combine_rows((1.0, step), (y, x), (i, i), y, i, lanes)
        size += row_dot(y, i, y, i, lanes)
    return size


@njit(**_JIT)
def update_direction_rows(lo, hi, momentum, z, p, lanes):  # type: ignore[no-untyped-def]
    """Compute p[i] = momentum p[i] - z[i]: the next direction of nonlinear conjugate gradients."""
    for i in range(lo, hi):
        combine_rows((momentum, -1.0), (p, z), (i, i), p, i, lanes)


@njit(**_JIT)
def slope_rows(lo, hi, z, g, before, p, lanes):  # type: ignore[no-untyped-def]
    """Return (z . g, z . before, p . g) over rows lo to hi."""
    one = 0.0
    other = 0.0
    slope = 0.0
    for i in range(lo, hi):
        one += row_dot(z, i, g, i, lanes)
        other += row_dot(z, i, before, i, lanes)
        slope += row_dot(p, i, g, i, lanes)
    return one, other, slope


@njit(**_JIT)
def dot_rows(lo, hi, x, y, lanes):  # type: ignore[no-untyped-def]
    """Return x . y over rows lo to hi, row sums first."""
    result = 0.0
    for i in range(lo, hi):
        result += row_dot(x, i, y, i, lanes)
    return result


# The stiff part of the pairwise problem's Hessian in V, M = 2 (shift I + gamma J'WJ), J'WJ d = P_T(W (v d' + d v')) v,
# on rows of T.
#
# A row that is in no pair is alone: there M is 2 (shift I + 2 gamma v v'), with two eigenvalues. The others, `rows`,
# are gathered into arrays of their own (m, w), in single precision if that is enough, with T's pattern among them.


@njit(**_JIT)
def gather_rows(lo, hi, rows, x, scale, out, lanes):  # type: ignore[no-untyped-def]
    """Compute out[k] = scale x[rows[k]], rounded to the type of `out`."""
    for k in range(lo, hi):
        combine_rows((scale,), (x,), (rows[k],), out, k, lanes)


@njit(**_JIT)
def scatter_rows(lo, hi, rows, x, scale, out, lanes):  # type: ignore[no-untyped-def]
    """Compute out[rows[k]] = scale x[k]."""
    for k in range(lo, hi):
        combine_rows((scale,), (x,), (k,), out, rows[k], lanes)


@njit(**_JIT)
def pair_changes(lo, hi, left, right, mirror, weights, scale, v, x, work, lanes):  # type: ignore[no-untyped-def]
    """Compute work <- scale W (v x' + x v') at both places, `mirror`, of the pairs [lo, hi)."""
    for p in range(lo, hi):
        i, j = left[p], right[p]
        change = scale * weights[p] * crossed_dot(v, x, i, j, lanes)
        work[mirror[p, 0]] = change
        work[mirror[p, 1]] = change


@njit(**_JIT)
def chebyshev_rows(lo, hi, indptr, indices, work, scale, v, x, shares, r, before, lanes):  # type: ignore[no-untyped-def]
    """Compute before[i] = shares . (x, before, r)[i] + scale (P_T(W (v x' + x v')) v)[i], rows [lo, hi).

    A step of Chebyshev's iteration for M x = r, x + keep (x - before) + gain (r - M x), takes scale = -2 gain gamma and the
    shares (1 + keep - 2 gain shift, -keep, gain). What the scale multiplies is in `work`, by `pair_changes`, but for the diagonal,
    whose weights are 1. `x` is read at all rows, so the next one takes the place of the one before.
    """
    for i in range(lo, hi):
        own = 2.0 * scale * row_dot(v, i, x, i, lanes)
        combine_rows((shares[0], shares[1], shares[2], own), (x, before, r, v), (i, i, i, i), before, i, lanes)
        add_sparse_row(indices, work, indptr[i], indptr[i + 1], v, before, i, lanes)


@njit(**_JIT)
def alone_rows(lo, hi, rows, gamma, shift, center, keep, gain, v, r, out, lanes):  # type: ignore[no-untyped-def]
    """Compute out = p(M) r on alone rows, p by the steps `keep`, `gain` (k,) after a first of 1 / center."""
    # p(M) needs p at M's two eigenvalues alone: across v it is `base`, along v it has `part` more.
    base = polynomial(2.0 * shift, center, keep, gain)
    for k in range(lo, hi):
        i = rows[k]
        size = row_dot(v, i, v, i, lanes)
        part = 0.0
        if size > 0.0:
            part = (polynomial(2.0 * shift + 4.0 * gamma * size, center, keep, gain) - base) / size
            part *= row_dot(v, i, r, i, lanes)
        combine_rows((base, part), (r, v), (i, i), out, i, lanes)


@njit(**_JIT)
def largest_rows(lo, hi, rows, v, lanes):  # type: ignore[no-untyped-def]
    """Return the largest |v_i|^2 of some rows."""
    largest = 0.0
    for k in range(lo, hi):
        largest = max(largest, row_dot(v, rows[k], v, rows[k], lanes))
    return largest


@njit(**_JIT)
def row_dots(lo, hi, x, y, out, lanes):  # type: ignore[no-untyped-def]
    """Compute out[k] = x_k . y_k."""
    for k in range(lo, hi):
        out[k] = row_dot(x, k, y, k, lanes)


@njit(**_JIT)
def polynomial(value, center, keep, gain):  # type: ignore[no-untyped-def]
    """Evaluate the polynomial of `chebyshev_rows` at a number: what its steps make of r = 1 where M is `value`."""
    rest = 1.0
    d = 1.0 / center
    out = d
    for k in range(keep.size):
        rest -= value * d
        d = keep[k] * d + gain[k] * rest
        out += d
    return out
