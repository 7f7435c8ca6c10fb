"""Checks of weights of samples and classes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import compute_class_weight
from sklearn.utils.validation import _check_sample_weight

from dkl.errors import InputError
from dkl.estimators.base.validation import in_short
from dkl.io.plain_arrays import in_memory, refuse_text

if TYPE_CHECKING:
    from dkl.estimators.base.user_types import UserWeights


def checked_weights(sample_weight: UserWeights, n: int) -> NDArray[np.float64] | None:
    """Return the weights (n,), none negative, of a finite positive sum; None stays None."""
    if sample_weight is None:
        return None
    sample_weight = in_memory(sample_weight, "sample_weight")
    refuse_text(sample_weight, "sample_weight")
    try:
        found = _check_sample_weight(sample_weight, np.empty((n, 1)), dtype=np.float64, ensure_non_negative=True)
    except (ValueError, TypeError, OverflowError) as error:
        raise InputError(in_short(error), where="sample_weight") from error
    with np.errstate(over="ignore"):
        total = float(found.sum())
    if not 0 < total < np.inf:
        what = "not weights" if total else "all weights are zero"
        raise InputError(what, where="sample_weight", got=f"a sum of {total:g}", wanted="a finite one > 0")
    return np.asarray(found)


def box_bounds(
    C: float,
    class_weight: object,
    classes: NDArray,
    labels: NDArray[np.intp],
    sample_weight: NDArray[np.float64] | None,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return (C_i (n,), weight of each class): C_i is C times class weight times sample weight.

    "balanced" counts rows, as in SVC.
    """
    if class_weight is None:
        weights = np.ones(len(classes))  # without scikit-learn's checks: a twentieth of a fit of 150 rows
    else:
        try:
            weights = compute_class_weight(class_weight, classes=classes, y=classes[labels])
        except (ValueError, TypeError) as error:
            raise InputError(" ".join(str(error).split()), where="class_weight") from error
    if not (np.isfinite(weights).all() and (weights >= 0).all()):
        raise InputError("not weights", where="class_weight", got=repr(class_weight), wanted="finite numbers >= 0")
    bounds = C * weights[labels]
    return bounds if sample_weight is None else bounds * sample_weight, weights
