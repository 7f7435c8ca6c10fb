"""The stiff part of problem (1)'s Hessian in V, M = 2 (shift I + gamma J'WJ), J'WJ d = P_T(W (v d' + d v')) v, on rows of T.

A row that is in no pair is alone: there M is 2 (shift I + 2 gamma v v'), with two eigenvalues. The others, `rows`, are gathered into
arrays of their own (m, w), in single precision if that is enough, with T's pattern among them.
"""

from __future__ import annotations

from dkl.linalg.late_functions import njit
from dkl.linalg.slabs.simd import add_sparse_row, combine_rows, crossed_dot, row_dot

_JIT = {"nogil": True, "cache": True, "fastmath": {"contract", "reassoc"}, "error_model": "numpy"}


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
    """work <- scale W (v x' + x v') at both places, k and mirror[k], of T's entries [lo, hi) off the diagonal, each pair being there
    once."""
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
    """Return what the steps of `chebyshev_rows` make of r = 1 if M is the number `value`."""
    rest = 1.0
    d = 1.0 / center
    out = d
    for k in range(keep.size):
        rest -= value * d
        d = keep[k] * d + gain[k] * rest
        out += d
    return out
