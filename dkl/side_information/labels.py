"""Class labels of rows: which entries mean that a row has no label, and which labels cannot name classes."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dkl.errors import InputError
from dkl.io.table_lines import is_missing

WANTED = "one class label a row; None, NaN, NA, ? and the like, or -1, for unlabeled"
"""Description of labels of which some may be missing, for errors; `is_unlabeled` has the whole rule."""
MOST_DISTINCT = 10
"""Largest number of rows that may each have a label of their own: more are ids of rows, or numbers to predict."""
_INTEGER = re.compile(r"[+-]?[0-9]+(\.0*)?")
_MINUS_ONE = frozenset({"-1", "-1.", "-1.0"})


def as_labels(y: object) -> NDArray:
    """Return labels y as an array (n,); a single column (n, 1) is taken. Raises InputError for what holds no labels."""
    try:
        labels = np.asarray(y)
    except ValueError as error:
        raise InputError("labels of different lengths", where="y", wanted=WANTED) from error
    if labels.dtype.kind in "US" and not isinstance(y, np.ndarray):
        labels = np.asarray(y, dtype=object)  # NumPy has made a string of a -1 or NaN among strings
    if labels.dtype.kind not in "biufUSO":
        raise InputError("not class labels", where="y", got=f"dtype {labels.dtype}", wanted=WANTED)
    labels = labels[:, 0] if labels.ndim == 2 and labels.shape[1] == 1 else labels
    if labels.ndim != 1:
        raise InputError("labels are not one-dimensional", where="y", got=f"shape {labels.shape}", wanted=WANTED)
    return labels


def is_unlabeled(labels: NDArray, *, minus_one: bool = True) -> NDArray[np.bool_]:
    """Return which of the labels (n,) are marks of a missing one.

    Marks are None, NaN and pandas' NA and NaT; in text, in any case: nothing, NA, N/A, #N/A, NaN, null, none, ?, ., NaT and <NA>, but
    not Na and Nat; "-", unless "+" is a label as well; and -1, in numbers and in text, where it may be -1.0. minus_one: whether -1 is a
    mark among integers, which it is not where every row needs a label; among names it is one in any case.
    """
    kind = labels.dtype.kind
    if kind in "bi":
        return (labels == -1) & (kind == "i" and minus_one)
    if kind in "uf":
        return np.isnan(labels) | ((labels == -1) & minus_one) if kind == "f" else np.zeros(len(labels), np.bool_)
    values, places = (labels.tolist(), np.arange(len(labels))) if kind == "O" else _distinct(labels)
    text = [value.decode(errors="replace") if isinstance(value, bytes) else value for value in values]
    is_text = [isinstance(value, str) for value in text]
    minus_one = minus_one or any(
        named and not _INTEGER.fullmatch(value) and not _is_mark(value)
        for value, named in zip(text, is_text, strict=True)
    )
    signs = any(named and value.strip() == "+" for value, named in zip(text, is_text, strict=True))
    missing = [
        (_is_mark(value) and not (signs and value.strip() == "-")) or (minus_one and value.strip() in _MINUS_ONE)
        if named
        else _is_no_value(value) or (minus_one and value == -1)
        for value, named in zip(text, is_text, strict=True)
    ]
    return np.array(missing, np.bool_)[places]


def _distinct(labels: NDArray) -> tuple[list[Any], NDArray[np.intp]]:
    values, places = np.unique(labels, return_inverse=True)
    return values.tolist(), places


def _is_mark(text: str) -> bool:
    """Return whether text is a mark of a missing label: the marks of a missing number, and None."""
    return is_missing(text) or text.strip() == "None"


def _is_no_value(value: object) -> bool:
    """Return whether an object is None, NaN, NaT or pandas.NA."""
    # The value of pandas.NA == pandas.NA is neither true nor false.
    return value is None or type(value).__name__ in ("NAType", "NaTType") or bool(value != value)


def require_labels(y: object, where: str = "y") -> None:
    """Raise InputError for the first row without a label, where every row needs one."""
    try:
        labels = as_labels(y)
    except InputError:  # the checks of classes have better words for others
        return
    missing = np.flatnonzero(is_unlabeled(labels, minus_one=False))
    if missing.size:
        row, others = int(missing[0]), f" and {missing.size - 1:,} more" if missing.size > 1 else ""
        got = f"{str(labels[row])!r}{others}"
        remedy = "drop the rows without a label; if it is the name of a class, give it another"
        raise InputError(
            "a label is missing", where=f"{where}[{row}]", got=got, wanted="a label in every row", remedy=remedy
        )


def require_targets(y: object) -> None:
    """Raise InputError for the first of the numbers y (n,) or (n, T) that is missing: None, NaN, NaT or pandas.NA."""
    try:
        values = np.asarray(y)
    except ValueError:  # rows of different lengths
        return
    if values.dtype.kind == "f":
        missing = np.isnan(values)
    elif values.dtype.kind == "O":
        missing = np.array([_is_no_value(value) for value in values.flat], np.bool_).reshape(values.shape)
    else:
        return
    places = np.argwhere(missing)
    if len(places):
        got, remedy = str(values[tuple(places[0])]), "drop the rows without a target"
        where = f"y[{', '.join(map(str, places[0]))}]"
        raise InputError("a target is missing", where=where, got=got, wanted="a number in every row", remedy=remedy)


def refuse_all_distinct(n_classes: int, n_labeled: int) -> None:
    """Raise InputError where more than MOST_DISTINCT labeled rows all differ: such a column does not name classes."""
    if n_classes == n_labeled > MOST_DISTINCT:
        raise InputError(
            "every label is another: no two rows are of one class", where="y", got=f"{n_classes:,} labels of {n_labeled:,} rows",
            wanted="classes of several rows", remedy="choose the column of classes; numbers to predict are for a regression",
        )  # fmt: skip


def refuse_one_class(n_classes: int, n_labeled: int) -> None:
    """Raise InputError where labels are of fewer than two classes, by which no two rows differ."""
    if n_classes < 2:
        raise InputError(
            "all labeled rows are of one class" if n_classes else "no row has a label", where="y",
            got=f"{n_classes} class{'' if n_classes else 'es'} among {n_labeled:,} labeled rows", wanted="two classes or more",
        )  # fmt: skip
