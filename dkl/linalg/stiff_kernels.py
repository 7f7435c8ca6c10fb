"""The stiff part of problem (1)'s Hessian in V, M = 2 (shift I + gamma J'WJ), J'WJ d = P_T(W (v d' + d v')) v, on rows of T.

A row that is in no pair is alone: there M is 2 (shift I + 2 gamma v v'), with two eigenvalues. The others, `rows`, are gathered into
arrays of their own (m, w), in single precision where that is enough, with T's pattern among them.
"""

from __future__ import annotations

from numba import njit

from dkl.linalg.lanes import add_sparse_row, crossed_dot, row_dot

_JIT = {"nogil": True, "cache": True, "fastmath": {"contract", "reassoc"}, "error_model": "numpy"}


@njit(**_JIT)
def gather_rows(lo, hi, rows, x, scale, out):  # type: ignore[no-untyped-def]
    """out[k] = scale x[rows[k]], rounded to the type of `out`."""
    for k in range(lo, hi):
        for c in range(x.shape[1]):
            out[k, c] = scale * x[rows[k], c]


@njit(**_JIT)
def scatter_rows(lo, hi, rows, x, scale, out):  # type: ignore[no-untyped-def]
    """out[rows[k]] = scale x[k]."""
    for k in range(lo, hi):
        for c in range(x.shape[1]):
            out[rows[k], c] = scale * x[k, c]


@njit(**_JIT)
def pair_changes(lo, hi, left, right, mirror, weights, v, d, work, lanes):  # type: ignore[no-untyped-def]
    """work <- W (v d' + d v') at both places, k and mirror[k], of T's entries [lo, hi) off the diagonal, each pair being there once."""
    for p in range(lo, hi):
        i, j = left[p], right[p]
        change = weights[p] * crossed_dot(v, d, i, j, lanes)
        work[mirror[p, 0]] = change
        work[mirror[p, 1]] = change


@njit(**_JIT)
def chebyshev_rows(lo, hi, indptr, indices, work, shift, gamma, v, d, keep, gain, rest, out, next_d, lanes):  # type: ignore[no-untyped-def]
    """One step of Chebyshev's iteration for M x = r: rest -= M d, next_d = keep d + gain rest, out += next_d; rows [lo, hi).

    work    gamma times what `pair_changes` left, off the diagonal
    Scalars, `shift` and `gamma` twice those of M, have the type of the arrays. `d` is read at all rows, so next_d is another array.
    """
    for i in range(lo, hi):
        own = d.dtype.type(2.0 * row_dot(v, i, d, i, lanes))
        for c in range(len(lanes)):
            next_d[i, c] = own * v[i, c]
        add_sparse_row(indices, work, indptr[i], indptr[i + 1], v, next_d, i, lanes)
        for c in range(len(lanes)):
            rest[i, c] -= shift * d[i, c] + gamma * next_d[i, c]
            next_d[i, c] = keep * d[i, c] + gain * rest[i, c]
            out[i, c] += next_d[i, c]


@njit(**_JIT)
def alone_rows(lo, hi, rows, gamma, shift, center, keep, gain, v, r, out, lanes):  # type: ignore[no-untyped-def]
    """out = p(M) r on rows that are alone, p the polynomial of the steps `keep` and `gain` (k,) after a first of 1 / center."""
    base = polynomial(2.0 * shift, center, keep, gain)
    for k in range(lo, hi):
        i = rows[k]
        size = row_dot(v, i, v, i, lanes)
        part = 0.0
        if size > 0.0:
            part = (polynomial(2.0 * shift + 4.0 * gamma * size, center, keep, gain) - base) / size
            part *= row_dot(v, i, r, i, lanes)
        for c in range(len(lanes)):
            out[i, c] = base * r[i, c] + part * v[i, c]


@njit(**_JIT)
def largest_rows(lo, hi, rows, v, lanes):  # type: ignore[no-untyped-def]
    """The largest |v_i|^2 of some rows."""
    largest = 0.0
    for k in range(lo, hi):
        largest = max(largest, row_dot(v, rows[k], v, rows[k], lanes))
    return largest


@njit(**_JIT)
def polynomial(value, center, keep, gain):  # type: ignore[no-untyped-def]
    """What the steps of `chebyshev_rows` make of r = 1 where M is the number `value`."""
    rest = 1.0
    d = 1.0 / center
    out = d
    for k in range(keep.size):
        rest -= value * d
        d = keep[k] * d + gain[k] * rest
        out += d
    return out
