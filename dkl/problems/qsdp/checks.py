"""Input checks of quadratics over the psd cone and problems in a graph's basis; errors name the entry."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dkl.errors import InputError, MemoryBudgetError
from dkl.io.plain_arrays import in_memory, refuse_text
from dkl.linalg.symmetric.symmetric_maps import SymmetricMap
from dkl.resources import format_bytes, machine_memory
from dkl.side_information.pair_checks import as_pairs, as_weights, refuse_bad_ends

Array = NDArray[np.float64]
REACH = 1e12
"""Largest ratio of a pair's weight to the diagonal's: doubles hold three digits of the smaller then."""
LARGEST = 1e280
"""Largest sum of squares of targets, and the inverse of the smallest."""
ASYMMETRY = 1e-10
"""Share of the largest entry by which a symmetric matrix may differ from its transpose, by rounding."""


def numbers(value: object, where: str, wanted: str, *ndims: int) -> Array:
    """Return `value` as float64, uncopied if it is; raises InputError unless dense, finite and real.

    ndims: allowed numbers of dimensions; wanted: its shape, in words.
    """
    value = in_memory(value, where)
    if sparse.issparse(value):
        remedy = f"convert it: {where}.toarray()"
        raise InputError("sparse", where=where, got=f"a {type(value).__name__}", wanted=wanted, remedy=remedy)
    refuse_text(value, where)
    try:
        given = np.asarray(value)
    except ValueError as error:
        raise InputError("rows of different lengths", where=where, wanted=wanted) from error
    if given.dtype.kind == "c":
        remedy = f"pass {where}.real if that is what is meant"
        raise InputError("complex numbers", where=where, got=f"dtype {given.dtype}", wanted="real ones", remedy=remedy)
    if given.dtype.kind not in "fiub":
        raise InputError("not numbers", where=where, got=f"dtype {given.dtype}", wanted=wanted)
    if given.ndim not in ndims:
        raise InputError("of another number of dimensions", where=where, got=f"shape {given.shape}", wanted=wanted)
    refuse_not_finite(given, where)
    return np.asarray(given, np.float64)


def refuse_not_finite(values: NDArray, where: str) -> None:
    """Raise InputError that names the first entry that is NaN or infinite."""
    bad = ~np.isfinite(values)
    if bad.any():
        first = tuple(np.argwhere(bad)[0].tolist())
        count = int(bad.sum())
        more = f" and {count - 1} more" if count > 1 else ""
        place = ", ".join(map(str, first))
        got = f"{where}[{place}] = {values[first]}{more}"
        raise InputError("not finite", where=where, got=got, wanted="finite numbers", remedy="correct it")


def symmetric(value: object, where: str, m: int | None = None) -> Array:
    """Return `value` as a symmetric (m, m), up to rounding; raises InputError."""
    wanted = "a symmetric matrix" if m is None else f"a symmetric ({m}, {m}) matrix"
    matrix = numbers(value, where, wanted, 2)
    if matrix.shape[0] != matrix.shape[1] or m not in (None, len(matrix)):
        raise InputError("of another size", where=where, got=f"shape {matrix.shape}", wanted=wanted)
    apart = np.abs(matrix - matrix.T)
    if apart.max(initial=0.0) > ASYMMETRY * np.abs(matrix).max(initial=0.0):
        i, j = np.unravel_index(int(apart.argmax()), apart.shape)
        got = f"{where}[{i}, {j}] = {matrix[i, j]:.6g} and {where}[{j}, {i}] = {matrix[j, i]:.6g}"
        remedy = f"pass ({where} + {where}.T) / 2"
        raise InputError("not symmetric", where=where, got=got, wanted=wanted, remedy=remedy)
    return matrix


def parts(of: SymmetricMap, targets: object, C: object) -> tuple[Array, Array]:
    """Return (targets (p,), C (m, m)) for a map; raises InputError."""
    try:
        p, m = of.shape
    except (AttributeError, TypeError, ValueError) as error:
        wanted = "a map such as those of dkl.linalg.symmetric.symmetric_maps"
        raise InputError("no map of matrices", where="map", got=f"a {type(of).__name__}", wanted=wanted) from error
    wanted = f"({p},) numbers, one a square of the map"
    checked = numbers(targets, "targets", wanted, 1)
    if len(checked) != p:
        raise InputError("not one a square", where="targets", got=f"shape {checked.shape}", wanted=wanted)
    return checked, symmetric(C, "C", m)


def forms(B: object) -> Array:
    """Return symmetric matrices (p, m, m) from a dense array or p matrices, dense or sparse; raises InputError."""
    wanted = "p symmetric matrices (m, m), an array (p, m, m) or a list"
    if isinstance(B, np.ndarray) and B.ndim != 3:
        raise InputError("of another number of dimensions", where="B", got=f"shape {B.shape}", wanted=wanted)
    if not isinstance(B, np.ndarray | Sequence) or isinstance(B, str | bytes):
        raise InputError("no matrices", where="B", got=f"a {type(B).__name__}", wanted=wanted)
    given: Sequence[Any] | Array = B
    if not len(given):
        raise InputError("empty", where="B", got="no matrix", wanted=wanted)
    first = given[0].toarray() if sparse.issparse(given[0]) else given[0]
    m = len(numbers(first, "B[0]", "a symmetric matrix", 2))
    # Twice 8 bytes a number: the stack, and its mean with the transposes.
    if (size := 16 * len(given) * m**2) > (room := machine_memory()):
        what = f"{len(given):,} matrices of {m:,} rows do not fit"
        raise MemoryBudgetError(what, where="B", got=format_bytes(room), wanted=format_bytes(size))
    dense = (one.toarray() if sparse.issparse(one) else one for one in given)
    found = np.stack([symmetric(one, f"B[{s}]", m) for s, one in enumerate(dense)])
    if not m:
        raise InputError("empty", where="B", got=f"shape {found.shape}", wanted=wanted)
    return 0.5 * (found + found.transpose(0, 2, 1))


def svec_rows(B: object, b: object) -> tuple[Array, Array, int]:
    """Return (B (p, N), b (N,), m), N = m (m + 1) / 2; raises InputError."""
    wanted = "B (p, m (m + 1) / 2) and b (m (m + 1) / 2,)"
    rows, linear = np.atleast_2d(numbers(B, "B", wanted, 1, 2)), numbers(b, "b", wanted, 1)
    m = svec_side(len(linear))
    if m < 1 or rows.shape[1] != len(linear):
        raise InputError("no svec", where="B, b", got=f"shapes {rows.shape} and {linear.shape}", wanted=wanted)
    return rows, linear, m


def square_and_linear(A: object, b: object) -> tuple[Array, Array]:
    """Return (A (q, q), symmetric, b (q,)), q > 0; raises InputError."""
    wanted = "A (q, q), b (q,)"
    matrix, linear = numbers(A, "A", wanted, 2), numbers(b, "b", wanted, 1)
    if not len(linear) or matrix.shape != (len(linear), len(linear)):
        what = "of different sizes" if matrix.size or linear.size else "empty"
        raise InputError(what, where="A, b", got=f"shapes {matrix.shape} and {linear.shape}", wanted=wanted)
    return symmetric(matrix, "A"), linear


def rows_of_form(q: int, form: str | None) -> tuple[int, bool]:
    """Return (m, whether it is svec) of q numbers; raises InputError if the size misfits or is ambiguous."""
    if form not in (None, "svec", "vec"):
        raise InputError("unknown", where="form", got=repr(form), wanted='"svec", "vec" or None')
    half, side = svec_side(q), math.isqrt(q)
    whole = side if side * side == q else 0
    if form is None and half and whole and half != whole:
        raise InputError(
            "both vec and svec of Y", where="A, b", got=f"{q} numbers, svec of {half} rows or vec of {whole}",
            wanted='form="svec" or form="vec"', remedy="name the one that is meant",
        )  # fmt: skip
    m = half if form == "svec" or (form is None and half) else whole
    if not m:
        kind, sizes = {
            None: ("neither vec nor svec of Y", "m^2 or m (m + 1) / 2 numbers"),
            "svec": ("no svec of Y", "m (m + 1) / 2 numbers"),
            "vec": ("no vec of Y", "m^2 numbers"),
        }[form]
        raise InputError(kind, where="b", got=q, wanted=sizes)
    return m, m == half and form != "vec"


def svec_side(q: int) -> int:
    """Return m of q = m (m + 1) / 2, or 0."""
    m = (math.isqrt(8 * q + 1) - 1) // 2
    return m if m * (m + 1) // 2 == q else 0


def basis(Q: object) -> Array:
    """Return Q (n, m), as it is; raises InputError."""
    checked = numbers(Q, "Q", "a basis (n, m) of at least one column", 2)
    if not checked.size:
        raise InputError("empty", where="Q", got=f"shape {checked.shape}", wanted="at least one row and one column")
    return checked


def ends(pairs: object, n: int, where: str) -> NDArray[np.int64]:
    """Return (p, 2) numbers of two different rows of n each; raises InputError that names the first other."""
    checked = as_pairs(pairs, where)
    refuse_bad_ends(checked, n, where)
    return checked


def edges(pairs: object, n: int) -> NDArray[np.int64]:
    """Return (e, 2) ends of edges between n rows; raises InputError as `ends`."""
    try:
        return ends(pairs, n, "edges")
    except InputError as error:
        remedy = "number the rows of Q from 0, and leave out edges from a row to itself"
        raise InputError(error.what, where="edges", got=error.got, wanted=error.wanted, remedy=remedy) from error


def edge_lengths(squared: object, n_edges: int) -> Array:
    """Return (e,) squared distances >= 0, 0 of rows that are equal; raises InputError."""
    wanted = f"({n_edges},) squared distances >= 0, one an edge"
    checked = numbers(squared, "squared", wanted, 1)
    if len(checked) != n_edges:
        raise InputError("not one an edge", where="squared", got=f"shape {checked.shape}", wanted=wanted)
    if checked.min(initial=0.0) < 0:
        first = int(np.flatnonzero(checked < 0)[0])
        raise InputError(
            "a negative square", where="squared", got=f"squared[{first}] = {checked[first]:g}", wanted=wanted,
            remedy="pass the squares of the edges' lengths",
        )  # fmt: skip
    return checked


def pair_weights(weights: object, n_must: int, n_cannot: int) -> Array:
    """Return weights (n_must + n_cannot,), by default ones; raises InputError if invalid or too large."""
    given = as_weights(weights, n_must, n_cannot)
    checked = np.ones(n_must + n_cannot) if given is None else given
    refuse_large_weights(checked)
    return checked


def refuse_large_weights(weights: Array) -> None:
    """Raise InputError if the diagonal's 1 would be lost in double precision next to a weight."""
    most = float(weights.max(initial=1.0))
    if not most <= REACH:
        raise InputError(
            "too large for double precision", where="weights of pairs", got=f"{most:g}",
            wanted=f"at most {REACH:.2g}, as the diagonal weighs 1", remedy="divide them by a common factor",
        )  # fmt: skip


