"""Checks that a matrix, in memory or known by its products, is a kernel: symmetric and PSD."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from dkl.errors import InputError
from dkl.linalg.eigen.extreme_eigenvalues import lowest_eigenvalue

ASYMMETRY = 1e-6
"""Share of the largest entry that rounding, of a matrix computed in single precision, may leave between K and K'."""
INDEFINITE = 1e-8
"""Share of the largest diagonal entry times n: how far below zero rounding may take an eigenvalue of a matrix in double precision."""
ROUNDED = 8.0
"""Least such share of a matrix in less precision, in units of that."""
ROWS_AT_A_TIME = 1024
"""Number of rows that are compared with the columns at a time."""


def check_square(n: int, n_columns: int, where: str = "X") -> None:
    """Raise InputError for a precomputed kernel of n rows that has another number of columns."""
    if n != n_columns:
        raise InputError(
            "a precomputed kernel must be square", where=where, got=f"shape {(n, n_columns)}", wanted="(n, n)"
        )


def check_among(K: NDArray[np.floating], numbers: NDArray[np.intp]) -> None:
    """Raise InputError for values (m, m) of a kernel among the rows of these numbers that no kernel matrix has: see `check_matrix`."""
    values, largest = np.asarray(K, np.float64), float(np.abs(K).max())
    for lo in range(0, len(values), ROWS_AT_A_TIME):
        check_symmetric(values, lo, min(lo + ROWS_AT_A_TIME, len(values)), largest, numbers)
    check_psd(values.__matmul__, values.diagonal())


def check_matrix(K: NDArray[np.float64]) -> None:
    """Raise InputError for a matrix (n, n) in memory that is not symmetric or has a negative eigenvalue."""
    check_among(K, np.arange(len(K)))


def check_symmetric(
    K: NDArray[np.floating], lo: int, hi: int, largest: float | None = None, numbers: NDArray[np.intp] | None = None
) -> None:
    """Raise InputError for the first entry of rows lo to hi of K, up to the diagonal, not symmetric.

    largest: entry of K, where it is known; else of these rows. numbers: of K's rows in X, where it is a part of it.
    """
    below, above = K[lo:hi, :hi], K[:hi, lo:hi].T
    scale = np.maximum(np.abs(below), np.abs(above)).max() if largest is None else largest
    bad = np.abs(below - above) > ASYMMETRY * scale
    if bad.any():
        i, j = np.argwhere(bad)[0]
        row, column = (lo + i, j) if numbers is None else (numbers[lo + i], numbers[j])
        got = f"X[{row}, {column}] = {below[i, j]:.9g} and X[{column}, {row}] = {above[i, j]:.9g}"
        raise InputError("not symmetric", where="X", got=got, wanted="a kernel matrix", remedy="pass (X + X.T) / 2")


def check_symmetric_products(operator: Any) -> None:
    """Raise InputError if u'Kv and v'Ku differ for random u, v: a test for a matrix read by rows alone.

    Two products. A K that differs from K' passes with probability zero, but for differences within ASYMMETRY.
    """
    u, v = np.random.default_rng(0).standard_normal((2, operator.n))
    Ku, Kv = operator.times(u), operator.times(v)
    one, other = float(u @ Kv), float(v @ Ku)
    if abs(one - other) > ASYMMETRY * float(np.linalg.norm(u) * np.linalg.norm(Kv)):
        got = f"u'Xv = {one:.9g} and v'Xu = {other:.9g} for random u and v"
        raise InputError("not symmetric", where="X", got=got, wanted="a kernel matrix", remedy="pass (X + X.T) / 2")


def check_psd(
    times: Callable[[NDArray[np.float64]], NDArray[np.float64]],
    diagonal: NDArray[np.floating],
    where: str = "X",
    dtype: DTypeLike = np.float64,
) -> None:
    """Raise InputError, with the eigenvalue, if K has a negative one, found as by `lowest_eigenvalue`.

    times: K v of v (n,); diagonal (n,) of K; dtype: the precision of its entries. Up to 120 products beyond n = 400; `where` names the
    argument in the message.
    """
    lowest, n = lowest_eigenvalue(times, len(diagonal)), len(diagonal)
    least = max(INDEFINITE, ROUNDED * float(np.finfo(dtype).eps))
    if lowest < -least * n * max(float(diagonal.max()), np.finfo(float).tiny):
        of_distances = "its diagonal is 0, as of distances: take a kernel of these, such as numpy.exp(-gamma * X**2)"
        remedy = "add to its diagonal, or drop negative eigenvalues" if diagonal.any() else of_distances
        raise InputError(
            "not positive semidefinite", where=where, got=f"an eigenvalue of {lowest:.6g}", wanted="a kernel matrix",
            remedy=remedy,
        )  # fmt: skip
