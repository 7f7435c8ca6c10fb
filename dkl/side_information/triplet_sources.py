"""Triplets from class labels: each labeled row, its nearest rows of its class and of others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dkl.errors import InputError
from dkl.io.plain_arrays import in_memory, largest_value, refuse_text, refuse_too_large
from dkl.side_information.labels import refuse_one_class
from dkl.side_information.pair_checks import Integers

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from scipy.sparse import csr_array

QUERIES = 512
"""Number of anchors whose distances to all labeled rows are held at a time."""
PAIR_BYTES = 2**24
"""Size of the differences of two rows that are held at a time."""

Matrix = npt.NDArray[np.float64]


def triplets_of_labels(X: object, codes: Integers, n_in: int, n_out: int, *, is_kernel: bool) -> Integers:
    """Return (m, 3): each labeled row with every pair of a near row of its class and a near row of others.

    Near are the `n_in` nearest rows of its class and the `n_out` nearest of other classes, all where there are fewer;
    ties go to the lower row number. X (n, d) rows, dense or sparse; or, where it `is_kernel`, a kernel matrix (n, n).
    codes (n,) as of `encode_labels`. Distances are made a block at a time: O(m n d) time, and no n^2 anywhere. Those of
    rows are sums of squared differences wherever products of rows, which cancel far from 0, leave open which are least.
    Source: trin_li_2009, section 6.2.
    """
    labelled = np.flatnonzero(codes >= 0)
    classes = np.unique(codes[labelled])
    refuse_one_class(len(classes), len(labelled))
    rows, parts = _rows(X, len(codes), is_kernel), []
    space: _KernelSpace | _RowSpace = _KernelSpace(rows) if is_kernel else _RowSpace(rows)
    for code in classes:
        own, others = labelled[codes[labelled] == code], labelled[codes[labelled] != code]
        for lo in range(0, len(own), QUERIES):
            anchors = own[lo : lo + QUERIES]
            near = own[_nearest(space, anchors, own, min(n_in, len(own) - 1))]
            far = others[_nearest(space, anchors, others, min(n_out, len(others)))]
            parts.append(_combinations(anchors, near, far))
    found = np.concatenate(parts)
    # By anchor, whatever order the classes came in, so that names of classes do not decide the order of the constraints.
    return found[np.argsort(found[:, 0], kind="stable")]


def _rows(X: object, n: int, is_kernel: bool) -> NDArray | csr_array:
    """Return X for computing distances; raise InputError unless it has a row a label."""
    X = in_memory(X, "X")
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
    # An eighth: sums of two entries and twice a third stay finite, with their rounding.
    refuse_too_large(rows, float(np.finfo(np.float64).max) / 8 if is_kernel else largest_value(rows.shape[1]))
    return rows


class _KernelSpace:
    """Squared distances K_ii + K_jj - 2 K_ij of a kernel (n, n), as they are."""

    def __init__(self, K: NDArray) -> None:
        self.K, self.diagonal = K, np.asarray(np.diagonal(K), dtype=np.float64)

    def about(self, anchors: Integers, others: Integers) -> tuple[Matrix, float]:
        """Return (squared distances (t, s) up to rounding, a bound of the rounding)."""
        return self.diagonal[anchors, None] + self.diagonal[others] - 2.0 * self.K[np.ix_(anchors, others)], 0.0

    def between(self, i: Integers, j: Integers) -> Matrix:
        """Return (p,) squared distances of the pairs i, j (p,)."""
        return np.asarray(self.diagonal[i] + self.diagonal[j] - 2.0 * self.K[i, j], dtype=np.float64)


class _RowSpace:
    """Squared distances of rows (n, d): by products about the mean, those of sparse rows about 0, and by differences."""

    def __init__(self, rows: Any) -> None:
        is_sparse = sp.issparse(rows)
        self.rows = rows.astype(np.float64, copy=False)
        self.mean = 0.0 if is_sparse else self.rows.mean(axis=0)
        self.width = 2 * rows.nnz // rows.shape[0] + 1 if is_sparse else rows.shape[1]

    def about(self, anchors: Integers, others: Integers) -> tuple[Matrix, float]:
        """Return (squared distances (t, s) up to rounding, a bound of the rounding)."""
        own, theirs = self._near_0(anchors), self._near_0(others)
        found = own @ theirs.T
        found = found.toarray() if sp.issparse(found) else found
        first, second = _row_sums(own, own), _row_sums(theirs, theirs)
        # Of sums of d products, each rounded, about the two squared lengths that cancel.
        rounding = (8 * own.shape[1] + 64) * float(np.finfo(np.float64).eps) * float(first.max() + second.max())
        # In place: a block of distances is the largest array here.
        found *= -2.0
        found += first[:, None]
        found += second
        return found, rounding

    def _near_0(self, some: Integers) -> NDArray | csr_array:
        return self.rows[some] if sp.issparse(self.rows) else self.rows[some] - self.mean

    def between(self, i: Integers, j: Integers) -> Matrix:
        """Return (p,) squared distances of the pairs i, j (p,)."""
        found, step = np.empty(len(i)), max(1, PAIR_BYTES // (8 * self.width))
        for lo in range(0, len(i), step):
            # Differences lose no digits however far the rows are from 0, which products do.
            apart = self.rows[i[lo : lo + step]] - self.rows[j[lo : lo + step]]
            found[lo : lo + step] = _row_sums(apart, apart)
        return found


def _row_sums(a: Any, b: Any) -> Matrix:
    """Return (m,) inner products of rows in the same place, dense or sparse."""
    found = a.multiply(b).sum(axis=1) if sp.issparse(a) else np.einsum("md,md->m", a, b)
    return np.asarray(found, np.float64).ravel()


def _nearest(space: _KernelSpace | _RowSpace, anchors: Integers, others: Integers, count: int) -> Integers:
    """Return (t, count) places in `others` of the rows nearest to each anchor, in their order.

    The anchor itself is left out; of equally near rows the first are taken.
    """
    if not count:
        return np.zeros((len(anchors), 0), dtype=np.int64)
    distances, rounding = space.about(anchors, others)
    first = np.searchsorted(others, anchors[0])
    # Rows of one class, in which the anchors follow one another: none is its own neighbor.
    if first < len(others) and others[first] == anchors[0]:
        distances[np.arange(len(anchors)), first + np.arange(len(anchors))] = np.inf
    # Twice, as the distance at the limit and the one compared with it may both be off.
    limit = np.partition(distances, count - 1, axis=1)[:, count - 1] + 2 * rounding
    row, column = np.nonzero(distances <= limit[:, None])  # more than `count` where some are equal
    order = np.lexsort((column, space.between(anchors[row], others[column]), row))
    row, column = row[order], column[order]
    place = np.arange(len(row)) - np.searchsorted(row, row)
    found: Integers = column[place < count].reshape(len(anchors), count).astype(np.int64)
    return found


def _combinations(anchors: Integers, near: Integers, far: Integers) -> Integers:
    """Return (t * a * b, 3): each anchor with every pair of its a near and its b far rows."""
    t, a, b = len(anchors), near.shape[1], far.shape[1]
    columns = (anchors[:, None, None], near[:, :, None], far[:, None, :])
    return np.stack([np.broadcast_to(column, (t, a, b)).ravel() for column in columns], axis=1)