def refuse_weights(weights: Array) -> None:
    """Raise InputError for different weights of pairs that are constraints, which have none."""
    if np.ptp(weights) > 0:
        raise InputError(
            'no effect with constraints="hard"', where="weights of pairs", got="pairs of different weights",
            wanted="pairs without weights", remedy='leave out the weights, or take constraints="soft"',
        )  # fmt: skip


def refuse_out_of_range(targets: Array) -> None:
    """Raise InputError for nu and lengths whose loss at Y = 0, nu sum d^4, is beyond double precision."""
    largest = float(np.abs(targets).max(initial=0.0))
    loss = largest**2 * len(targets) if largest < np.sqrt(LARGEST) else np.inf
    if not (loss < LARGEST and (largest == 0.0 or loss > 1.0 / LARGEST)):
        raise InputError(
            "out of the range of double precision", where="nu, squared", got=f"sqrt(nu) d^2 of up to {largest:.2g}",
            wanted=f"{LARGEST**-0.5:.0e} to {LARGEST**0.5:.0e}", remedy="scale the rows so that edges are about 1 long",
        )  # fmt: skip


def positive(value: Any, where: str) -> float:
    """Return `value`, a finite number > 0; raises InputError."""
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    if not is_number or not 0 < value <= sys.float_info.max:
        raise InputError("not a positive number", where=where, got=repr(value), wanted="a finite number > 0")
    return float(value)
