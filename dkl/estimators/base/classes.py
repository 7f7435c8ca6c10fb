"""Class labels of any classifier: checked, and kept in a run's folder as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dkl.errors import InputError, StoreError
from dkl.io.plain_arrays import in_memory
from dkl.side_information.labels import refuse_all_distinct, refuse_one_class, require_labels
from dkl.stores.run import RunStore

if TYPE_CHECKING:
    from dkl.estimators.base.validation import UserLabels


def checked_labels(y: Any, n: int, learner: str = "a classifier") -> tuple[NDArray, NDArray[np.intp]]:
    """Return (classes in order, (n,) class number of each row); InputError for bad labels or one class.

    learner: whom labels are missing to, where y is None.
    """
    if y is None:
        what = f"{learner} requires y to be passed, but the target y is None"
        raise InputError(what, remedy="pass the labels")
    y = in_memory(y, "y")
    require_labels(y)
    is_plain = _is_plain(y)
    given = y if is_plain else _as_sklearn_has_it(y)
    if len(given) != n:
        raise InputError("inconsistent numbers of samples", where="y", got=f"shape {given.shape}", wanted=f"({n},)")
    classes, numbers = np.unique(given, return_inverse=True)
    refuse_one_class(len(classes), n)
    refuse_all_distinct(len(classes), n)
    if is_plain and 2 * len(classes) > len(given):
        _as_sklearn_has_it(y)  # it warns of as many
    return classes, numbers


def _is_plain(y: UserLabels) -> bool:
    """Return whether y is a valid array (n,) of text or whole numbers, so that scikit-learn is not needed.

    Importing scikit-learn takes a second. Raises InputError for numbers that are not whole.
    """
    if type(y) is not np.ndarray or y.ndim != 1 or y.dtype.kind not in "biufU":
        return False
    if y.dtype.kind != "f":
        return True
    if not np.isfinite(y).all():
        return False
    _require_whole(y)
    return True


def _require_whole(y: NDArray) -> None:
    """Raise InputError for the first number that cannot be a class label."""
    # From 2^53 on a double stands for several whole numbers.
    broken = np.flatnonzero((np.abs(y) >= 2**53) | (y != np.trunc(y)))
    if broken.size:
        what, got, wanted = "Unknown label type: continuous", y[broken[0]], "whole numbers, or text"
        raise InputError(what, where=f"y[{broken[0]}]", got=got, wanted=wanted)


def _as_sklearn_has_it(y: UserLabels) -> NDArray:
    """Return y as an array (n,) if scikit-learn takes it for class labels; else InputError with its words."""
    from sklearn.utils import assert_all_finite, column_or_1d
    from sklearn.utils.multiclass import check_classification_targets

    try:
        given = column_or_1d(y, warn=True)
        if given.dtype.kind == "S":  # scikit-learn refuses them only from 1.7 on
            raise TypeError("labels must not be bytes: turn them into text")
        if given.dtype.kind in "mM":
            raise TypeError(f"labels must be numbers or text, not {given.dtype}")
        if given.dtype.kind == "O" and all(isinstance(label, (int, np.integer)) for label in given):
            given = np.array(given.tolist())  # as a column of mixed types is handed out
        if given.dtype.kind == "f":
            assert_all_finite(given, input_name="y")
            _require_whole(given)
        check_classification_targets(given)
    except (ValueError, TypeError) as error:
        is_mixed = "not supported between" in str(error)
        what = "labels of types that do not compare" if is_mixed else " ".join(str(error).split())
        raise InputError(what, where="y", wanted="numbers, or text" if is_mixed else None) from error
    return np.asarray(given)


def describe_classes(classes: NDArray) -> dict[str, object]:
    """Return class labels, numbers or text, as stored in JSON."""
    return {"values": classes.tolist(), "dtype": classes.dtype.str}


def read_classes(run: RunStore) -> NDArray:
    """Read the class labels of a run, in their order; StoreError if its configuration has no valid ones."""
    known = run.config.get("classes")
    try:
        dtype = np.dtype(known["dtype"])  # type: ignore[index]
        if dtype.kind not in "biufU":
            raise ValueError(f"dtype {dtype}")
        classes = np.array(known["values"], dtype)  # type: ignore[index]
        if classes.ndim != 1 or len(np.unique(classes)) != len(classes) or len(classes) < 2:
            raise ValueError(f"{classes.size} values")
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise StoreError("no classes that are understood", where=f"{run.path}/config.json", got=error) from error
    return classes
