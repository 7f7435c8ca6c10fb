"""Class labels, checked."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import assert_all_finite, column_or_1d
from sklearn.utils.multiclass import check_classification_targets

from dkl._plain_arrays import refuse_masked
from dkl.errors import InputError


def checked_labels(y: Any, n: int) -> tuple[NDArray, NDArray[np.intp]]:
    """(classes in order, (n,) the number of each row's class); InputError for what is no label of n rows, or one class."""
    if y is None:
        what = "OptimalNeighborhoodSVC requires y to be passed, but the target y is None"
        raise InputError(what, remedy="pass the labels")
    refuse_masked(y, "y")
    try:
        given = column_or_1d(y, warn=True)
        if given.dtype.kind == "S":  # scikit-learn refuses them only from 1.7 on
            raise TypeError("labels must not be bytes: turn them into text")
        if given.dtype.kind == "f":
            assert_all_finite(given, input_name="y")
        check_classification_targets(given)
    except (ValueError, TypeError) as error:
        raise InputError(" ".join(str(error).split()), where="y") from error
    if len(given) != n:
        raise InputError("inconsistent numbers of samples", where="y", got=f"shape {given.shape}", wanted=f"({n},)")
    classes, numbers = np.unique(given, return_inverse=True)
    if len(classes) < 2:
        got = f"{len(classes)} class"
        raise InputError("The number of classes has to be greater than one", where="y", got=got)
    return classes, numbers
