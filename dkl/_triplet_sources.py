"""Triplets from class labels: each labelled row, its nearest rows of the same class and its nearest of the others."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.metrics.pairwise import euclidean_distances

from dkl._pair_checks import Integers
from dkl._plain_arrays import refuse_masked, refuse_text
from dkl.errors import InputError

QUERIES = 512
"""Anchors whose distances to all labelled rows are held at a time."""

Matrix = npt.NDArray[np.float64]


def triplets_of_labels(X: Any, codes: Integers, n_in: int, n_out: int, *, is_kernel: bool) -> Integers:
    """(m, 3): of each labelled row every pair of one of its `n_in` nearest rows of its own class, and one of its `n_out`
    nearest rows of other classes. Fewer where a class has fewer; ties go to the lower row number.

    X (n, d) rows, dense or sparse; or, where it `is_kernel`, a kernel matrix (n, n). codes (n,) as of `encode_labels`. Distances are made a
    block at a time: O(m n d) time, and no n^2 anywhere. Source: trin_li_2009, section 6.2.
    """
    labelled = np.flatnonzero(codes >= 0)
    classes = np.unique(codes[labelled])
    if len(classes) < 2:
        got = f"{len(classes)} class among {len(labelled)} labelled rows"
        raise InputError("no rows of another class", where="y", got=got, wanted="two classes or more")
    rows, parts = _rows(X, len(codes), is_kernel), []
    for code in classes:
        own, others = labelled[codes[labelled] == code], labelled[codes[labelled] != code]
        for lo in range(0, len(own), QUERIES):
            anchors = own[lo : lo + QUERIES]
            to_own = _squared_distances(rows, anchors, own, is_kernel)
            to_own[np.arange(len(anchors)), np.arange(lo, lo + len(anchors))] = np.inf  # no row is its own neighbour
            near = own[_nearest(to_own, min(n_in, len(own) - 1))]
            far = others[_nearest(_squared_distances(rows, anchors, others, is_kernel), min(n_out, len(others)))]
            parts.append(_combinations(anchors, near, far))
    found = np.concatenate(parts)
    return found[np.argsort(found[:, 0], kind="stable")]


def _rows(X: Any, n: int, is_kernel: bool) -> Any:
    """X as distances can be made of it; InputError for what has not a row a label."""
    refuse_masked(X, "X")
    refuse_text(X, "X")
    try:
        rows = sp.csr_array(X) if sp.issparse(X) and not is_kernel else np.asarray(X)
    except ValueError as error:
        raise InputError("rows of different lengths", where="X") from error
    wanted = f"({n}, {n}), the kernel matrix" if is_kernel else f"({n}, d), a row a label"
    if sp.issparse(X) and is_kernel or rows.ndim != 2 or rows.shape[0] != n or (is_kernel and rows.shape[1] != n):
        got = type(X).__name__ if sp.issparse(X) else f"shape {rows.shape}"
        raise InputError("labels and rows differ in number", where="X", got=got, wanted=wanted)
    values: Any = rows.data if sp.issparse(rows) else rows
    if values.dtype.kind not in "biuf":
        raise InputError("not real numbers", where="X", got=f"dtype {values.dtype}", wanted="numbers")
    if not np.isfinite(values).all():
        raise InputError("a value is not finite", where="X", got="NaN or infinity", wanted="finite numbers")
    largest = float(np.abs(values).max(initial=0))
    most = float(np.finfo(np.float64).max)
    limit = most / 8 if is_kernel else float(np.sqrt(most / (64 * max(1, rows.shape[1]))))
    if largest > limit:
        what = "a value is so large that distances overflow"
        raise InputError(what, where="X", got=f"{largest:g}", wanted=f"at most {limit:.3g}", remedy="scale X")
    return rows


def _squared_distances(rows: Any, anchors: Integers, others: Integers, is_kernel: bool) -> Matrix:
    """(t, s) squared distances, of rows or in the space of a kernel: K_ii + K_jj - 2 K_ij."""
    if not is_kernel:
        return np.asarray(euclidean_distances(rows[anchors], rows[others], squared=True), dtype=np.float64)
    diagonal = np.asarray(np.diagonal(rows), dtype=np.float64)
    return diagonal[anchors, None] + diagonal[others] - 2.0 * rows[np.ix_(anchors, others)]


def _nearest(distances: Matrix, count: int) -> Integers:
    """(t, count) columns of the least entries of each row, in their order; of equal entries the first."""
    if not count:
        return np.zeros((len(distances), 0), dtype=np.int64)
    limit = np.partition(distances, count - 1, axis=1)[:, count - 1]
    row, column = np.nonzero(distances <= limit[:, None])  # more than `count` where some are equal
    order = np.lexsort((column, distances[row, column], row))
    row, column = row[order], column[order]
    place = np.arange(len(row)) - np.searchsorted(row, row)
    found: Integers = column[place < count].reshape(len(distances), count).astype(np.int64)
    return found


def _combinations(anchors: Integers, near: Integers, far: Integers) -> Integers:
    """(t * a * b, 3): each anchor with every pair of its a near and its b far rows."""
    t, a, b = len(anchors), near.shape[1], far.shape[1]
    columns = (anchors[:, None, None], near[:, :, None], far[:, None, :])
    return np.stack([np.broadcast_to(column, (t, a, b)).ravel() for column in columns], axis=1)
