"""Measures of how well a clustering agrees with the true classes. The counting is scikit-learn's."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.metrics import adjusted_rand_score, rand_score

from dkl.errors import InputError
from dkl.side_information.labels import require_labels


def pair_accuracy(labels_true: Any, labels_pred: Any, *, subset: Any = None) -> float:
    """Return the share of pairs of patterns that two labelings treat alike, in [0, 1].

    Alike is together in both, or apart in both.

        accuracy = sum over i > j of I(I(c_i = c_j) = I(c'_i = c'_j)) / (0.5 n (n - 1))

    It is the Rand index. Pairs are counted in 64-bit integers from the sparse contingency table: exact below n = 3e9,
    O(n log n) time, O(n) memory.

    Parameters
    ----------
    labels_true, labels_pred : (n,)
        Any labels; the names of the clusters do not matter.
    subset : (n,) booleans, or row numbers, optional
        Rows to count; all by default.

    Returns
    -------
    float

    Raises
    ------
    InputError
        For labels that are not (n,) each, or not labels; a bad subset; fewer than two patterns.

    See Also
    --------
    adjusted_rand_index : The same count, corrected for chance.
    sklearn.metrics.rand_score : The count itself, without checks and subset.

    References
    ----------
    E.-L. Hu, J. T. Kwok, Efficient kernel learning from side information using ADMM, IJCAI 2013, section 4.
    W. M. Rand, Objective criteria for the evaluation of clustering methods, Journal of the American Statistical
    Association 66, 1971. doi:10.1080/01621459.1971.10482356

    Examples
    --------
    >>> from dkl import pair_accuracy
    >>> pair_accuracy([0, 0, 1, 1], ["b", "b", "a", "a"])
    1.0
    >>> pair_accuracy([0, 0, 1, 1], [0, 0, 0, 1])
    0.5
    """
    return float(rand_score(*_labels(labels_true, labels_pred, subset)))


def adjusted_rand_index(labels_true: Any, labels_pred: Any, *, subset: Any = None) -> float:
    """Return the Rand index corrected for chance: 1 for equal clusterings, about 0 for random ones.

    Parameters
    ----------
    labels_true, labels_pred, subset
        As in `pair_accuracy`.

    Returns
    -------
    float
        At most 1, and below 0 for clusterings that agree less than random ones.

    Raises
    ------
    InputError
        As in `pair_accuracy`.

    See Also
    --------
    pair_accuracy : The Rand index itself.
    sklearn.metrics.adjusted_rand_score : The figure itself, without checks and subset.

    References
    ----------
    L. Hubert, P. Arabie, Comparing partitions, Journal of Classification 2, 1985. doi:10.1007/BF01908075

    Examples
    --------
    >>> from dkl import adjusted_rand_index
    >>> adjusted_rand_index([0, 0, 1, 1], [1, 1, 0, 0])
    1.0
    >>> adjusted_rand_index([0, 0, 1, 1], [0, 1, 0, 1])
    -0.5
    """
    return float(adjusted_rand_score(*_labels(labels_true, labels_pred, subset)))


def _labels(labels_true: Any, labels_pred: Any, subset: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return two labelings (n,) as arrays, cut to `subset`; InputError if unmatched or without a pair."""
    true, pred = np.asarray(labels_true), np.asarray(labels_pred)
    if true.ndim != 1 or true.shape != pred.shape:
        got = f"shapes {true.shape} and {pred.shape}"
        raise InputError("labelings do not match", where="labels_true, labels_pred", got=got, wanted="(n,) and (n,)")
    if subset is not None:
        rows = _rows(subset, len(true))
        true, pred = true[rows], pred[rows]
    for name, labels in (("labels_true", true), ("labels_pred", pred)):
        require_labels(labels, name)
    if len(true) < 2:  # scikit-learn returns 1 then
        raise InputError("no pairs to count", where="labels_true", got=f"{len(true)} patterns", wanted="at least 2")
    return true, pred


def _rows(subset: Any, n: int) -> np.ndarray:
    """Return row numbers, each once: a row counted twice would make a pair with itself."""
    rows = np.asarray(subset)
    # Of two rows [0, 1] is row numbers and [False, True] a mask: the type decides.
    if rows.shape == (n,) and rows.dtype == bool:
        return np.flatnonzero(rows)
    wanted = f"a boolean mask of {n}, or distinct row numbers from 0 to {n - 1}"
    if rows.ndim != 1 or (rows.dtype.kind not in "iu" and rows.size):
        raise InputError("not a subset", where="subset", got=f"{rows.dtype} {rows.shape}", wanted=wanted)
    distinct = np.unique(rows.astype(np.int64))
    if len(distinct) < len(rows) or np.any((distinct < 0) | (distinct >= n)):
        raise InputError("not a subset", where="subset", got="repeated or missing rows", wanted=wanted)
    return distinct
